#!/usr/bin/env python3
"""quire pull, serve and models with a server that speaks the Hub's API, and misbehaves in every way that a network can.

    tests/e2e/pull_test.py build/release/app/quire
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest.mock

from fake_hub import COMMIT, Hub, sha1
from serve_process import Server, check

QUIRE, MODEL = sys.argv[1], pathlib.Path("models/quire-tiny")
NEEDED = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
          "chat_template.jinja", "model.safetensors"}


def tiny():
    return {f.name: f.read_bytes() for f in MODEL.iterdir() if f.is_file() and f.name in NEEDED | {"README.md"}}


def environment(hub, home, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "XDG"))}
    return {**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), **more}


def run(hub, home, *words, **more):
    return subprocess.run([QUIRE, *words], env=environment(hub, home, **more), capture_output=True, text=True, timeout=120)


def pull(hub, home, *flags, name="org/name", **more):
    return run(hub, home, "pull", name, "--retry-pause", "0.01", *flags, **more)


def repo_of(home):
    return home / "hub" / "models--org--name"


def whole(home, files):
    snapshot = repo_of(home) / "snapshots" / COMMIT
    have = {p.relative_to(snapshot).as_posix(): p.read_bytes() for p in snapshot.rglob("*") if p.is_file()}
    return have == {k: v for k, v in files.items() if k in have} and have.keys() >= {"config.json"}


def the_layout(home):
    """As Python's library lays it out; README.md is not needed and not fetched; a second pull moves no byte."""
    hub = Hub(tiny())
    done = pull(hub, home, "--quiet", name="org/name@v1/x", HF_TOKEN="hf_secret")
    check("pulled", done.returncode == 0, done)
    snapshot = pathlib.Path(done.stdout.strip())
    check("the folder is said", snapshot == repo_of(home) / "snapshots" / COMMIT, done)
    check("only what is needed", {p.name for p in snapshot.iterdir()} == NEEDED & set(tiny()), list(snapshot.iterdir()))
    for link in snapshot.iterdir():
        data = link.read_bytes()
        large = link.name.endswith(".safetensors")
        name = hashlib.sha256(data).hexdigest() if large else sha1(data)
        check(f"{link.name} points to its blob", os.readlink(link) == f"../../blobs/{name}" and data == hub.files[link.name])
    check("refs", (repo_of(home) / "refs/v1/x").read_text() == COMMIT)
    check("the token goes along", {token for _, token, _ in hub.log} == {"Bearer hf_secret"}, hub.log)
    check("nothing is left over", not [p for p in repo_of(home).rglob("*") if p.name.endswith((".incomplete",)) or ".new" in p.name])
    sent = hub.sent
    check("again", pull(hub, home).returncode == 0 and hub.sent == sent)
    listed = run(hub, home, "models")
    check("it is listed", re.match(r"org/name +[\d.]+ MiB  0123456789ab  (main,v1/x|v1/x,main) +\n", listed.stdout), listed)


def shards(home):
    """An index: its shards and no other weights; a path below; the same content twice."""
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "sub/model-2.safetensors"}}).encode()
    files = {"config.json": b"{}", "model.safetensors.index.json": index, "model-1.safetensors": b"1" * 1000,
             "sub/model-2.safetensors": b"1" * 1000, "consolidated.safetensors": b"no", "additional_chat_templates/tool_use.jinja": b"x",
             "pytorch_model.bin": b"no", "generation_config.json": b"{}"}
    hub = Hub(files)
    done = pull(hub, home)
    snapshot = repo_of(home) / "snapshots" / COMMIT
    check("shards", done.returncode == 0 and whole(home, files) and os.readlink(snapshot / "sub/model-2.safetensors").startswith("../../../blobs/"), done)
    check("nothing else", not {"consolidated.safetensors", "pytorch_model.bin"} & {p.name for p in snapshot.rglob("*")})


def numbered(home):
    """Without an index: shards by their numbers, all of them."""
    files = {"config.json": b"{}", **{f"model-0000{i}-of-00002.safetensors": bytes([i]) * 1000 for i in (1, 2)}}
    hub = Hub(files)
    done = pull(hub, home)
    check("numbered shards", done.returncode == 0 and whole(home, files), done)
    check("they are whole", pull(hub, home, HF_HUB_OFFLINE="1").returncode == 0)
    (repo_of(home) / "snapshots" / COMMIT / "model-00002-of-00002.safetensors").unlink()
    check("and not without one", pull(hub, home, HF_HUB_OFFLINE="1").returncode == 1)
    done = pull(Hub({name: data for name, data in files.items() if "00001" not in name}), home)
    check("nor are they pulled without one", done.returncode == 1 and "nor all of shards" in done.stderr, done)


def cut(home):
    """Every connection breaks off after a part: it goes on from there, and never twice over the same bytes."""
    files = {**tiny(), "model.safetensors": os.urandom(900_000)}

    def trouble(handler, _, file):
        if not file:
            return False
        data = handler.begin_file(handler.server.files[file])
        handler.server.sent += len(data[:100_000])
        handler.wfile.write(data[:100_000])
        handler.close_connection = True
        return True
    hub = Hub(files, trouble)
    done = pull(hub, home, "--tries", "2")
    check("nine parts and more", done.returncode == 0 and whole(home, files), done)
    wanted = sum(len(files[n]) for n in NEEDED & set(files))
    check("each byte once", hub.sent == wanted, (hub.sent, wanted))
    check("ranges", any(r == "bytes=500000-" for _, _, r in hub.log), hub.log)


def killed_and_resumed(home):
    """SIGKILL in the middle; the next pull goes on. So does one where Python's library had begun."""
    files = {**tiny(), "model.safetensors": os.urandom(3_000_000)}
    slow = True

    def trouble(handler, _, file):
        if file != "model.safetensors" or not slow:
            return False
        data = handler.begin_file(handler.server.files[file])
        for at in range(0, len(data), 50_000):
            try:
                handler.wfile.write(data[at:at + 50_000])
            except OSError:
                return True
            time.sleep(0.02)
        return True
    hub = Hub(files, trouble)
    process = subprocess.Popen([QUIRE, "pull", "org/name"], env=environment(hub, home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    part = repo_of(home) / "blobs" / (hashlib.sha256(files["model.safetensors"]).hexdigest() + ".incomplete")
    deadline = time.time() + 20
    while time.time() < deadline and not (part.exists() and part.stat().st_size > 200_000):
        time.sleep(0.01)
    process.kill()
    process.wait()
    there = part.stat().st_size
    check("a part is there", 200_000 < there < 3_000_000, there)
    listed = run(hub, home, "models")
    check("the list says that it is not whole", "not all of it is here" in listed.stdout, listed)
    slow, hub.log = False, []
    done = pull(hub, home)
    asked = [r for p, _, r in hub.log if p.endswith("model.safetensors")]
    check("it goes on where it was", done.returncode == 0 and asked == [f"bytes={there}-"] and whole(home, files), (asked, there, done))


def wrong_hash(home):
    """A byte is wrong, in a large file and in a small one: thrown away, said, and right the next time."""
    for victim in ("model.safetensors", "tokenizer.json"):
        files = tiny()
        bad = True

        def trouble(handler, _, file):
            if file != victim or not bad:
                return False
            data = bytearray(handler.begin_file(files[file]))
            data[len(data) // 2] ^= 1
            handler.wfile.write(data)
            return True
        hub = Hub(files, trouble)
        place = home / victim
        done = pull(hub, place)
        check(f"{victim}: refused", done.returncode == 1 and "not what the model's page promises" in done.stderr, done)
        check("it is no model yet", not (repo_of(place) / "snapshots" / COMMIT / victim).exists())
        bad = False
        check("right the second time", pull(hub, place).returncode == 0 and whole(place, files))


def odd_servers(home):
    """Ranges that are ignored; a range of another place; too many bytes; redirects, with the token kept back; a loop of them."""
    files = {**tiny(), "model.safetensors": os.urandom(300_000)}

    def no_ranges(handler, _, file):
        if file != "model.safetensors":
            return False
        first = handler.server.seen[handler.path] == 1
        data = files[file]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:100_000] if first else data)
        handler.close_connection = True
        return True
    done = pull(Hub(files, no_ranges), home / "a")
    check("a server without ranges", done.returncode == 0 and whole(home / "a", files), done)

    def always_cut(handler, _, file):
        if file != "model.safetensors":
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(files[file])))
        handler.end_headers()
        handler.wfile.write(files[file][:100_000])
        handler.close_connection = True
        return True
    done = pull(Hub(files, always_cut), home / "b", "--tries", "3")
    check("a server that never gets further is given up", done.returncode == 1 and "ended before" in done.stderr, done)

    def other_place(handler, _, file):
        if file != "model.safetensors":
            return False
        if not handler.headers.get("Range"):
            data = handler.begin_file(files[file])
            handler.wfile.write(data[:1000])
            handler.close_connection = True
            return True
        return handler.status(206, [("Content-Range", "bytes 5-9/300000")], b"12345")
    done = pull(Hub(files, other_place), home / "c", "--tries", "2")
    check("another part than was asked for", done.returncode == 1 and "another part" in done.stderr, done)

    store = Hub(files)
    hub = Hub(files, store=store)
    done = pull(hub, home / "d", HF_TOKEN="hf_secret")
    check("sent to a store", done.returncode == 0 and whole(home / "d", files), done)
    check("which does not get the token", {token for _, token, _ in store.log} == {None}, store.log)

    def loop(handler, path, file):
        return file and handler.status(302, [("Location", path)])
    done = pull(Hub(files, loop), home / "e")
    check("a loop", done.returncode == 1 and "round and round" in done.stderr, done)


def refusals(home):
    files = tiny()
    for code, headers, token, said in [(401, [], "", "HF_TOKEN"), (401, [], "bad", "token is not accepted"),
                                       (403, [("X-Error-Message", "Access to model org/name is restricted")], "t", "terms"),
                                       (404, [], "t", "no such model")]:
        hub = Hub(files, lambda handler, path, _: handler.status(code, headers))
        done = pull(hub, home, HF_TOKEN=token)
        check(f"{code}", done.returncode == 1 and said in done.stderr and len(hub.log) == 1, done)

    def busy(handler, path, _):
        count = handler.server.seen[path]
        return handler.status(429, [("Retry-After", "1")]) if count == 1 else handler.status(503) if count == 2 else False
    begin = time.time()
    hub = Hub(files, busy)
    done = pull(hub, home / "busy")
    check("429 and 503 pass", done.returncode == 0 and time.time() - begin >= 1 and whole(home / "busy", files), done)
    hub = Hub(files, lambda handler, path, _: handler.status(500))
    done = pull(hub, home, "--tries", "3")
    check("500 without end", done.returncode == 1 and "HTTP 500" in done.stderr and len(hub.log) == 3, done)
    for name, why in [("../evil", "not a model's name"), ("org/..", "not a model's name"), ("a/b/c", "not a model's name"), ("org/name@../../x", "not a revision"),
                      ("org/name@", "not a revision"), ("-x/y", "")]:
        done = pull(Hub(files), home, name=name)
        check(f"{name} is refused", done.returncode != 0 and why in done.stderr + done.stdout, done)
    for bad in ("../../evil.json", "/etc/passwd", "a//b", "a\\..\\b"):
        done = pull(Hub({**files, bad: b"x"}), home / "evil")
        check(f"a repository with {bad}", done.returncode == 1 and "leads out" in done.stderr, done)
    index = json.dumps({"weight_map": {"a": "../../../x.safetensors"}}).encode()
    done = pull(Hub({"config.json": b"{}", "model.safetensors.index.json": index}), home / "evil2")
    check("an index that leads out", done.returncode == 1 and "outside" in done.stderr, done)
    done = pull(Hub({"model.gguf": b"x"}), home / "gguf")
    check("no config.json", done.returncode == 1 and "no config.json" in done.stderr, done)
    done = pull(Hub({"config.json": b"{}", "model.gguf": b"x"}), home / "gguf2")
    check("other formats are named", done.returncode == 1 and "GGUF" in done.stderr, done)
    done = pull(Hub(files, lambda handler, path, _: handler.status(200, body=b"<html>")), home / "html", "--tries", "1")
    check("not the Hub", done.returncode == 1, done)
    done = subprocess.run([QUIRE, "pull", "org/name", "--tries", "2", "--retry-pause", "0.01"], capture_output=True, text=True,
                          env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:1", "HF_HOME": str(home)})
    check("nobody there", done.returncode == 1 and "refused" in done.stderr, done)


def full_disk(home):
    """Too little room is said before a byte moves; a disk that fills up meanwhile is said too, and what came is kept."""
    files = {**tiny(), "model.safetensors": os.urandom(3_000_000)}
    place = home / "small"
    place.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True).returncode != 0:
        print("   no tmpfs may be mounted here: a limit on file sizes stands for the full disk")
        limited = subprocess.run(["bash", "-c", f"ulimit -f 1000; trap '' XFSZ; exec {QUIRE} pull org/name"], capture_output=True, text=True,
                                 env=environment(Hub(files), home / "limited"))
        check("a file that may not grow", limited.returncode == 1 and "File too large" in limited.stderr, limited)
        return
    try:
        hub = Hub(files)
        done = pull(hub, place)
        check("said before", done.returncode == 1 and "still to come" in done.stderr and "HF_HOME" in done.stderr, done)
        check("no weights were asked for", not [p for p, _, _ in hub.log if p.endswith(".safetensors")], hub.log)

        def fill(handler, _, file):
            if file == "model.safetensors":
                (place / "ballast").write_bytes(b"x" * 1_200_000)
            return False
        files["model.safetensors"] = os.urandom(900_000)
        done = pull(Hub(files, fill), place)
        check("said meanwhile", done.returncode == 1 and "No space left" in done.stderr and "make room" in done.stderr, done)
        (place / "ballast").unlink()
        hub = Hub(files)
        done = pull(hub, place)
        asked = [r for p, _, r in hub.log if p.endswith("model.safetensors")]
        check("goes on with room", done.returncode == 0 and whole(place, files) and asked[0], (asked, done))
    finally:
        subprocess.run(["umount", place], check=True)


def two_at_once(home):
    files = {**tiny(), "model.safetensors": os.urandom(2_000_000)}
    hub = Hub(files)
    both = [subprocess.Popen([QUIRE, "pull", "org/name"], env=environment(hub, home), stdout=subprocess.DEVNULL) for _ in range(3)]
    check("all are content", [p.wait(60) for p in both] == [0, 0, 0])
    check("each byte came once", hub.sent == sum(len(files[n]) for n in NEEDED & set(files)) and whole(home, files), hub.sent)


def served_by_revision(home):
    hub = Hub(tiny())
    for given, listed in ((("org/name", "--revision", "v1/x"), "org/name"), (("org/name@v1/x",), "org/name@v1/x")):
        with unittest.mock.patch.dict(os.environ, environment(hub, home)):
            server = Server(QUIRE, *given, "--device", "mock", name=None)
        with server:
            names = [model["id"] for model in json.loads(server.ask("/v1/models"))["data"]]
            check(f"{given} is listed as {listed}", names == [listed], names)
            for name in (listed, "org/name"):
                reply = server.post("/v1/completions", model=name, prompt="a", max_tokens=1)
                check(f"{given} is called {name}", reply["model"] == name, reply)
        check(f"{given} asks for that revision", any("/revision/v1%2Fx" in path for path, *_ in hub.log), hub.log)
    for flags, why in ((("org/name@main", "--revision", "v1"), "names a revision already"), (("models/quire-tiny", "--revision", "v1"), "is none")):
        done = run(hub, home, "serve", *flags)
        check(f"{flags}", done.returncode == 105 and why in done.stdout + done.stderr, done)


def served_by_name(home):
    hub = Hub(tiny())
    process = subprocess.Popen([QUIRE, "serve", "org/name", "--host", "127.0.0.1", "--port", "0", "--num-gpu-blocks-override", "1024"],
                               env=environment(hub, home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    line = next((l for l in process.stdout if "serves" in l), "")
    process.terminate()
    process.communicate(timeout=60)
    check("fetched and served under its name", "serves org/name at" in line, line)
    log = len(hub.log)
    done = run(hub, home, "chat", "org/name", "-p", "What is 12 + 7?", "--set", "temperature=0", HF_HUB_OFFLINE="1")
    check("chat by name, offline, from the cache", done.stdout == "12 + 7 = 19.\n" and len(hub.log) == log, done)
    done = run(hub, home, "pull", "org/name", HF_HUB_OFFLINE="1")
    check("pulled offline: what is there", done.returncode == 0 and "snapshots" in done.stdout and len(hub.log) == log, done)
    done = run(hub, home, "pull", "org/other", HF_HUB_OFFLINE="1")
    check("pulled offline, and not there", done.returncode == 1 and "HF_HUB_OFFLINE" in done.stderr, done)
    done = run(hub, home, "serve", "org/other", HF_HUB_OFFLINE="1")
    check("offline and not there", done.returncode != 0 and "HF_HUB_OFFLINE" in done.stderr, done)


with tempfile.TemporaryDirectory() as folder:
    for test in (the_layout, shards, numbered, cut, killed_and_resumed, wrong_hash, odd_servers, refusals, full_disk, two_at_once, served_by_name, served_by_revision):
        test(pathlib.Path(folder) / test.__name__)
        print("ok", test.__name__, flush=True)
