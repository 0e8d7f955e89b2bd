#!/usr/bin/env python3
"""Serves a model in several configurations and asks its evaluation set; the answers may not depend on the configuration.

    tests/eval/eval.py build/release/app/quire models/quire-tiny [models/quire-tiny-hybrid] [--configurations base,pool]

A line whose reference had a lead of at least 0.25 at every token must give the reference's text (models/README.md);
another text is a lost state, a wrong block or a mixed request. Prints a row per configuration: lines equal to the
reference, those among them that must be, right answers, valid calls of all that were made, preemptions and prefix hits as /metrics counts them.
"""
import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import re
import socket
import subprocess
import sys
import time

MARGIN = 0.25
# name: flags of `quire serve`, requests at a time, rounds over the set (the second one hits the cache), needs preemptions
CONFIGURATIONS = {
    "base": (["--no-enable-prefix-caching"], 1, 1, False),
    "batch 32": (["--no-enable-prefix-caching"], 32, 1, False),
    "cache": ([], 1, 2, False),
    "cache, batch 32": ([], 32, 2, False),
    "chunks of 48 tokens": (["--max-num-batched-tokens", "48", "--max-num-seqs", "16"], 16, 1, False),
    "one chunk": (["--max-num-batched-tokens", "8192"], 8, 1, False),
    "tiny pool": (["--num-gpu-blocks-override", "POOL", "--max-model-len", "LENGTH"], 32, 1, True),
    "f32": (["--dtype", "float32"], 8, 1, False),
    "2 ranks": (["--tensor-parallel-size", "2"], 8, 2, False),
    "fp8 cache": (["--kv-cache-dtype", "fp8"], 8, 2, False),
}
# Drafts, as many as pay and always as many as can be: 8 requests at a time, twice. By model: who drafts, and the folder to serve
# instead.
DRAFTS = {
    "quire-tiny": {
        "ngram": ({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}, None),
        "eagle": ({"method": "eagle", "model": "models/drafts/quire-tiny-eagle", "num_speculative_tokens": 3}, None),
        "eagle3": ({"method": "eagle3", "model": "models/drafts/quire-tiny-eagle3", "num_speculative_tokens": 3}, None),
    },
    "quire-tiny-hybrid": {
        "ngram": ({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}, None),
        "mtp": ({"method": "mtp", "num_speculative_tokens": 3}, "models/drafts/quire-tiny-hybrid-mtp"),
    },
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, quire, model, flags):
        self.port = free_port()
        self.process = subprocess.Popen([quire, "serve", model, "--port", str(self.port), "--served-model-name", "m", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def __enter__(self):
        for _ in range(600):
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health")[0] == 200:
                    return self
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.process.kill()
        sys.exit("the server did not start:\n" + self.process.stdout.read().decode())

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=60)
        if self.process.returncode != 0:
            sys.exit(f"the server ended with {self.process.returncode}")

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read().decode()
        connection.close()
        return reply.status, body

    def chat(self, line):
        body = {"model": "m", "messages": line["messages"], "temperature": 0, "max_tokens": line["max_tokens"],
                "chat_template_kwargs": line["kwargs"]}
        if line["tools"]:
            body["tools"] = line["tools"]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        connection.close()
        if reply.status != 200:
            return {"error": answer}
        message = answer["choices"][0]["message"]
        calls = [{"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])}
                 for c in message.get("tool_calls") or []]
        return {"content": (message.get("content") or "").strip(), "reasoning": (message.get("reasoning") or "").strip(),
                "calls": calls}

    def metric(self, name):
        return sum(float(v) for v in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics")[1], re.M))


def normal(answer):
    calls = [{"name": c["name"], "arguments": c["arguments"] if isinstance(c["arguments"], dict) else json.loads(c["arguments"])}
             for c in answer.get("calls", [])]
    return {"content": answer["content"].strip(), "reasoning": answer["reasoning"].strip(), "calls": calls}


def valid_calls(line, answer):
    """How many calls the answer has, and how many of them are of a tool and with arguments of its schema. The sets' parameters are flat
    objects of strings and integers."""
    kinds = {"string": str, "integer": int}
    tools = {t["function"]["name"]: t["function"]["parameters"] for t in line["tools"] or []}
    calls = answer.get("calls", [])

    def fits(call):
        wanted = tools.get(call["name"])
        return wanted is not None and set(wanted.get("required", [])) <= set(call["arguments"]) <= set(wanted["properties"]) and all(
            type(value) is kinds[wanted["properties"][key]["type"]] for key, value in call["arguments"].items())

    return len(calls), sum(map(fits, calls))


def tiny_pool(quire, model, lines):
    """The longest line's length, and a quarter more than the smallest pool that takes one such request: with 32 at a time
    some must wait or lose their blocks."""
    longest = max(len(line["prompt_ids"]) + line["max_tokens"] for line in lines)

    def accepted(blocks):
        command = [quire, "plan", model, "--max-model-len", str(longest), "--num-gpu-blocks-override", str(blocks)]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    blocks = 2
    while not accepted(blocks):
        blocks += 1
    return longest, blocks + blocks // 4


def configurations_of(model):
    """All of CONFIGURATIONS, and the model's drafts in their form, with the folder to serve."""
    rows = {name: (model, *row) for name, row in CONFIGURATIONS.items()}
    for name, (config, folder) in DRAFTS.get(pathlib.Path(model).name, {}).items():
        for more, flags in (("", []), (", fixed", ["--deterministic", "--device", "cpu"])):
            rows[name + more] = (folder or model, ["--speculative-config", json.dumps(config), *flags], 8, 2, False)
    return rows


def evaluate(quire, model, lines, name):
    model, flags, parallel, rounds, preempts = configurations_of(model)[name]
    if preempts:
        longest, blocks = tiny_pool(quire, model, lines)
        flags = [f.replace("POOL", str(blocks)).replace("LENGTH", str(longest)) for f in flags]
    with Server(quire, model, flags) as server, concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        # Who loses its blocks depends on when requests arrive: tried until it happens.
        for _ in range(20 if preempts else rounds):
            answers = list(pool.map(server.chat, lines))
            if preempts and server.metric("vllm:num_preemptions_total") > 0:
                break
        hits = server.metric("vllm:prefix_cache_hits_total")
        preemptions = server.metric("vllm:num_preemptions_total")
    same = [a == normal(line["reference"]) for a, line in zip(answers, lines)]
    must = [line["margin"] >= MARGIN for line in lines]
    right = sum(a == normal(line["expected"]) for a, line in zip(answers, lines))
    wrong = [i for i, (s, m) in enumerate(zip(same, must)) if m and not s]
    counts = [valid_calls(line, a) for line, a in zip(lines, answers)]
    made, valid = (sum(pair) for pair in zip(*counts))
    print(f"{name:<22}{sum(same):>6}/{len(lines)}{sum(m and s for s, m in zip(same, must)):>7}/{sum(must)}"
          f"{right:>8}{f'{valid}/{made}':>10}{hits:>10.0f}{preemptions:>9.0f}", flush=True)
    if valid < made:
        print("  calls of no tool, or with arguments that do not fit")
    for i in wrong[:3]:
        print(f"  line {i + 1}: {json.dumps(answers[i])[:300]}\n  should be {json.dumps(normal(lines[i]['reference']))[:300]}")
    if rounds > 1 and hits == 0:
        print("  the second round hit nothing in the prefix cache")
    if preempts and preemptions == 0:
        print("  nothing was preempted")
    return bool(wrong) or valid < made or (rounds > 1 and hits == 0) or (preempts and preemptions == 0)


def has_devices(name):
    """A machine with one GPU serves on it, and has none for a second rank."""
    one_gpu = len(list(pathlib.Path("/dev").glob("nvidia[0-9]*"))) == 1
    if name == "2 ranks" and one_gpu:
        print(f"{name:<22}left out: this machine has one GPU", flush=True)
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--configurations", help="names of the rows, comma separated (a comma within a name as ;); without it all")
    parser.add_argument("--lines", type=int, default=0, help="only so many lines of each set")
    options = parser.parse_args()
    failed = False
    for model in options.models:
        lines = [json.loads(l) for l in (pathlib.Path(model) / "eval.jsonl").read_text().splitlines()]
        lines = lines[:options.lines] if options.lines else lines
        print(f"\n{model}\n{'configuration':<22}{'same':>10}{'must':>10}{'right':>9}{'calls':>9}{'hit tok':>11}{'preempt':>9}", flush=True)
        known = configurations_of(model)
        if options.configurations:
            asked = [n.replace(";", ",") for n in options.configurations.split(",")]
        else:
            asked = [name for name in known if has_devices(name)]
        for name in asked:
            if name in known:
                failed |= evaluate(options.quire, model, lines, name)
    sys.exit(1 if failed else 0)


main()
