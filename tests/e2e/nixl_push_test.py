#!/usr/bin/env python3
"""Prefills that are written over NIXL: between two Quire servers, and with the classes of vLLM's own NixlPushConnector on either side.

    QUIRE_NIXL_LIBRARY=…/libnixl_capi.so QUIRE_NIXL_PYTHON=…/bin/python QUIRE_VLLM_WHEEL=… tests/e2e/nixl_push_test.py build/release/app/quire

A Quire server writes into vLLM's blocks, and vLLM writes the same blocks into those of a Quire server that decodes: the bytes must be the
same. Skipped where the library is missing; the part with vLLM where its wheel is.
"""
import concurrent.futures
import json
import os
import sys
import time

from nixl_test import KEEP, LIBRARY, MODEL, NIXL, PYTHON, WHEEL, vllm_peer
from proxy_test import Proxy
from serve_process import Server, check_refused_fetches, eventually, expect, free_port, num_expected, question_body, text_of
from transfer_peers import FLAGS, LIMITS, losses, questions

PUSH = (*NIXL, "--nixl-transfer-mode", "push", "--kv-transfer-profile", "vllm-" + os.environ.get("QUIRE_VLLM_VERSION", "0.33.0"))


def prefill(server, body, **more):
    answer = server.post("/v1/chat/completions", **{**body, **LIMITS, "stream": False, "kv_transfer_params": KEEP, **more})
    expect("finish reason", answer["choices"][0]["finish_reason"], "length")
    return answer["kv_transfer_params"]


def flags(role, port, *peers, block_size=16):
    return (*FLAGS, *PUSH, "--kv-role", role, "--kv-listen", f"127.0.0.1:{port}", "--kv-peer-block-size", str(block_size),
            *(flag for peer in peers for flag in ("--kv-peer", f"127.0.0.1:{peer}")))


def at_once(**calls):
    """What each of them returns; they begin a moment apart, in their order."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = {}
        for name, call in calls.items():
            running[name] = pool.submit(call)
            time.sleep(0.2)
        return {name: one.result() for name, one in running.items()}


def without_tokens(params):
    """As a proxy knows it from another request."""
    return {**params, "remote_request_id": "of a proxy", "remote_num_tokens": None}


def check_quire_to_quire(prefilling, decoding, alone, port):
    for question in questions():
        body = question_body(question)
        params = prefill(prefilling, body)
        expect("params", [params[n] for n in ("remote_host", "remote_port", "tp_size", "transfer_mode", "remote_block_ids")],
               ["127.0.0.1", port, 1, "push", []])
        expect("answer that was written", text_of(decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)),
               text_of(alone.post("/v1/chat/completions", **body)))
    for number, first in enumerate(("prefill", "decode")):
        body = question_body(f"{questions()[2]} And what is {number} + 1?")
        name = {"request_id": f"of-both-{number}"}
        calls = {"prefill": lambda: prefill(prefilling, body, **name),
                 "decode": lambda: decoding.post("/v1/chat/completions", **body, **name, kv_transfer_params=without_tokens(params))}
        answers = at_once(**dict(sorted(calls.items(), key=lambda call: call[0] != first)))
        expect(f"answer with {first} first", text_of(answers["decode"]), text_of(alone.post("/v1/chat/completions", **body)))
    expect("written", decoding.metric("quire:kv_transfers_total"), len(questions()) + 2)
    expect("recomputed", losses(decoding), 0)


def check_states(quire):
    """A hybrid model: its recurrent states are written beside keys and values, by blocks of two sizes."""
    model, ports = "models/quire-tiny-hybrid", (free_port(), free_port())
    with Server(quire, model, *FLAGS) as alone, Server(quire, model, *flags("prefill", ports[0], ports[1])) as prefilling, \
            Server(quire, model, *flags("decode", ports[1], ports[0], block_size=32)) as decoding:
        for question in questions():
            body = question_body(question)
            answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=prefill(prefilling, body))
            expect("answer beside a state", text_of(answer), text_of(alone.post("/v1/chat/completions", **body)))
        expect("written", decoding.metric("quire:kv_transfers_total"), len(questions()))
        expect("recomputed", losses(decoding), 0)
        eventually("all of it was released", lambda: decoding.metric("quire:kv_blocks_free") == decoding.metric("quire:kv_blocks"))


def check_proxy(quire, prefilling, decoding, alone):
    """The first is pulled along by its answer, the others are asked for at both servers at once."""
    with Proxy(quire, [prefilling], [decoding], "--transfer-mode", "push") as proxy:
        for number in range(4):
            body = question_body(f"{questions()[2]} And {number} + 2?")
            written = decoding.metric("quire:kv_transfers_total")
            status, answer = proxy.send("/v1/chat/completions", {"model": "m", **body})
            expect("answer by way of the proxy", (status, text_of(json.loads(answer))), (200, text_of(alone.post("/v1/chat/completions", **body))))
            expect("it was written", decoding.metric("quire:kv_transfers_total"), written + 1)
    expect("recomputed behind the proxy", losses(decoding), 0)


def check_refused_prefills(prefilling, decoding, alone):
    """Whoever waits for a prefill that is refused is told, and so is who comes twice for one."""
    params = prefill(prefilling, question_body("Hello."))
    for number, wrong in enumerate(({"temperature": -1}, {"model": "none"}, {"max_completion_tokens": 7}, {"messages": 5})):
        body = {**question_body(f"What is {number} + 20?"), "request_id": f"refused-{number}"}
        lost, start = losses(decoding), time.monotonic()

        def refused(body=body, wrong=wrong):
            try:
                return prefilling.post("/v1/chat/completions", **{**body, **LIMITS, "stream": False, "kv_transfer_params": KEEP, **wrong})
            except Exception as error:
                return error

        answers = at_once(decode=lambda body=body: decoding.post("/v1/chat/completions", **body, kv_transfer_params=without_tokens(params)),
                          prefill=refused)
        expect(f"a prefill with {wrong}", getattr(answers["prefill"], "code", None) in (400, 404), True)
        expect("the answer that waited for it", text_of(answers["decode"]), text_of(alone.post("/v1/chat/completions", **body)))
        expect("without waiting for long", (time.monotonic() - start < 15, losses(decoding) - lost), (True, 1))
    start, body = time.monotonic(), question_body("Hello.")
    for _ in range(2):
        expect("an answer for one object", text_of(decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)),
               text_of(alone.post("/v1/chat/completions", **body)))
    expect("both soon", time.monotonic() - start < 15, True)


def check_relay(quire, alone, ranks=1, block_size=16):
    """Quire prefills, vLLM takes it; vLLM keeps it, Quire decodes."""
    ports = {"prefill": free_port(), "decode": free_port()}
    with vllm_peer(push=True, ranks=ranks, block_size=block_size) as vllm, \
            Server(quire, MODEL, *flags("prefill", ports["prefill"], vllm.port, block_size=block_size)) as prefilling, \
            Server(quire, MODEL, *flags("decode", ports["decode"], vllm.port, block_size=block_size)) as decoding:
        for number, question in enumerate(questions()):
            body = question_body(question)
            name = {"request_id": f"of-both-{ranks}-{number}"}
            params = prefill(prefilling, body, **name)
            tokens = params["remote_num_tokens"]
            taken = vllm.ask("pull", params=params, tokens=tokens, name=f"chatcmpl-of-both-{ranks}-{number}")
            expect("Quire writes to vLLM", (taken["ok"], taken["wanted"]), (True, tokens))
            own = f"chatcmpl-vllm-{ranks}-{number}"
            offered = vllm.ask("offer", blocks=taken["blocks"], tokens=tokens, name=own)["params"]
            expect("vLLM's params", (offered["transfer_mode"], offered["remote_request_id"].startswith(own)), ("push", True))
            answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=offered)
            expect("answer by way of vLLM", text_of(answer), text_of(alone.post("/v1/chat/completions", **body)))
            eventually("vLLM may free what was written", lambda: offered["remote_request_id"] in vllm.ask("released")["requests"])
        expect("written by vLLM", decoding.metric("quire:kv_transfers_total"), len(questions()))
        expect("recomputed", losses(decoding), 0)
        if ranks == 1 and block_size == 16:
            check_vllm_waits(vllm, prefilling, alone)
            check_names(vllm, decoding, alone, offered)


def check_vllm_waits(vllm, prefilling, alone):
    """vLLM registers before the prefill has begun."""
    known = prefill(prefilling, question_body("Hello."))
    body = question_body("Name an animal that is long and lives in the sea, please.")
    tokens = alone.post("/v1/chat/completions", **body)["usage"]["prompt_tokens"]
    answers = at_once(decode=lambda: vllm.ask("pull", params=without_tokens(known), tokens=tokens, name="chatcmpl-waits"),
                      prefill=lambda: prefill(prefilling, body, request_id="waits"))
    expect("vLLM gets what it waited for", answers["decode"]["ok"], True)


def check_names(vllm, decoding, alone, offered):
    """Registered by X-Request-Id; and what points elsewhere is computed here."""
    body = question_body("What is 2 + 2?")
    expected = text_of(alone.post("/v1/chat/completions", **body))
    tokens = alone.post("/v1/chat/completions", **body)["usage"]["prompt_tokens"]
    body = {**body, "request_id": "by-its-id"}
    for change, reason in (({"remote_engine_id": "another"}, "expired"), ({"tp_size": 64}, "incompatible")):
        lost = losses(decoding)
        params = {**without_tokens(offered), **change}
        expect(f"answer with {change}", text_of(decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)), expected)
        expect(f"recomputed with {change}", losses(decoding), lost + 1)
    # Its beginning is another: what vLLM keeps is nothing, which its wire cannot show. It is written, and nobody reads it.
    written = decoding.metric("quire:kv_transfers_total")
    other = {**question_body("Think well. " + questions()[2]), "request_id": "by-its-id", "max_tokens": 1}
    tokens = alone.post("/v1/chat/completions", **other)["usage"]["prompt_tokens"]
    vllm.ask("offer", blocks=list(range(1, 1 - (-tokens // 16))), tokens=tokens, name="chatcmpl-by-its-id")
    decoding.post("/v1/chat/completions", **other, kv_transfer_params=without_tokens(offered))
    expect("written by its id", decoding.metric("quire:kv_transfers_total"), written + 1)


def check_hash(quire):
    """vLLM's side refuses a server whose hash is another: nothing is registered."""
    with vllm_peer(push=True, model="another") as vllm, \
            Server(quire, MODEL, *flags("prefill", free_port(), vllm.port)) as prefilling:
        params = prefill(prefilling, question_body("Hello."), request_id="hash")
        expect("vLLM with another model", vllm.ask("pull", params=params, tokens=params["remote_num_tokens"], name="chatcmpl-hash")["ok"],
               False)


def check_lost_peer(quire, alone):
    body = question_body(questions()[3])
    expected = text_of(alone.post("/v1/chat/completions", **body))
    tokens = alone.post("/v1/chat/completions", **body)["usage"]["prompt_tokens"]
    vllm = vllm_peer(push=True)
    with Server(quire, MODEL, *flags("decode", free_port(), vllm.port), "--kv-lease-seconds", "6") as decoding:
        with vllm:
            params = vllm.ask("offer", blocks=list(range(1, 1 - (-tokens // 16))), tokens=tokens)["params"]
            with concurrent.futures.ThreadPoolExecutor() as pool:  # of a prefill that never ends, at a server that goes meanwhile
                waiting = pool.submit(decoding.post, "/v1/chat/completions", **body, kv_transfer_params=without_tokens(params))
                time.sleep(1.5)
                vllm.process.kill()
                expect("answer of a server that went", text_of(waiting.result()), expected)
        expect("recomputed", losses(decoding), 1)
        expect("answer of a server that is gone", text_of(decoding.post("/v1/chat/completions", **question_body(questions()[2]),
                                                                        kv_transfer_params=params)),
               text_of(alone.post("/v1/chat/completions", **question_body(questions()[2]))))


def main():
    quire = sys.argv[1]
    if not LIBRARY:
        print("skipped: QUIRE_NIXL_LIBRARY does not name libnixl_capi.so")
        return 77
    os.environ.setdefault("UCX_NET_DEVICES", "lo")  # of all that this starts: it goes nowhere else
    ports = free_port(), free_port()
    with Server(quire, MODEL, *FLAGS) as alone:
        with Server(quire, MODEL, *flags("prefill", ports[0], ports[1])) as prefilling, \
                Server(quire, MODEL, *flags("decode", ports[1], ports[0])) as decoding:
            check_quire_to_quire(prefilling, decoding, alone, ports[0])
            check_proxy(quire, prefilling, decoding, alone)
            check_refused_fetches(prefilling, decoding, lambda body: prefill(prefilling, body))
            check_refused_prefills(prefilling, decoding, alone)
        check_states(quire)
        if PYTHON and WHEEL:
            check_relay(quire, alone)
            check_relay(quire, alone, ranks=2)
            check_relay(quire, alone, ranks=4)  # which share two heads
            check_relay(quire, alone, block_size=32)
            check_hash(quire)
            check_lost_peer(quire, alone)
        else:
            print("without vLLM: QUIRE_NIXL_PYTHON and QUIRE_VLLM_WHEEL do not say where it is")
    print(f"nixl push: ok, {num_expected()} compared")
    return 0


if __name__ == "__main__":
    sys.exit(main())
