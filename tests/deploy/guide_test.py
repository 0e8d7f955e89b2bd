#!/usr/bin/env python3
"""Every command of docs/guide in a block marked sh works, flags that the guide names are there, and its links lead somewhere.

    tests/deploy/guide_test.py build/release/app/quire build/release/load/quire-load
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/e2e")
from serve_process import Server

QUIRE, QUIRE_LOAD = (os.path.abspath(path) for path in sys.argv[1:3])
PAGES = sorted(pathlib.Path("docs/guide").glob("*.md"))
OTHERS = {"--bundle", "--build", "--preset", "--target", "--unix-socket", "--cacert", "--cert", "--key"}  # of scripts/setup, cmake and curl
LLAMA = {"--grammar", "--json-schema"}
PROGRAMS = [[QUIRE, command] for command in ("serve", "engine", "chat", "plan", "pull", "bench", "doctor")] + [[QUIRE_LOAD]]


def check(what, holds, seen=""):
    if not holds:
        sys.exit(f"FAILED: {what}\n{seen}")


def flags_exist():
    known = OTHERS | LLAMA
    for program in PROGRAMS:
        known |= set(re.findall(r"--[a-z][\w-]*", subprocess.run([*program, "--help"], capture_output=True, text=True).stdout))
    for page in PAGES:
        used = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", page.read_text()))
        check(f"{page} names flags that there are", used <= known, used - known)


def links_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text()):
            check(f"{page}: the link to {link}", (page.parent / link).exists())


def commands_work(server, home):
    environment = {**os.environ, "PATH": os.pathsep.join([os.path.dirname(QUIRE), os.path.dirname(QUIRE_LOAD), os.environ["PATH"]]), "HF_HOME": home}
    count = 0
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M):
            script = block.replace("http://127.0.0.1:8000", server.base)
            done = subprocess.run(["bash", "-eo", "pipefail", "-c", script], env=environment, capture_output=True, text=True, timeout=120,
                                  stdin=subprocess.DEVNULL)
            check(f"{page}: exit code {done.returncode} of\n{script}", done.returncode == 0, done.stdout + done.stderr)
            count += 1
    check("there are commands", count >= 8, count)
    print(count, "blocks ran")


flags_exist()
links_lead_somewhere()
with Server(QUIRE, "models/quire-tiny", "--num-gpu-blocks-override", "1024") as running, tempfile.TemporaryDirectory() as folder:
    commands_work(running, folder)
print("ok")
