#!/usr/bin/env python3
"""What a divided model does with its cache: prefill and decode servers of any two numbers of ranks, blocks behind the cache.

    tests/e2e/ranks_transfer_test.py build/release/app/quire
"""
import os
import signal
import sys
import tempfile
import time

from serve_process import Server, check, eventually, expect, free_port, num_expected, question_body, text_of

QUIRE = sys.argv[1]
FLAGS = ("--device", "cpu", "--max-model-len", "1024", "--max-num-seqs", "4", "--kv-cache-memory-bytes", "64MiB", "--dtype", "float32",
         "--cpu-threads", "1")
KEEP = {"do_remote_decode": True, "do_remote_prefill": False}
STORY = "Here is a list of sums. " + " ".join(f"{i} + {i + 1} = {2 * i + 1}." for i in range(40))
QUESTIONS = ["What is 12 + 7?", STORY + " What is 3 + 4?", STORY + " What is 9 + 9?"]


def ask(server, question, **more):
    return text_of(server.post("/v1/chat/completions", **question_body(question, **more)))


def hand_over(model, tp, folder, answers, plane=(), reached=(), writes=()):
    """Both over TCP, and on one machine out of the other's memory; block sizes differ too. `reached`: of whoever decodes, and
    `writes` of whoever prefills."""
    prefills, decodes = tp
    for listen in (f"127.0.0.1:{free_port()}", *([] if plane else [f"unix:{folder}/{prefills}-{decodes}.sock"])):
        near = ("--block-size", "32") if listen.startswith("unix:") and "hybrid" not in model else ()
        with Server(QUIRE, model, *FLAGS, *plane, "--tp", str(prefills), "--kv-role", "prefill", "--kv-listen", listen, *writes) as prefilling, \
             Server(QUIRE, model, *FLAGS, *plane, "--tp", str(decodes), "--kv-role", "decode", "--kv-peer", listen, *near, *reached) as decoding:
            for question, expected in zip(QUESTIONS, answers):
                body = question_body(question)
                kept = prefilling.post("/v1/chat/completions", **{**body, "max_tokens": 1, "kv_transfer_params": KEEP})
                params = kept["kv_transfer_params"]
                check(f"{tp}: something is kept", params is not None)
                answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)
                expect(f"{model}, {prefills} ranks to {decodes}: answer", text_of(answer), expected)
            expect("fetched", decoding.metric("quire:kv_transfers_total"), len(QUESTIONS))
            expect("recomputed", decoding.metric("quire:kv_transfer_recomputed_total"), 0)
            for server in (prefilling, decoding):
                expect("free blocks", server.metric("quire:kv_blocks_free"), server.metric("quire:kv_blocks"))


def several_engines(answers):
    """Over Mooncake each engine of a server that prefills is asked, and each of one that decodes is written to."""
    at, flags = f"127.0.0.1:{free_port()}", (*FLAGS, "--kv-plane", "mooncake", "--data-parallel-size", "2")
    with Server(QUIRE, "models/quire-tiny", *flags, "--kv-role", "prefill", "--kv-listen", at) as prefilling, \
         Server(QUIRE, "models/quire-tiny", *flags, "--kv-role", "decode", "--kv-listen", f"127.0.0.1:{free_port()}",
                "--kv-peer", "127.0.0.1") as decoding:
        asked = set()
        for question, expected in list(zip(QUESTIONS, answers)) * 4:
            body = question_body(question)
            kept = prefilling.post("/v1/chat/completions", **{**body, "max_tokens": 1, "kv_transfer_params": KEEP})["kv_transfer_params"]
            asked.add(kept["remote_bootstrap_addr"])
            answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=kept)
            expect("answer of several engines", text_of(answer), expected)
        expect("engines that prefilled", len(asked), 2)
        expect("recomputed", decoding.metric("quire:kv_transfer_recomputed_total"), 0)


def offload(model, size, folder, answers):
    """A pool that holds one of the long prompts: the others come back from memory, then after a restart from the file."""
    flags = (*FLAGS, "--tp", str(size), "--num-gpu-blocks-override", "72" if "hybrid" not in model else "40", "--kv-offload-bytes", "24MiB",
             "--kv-offload-path", folder)
    others = [f"Story {i}. " + STORY for i in range(3)]
    for again in (False, True):
        with Server(QUIRE, model, *flags) as server:
            for turn in range(2):
                for question, expected in zip(QUESTIONS, answers):
                    expect(f"{model} with {size} ranks, offloaded: answer", ask(server, question), expected)
                for other in others:
                    ask(server, other, ignore_eos=True)
            restored = server.metric("vllm:external_prefix_cache_hits_total")
            check(f"blocks came back to {size} ranks ({'from the file' if again else 'from memory'})", restored > 0)
            expect("damaged blocks", server.metric("quire:kv_offload_damaged_blocks_total"), 0)


def lost_rank(folder):
    """While prompts are handed over: the server ends with its word, the other computes what it was to fetch."""
    listen = f"unix:{folder}/lost.sock"
    model = "models/quire-tiny"
    prefilling = Server(QUIRE, model, *FLAGS, "--tp", "2", "--kv-role", "prefill", "--kv-listen", listen)
    prefilling.__enter__()
    with Server(QUIRE, model, *FLAGS, "--tp", "2", "--kv-role", "decode", "--kv-peer", listen) as decoding:
        body = question_body(QUESTIONS[1])
        expected = text_of(decoding.post("/v1/chat/completions", **body))
        decoding.post("/reset_prefix_cache")
        kept = prefilling.post("/v1/chat/completions", **{**body, "max_tokens": 1, "kv_transfer_params": KEEP})
        os.kill(prefilling.ranks()[0], signal.SIGKILL)
        expect("the server that lost a rank ends with", prefilling.process.wait(timeout=30), 4)
        answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=kept["kv_transfer_params"])
        expect("answer without the peer", text_of(answer), expected)
        eventually("all blocks are back", lambda: decoding.metric("quire:kv_blocks_free") == decoding.metric("quire:kv_blocks"))


with tempfile.TemporaryDirectory() as folder:
    for model, sizes in (("models/quire-tiny", ((2, 1), (1, 2), (2, 2), (4, 2))), ("models/quire-tiny-hybrid", ((2, 1), (1, 2)))):
        with Server(QUIRE, model, *FLAGS) as alone:
            answers = [ask(alone, question) for question in QUESTIONS]
        for tp in sizes:
            begin = time.monotonic()
            hand_over(model, tp, folder, answers)
            print(f"{model} {tp}: {time.monotonic() - begin:.0f} s", flush=True)
        with tempfile.TemporaryDirectory() as disk:
            offload(model, 2, disk, answers)
    lost_rank(folder)
    library = os.environ.get("QUIRE_NIXL_LIBRARY", "")
    nixl = ("--kv-plane", "nixl", "--nixl-library", library, "--kv-peer-model", "tiny")
    for model, sizes in (("models/quire-tiny", ((2, 1), (1, 2), (4, 2))), ("models/quire-tiny-hybrid", ((2, 1), (1, 2)))):
        with Server(QUIRE, model, *FLAGS) as alone:
            answers = [ask(alone, question) for question in QUESTIONS]
        for tp in sizes:
            hand_over(model, tp, folder, answers, ("--kv-plane", "mooncake"), ("--kv-listen", f"127.0.0.1:{free_port()}"))
            if library:
                hand_over(model, tp, folder, answers, nixl)
                own = f"127.0.0.1:{free_port()}"
                hand_over(model, tp, folder, answers, (*nixl, "--nixl-transfer-mode", "push"), ("--kv-listen", own), ("--kv-peer", own))
        if "hybrid" not in model:
            several_engines(answers)
print(f"{num_expected()} checks passed")
