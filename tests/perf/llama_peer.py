#!/usr/bin/env python3
"""llama.cpp as a peer of `quire bench --compare`, from the library inside the PyPI package xllamacpp.

    pip install xllamacpp
    quire bench m.gguf -p 512 -n 128 --compare 'tests/perf/llama_peer.py -m m.gguf -t 2'

Prints the JSON of llama-bench: {"n_prompt", "n_gen", "avg_ts"} of one run after a warm-up. That package is
built for AVX2: a native build of llama-bench is the stronger peer where one is at hand. Parameter structs
are taken from the library's own defaults; their fields are found by the defaults' values.
"""
import argparse
import ctypes as c
import importlib.util
import json
import pathlib
import struct
import time


class Params(c.Structure):  # larger than the library's: it reads and writes the beginning
    _fields_ = [("bytes", c.c_uint8 * 512)]


class Batch(c.Structure):
    _fields_ = [("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.c_void_p),
                ("pos", c.POINTER(c.c_int32)), ("n_seq_id", c.POINTER(c.c_int32)),
                ("seq_id", c.POINTER(c.POINTER(c.c_int32))), ("logits", c.POINTER(c.c_int8))]


def load_library():
    folder = pathlib.Path(importlib.util.find_spec("xllamacpp").origin).parent
    lib = c.CDLL(str(next(folder.glob("xllamacpp*.so"))))
    for name, result, arguments in [
            ("llama_model_default_params", Params, []), ("llama_context_default_params", Params, []),
            ("llama_model_load_from_file", c.c_void_p, [c.c_char_p, Params]),
            ("llama_init_from_model", c.c_void_p, [c.c_void_p, Params]),
            ("llama_get_memory", c.c_void_p, [c.c_void_p]), ("llama_memory_clear", None, [c.c_void_p, c.c_bool]),
            ("llama_batch_init", Batch, [c.c_int32, c.c_int32, c.c_int32]),
            ("llama_decode", c.c_int32, [c.c_void_p, Batch]), ("llama_synchronize", None, [c.c_void_p]),
            ("llama_log_set", None, [c.c_void_p, c.c_void_p])]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Peer:
    def __init__(self, model, threads, context, sequences):
        self.lib = lib = load_library()
        self.quiet = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda *_: None)
        lib.llama_log_set(c.cast(self.quiet, c.c_void_p), None)
        lib.llama_backend_init()
        begin = time.monotonic()
        self.model = lib.llama_model_load_from_file(model.encode(), lib.llama_model_default_params())
        assert self.model, "the model cannot be loaded"
        params = lib.llama_context_default_params()
        fields = list(struct.unpack("<16I", bytes(params.bytes[:64])))
        at = next(i for i in range(3, 12) if fields[i] == fields[i + 1] == 4)  # n_threads, n_threads_batch
        assert fields[1] == 2048 and fields[2] == 512, fields
        fields[0], fields[3], fields[at], fields[at + 1] = context * sequences, sequences, threads, threads
        params.bytes[:64] = struct.pack("<16I", *fields)
        self.context = lib.llama_init_from_model(self.model, params)
        assert self.context, "no context"
        self.load_seconds = time.monotonic() - begin
        self.batch = lib.llama_batch_init(2048, 0, sequences)
        self.random = 1

    def decode(self, rows):
        """(position, sequence, output) of each token, all in one batch"""
        self.batch.n_tokens = len(rows)
        for i, (position, sequence, output) in enumerate(rows):
            self.random = (self.random * 1103515245 + 12345) % 2 ** 31
            self.batch.token[i] = self.random % 4096
            self.batch.pos[i], self.batch.n_seq_id[i] = position, 1
            self.batch.seq_id[i][0], self.batch.logits[i] = sequence, output
        assert self.lib.llama_decode(self.context, self.batch) == 0

    def run(self, prompt, generate, sequences, depth):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        for s in range(sequences if generate else 0):
            for at in range(0, depth, 512):
                self.decode([(p, s, p + 1 == depth) for p in range(at, min(depth, at + 512))])
        begin = time.monotonic()
        if prompt:
            for at in range(0, prompt, 2048):
                self.decode([(p, 0, p + 1 == prompt) for p in range(at, min(prompt, at + 2048))])
        for i in range(generate):
            self.decode([(depth + i, s, 1) for s in range(sequences)])
            self.lib.llama_synchronize(self.context)
        self.lib.llama_synchronize(self.context)
        return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", required=True)
    for flag, value in {"-t": 2, "-p": 0, "-n": 0, "--batch": 1, "--depth": 0}.items():
        parser.add_argument(flag, type=int, default=value)
    a = parser.parse_args()
    peer = Peer(a.m, a.t, max(a.p, a.n + a.depth, 1) + 64, a.batch)
    peer.run(min(a.p, 32), min(a.n, 2), a.batch, 0)
    seconds = peer.run(a.p, a.n, a.batch, a.depth)
    print(json.dumps([{"n_prompt": a.p, "n_gen": a.n, "batch": a.batch, "load_s": peer.load_seconds,
                       "avg_ts": (a.p or a.n * a.batch) / seconds}]))


if __name__ == "__main__":
    main()
