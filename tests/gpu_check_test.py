#!/usr/bin/env python3
"""scripts/gpu-check with stand-ins for programs, driver and profiler: what passes, fails, skips, hangs or is killed is reported as that, no
time is lost, and the report is JSON whatever happens; without Python, without a profiler, without a device."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path.cwd()
KERNEL = '{"group": "kernel", "name": "decode attention, batch 32, context 4096", "us": 140.5, "share_of_read": 0.91}'
AB = '{"group": "ab", "name": "prefill attention, causal, tokens 8192", "a": "chosen", "b": "products of warps", "a_us": 700, "b_us": 5300, "b_over_a": 7.57}'
STEP = '{"group": "step", "name": "8b, streams 1: paged_attention", "us": 300.5, "times": 32, "share": 0.07}'
DECODE = '{"group": "decode", "name": "8b, streams 1", "us": 4100, "ms_per_step": 4.1}'
OPS_PERF = f"""case "$*" in
  --contact) echo '{{"group": "device", "name": "cuBLASLt", "version": "13.1.0", "file": "/x/libcublasLt.so.13"}}' ;;
  --variants) echo '{AB}'; echo '{{"group": "ab", "name": "cut o' ;;
  --profile) echo '{{"group": "profiled", "name": "prefill"}}' ;;
  *) echo '{KERNEL}'; echo 'an "error" \\ at the end'; exit 3 ;;
esac"""
ENGINE_PERF = f"""[ "$1" != --tiny ] || exit 0
echo '{STEP}'; echo '{DECODE}'; trap '' TERM; sleep 61 & sleep 62; sleep 63"""
QUIRE = 'case "$*" in *phi3*) exit 0 ;; *) echo "no such device"; exit 1 ;; esac'
PROGRAMS = {"cuda_ops_test": 'test "$1" = "~[cpu]"', "cuda_ops_perf": OPS_PERF, "cuda_engine_perf": ENGINE_PERF, "quire": QUIRE}
SMI = """case "$*" in *--format=csv) echo "name, driver" ;; esac; echo "NVIDIA H200, 580.1" """
ROWS = [("0", "void attention_wgmma_kernel<a, 128>(x)", "Duration", "us", "1,700.5"), ("0", "void attention_wgmma_kernel<a, 128>(x)",
        "Memory Throughput", "%", "81.2"), ("1", "rms_norm_kernel(y)", "Achieved Occupancy", "%", "55")]
NCU_CSV = "==PROF== Connected\n" + '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n' + "".join(
    ",".join(f'"{field}"' for field in row) + "\n" for row in ROWS)
NCU = """while [ "$1" != --log-file ]; do shift; done
cat > "$2" << 'END'
%s
END
shift 2; "$@"; exit %d"""
FILES = [f"tests/perf/{name}.py" for name in ("gpu_report", "cuda_model", "device_model", "latent_model")] + ["tests/cuda_budgets/budgets.txt"]


def program(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


class Stage:
    """A bundle, and a PATH with stand-ins in front."""

    def __init__(self, folder, programs, tools, without=()):
        self.root, self.out = Path(folder), Path(folder) / "out"
        for name, script in programs.items():
            program(self.root / "content/bin" / name, script)
        for name, script in tools.items():
            program(self.root / "tools" / name, script)
        for name in FILES:
            (self.root / "content" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / "content" / name)
        for name in ("tests/eval/eval.py", "tests/perf/torch_peers.py", "tests/data/golden/models/a/config.json"):
            path = self.root / "content" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        with tarfile.open(self.root / "bundle.tar.gz", "w:gz") as bundle:
            bundle.add(self.root / "content", ".")
        self.path = f"{self.root / 'tools'}:{os.environ['PATH']}"
        (self.root / "tools").mkdir(exist_ok=True)
        if without:  # PATH's programs but these
            for folder in os.environ["PATH"].split(":"):
                for tool in sorted(Path(folder).glob("*")) if os.path.isdir(folder) else []:
                    link = self.root / "tools" / tool.name
                    if not os.path.lexists(link) and not re.match("|".join(without), tool.name):
                        link.symlink_to(tool)
            self.path = str(self.root / "tools")

    def start(self, seconds, *more):
        return subprocess.Popen(["scripts/gpu-check", "--bundle", self.root / "bundle.tar.gz", "--out", self.out, "--seconds", str(seconds), *more],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "PATH": self.path})

    def run(self, seconds, *more):
        process = self.start(seconds, *more)
        self.said = process.communicate(timeout=150)[0]
        print(self.said)
        self.status = process.returncode
        return self.read()

    def read(self):
        self.report = json.loads((self.out / "report.json").read_text())
        self.table = (self.out / "table.txt").read_text()
        self.phases = {r["name"]: r for r in self.report if r["group"] == "phase"}
        assert len(list(self.out.iterdir())) <= 5, list(self.out.iterdir())
        return self

    def status_of(self, phase):
        return self.phases[phase]["status"]


def everything(folder):
    begin = time.monotonic()
    run = Stage(folder, PROGRAMS, {"nvidia-smi": SMI, "ncu": NCU % (NCU_CSV, 0)}).run(22)
    assert time.monotonic() - begin < 60
    assert run.status == 1, run.said
    for phase in ("device", "first contact", "first model", "operator tests", "other ways"):
        assert run.status_of(phase) == "passed", run.phases[phase]
    assert run.status_of("reference answers") == "failed, exit 1", run.phases
    assert run.status_of("operator speed") == "failed, exit 3", run.phases
    assert run.phases["operator speed"]["said"] == "an error  at the end", run.phases
    assert run.status_of("engine speed") == "out of time", run.phases
    assert run.status_of("racecheck") == "left out, no time", run.phases
    assert json.loads(KERNEL) in run.report and json.loads(AB) in run.report
    assert not any(r["name"].startswith("cut o") for r in run.report)
    predicted = {r["name"]: r for r in run.report if r["group"] == "predicted"}
    attention, stream = predicted["decode attention, 32 requests of 4,096, D = 128"], predicted["one stream of 8B (Llama 3)"]
    assert attention["measured_us"] == 140.5 and abs(attention["measured_over_predicted"] - 140.5 / attention["predicted_us"]) < 1e-3
    assert stream["measured_us"] == 4100, stream  # of a phase that ran out of time
    assert predicted["prefill 8,192, D = 128"]["measured_us"] is None
    for text in ("| decode attention, 32 requests of 4,096, D = 128 | 123 | 134 | 140.5 | 1.04 | 0.88 |", "| products of warps | 5,300.0 | 7.57 |",
                 "| 8b, streams 1: paged_attention | 300.5 | 32 | 0.070 |", "13.1.0"):
        assert text in run.table, text
    # What hung is gone, with what it had started and although it ignores SIGTERM.
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert not re.search(r"^sleep 6[123]$", left, re.M), left


def profiler(folder):
    run = Stage(f"{folder}/works", PROGRAMS, {"nvidia-smi": SMI, "ncu": NCU % (NCU_CSV, 0)}).run(60, "--only", "contact|profile")
    assert run.status == 0 and run.status_of("profile") == "passed", run.said
    kernels = {r["name"]: r for r in run.report if r["group"] == "ncu"}
    assert kernels["attention_wgmma_kernel<a, 128>"]["duration"] == 1700.5 and kernels["rms_norm_kernel"]["occupancy_percent"] == 55, kernels
    assert "| attention_wgmma_kernel<a, 128> | 1,700.5 | 81.2 |" in run.table
    assert set(run.phases) == {"device", "first contact", "profile"}, run.phases
    forbidden = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
    run = Stage(f"{folder}/forbidden", PROGRAMS, {"nvidia-smi": SMI, "ncu": NCU % (forbidden, 1)}).run(60, "--only", "contact|profile")
    assert run.status == 0 and run.status_of("profile") == "skipped" and "ERR_NVGPUCTRPERM" in run.phases["profile"]["said"], run.said
    run = Stage(f"{folder}/hangs", PROGRAMS, {"nvidia-smi": SMI, "ncu": "sleep 64"}).run(9, "--only", "contact|profile")
    assert run.status == 0 and run.status_of("profile").startswith("left out"), run.said


def bare_machine(folder):
    """Neither Python nor ncu nor a driver's tool, but a device."""
    run = Stage(folder, PROGRAMS, {}, without=("python", "ncu$", "nvidia-smi$", "compute-sanitizer$")).run(
        60, "--only", "contact|speed|profile|ranks|check|evaluation")
    assert run.status_of("device") == "skipped", run.phases
    assert run.status_of("first contact") == "passed" and run.status_of("operator speed") == "failed, exit 3", run.phases
    for phase in ("torch speed", "evaluation of quire-tiny", "ranks"):
        assert run.status_of(phase) in ("skipped", "left out, no time"), run.phases
    assert json.loads(KERNEL) in run.report and "share_of_read 0.91" in run.table


def no_device(folder):
    programs = {**PROGRAMS, "cuda_ops_perf": 'echo "cuda_ops_perf: no CUDA device" >&2; exit 77'}
    run = Stage(folder, programs, {"nvidia-smi": SMI}).run(60)
    assert run.status == 77 and set(run.phases) == {"device", "first contact"}, run.said
    assert run.phases["first contact"]["said"] == "cuda_ops_perf: no CUDA device", run.phases


def killed(folder):
    stage = Stage(folder, {**PROGRAMS, "cuda_ops_test": "echo begun; sleep 65"}, {"nvidia-smi": SMI})
    process = stage.start(100)
    while not (stage.out / "log.txt").exists() or "begun" not in (stage.out / "log.txt").read_text():
        time.sleep(0.1)
    before = json.loads((stage.out / "report.json").read_text())  # as it is where nothing can be caught
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert {"first contact", "first model"} <= {r["name"] for r in before}, before
    assert "predicted" in {r["group"] for r in stage.read().report} and process.returncode == 143


def sanitizers(folder):
    tool = 'case "$*" in *norm*) echo fine ;; *rows*) exit 9 ;; *) sleep 30 ;; esac'
    run = Stage(f"{folder}/works", PROGRAMS, {"nvidia-smi": SMI, "compute-sanitizer": tool}).run(35, "--only", "contact|memcheck")
    said = {r["name"]: r["said"] for r in run.report if r["group"] == "sanitizer"}
    assert said["memcheck, [norm]"] == "clean" and said["memcheck, [rows]"] == "failed", said
    tool = 'echo "Device not supported"; exit 1'
    run = Stage(f"{folder}/refused", PROGRAMS, {"nvidia-smi": SMI, "compute-sanitizer": tool}).run(60, "--only", "contact|memcheck")
    assert run.status == 0 and run.phases["memcheck"]["said"] == "Device not supported", run.phases


for case in (everything, profiler, bare_machine, no_device, killed, sanitizers):
    with tempfile.TemporaryDirectory() as place:
        case(place)
        print(f"-- {case.__name__}: ok", flush=True)
