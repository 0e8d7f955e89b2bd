#!/usr/bin/env python3
"""Rough traffic against one server: clients that leave, read slowly, send nonsense, too much, or with wrong and exhausted keys, beside
clients that behave and check each answer; SIGTERM and restart in between. Memory, threads and descriptors must stay flat, and every
block come back.

    tests/e2e/soak_test.py build/release/app/quire [--minutes 30] [--lives 3] [--rate 8] [--port 0] [--figures FILE]

Without --minutes a short one, as ctest runs it. Loopback only.
"""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from raw_http import connect, get, head, read_reply, reset

KEYS = {"alice": "", "bob": "", "narrow": " concurrency=2 requests-per-minute=20"}
QUESTION, ANSWER = "What is 12 + 7?", "12 + 7 = 19."


def fail(what, seen=""):
    sys.exit(f"FAILED: {what}\n{seen}")


class Life:
    """One process of the server."""

    def __init__(self, quire, keys, port, log):
        self.log = open(log, "ab")
        self.process = subprocess.Popen(
            [quire, "serve", "models/quire-tiny", "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "m", "--api-key-file", keys,
             "--num-gpu-blocks-override", "2048", "--max-num-seqs", "16", "--max-num-queued-reqs", "256", "--request-timeout", "5",
             "--shutdown-timeout", "20"], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = next((f for l in self.process.stdout if (f := re.search(r"http://127.0.0.1:(\d+)", l))), None)
        if line is None:
            fail("the server does not start", pathlib.Path(log).read_text()[-2000:])
        self.port = int(line[1])
        self.samples = []

    def sample(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        number = lambda name: int(re.search(rf"{name}:\s+(\d+)", status)[1])
        fds = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        self.samples.append({"time": time.time(), "rss_kib": number("VmRSS"), "threads": number("Threads"), "fds": fds})
        return self.samples[-1]

    def metric(self, name):
        text = get(self.port, "/metrics")[1].decode()
        return sum(float(v) for v in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        begin = time.time()
        code = self.process.wait(60)
        self.log.close()
        return code, time.time() - begin


def chat(key, **more):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 24, **more}).encode()
    return head("/v1/chat/completions", key, len(body)) + body


def endless(key, **more):
    return chat(key, ignore_eos=True, max_tokens=4000, stream=True, **more)


class Traffic:
    def __init__(self, keys, seed):
        self.keys, self.random, self.seen = keys, random.Random(seed), collections.Counter()
        self.wrong, self.health = [], []
        self.life, self.stopping, self.leaving = None, threading.Event(), threading.Event()
        self.lock = threading.Lock()

    def key(self):
        return self.keys[self.random.choice(("alice", "bob"))]

    def expect(self, s, what, *statuses):
        status, body = read_reply(s)
        with self.lock:
            self.seen[f"{what} {status}"] += 1
        if status not in statuses:
            raise AssertionError(f"{what}: {status} {body[:300]}")
        return body

    # Those that behave.
    def answer(self, s):
        s.sendall(chat(self.key(), n=self.random.choice((1, 1, 3))))
        body = self.expect(s, "answer", 200, 503)
        if b'"choices"' in body and ANSWER not in json.loads(body)["choices"][0]["message"]["content"]:
            raise AssertionError(f"a wrong answer: {body[:500]}")

    def stream(self, s):
        s.sendall(chat(self.key(), stream=True))
        body = self.expect(s, "stream", 200, 503)
        if body.startswith(b"{"):
            return
        parts = [json.loads(l[6:]) for l in body.decode().split("\r\n") for l in l.split("\n") if l.startswith("data: {")]
        text = "".join(p["choices"][0]["delta"].get("content") or "" for p in parts if p.get("choices"))
        if ANSWER not in text or b"[DONE]" not in body:
            raise AssertionError(f"a wrong stream: {body[-500:]}")

    def kept_alive(self, s):
        for _ in range(3):
            self.answer(s)

    # Those that leave.
    def leaves_at_once(self, s):
        s.sendall(endless(self.key()))
        reset(s)

    def leaves_in_between(self, s):
        s.sendall(endless(self.key(), n=self.random.choice((1, 4))))
        s.recv(500)
        time.sleep(self.random.random())
        reset(s)

    def half_head(self, s):
        s.sendall(chat(self.key())[:self.random.randrange(5, 120)])
        time.sleep(self.random.random())
        reset(s)

    def half_body(self, s):
        s.sendall(chat(self.key())[:-20])
        time.sleep(self.random.random())
        s.close() if self.random.random() < 0.5 else reset(s)

    def late_body(self, s):
        s.sendall(chat(self.key())[:-20])
        self.expect(s, "late body", 408)

    # Those that read slowly.
    def slow_reader(self, s):
        s.sendall(endless(self.key()))
        for _ in range(self.random.randrange(5, 40)):
            s.recv(64)
            time.sleep(0.1)
        reset(s)

    # Nonsense and too much.
    def garbage(self, s):
        s.sendall(bytes(self.random.randrange(256) for _ in range(300)) + b"\r\n\r\n")
        self.expect(s, "garbage", 400, 0)

    def hello_of_tls(self, s):
        s.sendall(bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + os.urandom(500) + b"\r\n\r\n")
        self.expect(s, "TLS hello", 400, 0)

    def bad_json(self, s):
        text = chat(self.key()).split(b"\r\n\r\n", 1)[1]
        cut = bytearray(text)
        cut[self.random.randrange(1, len(cut))] = self.random.choice(b'"{}[],:\x00\xff')
        s.sendall(head("/v1/chat/completions", self.key(), len(cut)) + bytes(cut))
        self.expect(s, "bad JSON", 400, 404, 200, 503)  # one byte may also leave it right

    def deep_json(self, s):
        body = b'{"messages":' + b"[" * 100000 + b"]" * 100000 + b"}"
        s.sendall(head("/v1/chat/completions", self.key(), len(body)) + body)
        self.expect(s, "deep JSON", 400)

    def wrong_members(self, s):
        s.sendall(chat(self.key(), **self.random.choice(({"n": 1e9}, {"top_p": 7}, {"stop": ["x" * 100000] * 9}, {"logprobs": True, "top_logprobs": 999},
                                                         {"max_tokens": -1}, {"response_format": {"type": "json_schema"}}))))
        self.expect(s, "wrong members", 400, 503)  # a full queue is said first

    def too_large(self, s):
        s.sendall(head("/v1/chat/completions", self.key(), 1 << 34))
        self.expect(s, "too large", 413)

    def large_head(self, s):
        try:
            s.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 60000 + b"\r\n\r\n")
            self.expect(s, "large head", 431, 400, 0)
        except ConnectionError:
            pass

    def strange_coding(self, s):
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: xchunked\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        self.expect(s, "strange coding", 400, 501)

    # Keys.
    def wrong_key(self, s):
        s.sendall(chat("no-such-key"))
        self.expect(s, "wrong key", 401)

    def narrow_key(self, s):
        for _ in range(5):
            s.sendall(chat(self.keys["narrow"]))
            body = self.expect(s, "narrow key", 200, 429, 503)
            if b'"error"' in body:  # said before the body was read, so the connection ends
                return

    def burst(self, s):
        several = [connect(self.life.port) for _ in range(40)]
        for one in several:
            one.sendall(chat(self.keys["alice"], n=4))
        begin = time.time()
        s.sendall(chat(self.keys["bob"]))
        self.expect(s, "beside a burst", 200)
        with self.lock:
            self.seen["beside a burst, ms"] = max(self.seen["beside a burst, ms"], int(1000 * (time.time() - begin)))
        for one in several:
            self.expect(one, "burst", 200, 503)
            one.close()

    def probe(self):
        while not self.stopping.wait(0.5):
            if self.leaving.is_set():
                continue
            begin = time.time()
            try:
                status, _ = get(self.life.port, "/health")
                self.health.append(time.time() - begin)
                if status != 200 and not self.leaving.is_set():
                    self.wrong.append(f"/health: {status}")
            except OSError as e:
                if not self.leaving.is_set():
                    self.wrong.append(f"/health: {e}")

    def client(self, rate, seed):
        pick = random.Random(seed)
        good = (self.answer, self.stream, self.kept_alive)
        rough = (self.leaves_at_once, self.leaves_in_between, self.half_head, self.half_body, self.late_body, self.slow_reader, self.garbage,
                 self.hello_of_tls, self.bad_json, self.deep_json, self.wrong_members, self.too_large, self.large_head, self.strange_coding,
                 self.wrong_key, self.narrow_key, self.burst)
        while not self.stopping.is_set():
            if self.leaving.is_set():
                time.sleep(0.05)
                continue
            action = pick.choice(good if pick.random() < 0.4 else rough)
            try:
                with connect(self.life.port) as s:
                    action(s)
                with self.lock:
                    self.seen[action.__name__] += 1
            except (OSError, AssertionError, ValueError, KeyError) as e:
                if not self.leaving.is_set():
                    self.wrong.append(f"{action.__name__}: {type(e).__name__} {e}")
            self.stopping.wait(pick.expovariate(rate))


def quiet(life, what):
    """Waits until nothing runs, and says what the process holds then."""
    deadline = time.time() + 60
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    while any(values := [life.metric(n) for n in names]):
        if time.time() > deadline:
            fail(f"{what}: not everything came back", dict(zip(names, values)))
        time.sleep(0.2)
    deadline = time.time() + 90
    while (now := life.sample())["fds"] > life.quiet_fds and time.time() < deadline:
        time.sleep(1)
    return now


def pause(traffic, seconds=0.0):
    traffic.leaving.set()
    time.sleep(seconds)


def run_life(traffic, life, seconds, checks):
    traffic.life = life
    while get(life.port, "/health")[0] != 200:
        time.sleep(0.1)
    get(life.port, "/metrics")
    life.quiet_fds = life.sample()["fds"]
    readings = []
    for _ in range(checks):
        traffic.leaving.clear()
        end = time.time() + seconds / checks
        while time.time() < end:
            time.sleep(min(5, max(0.1, end - time.time())))
            life.sample()
        pause(traffic, 6)
        readings.append(quiet(life, f"reading {len(readings)}"))
    return readings


def stop_under_load(traffic, life, keys):
    """What runs when SIGTERM comes is finished."""
    s = connect(life.port)
    s.sendall(chat(keys["alice"], ignore_eos=True, max_tokens=300, stream=True))
    first = s.recv(100)
    code, seconds = life.stop()
    body = first
    while part := s.recv(65536):
        body += part
    if code != 0 or not body.endswith(b"0\r\n\r\n") or b"[DONE]" not in body:
        fail(f"a stream under way was not finished; exit code {code}", body[-300:])
    return seconds


def judge(life_number, readings, samples, sanitized):
    first, last = readings[0], readings[-1]
    grown = last["rss_kib"] - readings[len(readings) // 3]["rss_kib"]
    print(f"life {life_number}: RSS at rest {[r['rss_kib'] // 1024 for r in readings]} MiB, most {max(s['rss_kib'] for s in samples) // 1024} MiB; "
          f"threads {sorted({s['threads'] for s in samples})}; descriptors at rest {[r['fds'] for r in readings]}, most {max(s['fds'] for s in samples)}")
    if len({r["threads"] for r in readings}) != 1:
        fail("threads come or go", readings)
    if last["fds"] > samples[0]["fds"]:
        fail("descriptors are left behind", readings)
    if grown > 16 * 1024 and not sanitized:
        fail("memory grows", readings)
    return {"first": first, "last": last}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("quire")
    parser.add_argument("--minutes", type=float, default=0.6)
    parser.add_argument("--lives", type=int, default=2)
    parser.add_argument("--rate", type=float, default=8, help="actions a second, all clients together")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--figures")
    parser.add_argument("--sanitized", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keys = {name: os.urandom(12).hex() for name in KEYS}
        (pathlib.Path(folder) / "keys").write_text("".join(f"{n} {hashlib.sha256(k.encode()).hexdigest()}{KEYS[n]}\n" for n, k in keys.items()))
        traffic = Traffic(keys, 1)
        threads = []
        results, port = [], options.port
        for number in range(options.lives):
            life = Life(options.quire, f"{folder}/keys", port, f"{folder}/log")
            port = life.port  # the same again: a restart
            traffic.life = life
            traffic.leaving.set()
            if not threads:
                threads = [threading.Thread(target=traffic.client, args=(options.rate / options.clients, i), daemon=True) for i in range(options.clients)]
                threads.append(threading.Thread(target=traffic.probe, daemon=True))
                for t in threads:
                    t.start()
            readings = run_life(traffic, life, options.minutes * 60 / options.lives, 6 if options.minutes > 5 else 2)
            seconds = stop_under_load(traffic, life, keys)
            results.append(judge(number + 1, readings, life.samples, options.sanitized))
            print(f"life {number + 1}: stopped in {seconds:.1f} s with exit code 0")
            if traffic.wrong:
                break
        traffic.stopping.set()
        for t in threads:
            t.join(30)
        log = pathlib.Path(f"{folder}/log").read_text(errors="replace")
        if options.figures:
            pathlib.Path(options.figures).write_text(json.dumps({"seen": traffic.seen, "results": results, "health": sorted(traffic.health)[-20:]}))
    health = sorted(traffic.health)
    print(f"/health: {len(health)} times, median {1000 * health[len(health) // 2]:.1f} ms, p99 {1000 * health[int(0.99 * len(health))]:.0f} ms, "
          f"most {1000 * health[-1]:.0f} ms")
    print(dict(sorted(traffic.seen.items())))
    if traffic.wrong:
        fail(f"{len(traffic.wrong)} replies are not as they should be", "\n".join(traffic.wrong[:20]))
    bad = [l for l in log.splitlines() if " error " in l or "request.failed" in l]
    if bad:
        fail("errors in the log", "\n".join(bad[:20]))
    print("ok")


main()
