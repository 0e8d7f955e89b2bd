#!/usr/bin/env python3
"""vLLM's parameters through a whole server with the shipped model: numbers that must agree with one another.

    tests/e2e/dialect_test.py build/release/app/quire
"""
import json
import os
import sys
import urllib.error

from serve_process import Server, check

TEXT = "Count from 1 to 5."
CHAT = [{"role": "user", "content": TEXT}]


def refused(server, path, member, **body):
    try:
        server.post(path, **body)
    except urllib.error.HTTPError as error:
        answer = json.loads(error.read())["error"]
        check(f"{member} is refused by name: {answer}", error.code == 400 and member in (answer["param"] or ""))
    else:
        check(f"{member} is refused", False)


def prompt_logprobs(server):
    ask = dict(prompt=TEXT, max_tokens=1, temperature=0)
    first = server.post("/v1/completions", **ask, prompt_logprobs=1)["choices"][0]["prompt_logprobs"]
    check("nothing predicts the first token", first[0] is None and len(first) > 1)
    again = server.post("/v1/completions", **ask, prompt_logprobs=1)["choices"][0]["prompt_logprobs"]
    check("a cached prefix changes nothing", [list(p or ()) for p in again] == [list(p or ()) for p in first])
    echo = server.post("/v1/completions", **ask | {"max_tokens": 0}, echo=True, logprobs=1)["choices"][0]
    check("echo of nothing but the prompt", echo["text"] == TEXT and echo["finish_reason"] == "length")
    own = [next(iter(position.values()))["logprob"] for position in first[1:]]
    check("echo has the same numbers", all(abs(a - b) < 1e-3 for a, b in zip(own, echo["logprobs"]["token_logprobs"][1:])))
    chat = server.post("/v1/chat/completions", messages=CHAT, max_tokens=1, prompt_logprobs=0)
    check("chat: one for each token", len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"])
    check("0: the token alone", all(len(position) == 1 for position in chat["prompt_logprobs"][1:]))


def logprobs(server):
    for count in (0, 1, 5):
        tops = server.post("/v1/completions", prompt=TEXT, max_tokens=5, logprobs=count)["choices"][0]["logprobs"]["top_logprobs"]
        check("the chosen token and the best ones", all(max(count, 1) <= len(top) <= count + 1 for top in tops))
        content = server.post("/v1/chat/completions", messages=CHAT, max_tokens=5, logprobs=True,
                              top_logprobs=count)["choices"][0]["logprobs"]["content"]
        check("of a chat as many as asked for", all(len(token["top_logprobs"]) == count for token in content))


def refusals(server):
    for path, ask in (("/v1/chat/completions", dict(messages=CHAT)), ("/v1/completions", dict(prompt=TEXT))):
        for member, value in (("prompt_logprobs", -1), ("prompt_logprobs", 21), ("priority", 3), ("seed", 1 << 70),
                              ("user", 5), ("truncate_prompt_tokens", 0), ("top_k", -2)):
            refused(server, path, member, **ask, **{member: value})
        refused(server, path, "prompt_logprobs", **ask, prompt_logprobs=1, stream=True)


TRANSFERS = {
    "do_remote_decode": {"do_remote_decode": True},
    "do_remote_prefill": {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 1, "remote_engine_id": "e",
                          "remote_request_id": "r", "remote_block_ids": [[1]]},
}
GENERATE = dict(token_ids=[1, 2], sampling_params={"max_tokens": 1})


def transfers(server):
    """A server without a connector keeps and fetches nothing, and says so wherever it is asked."""
    chat, text = dict(messages=CHAT, max_tokens=1), dict(prompt=TEXT, max_tokens=1)
    for name, params in TRANSFERS.items():
        member = "/kv_transfer_params/" + name
        refused(server, "/v1/chat/completions", member, **chat, kv_transfer_params=params)
        refused(server, "/v1/completions", member, **text, kv_transfer_params=params)
        refused(server, "/v1/completions", member, **text, kv_transfer_params=params, stream=True)
        refused(server, "/v1/responses", "kv_transfer_params", input=TEXT, kv_transfer_params=params)
        refused(server, "/inference/v1/generate", member, **GENERATE, kv_transfer_params=params)
        inner = dict(max_tokens=1, extra_args={"kv_transfer_params": params})
        refused(server, "/inference/v1/generate", member, token_ids=[1], sampling_params=inner)
        try:
            server.post("/v1/messages", **chat, kv_transfer_params=params)
        except urllib.error.HTTPError as error:
            check("messages refuse it in their form", error.code == 400 and name in json.loads(error.read())["error"]["message"])
        else:
            check("messages refuse it", False)
    nothing = {"do_remote_decode": False, "do_remote_prefill": False, "remote_host": None}
    for path, ask in (("/v1/chat/completions", chat), ("/v1/completions", text), ("/inference/v1/generate", GENERATE)):
        check("who asks for nothing is served", server.post(path, **ask, kv_transfer_params=nothing)["choices"])


with Server(sys.argv[1], "models/quire-tiny") as running:
    for part in (prompt_logprobs, logprobs, refusals, transfers):
        part(running)
        print(part.__name__, "ok")
if "QUIRE_TEST_ENGINES" not in os.environ:  # the mock has none elsewhere
    with Server(sys.argv[1], "models/quire-tiny", "--device", "mock") as running:
        transfers(running)
        print("transfers of the mock ok")
