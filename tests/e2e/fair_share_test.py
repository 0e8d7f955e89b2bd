#!/usr/bin/env python3
"""One client with hundreds of queued requests does not starve another: fair shares by key, measured.

    tests/e2e/fair_share_test.py build/release/app/quire
"""
import hashlib
import http.client
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time

from serve_process import Server

SEQS, QUEUED = 8, 600


def check(what, holds, seen=""):
    if not holds:
        sys.exit(f"FAILED: {what}\n{seen}")


class Client:
    def __init__(self, port, key):
        self.port, self.key = port, key
        self.done, self.times, self.statuses = [], [], []
        self.stopping = False
        self.threads = []

    def one(self, connection, tokens, **more):
        body = json.dumps({"prompt": "a", "max_tokens": tokens, "ignore_eos": True, **more})
        begin = time.time()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"})
        reply = connection.getresponse()
        reply.read()
        self.statuses.append(reply.status)
        self.times.append(time.time() - begin)
        self.done.append(time.time())

    def flood(self, width, tokens, **more):
        """`width` requests at a time, until told to stop."""
        def run():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            while not self.stopping:
                self.one(connection, tokens, **more)
        self.threads = [threading.Thread(target=run, daemon=True) for _ in range(width)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(120)


def main():
    keys = {"hog": "h" * 20, "guest": "g" * 20}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "keys"
        file.write_text("".join(f"{name} {hashlib.sha256(key.encode()).hexdigest()}\n" for name, key in keys.items()))
        with Server(sys.argv[1], "models/quire-tiny", "--num-gpu-blocks-override", "2048", "--api-key-file", str(file),
                    "--max-num-seqs", str(SEQS), "--max-num-queued-reqs", "2000") as server:
            port = int(server.base.rsplit(":", 1)[1])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            alone, beside = Client(port, keys["guest"]), Client(port, keys["guest"])
            for _ in range(20):
                alone.one(connection, 16)
            hog = Client(port, keys["hog"])
            hog.flood(QUEUED // 100, 200, n=100)  # so many sequences at a time, of 200 tokens
            deadline = time.time() + 60
            while server.metric("vllm:num_requests_waiting") < QUEUED / 2 and time.time() < deadline:
                time.sleep(0.1)
            waiting = server.metric("vllm:num_requests_waiting")
            check("the hog fills the queue", waiting >= QUEUED / 2, waiting)
            begin = time.time()
            for _ in range(10):
                beside.one(connection, 16)
            took = time.time() - begin
            rate = server.metric("vllm:generation_tokens_total")
            time.sleep(2)
            rate = (server.metric("vllm:generation_tokens_total") - rate) / 2
            in_line = waiting * 200 / rate  # what first come, first served would have cost each
            hog.stop()
            check("the guest is served", set(beside.statuses) == {200}, beside.statuses)
            worst = max(beside.times)
            print(f"alone {1000 * statistics.median(alone.times):.0f} ms; beside {waiting:.0f} waiting sequences of another key "
                  f"{1000 * statistics.median(beside.times):.0f} ms, worst {1000 * worst:.0f} ms; in line behind them {in_line:.1f} s each")
            check("the guest does not stand in line", worst < in_line / 4 and took < in_line, (worst, in_line))

            deadline = time.time() + 60
            while server.metric("vllm:num_requests_running") > 0 and time.time() < deadline:
                time.sleep(0.1)
            both = [Client(port, key) for key in keys.values()]
            both[0].flood(64, 16)  # ten times as many as the other
            both[1].flood(24, 16)
            time.sleep(2)
            begin = time.time()
            time.sleep(8)
            end = time.time()
            counts = [sum(begin <= t < end for t in client.done) for client in both]
            for client in both:
                client.stop()
            print(f"64 connections of one key beside 24 of another, {SEQS} places: {counts[0]} and {counts[1]} requests in {end - begin:.0f} s, "
                  f"ratio {counts[0] / counts[1]:.2f}")
            check("both keys get the same", 0.75 < counts[0] / counts[1] < 1.34, counts)
    print("ok")


main()
