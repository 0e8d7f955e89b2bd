#!/usr/bin/env python3
"""What a model may be called in requests, and what a start says to machines.

    tests/e2e/model_names_test.py build/release/app/quire
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from serve_process import Server, check, expect, free_port

QUIRE, TINY = sys.argv[1], "models/quire-tiny"
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


def status(server, model):
    try:
        server.post("/v1/chat/completions", **{**BODY, "model": model})
        return 200
    except urllib.error.HTTPError as error:
        return error.code


def names():
    whole = os.path.abspath(TINY)
    for given in (TINY, whole, f"{TINY}/"):
        with Server(QUIRE, given, "--device", "mock", name=None) as server:
            listed = [model["id"] for model in json.loads(server.ask("/v1/models"))["data"]]
            expect(f"listed of {given}", listed, ["quire-tiny"])
            for model, wanted in ((given, 200), ("quire-tiny", 200), ("", 200), ("tiny", 404), ("/models/quire-tiny", 404)):
                expect(f"status of {model!r}, serving {given}", status(server, model), wanted)
            expect("the reply's name", server.post("/v1/chat/completions", **{**BODY, "model": given})["model"], given)
            path = urllib.parse.quote(given, safe="/")
            expect(f"the card of {given}", json.loads(server.ask(f"/v1/models/{path}"))["id"], given)
    with Server(QUIRE, TINY, "--device", "mock", name="m") as server:
        expect("only the name that was given", [status(server, model) for model in ("m", TINY, "quire-tiny")], [200, 404, 404])


def start_says_json():
    port = free_port()
    command = [QUIRE, "serve", TINY, "--device", "mock", "--host", "[::1]", "--port", str(port), "--log-format", "json"]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=out, stderr=log, text=True)
        try:
            for _ in range(600):
                time.sleep(0.05)
                try:
                    with urllib.request.urlopen(f"http://[::1]:{port}/health", timeout=5):
                        break
                except (urllib.error.URLError, OSError):
                    check("it starts", server.poll() is None, log.seek(0) or log.read())
        finally:
            server.terminate()
            server.wait(60)
        out.seek(0)
        log.seek(0)
        lines = [json.loads(line) for line in (out.read() + log.read()).splitlines()]
        check("a line says where it listens", any(line.get("address") == f"http://[::1]:{port}" for line in lines), lines)


def keys():
    def ends(*flags, key=None):
        environment = {**os.environ, **({"VLLM_API_KEY": key} if key is not None else {})}
        run = subprocess.run([QUIRE, "serve", TINY, "--device", "mock", "--port", "0", *flags], capture_output=True, text=True,
                             timeout=60, env=environment)
        return run.returncode, run.stdout + run.stderr

    for flags, key in ((("--api-key", " k "), None), (("--api-key", "k\tk"), None), ((), "k "), (("--admin-api-key", " k"), None)):
        code, text = ends(*flags, key=key)
        check(f"{flags} {key!r}: {text}", code == 105 and "must not begin or end with a blank" in text)
    os.environ["VLLM_API_KEY"] = "k\n"
    try:
        server = Server(QUIRE, TINY, "--device", "mock")
    finally:
        del os.environ["VLLM_API_KEY"]
    with server:
        request = urllib.request.Request(server.base + "/v1/models", headers={"Authorization": "Bearer k"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            expect("a key without its file's line end", reply.status, 200)


def main():
    names()
    start_says_json()
    keys()
    print("passed")


if __name__ == "__main__":
    main()
