#!/usr/bin/env python3
"""Holds the kernels of cuda/kernels to counted instructions: compiles them for sm_90a, disassembles, and compares with
budgets.txt. Needs nvcc, cuobjdump and nvdisasm, but no device; where they are missing it is skipped.

  kernel_budgets_test.py FOLDER             the test; FOLDER keeps what was compiled
  kernel_budgets_test.py FOLDER --measure   prints the table with what there is now
  kernel_budgets_test.py FOLDER --planted   the test's own: planted regressions must be found
"""
import re
import sys
from pathlib import Path

from compiler import FLAGS, Missing, Module, expand, tools
from sass import PRODUCTS

HERE = Path(__file__).parent
COLUMNS = ("copy", "product", "code", "spills", "spins", "calls", "registers", "bytes", "blocks")
SHARED_OF_PROCESSOR, REGISTERS_OF_PROCESSOR, WARPS_OF_PROCESSOR = 228 << 10, 64 << 10, 64


def read_budgets(path=HERE / "budgets.txt"):
    """[{column: text}], a row a kernel; "-": does not apply."""
    lines = [line.split() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def blocks(threads, registers, shared):
    """How many fit on a multiprocessor of Hopper; registers are given out by 256 to a warp."""
    warps = (threads + 31) // 32
    by_registers = REGISTERS_OF_PROCESSOR // ((registers * 32 + 255) // 256 * 256) // warps
    return min(by_registers, SHARED_OF_PROCESSOR // max(shared, 1), WARPS_OF_PROCESSOR // warps, 32)


LEAST = "/least"  # behind a kernel's name: of its loops the shortest, which tiles of few tokens take


def function(row):
    return expand(row["kernel"].removesuffix(LEAST))


def tile_loop(kernel, least=False):
    """The outermost loop that has products of tensor cores; of those that write no results, which a loop over work does."""
    having = [body for body in kernel.loops() if any(kernel.code[i].is_(*PRODUCTS) for i in body)]
    silent = [body for body in having if not any(kernel.code[i].is_("STG") for i in body)]
    return (min if least else max)(silent or having, key=len, default=None)


def copy_cost(kernel, body):
    """Instructions for each 16-byte copy to shared memory in a loop, and their places. A loop that does nothing else counts
    as a whole, control included."""
    code = kernel.code
    inner = [b for b in kernel.loops() if b != body and b.start >= body.start and b.stop <= body.stop
             and any(code[i].is_("LDGSTS") for i in b) and not any(code[i].is_(*PRODUCTS) for i in b)]
    serving = kernel.copy_instructions(body) | {i for b in inner for i in b}
    copies = sum(code[i].is_("LDGSTS") for i in body)
    return (len(serving) / copies if copies else None), serving


def box_cost(kernel):
    """Instructions of the warp that starts boxes, for each of them: of the innermost loop over boxes that takes most. None where boxes
    have no loop of their own: they are few."""
    return max((len(body) / held for body in kernel.loops() for held in [sum(kernel.code[i].is_("UTMALDG") for i in body)]
                if held and not any(kernel.code[i].is_("SYNCS", *PRODUCTS) for i in body)), default=None)


def measure(module, row):
    kernel_name, threads = function(row), int(row["threads"])
    kernel = module.kernels[kernel_name]
    registers, shared = module.needs[kernel_name]
    shared += module.dynamic.get(kernel_name, 0)
    found = {"copy": None, "product": None, "code": len(kernel.code), "spills": kernel.count("LDL", "STL"),
             "spins": sum("CAST.SPIN" in one.op for one in kernel.code), "calls": kernel.count("CALL", "FCHK"),
             "registers": registers, "bytes": shared, "blocks": blocks(threads, registers, shared)}
    loop = tile_loop(kernel, row["kernel"].endswith(LEAST))
    if loop is not None:
        found["copy"], serving = copy_cost(kernel, loop)
        if kernel.count("UTMALDG"):
            found["copy"] = box_cost(kernel)
        found["product"] = (len(loop) - len(serving)) / sum(kernel.code[i].is_(*PRODUCTS) for i in loop)
    return found


def compile_all(rows, folder, defines=()):
    files = {}
    for row in rows:
        files.setdefault(row["file"], {})
        if row["shared"] != "-":
            files[row["file"]][function(row)] = row["shared"]
    return {file: Module(file, shared, folder, defines) for file, shared in files.items()}


def over_budget(row, found):
    """What a kernel takes more of than it may; of blocks on a multiprocessor: fewer."""
    wrong = []
    for column in COLUMNS:
        if row[column] == "-":
            continue
        budget, value = float(row[column]), found[column]
        if value is None:
            wrong.append(f"{column}: nothing found, the budget is {row[column]}")
        elif value < budget if column == "blocks" else value > budget + 0.05:
            wrong.append(f"{column}: {value:.4g}, the budget is {row[column]}")
    return wrong


def check(rows, modules):
    failures = []
    for row in rows:
        name = function(row)
        module = modules[row["file"]]
        if name not in module.kernels:
            failures.append(f"{row['kernel']}: not in {row['file']}, which has {', '.join(sorted(module.kernels))}")
            continue
        failures += [f"{row['kernel']}: {text}" for text in over_budget(row, measure(module, row))]
    listed = {function(row) for row in rows}
    for file, module in modules.items():
        if re.search(r"C7510|wgmma.mma_async instructions are serialized", module.messages):
            failures.append(f"{file}: ptxas serialises warpgroup products")
        for name, kernel in module.kernels.items():
            if name not in listed and kernel.count("LDL", "STL"):
                failures.append(f"{file}: {name} spills registers")
    return failures


def show(rows, modules):
    table = [list(rows[0])]
    for row in rows:
        found = measure(modules[row["file"]], row)
        values = {c: "-" if row[c] == "-" and c in ("copy", "product") or found[c] is None else f"{found[c]:.4g}" if c in ("copy", "product") else str(found[c])
                  for c in COLUMNS}
        table.append([values.get(column, row[column]) for column in rows[0]])
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        print(" ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())


PLANTED = HERE / "planted.cu"


def planted(folder):
    """Each planted kernel does one thing that its budget forbids."""
    rows = read_budgets(HERE / "planted.txt")
    source = PLANTED.relative_to(HERE.parents[1]).as_posix()
    for row in rows:
        row["file"] = source
    modules = compile_all(rows, folder)
    missed = []
    for row in rows:
        wrong = over_budget(row, measure(modules[source], row))
        named = [text.split(":")[0] for text in wrong]
        print(f"{row['kernel']:32} {'; '.join(wrong) or 'within its budget'}")
        expected = [] if row["finds"] == "nothing" else row["finds"].split(",")
        if sorted(named) != sorted(expected):
            missed.append(f"{row['kernel']}: found {named or 'nothing'}, expected {expected or 'nothing'}")
    return missed


def main(folder, *options):
    try:
        tools()
    except Missing as error:
        print(f"skipped: {error}")
        return 77
    if "--planted" in options:
        failures = planted(Path(folder))
    else:
        rows = read_budgets()
        modules = compile_all(rows, Path(folder))
        if "--measure" in options:
            show(rows, modules)
            return 0
        failures = check(rows, modules)
        print(f"{len(rows)} kernels of {len(modules)} files, {' '.join(FLAGS[:3])}")
    print("\n".join(failures))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
