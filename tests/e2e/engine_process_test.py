"""quire serve with engines in other processes: same answers, an engine that is killed or stopped under load, its return."""
import concurrent.futures
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

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


with Server(QUIRE, MODEL, *COMMON) as server:
    expected = answer(server)
with tempfile.TemporaryDirectory() as folder:
    run([f"unix:{folder}/{rank}" for rank in range(2)], folder)
    path = pathlib.Path(folder, "secret")
    path.write_text("a secret of this test\n")
    run([f"tcp://127.0.0.1:{free_port()}" for _ in range(2)], folder, ("--engine-secret-file", str(path)))
print("engine_process_test: ok")
