#!/usr/bin/env python3
"""A conversation of 2,000 tokens with the shipped hybrid model through the server: what each reply says was found in the cache,
and that /metrics counts the same.

    tests/e2e/conversation_test.py build/release/app/quire
"""
import sys

from serve_process import Server, check


def say(server, messages):
    reply = server.post("/v1/chat/completions", messages=messages, temperature=0, max_tokens=64)
    usage = reply["usage"]
    return reply["choices"][0]["message"]["content"] or "", usage, usage["prompt_tokens_details"]["cached_tokens"]


def main():
    quire = sys.argv[1]
    facts = " ".join(f"The code for room {i} is {'amber falcon cedar harbor violet'.split()[i % 5]}." for i in range(190))
    questions = ["What is Quire?", "What is the code for room 7?", "Who are you?"]
    with Server(quire, "models/quire-tiny-hybrid", "--dtype", "float32") as server, \
         Server(quire, "models/quire-tiny-hybrid", "--no-enable-prefix-caching", "--dtype", "float32") as uncached:
        labels = server.labels("vllm:cache_config_info")
        block = int(labels["mamba_block_size"])
        check("the mode that runs is reported: " + labels["mamba_cache_mode"], labels["mamba_cache_mode"] == "adaptive")
        messages = [{"role": "system", "content": facts}]
        before, sent, found = 0, 0, 0
        for question in questions:
            messages.append({"role": "user", "content": question})
            answer, usage, cached = say(server, messages)
            check("the answer is that of a server without cache", answer == say(uncached, messages)[0])
            print(f"{usage['prompt_tokens']} tokens, {cached} of them cached, block {block}")
            if before:  # the last turn's end marker was drawn and not computed: it is new text
                check("less than a block is computed again", cached > before - 1 - block)
            before = usage["total_tokens"]
            sent, found = sent + usage["prompt_tokens"], found + cached
            messages.append({"role": "assistant", "content": answer})
        check("a conversation of 2,000 tokens", before >= 2000)
        check("the counters of /metrics", (server.metric("vllm:prefix_cache_queries_total"),
                                           server.metric("vllm:prefix_cache_hits_total")) == (sent, found))
        check("nothing is counted without a cache", uncached.metric("vllm:prefix_cache_hits_total") == 0)


main()
