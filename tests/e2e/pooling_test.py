#!/usr/bin/env python3
"""Embedding and scoring models through a whole server, against what tests/model/pooling_reference.py computed.

    tests/e2e/pooling_test.py build/release/app/quire
"""
import base64
import json
import math
import pathlib
import struct
import subprocess
import sys
import urllib.error

from serve_process import Server, check

DATA = pathlib.Path("tests/data/pooling")
QWEN = DATA / "qwen3-embedding"
FLAGS = ["--device", "cpu", "--dtype", "float32"]
RERANKER = ["--hf-overrides", '{"classifier_from_token": ["n", "y"], "is_original_qwen3_reranker": true}']


def near(a, b, within=2e-5):
    return len(a) == len(b) and all(abs(x - y) < within for x, y in zip(a, b))


def welcome(server, path):
    """The request that the server shows when it is ready is one that it answers."""
    line = server.process.stdout.readline
    command = next(text for text in iter(line, "") if text.lstrip().startswith("curl")) + line()
    check(f"{path} is shown: {command}", f"{server.base}{path} " in command)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    check(f"what is shown works: {command}{done.stdout}", "error" not in done.stdout and json.loads(done.stdout)["data"])


def counted(server, prompts, count):
    """`prompts` whose tokens are `count`, all of what the server was asked."""
    check("prompt tokens are counted", server.metric("vllm:prompt_tokens_total") == count)
    check("requests that worked", server.metric("vllm:request_success_total") == prompts)
    check("seconds of prompts", server.metric("vllm:request_prefill_time_seconds_sum") > 0)
    check("times to vectors", server.metric("vllm:time_to_first_token_seconds_count") == prompts)


def refused(server, path, words, status=400, **body):
    try:
        answer = server.post(path, **body)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        check(f"{path} {body}: {status} that says {words}, not {error.code} {text}", error.code == status and words in text)
    else:
        check(f"{path} {body} is refused, not {str(answer)[:200]}", False)


def vectors(answer):
    return [one["embedding"] for one in answer["data"]]


def embeddings(server, expected):
    texts = [one["text"] for one in expected["texts"]]
    answer = server.post("/v1/embeddings", input=texts)
    check("each text has its vector", all(near(a, b["embedding"]) for a, b in zip(vectors(answer), expected["texts"])))
    check("in order", [one["index"] for one in answer["data"]] == list(range(len(texts))))
    count = sum(len(one["ids"]) for one in expected["texts"])
    check("usage", answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == count)
    counted(server, len(texts), count)
    for one in expected["texts"]:
        by_ids = server.post("/v1/embeddings", input=one["ids"])
        check("token ids", near(vectors(by_ids)[0], one["embedding"]))
    check("lists of token ids", len(vectors(server.post("/v1/embeddings", input=[one["ids"] for one in expected["texts"]]))) == len(texts))
    coded = server.post("/v1/embeddings", input=texts[0], encoding_format="base64")["data"][0]["embedding"]
    raw = base64.b64decode(coded, validate=True)
    check("base64 is little-endian float32", near(struct.unpack(f"<{len(raw) // 4}f", raw), expected["texts"][0]["embedding"]))
    again = server.post("/v1/embeddings", input=texts * 40)
    check("a batch larger than what runs at a time", len(vectors(again)) == 40 * len(texts) and near(vectors(again)[-1], vectors(answer)[-1]))
    plain = vectors(server.post("/v1/embeddings", input=texts[0], use_activation=False))[0]
    length = math.sqrt(sum(x * x for x in plain))
    check("not of length 1 where that is not wanted", abs(length - 1) > 0.05 and near([x / length for x in plain], vectors(answer)[0]))


def refusals(server):
    for body, words in (({"input": []}, "input"), ({"input": ""}, "input"), ({}, "input"), ({"input": {"a": 1}}, "input"),
                        ({"input": "a", "encoding_format": "bytes"}, "encoding_format"), ({"input": "a", "encoding_format": 5}, "encoding_format"),
                        ({"input": "a", "dimensions": 8}, "Matryoshka"), ({"input": "a", "dimensions": 0}, "dimensions"),
                        ({"input": [1, 5000]}, "5000"), ({"input": "a b" * 200}, "256"), ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
                        ({"input": "a", "messages": []}, "messages"), ({"input": ["a", 5]}, "input[1]")):
        if body == {"input": ""}:
            continue  # the end token alone: a text of no words
        refused(server, "/v1/embeddings", words, **body)
    refused(server, "/v1/embeddings", '"param":"input"', input=[1, -2])
    refused(server, "/v1/embeddings", "does not exist", 404, model="other", input="a")
    for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}), ("/v1/completions", {"prompt": "a"}),
                       ("/v1/responses", {"input": "a"}), ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
                       ("/inference/v1/generate", {"token_ids": [1], "sampling_params": {}})):
        refused(server, path, "pooling model", **body)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b))


def similarity(server, expected):
    texts = [one["text"] for one in expected["texts"]]
    query, *rest = [one["embedding"] for one in expected["texts"]]
    scores = [one["score"] for one in server.post("/score", text_1=texts[0], text_2=texts[1:])["data"]]
    check("the score of two embeddings is their cosine", near(scores, [cosine(query, v) for v in rest]))
    short = ["hello", "one two", "1 2 3"]  # rounding takes these beyond 1
    same = [one["score"] for one in server.post("/score", text_1=short, text_2=short)["data"]]
    check(f"no cosine is beyond 1: {same}", all(score <= 1 for score in same) and near(same, [1] * len(short)))
    ranked = server.post("/v1/rerank", query=texts[0], documents=texts[1:], top_n=2)["results"]
    best = sorted(range(len(scores)), key=lambda i: -scores[i])[:2]
    check("the best first", [one["index"] for one in ranked] == best and ranked[0]["document"]["text"] == texts[1:][best[0]])


def scores(server, expected):
    documents = [one["document"] for one in expected["pairs"]]
    wanted = [one["score"] for one in expected["pairs"]]
    for path in ("/score", "/v1/score"):
        answer = server.post(path, text_1=expected["query"], text_2=documents)
        check(f"{path}: as the reference", near([one["score"] for one in answer["data"]], wanted))
    check("usage", answer["usage"]["prompt_tokens"] == sum(len(one["ids"]) for one in expected["pairs"]))
    pairs = server.post("/score", text_1=[expected["query"]] * 2, text_2=documents[:2])
    check("pair by pair", near([one["score"] for one in pairs["data"]], wanted[:2]))
    raw = server.post("/score", text_1=expected["query"], text_2=documents, use_activation=False)
    check("logits", near([one["score"] for one in raw["data"]], [one["logit"] for one in expected["pairs"]], 2e-4))
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        results = server.post(path, query=expected["query"], documents=[{"text": d} for d in documents])["results"]
        check(f"{path}: all, the best first", [one["index"] for one in results] == sorted(range(len(wanted)), key=lambda i: -wanted[i]))
    bare = server.post("/rerank", query=expected["query"], documents=documents, return_documents=False)["results"]
    check("documents that nobody wants back", len(bare) == len(documents) and all("document" not in one for one in bare))
    for path, body, words in (("/rerank", {"query": "a", "documents": ["b"], "max_tokens_per_doc": 5}, "max_tokens_per_doc"),
                              ("/score", {"text_1": "a", "text_2": "b", "instruction": "c"}, "instruction"),
                              ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"), ("/score", {"text_1": "a"}, "text_2"),
                              ("/rerank", {"query": "a", "documents": []}, "documents"), ("/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
                              ("/v1/embeddings", {"input": "a"}, "no embeddings")):
        refused(server, path, words, **body)


def shorter(server, expected):
    whole = expected["texts"][0]["embedding"][:8]
    length = math.sqrt(sum(x * x for x in whole))
    cut = vectors(server.post("/v1/embeddings", input=expected["texts"][0]["text"], dimensions=8))[0]
    check("the first numbers, of length 1 again", near(cut, [x / length for x in whole]))
    refused(server, "/v1/embeddings", "1 to 32", input="a", dimensions=33)


def mean(server, expected):
    answer = server.post("/v1/embeddings", input=[one["text"] for one in expected["texts"]])
    check("the mean of all hidden states", all(near(a, b["mean"]) for a, b in zip(vectors(answer), expected["texts"])))


def plans(quire):
    text = subprocess.run([quire, "plan", str(QWEN), "--device", "cpu"], capture_output=True, text=True).stdout
    check(f"the plan says that it pools: {text}", "embed: the last token's hidden state, of length 1" in text)
    for flags, words in ((["--runner", "generate", "--pooler-config", '{"pooling_type": "MEAN"}'], "--pooler-config"),
                         (["--pooler-config", '{"pooling_type": "STEP"}'], "LAST"), (["--hf-overrides", '{"a": 1}'], "classifier_from_token"),
                         (["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2}'], "--speculative-config"),
                         (["--runner", "nothing"], "pooling")):
        run = subprocess.run([quire, "plan", str(QWEN), "--device", "cpu", *flags], capture_output=True, text=True)
        check(f"{flags} is refused: {run.stdout}{run.stderr}", run.returncode != 0 and words in run.stdout + run.stderr)


def bench(quire):
    """Prompts alone are timed, unless generation is asked for."""
    command = [quire, "bench", str(QWEN), "--device", "cpu", "-p", "8", "-r", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100)
    check(f"prompts are timed: {run.stdout}{run.stderr}", run.returncode == 0 and "pp8" in run.stdout and "tg" not in run.stdout)
    run = subprocess.run([*command, "-n", "4"], capture_output=True, text=True, timeout=100)
    check(f"generation is refused: {run.stderr}", run.returncode != 0 and "-n" in run.stderr and "pooling model" in run.stderr)


def generating(quire):
    with Server(quire, "models/quire-tiny", "--device", "cpu") as server:
        for path, body in (("/v1/embeddings", {"input": "a"}), ("/score", {"text_1": "a", "text_2": "b"}), ("/rerank", {"query": "a", "documents": ["b"]})):
            refused(server, path, "--runner pooling", **body)


def main(quire):
    expected = json.loads((QWEN / "expected.json").read_text())
    with Server(quire, QWEN, *FLAGS, "--max-num-seqs", "8", "--max-num-batched-tokens", "16") as server:
        for part in (embeddings, similarity):  # the first counts from nothing
            part(server, expected)
        refusals(server)
    with Server(quire, QWEN, *FLAGS, "--hf-overrides", '{"is_matryoshka": true}') as server:
        shorter(server, expected)
    with Server(quire, QWEN, *FLAGS, "--pooler-config", '{"pooling_type": "MEAN"}') as server:
        mean(server, expected)
        welcome(server, "/v1/embeddings")
    with Server(quire, QWEN, *FLAGS, *RERANKER) as server:
        scores(server, expected)
        welcome(server, "/score")
    plans(quire)
    bench(quire)
    generating(quire)
    print("pooling ok")


if __name__ == "__main__":
    main(sys.argv[1])
