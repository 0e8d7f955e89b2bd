"""quire-load against `quire serve --device mock`: what it reports is what the server counted and what its records say.

    tests/e2e/load_test.py build/release/app/quire build/release/load/quire-load"""
import csv
import http.server
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serve_process import Server

QUIRE, LOAD = sys.argv[1:3]
MODEL = "models/quire-tiny"
checks = 0


def check(what, condition):
    global checks
    checks += 1
    if not condition:
        sys.exit(f"FAILED: {what}")


def load(folder, *flags, code=0):
    records, report = folder / "records.tsv", folder / "report.json"
    done = subprocess.run([LOAD, "-q", "--json", report, "--records", records, *map(str, flags)], capture_output=True,
                          text=True, timeout=120)
    check(f"{flags}: exit code {done.returncode}, {code} is expected: {done.stderr}", done.returncode == code)
    if code == 2 or code > 100:
        return done.stderr
    with open(records) as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return json.loads(report.read_text()), rows, done.stdout


def counted(server):
    return [server.metric(f"vllm:{name}_total") for name in ("prompt_tokens", "generation_tokens", "request_success")]


def agrees(server, folder, requests, *flags):
    """A run, and that the server counted what it reports."""
    before = counted(server)
    report, rows, table = load(folder, "--url", server.base, *flags)
    prompt, output, ended = (after - start for after, start in zip(counted(server), before))
    check(f"{flags}: {report['ok']} answers, {requests} are expected", report["ok"] == requests == len(rows))
    check(f"{flags}: the server counted {ended} requests", ended == requests)
    check(f"{flags}: the server counted {prompt} prompt tokens of {report['prompt_tokens']}", prompt == report["prompt_tokens"])
    check(f"{flags}: the server counted {output} tokens of {report['output_tokens']}", output == report["output_tokens"])
    check(f"{flags}: the records sum up", sum(int(r["output_tokens"]) for r in rows) == report["output_tokens"])
    times = [[float(r[name]) for name in ("due", "sent", "first_token", "end")] for r in rows]
    check(f"{flags}: times in order", all(t == sorted(t) for t in times))
    check(f"{flags}: a table", "requests/s" in table)
    return report, rows


def shapes(server, folder):
    check("a flag is no flag's value", "--url: needs a value before -n" in load(folder, "--url", "-n", 1, code=105))
    base = ["-c", 4, "--output-tokens", 8, "--ignore-eos"]
    agrees(server, folder, 12, *base, "-n", 12)
    agrees(server, folder, 12, *base, "-n", 12, "--completions")

    report, rows = agrees(server, folder, 9, *base, "-n", 3, "--turns", 3, "--think-time", 0.05)
    lengths = {turn: [int(r["prompt_tokens"]) for r in rows if r["turn"] == str(turn)] for turn in range(3)}
    check("later turns carry what was said before", min(lengths[1]) > max(lengths[0]) and min(lengths[2]) > max(lengths[1]))

    report, rows = agrees(server, folder, 20, "--rate", 200, "--arrivals", "constant", "-c", 50, "-n", 20, "--output-tokens", 2)
    gaps = [float(b["due"]) - float(a["due"]) for a, b in zip(*[sorted(rows, key=lambda r: float(r["due"]))[i:] for i in (0, 1)])]
    check("constant arrivals are due at even times", all(abs(gap - 0.005) < 1e-4 for gap in gaps))

    report, rows = agrees(server, folder, 8, "-n", 8, "--output-tokens", 4, "--completions", "--tokenizer", MODEL, "--input-length", 37)
    check(f"lengths in tokens: {report['prompt_length']}", report["prompt_length"]["p50"] == report["prompt_length"]["max"])
    check("a prompt has what was asked for, and at most a token to begin with", report["prompt_length"]["max"] in (37, 38))


def as_bench_serve(server, folder):
    """Commands as people have them for vLLM's."""
    host, port = server.base.removeprefix("http://").split(":")
    share = folder / "sharegpt.json"
    share.write_text(json.dumps([{"conversations": [{"from": "human", "value": f"What is {i} + 7?"}, {"from": "gpt", "value": "?"}]}
                                 for i in range(5)]))
    common = ["--model", MODEL, "--served-model-name", "m", "--num-prompts", 6, "--request-rate", "inf", "--max-concurrency", 3, "--seed", 0, "--ignore-eos",
              "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99", "--goodput", "ttft:60000", "tpot:60000", "e2el:60000"]
    random = ["--dataset-name", "random", "--random-input-len", 20, "--random-output-len", 8, "--random-range-ratio", 0.5]
    report, _ = agrees(server, folder, 6, *common, *random, "--backend", "vllm", "--endpoint", "/v1/completions")
    check("goodput counts all of them", report["goodput_requests_per_second"] > 0 and report["settings"]["endpoint"] == "completions")
    agrees(server, folder, 6, *common, *random, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--burstiness", 1.0,
           "--num-warmups", 0, "--disable-tqdm", "--trust-remote-code", "--ready-check-timeout-sec", 5)
    agrees(server, folder, 6, *common, "--backend", "openai-chat", "--dataset-name", "sharegpt", "--dataset-path", share, "--sharegpt-output-len", 4,
           "--tokenizer", MODEL)
    done = subprocess.run([LOAD, "bench", "serve", "-q", "--host", host, "--port", port, "--num-prompts", "2", "--random-output-len", "2", "--save-result", "--result-dir",
                           folder / "new" / "deep", "--result-filename", "saved.json"], capture_output=True, text=True, timeout=60)
    check(f"a result is saved: {done.stderr}", done.returncode == 0 and json.loads((folder / "new" / "deep" / "saved.json").read_text())["ok"] == 2)


def traces(server, folder):
    trace = folder / "trace.jsonl"
    trace.write_text("".join(json.dumps({"timestamp": 100 * i, "input_length": 20 + i, "output_length": 3 + i, "hash_ids": [0]}) + "\n"
                             for i in range(6)))
    report, rows = agrees(server, folder, 6, "--trace", trace, "--ignore-eos", "--completions", "--trace-speed", 2)
    check("a trace's own times, twice as fast", sorted(round(1000 * float(r["due"])) for r in rows) == [0, 50, 100, 150, 200, 250])
    check("a trace's own lengths", sorted(int(r["output_tokens"]) for r in rows) == [3, 4, 5, 6, 7, 8])


def sweeps(server, folder):
    report, rows, table = load(folder, "--url", server.base, "--sweep", "-c", 4, "-n", 8, "--output-tokens", 4)
    check("a sweep doubles", [step["concurrency"] for step in report["sweep"]] == [1, 2, 4])
    check("a sweep names its knee", report["knee"] in (1, 2, 4) and "knee" in table)
    check("a sweep keeps all records", len(rows) == 24)


def servers(server, other, folder):
    before = [s.metric("vllm:request_success_total") for s in (server, other)]
    report, rows, _ = load(folder, "--url", server.base, "--url", other.base + "/v1", "-n", 10, "--output-tokens", 2)
    took = [s.metric("vllm:request_success_total") - b for s, b in zip((server, other), before)]
    check(f"two servers take turns: {took}", took == [5, 5])


def interrupted(server, folder):
    for flags in (("-c", "4"), ("--rate", "50"), ("--request-rate", "inf", "--max-concurrency", "4")):
        report = folder / "interrupted.json"
        process = subprocess.Popen([LOAD, "-q", "--url", server.base, "-n", "1000000", "--json", report, "--output-tokens", "2", *flags],
                                   stdout=subprocess.PIPE, text=True)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        table = process.communicate(timeout=60)[0]
        check(f"{flags}: what was measured is reported", process.returncode == 130 and "0 failed" in table)
        check(f"{flags}: in JSON too", json.loads(report.read_text())["ok"] > 0)


def secured(folder):
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj",
                    "/CN=127.0.0.1"], check=True, capture_output=True)
    process = subprocess.Popen([QUIRE, "serve", MODEL, "--host", "127.0.0.1", "--port", "0", "--device", "mock", "--ssl-keyfile", key,
                                "--ssl-certfile", cert], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        base = next(line for line in process.stdout if "https://" in line)
        base = "https://" + base.split("https://")[1].split()[0].rstrip("/,")
        report, rows, _ = load(folder, "--url", base, "--insecure", "-n", 4, "--output-tokens", 2, "--wait-ready", 60)
        check("TLS", report["ok"] == 4)
        check("a certificate that nobody vouches for is not taken", "certificate" in load(folder, "--url", base, "-n", 1, code=2))
    finally:
        process.terminate()
        process.wait(60)


class Hasty(http.server.BaseHTTPRequestHandler):
    """Answers as one that keeps connections, and closes each shortly after."""
    protocol_version = "HTTP/1.1"
    answers = 0

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        text = json.dumps({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]})
        body = f"data: {text}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        Hasty.answers += 1
        self.close_connection = True

    def log_message(self, *_):
        pass


def closed_between(folder):
    """A connection that the server closed while it waited is no failure: the request goes out on a new one."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hasty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    report, rows, _ = load(folder, "--url", f"http://127.0.0.1:{server.server_port}", "-c", 1, "-n", 6, "--model", "m",
                           "--turns", 3, "--think-time", 0.05)
    check(f"answers of a server that closes connections: {report['ok']}", report["ok"] == 18 == len(rows) == Hasty.answers)
    server.shutdown()


def refused_early(folder):
    """A server that answers before it has read all, and closes: its answer is what failed."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer():
            for _ in range(2):
                peer, _ = listener.accept()
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo long")
                peer.shutdown(socket.SHUT_WR)
                time.sleep(0.5)
                peer.close()

        threading.Thread(target=answer, daemon=True).start()
        _, rows, _ = load(folder, "--url", f"http://127.0.0.1:{listener.getsockname()[1]}", "--model", "m", "-c", 1, "-n", 2,
                          "--input-length", 3_000_000, code=1)
    check(f"an early answer is reported: {rows}", all("413 too long" in str(row) for row in rows))


def silent(folder):
    """Who ended a silent request is said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        _, rows, _ = load(folder, "--url", url, "--model", "m", "-n", 1, "--silence-timeout", 0.5, code=1)
        check(f"quire-load's limit is named: {rows}", "quire-load" in rows[0]["error"] and "--silence-timeout" in rows[0]["error"])
        check("while it looks for models, too", "--silence-timeout" in load(folder, "--url", url, "-n", 1, "--silence-timeout", 0.5, code=2))


def keyed(folder):
    with Server(QUIRE, MODEL, "--device", "mock", "--api-key", "secret") as server:
        begin = time.monotonic()
        said = load(folder, "--url", server.base, "-n", 1, "--wait-ready", 60, code=2)
        check(f"a server that asks for a key is one: {said}", "no server" not in said and "401" in said and "--api-key" in said)
        check("nobody waits for another answer", time.monotonic() - begin < 30)
        check("the key", load(folder, "--url", server.base, "-n", 1, "--api-key", "secret", "--output-tokens", 1)[0]["ok"] == 1)


def not_written():
    with open("/dev/full", "w") as full:
        code = subprocess.run([LOAD, "--help"], stdout=full, stderr=subprocess.DEVNULL).returncode
    check(f"a full disk: {code}", code == 7)


def refusals(folder):
    check("no rate", "above 0, or inf" in load(folder, "--rate", 0, "--model", "m", code=105))
    check("no waiting for ever", "--think-time" in load(folder, "--turns", 2, "--think-time", "inf", "--model", "m", code=105))
    check("no digits by the hundred", "000000" not in load(folder, "--duration", -1, "--model", "m", code=105))
    for word, *flags in [("http", "--url", "ftp://x"), ("/nonexistent", "--trace", "/nonexistent"), ("--rate", "--burstiness", 2),
                         ("--turns", "--turns", 2, "--completions"), ("--sweep", "--sweep", "--rate", 3),
                         ("--duration", "--requests", 0), ("openai-chat", "--backend", "tgi"), ("/v1/completions", "--endpoint", "/generate"),
                         ("--backend", "--backend", "vllm", "--endpoint", "/v1/chat/completions"), ("random", "--dataset-name", "sonnet"),
                         ("--dataset-path", "--dataset-name", "sharegpt"), ("ttft:500", "--goodput", "ttft"), ("tpot", "--goodput", "itl:5"),
                         ("99.9", "--metric-percentiles", "75"), ("e2el", "--percentile-metrics", "ttfb"), ("--save-result", "--result-dir", "/tmp"),
                         ("--length-spread", "--length-spread", 1, "--range-ratio", 0.5), ("127.0.0.1", "--url", "http://127.0.0.1:9")]:
        model = [] if "http://127.0.0.1:9" in flags else ["--model", "m"]
        check(f"{flags} is refused with {word}", word in load(folder, *flags, *model, code=2))


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    with Server(QUIRE, MODEL, "--device", "mock") as server, Server(QUIRE, MODEL, "--device", "mock") as other:
        shapes(server, folder)
        as_bench_serve(server, folder)
        traces(server, folder)
        sweeps(server, folder)
        servers(server, other, folder)
        interrupted(server, folder)
    closed_between(folder)
    secured(folder)
    refused_early(folder)
    silent(folder)
    keyed(folder)
    not_written()
    refusals(folder)
print(f"{checks} checks passed")
