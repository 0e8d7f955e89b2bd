#!/usr/bin/env python3
"""What crosses `quire proxy` and what must not: heads, bodies and their ends, seen from a server that writes down what it gets.

    tests/e2e/proxy_edges_test.py build/release/app/quire
"""
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from serve_process import expect, num_expected


class Upstream:
    """Answers each connection's first request with `reply`; what came is in `seen`."""

    def __init__(self, reply, most=1 << 30):
        self.reply, self.most, self.seen = reply, most, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def serve(self, line):
        line.settimeout(0.3)
        came = b""
        try:
            while len(came) < self.most and (more := line.recv(65536)):
                came += more
        except OSError:
            pass
        self.seen.append(came)
        try:
            line.sendall(self.reply)
        except OSError:
            pass
        line.close()


class Proxy:
    def __init__(self, quire, *flags, descriptors=None, log=subprocess.DEVNULL):
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))) if descriptors else None
        self.process = subprocess.Popen([quire, "proxy", "--port", "0", *flags], stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=limit)
        self.port = next((int(f.group(1)) for line in self.process.stdout if (f := re.search(r"http://127.0.0.1:(\d+)", line))), None)
        if self.port is None:
            sys.exit("FAILED: the proxy did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)

    def ask(self, bytes_, wait=20):
        """Whatever comes until the connection ends or nothing came for a second."""
        with socket.create_connection(("127.0.0.1", self.port)) as line:
            line.settimeout(wait)
            answer = b""
            try:
                line.sendall(bytes_)
            except OSError:
                pass
            try:
                while more := line.recv(65536):
                    answer += more
                    line.settimeout(1)
            except OSError:
                pass
            return answer


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nWWW-Authenticate: Bearer\r\nAccess-Control-Allow-Origin: *\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\n{}"
INNER = b"POST /inner HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"


def expect_error(answer, status, kind):
    head, body = answer.split(b"\r\n\r\n", 1)
    error = json.loads(body)["error"]
    expect("an error of the proxy's own", (int(head[9:12]), b"Content-Type: application/json" in head, error["type"], error["code"], error["param"]),
           (status, True, kind, status, None))


def heads_and_bodies(quire):
    server = Upstream(OK)
    with Proxy(quire, "--decode", server.url) as proxy:
        for method in (b"DELETE", b"PUT", b"PATCH", b"POST"):
            proxy.ask(method + b" /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(INNER) + INNER)
            came = server.seen.pop()
            expect(f"the length of {method}'s body", b"Content-Length: %d\r\n" % len(INNER) in came, True)
        for target in (b"v1/models", b"@evil/", b"http://evil/v1/models", b"evil:443"):
            answer = proxy.ask(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
            expect(f"{target}", (answer[:12], server.seen), (b"HTTP/1.1 400", []))
            expect_error(answer, 400, "Bad Request")
        answer = proxy.ask(b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nX-Api-Key: sk\r\nAuthorization: Bearer z\r\ntraceparent: 00-1\r\n"
                           b"Origin: http://b\r\nX-Request-Timeout: 9\r\ntracestate: a=1\r\nX-data-parallel-rank: 1\r\nX-Secret: no\r\nContent-Length: 2\r\n\r\n{}")
        came = server.seen.pop().lower()
        for header in (b"x-api-key: sk", b"authorization: bearer z", b"traceparent: 00-1", b"origin: http://b", b"x-request-timeout: 9", b"tracestate: a=1", b"x-data-parallel-rank: 1"):
            expect(f"{header} handed on", header in came, True)
        expect("another header", b"x-secret" in came, False)
        for header in (b"WWW-Authenticate: Bearer", b"Access-Control-Allow-Origin: *"):
            expect(f"{header} handed back", header in answer, True)
        expect("a header that is the server's own", b"X-Own" in answer, False)
        answer = proxy.ask(b"GET /v1/models HTTP/1.0\r\n\r\n")
        expect("HTTP/1.0", (b"chunked" in answer, answer.endswith(b"\r\n\r\n{}")), (False, True))
        answer = proxy.ask(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /inner HTTP/1.1\r\n\r\n")
        expect("two lengths", answer[:12], b"HTTP/1.1 400")
        expect_error(answer, 400, "Bad Request")
        answer = proxy.ask(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (65 << 20))
        expect_error(answer, 413, "Content Too Large")
        answer = proxy.ask(b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (65 << 20))
        expect("the same to a client of Anthropic's", json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["type"], "request_too_large")


def addresses(quire):
    server = Upstream(OK)
    for tail in ("/", "/v1", "/v1/", "/own/v1"):
        with Proxy(quire, "--decode", server.url + tail) as proxy:
            proxy.ask(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
            expect(f"the path asked for at {tail}", server.seen.pop().split()[1], b"/own/v1/models" if "own" in tail else b"/v1/models")
    run = subprocess.run([quire, "proxy", "--decode", server.url + "/v1?key=1"], capture_output=True, text=True, timeout=60)
    expect("an address with a query", (run.returncode != 0, "has a query" in run.stdout + run.stderr), (True, True))


def odd_answers(quire):
    with Proxy(quire, "--decode", Upstream(b"HTTP/1.1 204 No Content\r\n\r\n").url) as proxy:
        expect("204", b"Content-Length" in proxy.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), False)
    big = Upstream(b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig", most=1 << 20)
    other = Upstream(OK)
    with Proxy(quire, "--decode", big.url, "--decode", other.url) as proxy:
        body = b"x" * (40 << 20)
        answer = proxy.ask(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        expect("a body that a server refuses before its end", (answer[:12], len(other.seen)), (b"HTTP/1.1 413", 0))
    with Proxy(quire, "--decode", Upstream(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n").url) as proxy:
        expect("a stream that breaks off", proxy.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").endswith(b"0\r\n\r\n"), False)


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nb\r\ndata: {}\n\nd\r\n9\r\nata: {\"a\"\r\n"


def broken_streams(quire):
    for path, begin, end in ((b"/v1/chat/completions", b'data: {"error":{', b"data: [DONE]\n\n"),
                             (b"/v1/messages", b'event: error\ndata: {"type":"error","error":{', b"\n\n"),
                             (b"/v1/responses", b'event: error\ndata: {"type":"error",', b"\n\n")):
        with tempfile.TemporaryFile() as log:
            with Proxy(quire, "--decode", Upstream(STREAM).url, log=log) as proxy:
                answer = proxy.ask(b"POST " + path + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
            events = b"".join(re.findall(rb"(?s)[0-9a-f]+\r\n(.*?)\r\n(?=[0-9a-f]+\r\n)", answer.split(b"\r\n\r\n", 1)[1]))
            expect(f"{path} broken off", (events.startswith(b"data: {}\n\n" + begin), events.endswith(end), b'{"a"' in events, answer.endswith(b"\r\n0\r\n\r\n")),
                   (True, True, False, True))
            log.seek(0)
            expect("a line in the log", log.read().count(b"proxy.broken"), 1)


def names(quire):
    server = Upstream(OK)
    with Proxy(quire, "--decode", server.url) as proxy:
        for host, status in ((b"evil.example", b"403"), (b"evil.example:80", b"403"), (b"localhost:1", b"200"), (b"127.0.0.1", b"200")):
            expect(f"Host: {host}", proxy.ask(b"GET /v1/models HTTP/1.1\r\nHost: " + host + b"\r\nOrigin: http://" + host + b"\r\n\r\n")[9:12], status)
        server.seen.clear()
        for path in (b"/metrics", b"/%6detrics?x", b"/debug/requests", b"/load", b"/reset_prefix_cache"):
            expect(f"{path}", (proxy.ask(b"POST " + path + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")[9:12], server.seen), (b"501", []))
    with Proxy(quire, "--decode", server.url, "--allowed-hosts", "evil.example") as proxy:
        expect("a name that was allowed", proxy.ask(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")[9:12], b"200")


def end_in_time(quire):
    class Endless(Upstream):
        def serve(self, line):
            line.recv(65536)
            line.sendall(STREAM[:-14])
            time.sleep(60)
            line.close()

    with Proxy(quire, "--decode", Endless(b"").url, "--shutdown-timeout", "0.5") as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as line:
            line.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
            came = line.recv(65536)
            proxy.process.send_signal(signal.SIGTERM)
            while more := line.recv(65536):
                came += more
            expect("the last of a stream that the proxy does not wait for", (b"shutting down" in came, came.endswith(b"0\r\n\r\n")), (True, True))


def head(quire):
    server = Upstream(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1499\r\n\r\n")
    with Proxy(quire, "--decode", server.url) as proxy:
        answer = proxy.ask(b"HEAD /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        expect("HEAD says how long GET's answer is", b"\r\nContent-Length: 1499\r\n" in answer, True)


def too_many(quire):
    with Proxy(quire, "--decode", Upstream(OK).url, "--max-connections", "2") as proxy:
        def ask(line):
            line.sendall(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += line.recv(65536)
            return answer[:12]

        held = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(2)]
        expect("one of two", ask(held[1]), b"HTTP/1.1 200")
        expect("one too many, so soon", proxy.ask(b"")[:12], b"HTTP/1.1 503")
        time.sleep(1.2)
        expect("one more", proxy.ask(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")[:12], b"HTTP/1.1 200")
        held[0].settimeout(5)
        expect("has the place of the one that asked nothing for longest", held[0].recv(1), b"")
        expect("the other stays", ask(held[1]), b"HTTP/1.1 200")

    class Silent(Upstream):
        def serve(self, line):
            time.sleep(60)

    with Proxy(quire, "--decode", Silent(b"").url, "--max-connections", "2", "--shutdown-timeout", "0.1") as proxy:
        held = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(2)]
        for line in held:
            line.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
        time.sleep(0.3)
        answer = proxy.ask(b"")
        expect("one too many", (answer[:12], b"All 2 connections are being answered (--max-connections)" in answer), (b"HTTP/1.1 503", True))
        del held
    with Proxy(quire, "--decode", Upstream(OK).url, descriptors=20) as proxy:
        held = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(40)]
        time.sleep(0.3)
        before = cpu_seconds(proxy.process.pid)
        time.sleep(1)
        expect("a proxy without descriptors is at rest", cpu_seconds(proxy.process.pid) - before < 0.1, True)
        del held


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    quire = sys.argv[1]
    heads_and_bodies(quire)
    addresses(quire)
    odd_answers(quire)
    broken_streams(quire)
    names(quire)
    end_in_time(quire)
    head(quire)
    too_many(quire)
    print(f"{num_expected()} checks passed")


main()
