"""What a program needs: the libraries that are named in its file."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
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
_NEEDED = 1
_LONGEST_NAME = 4096
"""The most bytes of a library's name."""


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
        if head != fatbin.ELF:
            return []
        return _needed(fatbin.sections(head + file.read(), str(path)))


def _needed(parts: Mapping[str, bytes]) -> list[str]:
    """The libraries that an ELF file needs, by its sections."""
    dynamic, strings = parts.get(".dynamic", b""), parts.get(".dynstr", b"")
    found = []
    for at in range(0, len(dynamic) - 15, 16):
        tag = int.from_bytes(dynamic[at : at + 8], "little")
        place = int.from_bytes(dynamic[at + 8 : at + 16], "little")
        if tag == _NEEDED:
            name, _, _ = strings[place : place + _LONGEST_NAME].partition(b"\0")
            found.append(name.decode("utf-8", "replace"))
    return found


def check(program: str) -> list[str]:
    """The libraries of CUDA that a program needs; what cannot run here is refused."""
    with find(program).open("rb") as file:
        data = file.read(4)
        if data != fatbin.ELF:
            return []
        parts = fatbin.sections(data + file.read(), program)
    libraries = _needed(parts)
    _refuse_libraries(program, libraries)
    runtime = [each for each in libraries if each.startswith("libcudart.so")]
    if not runtime and parts.get(".nv_fatbin"):
        raise Error(f"{program}: {STATIC}")
    driver = [each for each in libraries if each.startswith("libcuda.so")]
    return [*runtime, *driver]


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
