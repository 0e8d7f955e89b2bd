#!/usr/bin/env python3
"""Weights that are no numbers, weights that are cut short while they are served, a machine that gives no threads.

    tests/e2e/damaged_model_test.py build/release/app/quire
"""
import json
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from serve_process import check

MODEL = "models/quire-tiny"
FLAGS = ["--num-gpu-blocks-override", "256", "--max-model-len", "1024", "--host", "127.0.0.1", "--port", "0"]


class Server:
    def __init__(self, quire, model):
        self.process = subprocess.Popen([quire, "serve", model, *FLAGS], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                self.address = address[0]
                return
        sys.exit("FAILED: the server did not start: " + self.process.stderr.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def get(self, path):
        return urllib.request.urlopen(self.address + path, timeout=30).read().decode()

    def complete(self, **members):
        body = {"prompt": "What is 12 + 7?", "max_tokens": 4, "temperature": 0, **members}
        request = urllib.request.Request(self.address + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def tensor_at(path, name):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        tensor = json.loads(file.read(size))[name]
    begin, end = tensor["data_offsets"]
    return tensor["dtype"], 8 + size + begin, end - begin


def not_numbers(quire, model):
    path = model + "/model.safetensors"
    dtype, offset, size = tensor_at(path, "model.norm.weight")
    check("the model has the dtype that this test damages", dtype == "BF16")
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(b"\xc0\x7f" * (size // 2))  # NaN
    with Server(quire, model) as server:
        for members in ({}, {"temperature": 1.0, "top_p": 0.9, "seed": 1}, {"logprobs": 3}, {"presence_penalty": 1.0}):
            status, text = server.complete(**members)
            check(f"an answer that is no number is an error, not {status} {text}",
                  status == 500 and "the model's output is not a number" in text)
        status, text = server.complete(stream=True)
        check(f"in a stream too, not {status} {text}", "the model's output is not a number" in text)
        check("it is counted", re.search(r'vllm:request_success_total\{[^}]*finished_reason="error"[^}]*\} 5', server.get("/metrics")))
        check("the server lives on", server.get("/health") is not None)


def cut_short(quire, model):
    with Server(quire, model) as server:
        check("it answers", server.complete()[0] == 200)
        os.truncate(model + "/model.safetensors", 4096)
        try:
            server.complete()
        except OSError:
            pass  # it ended
        check("a file that was cut short ends the process with its own code", server.process.wait(timeout=30) == 6)
        said = server.process.stderr.read()
        check("and a sentence that names it: " + said,
              "model.safetensors was in use and cannot be read any more" in said)


def few_threads(quire):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (60 << 20, 60 << 20))

    def alone(*command):
        return subprocess.run([quire, *command], capture_output=True, text=True, timeout=60, preexec_fn=limit)

    if alone("version").returncode != 0:
        return print("a sanitizer's shadow does not fit the limit: skipped")
    run = alone("serve", MODEL, *FLAGS)
    check("without memory a start ends: " + run.stderr, run.returncode == 1 and "error=" in run.stderr)
    check("in words: " + run.stderr, "Resource temporarily" not in run.stderr and "bad_alloc" not in run.stderr)


def main():
    quire = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for test in (not_numbers, cut_short):
            model = f"{folder}/{test.__name__}"
            shutil.copytree(MODEL, model)
            test(quire, model)
    few_threads(quire)
    print("passed")


if __name__ == "__main__":
    main()
