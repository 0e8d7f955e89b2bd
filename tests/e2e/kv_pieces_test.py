#!/usr/bin/env python3
"""Prompts that are copied into the cache in many pieces, between the steps of others: right tokens, and nothing lost where clients leave.

    tests/e2e/kv_pieces_test.py build/release/app/quire
"""
import http.client
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

from large_cache_model import BYTES_PER_TOKEN, FLAGS, write_model
from serve_process import Server, eventually, expect, num_expected

TOKENS = 640
KEEP = {"do_remote_decode": True, "do_remote_prefill": False}


def prompts(count, seed):
    draw = random.Random(seed)
    return [[draw.randrange(100, 1500) for _ in range(TOKENS)] for _ in range(count)]


def body_of(prompt, max_tokens=8, **more):
    return {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **more}


def tokens_of(server, prompt, **more):
    return server.post("/v1/completions", **body_of(prompt, **more))["choices"][0]["token_ids"]


def kept(server, prompt):
    return server.post("/v1/completions", **body_of(prompt, 1, kv_transfer_params=KEEP))["kv_transfer_params"]


def leave(server, prompt, params, after):
    line = http.client.HTTPConnection(server.base.removeprefix("http://"), timeout=60)
    line.request("POST", "/v1/completions", json.dumps(body_of(prompt, 200, stream=True, kv_transfer_params=params)),
                 {"Content-Type": "application/json"})
    time.sleep(after)
    line.close()


def main(quire):
    with tempfile.TemporaryDirectory() as folder:
        model, line = write_model(folder), f"unix:{folder}/kv.sock"
        flags = (*FLAGS, "--deterministic")
        with Server(quire, model, *flags, "--kv-role", "prefill", "--kv-listen", line) as prefilling, \
             Server(quire, model, *flags, "--kv-role", "decode", "--kv-peer", line) as decoding:
            own = prompts(4, 1)
            expected = [tokens_of(prefilling, prompt) for prompt in own]
            others, got = [[7, i, 9] * 5 for i in range(2)], [None] * 2
            alone = [tokens_of(prefilling, prompt, max_tokens=300) for prompt in others]

            def run(i):
                got[i] = tokens_of(decoding, others[i], max_tokens=300)

            threads = [threading.Thread(target=run, args=(i,)) for i in range(len(others))]
            for thread in threads:
                thread.start()
            answers = [tokens_of(decoding, prompt, kv_transfer_params=kept(prefilling, prompt)) for prompt in own]
            expect("prompts that were fetched beside others", answers, expected)
            expect("all of them travelled", decoding.metric("quire:kv_transfer_bytes_total"), 1.0 * len(own) * TOKENS * BYTES_PER_TOKEN)
            for i, prompt in enumerate(prompts(12, 2)):
                leave(decoding, prompt, kept(prefilling, prompt), after=0.003 * i)
            for thread in threads:
                thread.join()
            expect("the others", got, alone)
            eventually("what has arrived is used or gone", lambda: decoding.metric("quire:kv_transfer_buffer_bytes") == 0)
            eventually("all requests have ended", lambda: decoding.metric("vllm:num_requests_running") == 0)
            eventually("all blocks are back", lambda: decoding.metric("vllm:kv_cache_usage_perc") == 0)
            expect("an answer afterwards", tokens_of(decoding, own[0], kv_transfer_params=kept(prefilling, own[0])), expected[0])
            expect("nothing was lost", decoding.metric("quire:kv_transfer_recomputed_total"), 0)
    print(f"kv_pieces_test: {num_expected()} expectations hold")


main(pathlib.Path(sys.argv[1]).resolve())
