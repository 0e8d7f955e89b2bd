"""quire serve with engines in other processes: same answers, an engine that is killed or stopped under load, its return."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serve_process import Server, check, eventually, free_port

QUIRE, MODEL = sys.argv[1], "models/quire-tiny"
COMMON = ("--device", "cpu", "--cpu-threads", "1", "--max-num-seqs", "8", "--num-gpu-blocks-override", "200", "--max-model-len", "2048",
          "--deterministic")


class Engine:
    def __init__(self, address, *flags):
        self.command = [QUIRE, "engine", MODEL, "--listen", address, "--device", "cpu", "--cpu-threads", "1", *flags]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def send(self, number):
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        assert self.process.wait(timeout=30) is not None


def answer(server, text="What is 12 + 7?", **more):
    reply = server.post("/v1/chat/completions", messages=[{"role": "user", "content": text}], temperature=0, **more)
    return reply["choices"][0]["message"]["content"]


def load(server, count):
    """Texts, or the error's status, of `count` requests at a time."""
    def one(i):
        try:
            return answer(server, f"What is {i} + 7?")
        except Exception as error:
            return getattr(error, "code", repr(error))
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def run(addresses, folder, secret=()):
    engines = [Engine(address, *secret) for address in addresses]
    flags = [word for address in addresses for word in ("--engine", address)]
    try:
        with Server(QUIRE, MODEL, *COMMON, *flags, *secret, "--engine-timeout", "1") as server:
            check("the answer of an engine in another process", answer(server) == expected)
            undisturbed = load(server, 8)
            for number in (signal.SIGKILL, signal.SIGSTOP):
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    running = pool.submit(load, server, 8)
                    time.sleep(0.02)
                    engines[0].send(number)
                    texts = running.result(timeout=60)
                check(f"requests under signal {number} are answered all the same: {texts}", texts == undisturbed)
                for _ in range(4):
                    check(f"the other engine after signal {number}", answer(server) == expected)
                if number == signal.SIGKILL:
                    engines[0].start()
                else:
                    time.sleep(1.5)
                    engines[0].send(signal.SIGCONT)
                time.sleep(1)
            engines[1].send(signal.SIGKILL)
            eventually("the first engine is back and alone",
                       lambda: all(text == right for text, right in zip(load(server, 8), undisturbed)))
            eventually("all blocks are free again", lambda: server.metric("vllm:kv_cache_usage_perc") == 0)
    finally:
        for engine in engines:
            if engine.process.poll() is None:
                engine.stop()


def refused(model, folder, *flags):
    """What `quire serve` says that must not start."""
    done = subprocess.run([QUIRE, "serve", str(model), "--port", "0", "--host", "127.0.0.1", *COMMON, *flags],
                          capture_output=True, text=True, timeout=60)
    check(f"it did not start: {done}", done.returncode != 0)
    return done.stderr


def another_model(folder):
    """An engine whose model is not the one of the server's folder: other weights, and another vocabulary's size."""
    address = f"unix:{folder}/another"
    engine = Engine(address)
    try:
        for name, change in (("weights", None), ("vocabulary", lambda config: config.update(vocab_size=config["vocab_size"] + 8))):
            other = pathlib.Path(folder, name)
            shutil.copytree(MODEL, other)
            config = json.loads((other / "config.json").read_text())
            if change:
                change(config)
            (other / "config.json").write_text(json.dumps(config))
            says = refused(other, folder, "--engine", address)
            check(f"another model is refused by name: {says}", ("vocab_size" if change else "model_fingerprint") in says)
        says = refused(MODEL, folder, "--engine", address, "--engine", address)
        check(f"an engine that is given twice: {says}", "given twice" in says)
    finally:
        engine.stop()


def traces(folder):
    """What log and metrics say of an engine that is lost and comes back."""
    addresses = [f"unix:{folder}/t{rank}" for rank in range(2)]
    engines = [Engine(address) for address in addresses]
    log = pathlib.Path(folder, "log")
    said = lambda word: word in log.read_text()
    ups = re.compile(r'^quire:engine_up{.*engine="(\d)".*} (\d)$', re.M)
    up = lambda server: [int(value) for _, value in sorted(ups.findall(server.ask("/metrics")))]  # by engine
    try:
        with log.open("w") as file, Server(QUIRE, MODEL, *COMMON, *[w for a in addresses for w in ("--engine", a)], "--engine-timeout", "1", log=file) as server:
            check("both engines are up", up(server) == [1, 1])
            engines[0].send(signal.SIGKILL)
            eventually("the log says that it is lost", lambda: said("engine.lost"))
            eventually("and so do the metrics", lambda: up(server) == [0, 1])
            engines[0].start()
            eventually("the log says that it is back", lambda: said("engine.back"))
            eventually("all are up again", lambda: up(server) == [1, 1])
    finally:
        for engine in engines:
            engine.stop()


def asked(server, path):
    """Status and body, also of a refusal."""
    try:
        return 200, server.ask(path)
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def restarts(folder, count):
    """Every engine is asked to end and started again, one after the other, while requests come."""
    addresses = [f"unix:{folder}/r{count}{rank}" for rank in range(count)]
    engines = [Engine(address) for address in addresses]
    log = pathlib.Path(folder, f"restarts{count}")
    ended, stop = [], threading.Event()

    def client(server):
        while not stop.is_set():
            try:
                ended.append(answer(server, max_tokens=20))
            except urllib.error.HTTPError as error:
                ended.append((error.code, error.read().decode()))
    try:
        with log.open("w") as file, Server(QUIRE, MODEL, *COMMON, *[w for a in addresses for w in ("--engine", a)], log=file) as server:
            right = answer(server, max_tokens=20)
            clients = [threading.Thread(target=client, args=(server,)) for _ in range(4)]
            for one in clients:
                one.start()
            for rank, engine in enumerate(engines):
                long = threading.Thread(target=answer, args=(server, "Count."), kwargs={"max_tokens": 1500, "ignore_eos": True, "n": 4})
                long.start()
                time.sleep(0.3)
                engine.process.terminate()
                eventually(f"the log says that engine {rank} leaves", lambda: log.read_text().count("engine.leaving") == rank + 1)
                if count == 1 and engine.process.poll() is None:
                    status, body = asked(server, "/health/ready")
                    check(f"a server whose only engine leaves is not ready: {status} {body}", status == 503 and "was asked to end" in body)
                    check("nor healthy", asked(server, "/health")[0] == 503)
                    check("nor is the engine up", server.metric("quire:engine_up") == 0)
                engine.process.wait(timeout=40)
                check("its socket has gone with it", not pathlib.Path(engine.command[4][5:]).exists())
                engine.start()
                eventually(f"engine {rank} is back", lambda: log.read_text().count("engine.back") == rank + 1)
                long.join()
            eventually("answers come again", lambda: len(ended) > 20)
            stop.set()
            for one in clients:
                one.join()
            check(f"a restart of {count} fails no request: {[one for one in ended if one != right][:3]}", set(ended) == {right})
    finally:
        stop.set()
        for engine in engines:
            engine.stop()


with Server(QUIRE, MODEL, *COMMON) as server:
    expected = answer(server)
with tempfile.TemporaryDirectory() as folder:
    another_model(folder)
    traces(folder)
    for count in (1, 2):
        restarts(folder, count)
with tempfile.TemporaryDirectory() as folder:
    run([f"unix:{folder}/{rank}" for rank in range(2)], folder)
    path = pathlib.Path(folder, "secret")
    path.write_text("a secret of this test\n")
    run([f"tcp://127.0.0.1:{free_port()}" for _ in range(2)], folder, ("--engine-secret-file", str(path)))
print("engine_process_test: ok")
