#!/usr/bin/env python3
"""What hostile grammars cost the others: a plain client streams, alone and beside clients whose regular expressions and schemas are
as costly as they come, in turns. Times between tokens of the plain client; and how long a new small grammar takes.

    tests/perf/grammar_attack.py build/release/app/quire [rounds=4] [hostile=12]
"""
import http.client
import json
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
    def __init__(self, port, hostile):
        self.on, self.port, self.sent = True, port, 0
        for i in range(hostile):
            threading.Thread(target=self.run, args=(i,), daemon=True).start()

    # Their answers may take minutes: nobody waits for them, and the server ends in the middle.
    def run(self, number):
        try:
            self.attack(number)
        except (OSError, http.client.HTTPException):
            pass

    def attack(self, number):
        turn = 0
        while self.on:
            salt = number * 1000 + turn
            if turn % 3 == 2:
                post(self.port, structured_outputs={"json": all_of(30, salt)})
            else:
                post(self.port, structured_outputs={"regex": f".*a.{{{300 + salt % 97}}}b.{{{300 + salt // 97}}}c"}, temperature=1.0)
            turn += 1
            self.sent += 1

    def stop(self):
        self.on = False


def gaps(times):
    return [b - a for a, b in zip(times[2:], times[3:])]


def figures(values):
    values = sorted(values)
    at = lambda share: values[min(len(values) - 1, int(share * len(values)))] * 1000  # noqa: E731
    return f"p50 {at(.5):.2f} p90 {at(.9):.2f} p99 {at(.99):.2f} max {values[-1] * 1000:.1f} ms", at(.99)


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    hostile = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    quiet, loud, compile_quiet, compile_loud = [], [], [], []
    for number in range(rounds):
        with Server(sys.argv[1], "models/quire-tiny") as server:
            port = int(server.base.rsplit(":", 1)[1])
            post(port, structured_outputs={"regex": "ab"})
            stream(port)
            quiet += gaps(stream(port))
            begun = time.perf_counter()
            post(port, structured_outputs={"regex": f"[a-z]{{{number + 1}}}"})
            compile_quiet.append(time.perf_counter() - begun)
            attack = Attack(port, hostile)
            time.sleep(0.3)
            loud += gaps(stream(port))
            begun = time.perf_counter()
            post(port, structured_outputs={"regex": f"[a-z]{{{number + 100}}}"})
            compile_loud.append(time.perf_counter() - begun)
            attack.stop()
            server.process.kill()
    text, before = figures(quiet)
    print(f"quiet: {text}")
    text, beside = figures(loud)
    print(f"beside {hostile} hostile clients: {text}; p99 {beside / before:.2f} times the quiet one")
    print(f"a new grammar's answer: {statistics.median(compile_quiet) * 1000:.0f} ms quiet, {statistics.median(compile_loud) * 1000:.0f} ms, "
          f"at most {max(compile_loud) * 1000:.0f} ms beside them")


if __name__ == "__main__":
    main()
