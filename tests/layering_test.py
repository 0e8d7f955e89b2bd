#!/usr/bin/env python3
"""Who may include whom: docs/architecture.md part 7, as a test. Prints every violation."""
import pathlib
import re
import sys

ALLOWED = {
    "base": "",
    "net": "base",
    "hub": "base net",
    "proxy": "base net",
    "openapi": "base",
    "gguf": "base",
    "jinja": "base",
    "text": "base gguf jinja",
    "backend": "base",
    "cpu": "base backend",
    "cuda": "base backend",
    "model": "base gguf backend",
    "engine": "base gguf text backend model",
    "server": "base openapi text engine",
    "load": "base net openapi text",
    "app": "base gguf net hub proxy openapi jinja text backend cpu cuda model engine server load",
}
# Inside engine/: a subfolder sees those before it.
ENGINE = {
    "structured": "",
    "request": "structured",
    "kv_hash": "request",
    "kv_plan": "",
    "kv_events": "request kv_hash kv_plan",
    "kv_cache": "request kv_hash kv_plan kv_events",
    "costs": "",
    "speculative": "request costs",
    "sampling": "request structured",
    "kv_nixl": "kv_hash kv_events wire",
    "kv_mooncake": "kv_events kv_nixl wire",
    "kv_transfer": "request kv_plan kv_cache wire kv_nixl kv_mooncake",
    "kv_offload": "request kv_hash kv_plan kv_cache kv_transfer",
    "scheduler": "request costs kv_hash kv_plan kv_events kv_cache kv_transfer structured",
    "runner": "request kv_plan kv_cache scheduler sampling structured speculative kv_transfer",
    "wire": "request structured",
    "core": "request kv_hash kv_plan kv_events kv_cache scheduler runner sampling structured speculative kv_transfer kv_offload wire",
    "client": "request wire",
}
SERVER_SEES = ("engine/client/", "engine/wire/messages.h", "engine/config.h", "engine/request/sampling_params.h", "engine/request/engine_stats.h")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)

# Flags are the command line's: below app/ texts name the configuration's field (base/spelling.h).
FLAGLESS = set(ALLOWED) - {"app", "load"}  # load/ is a program with a command line of its own
COMMENT = re.compile(r"^\s*//.*$|\s//[^\"]*$", re.M)
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
FIELD = re.compile(r"\b((?:[A-Z]\w+::)+)([a-z]\w*)")
STRUCT = re.compile(r"^ *(?:struct|class) (\w+)[^;{]*\{(.*?)^ *\};", re.M | re.S)

root = pathlib.Path(__file__).resolve().parent.parent
errors = []
bodies = {}  # of structs in headers, by name
for folder in FLAGLESS:
    for path in (root / folder).rglob("*.h"):
        for name, body in STRUCT.findall(path.read_text(encoding="utf-8")):
            bodies[name] = bodies.get(name, "") + body


def check_texts(name, text):
    for literal in LITERAL.findall(COMMENT.sub("", text)):
        for flag in FLAG.findall(literal):
            errors.append(f"{name}: {literal} spells {flag}; name the field, app/flag_names.h spells it")
        for struct, member in FIELD.findall(literal):
            if not re.search(rf"\b{member}\b", bodies.get(struct.split("::")[0], "")):
                errors.append(f"{name}: {literal} names {struct}{member}, which there is not")


for folder, allowed in ALLOWED.items():
    allowed = {folder, *allowed.split()}
    for path in sorted((root / folder).rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        if folder in FLAGLESS:
            check_texts(name, text)
        for include in INCLUDE.findall(text):
            top = include.split("/")[0]
            if top not in ALLOWED:
                errors.append(f'{name}: "{include}" does not start at the source root')
            elif top not in allowed:
                errors.append(f'{name}: {folder}/ may not include "{include}"')
            elif folder == "server" and top == "engine" and not include.startswith(SERVER_SEES):
                errors.append(f'{name}: of engine/, server/ sees client/, messages and configs, not "{include}"')
            elif folder == "engine" and top == "engine" and name.count("/") >= 2 and include.count("/") >= 2:
                here, there = name.split("/")[1], include.split("/")[1]
                if there != here and there not in ENGINE.get(here, "").split():
                    errors.append(f'{name}: engine/{here} may not include "{include}"')
        if folder not in {"base"} and re.search(r"\bco_spawn\b|\bdetached\b", text):
            errors.append(f"{name}: co_spawn and detached only in base/ (every coroutine has an owner)")
        if re.search(r"co_await[^;{]*\(\s*\{\s*\.", text):
            errors.append(f"{name}: g++ 12 destroys an aggregate twice that is made inside a co_await; name it first")
        if re.search(r"\bvariants(\.\w+)? = ", text):
            errors.append(f"{name}: only measurements and tests set cuda::variants")
        if folder in {"backend", "cuda", "model"} and re.search(r"#\s*include\s+<boost/", text):
            errors.append(f"{name}: {folder}/ compiles without Boost")
# The page's lists: "name, name : folders", which may go on in the next line.
part = (root / "docs/architecture.md").read_text(encoding="utf-8").split("\n## 7.")[1].split("\n## 8.")[0]
page = {}
for block in re.findall(r"```\n(.*?)```", part, re.S):
    for line in re.sub(r"\n {2,}", " ", block).splitlines():
        names, _, folders = (field.strip() for field in line.partition(":"))
        page |= {name: folders.replace("—", "") for name in names.split(", ")}
for name, allowed in (ALLOWED | ENGINE).items():
    if name != "app" and page.get(name) != allowed:
        errors.append(f"docs/architecture.md, part 7: {name} sees {page.get(name)}, here {allowed!r}")
print("\n".join(errors) or "layering: ok")
sys.exit(1 if errors else 0)
