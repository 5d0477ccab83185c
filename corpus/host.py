"""Launches that a library's own host code prepares.

A program of ``programs/`` is compiled by nvcc with the headers of a package.  Its host
code prepares a launch as on a machine with a GPU, and prints it.  What it takes for
addresses and tensor maps is replaced here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Any, NamedTuple

from fragmenta import ptx
from fragmenta.cuda.tools.assembler import tool
from fragmenta.engine.simt.arguments import Struct
from fragmenta.errors import Error
from fragmenta.reference.shared.tensor_map import TensorMap, element_types

PROGRAMS = Path(__file__).parent / "programs"
KEPT = Path(os.environ.get("CUTLASS_KERNELS", "build/cutlass"))
"""Where what was compiled is kept: it takes a minute for each kernel."""
ADDRESSES = [0x7000000000 + (number << 32) for number in range(1, 12)]
"""What the host code takes for the addresses of its arrays."""
FIRST_MAP = 0xC0
"""A tensor map of the host code is 128 bytes of this, the next of one more."""


@cache
def folder_of(package: str, name: str) -> Path:
    """The folder of an installed package that has a file of this name."""
    inside = next(each for each in files(package) or () if each.name == name)
    return Path(str(inside.locate())).parent


def cccl() -> Path:
    """The headers of CCCL."""
    return folder_of("nvidia-cuda-cccl", "cub.cuh").parent


def cutlass() -> list[Path]:
    """The headers of CUTLASS."""
    include = folder_of("nvidia-cutlass", "cutlass.h").parent
    return [include, include.parent / "tools" / "util" / "include"]


def flash() -> list[Path]:
    """The sources of FlashAttention, with the CUTLASS that they bring."""
    sources = Path(sys.prefix) / "flash-attn" / "csrc"
    if not sources.exists():
        raise Error(f"the archive of flash-attn is not in {sources.parent}")
    return [sources / "flash_attn" / "src", sources / "cutlass" / "include", PROGRAMS]


class Program(NamedTuple):
    """How a file of ``programs/`` is compiled."""

    target: str
    headers: Callable[[], list[Path]]


KNOWN = {
    "hopper": Program("90a", cutlass),
    "ampere": Program("80", cutlass),
    "flash": Program("80", flash),
}


class Prepared(NamedTuple):
    """What host code prepared."""

    grid: tuple[int, ...]
    block: int
    cluster: tuple[int, ...]
    shared: int
    data: bytes
    maps: list[tuple[int, TensorMap]]
    """Each tensor map, and the address of its tensor."""

    def parameter(self, arrays: list[Any]) -> Struct:
        """The kernel's only parameter, for these arrays."""
        data, pointers = bytearray(self.data), []
        for number, (address, made) in enumerate(self.maps):
            at = self.data.find(bytes([FIRST_MAP + number]) * 128)
            if at >= 0:
                data[at : at + 128] = made.encode()
                pointers.append((at, ptx.pointer(arrays[ADDRESSES.index(address)])))
        for address, array in zip(ADDRESSES, arrays, strict=False):
            at = self.data.find(address.to_bytes(8, "little"))
            while at >= 0:
                pointers.append((at, ptx.pointer(array)))
                at = self.data.find(address.to_bytes(8, "little"), at + 8)
        return Struct(
            bytes(data), tuple(sorted(pointers, key=lambda each: each[0])), 64
        )


def prepared(program: str, kind: int, *sizes: int) -> Prepared:
    """The launch for a problem of these sizes."""
    command = [compiled(program, kind) / program, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    told = {name: rest for name, *rest in lines if name != "map"}
    maps = [_map(rest) for name, *rest in lines if name == "map"]
    grid, cluster = (tuple(map(int, told[name])) for name in ("grid", "cluster"))
    (block,), (shared,), (data,) = told["block"], told["shared"], told["params"]
    return Prepared(grid, int(block), cluster, int(shared), bytes.fromhex(data), maps)


def _map(told: list[str]) -> tuple[int, TensorMap]:
    """A tensor map, from what the driver was given."""
    address, *rest = told
    kind, swizzle, _, _, *axes = map(int, rest)
    sizes, strides, box, _ = (tuple(axes[i::4]) for i in range(4))
    (dtype,) = (each.name for each in element_types() if each.driver == kind)
    swizzle = (0, 32, 64, 128)[swizzle]
    return int(address, 16), TensorMap(dtype, sizes, strides[1:], box, swizzle=swizzle)


@cache
def compiled(program: str, kind: int) -> Path:
    """The folder with the program and the PTX of a kind."""
    source = PROGRAMS / f"{program}.cu"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
    folder = KEPT / f"{program}-{kind}-{digest}"
    made = folder / program
    if made.exists():
        return folder
    nvcc = tool("nvcc")
    includes = [*KNOWN[program].headers(), nvcc.parent.parent / "include" / "cccl"]
    virtual = f"compute_{KNOWN[program].target}"
    command = [nvcc, "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-w", "-lineinfo"]
    command += [f"-DKIND={kind}", "-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL"]
    command += ["-gencode", f"arch={virtual},code={virtual}"]
    command += [f"-I{each}" for each in includes]
    command += ["-L", nvcc.parent.parent / "lib", source]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:  # far more is made than is needed
        made_there = Path(place, program)
        options = ["--keep", "--keep-dir", place, "-o", made_there]
        subprocess.run([*command, *options], check=True)
        for each in (made_there.with_suffix(".ptx"), made_there):
            shutil.copy(each, folder)
    return folder


def text(program: str, kind: int) -> str:
    """The PTX of a kind."""
    return (compiled(program, kind) / f"{program}.ptx").read_text()
