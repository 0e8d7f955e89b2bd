#!/usr/bin/env python3
"""Deletes one wait of engine/runner at a time and shows that an engine on the emulated backend notices:
delete_host_synchronisation.py PROGRAM

The emulated runtime passes over a call that returns to the address in QUIRE_EMULATION_SKIP. A place that may go is marked in the
source with "// survives deletion: REASON"; a survivor without that mark fails, and so does a mark on a place that is caught. A place
that the program does not reach fails too, unless it says "// on the CPU only: REASON" or "// in other ranks only: REASON" (processes
that the program does not start), and then it must not be reached."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAIT = re.compile(r"(?:\bsynchronize|->(?:wait|record))\(")
ELSEWHERE = "on the CPU only:", "in other ranks only:"
MARKS = ("survives deletion:", *ELSEWHERE)


def find_sites():
    """{(file, line): source line}"""
    sites = {}
    for path in sorted((ROOT / "engine/runner").glob("*.cpp")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            if WAIT.search(line.split("//")[0]):
                mark = next((l.strip() for l in (line, lines[number - 2]) if any(mark in l for mark in MARKS)), "")
                sites[f"engine/runner/{path.name}", number] = line.strip(), mark
    return sites


def run(program, **settings):
    try:
        done = subprocess.run([program, "--abort"], capture_output=True, text=True, errors="replace", timeout=120, cwd=ROOT,
                              env={**os.environ, **{"QUIRE_EMULATION_" + key: value for key, value in settings.items()}})
        return done.returncode
    except subprocess.TimeoutExpired:
        return -1


def reached(program):
    """{(file, line): addresses that a call there returns to}"""
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder) / "calls"
        if run(program, SITES=str(calls)) != 0:
            sys.exit("fails without any deletion")
        addresses = sorted({word for line in calls.read_text().splitlines() for word in line.split()[1:]})
    before = [hex(int(address, 16) - 1) for address in addresses]  # the call, not what follows it
    places = subprocess.run(["addr2line", "-e", program, *before], capture_output=True, text=True, check=True).stdout.splitlines()
    found = {}
    for address, place in zip(addresses, places):
        match = re.search(r"(engine/runner/\w+\.cpp):(\d+)", place)
        if match:
            found.setdefault((match[1], int(match[2])), []).append(address)
    return found


def main(program):
    addresses = reached(program)
    failures = 0
    for site, (line, mark) in find_sites().items():
        caught = next((streams for streams in ("late", "now", "random") for address in addresses.get(site, [])
                       if run(program, SKIP=address, STREAMS=streams) != 0), None)
        if any(where in mark for where in ELSEWHERE):
            wrong = site in addresses and "said not to be reached, and is"
            failures += wrong is not False
            print(f"{site[0]}:{site[1]:<6} {wrong or 'not reached, as marked':28} {line}", flush=True)
            continue
        wrong = (site not in addresses and "is not reached") or (mark and caught and "marked as surviving, and caught") or \
                (not mark and not caught and "SURVIVES")
        failures += bool(wrong)
        print(f"{site[0]}:{site[1]:<6} {wrong or caught or 'nothing, as marked':28} {line}", flush=True)
    print(f"{failures} failed")
    return failures != 0


sys.exit(main(*sys.argv[1:]))
