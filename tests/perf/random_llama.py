#!/usr/bin/env python3
"""A Llama of random weights, once as safetensors in bfloat16 and the same weights as GGUF files.

    pip install numpy gguf
    tests/perf/random_llama.py OUT                      # the shape of a 1B Llama, tied embeddings
    tests/perf/random_llama.py OUT --types q4_0 --layers 2 --vocab 4096

Writes OUT/bf16 (config.json, model.safetensors) and OUT/TYPE.gguf for each type of --types: bf16,
q8_0, q4_0, q4_k. Beside 4-bit matrices the embedding, which is the head too, is Q6_K as in published
files. The GGUF files have no tokenizer ("no_vocab"): they are for benchmarks and comparisons of logits.
"""
import argparse
import json
import pathlib
import struct

import numpy as np
import gguf
from gguf import GGMLQuantizationType as Type


def to_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.uint32) << 16).view(np.float32)


def halves(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).view(np.uint8).reshape(*x.shape, 2)


def quantize_q4_k(x: np.ndarray) -> np.ndarray:
    """Of each 32 a scale and a minimum in 6 bits; rounds to the nearest, searches nothing."""
    blocks = x.reshape(-1, 8, 32)
    low = np.minimum(blocks.min(-1), 0)
    step = (blocks.max(-1) - low) / 15
    d = (step.max(-1) / 63).astype(np.float16).astype(np.float32)
    dmin = (-low.min(-1) / 63).astype(np.float16).astype(np.float32)
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d > 0)[:, None]
    inverse_min = np.divide(1, dmin, out=np.zeros_like(dmin), where=dmin > 0)[:, None]
    scale = np.clip(np.rint(step * inverse), 0, 63).astype(np.uint8)
    least = np.clip(np.rint(-low * inverse_min), 0, 63).astype(np.uint8)
    unit = (d[:, None] * scale)[..., None]
    shifted = blocks + (dmin[:, None] * least)[..., None]
    codes = np.divide(shifted, unit, out=np.zeros_like(blocks), where=unit > 0)
    codes = np.clip(np.rint(codes), 0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    six = np.concatenate([scale[:, :4] | (scale[:, 4:] >> 4) << 6, least[:, :4] | (least[:, 4:] >> 4) << 6,
                          (scale[:, 4:] & 15) | (least[:, 4:] & 15) << 4], axis=1)
    packed = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 128)
    out = np.concatenate([halves(d), halves(dmin), six, packed], axis=1)
    return out.reshape(x.shape[0], -1)


def quantize_q6_k(x: np.ndarray) -> np.ndarray:
    """Of each 16 a scale in 8 bits."""
    blocks = x.reshape(-1, 16, 16)
    step = np.abs(blocks).max(-1) / 31
    d = (step.max(-1) / 127).astype(np.float16).astype(np.float32)
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d > 0)[:, None]
    scale = np.clip(np.rint(step * inverse), 0, 127).astype(np.int8)
    unit = (d[:, None] * scale)[..., None]
    codes = np.divide(blocks, unit, out=np.zeros_like(blocks), where=unit > 0)
    codes = (np.clip(np.rint(codes), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = np.concatenate([codes[:, :, 0] & 15 | (codes[:, :, 2] & 15) << 4,
                          codes[:, :, 1] & 15 | (codes[:, :, 3] & 15) << 4], axis=-1).reshape(-1, 128)
    high = sum((codes[:, :, i] >> 4) << 2 * i for i in range(4)).astype(np.uint8).reshape(-1, 64)
    out = np.concatenate([low, high, scale.view(np.uint8), halves(d)], axis=1)
    return out.reshape(x.shape[0], -1)


def quantize(x: np.ndarray, kind: Type) -> np.ndarray:
    own = {Type.Q4_K: quantize_q4_k, Type.Q6_K: quantize_q6_k}
    parts = [x[i:i + 4096] for i in range(0, x.shape[0], 4096)]
    return np.concatenate([own[kind](p) if kind in own else gguf.quants.quantize(p, kind) for p in parts])


def pairs(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries and keys as llama.cpp rotates them: (i, i + half) beside each other."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)


def layout(a):
    """(published name, GGUF name, shape, heads of rotated pairs)"""
    q, kv, h, inner = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.hidden, a.inner
    yield "model.embed_tokens.weight", "token_embd.weight", (a.vocab, h), 0
    for i in range(a.layers):
        own, other = f"model.layers.{i}.", f"blk.{i}."
        yield own + "input_layernorm.weight", other + "attn_norm.weight", (h,), 0
        yield own + "self_attn.q_proj.weight", other + "attn_q.weight", (q, h), a.heads
        yield own + "self_attn.k_proj.weight", other + "attn_k.weight", (kv, h), a.kv_heads
        yield own + "self_attn.v_proj.weight", other + "attn_v.weight", (kv, h), 0
        yield own + "self_attn.o_proj.weight", other + "attn_output.weight", (h, q), 0
        yield own + "post_attention_layernorm.weight", other + "ffn_norm.weight", (h,), 0
        yield own + "mlp.gate_proj.weight", other + "ffn_gate.weight", (inner, h), 0
        yield own + "mlp.up_proj.weight", other + "ffn_up.weight", (inner, h), 0
        yield own + "mlp.down_proj.weight", other + "ffn_down.weight", (h, inner), 0
    yield "model.norm.weight", "output_norm.weight", (h,), 0


def write_published(a, out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
              "hidden_size": a.hidden, "intermediate_size": a.inner, "num_hidden_layers": a.layers,
              "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads, "head_dim": a.head_dim,
              "vocab_size": a.vocab, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
              "max_position_embeddings": a.context, "tie_word_embeddings": True, "bos_token_id": 0}
    (out / "config.json").write_text(json.dumps(config, indent=1))
    header, at = {}, 0
    for name, _, shape, _ in layout(a):
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64 + 56)  # data begins at a multiple of 64
    random = np.random.default_rng(a.seed)
    with open(out / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, shape, _ in layout(a):
            x = random.standard_normal(shape, dtype=np.float32)
            x = 1 + 0.1 * x if len(shape) == 1 else x / np.sqrt(shape[1], dtype=np.float32)
            file.write(to_bf16(x).tobytes())


def write_gguf(a, published: pathlib.Path, path: pathlib.Path, kind: Type) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(a.context)
    writer.add_embedding_length(a.hidden)
    writer.add_block_count(a.layers)
    writer.add_feed_forward_length(a.inner)
    writer.add_head_count(a.heads)
    writer.add_head_count_kv(a.kv_heads)
    writer.add_rope_dimension_count(a.head_dim)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(a.vocab)
    writer.add_tokenizer_model("no_vocab")
    plan = list(layout(a))

    def type_of(shape):
        if len(shape) == 1:
            return Type.F32
        return Type.Q6_K if shape[0] == a.vocab and kind in (Type.Q4_0, Type.Q4_K) else kind

    for _, name, shape, _ in plan:
        elements, size = gguf.GGML_QUANT_SIZES[type_of(shape)]
        raw = shape if len(shape) == 1 else (shape[0], shape[1] // elements * size)
        dtype = np.dtype(np.float32) if len(shape) == 1 else np.dtype(np.uint8)
        writer.add_tensor_info(name, raw, dtype, int(np.prod(raw)) * dtype.itemsize,
                               None if len(shape) == 1 else type_of(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    with open(published / "model.safetensors", "rb") as file:
        file.seek(struct.unpack("<Q", file.read(8))[0] + 8)
        for _, _, shape, heads in plan:
            bits = np.frombuffer(file.read(2 * int(np.prod(shape))), np.uint16).reshape(shape)
            bits = pairs(bits, heads) if heads else bits
            if len(shape) == 1:
                writer.write_tensor_data(from_bf16(bits))
            elif kind == Type.BF16:
                writer.write_tensor_data(np.ascontiguousarray(bits).view(np.uint8))
            else:
                writer.write_tensor_data(quantize(from_bf16(bits), type_of(shape)))
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--types", default="bf16,q8_0,q4_0,q4_k")
    for name, value in {"layers": 16, "hidden": 2048, "inner": 8192, "heads": 32, "kv-heads": 8, "head-dim": 64,
                        "vocab": 128256, "context": 131072, "seed": 1}.items():
        parser.add_argument("--" + name, type=int, default=value)
    a = parser.parse_args()
    if not (a.out / "bf16/model.safetensors").exists():
        write_published(a, a.out / "bf16")
    for name in a.types.split(","):
        path = a.out / (name + ".gguf")
        write_gguf(a, a.out / "bf16", path, Type[name.upper()])
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
