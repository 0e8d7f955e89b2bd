#!/usr/bin/env python3
"""Every path that the pages name exists, their links lead somewhere, architecture.md keeps to 100 columns, cuda-model.md has the
table that tests/perf/cuda_model.py prints, and a source file that a comment names exists.

    tests/docs_test.py --write    puts that table into cuda-model.md
"""
import pathlib
import re
import subprocess
import sys

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(p.as_posix() for glob in ("*.md", "adr/*.md") for p in pathlib.Path("docs").glob(glob))]
FOLDERS = {p.name for p in pathlib.Path(".").iterdir() if p.is_dir() and not p.name.startswith(".")} - {"build"}
OURS = "(?:" + "|".join(sorted(FOLDERS)) + ")/"
# A path starts with one of our folders, in backticks or in a fenced block. `model/x.{h,cpp}` and `x.h/.cpp` are not used.
PATH = re.compile(rf"(?<![\w/.:-])({OURS}[\w./-]*[\w/])")
LINK = re.compile(r"\]\(\s*([^)#:\s]+)[^):]*\)")

# In comments: a path of ours, or a word that ends like a source file (its name alone, or the end of its path).
NAMED = re.compile(rf'(?<![\w./<"-])((?:[\w.-]+/)*[\w.-]*\w\.(?:h|cpp|cuh|cu|py)|{OURS}[\w./-]*\w)(?![\w/])')
COMMENTS = dict.fromkeys((".h", ".cpp", ".cuh", ".cu"), re.compile(r"(?:^|\s)//(.*)"))
COMMENTS |= dict.fromkeys((".py", ".sh", ".cmake", "CMakeLists.txt"), re.compile(r"(?:^|\s)#(.*)"))
# Not ours: vLLM's, llama.cpp's, media types, an example.
ELSEWHERE = {"scaled_mm_sm90_fp8_dispatch.cuh", "convert_hf_to_gguf.py", "text/event-stream", "text/html", "a.cpp"}


def check_page(page):
    text = pathlib.Path(page).read_text(encoding="utf-8")
    quoted = re.findall(r"```.*?```|`[^`\n]+`", text, re.S)
    for path in {m for q in quoted for m in PATH.findall(q)}:
        if not pathlib.Path(path).exists() and path not in ELSEWHERE:
            yield f"{page}: {path} does not exist"
    for link in LINK.findall(text):
        if not (pathlib.Path(page).parent / link).exists():
            yield f"{page}: the link to {link} leads nowhere"


def check_comments(tree):
    ends = {path[i:] for path in tree for i in [0, *(m.end() for m in re.finditer("/", path))]}
    ends |= {parent.as_posix() for path in tree for parent in pathlib.PurePath(path).parents}
    for path in tree:
        if path == "tests/docs_test.py" or not (comment := COMMENTS.get(pathlib.PurePath(path).suffix) or COMMENTS.get(pathlib.PurePath(path).name)):
            continue
        for number, line in enumerate(pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for text in comment.findall(line):
                for name in NAMED.findall(text):
                    if name not in ends and name not in ELSEWHERE and not pathlib.Path(name).exists():
                        yield f"{path}:{number}: a comment names {name}, which does not exist"


def check_predictions(write):
    page = pathlib.Path("docs/cuda-model.md")
    text = page.read_text(encoding="utf-8")
    printed = subprocess.run([sys.executable, "-B", "tests/perf/cuda_model.py"], capture_output=True, text=True, check=True).stdout.strip()
    table = re.search(r"^\| case \|.*\n(?:\|.*\n)+", text, re.M).group().strip()
    if table != printed and write:
        page.write_text(text.replace(table, printed), encoding="utf-8")
    elif table != printed:
        yield f"{page}: not the table of tests/perf/cuda_model.py; tests/docs_test.py --write puts it in"


errors = [error for page in PAGES for error in check_page(page)]
errors += check_comments(sorted(p.as_posix() for folder in FOLDERS for p in pathlib.Path(folder).rglob("*") if p.is_file()) + ["CMakeLists.txt"])
errors += check_predictions("--write" in sys.argv)
for number, line in enumerate(pathlib.Path("docs/architecture.md").read_text(encoding="utf-8").splitlines(), 1):
    if len(line) > 100 and not line.startswith("|"):
        errors.append(f"docs/architecture.md:{number}: {len(line)} columns, not 100")
print("\n".join(errors) or "docs: ok")
sys.exit(1 if errors else 0)
