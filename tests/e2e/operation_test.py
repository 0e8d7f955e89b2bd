#!/usr/bin/env python3
"""What those who run a server rely on: client certificates, time limits of requests, connections by address, a second signal, spans for
a collector, the block map; and what they get wrong: each a sentence that says what to do, and an exit code.

    tests/e2e/operation_test.py build/release/app/quire
"""
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from serve_process import Server

TINY = "models/quire-tiny"
SMALL = ("--num-gpu-blocks-override", "1024")


def check(what, holds, seen=""):
    if not holds:
        sys.exit(f"FAILED: {what}\n{seen}")


def until(condition, seconds=20):
    deadline = time.time() + seconds
    while not (found := condition()):
        if time.time() > deadline:
            return found
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def process(quire, *flags):
    """A server whose address and log are read by hand."""
    with tempfile.TemporaryFile("w+") as log:
        one = subprocess.Popen([quire, "serve", TINY, "--host", "127.0.0.1", "--port", "0", *SMALL, *flags], stdout=subprocess.PIPE, stderr=log, text=True)
        found = next((f for line in one.stdout if (f := re.search(r"https?://127.0.0.1:(\d+)", line))), None)
        check("the server starts", found, log.seek(0) or log.read())
        one.port = int(found[1])
        one.log = lambda: log.seek(0) or log.read()
        try:
            yield one
        finally:
            if one.poll() is None:
                one.terminate()
            one.wait(60)
            one.stdout.close()


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def authority(folder, name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem")


def certificate(folder, name, by, *days):
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{folder}/{name}.key",
            "-out", f"{folder}/{name}.csr")
    pathlib.Path(f"{folder}/ext").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/{by}.pem", "-CAkey", f"{folder}/{by}.key", "-CAcreateserial", *(days or ("-days", "1")),
            "-extfile", f"{folder}/ext", "-out", f"{folder}/{name}.pem")


def tls_status(port, folder, client=None):
    context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    if client:
        context.load_cert_chain(f"{folder}/{client}.pem", f"{folder}/{client}.key")
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/health/live", context=context, timeout=20) as reply:
            return reply.status
    except OSError as e:  # an alert, or a connection that ends
        return type(getattr(e, "reason", e)).__name__


def client_certificates(quire):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ca", "other"):
            authority(folder, name)
        for name, by in (("server", "ca"), ("friend", "ca"), ("stranger", "other")):
            certificate(folder, name, by)
        tls = ("--ssl-certfile", f"{folder}/server.pem", "--ssl-keyfile", f"{folder}/server.key")
        with process(quire, *tls, "--ssl-ca-certs", f"{folder}/ca.pem") as server:
            check("a certificate of the authority gets in", tls_status(server.port, folder, "friend") == 200)
            check("none does not", tls_status(server.port, folder) != 200)
            check("another authority's does not", tls_status(server.port, folder, "stranger") != 200)
            server.send_signal(signal.SIGHUP)
            until(lambda: "tls.reloaded" in server.log())
            check("nor after a reload", tls_status(server.port, folder) != 200 and tls_status(server.port, folder, "friend") == 200)
        with process(quire, *tls, "--ssl-ca-certs", f"{folder}/ca.pem", "--ssl-cert-reqs", "1") as server:
            check("optional: none is fine", tls_status(server.port, folder) == 200)
            check("optional: a stranger's is not", tls_status(server.port, folder, "stranger") != 200)
        fails(quire, "--ssl-ca-certs", "--ssl-certfile", "--ssl-ca-certs", f"{folder}/ca.pem")
        certificate(folder, "old", "ca", "-days", "-1")
        with process(quire, "--ssl-certfile", f"{folder}/old.pem", "--ssl-keyfile", f"{folder}/old.key") as server:
            check("a certificate that is past is said", until(lambda: "tls.certificate_expired" in server.log()), server.log())
        pathlib.Path(f"{folder}/empty.pem").write_text("")
        fails(quire, "--ssl-ca-certs", "empty.pem", *tls, "--ssl-ca-certs", f"{folder}/empty.pem", code=1)
        fails(quire, "--ssl-certfile", "nothing.pem", "--ssl-certfile", f"{folder}/nothing.pem", "--ssl-keyfile", f"{folder}/server.key", code=1)
        fails(quire, "is not the key of", "--ssl-keyfile", *tls[:3], f"{folder}/friend.key", code=1)
        pathlib.Path(f"{folder}/rubbish.pem").write_text("-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n")
        fails(quire, "--ssl-certfile", "rubbish.pem", "--ssl-certfile", f"{folder}/rubbish.pem", "--ssl-keyfile", f"{folder}/server.key", code=1)


def fails(quire, *expected, code=None, limit=(), model=TINY):
    """A start that must fail: of `expected` the first two must be said, the rest are flags."""
    said = [e for e in expected[:2]]
    flags = [str(e) for e in expected[2:]]
    command = [quire, "serve", model, "--host", "127.0.0.1", *(() if "--port" in flags or "--uds" in flags else ("--port", "0")), *flags]
    if "--num-gpu-blocks-override" not in flags:
        command += SMALL
    done = subprocess.run([*limit, *command], capture_output=True, text=True, timeout=60)
    text = done.stdout + done.stderr
    check(f"{flags}: {said} in what is said", all(s in text for s in said), f"{done.returncode}: {text}")
    check(f"{flags}: the exit code", done.returncode == code if code is not None else done.returncode >= 100, f"{done.returncode}: {text}")


def request(server, path, body=None, **headers):
    data = None if body is None else json.dumps({"model": "m", **body}).encode()
    asked = urllib.request.Request(server.base + path, data, {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}})
    try:
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return reply.status, reply.read().decode(), reply.headers
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode(), e.headers


ENDLESS = {"prompt": "a", "ignore_eos": True, "max_tokens": 8000}


def time_limits(quire):
    with Server(quire, TINY, *SMALL) as server:
        begin = time.time()
        status, body, headers = request(server, "/v1/completions", ENDLESS, X_Request_Timeout="0.4")
        check("a request ends when its time is over", status == 408 and "X-Request-Timeout" in body and 0.3 < time.time() - begin < 5, (status, body))
        check("and clients need not ask again", headers["X-Should-Retry"] == "false")
        check("its work ends too", until(lambda: server.metric("vllm:num_requests_running") == 0))
        status, body, _ = request(server, "/v1/completions", {**ENDLESS, "stream": True, "n": 2}, X_Request_Timeout="0.4")
        check("a stream says so", status == 200 and "X-Request-Timeout" in body, body[-300:])
        check("its work ends too", until(lambda: server.metric("vllm:num_requests_running") == 0))
        status, body, _ = request(server, "/v1/completions", {"prompt": "a", "max_tokens": 3}, X_Request_Timeout="30")
        check("one in time is answered", status == 200, body)
        for wrong in ("soon", "0", "-1", "1e9", "nan", "1 s"):
            status, body, _ = request(server, "/v1/completions", {"prompt": "a"}, X_Request_Timeout=wrong)
            check(f"{wrong} is refused", status == 400 and "number of seconds" in body, (status, body))


def by_address(quire):
    with Server(quire, TINY, *SMALL, "--max-connections-per-address", "3") as server:
        port = int(server.base.rsplit(":", 1)[1])
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        time.sleep(0.3)
        status, body, _ = request(server, "/v1/models")
        check("one too many of an address is refused", status == 503 and "--max-connections-per-address" in body, (status, body))
        check("probes are answered", request(server, "/health")[0] == 200)
        for one in held:
            one.close()
        check("then it is let in again", until(lambda: request(server, "/v1/models")[0] == 200))


def second_signal(quire):
    with process(quire, "--shutdown-timeout", "60") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            body = json.dumps({"model": "quire-tiny", "stream": True, **ENDLESS}).encode()
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            client.recv(100)
            server.send_signal(signal.SIGTERM)
            until(lambda: "server.draining" in server.log())
            begin = time.time()
            server.send_signal(signal.SIGTERM)
            check("a second signal ends it at once", server.wait(30) in (0, 3) and time.time() - begin < 10, server.log()[-500:])


class Collector(http.server.BaseHTTPRequestHandler):
    bodies, status, pause = [], 200, 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(Collector.pause)
        Collector.bodies.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(Collector.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def spans_of(bodies):
    return [s for _, _, b in bodies for r in b["resourceSpans"] for scope in r["scopeSpans"] for s in scope["spans"]]


def values(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def tracing(quire):
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with Server(quire, TINY, *SMALL, "--otlp-traces-endpoint", endpoint) as server:
        chat = {"messages": [{"role": "user", "content": "What is 12 + 7?"}], "max_tokens": 5, "n": 2}
        before = time.time_ns()
        request(server, "/v1/chat/completions", chat, traceparent=f"00-{trace}-{parent}-01", X_Request_Id="abc")
        request(server, "/v1/chat/completions", chat, traceparent=f"00-{trace[::-1]}-{parent}-00")  # not sampled
        request(server, "/v1/models")
        seen = until(lambda: len(s := spans_of(Collector.bodies)) >= 4 and s)
        check("spans come", seen and len(seen) == 4, seen)
        check("as OTLP has it", Collector.bodies[0][:2] == ("/v1/traces", "application/json"))
        own = [s for s in seen if s["traceId"] == trace]
        outer = next(s for s in own if s["kind"] == 2)
        inner = [s for s in own if s["kind"] == 1]
        check("the trace goes on", outer["parentSpanId"] == parent and outer["name"] == "POST /v1/chat/completions", outer)
        check("what the engine did lies within", len(inner) == 2 and all(s["parentSpanId"] == outer["spanId"] for s in inner), inner)
        said = values(inner[0])
        check("with its tokens", said["gen_ai.usage.completion_tokens"] == "5" and int(said["gen_ai.usage.prompt_tokens"]) > 5 and said["gen_ai.request.id"] == "abc", said)
        check("and its decisions", {"queued", "started", "finished"} <= {e["name"] for e in inner[0]["events"]}, inner[0]["events"])
        check("on the world's clock", before <= int(outer["startTimeUnixNano"]) <= int(outer["endTimeUnixNano"]) <= time.time_ns())
        check("another trace begins where none came", next(s for s in seen if s["traceId"] != trace).get("parentSpanId") is None)
        Collector.pause = 30  # a collector that hangs holds up nobody
        begin = time.time()
        for _ in range(20):
            check("requests go on", request(server, "/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200)
        check("as fast as before", time.time() - begin < 10)
    check("and the server stops in time", time.time() - begin < 25)
    fails(quire, "--otlp-traces-endpoint", "ftp://x", "--otlp-traces-endpoint", "ftp://x", code=105)
    with Server(quire, TINY, *SMALL, "--otlp-traces-endpoint", "http://127.0.0.1:9/v1/traces") as server:
        check("without a collector requests are answered", request(server, "/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200)


def block_map(quire):
    with Server(quire, TINY, *SMALL, "--api-key", "k", "--admin-api-key", "boss") as server:
        ask = lambda: json.loads(request(server, "/debug/blocks", Authorization="Bearer boss")[1])["engines"]
        check("it asks for the admin's key", request(server, "/debug/blocks", Authorization="Bearer k")[0] == 401)
        engine, = ask()
        check("all are free at first", engine["num_blocks"] == 1023 and set(engine["cells"]) == {"f"} and len(engine["cells"]) == 1023, engine)
        check("the plan stands beside them", any(m["purpose"] == "kv_cache" and m["planned_bytes"] == m["allocated_bytes"] for m in engine["plan"]["memory"]))
        long = {"prompt": "one two three " * 40, "stream": True, "ignore_eos": True, "max_tokens": 6000, "n": 2}
        with socket.create_connection(("127.0.0.1", int(server.base.rsplit(":", 1)[1]))) as client:
            body = json.dumps({"model": "m", **long}).encode()
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nX-Request-Id: mine\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
            engine = until(lambda: (e := ask()[0]) and len(e["requests"]) == 2 and e["groups"][0]["shared"] > 0 and e)
            check("two hold blocks, and share the prompt's", engine, ask())
            check("by their id", {r["request_id"] for r in engine["requests"]} == {"mine"})
            for cells, name in (("h", "held"), ("s", "shared"), ("c", "cached")):
                check(f"{name} cells and counts agree", engine["cells"].count(cells) == sum(g[name] for g in engine["groups"]), engine)
            first = engine["cell_requests"][engine["cells"].index("s")]
            check("a cell names its holder", engine["requests"][first]["shared"] > 0 and engine["cell_groups"][engine["cells"].index("s")] == 0)
        engine = until(lambda: (e := ask()[0]) and not e["requests"] and e)
        check("then none is held, and the prompt's can be found again", engine and set(engine["cells"]) == {"f", "c"}, ask())


def full_log(quire):
    """A log that cannot be written stops nothing."""
    with open("/dev/full", "w") as nowhere:
        one = subprocess.Popen([quire, "serve", TINY, "--device", "mock", "--host", "127.0.0.1", "--port", "0", "--access-log"],
                               stdout=subprocess.PIPE, stderr=nowhere, text=True)
        found = next((f for line in one.stdout if (f := re.search(r"http://127.0.0.1:\d+", line))), None)
        check("it serves", found)
        for _ in range(200):
            with urllib.request.urlopen(found[0] + "/version", timeout=20) as reply:
                check("and answers", reply.status == 200)
        one.terminate()
        check("and ends when asked", one.wait(20) == 0, one.returncode)
        one.stdout.close()


def access_lines(quire):
    """--disable-access-log-for-endpoints leaves out what it names, and nothing else."""
    one = subprocess.Popen([quire, "serve", TINY, "--device", "mock", "--host", "127.0.0.1", "--port", "0", "--access-log",
                            "--disable-access-log-for-endpoints", "/health, /metrics"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = next((f for line in one.stdout if (f := re.search(r"http://127.0.0.1:\d+", line))), None)
    check("it serves", found)
    for path in ("/health", "/metrics?a=1", "/version", "/health/live"):
        urllib.request.urlopen(found[0] + path, timeout=20).close()
    one.terminate()
    log = one.communicate(timeout=20)[1]
    paths = re.findall(r"path=(\S+)", log)
    check("only the other paths are logged", sorted(paths) == ["/health/live", "/version"], log)


def wrong_starts(quire):
    with tempfile.TemporaryDirectory() as folder:
        fold = pathlib.Path(folder)
        taken = socket.create_server(("127.0.0.1", 0))
        fails(quire, "cannot listen on 127.0.0.1", "in use", "--port", str(taken.getsockname()[1]), code=1)
        taken.close()
        fails(quire, "--api-key-file", "none: No such file or directory", "--api-key-file", f"{folder}/none")
        (fold / "keys").write_text("alice notahash\n")
        fails(quire, "--api-key-file", "keys", "--api-key-file", f"{folder}/keys")
        if os.geteuid() != 0:
            (fold / "keys").chmod(0)
            fails(quire, "--api-key-file", "cannot be read", "--api-key-file", f"{folder}/keys")
        (fold / "typo.toml").write_text("prot = 8000\n")
        fails(quire, '"prot" (line 1) is not a flag', "--port", "--config", f"{folder}/typo.toml")
        (fold / "broken.toml").write_text("port = [\n")
        fails(quire, "none.toml", "not readable", "--config", f"{folder}/none.toml")
        half = fold / "half"
        shutil.copytree(TINY, half)
        weights = half / "model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[:len(whole) // 2])
        fails(quire, "model.safetensors", "truncated", code=1, model=str(half))
        weights.write_bytes(b"")
        fails(quire, "model.safetensors", "", code=1, model=str(half))
        weights.unlink()
        fails(quire, "safetensors", "", code=1, model=str(half))
        weights.write_bytes(whole)
        (half / "config.json").write_text('{"architectures": [')
        fails(quire, "config.json", "", model=str(half), code=1)
        (half / "config.json").unlink()
        fails(quire, "config.json", "", model=str(half), code=1)
        bash = lambda limit: ("bash", "-c", f'{limit}; exec "$0" "$@"')
        fails(quire, "files may be open", "ulimit -n 56", limit=bash("ulimit -n 50"), code=1)
        fails(quire, "memory", "", limit=bash("ulimit -v 150000"), code=1)  # address space for no more threads, or for no more memory
        full = subprocess.run([quire, "bench", TINY, "-p", "8", "-n", "2", "-r", "1", "--json", "/dev/full"], capture_output=True, text=True, timeout=60)
        check("a full disk is said", full.returncode == 7 and "cannot be written" in full.stderr, full)


def main():
    quire = sys.argv[1]
    for test in (client_certificates, time_limits, by_address, second_signal, tracing, block_map, full_log, access_lines, wrong_starts):
        if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]:
            test(quire)
            print(test.__name__, "ok", flush=True)


main()
