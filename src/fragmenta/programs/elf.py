"""What a program needs: the libraries that are named in its file."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from fragmenta.cuda.tools import fatbin
from fragmenta.errors import BadCall, Error, one_of
from fragmenta.programs.functions import STATIC

LIBRARIES = {
    "cublas": "cuBLAS",
    "cublasLt": "cuBLASLt",
    "cudnn": "cuDNN",
    "cufft": "cuFFT",
    "curand": "cuRAND",
    "cusolver": "cuSOLVER",
    "cusparse": "cuSPARSE",
    "nccl": "NCCL",
    "nvjpeg": "nvJPEG",
    "npp": "NPP",
    "cutensor": "cuTENSOR",
}
"""Libraries of machine code, which have no PTX that could be run."""
_NEEDED, _STRINGS = 1, 5


def find(program: str) -> Path:
    """The file of a program."""
    path = shutil.which(program)
    if path is None:
        there = Path(program).exists()
        why = (
            "it is no program that can be run" if there else "there is no such program"
        )
        raise BadCall(f"{program}: {why}")
    return Path(path)


def needed(path: Path) -> list[str]:
    """The libraries that a program needs, if it is an ELF file."""
    with path.open("rb") as file:
        head = file.read(4)
        return _needed(head + file.read()) if head == fatbin.ELF else []


def _needed(data: bytes) -> list[str]:
    """The libraries that an ELF file needs."""
    if data[:4] != fatbin.ELF:
        return []
    parts = dict(fatbin.sections(data))
    dynamic, strings = parts.get(".dynamic", b""), parts.get(".dynstr", b"")
    found = []
    for at in range(0, len(dynamic) - 15, 16):
        tag = int.from_bytes(dynamic[at : at + 8], "little")
        place = int.from_bytes(dynamic[at + 8 : at + 16], "little")
        if tag == _NEEDED:
            found.append(strings[place : strings.index(b"\0", place)].decode())
    return found


def check(program: str) -> list[str]:
    """The libraries of CUDA that a program needs; what cannot run here is refused."""
    with find(program).open("rb") as file:
        data = file.read(4)
        if data != fatbin.ELF:
            return []
        data += file.read()
    libraries = _needed(data)
    _refuse_libraries(program, libraries)
    runtime = [each for each in libraries if each.startswith("libcudart.so")]
    if not runtime and _has_kernels(data):
        raise Error(f"{program}: {STATIC}")
    driver = [each for each in libraries if each.startswith("libcuda.so")]
    return [*runtime, *driver]


def _has_kernels(data: bytes) -> bool:
    return any(name == ".nv_fatbin" and part for name, part in fatbin.sections(data))


def _refuse_libraries(program: str, libraries: list[str]) -> None:
    found = []
    for each in libraries:
        name = re.match(r"lib([A-Za-z]+)", each)
        stem = name[1] if name else ""
        known = LIBRARIES.get(stem) or (LIBRARIES["npp"] if stem[:3] == "npp" else None)
        if known is not None:
            found.append(f"{known} ({each})")
    if found:
        raise Error(
            f"{program} needs {one_of(found, 'and')}: NVIDIA's machine code, which has "
            "no PTX that could be run; build the program without it, or run the part "
            "of it that has its own kernels"
        )
