"""nvcc and the disassembler: where they are, and kernel files compiled for a device that need not be there."""
import importlib.util
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import sass

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++20", "-O3", "-arch=sm_90a", "-DQUIRE_SM90A", f"-I{ROOT}"]


def find(program):
    """On PATH, in CUDA_HOME, in /usr/local/cuda, or in the folder of a Python package of NVIDIA's."""
    folders = [Path(home) / "bin" for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    spec = importlib.util.find_spec("nvidia")
    for package in spec.submodule_search_locations if spec else []:
        folders += sorted(Path(package).glob("**/bin"))
    return shutil.which(program) or next((str(f / program) for f in folders if os.access(f / program, os.X_OK)), None)


class Missing(Exception):
    pass


def tools():
    found = {name: find(name) for name in ("nvcc", "cuobjdump", "nvdisasm")}
    lost = [name for name, path in found.items() if path is None]
    if lost:
        raise Missing(f"{', '.join(lost)} not found on PATH, in CUDA_HOME or in a Python package "
                      "(nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm)")
    return found


def expand(text):
    return re.sub(r"\bbf16\b", "__nv_bfloat16", re.sub(r"\bfp8\b", "__nv_fp8_e4m3", text))


def plain(demangled):
    """name<arguments>, without spaces, namespaces and parameters."""
    text = demangled.replace("(anonymous namespace)", "").replace("quire::cuda::", "").replace("::", "")
    text = re.sub(r"\(\w+\)(?=\w)", "", text.removeprefix("void "))
    return text.split("(")[0].replace(" ", "")


class Module:
    """One kernel file, compiled: its kernels by readable name, what they need, and what ptxas said."""

    def __init__(self, source, shared, folder, defines=()):
        """shared: {kernel: C++ expression of its dynamic shared memory}. Compiled again when a file that it includes changed."""
        self.programs = tools()
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / (source.replace("/", "_").removesuffix(".cu") + "".join(defines).replace("=", "_"))
        wrapper, self.cubin, log = stem.with_suffix(".cu"), stem.with_suffix(".cubin"), stem.with_suffix(".log")
        lines = [f'#include "{source}"', "namespace quire::cuda {"]
        sizes = {}
        for i, (kernel, size) in enumerate(shared.items()):
            sizes[f"quire_shared_{i}"] = kernel
            lines.append(f'extern "C" __device__ char quire_shared_{i}[{expand(size)}];')
        text = "\n".join(lines + ["}", ""])
        if not wrapper.exists() or wrapper.read_text() != text:
            wrapper.write_text(text)
        if self.stale(stem.with_suffix(".d"), defines):
            self.build(wrapper, stem.with_suffix(".d"), log, defines)
        self.messages = log.read_text()
        self.dynamic = {sizes[name]: size for name, size in symbol_sizes(self.cubin).items() if name in sizes}
        self.kernels, self.needs = self.read()

    def stale(self, dependencies, defines):
        if not self.cubin.exists() or not dependencies.exists():
            return True
        files = dependencies.read_text().replace("\\\n", " ").split(":", 1)[1].split()
        made = self.cubin.stat().st_mtime
        return any(not Path(f).exists() or Path(f).stat().st_mtime > made for f in files)

    def build(self, wrapper, dependencies, log, defines):
        done = subprocess.run([self.programs["nvcc"], *FLAGS, *(f"-D{d}" for d in defines), "-cubin", "-MD", "-MF", str(dependencies),
                               "-Xptxas", "-v", "-o", str(self.cubin), str(wrapper)], capture_output=True, text=True)
        log.write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            self.cubin.unlink(missing_ok=True)
            raise RuntimeError(f"nvcc {wrapper}:\n{done.stderr}")

    def read(self):
        environment = {**os.environ, "PATH": f"{Path(self.programs['nvdisasm']).parent}:{os.environ['PATH']}"}

        def dump(option):
            return subprocess.run([self.programs["cuobjdump"], option, str(self.cubin)], capture_output=True, text=True,
                                  check=True, env=environment).stdout
        by_name = sass.kernels(dump("-sass"))
        names = subprocess.run(["c++filt"], input="\n".join(by_name), capture_output=True, text=True, check=True).stdout.split("\n")
        readable = {mangled: plain(name) for mangled, name in zip(by_name, names)}
        needs = {}
        for mangled, registers, shared in re.findall(r"Function (\S+):\s+REG:(\d+).*?SHARED:(\d+)", dump("--dump-resource-usage")):
            if mangled in readable:
                needs[readable[mangled]] = int(registers), int(shared)
        return {readable[m]: kernel for m, kernel in by_name.items()}, needs


def symbol_sizes(path):
    """{name: bytes} of an ELF file's symbols; a device variable without a value has no bytes in the file, but a size."""
    data = path.read_bytes()
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    found = {}
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, _, _, extent = struct.unpack_from("<IBBHQQ", data, at)
            text = data[strings + name:data.index(b"\0", strings + name)].decode()
            found[text] = extent
    return found
