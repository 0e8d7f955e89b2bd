#!/usr/bin/env python3
"""A folder with nothing but config.json, for `quire bench OUT --load-format dummy`: shapes whose weights nobody needs to have.

    tests/perf/shape.py moe OUT       # a Qwen3-30B-A3B of 4 layers: 128 experts, 8 of them for each token
    tests/perf/shape.py hybrid OUT    # 16 layers of about a 1B model: three gated delta nets, then full attention
    tests/perf/shape.py moe OUT --layers 2
"""
import argparse
import json
import pathlib

COMMON = {"hidden_act": "silu", "hidden_size": 2048, "vocab_size": 151936, "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16",
          "max_position_embeddings": 40960, "decoder_sparse_step": 1, "norm_topk_prob": True, "attention_bias": False}

SHAPES = {
    "moe": (4, lambda layers: {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_attention_heads": 32, "num_key_value_heads": 4,
        "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
        "mlp_only_layers": [], "rope_theta": 1e6, "tie_word_embeddings": False}),
    "hybrid": (16, lambda layers: {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 256, "intermediate_size": 6144, "moe_intermediate_size": 512, "num_experts": 8, "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 512, "mlp_only_layers": list(range(layers)), "partial_rotary_factor": 0.25,
        "layer_types": ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)],
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 16, "rope_theta": 1e7, "tie_word_embeddings": True}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--layers", type=int)
    a = parser.parse_args()
    layers, shape = SHAPES[a.shape]
    layers = a.layers or layers
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "config.json").write_text(json.dumps(COMMON | shape(layers) | {"num_hidden_layers": layers}, indent=1))


if __name__ == "__main__":
    main()
