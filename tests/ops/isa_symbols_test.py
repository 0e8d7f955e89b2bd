#!/usr/bin/env python3
"""Kernel objects compiled for an instruction set must define nothing that the linker could take for code of
another one: every weak symbol is in the set's own namespace, or the address of a routine of the runtime (DW.ref).
isa_symbols_test.py ISA OBJECT…"""
import subprocess
import sys

isa, objects = sys.argv[1], sys.argv[2:]
bad = []
for path in objects:
    lines = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        kind, _, name = line[17:].partition(" ")
        if kind in ("W", "V", "u") and f"quire::cpu::{isa}::" not in name and not name.startswith(("__", "DW.ref.__")):
            bad.append(f"{path}: {name}")
print("\n".join(bad) or f"{len(objects)} objects: ok")
sys.exit(1 if bad or not objects else 0)
