#!/usr/bin/env python3
"""What it costs to go on elsewhere: a prompt's keys and values fetched from another server, beside the same prompt in one's own cache;
and what the decode server's other streams see of it.

    tests/perf/kv_hand_over.py build/release/app/quire [--tokens 1024] [--prompts 12] [--tcp]

The model is tests/e2e/large_cache_model.py: 32 KiB a token.
"""
import argparse
import http.client
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))
from large_cache_model import BYTES_PER_TOKEN, FLAGS, write_model  # noqa: E402
from serve_process import Server, free_port  # noqa: E402

KEEP = {"do_remote_decode": True, "do_remote_prefill": False}


def connection(server):
    return http.client.HTTPConnection(server.base.removeprefix("http://"), timeout=120)


def token_times(server, prompt, max_tokens, params=None):
    """When each token of a stream came; and when it was asked for, first."""
    body = {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "stream": True, "temperature": 0}
    if params:
        body["kv_transfer_params"] = params
    line = connection(server)
    times = [time.perf_counter()]
    line.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = line.getresponse()
    if answer.status != 200:
        sys.exit(f"{answer.status}: {answer.read().decode()}")
    for event in answer:
        if event.startswith(b"data: {"):
            times.append(time.perf_counter())
    return times


def keep(server, prompt):
    answer = server.ask("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 1, "kv_transfer_params": KEEP})
    params = json.loads(answer)["kv_transfer_params"]
    return params or sys.exit("the prefill server's buffer is full: fewer prompts")


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def first_token(times):
    return times[1] - times[0]


def gaps(streams):
    return [b - a for times in streams for a, b in zip(times[2:], times[3:])]


def several_streams(server, prompts, max_tokens, meanwhile=lambda: None):
    streams = [None] * len(prompts)

    def run(i):
        streams[i] = token_times(server, prompts[i], max_tokens)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    meanwhile()
    for thread in threads:
        thread.join()
    return gaps(streams)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("quire")
    args.add_argument("--tokens", type=int, default=1024)
    args.add_argument("--prompts", type=int, default=12)
    args.add_argument("--tcp", action="store_true")
    args = args.parse_args()
    draw = random.Random(1)
    prompts = [[draw.randrange(100, 1500) for _ in range(args.tokens)] for _ in range(3 * args.prompts)]
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(folder)
        line = f"127.0.0.1:{free_port()}" if args.tcp else f"unix:{folder}/kv.sock"
        common = (*FLAGS, "--kv-transfer-buffer-bytes", "1GiB", "--kv-lease-seconds", "600")
        with Server(args.quire, model, *common, "--kv-role", "prefill", "--kv-listen", line) as prefilling, \
             Server(args.quire, model, *common, "--kv-role", "decode", "--kv-peer", line) as decoding:
            kept = [keep(prefilling, prompt) for prompt in prompts[:args.prompts]]
            fetched = [first_token(token_times(decoding, p, 2, k)) for p, k in zip(prompts, kept)]
            own = [first_token(token_times(decoding, p, 2)) for p in prompts[:args.prompts]]
            computed = [first_token(token_times(decoding, p, 2)) for p in prompts[args.prompts:args.prompts + 3]]
            kept = [keep(prefilling, prompt) for prompt in prompts[-args.prompts:]]
            others = [[7, i, 9] * 5 for i in range(2)]
            alone = several_streams(decoding, others, 600)

            def hand_over(kept):
                for prompt, params in zip(prompts[-args.prompts:], kept):
                    token_times(decoding, prompt, 1, params)

            beside = several_streams(decoding, others, 600, lambda: hand_over(kept))
            beside_own = several_streams(decoding, others, 600, lambda: hand_over([None] * args.prompts))
            lost = [f for f in decoding.ask("/metrics").splitlines() if f.startswith("quire:kv_transfer_recomputed_total") and not f.endswith(" 0")]
    milli = 1e3
    megabytes = args.tokens * BYTES_PER_TOKEN / 1e6
    print(f"{args.tokens} tokens, {megabytes:.1f} MB, {'TCP' if args.tcp else 'one host'}: time to the first token, ms, p50 / most")
    for name, times in (("computed here", computed), ("in the own cache", own), ("fetched", fetched)):
        print(f"  {name:17} {milli * percentile(times, 0.5):8.2f} / {milli * max(times):.2f}")
    cost = percentile(fetched, 0.5) - percentile(own, 0.5)
    print(f"  so a hand-over takes {milli * cost:.2f} ms ({megabytes / cost / 1e3:.2f} GB/s)")
    print("two streams, ms between tokens, p50 / p99")
    for name, times in (("alone", alone), (f"beside {args.prompts} fetches", beside), ("beside the same, in the own cache", beside_own)):
        print(f"  {name:33} {milli * percentile(times, 0.5):8.3f} / {milli * percentile(times, 0.99):.3f}")
    for name, times in (("alone", alone), ("beside the own cache", beside_own)):
        print(f"  p99 beside fetches / {name} {percentile(beside, 0.99) / percentile(times, 0.99):.2f}")
    if lost:
        sys.exit(f"not everything was fetched: {lost}")


main()
