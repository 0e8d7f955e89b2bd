#!/usr/bin/env python3
"""Prefill and decode over Mooncake: between two Quire servers, and with vLLM's own MooncakeConnector between them.

    QUIRE_MOONCAKE_PYTHON=…/bin/python QUIRE_VLLM_WHEEL=… tests/e2e/mooncake_test.py build/release/app/quire

vLLM has a Quire server write what that one has prefilled into its blocks, checks nothing and writes it on into those of a Quire server
that decodes. The part with vLLM is left out where its wheel or Mooncake is missing.
"""
import concurrent.futures
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

from serve_process import Server, check, check_refused_fetches, eventually, expect, free_port, num_expected, question_body, text_of
from transfer_peers import FLAGS, LIMITS, VllmPeer, losses, questions

MODEL = "models/quire-tiny"
SHAPE = {"layers": 4, "kv_heads": 2, "head_size": 64, "dtype": "bfloat16", "block_size": 16, "blocks": 512, "ranks": 1}
PYTHON, WHEEL = os.environ.get("QUIRE_MOONCAKE_PYTHON", ""), os.environ.get("QUIRE_VLLM_WHEEL", "")
PLANE = ("--kv-plane", "mooncake")


def vllm_peer(**shape):
    return VllmPeer([PYTHON, "tests/e2e/vllm_mooncake.py"], {**SHAPE, **shape})


def new_transfer():
    return f"xfer-{uuid.uuid4()}"


def engine_of(port):
    """What vLLM's proxy asks of a bootstrap server before it serves."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/query", timeout=10) as reply:
        (rank, entry), = json.loads(reply.read()).items()
    expect("data parallel rank", rank, "0")
    expect("ranks", list(entry["worker_addr"]), ["0"])
    return entry["engine_id"]


def keep_params(transfer):
    return {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer}


def fetch_params(transfer, port, engine):
    return {"do_remote_decode": False, "do_remote_prefill": True, "remote_bootstrap_addr": f"http://127.0.0.1:{port}",
            "remote_engine_id": engine, "transfer_id": transfer}


def prefill(server, body, transfer):
    answer = server.post("/v1/chat/completions", **{**body, **LIMITS, "stream": False, "kv_transfer_params": keep_params(transfer)})
    expect("finish reason", answer["choices"][0]["finish_reason"], "length")
    return answer


def prompt_tokens(server, body):
    return server.post("/v1/chat/completions", **body)["usage"]["prompt_tokens"]


def check_quire_to_quire(prefilling, decoding, alone, port, has_states=False):
    """As vLLM's proxy asks: both at once, with a name that it made."""
    engine = engine_of(port)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for question in questions():
            body, transfer = question_body(question), new_transfer()
            begun = threads.submit(prefill, prefilling, body, transfer)
            answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=fetch_params(transfer, port, engine))
            expect("params of the prefill", begun.result()["kv_transfer_params"], {
                **fetch_params(transfer, port, engine)})
            expect("answer over Mooncake", text_of(answer), text_of(alone.post("/v1/chat/completions", **body)))
    expect("fetched", decoding.metric("quire:kv_transfers_total"), len(questions()))
    expect("sent", prefilling.metric("quire:kv_transfers_total"), len(questions()))
    expect("recomputed", losses(decoding), 0)
    if not has_states:
        check("the second question found the first one's story", decoding.metric("vllm:prefix_cache_hits_total") > 0)
    eventually("all of it was released", lambda: prefilling.metric("quire:kv_transfer_buffer_bytes") == 0)


def check_states(quire):
    """A hybrid model: its recurrent states are written beside keys and values."""
    model, port = "models/quire-tiny-hybrid", free_port()
    with Server(quire, model, *FLAGS) as alone, \
            Server(quire, model, *FLAGS, *PLANE, "--kv-role", "prefill", "--kv-listen", f"127.0.0.1:{port}") as prefilling, \
            Server(quire, model, *FLAGS, *PLANE, "--kv-role", "decode", "--kv-listen", f"127.0.0.1:{free_port()}",
                   "--kv-peer", f"127.0.0.1:{port}", "--kv-peer-block-size", "32") as decoding:
        check_quire_to_quire(prefilling, decoding, alone, port, has_states=True)


def check_refused(decoding, port):
    good = fetch_params(new_transfer(), port, "engine")
    for change in ({"remote_bootstrap_addr": "http://127.0.0.2:8998"}, {"remote_bootstrap_addr": "http://127.0.0.1:1"},
                   {"remote_bootstrap_addr": "127.0.0.1:8998"}, {"remote_bootstrap_addr": None}, {"transfer_id": "short"},
                   {"transfer_id": None}, {"remote_engine_id": ""}, {"do_remote_decode": True}):
        try:
            decoding.post("/v1/chat/completions", **question_body("Hello"), kv_transfer_params={**good, **change})
            expect(f"status with {change}", 200, 400)
        except urllib.error.HTTPError as error:
            expect(f"status with {change}", error.code, 400)


def check_lost(decoding, prefilling, alone, port):
    """What does not exist, is of another prompt, or was refused: the prompt is computed."""
    engine = engine_of(port)
    body = question_body("What is 2 + 2? Think.")
    other, transfer = question_body("Something else."), new_transfer()
    prefill(prefilling, other, transfer)
    failing = new_transfer()
    try:
        prefilling.post("/v1/chat/completions", **{**body, "max_tokens": 7, "kv_transfer_params": keep_params(failing)})
        expect("status of a prefill of 7 tokens", 200, 400)
    except urllib.error.HTTPError as error:
        expect("status of a prefill of 7 tokens", error.code, 400)
    for params in (fetch_params(transfer, port, engine), fetch_params(failing, port, engine), fetch_params(transfer, port, "another")):
        lost = losses(decoding)
        answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)
        expect("answer after a loss", text_of(answer), text_of(alone.post("/v1/chat/completions", **body)))
        expect("recomputed", losses(decoding), lost + 1)


def hello(port):
    """The handshake of Mooncake's engine, as anybody may have it."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        question = b"\x01{}"
        line.sendall(struct.pack("<Q", len(question)) + question)
        size = struct.unpack("<Q", line.recv(8, socket.MSG_WAITALL))[0]
        return json.loads(line.recv(size, socket.MSG_WAITALL)[1:])


def check_strangers(decode_port):
    """Nothing is read, and nothing is written where no fetch waits."""
    segment = hello(decode_port)
    expect("protocol", (segment["protocol"], segment["tcp_proto_version"], len(segment["buffers"])), ("tcp", 2, 4))
    base = segment["buffers"][0]["addr"]
    for address, size, operation in ((base, 4096, 0x80), (base, 4096, 0x81), (0, 1 << 62, 0x81), (base + 4096, 16, 0x81),
                                     ((1 << 64) - 8, 16, 0x81), (base, 0, 0x81), (base, 64, 0x85), (base, 4096, 1), (base, 4096, 0)):
        with socket.create_connection(("127.0.0.1", segment["tcp_data_port"])) as line:
            line.sendall(struct.pack("<QQB7x", size, address, operation))
            answer = line.recv(64)
            expected = struct.pack("<Q", 0x4D43545600000001) if operation in (0x80, 0x81) else b""
            expect(f"answer to {operation:#x} of {size} bytes at {address:#x}", answer, expected)
    for junk in (b"\0" * 8, b"\xff" * 64, struct.pack("<Q", 3) + b"\x01{", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", decode_port)) as line:
            line.sendall(junk)
            with contextlib.suppress(OSError):  # it may have hung up by then
                line.shutdown(socket.SHUT_WR)
                line.recv(4096)


def check_relay(quire, prefilling, alone, port):
    engine = engine_of(port)
    with vllm_peer() as vllm, Server(quire, MODEL, *FLAGS, *PLANE, "--kv-role", "decode", "--kv-peer", f"127.0.0.1:{vllm.port}",
                                "--kv-listen", "127.0.0.1:0") as decoding:
        for question in questions():
            body, transfer = question_body(question), new_transfer()
            tokens = prompt_tokens(alone, body)
            prefill(prefilling, body, transfer)
            pulled = vllm.ask("pull", params=fetch_params(transfer, port, engine), tokens=tokens)
            expect("Quire writes to vLLM", (pulled["ok"], pulled["wanted"]), (True, tokens))
            offered = vllm.ask("offer", transfer=transfer, blocks=pulled["blocks"], tokens=tokens)["params"]
            answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=offered)
            expect("answer by way of vLLM", text_of(answer), text_of(alone.post("/v1/chat/completions", **body)))
        expect("fetched from vLLM", decoding.metric("quire:kv_transfers_total"), len(questions()))
        expect("recomputed", losses(decoding), 0)
        expect("vLLM may free what was written", len(vllm.ask("released")["requests"]), len(questions()))
        eventually("Quire has", lambda: prefilling.metric("quire:kv_transfer_buffer_bytes") == 0)
        check_lost_peer(vllm, decoding, alone)


def check_lost_peer(vllm, decoding, alone):
    """A vLLM server that is killed while its prefill runs."""
    body, transfer = question_body("What is 5 + 6? Say it."), new_transfer()
    params = vllm.ask("begin", transfer=transfer, tokens=prompt_tokens(alone, body))["params"]
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        answer = threads.submit(decoding.post, "/v1/chat/completions", **body, kv_transfer_params=params)
        time.sleep(1)
        check("it waits", not answer.done())
        vllm.process.kill()
        expect("answer of a lost vLLM server", text_of(answer.result()), text_of(alone.post("/v1/chat/completions", **body)))
    expect("recomputed", losses(decoding), 1)


def check_flags(quire):
    connector = '{"kv_connector": "MooncakeConnector", "kv_role": "kv_consumer", "kv_connector_extra_config": {%s}}'
    for flags, word in ((("--kv-role", "prefill", *PLANE), "--kv-listen"),
                        (("--kv-role", "decode", *PLANE, "--kv-peer", "h"), "--kv-listen"),
                        (("--kv-role", "decode", *PLANE, "--kv-peer", "unix:/a", "--kv-listen", "127.0.0.1:0"), "--kv-peer"),
                        (("--kv-role", "decode", *PLANE, "--kv-peer", "h", "--kv-listen", "unix:/a"), "--kv-listen"),
                        (("--kv-role", "decode", *PLANE, "--kv-peer", "h", "--kv-listen", "127.0.0.1:0", "--kv-peer-block-size", "-1"),
                         "--kv-peer-block-size"),
                        (("--kv-role", "decode", *PLANE, "--kv-peer", "h", "--kv-listen", "127.0.0.1:0", "--kv-peer-block-size", "0"),
                         "--kv-peer-block-size"),
                        (("--kv-role", "prefill", "--kv-listen", "127.0.0.1:0", "--kv-peer-block-size", "16"), "--kv-peer-block-size"),
                        (("--kv-role", "prefill", *PLANE, "--kv-listen", "127.0.0.1:0", "--kv-compare-hash", "false"),
                         "--kv-compare-hash"),
                        (("--kv-transfer-config", connector % '"kv_listen": "127.0.0.1:0", "kv_peers": ["h"]'), "mooncake_protocol"),
                        (("--kv-transfer-config", connector % '"mooncake_protocol": "rdma"'), "tcp"),
                        (("--kv-transfer-config", connector % '"mooncake_protocol": "tcp", "num_workers": 3'), "num_workers")):
        run = subprocess.run([quire, "serve", MODEL, *flags], capture_output=True, text=True, timeout=60)
        expect(f"{flags} refused", (run.returncode != 0, word in run.stdout + run.stderr), (True, True))


def main():
    quire = sys.argv[1]
    check_flags(quire)
    port, decode_port = free_port(), free_port()
    with Server(quire, MODEL, *FLAGS) as alone, \
            Server(quire, MODEL, *FLAGS, *PLANE, "--kv-role", "prefill", "--kv-listen", f"127.0.0.1:{port}") as prefilling:
        config = {"kv_connector": "MooncakeConnector", "kv_role": "kv_consumer", "kv_load_failure_policy": "recompute",
                  "kv_connector_extra_config": {"mooncake_protocol": "tcp", "kv_listen": f"127.0.0.1:{decode_port}",
                                                "kv_peers": [f"127.0.0.1:{port}"], "peer_block_size": 32}}
        with Server(quire, MODEL, *FLAGS, "--kv-transfer-config", json.dumps(config)) as decoding:
            check_quire_to_quire(prefilling, decoding, alone, port)
            check_refused_fetches(prefilling, decoding, lambda body: prefill(prefilling, body, new_transfer())["kv_transfer_params"])
            check_strangers(decode_port)
            check_refused(decoding, port)
            check_lost(decoding, prefilling, alone, port)
        if PYTHON and WHEEL:
            check_relay(quire, prefilling, alone, port)
        else:
            print("without vLLM: QUIRE_MOONCAKE_PYTHON and QUIRE_VLLM_WHEEL do not say where it is")
    check_states(quire)
    print(f"mooncake: ok, {num_expected()} compared")


if __name__ == "__main__":
    main()
