#!/usr/bin/env python3
"""Who may include whom: docs/architecture.md part 7, as a test. Prints every violation."""
import graphlib
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
# What lies at the top of these two puts the rest together: it sees all subfolders, and none of them sees it.
KV_TRANSFER = {
    "content": "",
    "blocks": "content",
    "memory": "content",
    "plane": "content memory",
    "peers": "plane",
    "pages": "content memory plane",
    "quire": "content memory plane peers",
    "nixl": "content blocks memory plane peers",
    "mooncake": "content blocks memory plane peers",
}
APP = {
    "args": "",
    "flags": "args",
    "engines": "",
    "models": "args",
    "bench": "args flags engines models",
    "check": "args flags engines",
    "chat": "args models",
    "plan": "args flags engines models",
    "serve": "args flags engines models",
    "commands": "args flags engines models",
    "doctor": "args engines models bench plan serve",
}
INSIDE = {"engine": ENGINE, "engine/kv_transfer": KV_TRANSFER, "app": APP}
COMPOSED = ("engine/kv_transfer", "app")
SERVER_SEES = ("engine/client/", "engine/wire/messages.h", "engine/config.h", "engine/request/sampling_params.h", "engine/request/engine_stats.h")
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
BOOSTLESS = {"backend", "cpu", "cuda", "model"}
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
            errors.append(f"{name}: {literal} spells {flag}; name the field, app/args/flag_names.h spells it")
        for struct, member in FIELD.findall(literal):
            if not re.search(rf"\b{member}\b", bodies.get(struct.split("::")[0], "")):
                errors.append(f"{name}: {literal} names {struct}{member}, which there is not")


def check_table(place, table):
    """The table has all folders of `place` that hold sources, no others, and no circle."""
    there = {f.name for f in (root / place).iterdir() if f.is_dir() and not f.name.startswith(".")}
    if place == "":
        there -= {"build", "tests"}
    there = {f for f in there if any(p.suffix in SOURCES for p in (root / place / f).rglob("*"))}
    named = set(table).union(*(seen.split() for seen in table.values()))
    errors.extend(f"{place or '.'}/{f}: not in layering_test.py's table" for f in sorted(there - set(table)))
    errors.extend(f"layering_test.py: no folder {place or '.'}/{f} holds sources" for f in sorted(named - there))
    try:
        graphlib.TopologicalSorter({f: seen.split() for f, seen in table.items()}).prepare()
    except graphlib.CycleError as e:
        errors.append(f"layering_test.py: {place or '.'}: a circle: {' → '.join(e.args[1])}")


check_table("", ALLOWED)
for parent, inside in INSIDE.items():
    check_table(parent, inside)


def subfolder(path, parent):
    """That of `parent` in which it lies; empty: at the top."""
    inner = path[len(parent) + 1:]
    return inner.split("/")[0] if "/" in inner else ""


users_of_base = {}  # by header: the folders that include it
spawning = set()
for folder, allowed in ALLOWED.items():
    allowed = {folder, *allowed.split()}
    for path in sorted((root / folder).rglob("*")):
        if path.suffix not in SOURCES:
            continue
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        if folder in FLAGLESS:
            check_texts(name, text)
        if path.suffix != ".h" and re.search(r"\bco_spawn\b", text):
            spawning.add(name)
        for include in INCLUDE.findall(text):
            top = include.split("/")[0]
            if top == "base" and path.with_suffix("") != (root / include).with_suffix(""):
                users_of_base.setdefault(include, set()).add(folder)
            if top not in ALLOWED:
                errors.append(f'{name}: "{include}" does not start at the source root')
            elif top not in allowed:
                errors.append(f'{name}: {folder}/ may not include "{include}"')
            elif folder == "server" and top == "engine" and not include.startswith(SERVER_SEES):
                errors.append(f'{name}: of engine/, server/ sees client/, messages and configs, not "{include}"')
            for parent, inside in INSIDE.items():
                if not (name.startswith(parent + "/") and include.startswith(parent + "/")):
                    continue
                here, there = subfolder(name, parent), subfolder(include, parent)
                seen = inside.get(here, "").split()
                if here and here != there and there not in seen and (there or parent in COMPOSED):
                    errors.append(f'{name}: {parent}/{here} may not include "{include}"')
        if folder not in {"base"} and re.search(r"\bco_spawn\b|\bdetached\b", text):
            errors.append(f"{name}: co_spawn and detached only in base/ (every coroutine has an owner)")
        if re.search(r"co_await[^;{]*\(\s*\{\s*\.", text):
            errors.append(f"{name}: g++ 12 destroys an aggregate twice that is made inside a co_await; name it first")
        if re.search(r"\bvariants(\.\w+)? = ", text):
            errors.append(f"{name}: only measurements and tests set cuda::variants")
        if folder in BOOSTLESS and re.search(r"#\s*include\s+<boost/", text):
            errors.append(f"{name}: {folder}/ compiles without Boost")
# The page's lists: "name, name : folders", which may go on in the next line.
part = (root / "docs/architecture.md").read_text(encoding="utf-8").split("\n## 7.")[1].split("\n## 8.")[0]
page = {}
for block in re.findall(r"```\n(.*?)```", part, re.S):
    for line in re.sub(r"\n {2,}", " ", block).splitlines():
        names, _, folders = (field.strip() for field in line.partition(":"))
        page |= {name: folders.replace("—", "") for name in names.split(", ")}
for name, allowed in (ALLOWED | ENGINE | KV_TRANSFER | APP).items():
    if name != "app" and page.get(name) != allowed:
        errors.append(f"docs/architecture.md, part 7: {name} sees {page.get(name)}, here {allowed!r}")
for path in sorted((root / "base").glob("*.h")):
    name = path.relative_to(root).as_posix()
    users = users_of_base.get(name, set())
    if len(users) < 2 and "base" not in users and name[:-1] + "cpp" not in spawning:
        errors.append(f"{name}: only {', '.join(users) or 'nobody'} includes it; it belongs there")
print("\n".join(errors) or "layering: ok")
sys.exit(1 if errors else 0)
