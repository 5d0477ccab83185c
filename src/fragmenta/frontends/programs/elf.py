"""What a program needs: the libraries that are named in its file."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from fragmenta.cuda.tools import fatbin
from fragmenta.errors import BadCall, BadFile, Error, nearest, one_of
from fragmenta.frontends.programs.functions import STATIC

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
        raise BadCall(f"{program}: {_why_not(program)}")
    return Path(path)


def _why_not(program: str) -> str:
    """Why a word is no program, and what may be meant."""
    path = Path(program)
    if path.is_dir():
        return "it is a folder; name the program in it"
    if not path.exists():
        return f"there is no such program{nearest(program, _programs(program))}"
    if path.suffix in (".ptx", ".cubin", ".fatbin", ".npz"):
        return f"it has kernels and no program: fragmenta launch {program} launches one"
    if os.access(path, os.X_OK):
        return f"it is not on PATH; did you mean ./{program}?"
    return "it is no program that can be run; chmod +x makes one of a file"


def _programs(word: str) -> list[str]:
    """Programs and sources in the folder of a word, written as it is."""
    begin = word[: word.rfind("/") + 1]
    try:
        return [
            f"{begin or './' * (each.suffix != '.cu')}{each.name}"
            for each in Path(begin).iterdir()
            if each.is_file() and (os.access(each, os.X_OK) or each.suffix == ".cu")
        ]
    except OSError:
        return []


def needed(path: Path) -> list[str]:
    """The libraries that a program needs, if it is an ELF file."""
    return _needed(_sections(path, str(path)) or {})


def _sections(path: Path, program: str) -> dict[str, bytes] | None:
    """The sections of a program; None if it is no ELF file."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
            if head != fatbin.ELF:
                return None
            data = head + file.read()
    except OSError as why:
        raise BadFile(f"{program} cannot be read: {why.strerror}") from why
    return fatbin.sections(data, program)


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
    parts = _sections(find(program), program)
    if parts is None:
        return []
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
