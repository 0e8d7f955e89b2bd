"""Engines in other processes under load while they are killed, stopped, restarted and their server is stopped, at seeded random times:
every answer is the right one or a clear error, nothing hangs, all blocks come back. And a rolling restart, which fails no request.

    tests/e2e/engine_storm_test.py build/release/app/quire [seed] [seconds]
"""
import concurrent.futures
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serve_process import Server

QUIRE, MODEL = sys.argv[1], "models/quire-tiny"
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 20261122
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 20
COMMON = ("--device", "cpu", "--cpu-threads", "1", "--max-num-seqs", "8", "--num-gpu-blocks-override", "200", "--max-model-len", "2048",
          "--deterministic")
QUESTIONS = [f"What is {i} + {i % 5}?" for i in range(16)]
LONGEST = 40  # seconds that a request may take: engine timeouts, restarts and a shared machine


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED (seed {SEED}): {what}")


def eventually(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.1)
    check(False, what)


class Engine:
    def __init__(self, address):
        self.command = [QUIRE, "engine", MODEL, "--listen", address, "--device", "cpu", "--cpu-threads", "1"]
        self.start()

    def start(self):
        self.log = tempfile.NamedTemporaryFile("r")
        with open(self.log.name, "w") as log:
            self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=log)

    def is_ready(self):
        return "engine.ready" in pathlib.Path(self.log.name).read_text()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def finish(self):
        self.process.terminate()
        check(self.process.wait(timeout=60) == 0, "an engine that was asked to end does so with exit code 0")


def ask(server, i, stream):
    """The text, or what kind of failure and its words."""
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTIONS[i]}], "temperature": 0, "stream": stream}
    request = urllib.request.Request(server.base + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=LONGEST) as reply:
            if not stream:
                return json.loads(reply.read())["choices"][0]["message"]["content"]
            text, ended = "", False
            for line in reply:
                line = line.decode().removeprefix("data: ").strip()
                if line == "[DONE]":
                    ended = True
                elif line:
                    event = json.loads(line)
                    if "error" in event:
                        return ("error", event["error"]["message"])
                    text += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            return text if ended else ("hung up", text)
    except urllib.error.HTTPError as error:
        return ("error", json.loads(error.read())["error"]["message"])
    except OSError as error:
        return ("hung" if time.monotonic() - begun >= LONGEST else "hung up", repr(error))


class Load:
    """`threads` clients that ask until they are told to stop."""

    def __init__(self, server, threads, seed):
        self.results, self.stop = [], threading.Event()
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)
        self.running = [self.pool.submit(self.client, server, random.Random(seed + n)) for n in range(threads)]

    def client(self, server, draw):
        while not self.stop.is_set():
            i = draw.randrange(len(QUESTIONS))
            self.results.append((i, ask(server, i, stream=draw.random() < 0.5)))

    def end(self):
        self.stop.set()
        for one in self.running:
            one.result(timeout=2 * LONGEST)
        return self.results


def storm(expected):
    draw = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        addresses = [f"unix:{folder}/{rank}" for rank in range(3)]
        engines = [Engine(address) for address in addresses]
        flags = [word for address in addresses for word in ("--engine", address)]
        try:
            with Server(QUIRE, MODEL, *COMMON, *flags, "--engine-timeout", "1") as server:
                load = Load(server, 8, SEED)
                end, done = time.monotonic() + SECONDS, []
                while time.monotonic() < end:
                    time.sleep(draw.uniform(0.05, 0.8))
                    engine = engines[draw.randrange(3)]
                    what = draw.choice(["kill", "stop", "leave", "server"])
                    done.append(what)
                    if what == "kill":
                        engine.kill()
                        time.sleep(draw.uniform(0, 0.5))
                        engine.start()
                    elif what == "leave":
                        engine.finish()
                        engine.start()
                    else:  # engines go on while their server stands still, and their sockets fill
                        process = engine.process if what == "stop" else server.process
                        process.send_signal(signal.SIGSTOP)
                        time.sleep(draw.uniform(0.1, 2))
                        process.send_signal(signal.SIGCONT)
                results = load.end()
                right = sum(text == expected[i] for i, text in results)
                errors = [text for i, text in results if text != expected[i]]
                check(all(isinstance(text, tuple) and text[0] == "error" and text[1] for text in errors),
                      f"wrong, or without a word: {[e for e in errors if not (isinstance(e, tuple) and e[0] == 'error')][:5]}")
                check(right > len(results) / 4, f"{right} of {len(results)} were answered: {errors[:5]}")
                eventually(lambda: all(ask(server, i, False) == expected[i] for i in range(8)), "all is well afterwards")
                for rank, engine in enumerate(engines):
                    eventually(engine.is_ready, f"engine {rank} is back")
                eventually(lambda: server.metric("vllm:kv_cache_usage_perc") == 0 and server.metric("vllm:num_requests_running") == 0,
                           "all blocks are free again")
                print(f"{len(results)} requests, {right} answered, {len(errors)} refused in words; {len(done)} blows: "
                      + ", ".join(f"{done.count(w)} {w}" for w in sorted(set(done))))
        finally:
            for engine in engines:
                engine.process.send_signal(signal.SIGCONT)
                engine.kill()


def rolling_restart(expected):
    with tempfile.TemporaryDirectory() as folder:
        addresses = [f"unix:{folder}/{rank}" for rank in range(2)]
        engines = [Engine(address) for address in addresses]
        flags = [word for address in addresses for word in ("--engine", address)]
        try:
            with Server(QUIRE, MODEL, *COMMON, *flags) as server:
                load = Load(server, 6, SEED)
                for _ in range(2):
                    for rank, engine in enumerate(engines):
                        time.sleep(0.5)
                        engine.finish()
                        engine.start()
                        eventually(engine.is_ready, f"engine {rank} is back")
                        time.sleep(0.5)  # its answer reaches the server
                results = load.end()
                failed = [(QUESTIONS[i], text) for i, text in results if text != expected[i]]
                check(not failed, f"a rolling restart failed {len(failed)} of {len(results)} requests: {failed[:3]}")
                print(f"rolling restart, twice: {len(results)} requests, none failed")
        finally:
            for engine in engines:
                engine.kill()


with Server(QUIRE, MODEL, *COMMON) as server:
    expected = [ask(server, i, False) for i in range(len(QUESTIONS))]
    check(all(isinstance(text, str) for text in expected), "undisturbed answers")
rolling_restart(expected)
storm(expected)
print("engine_storm_test: ok")
