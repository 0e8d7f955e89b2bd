#!/usr/bin/env python3
"""What `quire plan` says of memory is what a server with the same flags has: in /v1/models, at /metrics, in its log.

    tests/e2e/memory_test.py QUIRE QUIRE_EMULATED [--sanitized]

And a server under load stays within it: on a CPU its resident memory grows by what was planned and not yet touched, and an
allowance for the host's own heap. Without memory for a start-up there is an error, and an exit code.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from serve_process import Server, expect, num_expected

GOLDEN = pathlib.Path("tests/data/golden/models")
TINY = pathlib.Path("models/quire-tiny")
SMALL = ["--max-model-len", "256", "--max-num-seqs", "4", "--max-num-batched-tokens", "64"]
CACHE = ["--kv-cache-memory-bytes", "8MiB"]
# Folder, flags: a dense model, hybrids, latent attention with experts, experts; few and many rows and tokens; a share.
CONFIGS = [
    ("models/quire-tiny", SMALL + CACHE),
    ("models/quire-tiny", [*CACHE, "--max-num-seqs", "1", "--max-model-len", "512", "--max-num-batched-tokens", "16"]),
    ("models/quire-tiny-hybrid", [*CACHE, "--max-num-seqs", "33", "--max-model-len", "-1", "--max-num-batched-tokens", "96"]),
    ("deepseek-v3", SMALL + CACHE),
    ("qwen3-5", SMALL + ["--kv-cache-memory-bytes", "3MiB", "--no-enable-prefix-caching"]),
    ("nemotron-h", SMALL + ["--num-gpu-blocks-override", "20", *CACHE]),
]
SHARE = ("models/quire-tiny", SMALL + ["--gpu-memory-utilization"])
# Of the host, beside what is planned: threads' scratch, requests, connections, the allocator's reserve.
HOST_ALLOWANCE = 16 << 20


# Models of the goldens come without a tokenizer; quire-tiny's has as many tokens.
def with_tokenizer(folder, model):
    if model.startswith("models/"):
        return model
    shutil.copytree(GOLDEN / model, folder / model, ignore=shutil.ignore_patterns("golden.*"), dirs_exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(TINY / file, folder / model)
    return str(folder / model)


def planned(quire, model, flags):
    done = subprocess.run([quire, "plan", model, "--json", *flags], capture_output=True, text=True, timeout=60)
    report = json.loads(done.stdout)
    assert report["accepted"], report
    return report


def check_server(quire, model, flags):
    name = f"{model} {' '.join(flags)}"
    report = planned(quire, model, flags)
    with Server(quire, model, *flags) as server:
        card = json.loads(server.ask("/v1/models"))["data"][0]["engines"][0]
        server.post("/v1/completions", prompt=[1, 2, 3], max_tokens=4, ignore_eos=True, logprobs=5)
        metrics = server.ask("/metrics")
        late = server.metric("quire:late_allocations_total")
    expect(f"{name}: blocks", card["num_gpu_blocks"], report["plan"]["num_gpu_blocks"])
    served = {use["purpose"]: use for use in card["memory"]}
    expect(f"{name}: purposes", sorted(served), sorted(report["memory"]))
    for purpose, plan in report["memory"].items():
        use = served[purpose]
        expect(f"{name}: {purpose}", use["planned_bytes"], plan["planned_bytes"])
        expect(f"{name}: pinned for {purpose}", use["pinned_bytes"], plan["pinned_bytes"])
        if purpose == "graphs":
            assert 0 < use["allocated_bytes"] <= use["planned_bytes"], use
        else:
            expect(f"{name}: allocated for {purpose}", use["allocated_bytes"], plan["planned_bytes"])
        for kind in ("planned", "allocated", "pinned"):
            found = re.search(rf'^quire:memory_{kind}_bytes{{[^}}]*purpose="{purpose}"[^}}]*}} (\S+)$', metrics, re.M)
            expect(f"{name}: {kind} {purpose} at /metrics", float(found[1]), float(use[kind + "_bytes"]))
    expect(f"{name}: allocations after start-up", late, 0)


def resident_bytes(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"^VmRSS:\s+(\d+) kB", file.read(), re.M)[1]) << 10


def check_resident(quire):
    flags = ["--device", "cpu", "--max-model-len", "2048", "--max-num-seqs", "64", "--max-num-batched-tokens", "1024",
             "--kv-cache-memory-bytes", "64MiB"]
    report = planned(quire, "models/quire-tiny", flags)
    # The cache is touched at start-up, the rest when it is first used.
    untouched = sum(use["planned_bytes"] for purpose, use in report["memory"].items() if purpose != "kv_cache")
    with Server(quire, "models/quire-tiny", *flags) as server:
        before = resident_bytes(server.process.pid)

        def ask(i):
            body = {"prompt": [(7 * i + j) % 300 for j in range(100 + 12 * i)], "max_tokens": 48, "ignore_eos": True,
                    "temperature": i % 2, "repetition_penalty": 1.1 if i % 3 == 0 else 1, "logprobs": 20 if i % 5 == 0 else None}
            return server.post("/v1/completions", **body)["usage"]["completion_tokens"]
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            expect("tokens", set(pool.map(ask, range(128))), {48})
        grown = resident_bytes(server.process.pid) - before
        expect("allocations after start-up", server.metric("quire:late_allocations_total"), 0)
    print(f"resident memory grew by {grown >> 20} MiB; planned and untouched {untouched >> 20} MiB, for the host "
          f"{HOST_ALLOWANCE >> 20} MiB")
    if grown > untouched + HOST_ALLOWANCE:
        sys.exit(f"FAILED: resident memory grew by {grown} bytes; planned were {untouched}, for the host {HOST_ALLOWANCE}")


def check_too_small(emulated):
    flags = ["serve", "models/quire-tiny", "--device", "cuda", "--port", "0", *SMALL]
    cases = [("100000000", flags, r"no \d+ bytes of device memory for kernels: \d+ of 100000000 device bytes are free"),
             ("120000000", flags, r"do not fit .*What works: .*a device of at least|are missing"),
             ("200000000", flags + ["--kv-cache-memory-bytes", "190MB"], r"too few. What works: --kv-cache-memory-bytes \d+")]
    for memory, command, text in cases:
        done = subprocess.run([emulated, *command], env={**os.environ, "QUIRE_EMULATION_MEMORY": memory}, text=True,
                              capture_output=True, timeout=120)
        expect(f"exit code with {memory} bytes", done.returncode, 1)
        assert re.search(text, done.stderr), done.stderr


def check_servers(quire, folder, device, flags, share):
    for model, own in CONFIGS:
        check_server(quire, with_tokenizer(folder, model), ["--device", device, *flags, *own])
    check_server(quire, SHARE[0], ["--device", device, *SHARE[1], share])


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        check_servers(sys.argv[1], folder, "cpu", [], "0.005")
        if "--sanitized" not in sys.argv:  # sanitizers keep what was freed
            check_resident(sys.argv[1])
        os.environ["QUIRE_EMULATION_MEMORY"] = str(400 << 20)
        check_servers(sys.argv[2], folder, "cuda", ["--cudagraph-capture-sizes", "1"], "0.5")
        check_too_small(sys.argv[2])
    print(f"memory_test: {num_expected()} figures are as planned")


main()
