#!/usr/bin/env python3
"""What the HTTP side costs alone: `quire serve --device mock` beside a bare Beast server, in the same run.

    tests/perf/front_end_perf.py build/release/app/quire build/release/tests/perf/bare_server [build/release/load/quire-load]

CPU time of the server's process (all its threads) by event and by request, the median of some rounds that take turns; what a second of
one core carries is its inverse. Where steps take time the mock engine's thread is in it; where they take none it answers without one. It does not depend on how fast the clients are, or on who else uses the machine
as long as both servers suffer alike. Added latency: between the events of one stream among many, less the mock's step.
"""
import itertools
import json
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request


class Process:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(next(f.group(1) for line in self.process.stdout if (f := re.search(r"http://127.0.0.1:(\d+)", line))))

    def cpu(self):
        return time.clock_gettime((~self.process.pid << 3) | 2)  # its CPU clock, in nanoseconds, as clock_getcpuclockid() names it

    def stop(self):
        self.process.terminate()
        self.process.wait()


def post(path, body):
    data = body.encode()
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def events(port, request):
    """Of one stream; until its last chunk."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(request)
        count, tail = 0, b""
        while True:
            data = line.recv(1 << 18)
            if not data:
                return count
            text = tail + data
            count += text.count(b"data: ") - tail.count(b"data: ")
            tail = text[-16:]
            if text.endswith(b"\r\n0\r\n\r\n"):
                return count


def requests(port, count, request):
    """`request` makes them."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        for _ in range(count):
            line.sendall(request())
            data = b""
            while True:
                data += line.recv(1 << 16)
                head, found, body = data.partition(b"\r\n\r\n")
                if found and len(body) >= int(re.search(rb"(?i)content-length: (\d+)", head).group(1)):
                    break
    return count


def together(num, work):
    counts = []
    threads = [threading.Thread(target=lambda: counts.append(work())) for _ in range(num)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return sum(counts)


def cost(server, num, work):
    before = server.cpu()
    count = together(num, work)
    return (server.cpu() - before) / count


def wait_ready(port):
    while True:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
        except urllib.error.HTTPError:
            time.sleep(0.05)


# The mock repeats the prompt's last token, which is a word where the answer has begun: each token then is an event. (After a template's
# newline it would be white space, which is held back until it is known what follows.)
def stream_of(tokens):
    return post("/v1/chat/completions", '{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"word"}],'
                '"continue_final_message":true,"add_generation_prompt":false,"max_tokens":%d,"ignore_eos":true,"stream":true}' % tokens)


# A prompt as people write it; one word of 800 letters would be cut into tokens letter by letter.
WORDS = ("the quick brown fox jumps over the lazy dog " * 19)[:800]


def chat(words=WORDS):
    return post("/v1/chat/completions", '{"model":"m","messages":[{"role":"user","content":"%s"}],"max_tokens":1}' % words)


NUMBERS = itertools.count()


def new_chat():
    """One that no cache of texts has met; the first words differ, and the length does not."""
    return chat("%08d " % next(NUMBERS) + WORDS[9:])


def table(what, unit, bare, own):
    a, b = statistics.median(bare), statistics.median(own)
    print(f"{what:36} bare {1 / a:9.0f}  quire {1 / b:9.0f} {unit} a core-second, {a / b:.2f} of bare")


def latency(load, server, streams, step_ms):
    """Between the events of a stream among many, less the step."""
    done = subprocess.run([load, "--url", f"http://127.0.0.1:{server.port}", "-c", str(streams), "-n", str(streams), "--output-tokens", "60",
                           "--ignore-eos", "--completions", "--input-words", "8", "-q", "--json", "-"], capture_output=True, text=True)
    gaps = json.loads(done.stdout)["inter_token_ms"]
    print(f"{streams} streams, {step_ms} ms a step: an event comes {gaps['p50'] - step_ms:.2f} ms (p50), {gaps['p99'] - step_ms:.2f} ms (p99) later than a "
          "step after the one before")


def main(quire, bare_server, load=None, model="models/quire-tiny"):
    serve = (quire, "serve", model, "--host", "127.0.0.1", "--port", "0", "--served-model-name", "m", "--device", "mock", "--io-threads", "1",
             "--log-level", "info", "--max-num-seqs", "2000")
    bare = Process(bare_server)
    # Paced, each event is a write of its own that wakes its reader, on both sides; at once, an answer comes whole and goes out joined.
    step_ms = 4
    paced, fast = Process(*serve, "--mock-step-us", str(1000 * step_ms)), Process(*serve)
    for own in (paced, fast):
        wait_ready(own.port)
    streams = [[], []], [[], []], [[], [], []]
    fixed, met = post("/reply", WORDS + "a" * 100), chat()
    for _ in range(5):
        streams[0][0].append(cost(bare, 16, lambda: events(bare.port, post(f"/events/400/{1000 * step_ms}", "{}"))))
        streams[0][1].append(cost(paced, 16, lambda: events(paced.port, stream_of(400))))
        streams[1][0].append(cost(bare, 16, lambda: events(bare.port, post("/events/2000/0", "{}"))))
        streams[1][1].append(cost(fast, 16, lambda: bool(events(fast.port, stream_of(2000))) * 2000))
        streams[2][0].append(cost(bare, 8, lambda: requests(bare.port, 200, lambda: fixed)))
        streams[2][1].append(cost(fast, 8, lambda: requests(fast.port, 200, new_chat)))
        streams[2][2].append(cost(fast, 8, lambda: requests(fast.port, 200, lambda: met)))
    table(f"events of 16 streams, {step_ms} ms a step", "events", *streams[0])
    table("tokens of streams that come whole", "tokens", *streams[1])
    table("chats of one token, new texts", "requests", *streams[2][:2])
    table("the same, with a text met before", "requests", streams[2][0], streams[2][2])
    for one in (bare, paced, fast):
        one.stop()
    if load is not None:
        slow = Process(*serve, "--mock-step-us", "100000")
        wait_ready(slow.port)
        latency(load, slow, 1000, 100)
        slow.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
