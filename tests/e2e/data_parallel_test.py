#!/usr/bin/env python3
"""Two engines on one CPU divide it: `quire plan`, /v1/models and /metrics say the same of each.

    tests/e2e/data_parallel_test.py build/release/app/quire
"""
import json
import re
import subprocess
import sys

from serve_process import Server, expect, num_expected

MODEL = "models/quire-tiny"


def plan(quire, *flags):
    asked = subprocess.run([quire, "plan", MODEL, "--device", "cpu", "--json", *flags], capture_output=True, text=True)
    return json.loads(asked.stdout)


def of_engines(server, name, field):
    """The label of that name of each engine's series, by engine."""
    series = re.findall(rf"^{re.escape(name)}{{(.*)}} \S+$", server.ask("/metrics"), re.M)
    labels = [dict(re.findall(r'(\w+)="([^"]*)"', text)) for text in series]
    return [label[field] for label in sorted(labels, key=lambda label: label["engine"])]


def run(quire, *flags):
    alone = plan(quire, *flags)
    planned = plan(quire, "--data-parallel-size", "2", *flags)
    expect("device bytes", planned["device_bytes"], alone["device_bytes"] // 2)
    expect("KV cache of both", 2 * planned["kv_cache_bytes"] <= alone["kv_cache_bytes"] or "--max-model-len" in flags[0], True)
    expect("threads", planned["cpu_threads"], max(1, alone["cpu_threads"] // 2))
    sizes = planned["plan"]
    with Server(quire, MODEL, "--device", "cpu", "--data-parallel-size", "2", *flags) as server:
        engines = json.loads(server.ask("/v1/models"))["data"][0]["engines"]
        expect("engines", len(engines), 2)
        for engine in engines:
            for field in ("num_gpu_blocks", "block_size", "max_model_len", "kv_cache_size_tokens"):
                expect(f"/v1/models {field}", engine[field], sizes[field])
        for field in ("num_gpu_blocks", "block_size", "max_model_len", "kv_cache_size_tokens"):
            expect(f"/metrics {field}", of_engines(server, "vllm:cache_config_info", field), [str(sizes[field])] * 2)
        cache = [float(value) for value in re.findall(r'^quire:memory_planned_bytes{[^}]*kv_cache[^}]*} (\S+)$',
                                                     server.ask("/metrics"), re.M)]
        if cache:
            expect("/metrics planned bytes", cache, [float(sizes["allocated_bytes"])] * 2)
        answer = server.post("/v1/chat/completions", temperature=0, max_tokens=20,
                             messages=[{"role": "user", "content": "What is 12 + 7?"}])
        expect("answer", answer["choices"][0]["message"]["content"], "12 + 7 = 19.")
        share = of_engines(server, "vllm:cache_config_info", "gpu_memory_utilization")
        used = next((flag.split("=")[1] for flag in flags if "utilization" in flag), "None")
        expect("share of memory", share, [used] * 2)


def main():
    quire = sys.argv[1]
    run(quire, "--kv-cache-memory-bytes=64MiB")
    run(quire, "--gpu-memory-utilization=0.02")
    run(quire, "--max-model-len=1024")
    print(f"{num_expected()} checks passed")


main()
