#!/usr/bin/env python3
"""Every example in openapi/examples follows the schemas of openapi.yaml, and every path of the contract exists.

Needs PyYAML and jsonschema; exit 77 (skipped) without them.
"""
import json
import pathlib
import re
import sys

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"{missing.name} is not installed: skipped")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2] / "openapi"
contract = yaml.safe_load((ROOT / "openapi.yaml").read_text())
errors = []


def resolve(node):
    """The response behind a reference."""
    while "$ref" in node:
        target = contract
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def check(name, instance, schema):
    root = {**schema, "components": contract["components"]}
    for error in jsonschema.Draft202012Validator(root).iter_errors(instance):
        errors.append(f"{name}: {error.json_path}: {error.message[:300]}")


for file in sorted((ROOT / "examples").glob("*.json")):
    example = json.loads(file.read_text())
    operation = contract["paths"][example["path"]]["post"]
    if example["status"] == 200:
        check(f"{file.name}: request", example["request"],
              operation["requestBody"]["content"]["application/json"]["schema"])
        content = operation["responses"]["200"]["content"]
    else:
        content = resolve(operation["responses"]["4XX"])["content"]
    if "events" in example:
        if example["path"] in ("/v1/chat/completions", "/v1/completions", "/inference/v1/generate"):
            assert example["events"].pop() == "[DONE]", file.name
        for event in example["events"]:
            check(f"{file.name}: event", event, content["text/event-stream"]["schema"])
    else:
        check(f"{file.name}: response", example["response"], content["application/json"]["schema"])

# Whatever is routed is in the contract; the page's files and other names of probes aside.
ROUTER = (ROOT.parent / "server" / "route_table.cpp").read_text().replace("**", "*")
routed = set(re.findall(r'Route\{"([^"]+)"', ROUTER))
described = {path.replace("{id}", "*") for path in contract["paths"]}
for path in sorted(routed - described - {"/ready", "/readyz", "/metrics/", "/ui/*"}):
    errors.append(f"{path} is in server/route_table.cpp and not in openapi.yaml")
for path, methods in contract["paths"].items():
    names = [operation["operationId"] for method, operation in methods.items() if method != "parameters"]
    if f'"{path.replace("{id}", "*")}"' not in ROUTER:
        errors.append(f"{path} ({', '.join(names)}) is not in server/route_table.cpp")

print("\n".join(errors) or "examples: ok")
sys.exit(1 if errors else 0)
