#!/usr/bin/env python3
"""Every text drawn under the masks of a schema is JSON that fits it, as the package jsonschema judges. Exit code 77 without that
package. property_test.py GRAMMAR_SAMPLES; QUIRE_PROPERTY_TEXTS: how many texts (2,000), by vocabularies of all kinds: byte-level BPE,
SentencePiece with bytes, WordPiece."""
import decimal, json, os, pathlib, random, subprocess, sys

try:
    import jsonschema
except ImportError:
    print("jsonschema is not installed")
    sys.exit(77)


def scalar(r):
    low = r.randint(-50, 50)
    return r.choice([
        lambda: {"type": "string"},
        lambda: {"type": "string", "minLength": r.randint(0, 3), "maxLength": r.randint(3, 9)},
        lambda: {"type": "string", "pattern": r.choice(["^[a-z]+$", "b", "^a|z$", "[0-9]{2,}", "^(x|yy)*$"]), "maxLength": 12},
        lambda: {"type": "integer", "minimum": low, "maximum": low + r.randint(0, 200)},
        lambda: {"type": "integer", "multipleOf": r.randint(2, 9)},
        lambda: {"type": "number", "exclusiveMinimum": low / 8, "maximum": low / 8 + r.randint(1, 9)},
        lambda: {"type": r.sample(["boolean", "null", "integer"], 2)},
        lambda: {"type": ["array", "object"], "not": {"enum": [[], {}]}, "items": {"const": 1}, "maxItems": 3, "maxProperties": 2},
        lambda: {"enum": r.sample(["a", "b\"c", 1, -2.5, None, True, [1], {"k": "v"}], 3)},
        lambda: {"type": "string", "not": {"enum": ["a", ""]}, "maxLength": 3},
        lambda: {"type": "string", "format": r.choice(["date", "time", "uuid", "ipv4", "email"])},
        lambda: {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]},
        lambda: {"if": {"type": "string"}, "then": {"maxLength": 2}, "else": {"type": "boolean"}},
        lambda: {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 30}], "not": {"const": 7}},
    ])()


def schema(r, depth):
    kind = r.random()
    if depth == 0 or kind < 0.3:
        return scalar(r)
    if kind < 0.5:
        out = {"type": "array", "items": schema(r, depth - 1), "minItems": r.randint(0, 2), "maxItems": r.randint(2, 4)}
        if r.random() < 0.3:
            out["prefixItems"] = [schema(r, depth - 1)]
        if r.random() < 0.2:
            out["items"], out["uniqueItems"] = r.choice([
                {"enum": ["a", "b", 3, None]}, {"enum": [f"k{i}" for i in range(20)] + [[], {"a": 1}]},
                {"type": "integer", "minimum": r.randint(-9, 0), "maximum": r.randint(3, 40)},
                {"type": "string", "maxLength": r.randint(1, 4)}, {"type": ["string", "number", "boolean"], "pattern": "^[a-c]*$"}]), True
            out["maxItems"] = r.randint(2, 9)
            out.pop("prefixItems", None)
        return out
    if kind < 0.6:
        return {"anyOf": [schema(r, depth - 1) for _ in range(r.randint(1, 3))]}
    keys = r.sample(["a", "b", "name", "id x", "é", "q\"t"], r.randint(1, 4))
    out = {"type": "object", "properties": {k: schema(r, depth - 1) for k in keys}}
    out["required"] = r.sample(keys, r.randint(0, len(keys)))
    if r.random() < 0.5:
        out["additionalProperties"] = r.choice([False, {"type": "integer"}, {"type": "string", "maxLength": 2}])
    if r.random() < 0.2:
        out["patternProperties"] = {"^x_": {"type": "null"}}
    if r.random() < 0.3:
        out["minProperties"] = r.randint(0, len(keys))
    if r.random() < 0.2:
        out["dependentRequired"] = {keys[0]: keys[-1:]}
    return out


def vectors():
    root = pathlib.Path(os.environ.get("QUIRE_STRUCTURED_DIR", "tests/data/structured"))
    for path in sorted(root.glob("accept/json_schema_*.jsonl")):
        for line in open(path, encoding="utf-8", newline="\n"):
            yield json.loads(line)["spec"]["schema"]


MODELS = ["models/quire-tiny", "tests/data/golden/tokenizers/llama2-legacy", "tests/data/golden/tokenizers/bert-uncased"]


class Repeated(ValueError):
    pass


def once(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise Repeated
    return dict(pairs)


decimal.getcontext().prec = 500  # digits, more than a text has


def number(text):
    """As a float, but for what is no whole number and would become one by rounding."""
    value = float(text)
    try:
        exact = decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent beyond all bounds
        return value or 5e-324
    return exact if value.is_integer() and exact != exact.to_integral_value() else value


def check(model, wanted, r, each=8):
    schemas = list(vectors())
    while len(schemas) * each < wanted * 2:
        schemas.append(schema(r, 3))
    r.shuffle(schemas)
    schemas = schemas[: wanted // each + 1]
    # json.loads of Python takes duplicate keys, NaN and Infinity: the grammar must not make the latter.
    questions = "".join(json.dumps({"schema": s, "count": each}) + "\n" for s in schemas)
    done = subprocess.run([sys.argv[1], model], input=questions, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"grammar_samples: {done.stderr}")
    texts = refused = repeated = 0
    formats = jsonschema.FormatChecker(["date", "ipv4", "email"])
    for one, line in zip(schemas, done.stdout.split("\n")):
        answer = json.loads(line)
        if "error" in answer:
            refused += 1
            if answer["error_kind"] == "limit":
                sys.exit(f"over the budget: {json.dumps(one)}")
            continue
        cls = jsonschema.validators.validator_for(one, default=jsonschema.Draft202012Validator) if isinstance(one, dict) else jsonschema.Draft202012Validator
        validator = cls(one, format_checker=formats)
        for text in answer["texts"]:
            try:
                value = json.loads(text, parse_constant=lambda name: sys.exit(f"{name} in {text}"), object_pairs_hook=once, parse_float=number)
            except Repeated:  # additional keys may come twice (docs/structured-output.md); values are then not comparable
                repeated += 1
                continue
            except ValueError as error:
                sys.exit(f"not JSON ({error}): {text!r} under {json.dumps(one)}")
            for error in validator.iter_errors(value):
                sys.exit(f"{error.message}: {text!r} under {json.dumps(one)}")
            texts += 1
    print(f"{model}: {texts} texts of {len(schemas)} schemas fit, {refused} schemas refused, {repeated} texts with a repeated additional key left out")
    if texts < wanted // 8:  # a small vocabulary cannot begin half of them
        sys.exit("too few texts")


def main():
    r, wanted = random.Random(int(os.environ.get("QUIRE_PROPERTY_SEED", "4"))), int(os.environ.get("QUIRE_PROPERTY_TEXTS", "2000"))
    for model in MODELS:
        check(model, wanted // len(MODELS), r)


if __name__ == "__main__":
    main()
