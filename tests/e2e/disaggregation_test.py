#!/usr/bin/env python3
"""`quire proxy` before servers that prefill and servers that decode: one server's answers, whoever fails.

    tests/e2e/disaggregation_test.py build/release/app/quire
"""
import concurrent.futures
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

from serve_process import Server, expect, free_port, num_expected, question_body, text_of

MODEL = "models/quire-tiny"
FLAGS = ("--device", "cpu", "--max-model-len", "1024", "--kv-cache-memory-bytes", "64MiB", "--deterministic", "--cpu-threads", "1")


class Proxy:
    def __init__(self, quire, *flags):
        self.process = subprocess.Popen([quire, "proxy", "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.base = next((f.group() for line in self.process.stdout if (f := re.search(r"http://127.0.0.1:\d+", line))), None)
        if self.base is None:
            sys.exit("FAILED: the proxy did not start")

    ask, post = Server.ask, Server.post

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        expect("the proxy's end", self.process.wait(timeout=30), 0)


def streamed(server, body):
    text = ""
    lines = server.ask("/v1/chat/completions", {"model": "m", "stream": True, **body}).splitlines()
    for line in lines:
        if line.startswith("data: {"):
            text += "".join(choice["delta"].get("content") or "" for choice in json.loads(line[6:])["choices"])
    expect("the stream's end", "data: [DONE]" in lines, True)
    return text


def status_of(server, path, body=None):
    try:
        server.ask(path, body)
        return 200
    except urllib.error.HTTPError as error:
        return error.code


def main():
    quire = sys.argv[1]
    questions = [f"What is {a} + {b}?" for a, b in ((12, 7), (3, 4), (20, 21), (8, 9), (40, 2), (1, 1))]
    listen = f"127.0.0.1:{free_port()}"
    with Server(quire, MODEL, *FLAGS, "--kv-role", "prefill", "--kv-listen", listen) as prefilling, \
         Server(quire, MODEL, *FLAGS, "--kv-role", "decode", "--kv-peer", listen) as one, \
         Server(quire, MODEL, *FLAGS, "--kv-role", "decode", "--kv-peer", listen) as two:
        expected = [text_of(one.post("/v1/chat/completions", **question_body(q))) for q in questions]
        dead = f"http://127.0.0.1:{free_port()}"
        with Proxy(quire, "--prefill", prefilling.base, "--prefill", dead, "--decode", one.base, "--decode", two.base, "--decode", dead) as proxy:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                expect("answers", list(pool.map(lambda q: text_of(proxy.post("/v1/chat/completions", **question_body(q))), questions)), expected)
                expect("streams", list(pool.map(lambda q: streamed(proxy, question_body(q)), questions)), expected)
            fetched = [server.metric("quire:kv_transfers_total") for server in (one, two)]
            expect("both decode", all(count > 0 for count in fetched), True)
            expect("all were shared", sum(fetched), 2.0 * len(questions))
            expect("two choices", len(proxy.post("/v1/chat/completions", **question_body("Name a colour.", n=2))["choices"]), 2)
            expect("models", json.loads(proxy.ask("/v1/models"))["data"][0]["id"], "m")
            expect("health", status_of(proxy, "/health"), 200)
            expect("a wrong body", status_of(proxy, "/v1/chat/completions", {"model": "m", "messages": 3}), 400)
            expect("no such path", status_of(proxy, "/v1/nothing"), 404)
            with socket.create_connection(("127.0.0.1", int(proxy.base.rsplit(":", 1)[1]))) as raw:
                raw.sendall(b"no http at all\r\n\r\n")
                expect("what is no HTTP", raw.recv(100).startswith(b"HTTP/1.1 400"), True)
            prefilling.process.send_signal(signal.SIGSTOP)  # keeps its connections, answers nothing
            expect("an answer though whoever prefills is stopped", text_of(proxy.post("/v1/chat/completions", **question_body(questions[0]))), expected[0])
            prefilling.process.send_signal(signal.SIGCONT)
            prefilling.process.kill()
            prefilling.process.wait()
            expect("answers without whoever prefills", [text_of(proxy.post("/v1/chat/completions", **question_body(q))) for q in questions], expected)
        with Proxy(quire, "--decode", one.base) as plain:
            expect("without disaggregation", text_of(plain.post("/v1/chat/completions", **question_body(questions[0]))), expected[0])
        with Proxy(quire, "--decode", dead) as lonely:
            expect("nobody there", status_of(lonely, "/v1/models"), 502)
    print(f"{num_expected()} checks passed")


main()
