#!/usr/bin/env python3
"""Ranks that divide a model on a CPU: the reference's logits, the same texts as undivided, what is refused, a rank that is killed.

    tests/e2e/tensor_parallel_test.py build/release/app/quire
QUIRE_GOLDEN_DIR: a folder of reference models, of which all that are divided are checked.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error

from serve_process import Server

QUIRE, MODEL = sys.argv[1], "models/quire-tiny"
GOLDEN = pathlib.Path("tests/data/golden/models")
COMMON = ("--device", "cpu", "--max-model-len", "512", "--max-num-seqs", "8")
# A model of each kind of layer that ranks do not divide, and what it is refused for.
WHOLE = {"deepseek-v3": "latent attention", "nemotron-h": "Mamba2", "qwen3-5": "gated delta net"}
# Of the full set, those whose layers are divided; the sizes are what their heads allow.
DIVIDED = {"llama-rope-llama3": (2, 4), "granite": (2, 4), "qwen2-yarn": (2, 4), "qwen3": (2, 4),
           "mistral-sliding": (2, 4), "gemma2": (2, 4), "gemma3": (2, 4)}


def check(condition, what):
    if not condition:
        sys.exit("FAILED: " + what)


def run(*command):
    return subprocess.run([QUIRE, *map(str, command)], capture_output=True, text=True, timeout=300)


def golden(folder, size, *flags):
    ran = run("check", folder, "--device", "cpu", "--dtype", "float32", "--tensor-parallel-size", size, "--cpu-threads", 1, *flags)
    check(ran.returncode == 0, f"{folder} with {size} ranks: {ran.stdout}{ran.stderr}")


def goldens():
    for size in (2, 4):
        for flags in ((), ("--chunk", 7, "--batch", 3)):
            golden(GOLDEN / "phi3-longrope", size, *flags)
    full = os.environ.get("QUIRE_GOLDEN_DIR")
    for folder in sorted(pathlib.Path(full, "models").iterdir()) if full else []:
        for size in DIVIDED.get(folder.name, ()):
            golden(folder, size)


def refusals():
    for name, reason in WHOLE.items():
        plan = json.loads(run("plan", GOLDEN / name, "--device", "cpu", "--json", "--tensor-parallel-size", 2).stdout or "{}")
        said = run("plan", GOLDEN / name, "--device", "cpu", "--tensor-parallel-size", 2)
        text = said.stdout + said.stderr
        check(said.returncode != 0 and not plan.get("accepted"), f"{name} is planned for 2 ranks")
        check(reason in text and "--tensor-parallel-size 2" in text, f"{name} is refused with: {text}")
    odd = run("plan", MODEL, "--device", "cpu", "--tensor-parallel-size", 3)
    check(odd.returncode != 0 and re.search(r"1, 2.*work", odd.stdout + odd.stderr), f"3 ranks: {odd.stdout}{odd.stderr}")


def plans():
    alone, two = (json.loads(run("plan", MODEL, "--device", "cpu", "--json", "--max-model-len", 512, "--tensor-parallel-size", n).stdout)
                  for n in (1, 2))
    check(two["tensor_parallel_size"] == 2, "the plan does not say how many ranks")
    check(two["device_bytes"] == alone["device_bytes"] // 2, "ranks do not divide the machine's memory")


def chat(server, text, **more):
    reply = server.post("/v1/chat/completions", messages=[{"role": "user", "content": text}], temperature=0, **more)
    return reply["choices"][0]["message"]["content"]


def texts():
    asked = [f"What is {a} + {b}?" for a, b in ((12, 7), (3, 4), (20, 30), (8, 9), (41, 5), (6, 6))]
    answers = {}
    for size in ("1", "2"):
        # A small pool, so that requests are preempted while others run.
        for pool in ("200", "36"):
            with Server(QUIRE, MODEL, *COMMON, "--tensor-parallel-size", size, "--dtype", "float32", "--num-gpu-blocks-override", pool) as server:
                with concurrent.futures.ThreadPoolExecutor(6) as threads:
                    answers[size, pool] = list(threads.map(lambda text: chat(server, text, max_tokens=120, ignore_eos=True), asked))
                before = server.metric("vllm:prefix_cache_hits_total")
                preempted = server.metric("vllm:num_preemptions_total")
                check((preempted > 0) == (pool == "36"), f"{preempted} requests were preempted in a pool of {pool}")
                again = chat(server, asked[0], max_tokens=120, ignore_eos=True)
                check(again == answers[size, pool][0], "an answer that begins with cached blocks differs")
                check(pool != "200" or server.metric("vllm:prefix_cache_hits_total") > before, "no prefix was found again")
                if size == "2":
                    device = json.loads(server.ask("/v1/models"))["data"][0]["engines"][0]["device"]
                    check("2 ranks" in device, f"/v1/models says {device}")
    first = next(iter(answers.values()))
    for which, texts in answers.items():
        check(texts == first, f"answers with {which}: {texts}, undivided: {first}")


def children(pid):
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(child) for child in listed if "rank" in pathlib.Path(f"/proc/{child}/cmdline").read_text()]


def killed_rank(busy):
    server = Server(QUIRE, MODEL, *COMMON, "--tensor-parallel-size", "2")
    server.__enter__()
    ranks = children(server.process.pid)
    check(len(ranks) == 1, f"ranks are {ranks}")
    def one(i):
        try:
            return chat(server, f"Count from {i}", max_tokens=400, ignore_eos=True)
        except (urllib.error.URLError, ConnectionError, OSError, ValueError) as error:
            return str(error)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        running = [threads.submit(one, i) for i in range(4)] if busy else []
        time.sleep(0.5)
        os.kill(ranks[0], signal.SIGKILL)
        for future in running:
            future.result(timeout=60)
    check(server.process.wait(timeout=60) == 4, f"the server ended with {server.process.returncode}, not 4")


def killed_server():
    with_ranks = Server(QUIRE, MODEL, *COMMON, "--tensor-parallel-size", "2")
    with_ranks.__enter__()
    ranks = children(with_ranks.process.pid)
    with_ranks.process.kill()
    with_ranks.process.wait()
    end = time.monotonic() + 20
    while any(pathlib.Path(f"/proc/{rank}/cmdline").exists() and pathlib.Path(f"/proc/{rank}/cmdline").read_bytes() for rank in ranks):
        check(time.monotonic() < end, "a rank outlives its server")
        time.sleep(0.1)


for test in (refusals, plans, goldens, texts, lambda: killed_rank(True), lambda: killed_rank(False), killed_server):
    test()
print("tensor parallel: ok")
