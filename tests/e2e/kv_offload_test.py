#!/usr/bin/env python3
"""KV offload through the server: a pool with room for one conversation of twelve, with memory, then a file, behind it.

    tests/e2e/kv_offload_test.py build/release/app/quire
"""
import re
import resource
import sys
import tempfile
from pathlib import Path

from serve_process import Server, check

POOL = ("--num-gpu-blocks-override", "70", "--max-model-len", "1024")
PROMPTS = [f"Conversation number {i}: " + f"What is {i} plus 7? " * 20 for i in range(12)]


def answers(server):
    return [server.post("/v1/completions", prompt=prompt, max_tokens=16, temperature=0)["choices"][0]["text"] for prompt in PROMPTS]


def count(server, name):
    return float(re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)", server.ask("/metrics"), re.M)[1])


def hits(server):
    return count(server, "vllm:external_prefix_cache_hits_total")


def labelled(server, name, label):
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}{{[^}}]*{re.escape(label)}[^}}]*}} (\S+)", server.ask("/metrics"), re.M))


def other_numbers(quire):
    """As wide, and of no use: float16 where the file has bfloat16."""
    with tempfile.TemporaryDirectory() as folder:
        disk = (*POOL, "--kv-offload-bytes", "1MiB", "--kv-offload-path", folder)
        with Server(quire, "models/quire-tiny", *disk, "--kv-cache-dtype", "bfloat16") as server:
            answers(server)
        with Server(quire, "models/quire-tiny", *POOL, "--kv-cache-dtype", "float16") as server:
            want = answers(server)
        with Server(quire, "models/quire-tiny", *disk, "--kv-cache-dtype", "float16") as server:
            check("a cache of another dtype is not taken over", answers(server) == want)


def limited_file(quire, want):
    """What a service manager's LimitFSIZE does: writes fail, the server goes on, and begins again once the file is empty."""
    with tempfile.TemporaryDirectory() as folder:
        small = 200_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (small, resource.RLIM_INFINITY))
        server = Server(quire, "models/quire-tiny", *POOL, "--kv-offload-bytes", "1MiB", "--kv-offload-path", folder)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with server:
            check("a limit of the file's size changes no answer", answers(server) == want)
            written = labelled(server, "quire:kv_offload_bytes_total", 'operation="written"')
            check(f"something was written: {written}", 0 < written <= small)
            server.ask("/reset_prefix_cache", {})
            check("nor after a reset", answers(server) == want)
            again = labelled(server, "quire:kv_offload_bytes_total", 'operation="written"')
            check(f"an emptied file is written again: {written} {again}", again > written)


def main(quire):
    with Server(quire, "models/quire-tiny", *POOL) as server:
        want = answers(server)
    with Server(quire, "models/quire-tiny", *POOL, "--kv-offload-bytes", "16MiB") as server:
        check("memory changes no answer, cold", answers(server) == want and hits(server) == 0)
        check("nor with hits", answers(server) == want)
        check(f"most of it was found there: {hits(server)}", hits(server) > 1000)
        outside = labelled(server, "vllm:prompt_tokens_by_source_total", 'source="external_kv_transfer"')
        check(f"prompt tokens are counted where they came from: {outside}", outside == hits(server))
    with tempfile.TemporaryDirectory() as folder:
        disk = (*POOL, "--kv-offload-bytes", "1MiB", "--kv-offload-path", folder, "--kv-offload-path-bytes", "64MiB")
        with Server(quire, "models/quire-tiny", *disk) as server:
            check("a file changes no answer", answers(server) == want)
        with Server(quire, "models/quire-tiny", *disk) as server:
            check("nor after a restart", answers(server) == want)
            check(f"which finds it again: {hits(server)}", hits(server) > 0)
        for path in Path(folder).iterdir():
            damaged = bytearray(path.read_bytes())
            for at in range(4096, len(damaged), 1024):
                damaged[at] ^= 0xFF
            path.write_bytes(damaged)
        with Server(quire, "models/quire-tiny", *disk) as server:
            check("what is damaged is computed again", answers(server) == want and hits(server) == 0)
    other_numbers(quire)
    limited_file(quire, want)
    print("kv offload: ok")


main(sys.argv[1])
