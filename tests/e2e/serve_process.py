"""For test scripts: `quire serve` on a free port, ready when the block begins, stopped at its end; and how scripts check."""
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

counted = 0


def check(what, holds, seen=""):
    """Ends the test, saying what does not hold."""
    if not holds:
        sys.exit(f"FAILED: {what}" + (f"\n{seen}" if seen != "" else ""))


def expect(what, got, expected):
    """The same of two values, counted: see num_expected()."""
    global counted
    counted += 1
    check(f"{what} is {got!r}, should be {expected!r}", got == expected)


def num_expected():
    return counted


def check_refused_fetches(prefilling, decoding, prefill):
    """Whoever keeps a prefill hears that the request which was to go on with it is refused; `prefill` returns a request's params."""
    for name, server in (("is kept", prefilling), ("has arrived", decoding)):
        eventually(f"nothing {name} before", lambda server=server: server.metric("quire:kv_transfer_buffer_bytes") == 0)
    for number, change in enumerate(({"n": 2}, {"temperature": -1}, {"stop": [1]},
                                     {"messages": [{"role": "user", "content": "many " * 4000}]})):
        body = question_body(f"What is {number} + 9?")
        params = prefill(body)
        expect(f"kept for {list(change)[0]}", prefilling.metric("quire:kv_transfer_buffer_bytes") > 0, True)
        try:
            decoding.post("/v1/chat/completions", **{**body, **change}, kv_transfer_params=params)
            expect(f"status with {list(change)[0]}", 200, 400)
        except urllib.error.HTTPError as error:
            expect(f"status with {list(change)[0]}", error.code, 400)
        eventually(f"what was refused for {list(change)[0]} is forgotten", lambda: prefilling.metric("quire:kv_transfer_buffer_bytes") == 0)
    expect("expired", prefilling.metric("vllm:nixl_num_kv_expired_reqs_total"), 0)


def eventually(what, holds, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return
        time.sleep(0.05)
    check(what, False)


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port():
    """Free as are those behind it, which a server's further engines take; none that the system gives to whoever connects."""
    while True:
        port = random.randrange(12_000, 32_000)
        if all(is_free(port + i) for i in range(4)):
            return port


def question_body(question, max_tokens=40, **more):
    return {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": max_tokens, **more}


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


class Server:
    def __init__(self, quire, model, *flags, name="m", log=subprocess.DEVNULL):
        """Under the name `name`; None: the model's own."""
        named = ["--served-model-name", name] if name else []
        command = [quire, "serve", str(model), "--host", "127.0.0.1", "--port", "0", *named, *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.base = next((f.group() for line in self.process.stdout if (f := re.search(r"http://127.0.0.1:\d+", line))), None)
        if self.base is None:
            sys.exit(f"FAILED: {' '.join(command)}: the server did not start")

    def __enter__(self):
        for _ in range(1200):
            try:
                self.ask("/health")
                return self
            except urllib.error.HTTPError:  # still starting
                time.sleep(0.05)
        sys.exit("FAILED: the server did not become ready")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=60)

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.read().decode()

    def post(self, path, **body):
        return json.loads(self.ask(path, {"model": "m", **body}))

    def metric(self, name):
        lines = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.ask("/metrics"), re.M)
        return sum(float(value) for value in lines)

    def labels(self, name):
        return dict(re.findall(r'(\w+)="([^"]*)"', re.search(rf"^{re.escape(name)}{{(.*)}} 1", self.ask("/metrics"), re.M).group(1)))

    def ranks(self):
        """The processes that have the other parts of a divided model."""
        listed = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout.split()
        return [int(child) for child in listed if "rank" in pathlib.Path(f"/proc/{child}/cmdline").read_text()]
