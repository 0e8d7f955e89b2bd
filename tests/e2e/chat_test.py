#!/usr/bin/env python3
"""quire chat through a pipe and through a terminal: with a model of its own, and with servers of other makes, well and badly
behaved, which this script plays.

    tests/e2e/chat_test.py build/release/app/quire
"""
import http.server
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

from serve_process import check

QUIRE = sys.argv[1]


def event(**delta):
    finish = delta.pop("finish", None)
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode() + b"\n\n"


class Server(http.server.ThreadingHTTPServer):
    """Answers as `script` says: a function of the handler and the request's number."""
    daemon_threads = True

    def __init__(self, script):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.requests, self.keys = script, [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def whole(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        check("models are asked for where OpenAI has them", self.path == "/v1/models", self.path)
        self.whole(200, b'{"data": [{"id": "first"}, {"id": "second"}]}')

    def do_POST(self):
        check("chat is asked for where OpenAI has it", self.path == "/v1/chat/completions", self.path)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self.server.keys.append(self.headers["Authorization"])
        self.server.script(self, len(self.server.requests))

    def begin_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def piece(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def chat(server, lines, *flags, env=None):
    done = subprocess.run([QUIRE, "chat", "--url", server.url, *flags], input="".join(line + "\n" for line in lines), text=True,
                          capture_output=True, timeout=60, env={**os.environ, "OPENAI_API_KEY": "", "QUIRE_API_KEY": "", **(env or {})})
    return done


def events_in_odd_pieces(handler, number):
    """Thinks, answers, ends; cut into pieces of three bytes, so that events and characters come apart."""
    handler.begin_events()
    stream = (b": a comment\n\n" + event(role="assistant") + event(reasoning_content="hm \u00e9") + event(content=f"answer {number} ") +
              event(content="\u20ac\x1b[2J", finish="stop") +
              b'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\ndata: [DONE]\n\n')
    for at in range(0, len(stream), 3):
        handler.piece(stream[at:at + 3])
    handler.wfile.write(b"0\r\n\r\n")


def history_and_settings():
    server = Server(events_in_odd_pieces)
    with tempfile.TemporaryDirectory() as folder:
        file = folder + "/talk.json"
        done = chat(server, ["/system Be brief.", "/set temperature 0.25", "/set stop [\"x\"]", "first?", "second?", "/retry",
                             "/model second", "two\\", "lines", f"/save {file}", "/clear", "/unset stop", "third?",
                             f"/load {file}", '"""', "a", "", "b", '"""', "/history"], "--api-key", "secret")
        check("all was answered", done.returncode == 0, done.stderr)
        check("the answer is shown", "answer 1 \u20ac" in done.stdout, done.stdout)
        check("what would steer the terminal is not", "\x1b" not in done.stdout, done.stdout)
        check("reasoning is shown apart", "<thinking>\nhm \u00e9\n</thinking>\nanswer 1" in done.stdout, done.stdout)
        check("the key goes along", set(server.keys) == {"Bearer secret"}, server.keys)
        first, second, retry, lines, third, loaded = server.requests
        check("the system prompt and settings are sent", first["messages"] == [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "first?"}] and first["temperature"] == 0.25
            and first["stop"] == ["x"] and first["stream"] is True and first["model"] == "first", first)
        answer = {"role": "assistant", "content": "answer 1 \u20ac\x1b[2J"}
        check("what was said is sent, without the reasoning", second["messages"][2] == answer, second)
        check("a retry asks the same", retry["messages"] == second["messages"], retry)
        check("another model", lines["model"] == "second" and lines["messages"][-1]["content"] == "two\nlines", lines)
        check("forgotten, but for system and settings", len(third["messages"]) == 2 and "stop" not in third
              and third["temperature"] == 0.25, third)
        check("saved and loaded", loaded["messages"][:-1] == json.loads(json.dumps(
            [{"role": "system", "content": "Be brief."}] + [{k: m[k] for k in ("role", "content")} for m in
                                                            json.loads(pathlib.Path(file).read_text())["messages"]])), loaded)
        check("a block of lines", loaded["messages"][-1]["content"] == "a\n\nb\n", loaded)
        done = chat(server, [], "--load", file, "-p", "again?", "--set", "top_p=0.5", "--hide-thinking", env={"OPENAI_API_KEY": "k2"})
        check("--load, --set, -p", server.requests[-1]["top_p"] == 0.5 and server.requests[-1]["messages"][-1]["content"] == "again?")
        check("thinking can be hidden", "hm" not in done.stdout and "answer" in done.stdout, done.stdout)
        check("the key of the environment", server.keys[-1] == "Bearer k2")
    before = set(pathlib.Path(tempfile.gettempdir()).glob("quire-chat-*"))
    for number in (signal.SIGHUP, signal.SIGTERM):
        closed = subprocess.Popen([QUIRE, "chat", "models/quire-tiny", "-p", "x", "--set", "max_tokens=8000", "--set", "ignore_eos=true", "--",
                                   "--num-gpu-blocks-override", "1024"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        closed.stdout.read(1)
        closed.send_signal(number)
        closed.wait(timeout=30)
        check("a closed terminal leaves nothing behind", set(pathlib.Path(tempfile.gettempdir()).glob("quire-chat-*")) == before)
    slip = chat(server, [], "-p", "again?", "--set", "temprature=0")
    check("a setting that is a slip is refused", slip.returncode == 1 and "Did you mean temperature?" in slip.stderr, slip)
    own = chat(server, [], "-p", "again?", "--set", "quality_of_service=2")
    check("another server's own passes", own.returncode == 0 and server.requests[-1]["quality_of_service"] == 2, own)


def trouble():
    """Each server fails in its own way; the next question is asked without what failed."""
    def cut(handler, _):
        handler.begin_events()
        handler.piece(event(content="half"))
        handler.close_connection = True

    def refuse(handler, _):
        handler.whole(401, b'{"error": {"message": "Incorrect API key"}}')

    def other_refusal(handler, _):
        handler.whole(422, b'{"detail": "no such parameter"}')

    def html(handler, _):
        handler.whole(502, b"<html>bad gateway</html>", "text/html")

    def event_error(handler, _):
        handler.begin_events()
        handler.piece(b'data: {"error": {"message": "the engine died"}}\n\n')
        handler.piece(b"data: [DONE]\n\n")
        handler.wfile.write(b"0\r\n\r\n")

    def nonsense(handler, _):
        handler.begin_events()
        handler.piece(b"data: {not json\n\ndata: [DONE]\n\n")
        handler.wfile.write(b"0\r\n\r\n")

    for script, said in [(cut, "ended before"), (refuse, "HTTP 401: Incorrect API key"), (other_refusal, "HTTP 422: no such parameter"),
                         (html, "HTTP 502: <html>bad gateway"), (event_error, "the engine died"), (nonsense, "not JSON")]:
        server = Server(script)
        done = chat(server, ["one?", "two?"])
        check(f"{script.__name__}: told why, and the exit code says it", done.returncode == 1 and said in done.stderr, done)
        kept = [m["role"] for m in server.requests[1]["messages"]]
        check(f"{script.__name__}: only what was answered is kept",
              kept == (["user", "assistant", "user"] if script is cut else ["user"]), kept)
    done = subprocess.run([QUIRE, "chat", "--url", "http://127.0.0.1:1", "--model", "m", "-p", "x"], capture_output=True, text=True)
    check("nobody listens", done.returncode == 1 and "refused" in done.stderr, done)

    def not_streamed(handler, _):
        handler.whole(200, json.dumps({"choices": [{"message": {"content": "whole", "tool_calls": [
            {"function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}]}).encode())
    done = chat(Server(not_streamed), ["x"])
    check("a server that does not stream, and calls", done.stdout == "whole\n[calls f {}]\n", done)


def bad_usage():
    for flags, said in [([], "--url is needed"), (["m", "--url", "http://x"], "excludes"), (["--url", "ftp://x"], "is not an address"),
                        (["--url", "http://u:p@x"], "user name"), (["--url", "http://x:99999"], "port"),
                        (["nosuchfolder"], "no such folder")]:
        done = subprocess.run([QUIRE, "chat", *flags], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        check(f"{flags}: refused in words", done.returncode != 0 and said in done.stderr + done.stdout, done)


class Terminal:
    def __init__(self, *flags):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(QUIRE, ["quire", "chat", *flags])
        self.seen = ""

    def expect(self, pattern, seconds=60):
        deadline = time.time() + seconds
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.time()))
            try:
                data = os.read(self.fd, 65536) if ready else b""
            except OSError:
                data = b""
            check(f"the terminal shows {pattern!r}", data, self.seen)
            self.seen += data.decode(errors="replace")
        self.seen = self.seen[found.end():]
        return found

    def type(self, text):
        os.write(self.fd, text.encode())


def children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def with_a_model():
    """A person at a terminal, with a server that quire chat starts and ends."""
    terminal = Terminal("models/quire-tiny", "--set", "temperature=0", "--", "--num-gpu-blocks-override", "512", "--max-model-len", "4096")
    terminal.expect("quire-tiny · /help")
    terminal.expect("> ")
    server = children_of(terminal.pid)
    check("one server", len(server) == 1, server)
    terminal.type("What is 12 + 7?\n")
    terminal.expect(r"12 \+ 7 = 19")
    terminal.expect(r"\d+ tokens, [\d.]+ a second, first token after [\d.]+ s")
    terminal.type("/hlep\n")
    terminal.expect("did you mean /help")
    terminal.type("/set ignore_eos true\n/set max_tokens 4000\nCount from 1.\n")
    terminal.expect("Count from 1.")
    terminal.expect(r"\d")
    time.sleep(0.3)
    terminal.type("\x03")
    terminal.expect("stopped")
    terminal.type("/unset ignore_eos\n/unset max_tokens\n/clear\nWhat is 3 + 4?\n")
    terminal.expect(r"3 \+ 4 = 7")
    terminal.type("\x04")
    _, status = os.waitpid(terminal.pid, 0)
    check("Ctrl-D ends well", os.waitstatus_to_exitcode(status) == 0, status)
    check("its server has ended too", not pathlib.Path(f"/proc/{server[0]}").exists())
    done = subprocess.run([QUIRE, "chat", "models/quire-tiny", "-p", "What is 12 + 7?", "--set", "temperature=0"], capture_output=True,
                          text=True, timeout=60)
    check("one question through a pipe", done.returncode == 0 and done.stdout == "12 + 7 = 19.\n", done)


def killed():
    terminal = Terminal("models/quire-tiny", "--", "--num-gpu-blocks-override", "1024")
    terminal.expect("> ")
    server = children_of(terminal.pid)[0]
    os.kill(terminal.pid, signal.SIGKILL)
    os.waitpid(terminal.pid, 0)
    for _ in range(100):
        if not pathlib.Path(f"/proc/{server}").exists():
            return
        time.sleep(0.1)
    sys.exit("FAILED: the server outlives a chat that was killed")


for test in (history_and_settings, trouble, bad_usage, with_a_model, killed):
    test()
    print("ok", test.__name__)
