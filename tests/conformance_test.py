#!/usr/bin/env python3
"""Every conformance vector is consumed by a test, or stands in the list below with the reason."""

import json
import os
import pathlib
import re
import sys

NOT_YET = {}


def consumed_schemas():
    call = re.compile(r'(?:run|require)_conformance\(\s*"([^"]+)"')
    return {schema for path in pathlib.Path("tests").rglob("*_test.cpp")
            for schema in call.findall(path.read_text())}


def main():
    consumed = consumed_schemas()
    folder = pathlib.Path(os.environ.get("QUIRE_CONFORMANCE_DIR", "tests/data/conformance"))
    problems, seen = [], set()
    for path in sorted(folder.glob("*.json")):
        vectors = json.loads(path.read_text())
        schema, cases = vectors.get("schema"), vectors.get("cases", [])
        seen.add(schema)
        if not cases:
            problems.append(f"{path}: has no cases")
        if schema in consumed:
            continue
        if schema in NOT_YET:
            print(f"{path.name}: {len(cases)} cases not consumed: {NOT_YET[schema]}")
        else:
            problems.append(f"{path}: no test asks for schema {schema}")
    problems += [f"no vectors of schema {schema} in {folder}" for schema in sorted(consumed - seen)]
    problems += [f"{schema} is consumed: remove it from the list here"
                 for schema in sorted(consumed & NOT_YET.keys())]
    print("\n".join(problems))
    return 1 if problems or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
