#!/usr/bin/env python3
"""What must not end or stop a server: a log that nobody reads any more, a terminal that closes; and what must not be lost.

    tests/e2e/signals_test.py build/release/app/quire
"""
import fcntl
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request

from serve_process import check

MODEL = "models/quire-tiny"
BASE = ["--num-gpu-blocks-override", "1024", "--max-model-len", "4096"]


class Server:
    def __init__(self, quire, *flags, stderr=subprocess.DEVNULL, **options):
        self.process = subprocess.Popen([quire, "serve", MODEL, *BASE, "--host", "127.0.0.1", "--port", "0", *flags],
                                        stdout=subprocess.PIPE, stderr=stderr, text=True, **options)

    def wait(self):
        for line in self.process.stdout:
            if address := re.search(r"https?://127\.0\.0\.1:(\d+)", line):
                self.port = int(address[1])
                return self
        sys.exit("FAILED: the server did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def get(self, path, timeout=10):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=timeout).read().decode()

    def stream(self, max_tokens):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = {"prompt": "one", "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()


def closed_log(quire):
    reader, writer = os.pipe()
    with Server(quire, "--log-level", "debug", stderr=writer) as server:
        os.close(writer)
        server.wait()
        os.close(reader)
        for _ in range(20):
            server.get("/version")
        check("a server outlives the reader of its log", server.process.poll() is None)
        server.process.terminate()
        check("and drains", server.process.wait(timeout=30) == 0)


def unread_log(quire):
    reader, writer = os.pipe()
    with Server(quire, "--log-level", "debug", stderr=writer) as server:
        os.close(writer)
        server.wait()
        for _ in range(1500):  # some 150 KB of lines: a pipe holds 64
            server.get("/version")
        server.process.terminate()
        check("an unread log stops neither requests nor the end", server.process.wait(timeout=30) == 0)
        os.close(reader)


def in_terminal():
    """What Popen needs for a child that leads a session with a terminal of its own."""
    _, terminal = os.openpty()
    return {"start_new_session": True, "stdin": terminal, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}


def hang_up_without_terminal(quire):
    for options in ({"start_new_session": True}, {**in_terminal(), "preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}):
        with Server(quire, **options) as server:
            server.wait()
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            check("SIGHUP without a terminal ends nothing", server.get("/v1/models") != "" and server.process.poll() is None)


def hang_up(quire):
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        with Server(quire, **in_terminal()) as server:
            server.wait()
            reply = server.stream(400)
            reply.readline()
            server.process.send_signal(number)
            text = reply.read().decode()
            check(f"{number.name}: the stream is finished", text.rstrip().endswith("[DONE]") and '"length"' in text)
            check(f"{number.name}: exit code 0", server.process.wait(timeout=30) == 0)


def connects(path):
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(path)
            return True
        except OSError:
            return False


def unix_socket(quire):
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/q.sock"
        command = [quire, "serve", MODEL, *BASE, "--uds", path]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            check("it listens", any(path in line for line in first.stdout))
            second = subprocess.run(command, capture_output=True, text=True, timeout=60)
            check("a second server is refused", second.returncode == 1 and "another server listens there" in second.stderr)
            check("the first one still answers", connects(path))
            first.terminate()
            check("it stops", first.wait(timeout=30) == 0)
            check("and takes its socket away", not os.path.exists(path))
        finally:
            first.kill()
        both = subprocess.run([*command, "--port", "9"], capture_output=True, text=True, timeout=60)
        check("--uds beside --port is refused", both.returncode != 0 and "--port" in both.stderr)


def certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-keyout", folder + "/key.pem", "-out", folder + "/cert.pem"], check=True, capture_output=True)


def reload_certificate(quire):
    with tempfile.TemporaryDirectory() as folder:
        certificate(folder, "first")
        with Server(quire, "--ssl-certfile", folder + "/cert.pem", "--ssl-keyfile", folder + "/key.pem") as server:
            server.wait()

            def shown():
                return ssl.get_server_certificate(("127.0.0.1", server.port))
            first = shown()
            certificate(folder, "second")
            check("the certificate is read when it is asked for", shown() == first)
            server.process.send_signal(signal.SIGHUP)
            for _ in range(100):
                if shown() != first:
                    break
                time.sleep(0.05)
            second = shown()
            check("SIGHUP reads it again", second != first)
            with open(folder + "/cert.pem", "w") as file:
                file.write("broken")
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            check("a broken one leaves the last", shown() == second and server.process.poll() is None)


# Long texts that keep the workers busy must not keep the server from stopping.
def stop_under_text_work(quire):
    with Server(quire, "--shutdown-timeout", "1") as server:
        server.wait()
        text = json.dumps({"prompt": "word " * 1_500_000}).encode()

        def post():
            request = urllib.request.Request(f"http://127.0.0.1:{server.port}/tokenize", text,
                                             {"Content-Type": "application/json"})
            try:
                urllib.request.urlopen(request, timeout=60).read()
            except (OSError, http.client.HTTPException):
                pass
        threads = [threading.Thread(target=post) for _ in range(12)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        server.process.terminate()
        begin = time.monotonic()
        server.process.wait(timeout=60)
        check("it stops within the shutdown timeout and a little", time.monotonic() - begin < 15)
        for thread in threads:
            thread.join()


def stop_while_answer_is_read(quire):
    """Slowly, so that its last byte is read long after the engine has made its last token."""
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/q.sock"  # holds less of an answer than TCP does
        server = subprocess.Popen([quire, "serve", MODEL, *BASE, "--uds", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            check("it listens", any(path in line for line in server.stdout))
            body = json.dumps({"prompt": "one", "max_tokens": 3000, "ignore_eos": True, "logprobs": 5}).encode()
            with socket.socket(socket.AF_UNIX) as reader, socket.socket(socket.AF_UNIX) as idle:
                for one in (reader, idle):
                    one.settimeout(60)
                    one.connect(path)
                reader.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
                answer = reader.recv(100)
                server.terminate()
                check("a connection without a request is closed at once", idle.recv(1) == b"")
                time.sleep(4)
                check("the server waits for who reads", server.poll() is None)
                while more := reader.recv(65536):
                    answer += more
            head, _, rest = answer.partition(b"\r\n\r\n")
            length = int(re.search(rb"Content-Length: (\d+)", head)[1])
            check(f"the answer is whole: {len(rest)} bytes of {length}", len(rest) == length)
            check("and then it ends", server.wait(timeout=30) == 0)
        finally:
            server.kill()


def main():
    for test in (closed_log, unread_log, hang_up, hang_up_without_terminal, unix_socket, stop_under_text_work, stop_while_answer_is_read, reload_certificate):
        test(sys.argv[1])
        print("ok:", test.__name__, flush=True)


main()
