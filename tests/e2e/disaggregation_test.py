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

from serve_process import Server

MODEL = "models/quire-tiny"
FLAGS = ("--device", "cpu", "--max-model-len", "1024", "--kv-cache-memory-bytes", "64MiB", "--deterministic", "--cpu-threads", "1")
checks = 0


def check(what, got, expected):
    global checks
    checks += 1
    if got != expected:
        sys.exit(f"FAILED: {what} is {got!r}, should be {expected!r}")


def free_port(first):
    for port in range(first, 23200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    sys.exit("FAILED: no free port")


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
        check("the proxy's end", self.process.wait(timeout=30), 0)


def body_of(question, **more):
    return {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 30, **more}


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def streamed(server, body):
    text = ""
    lines = server.ask("/v1/chat/completions", {"model": "m", "stream": True, **body}).splitlines()
    for line in lines:
        if line.startswith("data: {"):
            text += "".join(choice["delta"].get("content") or "" for choice in json.loads(line[6:])["choices"])
    check("the stream's end", "data: [DONE]" in lines, True)
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
    listen = f"127.0.0.1:{free_port(23100)}"
    with Server(quire, MODEL, *FLAGS, "--kv-role", "prefill", "--kv-listen", listen) as prefilling, \
         Server(quire, MODEL, *FLAGS, "--kv-role", "decode", "--kv-peer", listen) as one, \
         Server(quire, MODEL, *FLAGS, "--kv-role", "decode", "--kv-peer", listen) as two:
        expected = [text_of(one.post("/v1/chat/completions", **body_of(q))) for q in questions]
        dead = f"http://127.0.0.1:{free_port(23150)}"
        with Proxy(quire, "--prefill", prefilling.base, "--prefill", dead, "--decode", one.base, "--decode", two.base, "--decode", dead) as proxy:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                check("answers", list(pool.map(lambda q: text_of(proxy.post("/v1/chat/completions", **body_of(q))), questions)), expected)
                check("streams", list(pool.map(lambda q: streamed(proxy, body_of(q)), questions)), expected)
            fetched = [server.metric("quire:kv_transfers_total") for server in (one, two)]
            check("both decode", all(count > 0 for count in fetched), True)
            check("all were shared", sum(fetched), 2.0 * len(questions))
            check("two choices", len(proxy.post("/v1/chat/completions", **body_of("Name a colour.", n=2))["choices"]), 2)
            check("models", json.loads(proxy.ask("/v1/models"))["data"][0]["id"], "m")
            check("health", status_of(proxy, "/health"), 200)
            check("a wrong body", status_of(proxy, "/v1/chat/completions", {"model": "m", "messages": 3}), 400)
            check("no such path", status_of(proxy, "/v1/nothing"), 404)
            with socket.create_connection(("127.0.0.1", int(proxy.base.rsplit(":", 1)[1]))) as raw:
                raw.sendall(b"no http at all\r\n\r\n")
                check("what is no HTTP", raw.recv(100).startswith(b"HTTP/1.1 400"), True)
            prefilling.process.kill()
            prefilling.process.wait()
            check("answers without whoever prefills", [text_of(proxy.post("/v1/chat/completions", **body_of(q))) for q in questions], expected)
        with Proxy(quire, "--decode", one.base) as plain:
            check("without disaggregation", text_of(plain.post("/v1/chat/completions", **body_of(questions[0]))), expected[0])
        with Proxy(quire, "--decode", dead) as lonely:
            check("nobody there", status_of(lonely, "/v1/models"), 502)
    print(f"{checks} checks passed")


main()
