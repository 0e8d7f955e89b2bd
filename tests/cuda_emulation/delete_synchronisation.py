#!/usr/bin/env python3
"""Deletes one synchronisation of the CUDA backend at a time and shows that some configuration of the operator tests
notices: delete_synchronisation.py PLAIN_PROGRAM TSAN_PROGRAM [--learn]

The emulation passes over the place that QUIRE_EMULATION_SKIP names, as if its line were not there, so nothing is compiled.
A place that may go is marked in the source with "// survives deletion: REASON". A survivor without that mark fails, and so
does a mark on a place that is caught, a place that no test reaches, and two places on one line.

What notices a place is looked for once: noticed_by.txt says what it was, and is tried first; of a marked place it says a test that
comes by it, whose copies are tried at three times. Where that notices nothing any more, or comes by no more, all is tried again; --learn
does so for places that are not in it, and writes it anew."""
import collections
import functools
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KNOWN = Path(__file__).with_name("noticed_by.txt")
KERNEL = re.compile(r"(?<!void )(?<!emulation::)\b(await_previous_kernel|__syncthreads|__syncwarp|__threadfence(?:_block)?|grid_sync|async_copy_commit|async_copy_wait<[^>]+>|fence_async_proxy|warpgroup_fence|warpgroup_commit|warpgroup_wait<[^>]+>|init_barrier|arrive|arrive_expecting|await_phase|meet_at|arrive_at)\(")
RUNTIME = re.compile(r"\b(cudaStreamSynchronize|cudaStreamWaitEvent|cudaEventSynchronize|cudaEventRecord)\(")
MARK = "survives deletion:"
TESTS = "~[cpu]~[draws]~[large]"
HOPPER, AMPERE, ADA = "90", "80", "89"
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


def find_keys(sites):
    """{place: what stays of its name when lines above it come and go}"""
    seen, keys = collections.Counter(), {}
    for site, line in sites.items():
        at = f"{site.rsplit(':', 1)[0]} | {line.split('//')[0].strip()}"
        seen[at] += 1
        keys[site] = f"{at} | {seen[at]}"
    return keys


class Configuration(typing.NamedTuple):
    capability: str
    program: str  # "plain" or "TSan"
    order: str
    copies: str
    test: str


def run(program, configuration, skip="", sites="", limit=900):
    """(exit status, output); -1 where it ran too long. What TSan keeps for each thread is never given back, and streams that are late
    make it run out of them."""
    capability, kind, order, copies, test = configuration
    settings = {"ORDER": order, "ASYNC": copies, "SKIP": skip, "SITES": sites, "CAPABILITY": capability,
                "STREAMS": "now" if kind == "TSan" else "late"}
    try:
        done = subprocess.run([program, re.sub(r"([\\,\[])", r"\\\1", test), "--abort"], capture_output=True, text=True, errors="replace",
                              timeout=limit, cwd=ROOT, env={**os.environ, "TSAN_OPTIONS": "history_size=4 halt_on_error=1",
                                                            **{"QUIRE_EMULATION_" + key: value for key, value in settings.items()}})
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return -1, "ran too long"


class Search:
    def __init__(self, plain, tsan):
        self.programs = {"plain": plain, "TSan": tsan}
        names = subprocess.run([plain, TESTS, "--list-test-names-only"], capture_output=True, text=True).stdout.split("\n")
        self.tests = [name.strip() for name in names if name.strip()]

    @functools.cache
    def seconds(self, configuration):
        """That it takes without any deletion, which must not fail: a TSan that died has noticed nothing."""
        begin = time.monotonic()
        code, text = run(self.programs[configuration.program], configuration)
        if code != 0:
            sys.exit(f"without any deletion: {configuration}\n{text[-4000:]}")
        return time.monotonic() - begin

    @functools.cache
    def coverage(self, capability):
        """{test: (seconds, places it reaches)}"""
        reached = {}
        with tempfile.TemporaryDirectory() as folder:
            places = Path(folder) / "places"
            for test in self.tests:
                places.unlink(missing_ok=True)
                begin = time.monotonic()
                code, text = run(self.programs["plain"], Configuration(capability, "plain", "forward", "late", test), sites=str(places))
                if code != 0 or not places.exists():
                    sys.exit(f"without any deletion: {test}\n{text}")
                reached[test] = time.monotonic() - begin, places.read_text().split()
        return reached

    def reaching(self, site, capability):
        """The tests that come by a place, the quickest first."""
        reached = self.coverage(capability)
        return sorted((n for n, (_, places) in reached.items() if any(p.endswith(site) for p in places)), key=lambda n: reached[n][0])

    def first_reaching(self, site):
        """The configuration that comes by a place soonest, or None."""
        for capability in (HOPPER, AMPERE):
            for test in self.reaching(site, capability)[:1]:
                return Configuration(capability, "plain", "reverse", "late", test)
        return None

    def comes_by(self, site, configuration):
        with tempfile.TemporaryDirectory() as folder:
            places = Path(folder) / "places"
            run(self.programs[configuration.program], configuration, sites=str(places))
            return places.exists() and any(p.endswith(site) for p in places.read_text().split())

    def look_at_marked(self, site, configuration):
        """(configuration, verdict) or None, of one test alone."""
        for copies in ("late", "eager", "mixed"):
            one = configuration._replace(copies=copies)
            if found := self.verdict(site, one):
                return one, found
        return None

    def verdict(self, site, configuration):
        """What the run without the place says, or None."""
        limit = 60 + 20 * self.seconds(configuration)
        code, text = run(self.programs[configuration.program], configuration, skip=site, limit=limit)
        if code == 0:
            return None
        for sign, meaning in (("ThreadSanitizer: data race", "data race"), ("cp.async outstanding", "copies never waited for"),
                              ("deadlock", "deadlock"), ("ran too long", "ran too long")):
            if sign in text:
                return meaning
        return "wrong result"

    def look(self, site, line):
        """(configuration, verdict) or None. The likeliest first: the quickest tests that come by it, on Hopper and on what came before
        it, where other kernels run; then TSan, which comes first for what only it sees; then all tests."""
        likely = [("plain", order, copies) for order, copies in SCHEDULES if order == "reverse"]
        rest = [("plain", order, copies) for order, copies in SCHEDULES if order != "reverse"]
        races = [("TSan", "random", copies) for copies in ("late", "eager")]
        tried = set()
        for quickest in (FEW, None):
            for runs in (races, likely, rest) if "__threadfence" in line else (likely, rest, races):
                for capability in (HOPPER, AMPERE, ADA):
                    for one, test in itertools.product(runs, self.reaching(site, capability)[:quickest]):
                        configuration = Configuration(capability, *one, test)
                        if configuration in tried:
                            continue
                        tried.add(configuration)
                        found = self.verdict(site, configuration)
                        if found:
                            return configuration, found
        return None


def read_known():
    lines = [line.split(" | ") for line in KNOWN.read_text().splitlines()] if KNOWN.exists() else []
    return {" | ".join(words[:3]): Configuration(*words[3:]) for words in lines}


def main(plain, tsan, *flags):
    sites, known, search = find_sites(), read_known(), Search(plain, tsan)
    keys, learnt, failures = find_keys(sites), {}, 0
    print(f"{len(sites)} places, {len(search.tests)} tests\n{'time':6} {'place':44} {'noticed by':44} line")
    for site, line in sites.items():
        begin = time.monotonic()
        before = known.get(keys[site])
        before = before if before and before.test in search.tests else None
        marked, says = MARK in line, None
        if marked:
            by_way = before if before and search.comes_by(site, before) else search.first_reaching(site)
            found = by_way and search.look_at_marked(site, by_way)
            wrong = not by_way and "no test reaches it" or found and "marked as surviving, and noticed"
            learnt.update({keys[site]: by_way} if by_way else {})
        else:
            says = before and search.verdict(site, before)
            found = (before, says) if says else search.look(site, line)
            wrong = not found and ("SURVIVES" if search.first_reaching(site) else "no test reaches it")
        failures += bool(wrong)
        by = "nothing, as marked"
        if found:
            c, learnt[keys[site]] = found[0], found[0]
            by = f"sm_{c.capability}, {c.program}, {c.order}, {c.copies}: {found[1]}{'' if says else ' (looked for)'}"
        print(f"{time.monotonic() - begin:4.0f} s {site:44} {wrong or by:44} {line}", flush=True)
        if "--learn" in flags:
            KNOWN.write_text("".join(" | ".join((key, *configuration)) + "\n" for key, configuration in learnt.items()))
    print(f"{failures} failed")
    return failures != 0


sys.exit(main(*sys.argv[1:]))
