#!/usr/bin/env python3
"""What hostile grammars cost the others: a plain client streams, alone and beside clients whose regular expressions and schemas are
as costly as they come, in turns. Times between tokens of the plain client; and how long a new small grammar takes.

    tests/perf/grammar_attack.py build/release/app/quire [rounds=4] [hostile=12]
"""
import http.client
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from serve_process import Server  # noqa: E402

TOKENS = 400


def stream(port, **members):
    """Times at which tokens came."""
    body = dict(messages=[{"role": "user", "content": "Tell me of a place."}], stream=True, ignore_eos=True, max_tokens=TOKENS, **members)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    times = []
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            times.append(time.perf_counter())
    connection.close()
    return times


def post(port, **members):
    body = dict(messages=[{"role": "user", "content": "Go on."}], max_tokens=200, **members)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status


def all_of(depth, salt):
    ref = lambda i: {"$ref": f"#/$defs/d{i}"}  # noqa: E731
    defs = {f"d{i}": {"allOf": [ref(i + 1), {"anyOf": [ref(i + 1), {"minLength": i}]}]} for i in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": defs | {f"d{depth}": {"type": "string", "maxLength": salt}}}


class Attack:
    """Clients in a process of their own, of the lowest priority: what they cost is the server's doing."""

    def __init__(self, port, hostile, is_plain=False):
        self.process = multiprocessing.Process(target=self.run, args=(port, hostile, is_plain), daemon=True)
        self.process.start()

    def run(self, port, hostile, is_plain):
        os.nice(19)
        threads = [threading.Thread(target=self.client, args=(port, number, is_plain), daemon=True) for number in range(hostile)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # Their answers may take minutes: nobody waits for them, and the server ends in the middle.
    def client(self, port, number, is_plain):
        turn = 0
        while True:
            salt = number * 1000 + turn
            try:
                if is_plain:
                    post(port, temperature=1.0)
                elif turn % 3 == 2:
                    post(port, structured_outputs={"json": all_of(30, salt)})
                else:
                    post(port, structured_outputs={"regex": f".*a.{{{300 + salt % 97}}}b.{{{300 + salt // 97}}}c"}, temperature=1.0)
            except (OSError, http.client.HTTPException):
                return
            turn += 1

    def stop(self):
        self.process.kill()
        self.process.join()


def gaps(times):
    return [b - a for a, b in zip(times[2:], times[3:])]


def figures(values):
    values = sorted(values)
    at = lambda share: values[min(len(values) - 1, int(share * len(values)))] * 1000  # noqa: E731
    return f"p50 {at(.5):.2f} p90 {at(.9):.2f} p99 {at(.99):.2f} max {values[-1] * 1000:.1f} ms", at(.99)


def measure(server, port, number, attack):
    """Gaps between tokens, and how long a new small grammar takes."""
    time.sleep(0.3)
    between = gaps(stream(port))
    begun = time.perf_counter()
    post(port, structured_outputs={"regex": f"[a-z]{{{number}}}"})
    took = time.perf_counter() - begun
    if attack:
        attack.stop()
        time.sleep(0.3)
    return between, took


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    hostile = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    seen = {"alone": ([], []), f"beside {hostile} plain clients": ([], []), f"beside {hostile} hostile ones": ([], [])}
    for number in range(rounds):
        with Server(sys.argv[1], "models/quire-tiny") as server:
            port = int(server.base.rsplit(":", 1)[1])
            post(port, structured_outputs={"regex": "ab"})
            stream(port)
            for i, (between, took) in enumerate(seen.values()):
                attack = Attack(port, hostile, is_plain=i == 1) if i else None
                more, new = measure(server, port, 100 * i + number + 1, attack)
                between += more
                took.append(new)
            server.process.kill()
    print(f"load {os.getloadavg()[0]:.1f}")
    alone = None
    for name, (between, took) in seen.items():
        text, p99 = figures(between)
        alone = alone or p99
        print(f"{name}: {text}; p99 {p99 / alone:.2f} times that alone; a new grammar's answer {statistics.median(took) * 1000:.0f} ms, at most {max(took) * 1000:.0f}")


if __name__ == "__main__":
    main()
