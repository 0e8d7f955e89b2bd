#!/usr/bin/env python3
"""Ranks that divide a model on GPUs, emulated, an emulated device each and an emulated NCCL between them: the reference's logits, the
same texts as undivided with graphs and without, what is refused, a rank that is killed.

    tests/e2e/emulated_ranks_test.py build/release/tests/e2e/quire_emulated FOLDER_OF_EMULATED_NCCL
QUIRE_GOLDEN_DIR: a folder of reference models, all of which are checked, with 2 ranks and 4 by turns.
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

import serve_process
from serve_process import Server, check

QUIRE, NCCL = sys.argv[1:3]
MODEL = "models/quire-tiny"
GOLDEN = pathlib.Path("tests/data/golden/models")
QUANTIZED = pathlib.Path("tests/data/golden/quantized")
COMMON = ("--device", "cuda", "--max-model-len", "256", "--max-num-seqs", "4", "--max-num-batched-tokens", "64", "--dtype", "float32",
          "--kv-cache-memory-bytes", "16MiB")
BFLOAT16_ALONE = {"ct-w8a8"}  # its products miss float32's bounds whole as well
REFUSED = {("llama-linear-bias", 2): r"3 key heads.* only 1 works", ("llama-linear-bias", 4): r"only 1 works",
           ("gpt-oss-mxfp4", 4): r"whole units of 32.* 1 and 2 work"}
QUESTIONS = [f"What is {a} + {b}?" for a, b in ((12, 7), (3, 4), (20, 30), (8, 9))]

os.environ.update(QUIRE_EMULATION_DEVICES="4", QUIRE_EMULATION_MEMORY=str(512 << 20), LD_LIBRARY_PATH=NCCL)


def run(*command, **environment):
    return subprocess.run([QUIRE, *map(str, command)], capture_output=True, text=True, timeout=300, env={**os.environ, **environment})


def refusals():
    check_model = ("check", GOLDEN / "phi3-longrope", "--device", "cuda", "--tp", 2)
    for environment, words in (({"QUIRE_EMULATION_DEVICES": "1"}, r"--tensor-parallel-size 2: .*a CUDA device each, 0 to 1, and there are 1"),
                               # None, or the real one, which finds no driver.
                               ({"LD_LIBRARY_PATH": ""}, r"--tensor-parallel-size 2: NCCL .*2\.18 or later.*libnccl\.so\.2|nccl\w+: .*driver"),
                               ({"QUIRE_EMULATION_NCCL_VERSION": "21602"}, r"2\.18 or later.*not 2\.16\.2")):
        ran = run(*check_model, **environment)
        check(f"{environment} is refused", ran.returncode == 2 and re.search(words, ran.stderr), ran.stdout + ran.stderr)


def golden(folder, size, *flags):
    ran = run("check", folder, "--device", "cuda", "--kv-cache-memory-bytes", "16MiB", "--tensor-parallel-size", size, *flags)
    refused = REFUSED.get((folder.name, size))
    holds = ran.returncode == 2 and re.search(refused, ran.stderr) if refused else ran.returncode == 0
    check(f"{folder} with {size} ranks, {flags}", holds, ran.stdout + ran.stderr)


def goldens():
    roots = [GOLDEN, QUANTIZED]
    if full := os.environ.get("QUIRE_GOLDEN_DIR"):
        roots = [pathlib.Path(full, "models"), pathlib.Path(full, "quantized")]
    folders = [folder for root in roots for folder in sorted(root.iterdir()) if (folder / "golden.json").exists()]
    check("there are reference models", len(folders) >= 5, folders)
    for i, folder in enumerate(folders):
        for size in (2 + 2 * (i % 2),) if full else (2, 4):
            dtype = "bfloat16" if size == 2 or folder.name in BFLOAT16_ALONE else "float32"
            golden(folder, size, "--dtype", dtype, *(("--chunk", 7, "--batch", 3) if size == 4 else ()))


# Of four that run nobody is drafted for, of those who are left over all are.
HEAD = {"method": "eagle3", "model": "models/drafts/quire-tiny-eagle3", "num_speculative_tokens": 3, "disable_by_batch_size": 2}


def chat(server, text):
    return serve_process.text_of(server.post("/v1/chat/completions", **serve_process.question_body(text, 48, ignore_eos=True)))


def texts():
    answers = {}
    for name, flags in {"whole": (), "graphs": ("--tp", "2"), "eager": ("--tp", "2", "--enforce-eager"), "four": ("--tp", "4"),
                        "small": ("--tp", "2", "--num-gpu-blocks-override", "18"),
                        "drafts": ("--tp", "2", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'),
                        "a head, at times": ("--tp", "2", "--speculative-config", json.dumps(HEAD)),
                        "two of two": ("--tp", "2", "--dp", "2")}.items():
        with Server(QUIRE, MODEL, *COMMON, *flags) as server:
            with concurrent.futures.ThreadPoolExecutor(4) as threads:
                answers[name] = list(threads.map(lambda text: chat(server, text), QUESTIONS))
            if name == "small":
                check("requests are preempted", server.metric("vllm:num_preemptions_total") > 0)
            if name == "graphs":
                check("a prefix is found again", chat(server, QUESTIONS[0]) == answers[name][0] and server.metric("vllm:prefix_cache_hits_total") > 0)
            devices = [engine["device"] for engine in json.loads(server.ask("/v1/models"))["data"][0]["engines"]]
            expected = {"whole": ["cuda:0"], "four": ["cuda:0, 4 ranks"], "two of two": ["cuda:0, 2 ranks", "cuda:2, 2 ranks"]}
            check("devices", devices == expected.get(name, ["cuda:0, 2 ranks"]), devices)
        check(f"answers of {name}", answers[name] == answers["whole"], answers)


def lost_rank(how, busy):
    server = Server(QUIRE, MODEL, *COMMON, "--tp", "2")
    server.__enter__()
    rank, = server.ranks()

    def one(i):
        try:
            while True:
                chat(server, f"Count from {i}")
        except (urllib.error.URLError, ConnectionError, OSError, ValueError) as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        running = [threads.submit(one, i) for i in range(2)] if busy else []
        time.sleep(0.5)
        os.kill(rank, how)
        for future in running:
            future.result(timeout=90)
    check("the server ends with code 4", server.process.wait(timeout=90) == 4, server.process.returncode)


lost = [lambda how=how, busy=busy: lost_rank(how, busy) for how, busy in ((signal.SIGKILL, True), (signal.SIGKILL, False), (signal.SIGSTOP, True))]
for test in (refusals, texts, *lost, goldens):
    begin = time.monotonic()
    test()
    print(f"{getattr(test, '__name__', '')}: {time.monotonic() - begin:.0f} s", flush=True)
print("emulated ranks: ok")
