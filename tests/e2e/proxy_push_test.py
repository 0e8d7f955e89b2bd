#!/usr/bin/env python3
"""`quire proxy --transfer-mode push`: both servers at once, whoever fails, and pushes that servers refuse or send from another engine.

    tests/e2e/proxy_push_test.py build/release/app/quire
"""
import concurrent.futures
import json
import socket
import subprocess
import threading
import time
import uuid

from proxy_test import CHAT, FLAGS, MODEL, PARAMS, Peer, Proxy, dead_address
from serve_process import Server, eventually, expect, free_port, num_expected, question_body, text_of

KEPT = {**PARAMS, "remote_block_ids": [], "remote_num_tokens": 9, "remote_host": "10.0.0.7", "remote_port": 5600}
ASK = ("/v1/chat/completions", CHAT)
LIMITS = {"max_tokens": 1, "stream": False}


def sent(peer):
    return [body.get("kv_transfer_params") for _, body, _ in peer.take()]


def check_both_at_once(quire):
    asked = threading.Event()

    def keep(body):
        if body["kv_transfer_params"].get("transfer_mode") == "push":
            return (200, {"kv_transfer_params": KEPT}) if asked.wait(5) else (400, {"error": "the other was not asked"})
        return 200, {"kv_transfer_params": KEPT}

    def go_on(body):
        asked.set()
        return 200, ["data: {\"n\":1}\n\n", "data: [DONE]\n\n"]

    prefill, decode = Peer(keep), Peer(go_on)
    with Proxy(quire, [prefill], [decode], "--transfer-mode", "push") as proxy:
        expect("the first is pulled", proxy.send(*ASK)[0], 200)
        expect("by what was kept", (sent(prefill)[0].get("transfer_mode"), sent(decode)), (None, [KEPT]))
        names = set()
        for _ in range(2):
            asked.clear()
            expect("a stream", proxy.send("/v1/chat/completions", {**CHAT, "stream": True}),
                   (200, "data: {\"n\":1}\n\ndata: [DONE]\n\n"))
            (_, body, _), = prefill.take()
            name = body["kv_transfer_params"]["remote_request_id"]
            names.add(name)
            expect("the prefill's part", ({k: body.get(k) for k in LIMITS}, body["kv_transfer_params"]["do_remote_decode"], len(name) >= 32),
                   (LIMITS, True, True))
            expect("the other's part", sent(decode), [{"do_remote_decode": False, "do_remote_prefill": True, "transfer_mode": "push",
                                                       "remote_request_id": name, "remote_host": "10.0.0.7", "remote_port": 5600}])
        expect("each has a name of its own", len(names), 2)
        proxy.send("/v1/completions", {"prompt": ["a", "b"]})
        expect("what is not shared", (prefill.take(), sent(decode)), ([], [None]))


def waits_for_pushed(cut):
    """A server that answers what is pushed to it only when that was given up."""
    def answer(body):
        if (body.get("kv_transfer_params") or {}).get("transfer_mode") == "push":
            cut.wait(2)
        return 200, {"ok": True}
    return answer


def keep_first():
    """A server whose later answers are no JSON objects."""
    answers = [{"kv_transfer_params": KEPT}]
    return lambda body: (200, answers.pop() if answers else "no object")


def check_failures(quire):
    state = {}
    prefills = [Peer(lambda body, i=i: state.get(i, (200, {"kv_transfer_params": KEPT}))) for i in range(2)]
    decode = Peer(waits_for_pushed(threading.Event()))
    with Proxy(quire, prefills, [decode], "--transfer-mode", "push") as proxy:
        for _ in range(2):
            proxy.send(*ASK)
        decode.take(), [one.take() for one in prefills]
        state[0] = 503, {"error": "busy"}
        for _ in range(2):
            expect("an answer beside one that is full", proxy.send(*ASK), (200, '{"ok": true}'))
        tried = sent(decode)
        # Two that are answered, and one whose prefill was refused, unless that was known before the decode was asked.
        expect("every prefill that is refused is tried elsewhere, by another name",
               (len(tried) in (2, 3), len({one["remote_request_id"] for one in tried})), (True, len(tried)))
        state[1] = state[0]
        expect("an answer without any", proxy.send(*ASK), (200, '{"ok": true}'))
        expect("computed where it is answered", sent(decode)[-1], None)
        state[0] = state[1] = 400, {"error": "no"}
        expect("a refusal", proxy.send(*ASK), (400, '{"error": "no"}'))
        decode.take()
    waited = Peer(waits_for_pushed(threading.Event()))
    with Proxy(quire, [Peer(keep_first())], [waited], "--transfer-mode", "push") as proxy:
        proxy.send(*ASK)
        waited.take()
        expect("an answer where whoever prefills answers nonsense", proxy.send(*ASK), (200, '{"ok": true}'))
        expect("whoever waited for it is told", [one and one.get("transfer_mode") for one in sent(waited)], ["push", None])
    foreign = Peer(lambda body: (200, {"kv_transfer_params": PARAMS}))
    with Proxy(quire, [foreign], [decode], "--transfer-mode", "push") as proxy:
        for _ in range(2):
            expect("an answer", proxy.send(*ASK)[0], 200)
        expect("what others keep is pulled", [one.get("transfer_mode") for one in sent(foreign)], [None, None])
    with Proxy(quire, [dead_address()], [decode], "--transfer-mode", "push") as proxy:
        expect("without whoever prefills", proxy.send(*ASK), (200, '{"ok": true}'))


def check_death(quire):
    """The prefill is lost under way, and a client leaves."""
    began, held = threading.Event(), threading.Event()

    def keep(body):
        if body["kv_transfer_params"].get("transfer_mode") == "push":
            began.set()
            held.wait(10)
        return 200, {"kv_transfer_params": KEPT}

    prefill = Peer(keep)

    def wait_for_pushed(body):
        if (body.get("kv_transfer_params") or {}).get("transfer_mode") == "push":
            held.wait(10)
        return 200, {"ok": True}

    decode = Peer(wait_for_pushed)
    with Proxy(quire, [prefill], [decode], "--transfer-mode", "push") as proxy:
        proxy.send(*ASK)
        body = json.dumps(CHAT).encode()
        with socket.create_connection(("127.0.0.1", int(proxy.base.rsplit(":", 1)[1]))) as raw:
            raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            expect("both are under way", began.wait(5), True)
        began.clear()
        start = time.monotonic()
        expect("the proxy answers others", proxy.send("/v1/embeddings", {"input": "x"})[0], 200)
        expect("who left holds nobody up", time.monotonic() - start < 5, True)
        held.set()


def check_decode_death(quire):
    """A server that decodes is lost when it may have taken what was pushed, which comes once."""
    def die(body):
        if (body.get("kv_transfer_params") or {}).get("transfer_mode") == "push":
            raise ConnectionResetError
        return 200, {"ok": True}

    prefill, decodes = Peer(lambda body: (200, {"kv_transfer_params": KEPT})), [Peer(die), Peer(die)]
    for one in decodes:
        one.server.handle_error = lambda *_: None
    with Proxy(quire, [prefill], decodes, "--transfer-mode", "push") as proxy:
        proxy.send(*ASK)
        [one.take() for one in decodes]
        expect("an answer of the other", proxy.send(*ASK), (200, '{"ok": true}'))
        asked = [params for one in decodes for params in sent(one)]
        expect("one is pushed to, one does it all", sorted(params is None for params in asked), [False, True])


def check_flags(quire):
    run = subprocess.run([quire, "proxy", "--decode", "http://127.0.0.1:1", "--transfer-mode", "push"], capture_output=True, text=True, timeout=60)
    expect("a push without --prefill", (run.returncode != 0, "--prefill" in run.stdout + run.stderr), (True, True))


def push_legs(prefilling, decoding, listen, body, prefill_body=None):
    name = {"transfer_mode": "push", "remote_request_id": str(uuid.uuid4())}
    port = int(listen.rsplit(":", 1)[1])
    keep = {**(prefill_body or {**body, **LIMITS}), "kv_transfer_params": {"do_remote_decode": True, **name}}
    fetch = {**body, "kv_transfer_params": {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": port, **name}}

    def prefill():
        try:
            return prefilling.post("/v1/chat/completions", **keep)
        except Exception as error:
            return error

    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(decoding.post, "/v1/chat/completions", **fetch)
        time.sleep(0.3)
        start = time.monotonic()
        kept = prefill()
        return kept, answer.result(timeout=60), time.monotonic() - start


def check_servers(quire, alone):
    story = " ".join(f"{i} + {i + 1} = {2 * i + 1}." for i in range(40))
    questions = [f"{story} What is {i} + {i}?" for i in range(8)]
    listen = f"127.0.0.1:{free_port()}"
    peers = [listen, f"127.0.0.1:{int(listen.rsplit(':', 1)[1]) + 1}"]
    with Server(quire, MODEL, *FLAGS, "--kv-role", "prefill", "--kv-listen", listen, "--data-parallel-size", "2") as prefilling, \
         Server(quire, MODEL, *FLAGS, "--kv-role", "decode", *(word for peer in peers for word in ("--kv-peer", peer))) as decoding:
        expected = [text_of(alone.post("/v1/chat/completions", **question_body(q))) for q in questions]
        with Proxy(quire, [prefilling], [decoding], "--transfer-mode", "push") as proxy, concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda q: proxy.send("/v1/chat/completions", question_body(q)), questions * 2))
            expect("answers", [text_of(json.loads(text)) for _, text in answers], expected * 2)
        expect("recomputed", decoding.metric("quire:kv_transfer_recomputed_total"), 0)
        expect("more than one engine has sent", prefilling.metric("quire:kv_transfers_total") > 0, True)
        for engine in range(2):  # without saying which of them is asked
            question = f"Engine {engine}: {questions[0]}"
            kept, answer, _ = push_legs(prefilling, decoding, peers[engine], question_body(question))
            expect("what is told", kept["kv_transfer_params"]["transfer_mode"], "push")
            expect("answer", text_of(answer), text_of(alone.post("/v1/chat/completions", **question_body(question))))
        expect("recomputed after others", decoding.metric("quire:kv_transfer_recomputed_total"), 0)
        body = question_body("What is 20 + 1?")
        for count, wrong in enumerate(({"temperature": -1}, {"model": "none"}, {"max_tokens": 7}, {"messages": 5}), 1):
            kept, answer, seconds = push_legs(prefilling, decoding, listen, body, {**body, **LIMITS, **wrong})
            expect(f"a prefill with {wrong}", getattr(kept, "code", None) in (400, 404), True)
            expect("its answer, without waiting for the lease", (text_of(answer), seconds < 15),
                   (text_of(alone.post("/v1/chat/completions", **body)), True))
            expect("recomputed once each", decoding.metric("quire:kv_transfer_recomputed_total"), count)
        eventually("all is given back", lambda: prefilling.metric("quire:kv_transfer_buffer_bytes") == 0)


def main(quire):
    check_flags(quire)
    check_both_at_once(quire)
    check_failures(quire)
    check_death(quire)
    check_decode_death(quire)
    with Server(quire, MODEL, *FLAGS, "--deterministic") as alone:
        check_servers(quire, alone)
    print(f"{num_expected()} checks passed")


if __name__ == "__main__":
    import sys
    main(sys.argv[1])
