#!/usr/bin/env python3
"""Names meet: what cuda_model.py predicts, what gpu_report.py looks for, and what cuda_ops_perf measures, has ways of, or profiles.

  gpu_report_test.py PROGRAM     cuda_ops_perf, emulated
"""
import json
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import cuda_model
import gpu_report

run = lambda *flags: subprocess.run([sys.argv[1], "--tiny", *flags], check=True, capture_output=True, text=True).stdout
records = [json.loads(line) for flags in ((), ("--variants",), ("--profile",)) for line in run(*flags).splitlines()]
names = {(r["group"], r["name"]) for r in records} | {(r["group"], r["name"], r.get("b")) for r in records}
engine = (HERE / "cuda_engine_perf.cpp").read_text()
names |= {("decode", f"{shape}, streams 1") for shape in re.findall(r'^    \{"([\w.]+)", "', engine, re.M)}
bench = (HERE / "cuda_bench.cpp").read_text()
table, profiled = bench.split("variants_of_cases() {")[1].split("kProfiled[] = {")
wanted = {("ab", name) for name in re.findall(r'\{"([^"]+)",\s*\{k', table)}
wanted |= {("profiled", name) for name in re.findall(r'"([^"]+)"', profiled.split("};")[0])}
wanted |= {measure for measures in gpu_report.MEASURED.values() for measure in measures}

missing = sorted(str(name) for name in wanted - names)
missing += [f"no measurement of: {case}" for case in cuda_model.CASES if case not in gpu_report.MEASURED]
missing += [f"not a case of cuda_model.py: {case}" for case in gpu_report.MEASURED if case not in cuda_model.CASES]
print("\n".join(missing) or f"{len(wanted)} names, {len(records)} records: ok")
sys.exit(1 if missing else 0)
