#!/usr/bin/env python3
"""The cases of cuda_ops_perf in PyTorch, for comparison in the same run: one JSON object a line, under the same names."""
import json
import statistics

import torch
import torch.nn.functional as F

HEADS, KV_HEADS, DIM = 32, 8, 128


def seconds(body, repeats=9):
    body()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        body()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def report(name, body, peer, does=1, **rates):
    try:
        s = seconds(body) / does
    except Exception as error:  # a backend that does not take this shape
        print(json.dumps({"group": "torch", "name": name, "peer": peer, "failed": str(error).split("\n")[0]}), flush=True)
        return
    rates = {key: round(amount / s, 4) for key, amount in rates.items()}
    print(json.dumps({"group": "torch", "name": name, "peer": peer, "us": round(s * 1e6, 2), **rates}), flush=True)


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def attention():
    for tokens in (4096, 8192, 16384):
        q, k, v = random(1, HEADS, tokens, DIM), random(1, HEADS, tokens, DIM), random(1, HEADS, tokens, DIM)
        for backend in (torch.nn.attention.SDPBackend.CUDNN_ATTENTION, torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            with torch.nn.attention.sdpa_kernel(backend):
                report(f"prefill attention, causal, tokens {tokens}", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                       backend.name, tflop_s=2e-12 * tokens * tokens * HEADS * DIM)
    for batch, context in ((32, 4096), (128, 1024), (1, 65536)):
        q, k, v = random(batch, HEADS, 1, DIM), random(batch, KV_HEADS, context, DIM), random(batch, KV_HEADS, context, DIM)
        report(f"decode attention, batch {batch}, context {context}",
               lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), "SDPA, dense cache",
               gb_s=2e-9 * 2 * batch * context * KV_HEADS * DIM)


def rows():
    tokens, hidden, inner = 8192, 4096, 14336
    x, weight = random(tokens, hidden), random(hidden)
    norm = torch.compile(lambda x, weight: F.rms_norm(x, (hidden,), weight, 1e-6))
    report("rms_norm, bf16", lambda: norm(x, weight), "torch.compile", gb_s=4e-9 * tokens * hidden)
    gate_up = random(tokens, 2 * inner)
    gated = torch.compile(lambda g: F.silu(g[:, :inner]) * g[:, inner:])
    report("silu(gate) times up", lambda: gated(gate_up), "torch.compile", gb_s=6e-9 * tokens * inner)


def products():
    for n in (4096, 8192):
        a, b = random(n, n), random(n, n)
        report(f"cuBLASLt bf16, square of {n}", lambda: torch.matmul(a, b.T), "torch.matmul", tflop_s=2e-12 * n**3)
    for rows_, n, k in ((1, 28672, 4096), (8, 28672, 4096), (16, 28672, 4096)):
        x, weights = random(rows_, k), [random(n, k) for _ in range(3)]
        report(f"linear, rows {rows_}, {k} to {n}", lambda: [F.linear(x, w) for w in weights], "F.linear", does=3, gb_s=2e-9 * n * k)


def sampling():
    logits = torch.randn(256, 128256, device="cuda")

    def top_p():
        p, ids = torch.softmax(logits, -1).sort(-1, descending=True)
        p[p.cumsum(-1) - p > 0.9] = 0
        return ids.gather(1, torch.multinomial(p, 1))

    size = 4e-9 * logits.numel()
    report("sample, 256 rows of 128256, greedy", lambda: logits.argmax(-1), "argmax", gb_s=size)
    report("sample, 256 rows of 128256, top_p 0.9", top_p, "sort", gb_s=size)


for part in (products, attention, rows, sampling):
    part()
