#!/usr/bin/env python3
"""Each planted bug must be caught by a configuration that is named here: catch_bugs.py PROGRAM plain|asan|tsan"""
import os
import subprocess
import sys

WRONG, REPORTED = 1, 2
SCHEDULES = [{"ORDER": o, "ASYNC": a, "SEED": s}
             for o, a, s in [("forward", "late", "1"), ("reverse", "late", "1"), ("random", "late", "1"),
                             ("random", "eager", "2"), ("random", "late", "3")]]
# By schedules alone.
PLAIN = {
    "uninitialized_shared": WRONG, "missing_barrier": WRONG, "missing_syncwarp": WRONG, "overwritten_too_early": WRONG,
    "global_without_barrier": WRONG, "copy_without_wait": WRONG, "copy_without_barrier": WRONG,
    "cub_storage_reused": REPORTED, "divergent_barrier": REPORTED, "two_barriers": REPORTED, "half_the_mask": REPORTED,
    "caller_not_in_mask": REPORTED, "exited_lane": REPORTED, "mixed_shuffles": REPORTED,
}
ASAN = {"out_of_bounds_shared": "AddressSanitizer: use-after-poison", "out_of_bounds_dynamic": "AddressSanitizer: use-after-poison",
        "out_of_bounds_global": "AddressSanitizer: heap-buffer-overflow", "misaligned_vector": "runtime error"}
TSAN = {name: "ThreadSanitizer: data race" for name in
        ["missing_barrier", "missing_syncwarp", "shuffle_as_barrier", "overwritten_too_early", "blocks_add_without_atomic",
         "global_without_barrier", "copy_without_barrier"]}


def run(program, bug, schedule):
    env = dict(os.environ, TSAN_OPTIONS="history_size=7", **{"QUIRE_EMULATION_" + k: v for k, v in schedule.items()})
    done = subprocess.run([program, bug], env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


program, mode = sys.argv[1:3]
failed = 0
for bug, want in {"plain": PLAIN, "asan": ASAN, "tsan": TSAN}[mode].items():
    results = [run(program, bug, schedule) for schedule in SCHEDULES]
    if mode == "plain":
        caught = sum(code == want for code, _ in results)
        needed = 1 if want == WRONG else len(results)
    else:
        caught = sum(want in text for _, text in results)
        needed = len(results)
    failed += caught < needed
    print(f"{'ok  ' if caught >= needed else 'MISS'} {bug}: {caught} of {len(results)} schedules")
print(f"{mode}: {failed} missed")
sys.exit(failed != 0)
