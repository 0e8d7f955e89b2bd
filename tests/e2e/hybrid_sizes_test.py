#!/usr/bin/env python3
"""The sizes that hybrid models get, against conformance vectors: as `quire plan` says them, and as a running server does.

    tests/e2e/hybrid_sizes_test.py build/release/app/quire

Each vector names the shape of a published model on one rank. A config.json of that shape is written, with all heads, states and
groups but narrow hidden layers and a small vocabulary: neither is part of the cache's geometry. Drafts show in a vector as
rows of the convolution's state, so they are written as a longer convolution. `quire plan` is asked for every vector; those in
SERVED also run, with four layers and random weights, answer a request, and are read at /metrics. Vectors of whole models
(kv_plan_models.json, in QUIRE_CONFORMANCE_DIR) are planned with all their layers.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from serve_process import Server

SERVED = {"qwen3_next_80b_tp1_bfloat16_spec0_fa", "qwen3_next_80b_tp4_bfloat16_spec0_fa", "qwen35_35b_tp8_float32_spec0_fa",
          "nemotron_h_8b_tp4_float32_spec0_fa", "nemotron_h_8b_all_chunk128", "qwen35_align", "qwen35_fp8_kv"}
CACHE_DTYPES = {"auto": None, "fp8": "fp8_e4m3"}  # those that kernels here read: flag and what is reported
MAX_LEN = 4096
BLOCKS = 40
KEPT = pathlib.Path("tests/data/conformance")
ALL = pathlib.Path(os.environ.get("QUIRE_CONFORMANCE_DIR", KEPT))
checks = 0


def check(name, what, got, expected):
    global checks
    checks += 1
    if got != expected:
        sys.exit(f"FAILED: {name}: {what} is {got!r}, should be {expected!r}")


def delta_net(shapes, state_dtype, kinds):
    (rows, channels), (value_heads, value_dim, key_dim) = shapes
    qwen35 = state_dtype == "float32"  # Qwen3-Next keeps states in the model's dtype
    return {"architectures": ["Qwen3_5ForCausalLM" if qwen35 else "Qwen3NextForCausalLM"],
            "model_type": "qwen3_5_text" if qwen35 else "qwen3_next", "mamba_ssm_dtype": state_dtype,
            "layer_types": ["linear_attention" if kind == "state" else "full_attention" for kind in kinds],
            "linear_conv_kernel_dim": rows + 1, "linear_key_head_dim": key_dim, "linear_value_head_dim": value_dim,
            "linear_num_value_heads": value_heads,
            "linear_num_key_heads": (channels - value_heads * value_dim) // (2 * key_dim),
            "mlp_only_layers": list(range(len(kinds))), "num_experts": 0, "hidden_act": "silu", "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25,
                                "mrope_section": [11, 11, 10], "mrope_interleaved": True}}


def mamba2(shapes, state_dtype, kinds, chunk_size):
    (rows, channels), (heads, head_dim, state) = shapes
    return {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "mamba_ssm_cache_dtype": state_dtype,
            "hybrid_override_pattern": "".join("M" if kind == "state" else "*" for kind in kinds), "conv_kernel": rows + 1,
            "mamba_num_heads": heads, "mamba_head_dim": head_dim, "ssm_state_size": state,
            "n_groups": (channels - heads * head_dim) // (2 * state), "chunk_size": chunk_size or 128, "use_conv_bias": True,
            "mlp_hidden_act": "relu2", "layer_norm_epsilon": 1e-5, "time_step_limit": [0.0, {"__float__": "Infinity"}]}


def write_model(folder, name, attention, state, kinds, max_len, chunk_size=None):
    shapes, dtypes = state["shapes"], state["dtypes"]
    recurrent = (mamba2(shapes, dtypes[1], kinds, chunk_size) if name.startswith("nemotron")
                 else delta_net(shapes, dtypes[1], kinds))
    config = {**recurrent, "num_hidden_layers": len(kinds), "hidden_size": 64, "intermediate_size": 64, "vocab_size": 1536,
              "num_attention_heads": attention["num_kv_heads"], "num_key_value_heads": attention["num_kv_heads"],
              "head_dim": attention["head_size"], "max_position_embeddings": max_len, "tie_word_embeddings": True,
              "dtype": attention["dtype"], "eos_token_id": 1523, "bos_token_id": None}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(pathlib.Path("models/quire-tiny") / file, folder)


def mode_flags(mode):
    return ["--no-enable-prefix-caching"] if mode == "none" else ["--mamba-cache-mode", mode] if mode else []


def plan(quire, folder, flags):
    done = subprocess.run([quire, "plan", str(folder), "--json", "--device", "cpu", "--memory", "1TiB", *flags], capture_output=True, text=True)
    report = json.loads(done.stdout)
    if not report["accepted"]:
        sys.exit(f"FAILED: {folder.name}: refused: {report['error']}")
    return report["plan"]


def groups_of(planned, kind):
    return [group for group in planned["groups"] if group["kind"] == kind]


def check_sizes(name, planned, expected, state_block):
    for group in groups_of(planned, "full_attention"):
        check(name, "attention's block", group["block_size"], expected["block_size"])
        check(name, "attention's page", group["page_bytes"], expected["attention_page_bytes"])
    for group in groups_of(planned, "mamba"):
        check(name, "the states' block", group["block_size"], state_block)
        check(name, "the states' page", group["page_bytes"], expected["mamba_page_size_padded"] or expected["mamba_page_bytes"])
    check(name, "block_size", planned["block_size"], expected["block_size"])
    check(name, "padding", round(planned["state_padding_percent"], 6), round(expected["padding_percent"], 6))


def check_served(quire, name, folder, flags, expected, state_block, mode, cache_dtype):
    with Server(quire, folder, "--load-format", "dummy", *flags) as server:
        answer = server.post("/v1/completions", prompt=list(range(1, 40)), max_tokens=3, ignore_eos=True)
        check(name, "tokens of an answer", answer["usage"]["completion_tokens"], 3)
        labels = server.labels("vllm:cache_config_info")
        engine = json.loads(server.ask("/v1/models"))["data"][0]["engines"][0]
    check(name, "/v1/models' kv_cache_dtype", engine["kv_cache_dtype"], cache_dtype or "bfloat16")
    for label, value in {"block_size": expected["block_size"], "mamba_block_size": state_block,
                         "mamba_page_size_padded": expected["mamba_page_size_padded"], "num_gpu_blocks": BLOCKS,
                         "mamba_cache_mode": mode, **({"cache_dtype": cache_dtype} if cache_dtype else {}),
                         "kv_cache_dtype_resolved": cache_dtype or "bfloat16"}.items():
        check(name, f"/metrics' {label}", labels[label], str(value))


def check_alignment(quire, root, vector):
    name, given, expected = vector["name"], vector["input"], vector["expected"]
    if "error" in expected or not given["state_shapes"] or given["cache_dtype"] not in CACHE_DTYPES:
        return  # nothing recurrent, or a cache dtype that no kernel here reads
    cache_dtype = CACHE_DTYPES[given["cache_dtype"]]
    attention = {"num_kv_heads": given["num_kv_heads"], "head_size": given["head_size"], "dtype": given["model_dtype"]}
    state = {"shapes": given["state_shapes"], "dtypes": given["state_dtypes"]}
    write_model(root / name, name, attention, state, ["state", "state", "state", "attn"], MAX_LEN, given["mamba_chunk_size"])
    page = expected["attention_page_bytes"]  # all groups have one layer, all pages are equal
    flags = ["--kv-cache-memory-bytes", str(BLOCKS * page + page // 2)]
    if given["user_block_size"]:
        flags += ["--block-size", str(given["user_block_size"])]
    if cache_dtype:
        flags += ["--kv-cache-dtype", given["cache_dtype"]]
    mode = given["mamba_cache_mode"]
    state_block = expected["mamba_block_size"] or MAX_LEN
    planned = plan(quire, root / name, flags + mode_flags(mode))
    check_sizes(name, planned, expected, state_block)
    check(name, "blocks", planned["num_gpu_blocks"], BLOCKS)
    if mode == "none":  # prefix caching aligns to the same block
        check_sizes(name, plan(quire, root / name, flags), expected, expected["block_size"])
    if name in SERVED:
        check_served(quire, name, root / name, flags + mode_flags(mode), expected, state_block, mode, cache_dtype)


def check_model(quire, root, vector):
    name, config, expected = vector["name"], vector["config"], vector["expected"]
    specs, layers = vector["specs"], vector["layer_sets"][0]
    plain = not (config["auto_fit"] or config["use_eagle"] or config["num_gpu_blocks_override"] or vector["vllm_defect"])
    alike = len(vector["layer_sets"]) == 1 and len({w["available_memory_bytes"] for w in vector["workers"]}) == 1
    if "state" not in specs or not alike or not plain or "error" in expected:
        return
    write_model(root / ("whole_" + name), name, specs["attn"], specs["state"], [spec for _, spec in layers],
                config["max_model_len"], 128)
    worker = expected["workers"][0]
    flags = ["--kv-cache-memory-bytes", str(vector["workers"][0]["available_memory_bytes"]), "--max-num-batched-tokens",
             str(config["max_num_batched_tokens"]), "--block-size", str(config["cache_block_size"])]
    if config["mamba_cache_mode"] == "all":
        flags += ["--mamba-block-size", str(specs["state"]["block_size"])]
    planned = plan(quire, root / ("whole_" + name), flags + mode_flags(config["mamba_cache_mode"]))
    check(name, "blocks", planned["num_gpu_blocks"], expected["num_blocks"])
    check(name, "groups", [(g["kind"], len(g["layers"]), g["block_size"], g["page_bytes"]) for g in planned["groups"]],
          [({"mamba": "mamba", "full": "full_attention"}[g["kind"]], len(g["layers"]), g["block_size"], g["page_size_bytes"])
           for g in worker["groups"]])


def main():
    quire = sys.argv[1]
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        for vector in json.loads((KEPT / "align_hybrid_models.json").read_text())["cases"]:
            check_alignment(quire, root, vector)
        if (ALL / "kv_plan_models.json").exists():
            for vector in json.loads((ALL / "kv_plan_models.json").read_text())["cases"]:
                check_model(quire, root, vector)
    print(f"{checks} sizes are as in the vectors")


main()
