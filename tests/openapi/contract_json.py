#!/usr/bin/env python3
"""openapi.json, which the program carries, says what openapi.yaml says; with --write it is made so.

Needs PyYAML; exit 77 (skipped) without it.
"""
import json
import pathlib
import sys

try:
    import yaml
except ImportError:
    print("PyYAML is not installed: skipped")
    sys.exit(77)

folder = pathlib.Path(__file__).resolve().parents[2] / "openapi"
text = json.dumps(yaml.safe_load((folder / "openapi.yaml").read_text()), ensure_ascii=False, indent=1) + "\n"
if "--write" in sys.argv:
    (folder / "openapi.json").write_text(text)
elif (folder / "openapi.json").read_text() != text:
    sys.exit("openapi.json is not openapi.yaml: run tests/openapi/contract_json.py --write")
print("openapi.json: ok")
