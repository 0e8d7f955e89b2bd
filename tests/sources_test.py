#!/usr/bin/env python3
"""Every .cpp and .cu is named by a CMake file: what nobody builds rots unseen. No source has more than 400 lines."""
import os
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = {"build", ".git"}


def files(*suffixes):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED)
        yield from (pathlib.Path(folder, name) for name in sorted(names) if name.endswith(suffixes))


named = set()
for cmake in files("CMakeLists.txt", ".cmake"):
    text = cmake.read_text(encoding="utf-8")
    text = text.replace("${PROJECT_SOURCE_DIR}", str(root)).replace("${CMAKE_CURRENT_SOURCE_DIR}", str(cmake.parent))
    for word in re.findall(r"[\w./+-]+\.(?:cpp|cu)\b", text):
        named.add(os.path.normpath(cmake.parent / word))

sources = [str(path) for path in files(".cpp", ".cu")]
errors = [f"{os.path.relpath(path, root)}: no CMake file names it" for path in sources if path not in named]
for path in files(".cpp", ".h", ".cu", ".cuh", ".py"):
    if (lines := path.read_text(encoding="utf-8").count("\n")) > 400:
        errors.append(f"{os.path.relpath(path, root)}: {lines} lines; split it by noun")
print("\n".join(errors) or f"sources: {len(sources)} files, each in a target")
sys.exit(1 if errors or not sources else 0)
