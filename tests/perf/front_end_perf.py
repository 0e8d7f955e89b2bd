#!/usr/bin/env python3
"""What the HTTP side costs alone: `quire serve --device mock` beside a bare Beast server, in the same run.

    tests/perf/front_end_perf.py build/release/app/quire build/release/tests/perf/bare_server

CPU time of the server's process (all its threads, the mock engine's too) by event and by request, the median of some rounds that take
turns; what a second of one core carries is its inverse. It does not depend on how fast the clients are, or on who else uses the machine
as long as both servers suffer alike. Added latency: between the events of one stream among many, less the mock's step.
"""
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(next(f.group(1) for line in self.process.stdout if (f := re.search(r"http://127.0.0.1:(\d+)", line))))

    def cpu(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self):
        self.process.terminate()
        self.process.wait()


def post(path, body):
    data = body.encode()
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def events(port, request):
    """Of one stream; until its last chunk."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(request)
        count, tail = 0, b""
        while True:
            data = line.recv(1 << 18)
            if not data:
                return count
            text = tail + data
            count += text.count(b"data: ") - tail.count(b"data: ")
            tail = text[-16:]
            if text.endswith(b"\r\n0\r\n\r\n"):
                return count


def requests(port, request, count):
    with socket.create_connection(("127.0.0.1", port)) as line:
        for _ in range(count):
            line.sendall(request)
            data = b""
            while True:
                data += line.recv(1 << 16)
                head, found, body = data.partition(b"\r\n\r\n")
                if found and len(body) >= int(re.search(rb"(?i)content-length: (\d+)", head).group(1)):
                    break
    return count


def together(num, work):
    counts = []
    threads = [threading.Thread(target=lambda: counts.append(work())) for _ in range(num)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return sum(counts)


def cost(server, num, work):
    before = server.cpu()
    count = together(num, work)
    return (server.cpu() - before) / count


def wait_ready(port):
    while True:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
        except urllib.error.HTTPError:
            time.sleep(0.05)


def chat(tokens, stream):
    content = "a" * 800 if tokens == 1 else "a"
    return post("/v1/chat/completions", '{"model":"m","messages":[{"role":"user","content":"%s"}],"max_tokens":%d,"ignore_eos":true%s}'
                % (content, tokens, ',"stream":true' if stream else ""))


def table(what, unit, bare, own):
    a, b = statistics.median(bare), statistics.median(own)
    print(f"{what:34} bare {1 / a:9.0f}  quire {1 / b:9.0f} {unit} a core-second, {a / b:.2f} of bare")


def main(quire, bare_server, model="models/quire-tiny"):
    # Steps that the clients can follow: each event then is a write of its own, as the bare server makes it.
    serve = (quire, "serve", model, "--host", "127.0.0.1", "--port", "0", "--served-model-name", "m", "--device", "mock", "--io-threads", "1",
             "--log-level", "info")
    bare = Process(bare_server)
    paced, fast = Process(*serve, "--mock-step-us", "4000"), Process(*serve)
    for own in (paced, fast):
        wait_ready(own.port)
    rounds = 5
    streams = [[], []], [[], []]
    for _ in range(rounds):
        streams[0][0].append(cost(bare, 16, lambda: events(bare.port, post("/events/400", "{}"))))
        streams[0][1].append(cost(paced, 16, lambda: events(paced.port, chat(400, True))))
        streams[1][0].append(cost(bare, 8, lambda: requests(bare.port, post("/reply", "a" * 900), 200)))
        streams[1][1].append(cost(fast, 8, lambda: requests(fast.port, chat(1, False), 200)))
    table("events of 16 streams, 4 ms a step", "events", *streams[0])
    table("chats of one token, 8 clients", "requests", *streams[1])
    for one in (bare, paced, fast):
        one.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
