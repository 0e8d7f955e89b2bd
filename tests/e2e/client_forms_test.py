#!/usr/bin/env python3
"""What clients send in forms of their own: names of models with slashes, whole URLs as targets, marks of byte order, empty lists of
tools, time limits in bodies, queries of stored responses; and what is refused at the door, which leaves a line and a count.

    tests/e2e/client_forms_test.py build/release/app/quire
"""
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from raw_http import connect, read_reply
from serve_process import Server, check

TINY = "models/quire-tiny"
CHAT = [{"role": "user", "content": "What is 12 + 7?"}]


def ask(server, path, body=None, raw=None, method=None):
    """Status and what was answered, as JSON where it is."""
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(server.base + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=60) as reply:
            status, text = reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    return status, json.loads(text) if text.startswith("{") else text


def by_hand(server, request):
    with connect(int(server.base.rsplit(":", 1)[1])) as line:
        line.sendall(request.encode())
        return read_reply(line)


def targets(quire):
    with Server(quire, TINY, "--served-model-name", "org/tiny ключ", "--device", "mock", "--allowed-hosts", "front.example") as server:
        name = urllib.parse.quote("org/tiny ключ", safe="")
        status, card = ask(server, "/v1/models/" + name)
        check(f"a name's slash may be encoded: {card}", status == 200 and card["id"] == "org/tiny ключ")
        status, card = ask(server, "/v1/models/org/tiny%20" + urllib.parse.quote("ключ"))
        check(f"or not: {card}", status == 200 and card["id"] == "org/tiny ключ")
        check("so may any letter of a path", ask(server, "/v1/%6dodels")[0] == 200)
        check("what is no escape stands for itself", ask(server, "/v1/models/100%")[0] == 404)
        status, answer = ask(server, "/v1/models/a%0ab")
        check(f"control characters are refused: {answer}", status == 400 and "control characters" in answer["error"]["message"])
        url = "GET http://{} HTTP/1.1\r\nHost: {}\r\n\r\n"
        check("a whole URL is a target", by_hand(server, url.format("127.0.0.1:1/health", "127.0.0.1"))[0] == 200)
        check("with a query", by_hand(server, url.format("127.0.0.1:1/health?a=b", "127.0.0.1"))[0] == 200)
        check("or nothing behind its host", by_hand(server, url.format("127.0.0.1:1", "127.0.0.1"))[0] == 200)
        check("its host counts", by_hand(server, url.format("evil.example/v1/models", "127.0.0.1"))[0] == 403)
        check("and not the header", by_hand(server, url.format("front.example/v1/models", "evil.example"))[0] == 200)


def bodies(quire):
    with Server(quire, TINY, "--device", "mock") as server:
        text = json.dumps({"model": "m", "messages": CHAT, "max_tokens": 1}).encode()
        check("a byte order mark may come first", ask(server, "/v1/chat/completions", raw=b"\xef\xbb\xbf" + text)[0] == 200)
        number, half = "NaN and Infinity are not JSON", "half a surrogate pair, which is no character,"
        for raw, why in ((b'{"max_tokens":NaN}', f"{number} at line 1, column 15"), (b'{"a":"N",\n"max_tokens":Infinity}', f"{number} at line 2, column 14"),
                         (b'{"prompt":"\\ud800"}', f"{half} at line 1, column 12"), (b'{"prompt":"\\ud83d\\ude00\\\\\\udc00"}', f"{half} at line 1, column 26")):
            status, answer = ask(server, "/v1/completions", raw=raw)
            check(f"{raw} is refused in words: {answer}", status == 400 and answer["error"]["message"].endswith(why))
        for choice in ("auto", "none"):
            status, answer = ask(server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 1, "tools": [], "tool_choice": choice})
            check(f"no tools, {choice}: {answer}", status == 200)
        for absent in ({}, {"tools": []}):
            status, answer = ask(server, "/v1/chat/completions", {"messages": CHAT, "tool_choice": "required", **absent})
            check(f"a choice of absent tools: {answer}", status == 400 and answer["error"]["param"] == "tool_choice")


ENDLESS = {"ignore_eos": True, "max_tokens": 8000}


def time_limits(quire):
    with Server(quire, TINY, "--num-gpu-blocks-override", "1024") as server:
        chat = {"messages": CHAT, **ENDLESS, "timeout": 0.3}
        text = {"prompt": "a", **ENDLESS, "timeout": 0.3}
        answer = {"input": "a", "ignore_eos": True, "max_output_tokens": 8000, "timeout": 0.3}
        ids = {"token_ids": [1], "sampling_params": {**ENDLESS, "timeout": 0.3}}
        for path, body in (("/v1/chat/completions", chat), ("/v1/completions", text), ("/v1/responses", answer), ("/inference/v1/generate", ids)):
            begin = time.time()
            status, said = ask(server, path, body)
            check(f"{path} ends in time: {status} {said}", status == 408 and "timeout" in said["error"]["message"] and time.time() - begin < 10)
            for wrong in (0, -1, "1", 86401, [], True):
                where = {**body, "timeout": wrong} if "sampling_params" not in body else {**body, "sampling_params": {"timeout": wrong}}
                status, said = ask(server, path, where)
                check(f"{path} timeout {wrong} is refused: {said}", status == 400 and "timeout" in said["error"]["param"])
        status, said = ask(server, "/inference/v1/generate", {"token_ids": [1], "sampling_params": ENDLESS, "timeout": 0.3})
        check(f"beside sampling_params, too: {status} {said}", status == 408)
        status, said = ask(server, "/v1/completions", {**text, "stream": True})
        check(f"a stream says so: {said[-300:]}", status == 200 and "member timeout" in said and said.endswith("data: [DONE]\n\n"))
        check("one in time is answered", ask(server, "/v1/completions", {"prompt": "a", "max_tokens": 2, "timeout": 30})[0] == 200)


def stored_responses(quire):
    with Server(quire, TINY) as server:
        made = ask(server, "/v1/responses", {"input": "Hi", "max_output_tokens": 2})[1]
        path = "/v1/responses/" + made["id"]
        check(f"as the model's files say: {made['temperature']}", len(str(made["temperature"])) < 6 and len(str(made["top_p"])) < 6)
        check("it is kept", ask(server, path)[0] == 200 and ask(server, path + "?stream=false")[0] == 200)
        for query in ("stream=true", "a=b&stream=1", "starting_after=3"):
            status, answer = ask(server, path + "?" + query)
            check(f"its events are not: {answer}", status == 400 and answer["error"]["param"] in query)
        status, answer = ask(server, path + "/input_items")
        check(f"nor are its items a response: {answer}", status == 404 and "There is no response" not in answer["error"]["message"])
        check("nothing can be cancelled", ask(server, path + "/cancel", {})[0] == 404)


def at_the_door(quire):
    """What is refused before it is a request leaves a line and a count."""
    with tempfile.TemporaryFile("w+") as log:
        one = subprocess.Popen([quire, "serve", TINY, "--device", "mock", "--host", "127.0.0.1", "--port", "0", "--access-log"],
                               stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            port = next(int(line.rsplit(":", 1)[1].split()[0].strip("/")) for line in one.stdout if "http://127.0.0.1:" in line)
            for request, wanted in (("GET /health HTTP/1.1\r\nHost: a\r\nX: " + "y" * 100000 + "\r\n\r\n", 431), ("GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400)):
                with connect(port) as line:
                    line.sendall(request.encode())
                    check(f"{wanted}", read_reply(line)[0] == wanted)
            time.sleep(0.5)
            text = log.seek(0) or log.read()
            check(f"a line for each: {text[-1000:]}", "status=431" in text and "status=400" in text)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
                metrics = reply.read().decode()
            check("and a count", 'http_requests_total{handler="none",method="other",status="4xx"} 2' in metrics)
        finally:
            one.terminate()
            one.wait(60)
            one.stdout.close()


def main():
    quire = sys.argv[1]
    for test in (targets, bodies, time_limits, stored_responses, at_the_door):
        if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]:
            test(quire)
            print(test.__name__, "ok", flush=True)


main()
