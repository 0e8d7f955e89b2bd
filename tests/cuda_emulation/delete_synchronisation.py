#!/usr/bin/env python3
"""Deletes one synchronisation of the CUDA backend at a time and shows that some configuration of the operator tests
notices: delete_synchronisation.py PLAIN_PROGRAM TSAN_PROGRAM [SITE…]

The emulation passes over the place that QUIRE_EMULATION_SKIP names, as if its line were not there, so nothing is compiled.
A place that may go is marked in the source with "// survives deletion: REASON". A survivor without that mark fails, and so
does a mark on a place that is caught, a place that no test reaches, and two places on one line."""
import functools
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = re.compile(r"(?<!void )(?<!emulation::)\b(await_previous_kernel|__syncthreads|__syncwarp|__threadfence(?:_block)?|grid_sync|async_copy_commit|async_copy_wait<[^>]+>|fence_async_proxy|warpgroup_fence|warpgroup_commit|warpgroup_wait<[^>]+>|init_barrier|arrive|arrive_expecting|await_phase|meet_at|arrive_at)\(")
RUNTIME = re.compile(r"\b(cudaStreamSynchronize|cudaStreamWaitEvent|cudaEventSynchronize|cudaEventRecord)\(")
MARK = "survives deletion:"
TESTS = "~[cpu]~[draws]~[large]"
HOPPER, AMPERE = "90", "80"
FEW = 2  # tests of a place that are tried first
SCHEDULES = [(order, copies) for copies in ("late", "eager", "mixed")
             for order in ("reverse", "forward", "random")]


def find_sites():
    """{name for QUIRE_EMULATION_SKIP: its source line}"""
    sites = {}
    for path in sorted(p for p in (ROOT / "cuda").rglob("*") if p.suffix in (".cu", ".cuh")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = KERNEL.findall(line.split("//")[0])
            if len(found) > 1:
                sys.exit(f"{path}:{number}: two synchronisations on one line")
            if found:
                sites[f"{path.relative_to(ROOT)}:{number}"] = line.strip()
    for path in sorted((ROOT / "cuda").glob("*.cpp")):
        for name in RUNTIME.findall(path.read_text()):
            sites[name] = f"{name}() of {path.name}"
    return sites


def run(program, tests, skip="", order="forward", copies="late", sites="", capability=HOPPER, streams="late", limit=600):
    """(exit status, output) of these tests; -1 where they ran too long."""
    settings = {"ORDER": order, "ASYNC": copies, "SKIP": skip, "SITES": sites, "CAPABILITY": capability, "STREAMS": streams}
    escaped = ",".join(re.sub(r"([\\,\[])", r"\\\1", test) for test in tests)
    try:
        done = subprocess.run([program, escaped, "--abort"], capture_output=True, text=True, errors="replace", timeout=limit, cwd=ROOT,
                              env={**os.environ, "TSAN_OPTIONS": "history_size=4 halt_on_error=1",
                                   **{"QUIRE_EMULATION_" + key: value for key, value in settings.items()}})
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return -1, "ran too long"


def notices(program, tests, **settings):
    """What a run without the place says, or None. TSan runs one test at a time, its streams at once: what it keeps for each thread
    is never given back, and a TSan that died of that has noticed nothing."""
    plain = settings.pop("plain")
    if program == plain:
        seconds = sum(coverage(plain, settings["capability"])[test][0] for test in tests)
        code, text = run(program, tests, limit=60 + 20 * seconds, **settings)
        return verdict(text) if code != 0 else None
    for test in tests:
        code, text = run(program, [test], streams="now", **settings)
        if re.search(r"ran too long|FATAL: ThreadSanitizer|ThreadSanitizer: (?:Thread limit|CHECK|failed)", text):
            sys.exit(f"TSan itself: {test}, {settings}\n{text[-2000:]}")
        if code != 0:
            return verdict(text)
    return None


@functools.cache
def coverage(program, capability):
    """{test: (seconds, places it reaches)}"""
    names = subprocess.run([program, TESTS, "--list-test-names-only"], capture_output=True, text=True).stdout.split("\n")
    reached = {}
    with tempfile.TemporaryDirectory() as folder:
        places = Path(folder) / "places"
        for name in filter(None, (n.strip() for n in names)):
            places.unlink(missing_ok=True)
            begin = time.monotonic()
            code, text = run(program, [name], sites=str(places), capability=capability)
            if code != 0 or not places.exists():
                sys.exit(f"without any deletion: {name}\n{text}")
            reached[name] = time.monotonic() - begin, places.read_text().split()
    return reached


def verdict(text):
    for sign, meaning in (("ThreadSanitizer: data race", "data race"), ("cp.async outstanding", "copies never waited for"),
                          ("deadlock", "deadlock"), ("ran too long", "ran too long")):
        if sign in text:
            return meaning
    return "wrong result"


def reaching(site, reached):
    """The tests that come by a place, the quickest first."""
    return sorted((n for n, (_, places) in reached.items() if any(p.endswith(site) for p in places)), key=lambda n: reached[n][0])


def caught_by(site, plain, tsan, line):
    """What noticed that a place is gone. The likeliest first: the quickest tests that come by it, on Hopper and on what came before
    it, where other kernels run; then TSan, which comes first for what only it sees; then all tests, which a place marked as
    surviving is spared."""
    likely = [(plain, order, copies) for order, copies in SCHEDULES if order == "reverse"]
    rest = [(plain, order, copies) for order, copies in SCHEDULES if order != "reverse"]
    races = [(tsan, "random", copies) for copies in ("late", "eager")]
    tried = set()
    for quickest in (FEW,) if MARK in line else (FEW, None):
        for runs in (races, likely, rest) if "__threadfence" in line else (likely, races, rest):
            for capability in (HOPPER, AMPERE):
                tests = tuple(reaching(site, coverage(plain, capability))[:quickest])
                for program, order, copies in runs if tests else ():
                    configuration = program, tests, order, copies, capability
                    if configuration in tried:
                        continue
                    tried.add(configuration)
                    found = notices(program, tests, plain=plain, skip=site, order=order, copies=copies, capability=capability)
                    if found:
                        return f"sm_{capability}, {'TSan' if program == tsan else order}, {copies} copies: {found}"
    return None


def main(plain, tsan, *wanted):
    sites = find_sites()
    reached = coverage(plain, HOPPER)
    failures = 0
    print(f"{len(sites)} places, {len(reached)} tests\n{'time':6} {'place':44} {'caught by':44} line")
    for site, line in sites.items():
        if wanted and site not in wanted:
            continue
        begin = time.monotonic()
        tests = reaching(site, reached) or reaching(site, coverage(plain, AMPERE))
        marked = MARK in line
        found = caught_by(site, plain, tsan, line) if tests else None
        wrong = (not tests and "no test reaches it") or (marked and found and "marked as surviving, and caught") or \
                (not marked and not found and "SURVIVES")
        failures += bool(wrong)
        print(f"{time.monotonic() - begin:4.0f} s {site:44} {wrong or found or 'nothing, as marked':44} {line}", flush=True)
    print(f"{failures} failed")
    return failures != 0


sys.exit(main(*sys.argv[1:]))
