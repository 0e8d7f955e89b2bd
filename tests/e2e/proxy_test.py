#!/usr/bin/env python3
"""`quire proxy` before servers that prefill and servers that decode: what each of them is sent, and whoever fails.

    tests/e2e/proxy_test.py build/release/app/quire
"""
import http.server
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from serve_process import Server, expect, num_expected

MODEL = "models/quire-tiny"
FLAGS = ("--device", "cpu", "--max-model-len", "1024", "--kv-cache-memory-bytes", "64MiB", "--cpu-threads", "1")
PARAMS = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[5, 6]], "remote_engine_id": "e",
          "remote_request_id": "cmpl-1", "remote_host": "10.0.0.7", "remote_port": 5600, "tp_size": 1,
          "remote_blocks_expiry_time": None, "remote_registration_generation": 9007199254740993}
ASKS = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
        "remote_host": None, "remote_port": None}


class Peer:
    """A server that says what the test wants and keeps what it was sent."""

    def __init__(self, answer):
        self.seen, self.cut = [], threading.Event()
        peer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                peer.seen.append((self.path, body, dict(self.headers)))
                status, reply = answer(body)
                self.send_response(status)
                if status == 503:
                    self.send_header("Retry-After", "7")
                if isinstance(reply, list):
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    try:
                        for piece in reply:
                            self.wfile.write(f"{len(piece):x}\r\n{piece}\r\n".encode())
                            self.wfile.flush()
                            time.sleep(0.02)
                        self.wfile.write(b"0\r\n\r\n")
                    except OSError:
                        peer.cut.set()
                    return
                data = json.dumps(reply).encode()
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"

    def take(self):
        seen, self.seen = self.seen, []
        return seen


class Proxy:
    def __init__(self, quire, prefill, decode, *flags):
        command = [quire, "proxy", "--port", "0", *flags]
        for flag, servers in (("--prefill", prefill), ("--decode", decode)):
            for server in servers:
                command += [flag, getattr(server, "base", server)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.base = next((f.group() for line in self.process.stdout if (f := re.search(r"http://127.0.0.1:\d+", line))), None)
        if self.base is None:
            sys.exit("FAILED: the proxy did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        expect("the proxy's end", self.process.wait(timeout=30), 0)

    def send(self, path, body=None, **headers):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                self.headers = reply.headers
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            self.headers = error.headers
            return error.code, error.read().decode()


class Stopped:
    """A server whose connections the kernel still makes: what it is asked is in `seen`, and nothing comes back."""

    def __init__(self):
        self.seen, self.lines = [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            line = self.listener.accept()[0]
            self.lines.append(line)
            self.seen.append(line.recv(4))


def dead_address():
    for port in range(23150, 23200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return f"http://127.0.0.1:{port}"
    sys.exit("FAILED: no free port")


CHAT = {"model": "m", "messages": [{"role": "user", "content": "é \U0001f600"}], "max_tokens": 40, "temperature": 0.1,
        "seed": 18446744073709551615, "min_tokens": 3, "max_completion_tokens": 50, "stream_options": {"include_usage": True}}


def check_bodies(quire):
    prefill = Peer(lambda body: (200, {"choices": [], "kv_transfer_params": PARAMS}))
    decode = Peer(lambda body: (200, ["data: {\"n\":1}\n\n", "data: [DONE]\n\n"] if body.get("stream") else {"said": body["max_tokens"]}))
    with Proxy(quire, [prefill], [decode]) as proxy:
        status, text = proxy.send("/v1/chat/completions", {**CHAT, "stream": True}, Authorization="Bearer k", **{"X-Request-Id": "r1"})
        expect("stream", (status, text), (200, "data: {\"n\":1}\n\ndata: [DONE]\n\n"))
        (path, body, headers), = prefill.take()
        expect("path", path, "/v1/chat/completions")
        left = {k: v for k, v in CHAT.items() if k not in ("min_tokens", "stream_options")}
        expect("prefill body", body, {**left, "stream": False, "max_tokens": 1, "max_completion_tokens": 1, "kv_transfer_params": ASKS})
        expect("headers", (headers["Authorization"], headers["X-Request-Id"]), ("Bearer k", "r1"))
        (path, body, headers), = decode.take()
        expect("decode body", body, {**CHAT, "stream": True, "kv_transfer_params": PARAMS})
        expect("headers", (headers["Authorization"], headers["X-Request-Id"]), ("Bearer k", "r1"))
        expect("answer", proxy.send("/v1/completions", {"prompt": [1, 2], "max_tokens": 7}), (200, '{"said": 7}'))
        expect("shared", (len(prefill.take()), len(decode.take())), (1, 1))
        for alone in ({"n": 2}, {"prompt_logprobs": 1}, {"echo": True}, {"truncate_prompt_tokens": -1}, {"kv_transfer_params": PARAMS}, {"prompt": ["a", "b"]}):
            proxy.send("/v1/completions", {"prompt": "x", "max_tokens": 7, **alone})
            expect(f"with {alone}", (len(prefill.take()), decode.take()[0][1]), (0, {"prompt": "x", "max_tokens": 7, **alone}))
        proxy.send("/v1/embeddings", {"input": "x", "max_tokens": 1})
        expect("what is not generated", (len(prefill.take()), len(decode.take())), (0, 1))


def check_failures(quire):
    dead = dead_address()
    fine = Peer(lambda body: (200, {"kv_transfer_params": None}))
    busy = Peer(lambda body: (503, {"error": "busy"}))
    strict = Peer(lambda body: (400, {"error": "no"}))
    decode = Peer(lambda body: (200, {"ok": True}))
    ask = ("/v1/chat/completions", {**CHAT, "stream": False})
    with Proxy(quire, [dead, busy, fine], [dead, busy, decode]) as proxy:
        for _ in range(4):
            expect("answer", proxy.send(*ask), (200, '{"ok": true}'))
            expect("nothing kept", "kv_transfer_params" in decode.take()[0][1], False)
        expect("each was asked", (len(fine.take()) == 4, len(busy.take()) >= 2), (True, True))
    with Proxy(quire, [dead], [decode]) as proxy:
        expect("without whoever prefills", proxy.send(*ask), (200, '{"ok": true}'))
    with Proxy(quire, [strict], [decode]) as proxy:
        decode.take()
        expect("a refusal", proxy.send(*ask), (400, '{"error": "no"}'))
        expect("goes no further", decode.take(), [])
    with Proxy(quire, [], [dead]) as proxy:
        expect("nobody", proxy.send(*ask)[0], 502)
        with socket.create_connection(("127.0.0.1", int(proxy.base.rsplit(":", 1)[1]))) as raw:
            raw.sendall(b"no http at all\r\n\r\n")
            expect("what is no HTTP", raw.recv(100).startswith(b"HTTP/1.1 400"), True)


def check_busy(quire):
    dead, ask = dead_address(), ("/v1/chat/completions", CHAT)
    is_full = [True]
    full = Peer(lambda body: (503, {"error": "full"}) if is_full[0] else (200, {"by": "full"}))
    fuller = Peer(lambda body: (503, {"error": "fuller"}))
    with Proxy(quire, [], [full, dead]) as proxy:
        for _ in range(2):
            expect("what the only one says that can be reached", (*proxy.send(*ask), proxy.headers["Retry-After"]), (503, '{"error": "full"}', "7"))
    with Proxy(quire, [], [full, fuller]) as proxy:
        expect("what the last one says", [proxy.send(*ask)[1] for _ in range(2)], ['{"error": "fuller"}', '{"error": "full"}'])
        is_full[0] = False
        expect("a busy server does not rest", {proxy.send(*ask) for _ in range(4)}, {(200, '{"by": "full"}')})
        fuller.take()
        expect("nor is it left out", [proxy.send(*ask) and len(fuller.take()) for _ in range(4)].count(1), 2)


def check_stopped(quire):
    stopped, decode = Stopped(), Peer(lambda body: (200, {"ok": True}))
    with Proxy(quire, [stopped], [decode]) as proxy:
        for _ in range(5):
            expect("an answer without whoever prefills", proxy.send("/v1/chat/completions", CHAT), (200, '{"ok": true}'))
    expect("one request waited for the stopped server", stopped.seen.count(b"POST"), 1)


def check_spread(quire):
    peers = [Peer(lambda body: (200, {})) for _ in range(2)]
    busy = Peer(lambda body: (503, {}))
    for third in (dead_address(), busy):
        with Proxy(quire, [], [third, *peers]) as proxy:
            for _ in range(60):
                proxy.send("/v1/embeddings", {"input": "x"})
        counts = [len(peer.take()) for peer in peers]
        expect(f"{counts} are equal", (sum(counts), abs(counts[0] - counts[1]) <= 2), (60, True))


def check_leaving(quire):
    endless = Peer(lambda body: (200, ["data: x\n\n"] * 500))
    with Proxy(quire, [], [endless]) as proxy:
        body = json.dumps({**CHAT, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", int(proxy.base.rsplit(":", 1)[1]))) as raw:
            raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            expect("its begin", raw.recv(1000).startswith(b"HTTP/1.1 200"), True)
        expect("a client that leaves ends the answer", endless.cut.wait(5), True)


def check_server(quire):
    with Server(quire, MODEL, *FLAGS) as one, Server(quire, MODEL, *FLAGS) as two:
        with Proxy(quire, [], [one, two]) as proxy:
            for _ in range(4):
                status, text = proxy.send("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 12 + 7?"}],
                                                                   "temperature": 0, "max_tokens": 20})
                expect("answer", (status, json.loads(text)["choices"][0]["message"]["content"]), (200, "12 + 7 = 19."))
            expect("models", json.loads(proxy.send("/v1/models")[1])["data"][0]["id"], "m")
            expect("no such path", proxy.send("/v1/nothing")[0], 404)
        expect("spread", [server.metric("vllm:request_success_total") for server in (one, two)], [2.0, 2.0])


def main():
    quire = sys.argv[1]
    check_bodies(quire)
    check_failures(quire)
    check_busy(quire)
    check_stopped(quire)
    check_spread(quire)
    check_leaving(quire)
    check_server(quire)
    print(f"{num_expected()} checks passed")


if __name__ == "__main__":
    main()
