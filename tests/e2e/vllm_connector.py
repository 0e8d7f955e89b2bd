#!/usr/bin/env python3
"""vLLM's own NIXL connector as the other side of a test: its worker and scheduler classes from an unpacked wheel, over the real NIXL
library, with numpy for the cache and stubs for torch and everything else. Commands come as JSON lines, answers go out the same way.

    {"do": "pull", "params": {...}, "tokens": 90}    reads what another server keeps → {"blocks": [[...]], "ok": true}
    {"do": "offer", "blocks": [...], "tokens": 90}   keeps blocks as a prefill server would → {"params": {...}}
    {"do": "released"}                               → {"requests": [...]}: what the other side has read, or let expire
    {"do": "hash"}                                   → {"hash": "...", "layout": ...}

With "push" in the shape the classes are those of NixlPushConnector: "pull" then registers blocks for what is to be written, and "offer"
keeps blocks for whoever registers; "name" is what X-Request-Id makes of both requests. "hits" is how many tokens of a pull are in the first
of the blocks that another one answered with ("known") already.

Needs QUIRE_VLLM_WHEEL (a folder with the wheel's *.py files) and the packages nixl, pyzmq, msgspec, numpy and a few small ones.
"""
import contextlib
import copy
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import os
import pathlib
import select
import sys
import time
import types

import numpy as np

import vllm_states
from vllm_platform import Platform

WHEEL = pathlib.Path(os.environ["QUIRE_VLLM_WHEEL"])
CONNECTOR = "vllm.distributed.kv_transfer.kv_connector."
REAL = {CONNECTOR + "utils", CONNECTOR + "v1.base", CONNECTOR + "v1.metrics", CONNECTOR + "v1.ssm_conv_transfer_utils",
        "vllm.distributed.nixl_utils", "vllm.v1.kv_cache_interface", "vllm.v1.kv_cache_layout", "vllm.v1.kv_cache_spec_registry",
        "vllm.utils.math_utils", "vllm.utils.network_utils", "vllm.config.utils"}
VERSION = os.environ.get("QUIRE_VLLM_VERSION", "0.33.0")
STUBBED = ("vllm", "torch", "transformers", "pydantic", "vllm_flash_attn")


class AnyType(type):
    """A class whose attributes are such classes, too."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyType(name, (Anything,), {})

    def __call__(cls, *args, **more):
        return object.__new__(cls)

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __getitem__(cls, item):
        return cls

    def __iter__(cls):
        return iter(())


class Anything(metaclass=AnyType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args, **more):
        return args[0] if len(args) == 1 and callable(args[0]) and not more else Anything()

    def __getitem__(self, item):
        return Anything()

    def __or__(self, other):
        return self

    __ror__ = __or__


class StubModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = AnyType(name, (Anything,), {})
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "vllm" and (name in REAL or name.startswith(CONNECTOR + "v1.nixl")):
            place = WHEEL.joinpath(*name.split("."))
            if place.is_dir():
                return importlib.util.spec_from_file_location(name, place / "__init__.py", submodule_search_locations=[str(place)])
            return importlib.util.spec_from_file_location(name, str(place) + ".py")
        if name.split(".")[0] in STUBBED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = StubModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


class DType:
    def __init__(self, name, itemsize):
        self.name, self.itemsize = name, itemsize

    def __repr__(self):
        return "torch." + self.name


DTYPES = {"bfloat16": DType("bfloat16", 2), "float16": DType("float16", 2), "float32": DType("float32", 4), "uint8": DType("uint8", 1),
          "int8": DType("int8", 1)}


class Tensor:
    """What the connector asks of a tensor, over a numpy array."""

    def __init__(self, array, base=None):
        self.array, self.base = array, array if base is None else base

    shape = property(lambda self: self.array.shape)
    ndim = property(lambda self: self.array.ndim)
    nbytes = property(lambda self: self.array.nbytes)
    device = property(lambda self: types.SimpleNamespace(type="cpu", index=None))

    def stride(self, axis=None):
        strides = tuple(bytes_ // self.array.itemsize for bytes_ in self.array.strides)
        return strides if axis is None else strides[axis]

    def element_size(self):
        return self.array.itemsize

    def data_ptr(self):
        return self.array.ctypes.data

    def is_contiguous(self):
        return self.array.flags.c_contiguous

    def get_device(self):
        return -1

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.base.ctypes.data, nbytes=lambda: self.base.nbytes)

    def __getitem__(self, index):
        return Tensor(self.array[index], self.base)

    # What follows a read of smaller blocks than one's own.

    def index_select(self, axis, indices):
        return Tensor(np.take(self.array, indices, axis))

    def reshape(self, *shape):
        return Tensor(self.array.reshape(shape))

    def permute(self, *axes):
        return Tensor(self.array.transpose(axes))

    def flatten(self, first, last):
        shape = self.array.shape
        return Tensor(self.array.reshape(*shape[:first], -1, *shape[last + 1:]))

    def index_copy_(self, axis, indices, source):
        assert axis == 0
        self.array[indices] = source.array

    def index_fill_(self, axis, indices, value):
        assert axis == 0
        self.array[indices] = value

    def zero_(self):
        self.array[...] = 0


def cache_dtype(shape):
    return DTYPES["uint8" if "cache_dtype" in shape else shape["dtype"]]


def install(shape):
    side_port, num_ranks = shape["port"], shape["ranks"]
    import nixl  # noqa: F401, before the finder: it looks for torch
    sys.meta_path.insert(0, Finder())
    import torch
    import vllm
    vllm.__version__ = VERSION
    for name, dtype in DTYPES.items():
        setattr(torch, name, dtype)
    torch.dtype, torch.Tensor, torch.version = DType, Tensor, types.SimpleNamespace(cuda=None, hip=None)
    logging.basicConfig(level=os.environ.get("LOG", "WARNING"), format="%(levelname)s %(name)s %(message)s", stream=sys.stderr)
    for level in ("info", "warning", "debug"):
        setattr(logging.Logger, level + "_once", lambda self, text, *args, _level=level, **more: getattr(self, _level)(text, *args))
    module = importlib.import_module
    module("vllm.logger").init_logger = logging.getLogger
    module("vllm.platforms").current_platform = Platform()
    module("vllm.utils.torch_utils").get_dtype_size = lambda dtype: dtype.itemsize
    module("vllm.utils.torch_utils").async_tensor_h2d = lambda values, *device_and_type: np.asarray(values)
    envs = module("vllm.envs")
    envs.VLLM_NIXL_SIDE_CHANNEL_HOST, envs.VLLM_NIXL_SIDE_CHANNEL_PORT = "127.0.0.1", side_port
    module("vllm.distributed.parallel_state").get_tensor_model_parallel_world_size = lambda: num_ranks
    module("vllm.v1.worker.utils").select_common_block_size = lambda block_size, backends, specs=None: shape["block_size"]
    vllm_states.install(torch)
    module("vllm.utils.gpu_sync_debug").gpu_sync_allowed = lambda *args, **more: contextlib.nullcontext()
    module("vllm.v1.request").RequestStatus = types.SimpleNamespace(FINISHED_LENGTH_CAPPED="cap", FINISHED_STOPPED="stop",
                                                                    FINISHED_ABORTED="abort")


def config_of(shape, role, extra, layout):
    ns = types.SimpleNamespace
    transfer = ns(get_from_extra_config=lambda key, default: extra.get(key, default), kv_role=role, kv_buffer_device="cpu",
                  enable_permute_local_kv=False, kv_connector_extra_config=extra)
    model = ns(use_mla=False, model=shape["model"], dtype=DTYPES[shape["dtype"]], get_total_num_kv_heads=lambda: shape["kv_heads"],
               get_head_size=lambda: shape["head_size"], get_total_num_hidden_layers=lambda: shape["layers"], enable_sleep_mode=False)
    cache = ns(block_size=shape["block_size"], cache_dtype=shape.get("cache_dtype", "auto"), mamba_cache_mode="none",
               enable_prefix_caching=True,
               get_resolved_kv_cache_layout=lambda: layout)
    parallel = ns(tensor_parallel_size=shape["ranks"], pipeline_parallel_size=1, prefill_context_parallel_size=1,
                  decode_context_parallel_size=1, data_parallel_index=0)
    return ns(kv_transfer_config=transfer, model_config=model, cache_config=cache, parallel_config=parallel,
              scheduler_config=ns(disable_hybrid_kv_cache_manager=False), speculative_config=None, num_prefill_lookahead_tokens=0)


def old_results(worker):
    """Before 0.31 failures are told with the requests that were received, by their blocks."""
    sent, received = worker.get_finished()
    return types.SimpleNamespace(finished_sending=sent, finished_recving=received, failed_recving=None)


class Backend:
    @staticmethod
    def get_name():
        return "FLASH_ATTN"

    @staticmethod
    def get_kv_cache_shape(num_blocks, block_size, num_kv_heads, head_size, **more):
        if VERSION.startswith("0.25"):  # keys and values apart, in two halves of a block
            return num_blocks, 2, block_size, num_kv_heads, head_size
        return num_blocks, num_kv_heads, block_size, 2 * head_size


class Side:
    """One vLLM engine: a scheduler, and for each rank a worker with a cache of its own."""

    def __init__(self, shape, role, extra):
        interface = importlib.import_module("vllm.v1.kv_cache_interface")
        utils = importlib.import_module(CONNECTOR + "utils")
        utils.get_current_attn_backends = lambda *args, **more: [Backend]
        utils.get_current_attn_backends_and_specs = lambda *args, **more: ([Backend], None)
        names = [f"model.layers.{i}.self_attn.attn" for i in range(shape["layers"])]
        heads = max(1, shape["kv_heads"] // shape["ranks"])
        spec = interface.FullAttentionSpec(block_size=shape["block_size"], num_kv_heads=heads, head_size=shape["head_size"],
                                           dtype=cache_dtype(shape))
        groups = [interface.KVCacheGroupSpec(layer_names=names, kv_cache_spec=spec)]
        if "groups" in shape:
            groups = vllm_states.groups_of(shape, interface, DTYPES)
        cache = interface.KVCacheConfig(num_blocks=shape["blocks"], kv_cache_tensors=[object()] * shape["layers"],
                                        kv_cache_groups=groups)
        layouts = getattr(interface, "KVCacheLayout", None)  # since 0.31; before, a function of another module says it
        importlib.import_module("vllm.v1.attention.backends.utils").get_kv_cache_layout = lambda: "HND"
        config = config_of(shape, role, extra, layouts["LBHNC"] if layouts else "HND")
        nixl = CONNECTOR + "v1.nixl."
        engine = shape.get("engine", "vllm-engine")
        mode = "Push" if shape.get("push") else "Pull"
        scheduler = getattr(importlib.import_module(nixl + mode.lower() + "_scheduler"), f"Nixl{mode}ConnectorScheduler")
        self.scheduler = scheduler(config, engine, cache)
        worker = importlib.import_module(nixl + mode.lower() + "_worker")
        worker_class = getattr(worker, f"Nixl{mode}ConnectorWorker")
        parallel = importlib.import_module("vllm.distributed.parallel_state")
        self.workers, self.caches = [], []
        for rank in range(shape["ranks"]):
            parallel.get_tensor_model_parallel_rank = lambda rank=rank: rank
            for place in (worker, sys.modules[nixl + "base_worker"]):  # each has taken the function by name
                if hasattr(place, "get_tensor_model_parallel_rank"):
                    place.get_tensor_model_parallel_rank = parallel.get_tensor_model_parallel_rank
            self.workers.append(worker_class(config, engine, cache))
            self.caches.append(self.cache_of(shape, names, heads))
            self.workers[-1].register_kv_caches(self.caches[-1])
        self.scheduler.set_xfer_handshake_metadata({rank if VERSION.startswith("0.25") else (0, rank): one.xfer_handshake_metadata
                                                    for rank, one in enumerate(self.workers)})
        self.shape = shape
        self.free, self.block_size, self.count = list(range(shape["blocks"] - 1, 0, -1)), shape["block_size"], 0
        self.sent = [set() for _ in self.workers]

    @staticmethod
    def cache_of(shape, names, heads):
        if "groups" in shape:
            return vllm_states.caches_of(shape, DTYPES, Tensor)
        item = {1: np.uint8, 2: np.uint16, 4: np.uint32}[cache_dtype(shape).itemsize]
        per_block = heads * shape["block_size"] * 2 * shape["head_size"]
        caches = {}
        for name in names:
            raw = np.zeros(shape["blocks"] * per_block, dtype=item)
            content = (heads, shape["block_size"], 2 * shape["head_size"])
            if VERSION.startswith("0.25"):
                content = (2, heads, shape["block_size"], shape["head_size"])
            caches[name] = Tensor(raw.reshape(shape["blocks"], *content), raw)
        return caches

    def step(self):
        """What each worker reports."""
        todo = self.scheduler.build_connector_meta(types.SimpleNamespace())
        reports = []
        for worker, sent in zip(self.workers, self.sent):
            worker.start_load_kv(copy.deepcopy(todo))
            reports.append(worker.get_transfer_results() if hasattr(worker, "get_transfer_results") else old_results(worker))
            sent |= reports[-1].finished_sending or set()
        return reports

    def request(self, tokens, params, status, name=""):
        self.count += 1
        return types.SimpleNamespace(request_id=f"{name}-{self.count:08x}" if name else f"cmpl-test-{self.count}", status=status,
                                     num_computed_tokens=tokens, num_prompt_tokens=tokens, prompt_token_ids=list(range(tokens)),
                                     _all_token_ids=list(range(tokens)), kv_transfer_params=params,
                                     get_skip_reading_prefix_cache=lambda: False)

    def take_blocks(self, tokens):
        if "groups" in self.shape:
            return vllm_states.take_blocks(self.shape, self.free, tokens)
        return [[self.free.pop() for _ in range(-(-tokens // self.block_size))]]

    def attention_groups(self):
        return [group["kind"] == "attention" for group in self.shape.get("groups", [{"kind": "attention"}])]

    def pull(self, params, tokens, name="", hits=0, known=None):
        """The first `hits` tokens are in the cache: in the first of the blocks `known`."""
        request = self.request(tokens, params, "run", name)
        count = hits // (self.block_size * self.shape.get("ratio", 1))
        fresh = [group[count:] if attends else group for attends, group in zip(self.attention_groups(), self.take_blocks(tokens))]
        blocks = [old[:count] + new if count and attends else new
                  for attends, old, new in zip(self.attention_groups(), known or fresh, fresh)]
        self.scheduler.on_new_request(request)
        wanted, _ = self.scheduler.get_num_new_matched_tokens(request, hits)
        empty = types.SimpleNamespace(block_hash=None, is_null=False)
        self.scheduler.update_state_after_alloc(request, types.SimpleNamespace(
            get_unhashed_block_ids_all_groups=lambda: tuple(fresh), blocks=tuple([empty] * len(group) for group in blocks)), wanted)
        end, done, failed = time.monotonic() + 15, set(), False
        while time.monotonic() < end:
            for rank, report in enumerate(self.step()):
                if report.finished_recving or report.failed_recving:
                    done.add(rank)
                failed = failed or bool(report.failed_recving) or bool(self.workers[rank].get_block_ids_with_load_errors())
            if len(done) == len(self.workers) or failed:
                return {"blocks": blocks, "wanted": wanted, "ok": not failed}
            time.sleep(0.005)
        return {"blocks": blocks, "wanted": wanted, "ok": False, "late": True}

    def offer(self, blocks, tokens, name=""):
        blocks = blocks if isinstance(blocks[0], list) else [blocks]
        params = dict(do_remote_decode=True, do_remote_prefill=False, remote_engine_id=None, remote_block_ids=None, remote_host=None,
                      remote_port=None)
        request = self.request(tokens, params, "cap", name)
        self.scheduler.on_new_request(request)
        request.num_computed_tokens = request.num_prompt_tokens  # of a hybrid model the last one is left out
        self.scheduler.get_num_new_matched_tokens(request, 0)
        self.scheduler.update_state_after_alloc(request, None, 0)
        self.step()
        _, answer = self.scheduler.request_finished(request, tuple(blocks))
        self.step()
        return {"params": answer}

    def obey(self, order):
        if order["do"] == "pull":
            return self.pull(order["params"], order["tokens"], order.get("name", ""), order.get("hits", 0), order.get("known"))
        if order["do"] == "offer":
            return self.offer(order["blocks"], order["tokens"], order.get("name", ""))
        if order["do"] == "released":
            return {"requests": sorted(set.intersection(*self.sent))}
        if order["do"] == "hash":
            return {"hash": self.workers[0].xfer_handshake_metadata.compatibility_hash}
        raise ValueError(order["do"])


def main():
    shape, extra = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    install(shape)
    side = Side(shape, "kv_both", extra)
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
