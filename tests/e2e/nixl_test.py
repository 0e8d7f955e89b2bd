#!/usr/bin/env python3
"""Prefill and decode over NIXL: between two Quire servers, and with vLLM's own connector classes between them.

    QUIRE_NIXL_LIBRARY=…/libnixl_capi.so QUIRE_NIXL_PYTHON=…/bin/python QUIRE_VLLM_WHEEL=… tests/e2e/nixl_test.py build/release/app/quire

vLLM pulls from a Quire server what that one has prefilled, checks nothing and hands it on to a Quire server that decodes: its blocks
are others, its bytes must be the same. Skipped where the library is missing; the part with vLLM where its wheel is.
"""
import json
import os
import sys
import urllib.error

from serve_process import Server, check_refused_fetches, eventually, expect, free_port, num_expected, question_body, text_of
from transfer_peers import FLAGS, LIMITS, VllmPeer, losses, questions

MODEL = "models/quire-tiny"
SHAPE = {"layers": 4, "kv_heads": 2, "head_size": 64, "dtype": "bfloat16", "block_size": 16, "blocks": 256, "ranks": 1, "model": "tiny"}
LIBRARY = os.environ.get("QUIRE_NIXL_LIBRARY", "")
PYTHON, WHEEL = os.environ.get("QUIRE_NIXL_PYTHON", ""), os.environ.get("QUIRE_VLLM_WHEEL", "")
NIXL = ("--kv-plane", "nixl", "--nixl-library", LIBRARY, "--kv-peer-model", "tiny")
KEEP = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None, "remote_host": None,
        "remote_port": None}


def vllm_peer(extra=None, **shape):
    return VllmPeer([PYTHON, "tests/e2e/vllm_connector.py"], {**SHAPE, **shape}, extra or {})


def prefill(server, body):
    answer = server.post("/v1/chat/completions", **{**body, **LIMITS, "stream": False, "kv_transfer_params": KEEP})
    expect("finish reason", answer["choices"][0]["finish_reason"], "length")
    return answer["kv_transfer_params"]


def check_params(params, port):
    names = ("do_remote_prefill", "do_remote_decode", "remote_host", "remote_port", "tp_size", "dcp_size", "pp_size", "transfer_mode",
             "remote_blocks_expiry_time", "remote_registration_generation")
    expect("params", [params[n] for n in names], [True, False, "127.0.0.1", port, 1, 1, 1, "pull", None, 1])
    expect("groups", len(params["remote_block_ids"]), 1)
    expect("blocks", len(params["remote_block_ids"][0]), -(-params["remote_num_tokens"] // 16))


def check_quire_to_quire(prefilling, decoding, alone, port):
    for question in questions():
        body = question_body(question)
        params = prefill(prefilling, body)
        check_params(params, port)
        answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)
        expect("answer over NIXL", text_of(answer), text_of(alone.post("/v1/chat/completions", **body)))
    expect("fetched", decoding.metric("quire:kv_transfers_total"), len(questions()))
    expect("recomputed", losses(decoding), 0)
    eventually("all of it was released", lambda: prefilling.metric("quire:kv_transfer_buffer_bytes") == 0)


def check_relay(quire, prefilling, alone):
    with vllm_peer() as vllm, Server(quire, MODEL, *FLAGS, *NIXL, "--kv-role", "decode", "--kv-peer", f"127.0.0.1:{vllm.port}") as decoding:
        for question in questions():
            body = question_body(question)
            params = prefill(prefilling, body)
            pulled = vllm.ask("pull", params=params, tokens=params["remote_num_tokens"])
            expect("vLLM pulls from Quire", (pulled["ok"], pulled["wanted"]), (True, params["remote_num_tokens"]))
            offered = vllm.ask("offer", blocks=pulled["blocks"], tokens=params["remote_num_tokens"])["params"]
            answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=offered)
            expect("answer by way of vLLM", text_of(answer), text_of(alone.post("/v1/chat/completions", **body)))
            eventually("vLLM may free what was read", lambda: offered["remote_request_id"] in vllm.ask("released")["requests"])
        expect("fetched from vLLM", decoding.metric("quire:kv_transfers_total"), len(questions()))
        expect("recomputed", losses(decoding), 0)
        eventually("vLLM's notice released all", lambda: prefilling.metric("quire:kv_transfer_buffer_bytes") == 0)
        check_damage(vllm, decoding, alone)


def check_damage(vllm, decoding, alone):
    """Params that point elsewhere, and servers that know nothing of them."""
    body = question_body("What is 2 + 2?")
    expected = text_of(alone.post("/v1/chat/completions", **body))
    tokens = prompt_tokens(alone, body)
    good = vllm.ask("offer", blocks=[7, 8, 9][:-(-tokens // 16)], tokens=tokens)["params"]
    for change in ({"remote_engine_id": "another"}, {"remote_block_ids": [[2**31 - 1]]}, {"remote_block_ids": []},
                   {"remote_block_ids": [[]]}, {"tp_size": 64}):
        lost = losses(decoding)
        answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params={**good, **change})
        expect(f"answer with {change}", text_of(answer), expected)
        expect(f"recomputed with {change}", losses(decoding), lost + 1)
    for change in ({"remote_host": "127.0.0.2"}, {"remote_port": 1}, {"remote_block_ids": [["a"]]}, {"dcp_size": 2},
                   {"remote_request_id": ""}):
        try:
            decoding.post("/v1/chat/completions", **body, kv_transfer_params={**good, **change})
            expect(f"status with {change}", 200, 400)
        except urllib.error.HTTPError as error:
            expect(f"status with {change}", error.code, 400)


def prompt_tokens(server, body):
    return server.post("/v1/chat/completions", **body)["usage"]["prompt_tokens"]


def check_hash(prefilling, alone):
    """vLLM refuses a server whose hash is another, unless it was told not to compare."""
    body = question_body(questions()[2])
    for extra, taken in (({}, False), ({"enforce_handshake_compat": False}, True)):
        with vllm_peer(extra, model="another") as vllm:
            params = prefill(prefilling, body)
            expect(f"vLLM with {extra}", vllm.ask("pull", params=params, tokens=params["remote_num_tokens"])["ok"], taken)


def check_lost_peer(quire, alone):
    body = question_body(questions()[3])
    tokens = prompt_tokens(alone, body)
    vllm = vllm_peer()
    with Server(quire, MODEL, *FLAGS, *NIXL, "--kv-role", "decode", "--kv-peer", f"127.0.0.1:{vllm.port}") as decoding:
        params = vllm.ask("offer", blocks=list(range(1, 1 - (-tokens // 16))), tokens=tokens)["params"]
        decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)
        with vllm:
            params = vllm.ask("offer", blocks=list(range(1, 1 - (-tokens // 16))), tokens=tokens)["params"]
        # Its beginning is another: what was read first is nothing, which vLLM's wire cannot show, and is in the prefix cache.
        other = question_body("Think well. " + questions()[2])
        tokens_of_other = prompt_tokens(alone, other)
        answer = decoding.post("/v1/chat/completions", **other, kv_transfer_params={**params, "remote_num_tokens": tokens_of_other})
        expect("answer of a lost vLLM server", text_of(answer), text_of(alone.post("/v1/chat/completions", **other)))
        expect("recomputed", losses(decoding), 1)


def main():
    quire = sys.argv[1]
    if not LIBRARY:
        print("skipped: QUIRE_NIXL_LIBRARY does not name libnixl_capi.so")
        return 77
    os.environ.setdefault("UCX_NET_DEVICES", "lo")  # of all that this starts: it goes nowhere else
    port = free_port()
    with Server(quire, MODEL, *FLAGS) as alone, \
            Server(quire, MODEL, *FLAGS, *NIXL, "--kv-role", "prefill", "--kv-listen", f"127.0.0.1:{port}") as prefilling:
        with Server(quire, MODEL, *FLAGS, *NIXL, "--kv-role", "decode", "--kv-peer", f"127.0.0.1:{port}") as decoding:
            check_quire_to_quire(prefilling, decoding, alone, port)
            check_refused_fetches(prefilling, decoding, lambda body: prefill(prefilling, body))
        if PYTHON and WHEEL:
            check_relay(quire, prefilling, alone)
            check_hash(prefilling, alone)
            check_lost_peer(quire, alone)
        else:
            print("without vLLM: QUIRE_NIXL_PYTHON and QUIRE_VLLM_WHEEL do not say where it is")
    print(f"nixl: ok, {num_expected()} compared")
    return 0


if __name__ == "__main__":
    sys.exit(main())
