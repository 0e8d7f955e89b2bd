"""Every kernel file compiles with nvcc: what an emulation's compiler takes and nvcc does not, a host function in a kernel say, is found
without a device. Skipped where there is no nvcc. Usage: compile_test.py"""
import concurrent.futures
import os
import subprocess
import sys

from compiler import FLAGS, ROOT, find

SKIPPED = 77


def errors_of(nvcc, source):
    """Down to PTX, hardly optimised: the language is what is checked here."""
    done = subprocess.run([nvcc, *FLAGS, "-ptx", "-Xcicc", "-O0", "-o", os.devnull, str(source)], capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def main():
    nvcc = find("nvcc")
    if nvcc is None:
        print("skipped: nvcc not found on PATH or in CUDA_HOME")
        return SKIPPED
    sources = sorted((ROOT / "cuda").glob("**/*.cu"))
    if len(sources) < 10:
        sys.exit(f"FAILED: {len(sources)} kernel files under {ROOT / 'cuda'}")
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        failures = [text for text in threads.map(lambda source: errors_of(nvcc, source), sources) if text]
    if failures:
        sys.exit("FAILED:\n" + "\n".join(failures))
    planted = errors_of(nvcc, ROOT / "tests/cuda_budgets/host_call.cu")
    if "host" not in planted:
        sys.exit(f"FAILED: a host function in a kernel was not noticed: {planted}")
    print(f"{len(sources)} kernel files compile")


if __name__ == "__main__":
    sys.exit(main())
