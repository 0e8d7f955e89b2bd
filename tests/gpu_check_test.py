#!/usr/bin/env python3
"""scripts/gpu-check with a bundle of stand-ins: what passes, fails, skips or hangs is reported as that, and no time is lost."""
import json
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

SPEED = r'echo "{\"group\": \"kernel\", \"name\": \"decode attention, batch 32\", \"us\": 12.5, \"share_of_read\": 0.91}"'
PROGRAMS = {"cuda_ops_test": 'test "$1" = "~[cpu]"', "cuda_ops_perf": SPEED + "; exit 3", "cuda_engine_perf": "sleep 60", "quire": "exit 77"}

with tempfile.TemporaryDirectory() as folder:
    root = Path(folder)
    for name, script in PROGRAMS.items():
        path = root / "content/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    for name, text in (("tests/eval/eval.py", ""), ("tests/perf/torch_peers.py", ""), ("tests/data/golden/models/a/config.json", "")):
        path = root / "content" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with tarfile.open(root / "bundle.tar.gz", "w:gz") as bundle:
        bundle.add(root / "content", ".")

    begin = time.monotonic()
    done = subprocess.run(["scripts/gpu-check", "--bundle", root / "bundle.tar.gz", "--out", root / "out", "--seconds", "25"],
                          capture_output=True, text=True, timeout=120)
    took = time.monotonic() - begin
    print(done.stdout)
    report = json.loads((root / "out/report.json").read_text())
    phases = {r["name"]: r["status"] for r in report if r["group"] == "phase"}
    assert done.returncode == 1, done.stderr
    assert phases["operator tests"] == "passed", phases
    assert phases["reference answers"] == "failed, exit 1", phases
    assert phases["operator speed"] == "failed, exit 3", phases
    assert phases["engine speed"] == "out of time", phases
    assert phases["racecheck"] == "left out, no time", phases
    assert {"group": "kernel", "name": "decode attention, batch 32", "us": 12.5, "share_of_read": 0.91} in report
    assert "share_of_read 0.91" in (root / "out/table.txt").read_text()
    assert took < 60, took
