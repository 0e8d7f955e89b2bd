#!/usr/bin/env python3
"""deploy/'s files against the schemas of those who read them: compose.yml against Compose's, the Kubernetes objects against the API's
types as the `kubernetes` package has them, the InferencePool against its CRD. What is not there is skipped with a word.

    QUIRE_SCHEMA_DIR=FOLDER tests/deploy/schema_test.py     compose-spec.json, inferencepools.yaml (CRD) in FOLDER
"""
import json
import os
import pathlib
import re
import sys

DEPLOY = pathlib.Path("deploy")
SCHEMAS = pathlib.Path(os.environ.get("QUIRE_SCHEMA_DIR", "/nonexistent"))
PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": object, "datetime": object}


def fail(what):
    sys.exit(f"FAILED: {what}")


def check_value(value, kind, where, models):
    """A value of the API: every member known, of its type, and none missing that is required."""
    if found := re.fullmatch(r"[lL]ist\[(.*)\]", kind):
        isinstance(value, list) or fail(f"{where} is no list")
        return [check_value(one, found[1], f"{where}[{i}]", models) for i, one in enumerate(value)]
    isinstance(value, dict) == (kind not in PLAIN) or fail(f"{where}: {value!r} is no {kind}")
    if found := re.fullmatch(r"[dD]ict[(\[]\w+, (.*)[)\]]", kind):
        return [check_value(one, found[1], f"{where}.{name}", models) for name, one in value.items()]
    if kind in PLAIN:
        isinstance(value, PLAIN[kind]) and (kind != "int" or value is not True) or fail(f"{where}: {value!r} is no {kind}")
        return
    model = getattr(models, kind)
    names = {spelled: name for name, spelled in model.attribute_map.items()}
    for name, one in value.items():
        name in names or fail(f"{where}.{name}: {kind} has no such member")
        check_value(one, model.openapi_types[names[name]], f"{where}.{name}", models)
    try:
        model(**{names[name]: one for name, one in value.items()})
    except ValueError as error:
        fail(f"{where}: {error}")


def kubernetes_objects(yaml):
    try:
        from kubernetes.client import models
    except ImportError:
        return print("-- the package kubernetes is not installed: its objects were not checked")
    for one in yaml.safe_load_all((DEPLOY / "kubernetes/quire.yaml").read_text()):
        check_value(one, "V1" + one["kind"], one["kind"], models)
        print("--", one["kind"], "is", one["apiVersion"])
    # The check can fail.
    for wrong in ({"kind": "Service", "spec": {"port": 1}}, {"spec": {"ports": [{"name": "http"}]}}, {"spec": {"ports": [{"port": "80"}]}}):
        try:
            check_value(wrong, "V1Service", "planted", models)
        except SystemExit:
            continue
        fail(f"{wrong} is taken")


def closed(schema):
    """Objects without the members that the schema does not name, as kubectl's strict mode has them."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            schema.setdefault("additionalProperties", False)
        schema = {name: closed(one) for name, one in schema.items()}
    elif isinstance(schema, list):
        schema = [closed(one) for one in schema]
    return schema


def by_schema(yaml):
    try:
        import jsonschema
    except ImportError:
        return print("-- jsonschema is not installed: compose.yml and the pool were not checked")
    if not (SCHEMAS / "compose-spec.json").exists():
        return print("-- QUIRE_SCHEMA_DIR is not set: compose.yml and the pool were not checked")
    jsonschema.validate(yaml.safe_load((DEPLOY / "compose.yml").read_text()), json.loads((SCHEMAS / "compose-spec.json").read_text()))
    definition = yaml.safe_load((SCHEMAS / "inferencepools.yaml").read_text())["spec"]
    pool = yaml.safe_load((DEPLOY / "kubernetes/inference-pool.yaml").read_text())
    group, version = pool["apiVersion"].split("/")
    group == definition["group"] or fail(f"{group} is not {definition['group']}")
    schema = next(v for v in definition["versions"] if v["name"] == version)["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {}
    jsonschema.validate(pool, closed(schema))
    print("-- compose.yml and the pool are as their schemas say")


try:
    import yaml
except ImportError:
    print("PyYAML is not installed: skipped")
    sys.exit(77)
kubernetes_objects(yaml)
by_schema(yaml)
print("schemas: ok")
