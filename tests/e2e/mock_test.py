#!/usr/bin/env python3
"""`quire serve --device mock`: tokens come by the clock, and what only logits give is refused by name.

    tests/e2e/mock_test.py build/release/app/quire
"""
import json
import subprocess
import sys
import time
import urllib.error

from serve_process import Server, check

SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


def refused(server, path, words, **body):
    try:
        answer = server.post(path, **body)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        check(f"{path} {body}: 400 that says {words}, not {error.code} {text}", error.code == 400 and words in text and "--device mock" in text)
    else:
        check(f"{path} {body} is refused, not {answer}", False)


def tokens(server):
    answer = server.post("/v1/completions", prompt="What", max_tokens=8, n=3)
    check(f"as many tokens as were asked for: {answer}", [one["text"] for one in answer["choices"]] == ["What" * 8] * 3)
    check("usage", answer["usage"]["completion_tokens"] == 24 and answer["usage"]["prompt_tokens"] == 1)
    check("the fingerprint says that nothing computed this", answer["system_fingerprint"].endswith("-mock"))
    text = server.ask("/v1/completions", {"model": "m", "prompt": "What", "max_tokens": 5, "stream": True})
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    check(f"a stream: {text}", "".join(one["choices"][0]["text"] for one in events) == "What" * 5 and "data: [DONE]" in text)


def refusals(server):
    chat = [{"role": "user", "content": "a"}]
    refused(server, "/v1/completions", "logprobs", prompt="a", logprobs=2)
    refused(server, "/v1/completions", "logprobs", prompt="a", logprobs=2, stream=True)
    refused(server, "/v1/completions", "prompt_logprobs", prompt="a", prompt_logprobs=1)
    refused(server, "/v1/chat/completions", "logprobs", messages=chat, logprobs=True)
    refused(server, "/v1/chat/completions", "schema", messages=chat, response_format=SCHEMA)
    refused(server, "/v1/chat/completions", "schema", messages=chat, response_format=SCHEMA, n=2)
    tokens(server)


def clock(server):
    started = time.monotonic()
    server.post("/v1/completions", prompt="What", max_tokens=20)
    took = time.monotonic() - started
    check(f"20 tokens 10 ms apart take 0.2 s, not {took}", 0.19 < took < 5)


def pooling(quire):
    for model, flags, said in (("models/quire-tiny", ["--runner", "pooling"], "--runner: has no effect with --device mock"),
                               ("tests/data/pooling/qwen3-embedding", [], "--runner generate")):
        run = subprocess.run([quire, "serve", model, "--device", "mock", "--host", "127.0.0.1", "--port", "0", *flags],
                             capture_output=True, text=True, timeout=60)
        check(f"no vectors of a mock: {run.stderr}", run.returncode != 0 and said in run.stderr)


def main(quire):
    with Server(quire, "models/quire-tiny", "--device", "mock") as server:
        tokens(server)
        refusals(server)
    with Server(quire, "models/quire-tiny", "--device", "mock", "--mock-step-us", "10000") as server:
        clock(server)
    pooling(quire)
    print("mock ok")


if __name__ == "__main__":
    main(sys.argv[1])
