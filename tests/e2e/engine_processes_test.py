"""quire serve --engine-processes: same answers, an engine that is killed is started again, one that cannot start says why, and none
outlives its server."""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serve_process import Server, check, eventually

QUIRE, MODEL = sys.argv[1], "models/quire-tiny"
os.environ["HF_TOKEN"] = "token_of_the_hub"
COMMON = ("--device", "cpu", "--cpu-threads", "1", "--max-num-seqs", "8", "--num-gpu-blocks-override", "200", "--max-model-len", "2048",
          "--deterministic", "--data-parallel-size", "2")


def answer(server, text="What is 12 + 7?"):
    reply = server.post("/v1/chat/completions", messages=[{"role": "user", "content": text}], temperature=0)
    return reply["choices"][0]["message"]["content"]


def tokens_of(server, engine):
    """That this engine has generated, by /metrics."""
    lines = re.findall(r"^vllm:generation_tokens_total{([^}]*)} (\S+)$", server.ask("/metrics"), re.M)
    return sum(float(value) for labels, value in lines if f'engine="{engine}"' in labels)


def asking_for(server, rank):
    """The status of a request for one engine."""
    request = urllib.request.Request(server.base + "/v1/completions", json.dumps({"model": "m", "prompt": "a", "max_tokens": 2, "ignore_eos": True}).encode(),
                                     {"Content-Type": "application/json", "X-data-parallel-rank": rank})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def children(pid):
    """The engines of a server, by rank."""
    found = {}
    for name in os.listdir("/proc"):
        try:
            words = pathlib.Path("/proc", name, "cmdline").read_bytes().decode().split("\0")
            parent = int(pathlib.Path("/proc", name, "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid and "--rank" in words:
            check("no secret stands on a command line",
                  not any("secret" in word and not word.startswith("--") and not word.startswith("/proc/") for word in words))
            found[int(words[words.index("--rank") + 1])] = int(name)
    return found


def is_alive(pid):
    try:
        return pathlib.Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def sockets_of(pid):
    """Of TCP: what a child must not inherit from its server."""
    inodes = {line.split()[9] for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]}
    links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    return [link for link in links if link.startswith("socket:[") and link[8:-1] in inodes]


def load(server, count):
    def one(i):
        try:
            return answer(server, f"What is {i} + 7?")
        except urllib.error.HTTPError as error:
            return error.code
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


with Server(QUIRE, MODEL, *COMMON) as server:
    expected = answer(server)
    models = json.loads(server.ask("/v1/models"))["data"][0]["engines"]

with Server(QUIRE, MODEL, *COMMON, "--engine-processes", "--engine-restarts", "2") as server:
    check("the answer of an engine in another process", answer(server) == expected)
    now = json.loads(server.ask("/v1/models"))["data"][0]["engines"]
    for field in ("num_gpu_blocks", "block_size", "max_model_len", "kv_cache_size_tokens"):
        check(f"/v1/models says the same {field} as of threads", [e[field] for e in now] == [e[field] for e in models])
    for rank in (1, 0, 1):
        before = [tokens_of(server, engine) for engine in (0, 1)]
        check("an engine that is asked for by its number", [asking_for(server, str(rank)) for _ in range(3)] == [200] * 3)
        made = [tokens_of(server, engine) - was for engine, was in zip((0, 1), before)]
        check(f"it and no other worked: {made}", made[rank] == 6 and made[1 - rank] == 0)
    check("one that does not exist", [asking_for(server, rank) for rank in ("2", "-1", "x")] == [400] * 3)
    undisturbed = load(server, 8)
    first = children(server.process.pid)
    check(f"two engine processes: {first}", sorted(first) == [0, 1])
    for round in range(2):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(load, server, 8)
            time.sleep(0.02)
            os.kill(children(server.process.pid)[0], signal.SIGKILL)
            texts = running.result(timeout=60)
        check(f"requests while an engine dies are answered all the same: {texts}", texts == undisturbed)
        check("the other engine answers", answer(server) == expected)
        eventually("the engine is started again", lambda: 0 in children(server.process.pid))

        before = tokens_of(server, 0)

        def is_back():
            check("nothing fails while an engine comes back", load(server, 2) == undisturbed[:2])
            return tokens_of(server, 0) != before
        eventually("the engine is back", is_back)
        check("it has none of the server's connections", not sockets_of(children(server.process.pid)[0]))
    os.kill(children(server.process.pid)[0], signal.SIGKILL)  # once more than is allowed
    time.sleep(1.5)
    check("an engine that dies too often is given up", sorted(children(server.process.pid)) == [1])
    check("who asks for it is refused", asking_for(server, "0") == 503)
    refused = dict(re.findall(r'^vllm:admission_rejections_total\{.*reason="(\w+)".*\} (\d+)', server.ask("/metrics"), re.M))
    check(f"for want of an engine, not of room: {refused}", refused == {"engine_unavailable": "1", "max_num_queued_reqs": "0"})
    check("the other one serves on", load(server, 8) == undisturbed)
    eventually("all blocks are free again", lambda: server.metric("vllm:kv_cache_usage_perc") == 0)
    last = children(server.process.pid)
    for pid in last.values():
        check("an engine's process is called after the program", pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "quire")
        check("it has no secrets of its server's", b"_of_the_hub" not in pathlib.Path(f"/proc/{pid}/environ").read_bytes())
check("engines end with their server", not any(is_alive(pid) for pid in last.values()))

with Server(QUIRE, MODEL, *COMMON[:-2], "--engine-processes") as server:
    undisturbed = load(server, 8)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(load, server, 8)
        time.sleep(0.02)
        os.kill(children(server.process.pid)[0], signal.SIGKILL)
        texts = running.result(timeout=60)
    check(f"requests of the only engine wait until it is back: {texts}", texts == undisturbed)

with Server(QUIRE, MODEL, *COMMON, "--engine-processes", "--engine-timeout", "1") as server:
    first = children(server.process.pid)
    server.process.send_signal(signal.SIGSTOP)  # the server stands still, and the engines wait for it
    time.sleep(3)
    server.process.send_signal(signal.SIGCONT)
    check("requests behind that are answered", load(server, 2) == undisturbed[:2])
    time.sleep(3)
    check("no engine was taken for one that hangs", children(server.process.pid) == first)
    os.kill(first[1], signal.SIGSTOP)
    eventually("an engine that hangs is replaced", lambda: children(server.process.pid).get(1, first[1]) != first[1])
    eventually("and is back", lambda: asking_for(server, "1") == 200)
    check("the other one is the same", children(server.process.pid)[0] == first[0])

folder = tempfile.TemporaryDirectory()
os.environ["XDG_RUNTIME_DIR"] = folder.name
server = Server(QUIRE, MODEL, *COMMON, "--engine-processes").__enter__()
left, = os.listdir(folder.name)
orphans = children(server.process.pid).values()
server.process.kill()
server.process.wait()
eventually("engines end with a server that is killed", lambda: not any(is_alive(pid) for pid in orphans), 5)
with Server(QUIRE, MODEL, *COMMON, "--engine-processes"):
    check("the next server removes what it has left", left not in os.listdir(folder.name))
check("and nothing is left of the next one", not os.listdir(folder.name))

with tempfile.TemporaryDirectory() as parent:
    os.environ["XDG_RUNTIME_DIR"] = os.path.join(parent, "d" * 90)
    os.mkdir(os.environ["XDG_RUNTIME_DIR"])
    with Server(QUIRE, MODEL, *COMMON, "--engine-processes") as server:
        check("no socket has a name in so long a folder, and engines meet elsewhere", answer(server) == expected)
os.environ.pop("XDG_RUNTIME_DIR")

began = time.monotonic()
failed = subprocess.run([QUIRE, "serve", MODEL, "--port", "0", "--host", "127.0.0.1", "--device", "cpu", "--engine-processes",
                         "--num-gpu-blocks-override", "2", "--max-model-len", "2048"], capture_output=True, text=True, timeout=60)
check(f"an engine that cannot start says why: {failed.stderr}", failed.returncode in (1, 4) and "blocks" in failed.stderr)
check("and soon", time.monotonic() - began < 30)
print("engine_processes_test: ok")
