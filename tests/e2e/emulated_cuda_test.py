#!/usr/bin/env python3
"""The whole server on the emulated CUDA backend answers as on the CPU backend, and says what it runs on.

Usage: emulated_cuda_test.py QUIRE_EMULATED
"""
import concurrent.futures
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = "models/quire-tiny"
FLAGS = ["--max-model-len", "512", "--max-num-seqs", "4", "--max-num-batched-tokens", "64", "--kv-cache-memory-bytes",
         "32MiB", "--no-enable-prefix-caching"]
SAFE_MARGIN = 0.25  # of a reference: no other order of summation gives another token


class Server:
    def __init__(self, quire, flags, environment=None):
        self.log = tempfile.NamedTemporaryFile(mode="a")  # appended to by the server, read by its name
        self.process = subprocess.Popen([quire, "serve", MODEL, "--host", "127.0.0.1", "--port", "0", *FLAGS, *flags],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, **(environment or {})})

    def __enter__(self):
        for line in self.process.stdout:
            if address := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(address[1])
                return self
        self.process.wait()
        sys.exit("the server did not start:\n" + self.log_text())

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)

    def log_text(self, until=""):
        """What it has logged; lines are written by a thread of their own, so `until` may take a moment."""
        for _ in range(100):
            text = Path(self.log.name).read_text()
            if until in text:
                break
            time.sleep(0.05)
        return text

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()

    # One request of several prompts: they run as a batch.
    def complete(self, prompts, max_tokens):
        status, text = self.ask("POST", "/v1/completions", {"model": "quire-tiny", "prompt": prompts, "temperature": 0,
                                                             "max_tokens": max_tokens})
        assert status == 200, text
        return [choice["text"] for choice in json.loads(text)["choices"]]


def short_prompts(count):
    with open(MODEL + "/eval.jsonl") as file:
        lines = [line for line in map(json.loads, file) if line["margin"] >= SAFE_MARGIN]
    lines.sort(key=lambda line: len(line["prompt_ids"]) + 4 * len(line["reference_ids"]))
    return [line["prompt_ids"] for line in lines[:count]]


def check_answers(quire):
    prompts = short_prompts(6)
    with Server(quire, ["--device", "cpu"]) as cpu:
        expected = cpu.complete(prompts, 48)
        assert "device=cpu" in cpu.log_text("device=cpu")
    assert all(expected) and len(set(expected)) > 1, expected
    for graphs in ([], ["--cudagraph-capture-sizes", "2"], ["--enforce-eager"]):
        with Server(quire, ["--device", "cuda", *graphs]) as cuda:
            assert "device=cuda:0" in cuda.log_text("device=cuda:0")
            assert ("engine.no_graphs" in cuda.log_text()) == ("--enforce-eager" in graphs)
            assert cuda.complete(prompts, 48) == expected, graphs
            assert [cuda.complete([prompt], 48)[0] for prompt in prompts[:2]] == expected[:2], graphs


def check_device_choice(quire):
    no_device = {"QUIRE_EMULATION_DEVICES": "0"}
    refused = subprocess.run([quire, "serve", MODEL, "--device", "cuda"], env={**os.environ, **no_device}, text=True,
                             capture_output=True, timeout=60)
    assert refused.returncode != 0 and "--device cuda: CUDA cannot be used" in refused.stderr, refused
    with Server(quire, ["--device", "auto"], no_device) as server:
        log = server.log_text("device=cpu")
        assert "device.cpu because" in log and "device=cpu" in log, log
        assert server.complete(["one two"], 4)
    with Server(quire, []) as server:
        assert "device=cuda:0" in server.log_text("device=cuda:0")
    too_many = subprocess.run([quire, "serve", MODEL, "--port", "0", "--dp", "2", *FLAGS], text=True, capture_output=True,
                              timeout=60)
    assert too_many.returncode != 0 and "there is no CUDA device 1: the machine has 1" in too_many.stderr, too_many


def check_refused_flags(quire):
    for flags in (["--device", "cpu", "--cudagraph-capture-sizes", "1"],
                  ["--device", "cuda", "--cudagraph-capture-sizes", "65"]):
        refused = subprocess.run([quire, "serve", MODEL, *FLAGS, *flags], text=True, capture_output=True, timeout=60)
        assert refused.returncode != 0 and flags[2] in refused.stderr, refused


# What was running ends with an error, /health turns red, and the server still answers and stops.
def check_device_loss(quire):
    with Server(quire, ["--device", "cuda", "--keep-after-engine-death"]) as server:
        assert server.ask("GET", "/health")[0] == 200
        with concurrent.futures.ThreadPoolExecutor() as pool:
            body = {"model": "quire-tiny", "prompt": "one two", "max_tokens": 400, "ignore_eos": True, "stream": True}
            streams = [pool.submit(server.ask, "POST", "/v1/completions", body) for _ in range(2)]
            while "vllm:num_requests_running" not in (metrics := server.ask("GET", "/metrics")[1]) or not re.search(
                    r"^vllm:num_requests_running\{.*\} 2", metrics, re.M):
                assert not any(stream.done() for stream in streams), "the requests ended before the device was lost"
            server.process.send_signal(signal.SIGUSR1)
            for status, text in (stream.result(timeout=60) for stream in streams):
                # An error instead of the stream, or as its last event.
                assert status in (200, 503) and '"error"' in text and "cudaErrorLaunchFailure" in text, text[-500:]
        status, text = server.ask("GET", "/health")
        assert status == 503, (status, text)
        status, text = server.ask("POST", "/v1/completions", {"model": "quire-tiny", "prompt": "one"})
        assert status == 503 and "dead" in text, (status, text)
        assert "engine.dead" in server.log_text("engine.dead")
    assert server.process.returncode is not None
    with Server(quire, ["--device", "cuda"]) as server:
        server.process.send_signal(signal.SIGUSR1)
        body = {"model": "quire-tiny", "prompt": "one two", "max_tokens": 40}
        status, text = server.ask("POST", "/v1/completions", body)
        assert status == 503 and "cudaErrorLaunchFailure" in text, (status, text)
        assert server.process.wait(timeout=30) == 4, server.process.returncode


def main():
    quire = sys.argv[1]
    check_answers(quire)
    check_device_choice(quire)
    check_refused_flags(quire)
    check_device_loss(quire)
    print("emulated_cuda_test: ok")


if __name__ == "__main__":
    main()
