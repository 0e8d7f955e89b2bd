#!/usr/bin/env python3
"""A path that cannot be looked at is named in a sentence, whatever command meets it.

    tests/e2e/closed_folders_test.py build/release/app/quire
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from serve_process import check

QUIRE, TINY = sys.argv[1], "models/quire-tiny"
# Root looks everywhere.
AS_NOBODY = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []


def refused(*words, says, environment=None):
    code = 2 if words[0] in ("plan", "check", "bench", "doctor") else 1  # their 1 is a verdict
    run = subprocess.run([*AS_NOBODY, QUIRE, *words], capture_output=True, text=True, timeout=60, input="[]",
                         env={**os.environ, **(environment or {})})
    check(f"{words} ends with {run.returncode}", run.returncode == code, run.stderr)
    check(f"{words} says {says!r}", says in run.stdout + run.stderr, run.stdout + run.stderr)
    check(f"{words} says it without the library's words", "filesystem error" not in run.stdout + run.stderr, run.stderr)


def main():
    if AS_NOBODY and shutil.which("setpriv") is None:
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        root.chmod(0o755)
        closed = root / "closed"
        shutil.copytree(TINY, closed / "tiny")
        hub = root / "hub"
        (hub / "models--org--name" / "refs").mkdir(parents=True)
        (root / "loop").symlink_to("loop")
        (root / "empty").mkdir()
        (root / "empty" / "loop").symlink_to("loop")
        closed.chmod(0)
        (hub / "models--org--name").chmod(0)
        try:
            model, denied = str(closed / "tiny"), f"{closed}/tiny: Permission denied"
            refused("serve", model, says=denied)
            refused("engine", model, "--listen", f"unix:{root}/s", says=denied)
            refused("tokenize", "--model", model, says=f"{model}/tokenizer.json: Permission denied")
            refused("render", "--model", model, says="Permission denied")
            refused("plan", model, says=denied)
            refused("check", model, says="Permission denied")
            refused("bench", model, says=denied)
            refused("doctor", model, "--seconds", "0", says=denied)
            for method in ("eagle3", "mtp"):
                drafts = '{"method": "%s", "model": "%s/x", "num_speculative_tokens": 2}' % (method, closed)
                refused("serve", TINY, "--speculative-config", drafts, says=f"{closed}/x: Permission denied")
            for command in ("serve", "plan"):
                refused(command, "m" * 300, says="mmm: File name too long")
                refused(command, f"{root}/loop", says=f"{root}/loop: Too many levels of symbolic links")
            refused("plan", f"{root}/empty", says=f"{root}/empty/config.json: No such file or directory")
            # The cache of the hub.
            cache = {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"}
            for words in (("serve", "org/name"), ("pull", "org/name"), ("plan", "org/name"), ("models",)):
                refused(*words, says="Permission denied", environment=cache)
            refused("models", says=f"{closed}/hub: Permission denied", environment={"HF_HUB_CACHE": f"{closed}/hub"})
        finally:
            closed.chmod(0o755)
            (hub / "models--org--name").chmod(0o755)
    print("passed")


if __name__ == "__main__":
    main()
