#!/usr/bin/env python3
"""Every path that the normative pages name exists, and their prose keeps to 100 columns."""
import pathlib
import re
import sys

PAGES = ["docs/architecture.md", "CONTRIBUTING.md", *sorted(p.as_posix() for p in pathlib.Path("docs/adr").glob("*.md"))]
FOLDERS = {p.name for p in pathlib.Path(".").iterdir() if p.is_dir() and not p.name.startswith(".")} - {"build"}
# A path starts with one of our folders, in backticks or in a fenced block. `model/x.{h,cpp}` and `x.h/.cpp` are not used.
PATH = re.compile(r"(?<![\w/.:-])((?:" + "|".join(sorted(FOLDERS)) + r")/[\w./-]*[\w/])")
LINK = re.compile(r"\]\(\s*([^)#:\s]+)[^):]*\)")

errors = []
for page in PAGES:
    text = pathlib.Path(page).read_text(encoding="utf-8")
    quoted = re.findall(r"```.*?```|`[^`\n]+`", text, re.S)
    for path in {m for q in quoted for m in PATH.findall(q)}:
        if not pathlib.Path(path).exists() and not path.startswith("build/"):
            errors.append(f"{page}: {path} does not exist")
    for link in LINK.findall(text):
        if not (pathlib.Path(page).parent / link).exists():
            errors.append(f"{page}: the link to {link} leads nowhere")
for number, line in enumerate(pathlib.Path("docs/architecture.md").read_text(encoding="utf-8").splitlines(), 1):
    if len(line) > 100 and not line.startswith("|"):
        errors.append(f"docs/architecture.md:{number}: {len(line)} columns, not 100")
print("\n".join(errors) or "docs: ok")
sys.exit(1 if errors else 0)
