#!/usr/bin/env python3
"""Mixed traffic through servers that prefill and servers that decode, pulled and pushed, while some of them are stopped, killed and started
again: every answer that comes is right, memory and descriptors stay flat, every block and every kept prompt comes back.

    tests/e2e/transfer_soak_test.py build/release/app/quire [--minutes 30] [--readings 6] [--clients 6]

Without --minutes a short one, as ctest runs it. Of two servers for each role one is never touched: its memory is looked at.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

from proxy_test import Proxy
from raw_http import connect, head, reset
from serve_process import Server, check, eventually, free_port, question_body, text_of

MODEL = "models/quire-tiny"
LEASE = 6
FLAGS = ("--device", "cpu", "--max-model-len", "1024", "--kv-cache-memory-bytes", "48MiB", "--cpu-threads", "1", "--deterministic",
         "--kv-lease-seconds", str(LEASE))
PATH = "/v1/chat/completions"


class Node:
    """A server at one address through all of its starts."""

    def __init__(self, quire, name, log, *flags):
        self.name, self.port, self.log = name, free_port(), log
        self.start = lambda: Server(quire, MODEL, *FLAGS, *flags, "--port", str(self.port), log=self.log).__enter__()
        self.server = self.start()
        self.base = self.server.base
        self.pid = self.server.process.pid

    def stop(self, how):
        self.server.process.send_signal(how)
        self.server.process.communicate(timeout=60)
        if how == signal.SIGTERM:
            check(f"{self.name} ends with 0 after SIGTERM", self.server.process.returncode == 0, self.server.process.returncode)

    def again(self):
        self.server = self.start()
        self.pid = self.server.process.pid


def held_by(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return {"rss_kib": rss, "fds": len(os.listdir(f"/proc/{pid}/fd"))}


class Traffic:
    def __init__(self, expected, proxies):
        self.expected, self.proxies = expected, proxies
        self.seen, self.wrong = collections.Counter(), []
        self.kills = []  # begin and end of the times in which a server that decodes was lost without a word
        self.leaving, self.stopping, self.under_way = threading.Event(), threading.Event(), 0
        self.lock = threading.Lock()

    def lost_since(self, start):
        with self.lock:
            return any(end is None or end > start for _, end in self.kills)

    def answer(self, mode, proxy, question, **more):
        status, text = Proxy.send(proxy, PATH, question_body(question, 24, model="m", **more))
        check(f"{mode}: an answer", status == 200, f"{status} {text[:500]}")
        for choice in json.loads(text)["choices"]:
            check(f"{mode}: the right answer to {question[-40:]!r}", choice["message"]["content"] == self.expected[question], text[:500])

    def choices(self, mode, proxy, question):
        self.answer(mode, proxy, question, n=2)

    def stream(self, mode, proxy, question):
        start = time.monotonic()
        status, text = Proxy.send(proxy, PATH, question_body(question, 24, model="m", stream=True))
        check(f"{mode}: a stream", status == 200, f"{status} {text[:500]}")
        parts = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        got = "".join(p["choices"][0]["delta"].get("content") or "" for p in parts if p.get("choices"))
        if "[DONE]" in text and got == self.expected[question]:
            return
        check(f"{mode}: a stream that ends early of a server that was killed", self.lost_since(start), text[-500:])
        check(f"{mode}: what came before", self.expected[question].startswith(got), text[-500:])
        with self.lock:
            self.seen["streams cut by a kill"] += 1

    def leave(self, mode, proxy, question):
        body = json.dumps(question_body(question, 200, model="m", stream=True, ignore_eos=True)).encode()
        with connect(int(proxy.base.rsplit(":", 1)[1])) as s:
            s.sendall(head(PATH, "none", len(body)) + body)
            time.sleep(random.random())
            reset(s)

    def client(self, seed):
        pick = random.Random(seed)
        actions = (self.answer, self.answer, self.stream, self.stream, self.leave, self.choices)
        while not self.stopping.is_set():
            if self.leaving.is_set():
                time.sleep(0.05)
                continue
            with self.lock:
                self.under_way += 1
            action, (mode, proxy) = pick.choice(actions), pick.choice(self.proxies)
            try:
                action(mode, proxy, pick.choice(list(self.expected)))
                with self.lock:
                    self.seen[f"{mode} {action.__name__}"] += 1
            except (SystemExit, OSError, ValueError, KeyError) as e:
                self.wrong.append(f"{time.strftime('%H:%M:%S')} {mode} {action.__name__}: {type(e).__name__} {e}")
            with self.lock:
                self.under_way -= 1
            self.stopping.wait(pick.expovariate(2))


def trouble(traffic, victims, pauses):
    """One server at a time ends in either way, is away for a while, and comes back."""
    pick = random.Random(7)
    while not traffic.stopping.wait(pick.uniform(*pauses)):
        if traffic.leaving.is_set():
            continue
        victim, how = pick.choice(victims), pick.choice((signal.SIGTERM, signal.SIGKILL))
        is_loss = how == signal.SIGKILL and "decode" in victim.name
        with traffic.lock:
            traffic.under_way += 1
            if is_loss:
                traffic.kills.append([time.monotonic(), None])
        try:
            victim.stop(how)
            with traffic.lock:
                if is_loss:  # what it answered was cut at once
                    traffic.kills[-1][1] = time.monotonic() + 1
                traffic.seen[f"{victim.name} {how.name}"] += 1
            time.sleep(pick.uniform(0, 2))
            victim.again()
        except SystemExit as e:
            traffic.wrong.append(str(e))
            return
        finally:
            with traffic.lock:
                traffic.under_way -= 1


def at_rest(traffic, nodes, watched):
    """What is held when nothing is under way and all leases have ended."""
    traffic.leaving.set()
    eventually("all that is under way ends", lambda: traffic.under_way == 0, 120)
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "quire:kv_transfer_buffer_bytes")
    for node in nodes:
        eventually(f"{node.name}: all comes back", lambda: not any(node.server.metric(name) for name in names), 60 + 3 * LEASE)
    reading = {name: held_by(pid) for name, pid in watched.items()}
    traffic.leaving.clear()
    return reading


def judge(readings, sanitized):
    for name in readings[0]:
        held = [reading[name] for reading in readings]
        print(f"{name}: RSS at rest {[h['rss_kib'] // 1024 for h in held]} MiB, descriptors {[h['fds'] for h in held]}")
        grown = held[-1]["rss_kib"] - held[len(held) // 3]["rss_kib"]
        check(f"{name}: memory grows", grown < 16 * 1024 or sanitized, held)
        check(f"{name}: descriptors are left behind", held[-1]["fds"] <= max(h["fds"] for h in held[:-1]) + 4, held)


def questions():
    story = [f"{a} + {b} = {a + b}." for a, b in random.Random(3).choices([(a, b) for a in range(40) for b in range(40)], k=120)]
    return [f"{' '.join(story[i:i + length])} What is {i} + {length}?" for i in range(6) for length in (0, 3, 12, 40, 70)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("quire")
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--readings", type=int, default=2)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--sanitized", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "ab") as log:
        quire, node = options.quire, lambda name, *flags: Node(options.quire, name, log, *flags)
        with Server(quire, MODEL, *FLAGS[:-2]) as alone:
            expected = {q: text_of(alone.post(PATH, **question_body(q, 24))) for q in questions()}
        over_tcp, over_unix = f"127.0.0.1:{free_port()}", f"unix:{folder}/prefill"
        peers = ("--kv-role", "decode", "--kv-peer", over_tcp, "--kv-peer", over_unix)
        nodes = [node("prefill, kept", "--kv-role", "prefill", "--kv-listen", over_tcp),
                 node("prefill", "--kv-role", "prefill", "--kv-listen", over_unix, "--block-size", "32"),
                 node("decode, kept", *peers, "--block-size", "32"), node("decode", *peers)]
        prefill, decode = nodes[:2], nodes[2:]
        with Proxy(quire, prefill, decode) as pulling, Proxy(quire, prefill, decode, "--transfer-mode", "push") as pushing:
            traffic = Traffic(expected, (("pull", pulling), ("push", pushing)))
            threads = [threading.Thread(target=traffic.client, args=(i,), daemon=True) for i in range(options.clients)]
            pauses = (5, 30) if options.minutes > 2 else (1, 4)
            threads.append(threading.Thread(target=trouble, args=(traffic, (nodes[1], nodes[3]), pauses), daemon=True))
            for thread in threads:
                thread.start()
            watched = {"prefill": nodes[0].pid, "decode": nodes[2].pid, "proxy that pulls": pulling.process.pid,
                       "proxy that pushes": pushing.process.pid}
            readings = []
            for _ in range(options.readings):
                end = time.monotonic() + 60 * options.minutes / options.readings
                while time.monotonic() < end and not traffic.wrong:
                    time.sleep(0.2)
                check(f"{len(traffic.wrong)} are not as they should be", not traffic.wrong, "\n".join(traffic.wrong[:20]))
                readings.append(at_rest(traffic, nodes, watched))
                print(dict(sorted(traffic.seen.items())), flush=True)
            traffic.stopping.set()
            for thread in threads:
                thread.join(60)
            check(f"{len(traffic.wrong)} are not as they should be", not traffic.wrong, "\n".join(traffic.wrong[:20]))
            for n in nodes:
                print(f"{n.name}: {n.server.metric('quire:kv_transfers_total'):.0f} transfers, "
                      f"{n.server.metric('quire:kv_transfer_recomputed_total'):.0f} computed again")
            check("much was shared", nodes[2].server.metric("quire:kv_transfers_total") > traffic.seen["pull answer"] / 8)
        for n in nodes:
            n.stop(signal.SIGTERM)
        judge(readings, options.sanitized)
    print("ok")


main()
