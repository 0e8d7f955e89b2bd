#!/usr/bin/env python3
"""Makes the models of tests/data/pooling, random and tiny, and what they answer: written plainly in numpy, in float64.

    python3 tests/model/pooling_reference.py tests/data/pooling

Qwen3 as an embedding model (causal, last token) and as one that rates by the logits of two tokens; BERT and XLM-RoBERTa, which
see all of a text, as embedding models and as cross-encoders. Layer formulas: Hugging Face's modeling_{qwen3,bert,xlm_roberta}.py.
"""
import json
import math
import pathlib
import struct
import sys

import numpy as np

HIDDEN, INNER, LAYERS, HEADS, HEAD_DIM = 32, 32, 2, 2, 16
TEXTS = ["hi you", "a map of the sea", "tea", "what is the sea", "the map is old and the tea is cold so we go home"]
QUERY = "what is the sea"


class Random:
    """The same numbers on every machine and with every numpy."""

    def __init__(self, seed):
        self.state = seed

    def tensor(self, *shape, scale):
        out = np.empty(math.prod(shape))
        for i in range(out.size):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
            out[i] = ((self.state >> 33) / 2**30 - 1) * scale
        return out.reshape(shape).astype(np.float32)


def save(path, tensors):
    header, body = {}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + tensor.nbytes]}
        body += tensor.astype("<f4").tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n")


def numbers(array):
    return [float(f"{x:.8g}") for x in np.asarray(array).ravel()]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def length_one(x):
    return x / np.linalg.norm(x)


# Qwen3


def qwen3_vocab():
    return {chr(c): c - 33 for c in range(33, 127)} | {"Ġ": 94}


def qwen3_tokenizer():
    end = {"id": 95, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    piece = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}]
    pair = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "<|endoftext|>", "type_id": 1}}]
    specials = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [95], "tokens": ["<|endoftext|>"]}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None, "pre_tokenizer": level,
            "post_processor": {"type": "TemplateProcessing", "single": piece, "pair": pair, "special_tokens": specials}, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                      "fuse_unk": False, "byte_fallback": False, "vocab": qwen3_vocab(), "merges": []}}


def qwen3_ids(text):
    return [94 if c == " " else ord(c) - 33 for c in text]


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def rope(x, theta=1e6):
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[0])[:, None] * theta ** (-np.arange(half) / half)[None]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def qwen3_tensors():
    random = Random(7)
    t = {"embed_tokens.weight": random.tensor(96, HIDDEN, scale=1.0), "norm.weight": 1 + random.tensor(HIDDEN, scale=0.2)}
    for i in range(LAYERS):
        p = f"layers.{i}."
        for name, rows, cols in [("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN), ("self_attn.k_proj", HEAD_DIM, HIDDEN),
                                 ("self_attn.v_proj", HEAD_DIM, HIDDEN), ("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
                                 ("mlp.gate_proj", INNER, HIDDEN), ("mlp.up_proj", INNER, HIDDEN), ("mlp.down_proj", HIDDEN, INNER)]:
            t[p + name + ".weight"] = random.tensor(rows, cols, scale=0.3)
        for name, width in [("input_layernorm", HIDDEN), ("post_attention_layernorm", HIDDEN), ("self_attn.q_norm", HEAD_DIM), ("self_attn.k_norm", HEAD_DIM)]:
            t[p + name + ".weight"] = 1 + random.tensor(width, scale=0.2)
    return t


def qwen3_hidden(t, ids):
    t = {k: v.astype(np.float64) for k, v in t.items()}
    x = t["embed_tokens.weight"][ids]
    n = len(ids)
    for i in range(LAYERS):
        w = lambda name: t[f"layers.{i}.{name}.weight"]
        y = rms_norm(x, w("input_layernorm"))
        q = rope(rms_norm((y @ w("self_attn.q_proj").T).reshape(n, HEADS, HEAD_DIM), w("self_attn.q_norm")))
        k = rope(rms_norm((y @ w("self_attn.k_proj").T).reshape(n, 1, HEAD_DIM), w("self_attn.k_norm")))
        v = (y @ w("self_attn.v_proj").T).reshape(n, 1, HEAD_DIM)
        out = np.empty((n, HEADS, HEAD_DIM))
        for h in range(HEADS):
            scores = q[:, h] @ k[:, 0].T / math.sqrt(HEAD_DIM)
            scores[np.triu_indices(n, 1)] = -np.inf
            out[:, h] = softmax(scores) @ v[:, 0]
        x = x + out.reshape(n, -1) @ w("self_attn.o_proj").T
        y = rms_norm(x, w("post_attention_layernorm"))
        gate = y @ w("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    return rms_norm(x, t["norm.weight"])


def make_qwen3(folder):
    tensors = qwen3_tensors()
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / "model.safetensors", tensors)
    write_json(folder / "config.json", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "float32", "vocab_size": 96, "hidden_size": HIDDEN,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000, "max_position_embeddings": 256, "hidden_act": "silu", "tie_word_embeddings": False,
        "eos_token_id": 95})
    write_json(folder / "tokenizer.json", qwen3_tokenizer())
    write_json(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])
    write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": False,
                                                  "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True})
    table = tensors["embed_tokens.weight"].astype(np.float64)
    texts, pairs = [], []
    for text in TEXTS:
        ids = qwen3_ids(text) + [95]
        hidden = qwen3_hidden(tensors, ids)
        texts.append({"text": text, "ids": ids, "embedding": numbers(length_one(hidden[-1])), "mean": numbers(length_one(hidden.mean(0)))})
        ids = qwen3_ids(QUERY) + qwen3_ids(text) + [95]
        last = qwen3_hidden(tensors, ids)[-1]
        logit = last @ (table[ord("y") - 33] - table[ord("n") - 33])
        pairs.append({"document": text, "ids": ids, "logit": float(logit), "score": float(1 / (1 + math.exp(-logit)))})
    write_json(folder / "expected.json", {"texts": texts, "query": QUERY, "pairs": pairs, "classifier_from_token": ["n", "y"]})


# BERT and XLM-RoBERTa


def layer_norm(x, weight, bias, eps):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + eps) * weight + bias


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def encoder_tensors(vocab, positions, types, root, seed):
    random = Random(seed)
    t = {}

    def norm(name):
        t[root + name + ".weight"] = 1 + random.tensor(HIDDEN, scale=0.2)
        t[root + name + ".bias"] = random.tensor(HIDDEN, scale=0.2)

    def linear(name, rows, cols):
        t[root + name + ".weight"] = random.tensor(rows, cols, scale=0.3)
        t[root + name + ".bias"] = random.tensor(rows, scale=0.2)

    for name, rows in [("word", vocab), ("position", positions), ("token_type", types)]:
        t[root + f"embeddings.{name}_embeddings.weight"] = random.tensor(rows, HIDDEN, scale=1.0)
    norm("embeddings.LayerNorm")
    for i in range(LAYERS):
        p = f"encoder.layer.{i}."
        for name in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]:
            linear(p + name, HIDDEN, HIDDEN)
        norm(p + "attention.output.LayerNorm")
        linear(p + "intermediate.dense", INNER, HIDDEN)
        linear(p + "output.dense", HIDDEN, INNER)
        norm(p + "output.LayerNorm")
    return t, random


def encoder_hidden(t, root, ids, types, first_position, eps):
    t = {k.removeprefix(root): v.astype(np.float64) for k, v in t.items()}
    n = len(ids)
    x = (t["embeddings.word_embeddings.weight"][ids] + t["embeddings.position_embeddings.weight"][np.arange(n) + first_position]
         + t["embeddings.token_type_embeddings.weight"][types])
    x = layer_norm(x, t["embeddings.LayerNorm.weight"], t["embeddings.LayerNorm.bias"], eps)
    for i in range(LAYERS):
        p = f"encoder.layer.{i}."
        linear = lambda name, y: y @ t[p + name + ".weight"].T + t[p + name + ".bias"]
        norm = lambda name, y: layer_norm(y, t[p + name + ".weight"], t[p + name + ".bias"], eps)
        q, k, v = (linear("attention.self." + part, x).reshape(n, HEADS, HEAD_DIM) for part in ("query", "key", "value"))
        out = np.stack([softmax(q[:, h] @ k[:, h].T / math.sqrt(HEAD_DIM)) @ v[:, h] for h in range(HEADS)], 1).reshape(n, -1)
        x = norm("attention.output.LayerNorm", x + linear("attention.output.dense", out))
        x = norm("output.LayerNorm", x + linear("output.dense", gelu(linear("intermediate.dense", x))))
    return x


LETTERS = "abcdefghijklmnopqrstuvwxyz"
BERT_VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(LETTERS) + ["##" + c for c in LETTERS]
XLMR_VOCAB = ["<s>", "<pad>", "</s>", "<unk>", "▁"] + list(LETTERS)


def added(token, index):
    return {"id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def bert_tokenizer():
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(t, i) for i, t in enumerate(BERT_VOCAB[:5])],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
                               "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                                        {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                               "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                      "vocab": {t: i for i, t in enumerate(BERT_VOCAB)}}}


def xlmr_tokenizer():
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(t, i) for i, t in enumerate(XLMR_VOCAB[:4])],
            "normalizer": None, "pre_tokenizer": space,
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                               "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
                                        {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}},
            "decoder": space,
            "model": {"type": "Unigram", "unk_id": 3, "byte_fallback": False, "vocab": [[t, 0.0 if i < 4 else -2.0] for i, t in enumerate(XLMR_VOCAB)]}}


def bert_words(text):
    return [BERT_VOCAB.index(c if i == 0 else "##" + c) for word in text.split() for i, c in enumerate(word)]


def xlmr_words(text):
    return [XLMR_VOCAB.index(c) for word in text.split() for c in "▁" + word]


def make_encoder(folder, is_bert):
    root = "bert." if is_bert else "roberta."
    vocab = BERT_VOCAB if is_bert else XLMR_VOCAB
    first, eps, types = (0, 1e-12, 2) if is_bert else (2, 1e-5, 1)
    words = bert_words if is_bert else xlmr_words
    tensors, random = encoder_tensors(len(vocab), 128 + first, types, root, 11 if is_bert else 13)
    head = dict(tensors)
    dense, labels = ("bert.pooler.dense", "classifier") if is_bert else ("classifier.dense", "classifier.out_proj")
    for name, rows in [(dense, HIDDEN), (labels, 1)]:
        head[name + ".weight"] = random.tensor(rows, HIDDEN, scale=0.5)
        head[name + ".bias"] = random.tensor(rows, scale=0.2)
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / "model.safetensors", head)
    name = "Bert" if is_bert else "XLMRoberta"
    write_json(folder / "config.json", {
        "architectures": [name + "ForSequenceClassification"], "model_type": "bert" if is_bert else "xlm-roberta", "torch_dtype": "float32",
        "vocab_size": len(vocab), "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "max_position_embeddings": 128 + first, "type_vocab_size": types, "layer_norm_eps": eps, "hidden_act": "gelu",
        "pad_token_id": 0 if is_bert else 1, "position_embedding_type": "absolute"})
    write_json(folder / "tokenizer.json", bert_tokenizer() if is_bert else xlmr_tokenizer())
    cls, sep = (2, 3) if is_bert else (0, 2)
    t64 = {k: v.astype(np.float64) for k, v in head.items()}
    texts, pairs = [], []
    for text in TEXTS:
        ids = [cls] + words(text) + [sep]
        hidden = encoder_hidden(tensors, root, ids, [0] * len(ids), first, eps)
        texts.append({"text": text, "ids": ids, "embedding": numbers(length_one(hidden[0])), "mean": numbers(length_one(hidden.mean(0)))})
        front = [cls] + words(QUERY) + [sep] + ([] if is_bert else [sep])
        ids = front + words(text) + [sep]
        kinds = [0] * len(front) + [1 if is_bert else 0] * (len(ids) - len(front))
        pooled = encoder_hidden(tensors, root, ids, kinds, first, eps)[0]
        pooled = np.tanh(t64[dense + ".weight"] @ pooled + t64[dense + ".bias"])
        logit = float((t64[labels + ".weight"] @ pooled + t64[labels + ".bias"])[0])
        pairs.append({"document": text, "ids": ids, "logit": logit, "score": 1 / (1 + math.exp(-logit))})
    write_json(folder / "expected.json", {"texts": texts, "query": QUERY, "pairs": pairs})


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    make_qwen3(out / "qwen3-embedding")
    make_encoder(out / "bert", True)
    make_encoder(out / "xlm-roberta", False)
