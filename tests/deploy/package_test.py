#!/usr/bin/env python3
"""The Debian package in a bare system: installed by apt with what it depends on, it serves as its unit would start it, and leaves nothing
behind but what belongs to the administrator. Needs root, debootstrap and a Debian mirror, or a folder that debootstrap filled before.

    tests/deploy/package_test.py FOLDER_OF_THE_DEB [CHROOT]
"""
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

PORT = 21890


def skip(why):
    print("SKIPPED:", why)
    sys.exit(77)


def check(what, holds, seen=""):
    if not holds:
        sys.exit(f"FAILED: {what}\n{seen}")


def inside(root, *command, **more):
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", "LC_ALL": "C.UTF-8"}
    return subprocess.run(["chroot", root, *command], capture_output=True, text=True, env=environment, timeout=900, **more)


def bare_system(folder):
    root = sys.argv[2] if len(sys.argv) > 2 else f"{folder}/root"
    if not os.path.exists(f"{root}/etc/debian_version"):
        done = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], capture_output=True, text=True)
        if done.returncode != 0:
            skip(f"debootstrap: {done.stdout[-300:]}")
    return root


def install(root, deb):
    shutil.copy(deb, f"{root}/tmp/quire.deb")
    shutil.copy("/etc/resolv.conf", f"{root}/etc/resolv.conf")
    updated = inside(root, "apt-get", "update")
    if updated.returncode != 0:
        skip(f"no mirror: {updated.stderr[-300:]}")
    before = set(inside(root, "dpkg-query", "-W", "-f", "${Package}\n").stdout.split())
    check("quire is not there yet", "quire" not in before)
    done = inside(root, "apt-get", "install", "-y", "--no-install-recommends", "/tmp/quire.deb")
    check("apt installs it", done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:])
    after = set(inside(root, "dpkg-query", "-W", "-f", "${Package}\n").stdout.split())
    print(f"-- {len(after - before)} packages came with it, quire among them; {len(after)} in all")
    linked = inside(root, "ldd", "/usr/bin/quire").stdout
    check("every library is there", "not found" not in linked, linked)
    check("no compiler was needed", not {"gcc", "g++", "cmake"} & after)


def serve(root):
    """As the unit starts it: its own line, from a folder that cannot be written, as another user."""
    unit = pathlib.Path(f"{root}/lib/systemd/system/quire.service").read_text()
    command = shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.M)[1])
    check("the unit names what the package has", os.path.exists(root + command[0]), command)
    flags = ["--port", str(PORT), "--host", "127.0.0.1", "--num-gpu-blocks-override", "1024"]
    server = subprocess.Popen([shutil.which("chroot"), "--userspec=65534:65534", root, *command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={"PATH": "/usr/bin:/bin"})
    base = f"http://127.0.0.1:{PORT}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(base + "/health", timeout=5)
                break
            except OSError:
                check("it runs", server.poll() is None, server.poll() is not None and server.stderr.read())
                time.sleep(0.1)
        body = json.dumps({"messages": [{"role": "user", "content": "What is 12 + 7?"}], "temperature": 0}).encode()
        asked = urllib.request.Request(base + "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = json.loads(urllib.request.urlopen(asked, timeout=60).read())["choices"][0]["message"]["content"]
        check("it answers", answer == "12 + 7 = 19.", answer)
        page = urllib.request.Request(base + "/", headers={"Accept": "text/html"})
        check("the page is in it", b"<title>Quire</title>" in urllib.request.urlopen(page, timeout=60).read())
    finally:
        server.terminate()
        _, log = server.communicate(timeout=60)
    check("it stops as asked", server.returncode == 0, log[-1000:])


def tools(root):
    doctor = inside(root, "quire", "doctor", "--seconds", "0")
    check("doctor works there", doctor.returncode == 0 and "instructions" in doctor.stdout, doctor)
    plan = inside(root, "quire", "plan", "/usr/share/quire/models/quire-tiny")
    check("plan works there", plan.returncode == 0 and "concurrency" in plan.stdout, plan)
    check("quire-load is there", inside(root, "quire-load", "--help").returncode == 0)


def remove(root):
    with open(f"{root}/etc/quire/quire.toml", "a") as file:
        file.write("# mine\n")
    check("it can be removed", inside(root, "apt-get", "remove", "-y", "quire").returncode == 0)
    check("and takes its program along", not os.path.exists(f"{root}/usr/bin/quire"))
    check("a changed configuration stays", "# mine" in pathlib.Path(f"{root}/etc/quire/quire.toml").read_text())
    check("until it is purged", inside(root, "apt-get", "purge", "-y", "quire").returncode == 0 and not os.path.exists(f"{root}/etc/quire/quire.toml"))


def main():
    found = glob.glob(f"{sys.argv[1]}/quire_*.deb")
    if not found:
        skip("the package was not built (--target package)")
    if os.geteuid() != 0 or (len(sys.argv) < 3 and shutil.which("debootstrap") is None):
        skip("needs root and debootstrap")
    with tempfile.TemporaryDirectory() as folder:
        root = bare_system(folder)
        install(root, found[0])
        tools(root)
        serve(root)
        remove(root)
    print("ok")


main()
