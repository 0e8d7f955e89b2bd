#!/usr/bin/env python3
"""What scripts/gpu-check leaves: report.json, and table.txt on stdout, from records.jsonl and ncu.csv.

  gpu_report.py DIR

Records have a group and a name: phase, device, probe, kernel (us beside a limit), ab (a case in the chosen way and in another), start,
decode, step (where the time of one goes), torch, sanitizer. Added here: ncu, and predicted, which has for each case of cuda_model.py
what it says and what was measured.
"""
import csv
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

DECODE = "decode attention, batch "
PREFILL = "prefill attention, causal, tokens 8192"
BEHIND = "attention of 64 tokens behind "
DRAFTS = "attention of 4 tokens behind 16384, 8 requests, 8 heads a KV head"
COMMON = "decode attention, {} in common and 512 of their own"
FEW = "linear, rows {}, 4096 to "
# A case of cuda_model.py: the records that measure it, each as (group, name) or, of ways beside each other, (ab, name, way).
MEASURED = {
    "decode attention, 32 requests of 4,096, D = 128": [("kernel", DECODE + "32, context 4096")],
    "the same, fp8 cache": [("kernel", DECODE + "32, context 4096, fp8 cache")],
    "decode attention, 128 requests of 1,024": [("kernel", DECODE + "128, context 1024")],
    "decode attention, 32 of 4,096, D = 64": [("kernel", DECODE + "32, context 4096, heads of 64")],
    "decode attention, 32 of 4,096, D = 256": [("kernel", DECODE + "32, context 4096, heads of 256")],
    "one request of 100,000 among 255 of 1,024": [("kernel", "decode attention, one of 100000 among 255 of 1024")],
    "64 requests of 4,096 in common and 512 of their own, each for itself": [("ab", COMMON.format("64 requests of 4096"), "each for itself")],
    "the same, what is in common once": [("kernel", COMMON.format("64 requests of 4096"))],
    "4 requests of 512 in common and 512 of their own, each for itself": [("ab", COMMON.format("4 requests of 512"), "each for itself")],
    "4 requests, what is in common once": [("kernel", COMMON.format("4 requests of 512"))],
    "decode of 65,536 beside a prompt": [("kernel", "decode attention, context 65536, beside a prompt")],
    "prefill 8,192, D = 128": [("kernel", PREFILL)],
    "prefill 8,192, D = 256, 16 heads, products of warps": [("ab", PREFILL + ", heads of 256", "products of warps")],
    "prefill 8,192, D = 256, 16 heads": [("kernel", PREFILL + ", heads of 256")],
    "64 new tokens behind 100,000, not cut": [("ab", BEHIND + "100000", "not cut")],
    "64 new tokens behind 100,000": [("kernel", BEHIND + "100000")],
    "64 new tokens behind 8,192 each, 4 requests, not cut": [("ab", BEHIND + "8192, 4 requests", "not cut")],
    "64 new tokens behind 8,192 each, 4 requests": [("kernel", BEHIND + "8192, 4 requests")],
    "4 rows of drafts behind 16,384 each, 8 heads a KV head, 8 requests, not cut": [("ab", DRAFTS, "not cut")],
    "4 rows of drafts behind 16,384 each, 8 heads a KV head, 8 requests": [("kernel", DRAFTS)],
    "prefill 8,192, D = 128, fp8 cache, products of warps": [("ab", PREFILL + ", fp8 cache", "products of warps")],
    "prefill 8,192, D = 128, fp8 cache": [("kernel", PREFILL + ", fp8 cache")],
    "512 new tokens behind 7,680, fp8 cache, products of warps": [("ab", "attention of 512 tokens behind 7680, fp8 cache", "products of warps")],
    "512 new tokens behind 7,680, fp8 cache": [("kernel", "attention of 512 tokens behind 7680, fp8 cache")],
    "64 new tokens behind 100,000, fp8 cache, products of warps": [("ab", BEHIND + "100000, fp8 cache", "products of warps")],
    "64 new tokens behind 100,000, fp8 cache": [("kernel", BEHIND + "100000, fp8 cache")],
    "latent decode, 32 of 4,096, 16 heads": [("kernel", "latent decode, 32 of 4096, 16 heads")],
    "latent decode, 32 of 4,096, 128 heads": [("kernel", "latent decode, 32 of 4096, 128 heads")],
    "latent decode, 32 of 4,096, 16 heads, fp8 cache": [("kernel", "latent decode, 32 of 4096, 16 heads, fp8 cache")],
    "latent decode, 32 of 4,096, 128 heads, fp8 cache": [("kernel", "latent decode, 32 of 4096, 128 heads, fp8 cache")],
    "latent decode, 8 of 4,096, 128 heads, 4 rows each": [("kernel", "latent decode, 8 of 4096, 128 heads, 4 rows each")],
    "latent decode, one of 100,000 among 255 of 1,024, 16 heads": [("kernel", "latent decode, one of 100000 among 255 of 1024, 16 heads")],
    "latent prompt, 4,096 new tokens, 128 heads, absorbed": [("kernel", "latent prompt, 4096 tokens behind 0, 128 heads, absorbed")],
    "latent prompt, 4,096 new tokens, 128 heads": [("kernel", "latent prompt, 4096 tokens behind 0, 128 heads")],
    "latent prompt, 512 new tokens behind 7,680, 128 heads, absorbed": [("kernel", "latent prompt, 512 tokens behind 7680, 128 heads, absorbed")],
    "latent prompt, 512 new tokens behind 7,680, 128 heads": [("kernel", "latent prompt, 512 tokens behind 7680, 128 heads")],
    "latent prompt, 512 new tokens behind 7,680, 16 heads, absorbed": [("kernel", "latent prompt, 512 tokens behind 7680, 16 heads, absorbed")],
    "latent prompt, 512 new tokens behind 7,680, 16 heads": [("kernel", "latent prompt, 512 tokens behind 7680, 16 heads")],
    "latent prompt, 200 new tokens behind 7,680, 16 heads, absorbed": [("kernel", "latent prompt, 200 tokens behind 7680, 16 heads, absorbed")],
    "latent prompt, 200 new tokens behind 7,680, 16 heads": [("kernel", "latent prompt, 200 tokens behind 7680, 16 heads")],
    "1 to 8 rows, bf16, 4,096 to 28,672": [("kernel", FEW.format(rows) + "28672") for rows in (1, 4, 8)],
    "1 to 8 rows, bf16, 4,096 to 4,096": [("kernel", FEW.format(rows) + "4096") for rows in (1, 4, 8)],
    "1 to 8 rows, fp8, 4,096 to 28,672": [("kernel", f"linear, fp8 in blocks, rows {rows}, 4096 to 28672") for rows in (1, 8)],
    "1 to 8 rows, fp8, 14,336 to 4,096": [("kernel", f"linear, fp8 in blocks, rows {rows}, 14336 to 4096") for rows in (1, 8)],
    "one stream of 8B (Llama 3)": [("decode", "8b, streams 1")],
    "one stream of 1B (Llama 3.2)": [("decode", "1b, streams 1")],
    "one stream of 0.6B (Qwen3)": [("decode", "0.6b, streams 1")],
    "1 to 8 rows, 4 bits in groups of 128, 4,096 to 28,672":
        [("kernel", f"linear, 4 bits in groups of 128, rows {rows}, 4096 to 28672") for rows in (1, 8)],
    "1 to 8 rows, 4 bits with minima of 32, 4,096 to 28,672":
        [("kernel", f"linear, 4 bits with minima of 32, rows {rows}, 4096 to 28672") for rows in (1, 8)],
    "1 to 8 rows, 8 bits in groups of 32, 4,096 to 28,672":
        [("kernel", f"linear, 8 bits in groups of 32, rows {rows}, 4096 to 28672") for rows in (1, 8)],
    "gated delta net, a prompt of 8,192, 32 heads": [("kernel", "gated delta net, a prompt of 8192")],
    "Mamba2, a prompt of 8,192, 128 heads of 64": [("kernel", "Mamba2, a prompt of 8192")],
    "experts bf16, 128 of 768 × 2,048": [("kernel", "experts bf16, decode of 32")],
    "experts fp8, 256 of 2,048 × 7,168": [("kernel", "experts fp8, decode of 64")],
    "experts MXFP4, 32 of 2,880 × 2,880": [("kernel", "experts MXFP4, decode of 16")],
    "experts bf16, a prompt of 8,192, 128 of 768 × 2,048, 8 a token": [("kernel", "experts bf16, a prompt of 8192")],
    "experts fp8, a prompt of 8,192, 256 of 2,048 × 7,168, 8 a token": [("kernel", "experts fp8, a prompt of 8192")],
    "experts MXFP4, a prompt of 8,192, 32 of 2,880 × 2,880, 4 a token": [("kernel", "experts MXFP4, a prompt of 8192")],
    "draws, 256 rows of 128,256": [("kernel", "sample, 256 rows of 128256, temperature 1")],
    "draws with top_k 50, 256 rows": [("kernel", "sample, 256 rows of 128256, top_k 50")],
    "draws with top_k 50, 1 row": [("kernel", "sample, 1 rows of 128256, top_k 50")],
    "silu(gate) · up, 8,192 × 14,336": [("kernel", "silu(gate) times up")],
}
COUNTERS = {  # of ncu's tables: what they are called here
    "Duration": "duration", "Compute (SM) Throughput": "sm_percent", "Memory Throughput": "memory_percent", "DRAM Throughput": "dram_percent",
    "L2 Hit Rate": "l2_hit_percent", "Achieved Occupancy": "occupancy_percent", "Registers Per Thread": "registers",
    "Warp Cycles Per Issued Instruction": "cycles_per_instruction", "Executed Ipc Active": "ipc",
}


def read_records(path):
    records = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # of a program that was stopped
            continue
        if isinstance(record, dict) and isinstance(record.get("group"), str) and isinstance(record.get("name"), str):
            records.append(record)
    return records


def counters(path):
    """Of ncu's CSV, behind its messages: a record a kernel."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.startswith('"')]
    kernels = {}
    for row in csv.DictReader(lines):
        key = COUNTERS.get(row.get("Metric Name") or "")
        if key is None:
            continue
        name = (row.get("Kernel Name") or "?").split("(")[0].replace("void ", "")
        kernel = kernels.setdefault(row.get("ID"), {"group": "ncu", "name": name})
        value = (row.get("Metric Value") or "").replace(",", "")
        if key not in kernel:  # "Memory Throughput" is a share first, then bytes per second
            try:
                kernel[key] = float(value)
            except ValueError:
                continue
            if key == "duration":
                kernel["unit"] = row.get("Metric Unit")
    return list(kernels.values())


def predictions(records):
    """A record for each case and what measures it; measured_us is null where nothing did."""
    import cuda_model
    budgets = cuda_model.Budgets(cuda_model.ROOT / "tests/cuda_budgets/budgets.txt")
    times = {}
    for r in records:
        if r["group"] == "ab":
            times[r["group"], r["name"], r.get("b")] = r.get("b_us")
        else:
            times[r["group"], r["name"]] = r.get("us")
    out = []
    for case, formula in cuda_model.CASES.items():
        limit, predicted = (seconds * 1e6 for seconds in formula(budgets))
        for measure in MEASURED[case]:
            us = times.get(measure)
            out.append({"group": "predicted", "name": case, "limit_us": round(limit, 2), "predicted_us": round(predicted, 2),
                        "measured_us": us, "measured_over_predicted": us and round(us / predicted, 3), "share": us and round(limit / us, 3),
                        "record": ": ".join(measure[1:])})
    return out


def heading(text):
    print(f"\n== {text}\n")


def number(value, digits=1):
    return f"{value:,.{digits}f}" if isinstance(value, (int, float)) else "—"


def print_rest(records, groups):
    for r in records:
        if r["group"] in groups:
            rest = ", ".join(f"{key} {value}" for key, value in r.items() if key not in ("group", "name"))
            print(f"{r['group']:<9} {r['name']:<58} {rest}")


def print_tables(records):
    of = lambda group: [r for r in records if r["group"] == group]
    heading("everything else")
    print_rest(records, {r["group"] for r in records} - {"phase", "predicted", "ab", "step", "ncu", "torch", "device", "probe", "decode", "profiled"})
    if of("step"):
        heading("where a decode step's time goes, without graphs")
        print("| streams: operator | µs | times | share |\n| --- | --- | --- | --- |")
        for r in sorted(of("step"), key=lambda r: (r["name"].split(":")[0], -(r.get("us") or 0))):
            print(f"| {r['name']} | {number(r.get('us'))} | {number(r.get('times'), 0)} | {number(r.get('share'), 3)} |")
    if of("ncu"):
        heading("counters of kernels, as ncu has them")
        keys = [key for key in COUNTERS.values() if any(key in r for r in of("ncu"))]
        print("| kernel | " + " | ".join(keys) + " |\n| --- |" + " --- |" * len(keys))
        for r in of("ncu"):
            print(f"| {r['name']} | " + " | ".join(number(r.get(key)) for key in keys) + " |")
    if of("ab"):
        heading("other ways beside the chosen one (below 1: the other is faster)")
        print("| case | chosen, µs | the other way | µs | ratio |\n| --- | --- | --- | --- | --- |")
        for r in of("ab"):
            said = "" if r.get("same_tokens", "yes") == "yes" else ", other tokens"
            print(f"| {r['name']} | {number(r.get('a_us'))} ({r.get('a')}) | {r.get('b')}{said} | {number(r.get('b_us'))} | {number(r.get('b_over_a'), 2)} |")
    if of("torch"):
        heading("PyTorch beside (above 1: it is slower)")
        ours = {r["name"]: r.get("us") for r in of("kernel")}
        print("| case | ours, µs | PyTorch | µs | ratio |\n| --- | --- | --- | --- | --- |")
        for r in of("torch"):
            us, mine = r.get("us"), ours.get(r["name"])
            print(f"| {r['name']} | {number(mine)} | {r.get('peer')} | {r.get('failed') or number(us)} | {number(us / mine if us and mine else None, 2)} |")
    if of("predicted"):
        heading("predicted (tests/perf/cuda_model.py) and measured")
        print("| case | limit, µs | predicted, µs | measured, µs | measured / predicted | share of the limit |\n| --- | --- | --- | --- | --- | --- |")
        for r in of("predicted"):
            rows = r["record"].split("rows ")[1].split(",")[0] if r["name"].startswith("1 to 8") else ""
            print(f"| {r['name']}{rows and ': ' + rows} | {number(r['limit_us'], 0)} | {number(r['predicted_us'], 0)} | "
                  f"{number(r['measured_us'])} | {number(r['measured_over_predicted'], 2)} | {number(r['share'], 2)} |")
    heading("engines, probes, the device")
    print_rest(records, {"decode", "probe", "device"})
    heading("phases")
    print_rest(records, {"phase"})


def main(folder):
    folder = Path(folder)
    records = read_records(folder / "records.jsonl") + counters(folder / "ncu.csv")
    try:
        records += predictions(records)
    except Exception as error:  # whatever is wrong with the model, what was measured is told
        records.append({"group": "note", "name": f"no predictions: {error!r}"})
    new = folder / "report.new"
    new.write_text("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in records) + "\n]\n")
    new.replace(folder / "report.json")
    print_tables(records)


if __name__ == "__main__":
    main(sys.argv[1])
