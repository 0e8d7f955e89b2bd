#!/usr/bin/env python3
"""What CONTRIBUTING.md says that a change costs, counted on one that is there: files that name it."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
# Row of the table: the example's name, the folders that the row speaks of, the most files.
EXAMPLES = {
    "engine metric": (r"late_allocations", "engine server", 5),
    "operator": (r"zero_blocks", "backend cpu cuda", 9),
    "kernel for an existing operator": (r"small_linear", "cuda", 4),
    "architecture": (r"make_olmo2|arch/olmo2\.cpp", "model", 4),
}
SOURCES = {".h", ".cpp", ".cu", ".cuh", ".proto", ".txt"}

table = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
errors = []
for row, (name, folders, most) in EXAMPLES.items():
    if f"| {row} |" not in table:
        errors.append(f'CONTRIBUTING.md has no row "{row}"')
    found = [path.relative_to(root).as_posix() for folder in folders.split() for path in sorted((root / folder).rglob("*"))
             if path.suffix in SOURCES and re.search(rf"\b(?:{name})\b", path.read_text(encoding="utf-8"))]
    print(f"{row}: {len(found)} of {most}: {' '.join(found)}")
    if not found:
        errors.append(f"{row}: nothing names {name}; choose another example")
    if len(found) > most:
        errors.append(f"{row}: {name} stands in {len(found)} files, and {most} were promised")
print("\n".join(errors) or "recipes: ok")
sys.exit(1 if errors else 0)
