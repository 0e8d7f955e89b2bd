"""The device of cuda_model.py, and what its cases have in common."""
from pathlib import Path

SMS, CLOCK = 132, 1.755e9
READ = 4.35e12          # bytes/s that a probe reads of 4.8e12
PEAK = 4096 * SMS * CLOCK  # FLOP/s of warpgroup products in bf16
CUBLAS = 790e12
L2 = 7e12               # bytes/s from it to all multiprocessors: assumed
LAUNCH = 3e-6
MERGE = 1.5e-6          # a fence, a counter and two rounds of reads, behind a request's last part
SCHEDULERS = 4
ROOT = Path(__file__).resolve().parents[2]


class Budgets:
    def __init__(self, path):
        lines = [line.split() for line in Path(path).read_text().splitlines() if line.strip() and not line.startswith("#")]
        self.rows = {line[0]: dict(zip(lines[0], line)) for line in lines[1:]}

    def __getitem__(self, name):
        row = self.rows[name]
        return lambda column: float(row[column])


def ipc(warps_of_processor):
    return min(0.9, warps_of_processor / SCHEDULERS / 6)


def tile_time(kernel, tiles, warps, copies, products, extra=0.0):
    """Seconds of issue for so many tiles over the device: a warp executes `copies` copies and `products` products of each."""
    instructions = copies * kernel("copy") + products * kernel("product") + extra
    resident = kernel("blocks") * warps
    return tiles / SMS * warps * instructions / SCHEDULERS / ipc(resident) / CLOCK
