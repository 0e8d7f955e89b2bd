#!/usr/bin/env python3
"""Each planted bug must be caught by a configuration that is named here: catch_bugs.py PROGRAM plain|asan|tsan"""
import os
import subprocess
import sys

UNNOTICED, WRONG, REPORTED, NOTICED = 0, 1, 2, (1, 2)
REPORTED_ONCE = [REPORTED]
SCHEDULES = [{"ORDER": o, "ASYNC": a, "SEED": s, "STREAMS": t}
             for o, a, s, t in [("forward", "late", "1", "late"), ("reverse", "late", "1", "now"), ("random", "late", "1", "random"),
                                ("random", "eager", "2", "random"), ("random", "late", "3", "random")]]
MISALIGNED = "misaligned address"
HOST_TOUCHES = "the host touches device memory"
# What only streams that are late, or in any order, show.
DEPENDENT = ["reads_before_its_wait", "reads_what_the_kernel_before_last_wrote", "writes_before_its_wait", "replayed_reads_before_its_wait"]
# By schedules alone: a wrong result in one of them, a report in all of them, either in all of them.
PLAIN = {
    "nothing_wrong": UNNOTICED,
    **dict.fromkeys(["uninitialized_shared", "missing_barrier", "missing_syncwarp", "overwritten_too_early", "global_without_barrier",
                     "copy_without_wait", "copy_without_barrier"], WRONG),
    **dict.fromkeys(["cub_storage_reused", "divergent_barrier", "two_barriers", "half_the_mask", "caller_not_in_mask", "exited_lane",
                     "mixed_shuffles"], REPORTED),
    **dict.fromkeys(["boxes_right", "turns_right"], UNNOTICED),
    **dict.fromkeys(["box_unfenced_barrier", "box_uninitialised_barrier", "box_odd_place", "map_of_odd_address", "map_of_odd_stride",
                     "map_of_large_box", "map_of_wide_rows", "map_of_narrow_rows", "come_twice", "leave_others_waiting",
                     "meet_in_two_sizes", "take_what_nobody_gave"], REPORTED),
    **dict.fromkeys(["box_wrong_parity", "box_no_expectation", "box_overwritten", "box_never_awaited", "box_wrong_swizzle"], NOTICED),
    "box_too_many_arrivals": REPORTED_ONCE,
    **dict.fromkeys(["host_pointer_to_kernel", "host_pointer_deep_in_parameter", "host_pointer_to_library", "copy_of_wrong_kind",
                     "copy_past_end", "set_past_end", "launch_after_free", "replay_after_free", "free_twice"], REPORTED),
    "misaligned_vector": MISALIGNED,
    **dict.fromkeys(["host_reads_device", "host_writes_device"], HOST_TOUCHES),
    **dict.fromkeys(["too_many_threads", "too_many_blocks_in_y", "empty_grid", "too_much_shared", "too_much_static_shared",
                     "shared_without_opt_in", "both_without_opt_in", "cooperative_grid_too_large"], REPORTED),
    **dict.fromkeys(["allocation_in_capture", "free_in_capture", "synchronisation_in_capture", "event_query_in_capture",
                     "captured_event_awaited", "uncaptured_event_in_capture", "pageable_copy_in_capture", "default_stream_in_capture",
                     "unjoined_stream", "capture_ended_by_another_thread", "capturing_stream_destroyed"], REPORTED),
    **dict.fromkeys(["destroyed_event_recorded", "stream_destroyed_twice", "used_after_a_fault"], REPORTED),
    **dict.fromkeys(["reads_before_other_stream_wrote", "writes_before_other_stream_read", "writer_runs_ahead",
                     "source_changed_before_copy", "source_filled_after_copy", "result_read_before_copy"], WRONG),
    **dict.fromkeys(["dependent_and_right", "reads_what_a_copy_brought"], UNNOTICED),
    **dict.fromkeys(DEPENDENT, WRONG),
    **dict.fromkeys(["ends_without_its_wait", "waits_for_one_that_did_not", "some_threads_end_without"], REPORTED),
}
ASAN = {"out_of_bounds_shared": "AddressSanitizer: use-after-poison", "out_of_bounds_dynamic": "AddressSanitizer: use-after-poison",
        "out_of_bounds_global": "AddressSanitizer: use-after-poison", "misaligned_vector": MISALIGNED,
        "host_reads_device": HOST_TOUCHES, "host_writes_device": HOST_TOUCHES, "boxes_right": UNNOTICED}
TSAN = {**dict.fromkeys(["boxes_right", "turns_right"], UNNOTICED),
        **dict.fromkeys(["missing_barrier", "missing_syncwarp", "shuffle_as_barrier", "overwritten_too_early", "blocks_add_without_atomic",
                         "global_without_barrier", "copy_without_barrier", "box_released_early", *DEPENDENT], "ThreadSanitizer: data race")}


def run(program, bug, schedule):
    env = dict(os.environ, TSAN_OPTIONS="history_size=7", **{"QUIRE_EMULATION_" + k: v for k, v in schedule.items()})
    done = subprocess.run([program, bug], env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


program, mode = sys.argv[1:3]
failed = 0
for bug, want in {"plain": PLAIN, "asan": ASAN, "tsan": TSAN}[mode].items():
    results = [run(program, bug, schedule) for schedule in SCHEDULES]
    caught = sum(want in text if isinstance(want, str) else code in want if isinstance(want, (tuple, list)) else code == want
                 for code, text in results)
    needed = 1 if want in (WRONG, REPORTED_ONCE) or bug in DEPENDENT else len(results)
    failed += caught < needed
    print(f"{'ok  ' if caught >= needed else 'MISS'} {bug}: {caught} of {len(results)} schedules")
print(f"{mode}: {failed} missed")
sys.exit(failed != 0)
