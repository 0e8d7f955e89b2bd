#!/usr/bin/env python3
"""Every kernel that launch() starts waits for the one in front of it in its own body, once, outside of any branch or loop and before
anything returns: a kernel that ends without its wait lets what is behind it run beside what is in front (cuda/device/dependent.cuh).
  kernel_start_test.py [FILE…]    the CUDA backend's, or these"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAIT, RELEASE = "await_previous_kernel();", "release_next_kernel();"


LAMBDA = re.compile(r"\[[&=\w, ]*\](?:<[^>]*>)?(?:\([^()]*\))?\s*(?={)")


def end_of(text, begin):
    """Of the braces that open at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    sys.exit("braces without an end")


def body_of(text, begin):
    """Of the function whose body begins behind `begin`, without its lambdas, which return to it."""
    start = text.index("{", begin)
    body = text[start + 1:end_of(text, start) - 1]
    while found := LAMBDA.search(body):
        body = body[:found.start()] + "lambda" + body[end_of(body, found.end()):]
    return body


def outermost(body):
    """The body without what is in braces inside it."""
    depth, kept = 0, []
    for letter in body:
        depth -= letter == "}"
        kept.append(letter if depth == 0 else " ")
        depth += letter == "{"
    return "".join(kept)


def fault_of(body):
    if body.count(WAIT) != 1 or body.count(RELEASE) != 1:
        return f"not one {WAIT} and one {RELEASE}"
    if body.index(RELEASE) > body.index(WAIT):
        return "lets nobody begin while it waits itself"
    if not re.search(r"(?:^|[;}])\s*" + re.escape(WAIT), outermost(body)):
        return "waits in a branch or loop"
    if "return" in re.findall(r"\w+", body[:body.index(WAIT)]):
        return "may return before it waits"
    return None


def main(*files):
    paths = [Path(f) for f in files] or sorted(p for p in (ROOT / "cuda").rglob("*") if p.suffix in (".cu", ".cuh"))
    faults, seen = [], 0
    for path in paths:
        text = re.sub(r"//[^\n]*", "", path.read_text())
        for found in re.finditer(r"__global__\s+void\s", text):
            seen += 1
            line = text.count("\n", 0, found.start()) + 1
            if fault := fault_of(body_of(text, found.end())):
                faults.append(f"{path}:{line}: {fault}")
    print("\n".join(faults) or f"{seen} kernels")
    return bool(faults) or seen == 0


sys.exit(main(*sys.argv[1:]))
