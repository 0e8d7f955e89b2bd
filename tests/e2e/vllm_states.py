"""Hybrid models for vllm_connector.py: groups of attention layers and of recurrent states that share vLLM's tensors, as its cache manager
lays them out. The shape says

    "groups": [{"kind": "attention" | "mamba2" | "delta_net", "layers": [3]}, …], "ratio": 3,   kernel blocks of a block
    "conv": [channels, rows], "state": [heads, a, b], "state_dtype": "float32"                  of the whole model
"""
import importlib
import math
import types

import numpy as np

KINDS = {"mamba2": "MAMBA2", "delta_net": "GDN_ATTN"}
NAMES = {"attention": "self_attn.attn", "mamba2": "mixer", "delta_net": "linear_attn"}  # as vLLM's models say


class Size(tuple):
    def numel(self):
        return math.prod(self)


def install(torch):
    """What vLLM's own modules for states take from others."""
    enum = types.SimpleNamespace(MAMBA1="MAMBA1", MAMBA2="MAMBA2", GDN_ATTN="GDN_ATTN")
    importlib.import_module("vllm.v1.attention.backends.registry").MambaAttentionBackendEnum = enum
    importlib.import_module("vllm.model_executor.layers.mamba.mamba_utils").is_conv_state_dim_first = lambda: True
    torch.Size = Size
    torch.tensor = lambda values, dtype: types.SimpleNamespace(element_size=lambda: dtype.itemsize)


def layer_names(group):
    return [f"model.layers.{number}.{NAMES[group['kind']]}" for number in group["layers"]]


def page_bytes(shape, dtypes):
    heads = max(1, shape["kv_heads"] // shape["ranks"])
    return shape["ratio"] * heads * shape["block_size"] * 2 * shape["head_size"] * dtypes[shape["dtype"]].itemsize


def groups_of(shape, interface, dtypes):
    """A rank's."""
    ranks, size = shape["ranks"], shape["block_size"] * shape["ratio"]
    groups = []
    for group in shape["groups"]:
        if group["kind"] == "attention":
            spec = interface.FullAttentionSpec(block_size=size, num_kv_heads=max(1, shape["kv_heads"] // ranks),
                                               head_size=shape["head_size"], dtype=dtypes[shape["dtype"]])
        else:
            (channels, rows), (heads, a, b) = shape["conv"], shape["state"]
            spec = interface.MambaSpec(block_size=size, shapes=((channels // ranks, rows), (heads // ranks, a, b)),
                                       dtypes=(dtypes[shape["dtype"]], dtypes[shape["state_dtype"]]), mamba_type=KINDS[group["kind"]],
                                       page_size_padded=page_bytes(shape, dtypes))
        groups.append(interface.KVCacheGroupSpec(layer_names=layer_names(group), kv_cache_spec=spec))
    return groups


def caches_of(shape, dtypes, tensor):
    """The k-th layers of all groups share a tensor."""
    page, blocks, caches = page_bytes(shape, dtypes), shape["blocks"], {}
    heads, item = max(1, shape["kv_heads"] // shape["ranks"]), dtypes[shape["dtype"]].itemsize
    for k in range(max(len(group["layers"]) for group in shape["groups"])):
        raw = np.zeros(blocks * page, dtype=np.uint8)
        for group in shape["groups"]:
            if k >= len(group["layers"]):
                continue
            view = raw.reshape(blocks, page)
            if group["kind"] == "attention":
                view = raw.view({2: np.uint16, 4: np.uint32}[item]).reshape(blocks * shape["ratio"], heads, shape["block_size"],
                                                                            2 * shape["head_size"])
            caches[layer_names(group)[k]] = tensor(view, raw)
    return dict(sorted(caches.items(), key=lambda cache: int(cache[0].split(".")[2])))


def take_blocks(shape, free, tokens):
    """By group: those of a prompt but for its last token, and one for a state."""
    size = shape["block_size"] * shape["ratio"]
    return [[free.pop() for _ in range(-(-(tokens - 1) // size) if group["kind"] == "attention" else 1)] for group in shape["groups"]]
