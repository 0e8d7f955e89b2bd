#!/usr/bin/env python3
"""GET /debug/requests: why a request waited, in words; and POST /reset_prefix_cache.

    tests/e2e/timelines_test.py build/release/app/quire
"""
import json
import sys
import threading
import urllib.error
import urllib.request

from serve_process import Server, check

PROMPT = "Count from 1 to 5. " * 8


def timeline(server, request_id):
    return json.loads(server.ask("/debug/requests/" + request_id))["requests"]


def kinds(one):
    return [decision["kind"] for decision in one["decisions"]]


def of_one_request(server):
    answer = server.post("/v1/completions", prompt=PROMPT, max_tokens=4)
    (one,) = timeline(server, answer["id"])
    check(f"queued, started, finished: {one}", kinds(one) == ["queued", "started", "finished"] and one["ended"])
    check("it missed the cache, in words", "none of its" in one["decisions"][1]["text"])
    (again,) = timeline(server, server.post("/v1/completions", prompt=PROMPT, max_tokens=4)["id"])
    check(f"the second hit it: {again}", "were in the prefix cache" in again["decisions"][1]["text"] and "none" not in again["decisions"][1]["text"])
    check("n choices are n requests", len(timeline(server, server.post("/v1/completions", prompt="a", max_tokens=1, n=3)["id"])) == 3)
    try:
        server.ask("/debug/requests/nobody")
        check("an unknown id is not found", False)
    except urllib.error.HTTPError as error:
        check("an unknown id is not found", error.code == 404)


def of_a_queue(server):
    ids = []
    ask = lambda: ids.append(server.post("/v1/completions", prompt=PROMPT, max_tokens=60, ignore_eos=True)["id"])
    threads = [threading.Thread(target=ask) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    lines = [timeline(server, one)[0] for one in ids]
    waited = [one for one in lines if "waits_for_turn" in kinds(one)]
    check(f"who waited for its turn is told: {lines}", waited and "--max-num-seqs" in waited[0]["summary"])
    slow = json.loads(server.ask("/debug/requests?slow"))["requests"]
    times = [one["seconds"] for one in slow]
    check("the slowest first", times == sorted(times, reverse=True) and len(times) > 3)


def reset(server):
    server.post("/v1/completions", prompt=PROMPT, max_tokens=1)
    check("it is there", "none" not in timeline(server, server.post("/v1/completions", prompt=PROMPT, max_tokens=1)["id"])[0]["decisions"][1]["text"])
    check("it is forgotten", json.loads(server.ask("/reset_prefix_cache", {}))["status"] == "reset")
    check("and missed", "none" in timeline(server, server.post("/v1/completions", prompt=PROMPT, max_tokens=1)["id"])[0]["decisions"][1]["text"])


def keys(quire):
    with Server(quire, "models/quire-tiny", "--device", "cpu", "--admin-api-key", "secret") as server:
        for path, body in (("/debug/requests", None), ("/reset_prefix_cache", {})):
            try:
                server.ask(path, body)
                check(f"{path} asks for the admin's key", False)
            except urllib.error.HTTPError as error:
                check(f"{path} asks for the admin's key", error.code == 401)
        request = urllib.request.Request(server.base + "/debug/requests", headers={"Authorization": "Bearer secret"})
        check("and takes it", urllib.request.urlopen(request, timeout=10).status == 200)


with Server(sys.argv[1], "models/quire-tiny", "--device", "cpu", "--max-num-seqs", "2") as running:
    for part in (of_one_request, of_a_queue, reset):
        part(running)
        print(part.__name__, "ok")
keys(sys.argv[1])
