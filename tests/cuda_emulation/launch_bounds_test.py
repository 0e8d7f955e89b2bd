#!/usr/bin/env python3
"""Every kernel says how many threads its blocks have at most: only then does nvcc keep to registers that such a block can have,
and a device launches it."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

missing, seen = [], 0
for path in sorted(p for p in (ROOT / "cuda").rglob("*") if p.suffix in (".cu", ".cuh")):
    text = re.sub(r"//[^\n]*", "", path.read_text())
    for found in re.finditer(r"__global__\s+void\s+", text):
        seen += 1
        if not text[found.end():].startswith("__launch_bounds__("):
            missing.append(f"{path.relative_to(ROOT)}: {text[found.start():].splitlines()[0]}")
print("\n".join(missing) or f"{seen} kernels")
sys.exit(bool(missing) or seen == 0)
