#!/usr/bin/env python3
"""Random schemas through a whole server, the shipped model at temperature 2: every answer that came to its end is JSON that fits, as the
package jsonschema judges; one that was cut is the beginning of one. Exit code 77 without that package.

    tests/e2e/schema_draws_test.py build/release/app/quire     QUIRE_PROPERTY_TEXTS: how many texts (400)
"""
import concurrent.futures
import json
import os
import pathlib
import random
import sys
import urllib.error

try:
    import jsonschema
except ImportError:
    print("jsonschema is not installed")
    sys.exit(77)

from serve_process import Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "engine" / "structured"))
from property_test import Repeated, once, schema, vectors  # noqa: E402

EACH = 8


def ask(server, number, wanted):
    body = dict(messages=[{"role": "user", "content": "Say something."}], n=EACH, seed=number, temperature=2.0, max_tokens=200,
                structured_outputs={"json": wanted, "disable_any_whitespace": number % 4 != 0})
    try:
        return server.post("/v1/chat/completions", **body)["choices"]
    except urllib.error.HTTPError as error:
        said = json.loads(error.read())["error"]
        if error.code != 400 or not (said["param"] or "").startswith("/structured_outputs/json"):
            sys.exit(f"FAILED: {json.dumps(wanted)}: {said}")
        return None


def main():
    texts = int(os.environ.get("QUIRE_PROPERTY_TEXTS", "400"))
    r = random.Random(int(os.environ.get("QUIRE_PROPERTY_SEED", "9")))
    known = [s for s in vectors() if isinstance(s, dict)]
    schemas = [schema(r, 3) if r.random() < 0.7 else r.choice(known) for _ in range(texts // EACH + 1)]
    whole = cut = refused = repeated = 0
    formats = jsonschema.FormatChecker(["date", "ipv4", "email"])
    with Server(sys.argv[1], "models/quire-tiny") as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda pair: ask(server, *pair), enumerate(schemas))
        for wanted, choices in zip(schemas, answers):
            if choices is None:
                refused += 1
                continue
            cls = jsonschema.validators.validator_for(wanted, default=jsonschema.Draft202012Validator)
            for choice in choices:
                text = choice["message"]["content"]
                if choice["finish_reason"] == "length":
                    cut += 1
                    continue
                try:
                    value = json.loads(text, object_pairs_hook=once)
                except Repeated:  # additional keys may come twice; values are then not comparable
                    repeated += 1
                    continue
                except ValueError as error:
                    sys.exit(f"FAILED: not JSON ({error}): {text!r} under {json.dumps(wanted)}")
                for error in cls(wanted, format_checker=formats).iter_errors(value):
                    sys.exit(f"FAILED: {error.message}: {text!r} under {json.dumps(wanted)}")
                whole += 1
    print(f"{whole} answers to {len(schemas)} schemas fit, {cut} were cut, {refused} schemas refused, {repeated} with a repeated key left out")
    if whole < texts // 4:
        sys.exit("FAILED: too few came to an end")


if __name__ == "__main__":
    main()
