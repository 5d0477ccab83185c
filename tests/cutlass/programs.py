"""How does a GEMM of CUTLASS come here?

``gemm.cu`` is compiled by nvcc with the headers of the wheel ``nvidia-cutlass``.  Its
host code prepares a launch as on a machine with a GPU, and prints it.  What it takes for
addresses and tensor maps is replaced here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from fragmenta import ptx
from fragmenta.cuda.tools.assembler import tool
from fragmenta.ptx.arguments import Struct
from fragmenta.shared.tensor_map import TensorMap, element_types

SOURCE = Path(__file__).parent / "gemm.cu"
KEPT = Path(os.environ.get("CUTLASS_KERNELS", "build/cutlass"))
"""Where what was compiled is kept: it takes a minute for each kernel."""
ADDRESSES = (0x7100000000, 0x7200000000, 0x7300000000, 0x7400000000)
"""What the host code takes for the addresses of A, B, C and D."""
FIRST_MAP = 0xC0
"""A tensor map of the host code is 128 bytes of this, the next of one more."""


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
        for address, array in zip(ADDRESSES, arrays, strict=True):
            at = self.data.find(address.to_bytes(8, "little"))
            while at >= 0:
                pointers.append((at, ptx.pointer(array)))
                at = self.data.find(address.to_bytes(8, "little"), at + 8)
        return Struct(
            bytes(data), tuple(sorted(pointers, key=lambda each: each[0])), 64
        )


def prepared(kind: int, *sizes: int) -> Prepared:
    """The launch of a GEMM of these sizes."""
    command = [compiled(kind) / "gemm", *map(str, sizes)]
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
def compiled(kind: int) -> Path:
    """The folder with the program and the PTX of a kind."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:8]
    folder = KEPT / f"{kind}-{digest}"
    made = folder / "gemm"
    if made.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    found = find_spec("cutlass_library")
    assert found is not None
    assert found.origin is not None
    headers = Path(found.origin).parent / "source"
    nvcc = tool("nvcc")
    more = [nvcc.parent.parent / "include" / "cccl"]
    folders = [headers / "include", headers / "tools" / "util" / "include", *more]
    subprocess.run(
        [
            nvcc, "-std=c++17", "-O3", "--expt-relaxed-constexpr", f"-DKIND={kind}",
            "-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL", "-w",
            "-gencode", "arch=compute_90a,code=compute_90a",
            *(f"-I{each}" for each in folders), "--keep", "--keep-dir", folder,
            "-L", nvcc.parent.parent / "lib", "-o", made, SOURCE,
        ],
        check=True,
    )  # fmt: skip
    return folder


def text(kind: int) -> str:
    """The PTX of a kind."""
    return (compiled(kind) / "gemm.ptx").read_text()
