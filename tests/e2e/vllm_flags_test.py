#!/usr/bin/env python3
"""Every flag of vLLM 0.33 (tests/data/vllm_flags.txt: its name, and whether it is a switch, has a value or a list of them) is
one of `quire serve`, is accepted without effect, or is refused with what to do instead; none is merely unknown.

    tests/e2e/vllm_flags_test.py build/release/app/quire
"""
import concurrent.futures
import pathlib
import subprocess
import sys

from serve_process import check

QUIRE = sys.argv[1]
GIVEN = {"switch": [], "value": ["1"], "list": ["1", "2"]}
# Accepted whatever they say, since they choose how and not what.
HOW = """--model-loader-extra-config --linear-backend --gdn-prefill-backend --mamba-backend --mm-encoder-attn-backend --mm-processor-cache-type
    --performance-mode --numa-bind --distributed-timeout-seconds --disable-access-log-for-endpoints --aggregate-engine-logging
    --enable-mfu-metrics --cudagraph-metrics --ignore-patterns --additional-config --numa-bind-nodes
    --tool-strict-level --max-cudagraph-capture-size""".split()
REFUSED = {"--reasoning-config": "--reasoning-parser", "--weight-transfer-config": "weights are read once", "--ec-transfer-config": "text alone",
           "--max-num-scheduled-tokens": "--max-num-batched-tokens", "--watermark-config": "no watermark", "--scheduler-cls": "code of others", "--ssl-ciphers": "OpenSSL's own choice", "--custom-histogram-buckets": "buckets of histograms are fixed"}


def answer(line):
    """What is said of a flag, and whether the command line was taken."""
    name, kind = line.split()
    if name in ("--device-ids",):
        kind = "value"  # it is refused, whatever it has
    run = subprocess.run([QUIRE, "serve", "--print-config", "models/quire-tiny", name, *GIVEN[kind]], capture_output=True, text=True, timeout=60)
    return name, kind, run.stdout + run.stderr, run.returncode == 0


def main():
    lines = pathlib.Path("tests/data/vllm_flags.txt").read_text().splitlines()
    check("all flags of vLLM are there", len(lines) > 300)
    said = {}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name, kind, text, taken in pool.map(answer, lines):
            said[name] = text, taken
            for unknown in ("--help lists them", "Did you mean", "needs a value", "one word too many", "takes no value"):
                check(f"{name}, a {kind}, is known", unknown not in text, text)
            if kind == "switch" and taken:
                check(f"{name} takes no model", "quire-tiny" in text, text)
    for name in HOW:
        check(f"{name} is taken", said[name][1], said[name][0])
    for name, why in REFUSED.items():
        check(f"{name} is refused because of {why!r}", not said[name][1] and why in said[name][0], said[name][0])
    for given in (("--prefix-caching-hash-algo", "sha256"), ("--ssl-cert-reqs", "0")):
        check(f"{given} is vLLM's default", subprocess.run([QUIRE, "serve", "--print-config", *given], capture_output=True).returncode == 0)
    run = subprocess.run([QUIRE, "serve", "--ssl-cert-reqs", "2", "models/quire-tiny"], capture_output=True, text=True)
    check("--ssl-cert-reqs 2 needs authorities", "--ssl-cert-reqs requires --ssl-ca-certs" in run.stderr + run.stdout, run.stderr)
    print("passed")


if __name__ == "__main__":
    main()
