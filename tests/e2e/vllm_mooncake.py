#!/usr/bin/env python3
"""vLLM's own MooncakeConnector as the other side of a test: its worker and scheduler classes from an unpacked wheel, with the real
TransferEngine and bootstrap server, numpy for the cache and stubs for torch and everything else (vllm_connector.py). Commands come as
JSON lines, answers go out the same way.

    {"do": "pull", "params": {...}, "tokens": 90}                     has it written into blocks here → {"blocks": [[...]], "ok": true}
    {"do": "offer", "transfer": "...", "blocks": [[...]], "tokens": 90}   keeps blocks as a prefill server would → {"params": {...}}
    {"do": "begin", "transfer": "...", "tokens": 90}                  the same, but the prefill has not ended: offer follows, or abort
    {"do": "abort", "transfer": "..."}
    {"do": "released"}                                                → {"requests": [...]}: what the other side has, or let expire

Needs QUIRE_VLLM_WHEEL (a folder with the wheel's *.py files) and the packages mooncake-transfer-engine(-non-cuda), pyzmq, msgspec,
httpx, fastapi, uvicorn, numpy and a few small ones.
"""
import copy
import importlib
import json
import logging
import os
import re
import select
import sys
import time
import types

import fastapi  # noqa: F401, with what follows before the stubs: they are real here
import httpx
import numpy as np
import pydantic  # noqa: F401
import pydantic.dataclasses  # noqa: F401
import uvicorn  # noqa: F401
from mooncake.engine import TransferEngine  # noqa: F401

import vllm_connector as stubs
import vllm_states
from vllm_connector import CONNECTOR, DTYPES, Backend, Tensor

MOONCAKE = CONNECTOR + "v1.mooncake."
stubs.STUBBED = ("vllm", "torch", "transformers", "vllm_flash_attn", "huggingface_hub")


class Finder(stubs.Finder):
    def find_spec(self, name, path=None, target=None):
        place = stubs.WHEEL.joinpath(*name.split("."))
        if name + "." == MOONCAKE or name.startswith(MOONCAKE + "mooncake_"):
            if place.is_dir():
                return importlib.util.spec_from_file_location(name, place / "__init__.py", submodule_search_locations=[str(place)])
            return importlib.util.spec_from_file_location(name, str(place) + ".py")
        return super().find_spec(name, path, target)


class NoStats:
    """Of vLLM's metrics nothing is looked at."""

    def __getattr__(self, name):
        return lambda *args, **more: name == "is_empty"


def install(shape):
    sys.meta_path.insert(0, Finder())
    module = importlib.import_module
    import torch
    import vllm
    vllm.__version__ = stubs.VERSION
    for name, dtype in DTYPES.items():
        setattr(torch, name, dtype)
    torch.dtype, torch.Tensor = stubs.DType, Tensor
    torch.accelerator = types.SimpleNamespace(current_device_index=lambda: 0)
    module("huggingface_hub.utils").httpx = httpx
    logging.basicConfig(level=os.environ.get("LOG", "WARNING"), format="%(levelname)s %(name)s %(message)s", stream=sys.stderr)
    for level in ("info", "warning", "debug"):
        setattr(logging.Logger, level + "_once", lambda self, text, *args, _level=level, **more: getattr(self, _level)(text, *args))
    module("vllm.logger").init_logger = logging.getLogger
    module("vllm.platforms").current_platform = stubs.Platform()
    torch_utils = module("vllm.utils.torch_utils")
    torch_utils.get_dtype_size = lambda dtype: dtype.itemsize
    torch_utils.is_non_overlapping_and_dense = lambda tensor: tensor.is_contiguous()
    envs = module("vllm.envs")
    envs.VLLM_HOST_IP, envs.VLLM_MOONCAKE_BOOTSTRAP_PORT = "127.0.0.1", shape["port"]
    envs.VLLM_MOONCAKE_CONNECTOR_TIMEOUT, envs.VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT = 10, shape.get("patience", 480)
    parallel = module("vllm.distributed.parallel_state")
    parallel.get_tensor_model_parallel_world_size = lambda: shape["ranks"]
    parallel.get_pp_group = lambda: types.SimpleNamespace(rank_in_group=0)
    module("vllm.model_executor.models.utils").extract_layer_index = lambda name: int(re.search(r"layers\.(\d+)", name).group(1))
    module("vllm.v1.attention.backends.utils").NULL_BLOCK_ID = 0
    module("vllm.v1.worker.utils").select_common_block_size = lambda block_size, backends, specs=None: shape["block_size"]
    vllm_states.install(torch)
    module("vllm.v1.request").RequestStatus = types.SimpleNamespace(FINISHED_LENGTH_CAPPED="cap", FINISHED_STOPPED="stop",
                                                                    FINISHED_ABORTED="abort")
    module(MOONCAKE + "stats").MooncakeKVConnectorStats = NoStats


def config_of(shape, role):
    ns = types.SimpleNamespace
    extra = {"mooncake_protocol": "tcp"}
    transfer = ns(kv_role=role, kv_connector_extra_config=extra, get_from_extra_config=lambda key, default: extra.get(key, default))
    model = ns(use_mla="latent" in shape, model="tiny", dtype=DTYPES[shape["dtype"]], get_total_num_kv_heads=lambda: shape["kv_heads"])
    cache = ns(block_size=shape["block_size"] * shape.get("ratio", 1), cache_dtype=shape.get("cache_dtype", "auto"))
    parallel = ns(tensor_parallel_size=shape["ranks"], pipeline_parallel_size=1, data_parallel_index=0, data_parallel_rank_local=0,
                  local_engines_only=True, nnodes_within_dp=1)
    return ns(kv_transfer_config=transfer, model_config=model, cache_config=cache, parallel_config=parallel,
              scheduler_config=ns(disable_hybrid_kv_cache_manager=False), speculative_config=None)


class Side:
    """One vLLM engine: a scheduler, and for each rank a worker with a cache of its own."""

    def __init__(self, shape, role):
        utils = importlib.import_module(CONNECTOR + "utils")
        utils.get_current_attn_backends = lambda *args, **more: [Backend]
        utils.get_current_attn_backends_and_specs = lambda *args, **more: ([Backend], None)
        connector = importlib.import_module(MOONCAKE + "mooncake_connector")
        interface = importlib.import_module("vllm.v1.kv_cache_interface")
        self.shape, self.block_size, self.count = shape, shape["block_size"], 0
        heads = max(1, shape["kv_heads"] // shape["ranks"])
        specs = self.specs(interface, heads)
        groups = [interface.KVCacheGroupSpec(layer_names=names, kv_cache_spec=spec) for names, spec in specs]
        if "groups" in shape:
            groups = vllm_states.groups_of(shape, interface, DTYPES)
        cache = interface.KVCacheConfig(num_blocks=shape["blocks"], kv_cache_tensors=[], kv_cache_groups=groups)
        config, engine = config_of(shape, role), shape.get("engine", "vllm-engine")
        self.engine = engine
        self.scheduler = connector.MooncakeConnectorScheduler(config, engine, cache)
        self.workers, self.sent = [], [set() for _ in range(shape["ranks"])]
        for rank in range(shape["ranks"]):
            connector.get_tensor_model_parallel_rank = lambda rank=rank: rank
            self.workers.append(connector.MooncakeConnectorWorker(config, engine, cache))
            self.workers[-1].register_kv_caches(self.caches_of(heads))
        self.num_groups, self.begun = len(groups), {}
        self.free = list(range(shape["blocks"] - 1, 0, -1))

    def specs(self, interface, heads):
        """[(layer names, spec)], by group: "windows" says which layers have one, "latent" how wide a row is."""
        shape, size = self.shape, self.shape["block_size"]
        dtype, windows = stubs.cache_dtype(shape), self.shape.get("windows", {})
        names = {i: f"model.layers.{i}.self_attn.attn" for i in range(shape["layers"])}
        full = [name for i, name in names.items() if str(i) not in windows]
        if "latent" in shape:
            spec = interface.MLAAttentionSpec(block_size=size, num_kv_heads=1, head_size=shape["latent"], dtype=dtype)
        else:
            spec = interface.FullAttentionSpec(block_size=size, num_kv_heads=heads, head_size=shape["head_size"], dtype=dtype)
        groups = [(full, spec)] if full else []
        for window in sorted(set(windows.values())):
            spec = interface.SlidingWindowSpec(block_size=size, num_kv_heads=heads, head_size=shape["head_size"], dtype=dtype,
                                               sliding_window=window)
            groups.append(([names[int(i)] for i in windows if windows[i] == window], spec))
        return groups

    def caches_of(self, heads):
        shape = self.shape
        if "groups" in shape:
            return vllm_states.caches_of(shape, DTYPES, Tensor)
        item = {1: np.uint8, 2: np.uint16, 4: np.uint32}[stubs.cache_dtype(shape).itemsize]
        content = (heads, self.block_size, 2 * shape["head_size"]) if "latent" not in shape else (self.block_size, shape["latent"])
        caches = {}
        for i in range(shape["layers"]):
            raw = np.zeros(shape["blocks"] * int(np.prod(content)), dtype=item)
            caches[f"model.layers.{i}.self_attn.attn"] = Tensor(raw.reshape(shape["blocks"], *content), raw)
        return caches

    def step(self):
        """What each worker reports."""
        todo = self.scheduler.build_connector_meta(types.SimpleNamespace())
        reports = []
        for worker, sent in zip(self.workers, self.sent):
            worker.start_load_kv(copy.copy(todo))
            reports.append(worker.get_transfer_results())
            sent |= reports[-1].finished_sending
        return reports

    def request(self, tokens, params, status):
        self.count += 1
        return types.SimpleNamespace(request_id=f"cmpl-test-{self.count}", status=status, num_computed_tokens=tokens,
                                     num_prompt_tokens=tokens, prompt_token_ids=list(range(tokens)), kv_transfer_params=params,
                                     _all_token_ids=list(range(tokens)), get_skip_reading_prefix_cache=lambda: False)

    def take_blocks(self, tokens):
        if "groups" in self.shape:
            return vllm_states.take_blocks(self.shape, self.free, tokens)
        return [[self.free.pop() for _ in range(-(-tokens // self.block_size))] for _ in range(self.num_groups)]

    def pull(self, params, tokens, seconds=15, hits=0):
        request = self.request(tokens, params, "run")
        blocks = self.take_blocks(tokens)
        self.scheduler.on_new_request(request)
        wanted, _ = self.scheduler.get_num_new_matched_tokens(request, hits)
        size = self.block_size * self.shape.get("ratio", 1)
        unhashed = tuple(group if len(group) == 1 else group[hits // size:] for group in blocks)
        self.scheduler.update_state_after_alloc(
            request, types.SimpleNamespace(get_unhashed_block_ids_all_groups=lambda: unhashed), wanted)
        end, done, failed = time.monotonic() + seconds, set(), False
        while time.monotonic() < end:
            for rank, report in enumerate(self.step()):
                invalid = self.workers[rank].get_block_ids_with_load_errors()
                failed = failed or bool(report.failed_recving) or bool(invalid)
                if request.request_id in report.finished_recving:
                    done.add(rank)
            if len(done) == len(self.workers):
                return {"blocks": blocks, "wanted": wanted, "ok": not failed}
            time.sleep(0.002)
        return {"blocks": blocks, "wanted": wanted, "ok": False, "late": True}

    def begin(self, transfer, tokens):
        request = self.request(tokens, {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer}, "cap")
        self.scheduler.on_new_request(request)
        self.scheduler.get_num_new_matched_tokens(request, 0)
        self.scheduler.update_state_after_alloc(request, None, 0)
        self.step()
        self.begun[transfer] = request
        return self.params_of(transfer)

    def offer(self, transfer, blocks, tokens):
        if transfer not in self.begun:
            self.begin(transfer, tokens)
        self.scheduler.request_finished(self.begun.pop(transfer), tuple(blocks))
        self.step()
        return self.params_of(transfer)

    def params_of(self, transfer):
        return {"params": {"do_remote_decode": False, "do_remote_prefill": True, "transfer_id": transfer,
                           "remote_bootstrap_addr": f"http://127.0.0.1:{self.shape['port']}", "remote_engine_id": self.engine}}

    def abort(self, transfer):
        request = self.begun.pop(transfer)
        request.status = "abort"
        self.scheduler.request_finished(request, tuple([] for _ in range(self.num_groups)))
        self.step()
        return {"aborted": transfer}

    def obey(self, order):
        what = order.pop("do")
        if what == "released":
            return {"requests": sorted(set.intersection(*self.sent))}
        return {"pull": self.pull, "offer": self.offer, "begin": self.begin, "abort": self.abort}[what](**order)


def main():
    shape = json.loads(sys.argv[1])
    install(shape)
    side = Side(shape, shape.get("role", "kv_both"))
    print(json.dumps({"ready": True}), flush=True)
    while True:
        if select.select([sys.stdin], [], [], 0.01)[0]:
            line = sys.stdin.readline()
            if not line:
                os._exit(0)
            print(json.dumps(side.obey(json.loads(line))), flush=True)
        side.step()


if __name__ == "__main__":
    main()
