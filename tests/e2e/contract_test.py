#!/usr/bin/env python3
"""A running server keeps its own contract: requests that schemathesis makes of /openapi.json get no 5xx and nothing undocumented.

    tests/e2e/contract_test.py build/release/app/quire [seconds]

Needs schemathesis beside the interpreter or on the path; exit 77 (skipped) without it.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from serve_process import Server

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance"


def attack(program, base, seconds, folder):
    # What takes as long as the context has tokens is not waited for: the context is short.
    done = subprocess.run([program, "run", base + "/openapi.json", "--phases", "coverage,fuzzing,stateful", "--max-time", str(seconds),
                           "-n", "50", "--continue-on-failure", "-c", CHECKS, "--request-timeout", "60", "--no-color"],
                          cwd=folder, capture_output=True, text=True, timeout=seconds + 240)
    if done.returncode != 0:
        sys.exit("FAILED:\n" + done.stdout[-8000:] + done.stderr[-2000:])
    print(next((line.strip() for line in done.stdout.splitlines() if re.match(r"\s*\d+ generated", line)), ""))


def main(quire, seconds="40"):
    beside = pathlib.Path(sys.executable).with_name("schemathesis")
    program = str(beside) if beside.exists() else shutil.which("schemathesis")
    if program is None:
        print("schemathesis is not installed: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        for model, flags in (("models/quire-tiny", ["--max-model-len", "256"]),
                             ("tests/data/pooling/qwen3-embedding", ["--dtype", "float32"])):
            with Server(quire, model, "--device", "cpu", *flags) as server:
                attack(program, server.base, int(seconds), folder)
    print("contract ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
