"""Compiles a ``.cu`` file to a program that the client can serve.

nvcc comes from the wheel ``nvidia-cuda-nvcc`` or from PATH.  The program has PTX for
one virtual architecture, line information, and the shared runtime.  It is kept in the
cache under all files that it was compiled from.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from fragmenta.base.jit.cache import Cache
from fragmenta.base.progress import notice
from fragmenta.cuda.tools import assembler, compiler
from fragmenta.errors import BadFile, CompileError, MissingPackage, nearest
from fragmenta.frontends.programs.building import CORE, RUNTIMES

SUFFIXES = (".cu",)
_LINES = ("-lineinfo", "-Xcompiler=-g1")
"""Flags that keep the lines of kernels, and those of the calls of CUDA."""


def is_source(word: str) -> bool:
    """Whether a word is a file of CUDA C++.

    >>> is_source("kernel.cu"), is_source("./program")
    (True, False)
    """
    return word.endswith(SUFFIXES)


def check_source(word: str) -> None:
    """Refuse a source that is not there."""
    path = Path(word)
    if not path.is_file():
        if path.is_dir():
            raise BadFile(f"{word}: it is a folder, not a source")
        near = nearest(word, map(str, path.parent.glob("*.cu")))
        raise BadFile(f"{word}: there is no such file{near}")


def compile_program(
    source: str, target: str, flags: Sequence[str], folder: Path
) -> Path:
    """The program of a source, in a folder that has the client's libraries."""
    path, nvcc = Path(source), _nvcc()
    # Headers that the flags bring come before ours, as they may be a newer library.
    ours = [f"-I{each}" for each in compiler.includes()[1:]]
    words = [_architecture(target, flags), *_LINES, *flags, *ours]
    version = _version(nvcc)
    about = [version, str(path.resolve()), *words]
    kept, made = Cache.present(), folder / path.stem
    found = _known(kept, about)
    if found is None:
        with notice(f"compiling {source}, once"):
            depends = _compile(nvcc, version, path, words, made)
        _keep(kept, about, depends, made.read_bytes())
    else:
        made.write_bytes(found)
    made.chmod(0o700)
    return made


_NO_MAIN = re.compile(r"undefined (reference to|symbol:) [`']?main\b")
_RELOCATABLE = re.compile(r"(^|\s)(-rdc|--relocatable-device-code)[= ]true\b")


def _is_relocatable(flags: Sequence[str]) -> bool:
    return _RELOCATABLE.search(" ".join(flags)) is not None


def _architecture(target: str, flags: Sequence[str]) -> str:
    """The flag that keeps PTX for a target.

    For ``-arch=compute_90a``, nvcc compiles everything for compute_90, too.
    Relocatable code gets machine code, too: without it, nvcc does not link it.

    >>> _architecture("sm_90a", ["-O2"])
    '-gencode=arch=compute_90a,code=compute_90a'
    >>> _architecture("sm_80", ["-rdc=true"])
    '-gencode=arch=compute_80,code=[compute_80,sm_80]'
    """
    virtual = target.replace("sm_", "compute_")
    code = f"[{virtual},{target}]" if _is_relocatable(flags) else virtual
    return f"-gencode=arch={virtual},code={code}"


def _nvcc() -> Path:
    try:
        return assembler.tool("nvcc")
    except MissingPackage as why:
        raise MissingPackage(
            "a .cu file is compiled by nvcc; install the wheels nvidia-cuda-nvcc, "
            "nvidia-cuda-runtime and nvidia-cuda-cccl, or put a CUDA toolkit on PATH"
        ) from why


def _version(nvcc: Path) -> str:
    said = _run([str(nvcc), "--version"]).stdout
    found = re.search(r"release (\d+)\.\d+, V(\S+)", said)
    if found is None:
        raise CompileError(f"nvcc does not print its version: {said.strip()}")
    return found[2]


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    # nvcc prints lines of sources, which may be any bytes.
    return subprocess.run(
        words, capture_output=True, text=True, errors="replace", check=False
    )


def _compile(
    nvcc: Path, version: str, source: Path, words: list[str], made: Path
) -> list[str]:
    """Compile and link; the files that were read."""
    major = version.partition(".")[0]
    if major not in RUNTIMES:
        known = " and ".join(RUNTIMES)
        raise CompileError(f"nvcc {version} has no runtime here; CUDA {known} have")
    folder, listed = made.parent, made.with_suffix(".d")
    link = [str(folder / RUNTIMES[major]), str(folder / "libcuda.so.1")]
    linked = [word for each in link for word in ("-Xlinker", each)]
    linked += ["-Xlinker", f"-rpath-link={folder}", "-Xlinker", str(folder / CORE)]
    command = [
        str(nvcc),
        *words,
        *_runtime(folder / RUNTIMES[major], words),
        *("-MD", "-MF", str(listed)),
        *("-Xlinker", "--as-needed", *linked, "-o", str(made), str(source)),
    ]
    done = _run(command)
    if done.returncode:
        said = (done.stderr + done.stdout).strip()
        if _NO_MAIN.search(said):
            raise CompileError(
                f"{source} has no function main, so it is no program: fragmenta launch "
                f"{source} launches its kernels"
            )
        raise CompileError(f"nvcc cannot compile {source}:\n{said}")
    text = listed.read_text().partition(":")[2].replace("\\\n", " ")
    # Of several sources, only one is listed with what it includes.
    return [*shlex.split(text), *(word for word in words if Path(word).is_file())]


def _runtime(library: Path, words: Sequence[str]) -> list[str]:
    """The flags for the runtime; relocatable code is linked only if there is one."""
    if not _is_relocatable(words):
        return ["-cudart", "none"]
    (library.parent / "libcudart.so").symlink_to(library.name)
    return ["-cudart", "shared", f"-L{library.parent}"]


# ── the cache ───────────────────────────────────────────────────────────────


def _digests(files: Iterable[str]) -> dict[str, str] | None:
    """What is in each file now; None if one cannot be read."""
    try:
        return {
            each: hashlib.sha256(Path(each).read_bytes()).hexdigest() for each in files
        }
    except OSError:
        return None


def _known(kept: Cache, about: list[str]) -> bytes | None:
    """The program that was compiled from the files as they are."""
    listed = kept.get("\0".join(["files of", *about]))
    if listed is None:
        return None
    now = _digests(json.loads(listed))
    if now is None:
        return None
    return kept.get("\0".join(["program", *about, json.dumps(now)]))


def _keep(kept: Cache, about: list[str], files: list[str], program: bytes) -> None:
    now = _digests(files)
    if now is not None:
        kept.put("\0".join(["files of", *about]), json.dumps(files).encode())
        kept.put("\0".join(["program", *about, json.dumps(now)]), program)
