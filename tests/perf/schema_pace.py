#!/usr/bin/env python3
"""Tokens per second of the shipped model under grammars, against free text of the same server, in turns. Where it may (as root), server
and client run with real-time priority, so that other work on the machine costs caches and nothing else.

    tests/perf/schema_pace.py build/release/app/quire [rounds=9] [flags of serve …]
"""
import http.client
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from serve_process import Server  # noqa: E402

TOKENS = 1000
CITY = {"type": "object", "additionalProperties": False, "required": ["city", "people", "capital", "note"], "properties": {
    "city": {"type": "string", "maxLength": 20}, "people": {"type": "integer", "minimum": 1, "maximum": 9999999},
    "capital": {"type": "boolean"}, "note": {"type": "string", "maxLength": 40}}}


def cities(salt):
    return {"json": {"type": "array", "items": CITY, "minItems": 200 + salt}}


# By what is asked for; a new grammar has to be compiled each time.
KINDS = {"free text": lambda salt: {}, "a schema": lambda salt: {"structured_outputs": cities(0)},
         "a new schema": lambda salt: {"structured_outputs": cities(salt)},
         "strings": lambda salt: {"structured_outputs": {"json": {"type": "string", "minLength": 9000}}},
         "a regex": lambda salt: {"structured_outputs": {"regex": "([a-z]{2,9} ){900}"}}}


def be_urgent(pid):
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(5))
        return True
    except PermissionError:
        return False


def engine_time(pid):
    """Processor time of all threads, in seconds, to the nanosecond."""
    return sum(int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0]) for thread in os.listdir(f"/proc/{pid}/task")) / 1e9


def ask(port, pid, **members):
    """Tokens per second of time, and of processor time."""
    body = json.dumps(dict(prompt="The cities are: ", max_tokens=TOKENS, ignore_eos=True, temperature=0.7, seed=1, **members))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    spent, begun = engine_time(pid), time.perf_counter()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    reply = json.loads(connection.getresponse().read())
    tokens = reply["usage"]["completion_tokens"]
    return tokens / (time.perf_counter() - begun), tokens / (engine_time(pid) - spent)


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    with Server(sys.argv[1], "models/quire-tiny", *sys.argv[3:]) as server:
        port, pid = int(server.base.rsplit(":", 1)[1]), server.process.pid
        seen = {kind: [] for kind in KINDS}
        for salt in range(-1, rounds):
            urgent = be_urgent(pid) and be_urgent(os.getpid())
            for kind, members in KINDS.items():
                rates = ask(port, pid, **members(salt + 1))
                if salt >= 0:
                    seen[kind].append(rates)
    print(f"load {os.getloadavg()[0]:.1f}, real-time priority: {'yes' if urgent else 'no'}")
    for kind, rates in seen.items():
        by_time, by_processor = (statistics.median(rate[i] / free[i] for rate, free in zip(rates, seen["free text"])) for i in (0, 1))
        print(f"{kind:13} {statistics.median(rate[0] for rate in rates):6.0f} tokens/s, {by_time:.3f} of free text, by processor time {by_processor:.3f}")


if __name__ == "__main__":
    main()
