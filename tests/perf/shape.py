#!/usr/bin/env python3
"""A folder with nothing but config.json, for `quire bench OUT --load-format dummy`: shapes whose weights nobody needs to have.

    tests/perf/shape.py moe OUT       # a Qwen3-30B-A3B of 4 layers: 128 experts, 8 of them for each token
    tests/perf/shape.py hybrid OUT    # 16 layers of about a 1B model: three gated delta nets, then full attention
    tests/perf/shape.py latent OUT    # a DeepSeek-V2-Lite of 4 layers, the first dense, with a quarter of the experts, 6 of them for each token
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
    "latent": (4, lambda layers: {
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "num_attention_heads": 16, "num_key_value_heads": 16,
        "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "vocab_size": 32000, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 16, "num_experts_per_tok": 6,
        "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": False, "routed_scaling_factor": 1.0,
        "topk_method": "greedy", "n_group": 1, "topk_group": 1, "scoring_func": "softmax", "rope_theta": 10000, "tie_word_embeddings": False}),
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
