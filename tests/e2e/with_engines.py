#!/usr/bin/env python3
"""Runs an end-to-end test with its engines in other processes: every `quire serve` that it starts gets them.

    tests/e2e/with_engines.py processes|tls build/release/app/quire tests/e2e/curl_test.sh

processes: `--engine-processes`, over Unix sockets. tls: engines that dial the server over TCP with TLS and a secret.
The test is given a stand-in for the binary, which adds what is needed and becomes the binary.
"""
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile


def stand_in(kind, quire, folder, arguments):
    """What the stand-in does; it does not return."""
    given = [word.split("=")[0] for word in arguments]
    elsewhere = {"--engine", "--engine-listen", "--engine-processes", "--help", "--tensor-parallel-size"} & set(given)
    if arguments[:1] != ["serve"] or elsewhere or len(arguments) < 2 or arguments[1].startswith("-"):
        os.execv(quire, [quire, *arguments])
    if kind == "processes":
        os.execv(quire, [quire, *arguments, "--engine-processes"])
    value = lambda flag, default: next((arguments[i + 1] if word == flag else word.split("=", 1)[1] for i, word in enumerate(arguments)
                                        if word == flag or word.startswith(flag + "=")), default)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    secret = ["--engine-secret-file", f"{folder}/secret"]
    for rank in range(int(value("--data-parallel-size", "1"))):
        parent = os.getpid()

        def end_with_the_server():
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            os.setpgid(0, 0)
            if os.getppid() != parent:
                os._exit(1)
        subprocess.Popen([quire, "engine", arguments[1], "--connect", address, "--rank", str(rank), "--device", value("--device", "cpu"),
                          "--cpu-threads", value("--cpu-threads", "0"), *secret, "--engine-ssl-ca-certs", f"{folder}/authority.pem"],
                         stdout=subprocess.DEVNULL, preexec_fn=end_with_the_server)
    os.execv(quire, [quire, *arguments, "--engine-listen", address, *secret, "--engine-ssl-certfile", f"{folder}/certificate.pem",
                     "--engine-ssl-keyfile", f"{folder}/key.pem"])


def make_certificates(folder):
    run = lambda *words: subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)
    run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=an authority", "-keyout", "authority.key",
        "-out", "authority.pem")
    run("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a server", "-keyout", "key.pem", "-out", "request.pem")
    pathlib.Path(folder, "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    run("x509", "-req", "-in", "request.pem", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "certificate.pem")


def main():
    kind, quire, test, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if kind == "tls":
            make_certificates(folder)
            pathlib.Path(folder, "secret").write_text("a secret of these tests\n")
        shim = pathlib.Path(folder, "quire")
        words = [sys.executable, os.path.abspath(__file__), "--stand-in", kind, os.path.abspath(quire), folder]
        shim.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in words) + ' "$@"\n')
        shim.chmod(0o755)
        command = [sys.executable, test] if test.endswith(".py") else [test]
        sys.exit(subprocess.run([*command, str(shim), *more], env={**os.environ, "QUIRE_TEST_ENGINES": kind}).returncode)


if __name__ == "__main__":
    if sys.argv[1] == "--stand-in":
        stand_in(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    main()
