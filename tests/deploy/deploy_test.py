#!/usr/bin/env python3
"""What deploy/ says is true: flags, paths, ports and queries against the server itself; the tools that judge such files, where they
are installed; the package, where it was built.

    tests/deploy/deploy_test.py build/release/app/quire build/release
"""
import glob
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

sys.path.insert(0, "tests/e2e")
from serve_process import Server
from vllm_queries import vllm_queries

QUIRE, BUILD = sys.argv[1], pathlib.Path(sys.argv[2])
DEPLOY = pathlib.Path("deploy")


def check(what, holds, seen=""):
    if not holds:
        sys.exit(f"FAILED: {what}\n{seen}")


def flags_exist(help_text):
    known = set(re.findall(r"--[a-z][\w-]*", help_text))
    for file in [DEPLOY / "docker/Dockerfile", DEPLOY / "compose.yml", DEPLOY / "compose.prefill-decode.yml", DEPLOY / "kubernetes/quire.yaml", DEPLOY / "README.md"]:
        text = file.read_text()
        if file.name == "Dockerfile":
            text = re.search(r"ENTRYPOINT(.*)", text, re.S)[1]
        used = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) - {"--build", "--target", "--from-file", "--help"}
        check(f"{file} uses flags that there are", used <= known, used - known)
        check(f"{file} uses flags at all", used or file.name == "Dockerfile")


def config_file_works():
    """The package's configuration, with a port of its own; a typo in it is a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        text = (DEPLOY / "debian/quire.toml").read_text()
        text = text.replace("/usr/share/quire/", "").replace("port = 8000", "port = 0")
        (pathlib.Path(folder) / "q.toml").write_text(text)
        process = subprocess.Popen([QUIRE, "serve", "--config", f"{folder}/q.toml", "--num-gpu-blocks-override", "1024"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = next((l for l in process.stdout if "serves" in l), "")
        process.terminate()
        process.communicate(timeout=60)
        check("the configuration of the package serves", "quire-tiny at http://127.0.0.1:" in line, line)
        (pathlib.Path(folder) / "bad.toml").write_text(text + "\nprot = 1\n")
        done = subprocess.run([QUIRE, "serve", "--config", f"{folder}/bad.toml", "--port", "0"], capture_output=True, text=True, timeout=60)
        check("a typo is refused by name", done.returncode not in (0, 4) and "prot" in done.stderr + done.stdout, done)


def queries():
    """Every expression of boards and alerts with its file."""
    for file in sorted(DEPLOY.glob("grafana/boards/*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                yield file.name, target["expr"].replace("$instance", ".*").replace("$__rate_interval", "10s")
    for expr in re.findall(r"expr: (.*)", (DEPLOY / "prometheus/alerts.yml").read_text()):
        yield "alerts.yml", expr


def metrics_exist(server):
    there = set(re.findall(r"^([\w:]+)(?:\{| )", server.ask("/metrics"), re.M))
    names = set()
    for file, expr in queries():
        for name in re.findall(r"(?:vllm|quire):\w+|http_\w+", expr):
            names.add(name)
            check(f"{file}: {name} is on /metrics", name in there, expr)
    alerts = [expr for file, expr in queries() if file == "alerts.yml"]
    check("an engine that is lost raises an alert", any(alert.startswith("quire:engine_up == 0 ") for alert in alerts), alerts)
    check("and is no full queue", any('rejections_total{reason="max_num_queued_reqs"}' in expr for expr in alerts), alerts)
    check("the boards look at many", len(names) >= 25, names)
    for name in ("vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        check(f"what the endpoint picker reads: {name}", name in there)
    boards = [json.loads(f.read_text()) for f in DEPLOY.glob("grafana/boards/*.json")]
    check("three boards, each with an id of its own", len({b["uid"] for b in boards}) == 3)


def prometheus(server):
    """The queries in a Prometheus that scrapes the server: those of our boards, and those that people have who come from vLLM."""
    program = shutil.which("prometheus")
    if program is None:
        return print("-- no prometheus here: the queries were not run")
    with tempfile.TemporaryDirectory() as folder:
        config = (DEPLOY / "prometheus/prometheus.yml").read_text().replace("quire:8000", server.base.removeprefix("http://"))
        (pathlib.Path(folder) / "prometheus.yml").write_text(config.replace("5s", "1s"))
        shutil.copy(DEPLOY / "prometheus/alerts.yml", folder)
        if shutil.which("promtool"):
            done = subprocess.run(["promtool", "check", "config", f"{folder}/prometheus.yml"], capture_output=True, text=True)
            check("promtool takes configuration and alerts", done.returncode == 0, done)
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = "127.0.0.1:%d" % free.getsockname()[1]
        base = f"http://{address}"
        process = subprocess.Popen([program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                    f"--web.listen-address={address}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.time() + 60
            empty = [("", "")]
            while empty and time.time() < deadline:
                server.post("/v1/chat/completions", messages=[{"role": "user", "content": "What is 12 + 7?"}], temperature=0)
                time.sleep(2)
                empty = []
                for file, expr in (*queries(), *vllm_queries("m")):
                    if file == "alerts.yml":
                        continue
                    try:
                        url = f"{base}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
                        result = json.loads(urllib.request.urlopen(url, timeout=10).read())["data"]["result"]
                    except OSError:
                        result = []
                    if not result or all(r["value"][1] == "NaN" for r in result):
                        empty.append((file, expr))
            check("every panel shows data", not empty, empty)
            print("-- every query of our boards, of vLLM's dashboard and of the autoscaler gave data in Prometheus")
        finally:
            process.terminate()
            process.wait(30)


def unit():
    text = (DEPLOY / "systemd/quire.service").read_text()
    tls = "ssl-certfile" in re.sub("#.*", "", (DEPLOY / "debian/quire.toml").read_text())
    check("a reload does not end the server", tls or not re.search("^ExecReload", text, re.M))
    if shutil.which("systemd-analyze") is None:
        return print("-- no systemd-analyze here")
    with tempfile.TemporaryDirectory() as folder:
        text = (DEPLOY / "systemd/quire.service").read_text().replace("/usr/bin/quire", os.path.abspath(QUIRE))
        (pathlib.Path(folder) / "quire.service").write_text(text)
        done = subprocess.run(["systemd-analyze", "verify", f"{folder}/quire.service"], capture_output=True, text=True)
        own = [line for line in done.stderr.splitlines() if "quire.service" in line and "Documentation" not in line]
        check("systemd-analyze verify", not own, done.stderr)
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", f"{folder}/quire.service"], capture_output=True, text=True)
        level = re.search(r"exposure level for quire.service: ([\d.]+)", done.stdout)
        if level:
            print("-- exposure level", level[1])
            check("hardened", float(level[1]) < 3, done.stdout)


def yaml_files(server):
    try:
        import yaml
    except ImportError:
        return print("-- no PyYAML here: the YAML files were not read")
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    for service in compose["services"].values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            check(f"compose mounts {source}", not source.startswith(".") or (DEPLOY / source).exists())
    check("the Dockerfile is where compose looks", (DEPLOY / ".." / compose["services"]["quire"]["build"]["dockerfile"]).exists())
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes/quire.yaml").read_text()))
    check("kinds", [o["kind"] for o in objects] == ["Deployment", "PersistentVolumeClaim", "Service"])
    pod = objects[0]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        check(f"{probe}: {path} answers", server.ask(path) is not None)
    flags = dict(zip(container["args"][1::2], container["args"][2::2]))
    drain = int(flags["--drain-delay"]) + int(flags["--shutdown-timeout"])
    check("the pod is given the time that draining takes", drain < pod["terminationGracePeriodSeconds"])
    check("what is mounted is there", {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]})
    for file in DEPLOY.rglob("*.yml"):
        yaml.safe_load(file.read_text())
    pool = yaml.safe_load((DEPLOY / "kubernetes/inference-pool.yaml").read_text())
    check("the pool selects the pods", pool["spec"]["selector"]["matchLabels"] == objects[0]["spec"]["template"]["metadata"]["labels"])


def package():
    found = glob.glob(str(BUILD / "quire_*.deb"))
    if not found:
        return print("-- the package was not built (--target package)")
    listed = subprocess.run(["dpkg-deb", "-c", found[0]], capture_output=True, text=True).stdout
    for path in ("./usr/bin/quire", "./usr/share/quire/models/quire-tiny/model.safetensors", "./lib/systemd/system/quire.service", "./etc/quire/quire.toml"):
        check(f"the package has {path}", path in listed, listed)
    info = subprocess.run(["dpkg-deb", "-f", found[0], "Depends"], capture_output=True, text=True).stdout
    check("and names its libraries", "libssl3" in info and "libc6" in info, info)


help_text = "".join(subprocess.run([QUIRE, command, "--help"], capture_output=True, text=True).stdout for command in ("serve", "proxy"))
flags_exist(help_text)
config_file_works()
with Server(QUIRE, "models/quire-tiny", "--num-gpu-blocks-override", "1024", "--metrics-compat") as running:
    running.post("/v1/chat/completions", messages=[{"role": "user", "content": "What is 12 + 7?"}])
    metrics_exist(running)
    yaml_files(running)
    prometheus(running)
unit()
package()
print("ok")
