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
INVERSE = {"--enable-": "--disable-", "--disable-": "--enable-"}
OTHER_VALUE = {"--stream-interval": "2", "--download-dir": "models", "--tokenizer": "models/quire-tiny"}
# Accepted whatever they say, since they choose how and not what.
HOW = """--model-loader-extra-config --linear-backend --gdn-prefill-backend --mamba-backend --mm-encoder-attn-backend --mm-processor-cache-type
    --performance-mode --numa-bind --distributed-timeout-seconds --disable-access-log-for-endpoints --aggregate-engine-logging
    --ignore-patterns --additional-config --numa-bind-nodes
    --tool-strict-level --max-cudagraph-capture-size""".split()
REFUSED = {"--profiler-config": "no /start_profile", "--enable-mfu-metrics": "not operations", "--cudagraph-metrics": "no metrics",
           "--kv-cache-metrics": "/debug/blocks", "--stream-interval": "each token", "--reasoning-config": "--reasoning-parser", "--weight-transfer-config": "weights are read once", "--ec-transfer-config": "text alone",
           "--max-num-scheduled-tokens": "--max-num-batched-tokens", "--watermark-config": "no watermark", "--scheduler-cls": "code of others", "--ssl-ciphers": "OpenSSL's own choice", "--custom-histogram-buckets": "buckets of histograms are fixed"}


def answer(line):
    """What is said of a flag, and whether the command line was taken."""
    name, kind = line.split()
    if name in ("--device-ids",):
        kind = "value"  # it is refused, whatever it has
    given = [OTHER_VALUE[name]] if name in OTHER_VALUE else GIVEN[kind]
    return name, kind, *printed(name, *given)


def printed(*flags):
    run = subprocess.run([QUIRE, "serve", "--print-config", "models/quire-tiny", *flags], capture_output=True, text=True, timeout=60)
    return run.stdout + run.stderr, run.returncode == 0


def check_inverses(lines):
    """vLLM's EnableDisableAction: --disable-x says of --enable-x what --no-enable-x says, and the reverse."""
    switches = [line.split()[0] for line in lines if line.endswith(" switch")]
    paired = [(name, name.replace(prefix, other, 1)) for name in switches for prefix, other in INVERSE.items() if name.startswith(prefix)]
    check("there are such switches", len(paired) > 40)
    for name, inverse in paired:
        if inverse in switches:
            continue
        denied, said = printed("--no-" + name.removeprefix("--")), printed(inverse)
        check(f"{inverse} is --no-{name[2:]}", said[1] and said == denied, (said, denied))
    for name in ("--disable-prefx-caching", "--disable-chunked-prefil", "--disable-auto-tool-choise", "--enable-hybrid-kv-cache-managr"):
        text, taken = printed(name)
        check(f"{name} is answered in its own sense", not taken and "Did you mean " + name[:9] in text, text)


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
    check_inverses(lines)
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
