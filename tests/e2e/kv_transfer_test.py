#!/usr/bin/env python3
"""One server prefills, another goes on: requests as llm-d's sidecar and vLLM's proxy send them.

    tests/e2e/kv_transfer_test.py build/release/app/quire
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid

from serve_process import Server, check_refused_fetches, expect, free_port, num_expected, question_body, text_of
from transfer_peers import LIMITS, questions

MODEL = "models/quire-tiny"
FLAGS = ("--device", "cpu", "--max-model-len", "1024", "--kv-cache-memory-bytes", "64MiB", "--deterministic", "--cpu-threads", "1")
EMPTY = {"remote_engine_id": None, "remote_block_ids": None, "remote_host": None, "remote_port": None}
KEEP = {"do_remote_decode": True, "do_remote_prefill": False, **EMPTY}


def streamed(server, body):
    text, last = "", {}
    for line in server.ask("/v1/chat/completions", {"model": "m", "stream": True, **body}).splitlines():
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line[6:])
        last = {**last, **{k: v for k, v in chunk.items() if k == "kv_transfer_params"}}
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
    return text, last.get("kv_transfer_params")


def refusal(server, body, path="/v1/chat/completions"):
    try:
        server.post(path, **body)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    return 200, ""


def broken_refusal(server, body):
    """The status of a body that ends early."""
    data = json.dumps(body).encode()[:-1]
    try:
        urllib.request.urlopen(urllib.request.Request(server.base + "/v1/chat/completions", data, {"Content-Type": "application/json"}), timeout=60)
    except urllib.error.HTTPError as error:
        return error.code
    return 200


def prefill(server, body):
    answer = server.post("/v1/chat/completions", **{**body, **LIMITS, "stream": False, "kv_transfer_params": KEEP})
    expect("finish reason", answer["choices"][0]["finish_reason"], "length")
    return answer["kv_transfer_params"]


def eventually(what, get, expected):
    """Of what a server reports in its next step, which comes at once."""
    for _ in range(100):
        if get() == expected:
            break
        time.sleep(0.05)
    expect(what, get(), expected)


def hand_over(prefilling, decoding, alone):
    for question in questions():
        body = question_body(question)
        expected = text_of(alone.post("/v1/chat/completions", **body))
        params = prefill(prefilling, body)
        expect("do_remote_prefill", (params["do_remote_prefill"], params["do_remote_decode"]), (True, False))
        answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)
        expect("answer", text_of(answer), expected)
        expect("what an answer hands on", answer["kv_transfer_params"], None)
        params = prefill(prefilling, body)
        expect("streamed answer", streamed(decoding, {**body, "kv_transfer_params": params})[0], expected)
    expect("fetched", decoding.metric("quire:kv_transfers_total"), 2.0 * len(questions()))
    expect("recomputed", decoding.metric("quire:kv_transfer_recomputed_total"), 0)
    received = decoding.metric("quire:kv_transfer_bytes_total")
    expect("received bytes", received > 0, True)
    eventually("sent bytes", lambda: prefilling.metric("quire:kv_transfer_bytes_total"), received)
    eventually("bytes of what was fetched", lambda: prefilling.metric("quire:kv_transfer_buffer_bytes"), 0)
    expect("external hits", decoding.metric("vllm:external_prefix_cache_hits_total") > 0, True)


def check_push(prefilling, decoding, alone, listen):
    """Both servers are asked at once, in either order."""
    host, port = (listen, 0) if listen.startswith("unix:") else ("127.0.0.1", int(listen.rsplit(":", 1)[1]))
    fetched, lost = decoding.metric("quire:kv_transfers_total"), decoding.metric("quire:kv_transfer_recomputed_total")
    for number, question in enumerate(questions()):
        body = question_body("Now this. " + question)
        name = {"transfer_mode": "push", "remote_request_id": str(uuid.uuid4())}
        keep = {**LIMITS, "stream": False, "kv_transfer_params": {"do_remote_decode": True, **name}}
        fetch = {"kv_transfer_params": {"do_remote_prefill": True, "remote_host": host, "remote_port": port, **name}}
        legs = [(prefilling, keep), (decoding, fetch)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = {}
            for server, more in legs if number % 2 else legs[::-1]:
                answers[server] = pool.submit(server.post, "/v1/chat/completions", **{**body, **more})
                time.sleep(0.05 * (number // 2))
        expect("pushed answer", text_of(answers[decoding].result()), text_of(alone.post("/v1/chat/completions", **body)))
        expect("what a push hands on", answers[prefilling].result()["kv_transfer_params"]["transfer_mode"], "push")
    expect("pushed", decoding.metric("quire:kv_transfers_total"), fetched + len(questions()))
    expect("recomputed pushes", decoding.metric("quire:kv_transfer_recomputed_total"), lost)
    eventually("bytes of what was pushed", lambda: prefilling.metric("quire:kv_transfer_buffer_bytes"), 0)
    code, text = refusal(decoding, {**question_body("Hm?"), "kv_transfer_params": {**fetch["kv_transfer_params"], "remote_request_id": "x"}})
    expect("a name that is short", (code, "at least 16 bytes" in text), (400, True))


def check_refused_push(prefilling, decoding, alone, listen):
    """Whoever waits for it is told at once, not when the lease ends, however long the refused request was."""
    host, port = (listen, 0) if listen.startswith("unix:") else ("127.0.0.1", int(listen.rsplit(":", 1)[1]))
    for more in ({}, {"messages": [{"role": "user", "content": "Hm? " * 100_000}]}, "broken"):
        name = {"transfer_mode": "push", "remote_request_id": str(uuid.uuid4())}
        body = question_body("And this? " + str(len(more)))
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answer = pool.submit(decoding.post, "/v1/chat/completions", **body,
                                 kv_transfer_params={"do_remote_prefill": True, "remote_host": host, "remote_port": port, **name})
            time.sleep(0.2)
            refused = {**body, **LIMITS, "temperature": -1, **(more if isinstance(more, dict) else {}),
                       "kv_transfer_params": {"do_remote_decode": True, **name}}
            expect("a refused push", refusal(prefilling, refused)[0] if isinstance(more, dict) else broken_refusal(prefilling, refused), 400)
            expect("answer without it", text_of(answer.result()), text_of(alone.post("/v1/chat/completions", **body)))
        expect(f"told before the lease ends ({str(more)[:20]})", time.monotonic() - begin < 25, True)


def check_completions(prefilling, decoding, alone):
    body = {"prompt": "The sum of 2 and 3 is", "temperature": 0, "max_tokens": 12}
    expected = alone.post("/v1/completions", **body)["choices"][0]["text"]
    params = prefilling.post("/v1/completions", **{**body, "max_tokens": 1, "kv_transfer_params": KEEP})["kv_transfer_params"]
    answer = decoding.post("/v1/completions", **body, kv_transfer_params=params)
    expect("completion", answer["choices"][0]["text"], expected)
    _, params = streamed(prefilling, {**question_body("Name a colour."), **LIMITS, "kv_transfer_params": KEEP})
    expect("params in the last chunk", params["do_remote_prefill"], True)


def check_messages(prefilling, decoding, alone):
    body = {"messages": [{"role": "user", "content": "Name a colour."}], "temperature": 0, "max_tokens": 12}
    expected = alone.post("/v1/messages", **body)["content"]
    fetched = decoding.metric("quire:kv_transfers_total")
    answer = prefilling.post("/v1/messages", **{**body, "max_tokens": 1, "kv_transfer_params": KEEP})
    answer = decoding.post("/v1/messages", **body, kv_transfer_params=answer["kv_transfer_params"])
    expect("message", (answer["content"], "kv_transfer_params" in answer), (expected, False))
    events = prefilling.ask("/v1/messages", {"model": "m", **body, "max_tokens": 1, "stream": True, "kv_transfer_params": KEEP})
    last = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ") and "message_delta" in line][-1]
    answer = decoding.post("/v1/messages", **body, kv_transfer_params=last["kv_transfer_params"])
    expect("message after a stream", answer["content"], expected)
    expect("fetched messages", decoding.metric("quire:kv_transfers_total"), fetched + 2)
    code, text = refusal(alone, {"input": "Hello", "kv_transfer_params": KEEP}, "/v1/responses")
    expect("responses", (code, "kv_transfer_params" in text), (400, True))


def check_refusals(prefilling, decoding, alone):
    body = question_body("What is 1 + 1?")
    code, text = refusal(prefilling, {**body, "kv_transfer_params": KEEP})
    expect("max_tokens beyond 1", (code, "max_tokens 1" in text), (400, True))
    for server, role in ((alone, "none"), (decoding, "decode")):
        code, text = refusal(server, {**body, **LIMITS, "kv_transfer_params": KEEP})
        expect(f"keeping under role {role}", (code, "--kv-role prefill" in text), (400, True))
    params = prefill(prefilling, body)
    code, text = refusal(prefilling, {**body, "kv_transfer_params": params})
    expect("fetching under role prefill", (code, "--kv-role decode" in text), (400, True))
    code, text = refusal(decoding, {**body, "kv_transfer_params": {**params, "remote_host": "10.1.2.3"}})
    expect("a host that is no peer", (code, "--kv-peer" in text), (400, True))
    code, text = refusal(decoding, {**body, "n": 2, "kv_transfer_params": params})
    expect("two choices", (code, "n 1" in text), (400, True))
    expected = text_of(alone.post("/v1/chat/completions", **body))
    for name, wrong in (("engine", {"remote_engine_id": "another"}), ("key", {"remote_request_id": "another"}),
                        ("generation", {"remote_registration_generation": 10**6}),
                        ("prompt", {"remote_num_tokens": params["remote_num_tokens"] + 1})):
        answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params={**params, **wrong})
        expect(f"answer in spite of a wrong {name}", text_of(answer), expected)
    expect("recomputed", decoding.metric("quire:kv_transfer_recomputed_total"), 4)
    other = prefill(prefilling, question_body("What is 2 + 1?"))
    if other["remote_num_tokens"] == params["remote_num_tokens"]:
        answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=other)
        expect("answer in spite of another prompt", text_of(answer), expected)
        expect("recomputed", decoding.metric("quire:kv_transfer_recomputed_total"), 5)


def cpu_seconds(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check_lease(quire, alone):
    """Nobody fetches in time; nothing else happens on the server."""
    listen = f"127.0.0.1:{free_port()}"
    body = question_body("What is 5 + 6?")
    with Server(quire, MODEL, *FLAGS, "--kv-role", "prefill", "--kv-listen", listen, "--kv-lease-seconds", "1") as prefilling, \
         Server(quire, MODEL, *FLAGS, "--kv-role", "decode", "--kv-peer", listen, "--kv-lease-seconds", "1") as decoding:
        params = prefill(prefilling, body)
        expect("kept bytes", prefilling.metric("quire:kv_transfer_buffer_bytes") > 0, True)
        eventually("expired", lambda: prefilling.metric("vllm:nixl_num_kv_expired_reqs_total"), 1)
        expect("kept bytes after the lease", prefilling.metric("quire:kv_transfer_buffer_bytes"), 0)
        answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)
        expect("answer after the lease", text_of(answer), text_of(alone.post("/v1/chat/completions", **body)))
        expect("recomputed", decoding.metric("quire:kv_transfer_recomputed_total"), 1)


def check_full(quire, alone):
    """A full server's 503 leaves what is kept to whoever is asked next, here the same one."""
    listen = f"127.0.0.1:{free_port()}"
    body = question_body("What is 8 + 5?")
    with Server(quire, MODEL, *FLAGS, "--kv-role", "prefill", "--kv-listen", listen) as prefilling, \
         Server(quire, MODEL, *FLAGS, "--kv-role", "decode", "--kv-peer", listen, "--max-num-seqs", "1",
                "--max-num-queued-reqs", "0") as decoding:
        params = prefill(prefilling, body)
        long = json.dumps({"model": "m", "prompt": "1", "max_tokens": 900, "ignore_eos": True, "stream": True}).encode()
        request = urllib.request.Request(decoding.base + "/v1/completions", long, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as running:
            running.readline()
            expect("a full server", refusal(decoding, {**body, "kv_transfer_params": params})[0], 503)
        eventually("the place is free", lambda: decoding.metric("vllm:num_requests_running"), 0)
        expect("kept all the same", prefilling.metric("quire:kv_transfer_buffer_bytes") > 0, True)
        answer = decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)
        expect("answer after a 503", text_of(answer), text_of(alone.post("/v1/chat/completions", **body)))
        expect("recomputed after a 503", decoding.metric("quire:kv_transfer_recomputed_total"), 0)


def check_loss(quire, listen, prefilling, decoding, alone):
    body = question_body("What is 30 + 12?")
    expected = text_of(alone.post("/v1/chat/completions", **body))
    params = prefill(prefilling, body)
    before = [cpu_seconds(server) for server in (prefilling, decoding)]
    time.sleep(2)
    idle = [round(cpu_seconds(server) - b, 2) for server, b in zip((prefilling, decoding), before)]
    expect("idle processor time", [seconds <= 0.05 for seconds in idle], [True, True])
    prefilling.process.kill()
    prefilling.process.wait()
    lost = decoding.metric("quire:kv_transfer_recomputed_total")
    expect("answer without the peer", text_of(decoding.post("/v1/chat/completions", **body, kv_transfer_params=params)), expected)
    expect("recomputed", decoding.metric("quire:kv_transfer_recomputed_total"), lost + 1)
    with Server(quire, MODEL, *FLAGS, "--kv-role", "decode", "--kv-peer", listen,
                "--kv-load-failure-policy", "fail") as strict:
        code, text = refusal(strict, {**body, "kv_transfer_params": params})
        expect("policy fail", (code, "KV cache could not be loaded" in text), (500, True))
        expect("blocks", strict.metric("quire:kv_blocks_free"), strict.metric("quire:kv_blocks"))


def check_flags(quire):
    for flags, word in ((("--kv-role", "prefill"), "--kv-listen"), (("--kv-role", "decode"), "--kv-peer"),
                        (("--kv-listen", "127.0.0.1:0"), "--kv-role"),
                        *((("--kv-role", "prefill", "--kv-listen", f"{any}:0"), "is not an address")
                          for any in ("0.0.0.0", "0", "0x0", "[::]", "[::0]", "[::ffff:0.0.0.0]")),
                        (("--kv-role", "decode", "--kv-peer", "h", "--kv-plane", "nixl", "--nixl-library", "/none"), "--nixl-library"),
                        (("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_producer", '
                          '"kv_connector_extra_config": {"kv_listen": "127.0.0.1:0"}}', "--nixl-library", "/none"), "--nixl-library"),
                        (("--kv-transfer-config", '{"kv_connector": "NixlPushConnector", "kv_role": "kv_producer", '
                          '"kv_connector_extra_config": {"kv_listen": "127.0.0.1:0"}}'), "--kv-peer"),
                        (("--kv-role", "prefill", "--kv-listen", "127.0.0.1:0", "--nixl-transfer-mode", "push"), "--nixl-transfer-mode"),
                        (("--kv-transfer-config", '{"kv_connector": "QuireConnector", "kv_role": "kv_producer", "kv_rank": 0}'),
                         "kv_rank"),
                        (("--kv-role", "prefill", "--kv-listen", "127.0.0.1:0", "--kv-transfer-buffer-bytes", "100TiB"),
                         "--kv-transfer-buffer-bytes"),
                        (("--kv-lease-seconds", "5"), "--kv-role")):
        run = subprocess.run([quire, "serve", MODEL, *flags], capture_output=True, text=True, timeout=60)
        expect(f"{flags} refused", (run.returncode != 0, word in run.stdout + run.stderr), (True, True))


def main():
    quire = sys.argv[1]
    check_flags(quire)
    with Server(quire, MODEL, *FLAGS) as alone:
        with tempfile.TemporaryDirectory() as folder:
            for listen in (f"127.0.0.1:{free_port()}", f"unix:{folder}/kv.sock"):
                config = json.dumps({"kv_connector": "QuireConnector", "kv_role": "kv_consumer",
                                     "kv_connector_extra_config": {"kv_peers": [listen]}})
                with Server(quire, MODEL, *FLAGS, "--kv-role", "prefill", "--kv-listen", listen) as prefilling, \
                     Server(quire, MODEL, *FLAGS, "--block-size", "32", "--kv-transfer-config", config) as decoding:
                    hand_over(prefilling, decoding, alone)
                    check_refused_fetches(prefilling, decoding, lambda body: prefill(prefilling, body))
                    check_push(prefilling, decoding, alone, listen)
                    check_completions(prefilling, decoding, alone)
                    check_messages(prefilling, decoding, alone)
                    check_refusals(prefilling, decoding, alone)
                    check_refused_push(prefilling, decoding, alone, listen)
                    expect("blocks of the one", prefilling.metric("quire:kv_blocks_free"), prefilling.metric("quire:kv_blocks"))
                    expect("blocks of the other", decoding.metric("quire:kv_blocks_free"), decoding.metric("quire:kv_blocks"))
                    check_loss(quire, listen, prefilling, decoding, alone)
        check_lease(quire, alone)
        check_full(quire, alone)
    print(f"{num_expected()} checks passed")


main()
