#!/usr/bin/env python3
"""docs/reference/ says what the programs, the server and the sources say; --write makes it so.

    tests/deploy/reference_test.py build/release/app/quire build/release/load/quire-load [--write]
"""
import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, "tests/e2e")
from serve_process import Server

QUIRE, QUIRE_LOAD = sys.argv[1:3]
FOLDER = pathlib.Path("docs/reference")
MADE = "Made by `tests/deploy/reference_test.py QUIRE QUIRE_LOAD --write`; a test compares.\n"
CODES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
         411: "Length Required", 413: "Content Too Large", 414: "URI Too Long", 415: "Unsupported Media Type", 429: "Too Many Requests",
         431: "Request Header Fields Too Large", 500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable"}


def fail(what, seen=""):
    sys.exit(f"FAILED: {what}\n{seen}")


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;").strip()


def table(head, rows):
    if not rows:
        fail(f"no rows below {head}")
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cell(c) for c in row) + " |" for row in rows]) + "\n"


def flags_of(command):
    """Text, then (group, [(names, text)]) of a --help."""
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        fail(f"{command} --help", done)
    lines, what = done.stdout.splitlines(), []
    groups, current = [], None
    for line, following in zip(lines, [*lines[1:], ""]):
        heading = re.match(r"^(\w[^:]*):$", line)
        whole = len(line) > 30 and line[29] == " " and not following.startswith(" " * 30)  # a long name has a line of its own
        option = re.match(r"^  (-\S.*|[A-Z]+ \S.*)$", line[:30].rstrip() if whole else line)
        if heading:
            current = []
            groups.append((heading[1], current))
        elif line.startswith("Usage:"):
            pass
        elif option and current is not None:
            current.append([re.sub(r"(\w+):\1 in \[.*?\]|:(\w+) in ", r"\1", option[1]), line[30:].strip() if whole else ""])
        elif line.startswith(" " * 10) and current:
            current[-1][1] = (current[-1][1] + " " + line.strip()).strip()
        elif current is None and line.strip():
            what.append(line.strip())
        elif line.strip():
            current = None  # text that follows
            break
    return " ".join(what), [(name, rows) for name, rows in groups if rows and name != "Positionals"]


def commands():
    usage = subprocess.run([QUIRE, "--help"], capture_output=True, text=True).stdout
    return re.findall(r"^  (\w+) +\S", usage, re.M)


def flags_page():
    text = "# Flags\n\n" + MADE + "\n`quire serve --print-config` prints its own as a file for `--config`.\n"
    for name, command in [(f"quire {c}", [QUIRE, c]) for c in commands() if c != "version"] + [("quire-load", [QUIRE_LOAD])]:
        what, groups = flags_of(command)
        text += f"\n## {name}\n\n{cell(what)}\n"
        for group, rows in groups:
            rows = [(f"`{names}`", what) for names, what in rows if not names.startswith("-h,")]
            if rows:
                text += (f"\n**{group}**\n\n" if group != "Options" else "\n") + table(["flag", "what it does"], rows)
    return text


def metrics_page(server):
    seen = {}
    for line in server.ask("/metrics").splitlines():
        if found := re.match(r"# HELP (\S+) (.*)", line):
            seen[found[1]] = ["", found[2], set()]
        elif found := re.match(r"# TYPE (\S+) (\w+)", line):
            seen[found[1]][0] = found[2]
        elif found := re.match(r"([\w:]+)\{(.*)\} ", line):
            name = found[1] if found[1] in seen else re.sub(r"_(bucket|sum|count)$", "", found[1])
            seen[name][2] |= set(re.findall(r'(\w+)="', found[2])) - {"le"}
    rows = [(f"`{name}`", kind, ", ".join(sorted(labels)), text) for name, (kind, text, labels) in sorted(seen.items())]
    return ("# Metrics\n\n" + MADE + "\nOf `GET /metrics`, in Prometheus' text format. Names that begin with `vllm:` mean what they mean there. "
            "`--metrics-compat` adds retired names; their text says Retired.\n\n" + table(["name", "type", "labels", "what it is"], rows))


def routes():
    """Of the router's table: path, method, needs."""
    text = pathlib.Path("server/route_table.cpp").read_text().replace("**", "*")
    return re.findall(r'Route\{"([^"]+)", Method::(\w+?)_?,\s+\w+(?:,\s+([^}]*))?\}', text)


def who_may(needs):
    return ("everyone" if "no_key" in needs or "kProbe" in needs else "--metrics-api-key" if "metrics_key" in needs
            else "--admin-api-key, else a key" if "admin_key" in needs else "a key")


def endpoints_page(server):
    contract = json.loads(server.ask("/openapi.json"))
    paths, paths_security = contract["paths"], contract.get("security")
    rows = []
    for path, method, needs in routes():
        plain = re.sub(r"/\*$", "/{id}", path)
        if plain == "/ui/{id}":
            rows.append(("`GET /ui/{file}`", who_may(needs), "Files of the page at /"))
            continue
        described = paths.get(plain, paths.get(plain.rstrip("/"), {}))
        text = described.get(method, {}).get("summary") or next((m["summary"] for m in described.values() if isinstance(m, dict) and "summary" in m), "")
        also = next((f"as {p}" for p in paths if f"also at" in json.dumps(paths[p]) and plain in re.findall(r"/[\w/]+", json.dumps(paths[p]))), "")
        if method in described and (described[method].get("security", paths_security) == [{}]) != (who_may(needs) == "everyone"):
            fail(f"{method} {path}: the contract and the router differ about the key", described[method].get("security"))
        rows.append((f"`{method.upper()} {plain}`", who_may(needs), text or also))
    known = {re.sub(r"/\*$", "/{id}", path) for path, _, _ in routes()}
    if missing := set(paths) - known:
        fail("paths of the contract that are not in the router's table", missing)
    silent = [r[0] for r in rows if not r[2]]
    if silent:
        fail("endpoints that the contract says nothing about", silent)
    return ("# Endpoints\n\n" + MADE + "\nMembers and replies are in [openapi/openapi.yaml](../../openapi/openapi.yaml), which the server shows at `/docs` and "
            "`/openapi.json`. Who may: where no key was set at all, everyone.\n\n" + table(["endpoint", "who may", "what it is"], rows))


def literal(text):
    """The C++ string literals at the beginning of `text`, joined; what is formatted in becomes …"""
    found = re.match(r'\s*(?:fmt::format\(\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+)', text)
    if not found:
        return None
    joined = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', found[1])).replace('\\"', '"')
    return re.sub(r"\{[^}]*\}", "…", joined)


def with_flags(text):
    """app/args/flag_names.cpp puts flags where texts name a configuration's field."""
    names = dict(re.findall(r'Named\{"([^"]+)", "([^"]+)"\}', pathlib.Path("app/args/flag_names.cpp").read_text()))
    return re.sub(r"\b[A-Z]\w+(?:::\w+)+", lambda field: names.get(field[0]) or "--" + field[0].split("::")[-1].replace("_", "-"), text)


def refusals():
    """(status, sentence) wherever server/ has both in one place."""
    found = set()
    for file in sorted(pathlib.Path("server").rglob("*.cpp")):
        text = file.read_text()
        for match in re.finditer(r"(?:plain_error_reply\(|HttpRefusal\{|refuse\(\{|return \{)\s*(\d{3}),", text):
            if sentence := literal(text[match.end():]):
                found.add((int(match[1]), with_flags(sentence)))
    return sorted(found)


def errors_page():
    kinds = dict(re.findall(r"^  (\w+),\s+// (.*)$", pathlib.Path("base/error.h").read_text(), re.M))
    rows = re.findall(r'Row\{ErrorCode::(\w+), (\d+), "([^"]+)"(?:, (\d+))?\}', pathlib.Path("server/http/error_reply.cpp").read_text())
    if {r[0] for r in rows} != set(kinds):
        fail("error codes and their statuses", (rows, kinds))
    why = lambda kind: re.sub(r";? ?HTTP \d+.*", "", kinds[kind]).strip() or kind.replace("_", " ")
    text = ("# Errors\n\n" + MADE + '\nThe body is OpenAI\'s: `{"error": {"message", "type", "param", "code"}}`, `code` being the status; below `/v1/messages` it is '
            'Anthropic\'s; of 401 it is `{"error": "Unauthorized"}`. `message` says what was wrong, what is allowed and what works.\n\n## By kind\n\n')
    text += table(["status", "type", "when", "Retry-After"], [(s, f"`{t}`", why(k), f"{r} s" if r else "") for k, s, t, r in sorted(rows, key=lambda r: r[1])])
    malformed = re.search(r'malformed_reply.*?error_json\(error\.detail, "([^"]+)"', pathlib.Path("server/http/error_reply.cpp").read_text(), re.S)
    text += (f"\nAs in vLLM, what cannot be read as a request at all (no JSON, a member that is missing or of a wrong type) is 400 of type "
             f"`{malformed[1]}`; what is wrong with a request that could be read is 400 of type `BadRequestError`.\n")
    text += "\n## Sentences with a status of their own\n\n" + table(["status", "type", "message"], [(str(s), f"`{CODES[s]}`", m) for s, m in refusals()])
    codes = re.findall(r"inline constexpr int (k\w+) = (\d+);\s*// (.*)", pathlib.Path("app/args/exit_codes.h").read_text())
    usual = [("0", "asked to end, and all that ran was finished or its time was over"), ("1", "did not start, or could not do what was asked; the last line says why"),
             ("2", "a wrong command; of `plan`, `check` and `bench` wrong flags and files too, of `doctor` files")]
    text += "\n## Exit codes\n\n" + table(["code", "when"], usual + [(n, what) for _, n, what in codes] + [("100 to 115", "wrong flags, of every other command; the line names the flag. What a flag's file contains may be found wrong only later: 1")])
    return text


def main():
    with Server(QUIRE, "models/quire-tiny", "--num-gpu-blocks-override", "1024", "--metrics-compat", "--speculative-method", "ngram",
                "--num-speculative-tokens", "2", "--tensor-parallel-size", "2") as server:
        for _ in range(2):
            server.post("/v1/chat/completions", messages=[{"role": "user", "content": "What is 12 + 7?"}])
        pages = {"flags.md": flags_page(), "metrics.md": metrics_page(server), "endpoints.md": endpoints_page(server), "errors.md": errors_page()}
    stale = [name for name, text in pages.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text]
    if "--write" in sys.argv:
        FOLDER.mkdir(exist_ok=True)
        for name, text in pages.items():
            (FOLDER / name).write_text(text)
        return print("written:", ", ".join(stale) or "nothing new")
    if stale:
        fail(f"{', '.join(stale)} in {FOLDER}: not what the programs say; run this with --write")
    for link in re.findall(r"\]\((docs/reference/\w+\.md|\.\./reference/\w+\.md)\)", pathlib.Path("docs/guide/README.md").read_text()):
        if not (pathlib.Path("docs/guide") / link).exists():
            fail("a link to the reference leads nowhere", link)
    print("ok")


main()
