#!/usr/bin/env python3
"""Plans of published models that need several devices, from config.json alone: what a rank has of weights, cache and states, and how many devices hold it.

    tests/e2e/plan_ranks_test.py build/release/app/quire

Expected bytes are counted here from each model's published shapes: what ranks divide, what each has whole.
"""
import json
import pathlib
import subprocess
import sys

QUIRE = sys.argv[1]
CONFIGS = pathlib.Path("tests/data/configs")
GIB = 1 << 30
checks = 0


def check(condition, what):
    global checks
    checks += 1
    if not condition:
        sys.exit("FAILED: " + what)


def plan(name, ranks, memory, *flags):
    ran = subprocess.run([QUIRE, "plan", CONFIGS / name, "--memory", memory, "--tp", str(ranks), "--json", *flags],
                         capture_output=True, text=True, timeout=120)
    check(ran.returncode in (0, 1) and ran.stdout, f"plan of {name} for {ranks}: {ran.stderr}")
    return json.loads(ran.stdout)


class Rank:
    """Elements of 2 bytes that rank 0 of so many has, counted up."""

    def __init__(self, config, ranks):
        self.c, self.n = config, ranks
        self.bytes = 0

    def own(self, n):
        check(n % self.n == 0, f"{n} is not divided by {self.n}")
        return n // self.n

    def few(self, n):
        return max(1, n // self.n)

    def add(self, *elements, size=2):
        self.bytes += sum(elements) * size

    def tables(self):
        hidden = self.c["hidden_size"]
        share = -(-self.c["vocab_size"] // self.n)
        self.add(2 * share * hidden, hidden)  # embedding, head, last norm

    def rope(self, dims):
        self.add(self.c["max_position_embeddings"] * dims, size=4)

    def attention(self, norms=0, gated=False, bias=False, sinks=False):
        c, dim = self.c, self.c["head_dim"]
        queries, keys = self.own(c["num_attention_heads"]) * dim, self.few(c["num_key_value_heads"]) * dim
        rows = queries * (2 if gated else 1) + 2 * keys
        self.add(rows * c["hidden_size"], c["hidden_size"] * queries, norms * dim)
        if bias:  # of the output in float32, beside a stream in float32
            self.add(rows)
            self.add(c["hidden_size"], size=4)
        if sinks:
            self.add(self.own(c["num_attention_heads"]), size=4)

    def mlp(self, inner):
        self.add(3 * self.c["hidden_size"] * self.own(inner))


def llama(r):
    r.c["head_dim"] = 128
    r.tables()
    r.rope(128)
    for _ in range(r.c["num_hidden_layers"]):
        r.attention()
        r.mlp(r.c["intermediate_size"])
        r.add(2 * r.c["hidden_size"])


def qwen3_moe(r):
    hidden = r.c["hidden_size"]
    r.tables()
    r.rope(128)
    for _ in range(r.c["num_hidden_layers"]):
        r.attention(norms=2)
        r.add(2 * hidden, r.c["num_experts"] * hidden, 3 * r.c["num_experts"] * hidden * r.own(r.c["moe_intermediate_size"]))


def qwen3_next(r):
    c, hidden = r.c, r.c["hidden_size"]
    r.tables()
    r.rope(64)
    for layer in range(c["num_hidden_layers"]):
        if layer % 4 == 3:
            r.attention(norms=2, gated=True)
        else:
            keys = 2 * r.few(c["linear_num_key_heads"]) * 128
            heads = r.own(c["linear_num_value_heads"])
            values = heads * 128
            r.add((keys + 2 * values + 2 * heads) * hidden, (keys + values) * 4, 128, values * hidden)
            r.add(2 * heads, size=4)
        r.add(2 * hidden, c["num_experts"] * hidden, hidden)
        r.add(3 * c["num_experts"] * hidden * r.own(c["moe_intermediate_size"]), 3 * hidden * r.own(c["shared_expert_intermediate_size"]))


def gpt_oss(r):
    c, hidden, experts = r.c, r.c["hidden_size"], r.c["num_local_experts"]
    blocks = c["intermediate_size"] // 32
    inner = -(-blocks // r.n) * 32  # whole blocks; rank 0 has one of the widest parts
    r.tables()
    r.rope(64)
    for _ in range(c["num_hidden_layers"]):
        r.attention(bias=True, sinks=True)
        r.add(2 * hidden, experts * hidden, experts * (2 * inner + hidden))
        r.add(experts, size=4)  # the router's bias
        r.add(experts * 3 * inner * hidden // 2, experts * 3 * inner * hidden // 32, size=1)


def fp8(r, rows, columns):
    """Codes, and their scales: rows of these are padded to 16 bytes."""
    across = -(-columns // 128)
    r.add(rows * columns, -(-rows // 128) * (-(-across // 4) * 4) * 4, size=1)


def deepseek(r):
    c, hidden = r.c, r.c["hidden_size"]
    heads, latent, rope = r.own(c["num_attention_heads"]), c["kv_lora_rank"], c["qk_rope_head_dim"]
    nope, value, query = c["qk_nope_head_dim"], c["v_head_dim"], c["q_lora_rank"]
    r.tables()
    r.rope(rope)
    for layer in range(c["num_hidden_layers"]):
        fp8(r, query, hidden)
        fp8(r, heads * (nope + rope), query)
        fp8(r, latent + rope, hidden)
        fp8(r, hidden, heads * value)
        r.add(query, latent, heads * latent * (2 * nope + value), 2 * hidden)  # of keys also as queries are absorbed
        if layer < c["first_k_dense_replace"]:
            inner = r.own(c["intermediate_size"])
            fp8(r, 2 * inner, hidden)
            fp8(r, hidden, inner)
            continue
        inner, experts = r.own(c["moe_intermediate_size"]), c["n_routed_experts"]
        r.add(experts * hidden)
        r.add(experts, size=4)
        for _ in range(experts + c["n_shared_experts"]):
            fp8(r, 2 * inner, hidden)
            fp8(r, hidden, inner)


# For each: how weights are counted, sizes, bytes of cache a token takes on a rank, and devices of 80 GiB and of 141 GiB that hold one
# request of full length in bfloat16's cache.
MODELS = {
    "llama-3.1-70b": (llama, {1: 2 * 80 * 8 * 128 * 2, 4: 2 * 80 * 2 * 128 * 2, 8: 2 * 80 * 128 * 2, 16: 2 * 80 * 128 * 2}, (4, 2)),
    "qwen3-235b-a22b": (qwen3_moe, {1: 2 * 94 * 4 * 128 * 2, 4: 2 * 94 * 128 * 2, 8: 2 * 94 * 128 * 2}, (8, 4)),
    "deepseek-v3": (deepseek, {1: 61 * 576 * 2, 8: 61 * 576 * 2, 16: 61 * 576 * 2}, (16, 8)),
    "qwen3-next-80b-a3b": (qwen3_next, {1: None, 2: None, 4: None}, (4, 2)),
    "gpt-oss-120b": (gpt_oss, {1: 18 * 2 * 8 * 64 * 2, 2: 18 * 2 * 4 * 64 * 2, 4: 18 * 2 * 2 * 64 * 2}, (1, 1)),
}


def weights_and_cache():
    for name, (count, sizes, _) in MODELS.items():
        for ranks, per_token in sizes.items():
            rank = Rank(json.loads((CONFIGS / name / "config.json").read_text()), ranks)
            count(rank)
            planned = plan(name, ranks, "2000GiB")
            check(planned["accepted"], f"{name} for {ranks} is refused: {planned.get('error')}")
            weights = planned["memory"]["weights"]["planned_bytes"]
            check(weights == rank.bytes, f"{name} for {ranks}: {weights} bytes of weights are planned, {rank.bytes} counted")
            if per_token:
                token = planned["plan"]["kv_bytes_per_token"]
                check(token == per_token, f"{name} for {ranks}: {token} bytes a token, {per_token} counted")


def states():
    """Qwen3-Next: a state of a rank is its value heads' matrices, and the last inputs of its channels; a block is of whole chunks."""
    for ranks in (1, 2, 4, 16):
        planned = plan("qwen3-next-80b-a3b", ranks, "2000GiB")
        per_token = 12 * 2 * max(1, 2 // ranks) * 256 * 2
        state = (3 * (8192 // ranks) + 32 // ranks * 128 * 128) * 2
        block = planned["plan"]["block_size"]
        page = max(group["page_bytes"] for group in planned["plan"]["groups"])
        check(page == block * per_token // 12 and block % 64 == 0 and 0 <= page - state < 64 * per_token // 12,
              f"{ranks} ranks: pages of {page} bytes for a state of {state}")


def devices():
    for name, (_, _, (small, large)) in MODELS.items():
        for memory, expected in (("80GiB", small), ("141GiB", large)):
            needed = plan(name, 1, memory)["devices_needed"]
            check(needed == expected, f"{name} needs {needed} devices of {memory}, not {expected}")
    text = subprocess.run([QUIRE, "plan", CONFIGS / "deepseek-v3", "--memory", "80GiB"], capture_output=True, text=True).stdout
    check("16 of 80 GiB hold this (--tensor-parallel-size 16)" in text, f"the plan does not say how many devices: {text}")
    odd = subprocess.run([QUIRE, "plan", CONFIGS / "llama-3.1-70b", "--memory", "80GiB", "--tp", "3"], capture_output=True, text=True)
    check(odd.returncode != 0 and "intermediate_size is 28672" in odd.stdout + odd.stderr, f"3 ranks: {odd.stdout}{odd.stderr}")


for test in (weights_and_cache, states, devices):
    test()
print(f"plans of ranks: {checks} checks ok")
