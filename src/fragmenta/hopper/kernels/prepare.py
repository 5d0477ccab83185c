"""Prunes, compresses and packs a weight on the GPU, at the speed of memory.

One kernel reads the dense matrix once and writes packed blocks.  A table compiled into
it says where each unit of values and its codes go; the table is computed from
:func:`~fragmenta.hopper.kernels.packing.pack` itself.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING

from fragmenta.cuda.tools.compiler import to_cubin
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.packing import packed_shape, places_macro
from fragmenta.hopper.kernels.source import TARGET, text
from fragmenta.reference.registers.dtype import DType, dtype

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Parameter = ctypes.c_void_p | ctypes.c_longlong | ctypes.c_int
"""A parameter of a kernel, in host memory."""

MOST_ROWS = 65_535 // 4 * 256
"""The most rows that one launch compresses."""


@lru_cache(maxsize=16)
def prepare_source(element_type: str) -> str:
    """The CUDA C++ source of the kernels in ``prepare.cu``, for one type.

    >>> "#define ONE_OF_TWO 1" in prepare_source("tf32")
    True
    """
    kernel = Kernel(element_type, tile=Tile(64, 8))
    of = kernel.instruction.types["a"]
    macros = {
        "ELEMENT": {8: "unsigned char", 16: "unsigned short", 32: "unsigned"}[of.bits],
        "BITS": of.bits,
        "SIGNED": int(of.name == "s8"),
        "MAGNITUDE": hex((1 << of.bits) - 1 >> (0 if of.is_integer else 1)),
        "INFINITY_KEY": hex(_infinity_key(of)),
        "ONE_OF_TWO": int(element_type == "tf32"),
        "BLOCK_BYTES": kernel.block_bytes,
        "PLACES": places_macro(element_type),
    }
    lines = (f"#define {name} {value}\n" for name, value in macros.items())
    return "".join(lines) + text("prepare.cu")


def _infinity_key(of: DType) -> int:
    """The least magnitude of a NaN: infinity plus one.  All NaN count as equal."""
    everything = (1 << of.bits) - 1
    if of.is_integer or not of.has_infinity:
        return everything
    fraction = of.bits - 1 - of.exponent_bits
    return (((1 << of.exponent_bits) - 1) << fraction) + 1


def compress_on_device(weight: Tensor, element_type: str) -> Tensor:
    """Prune and pack a CUDA tensor whose rows begin on multiples of 16 bytes."""
    import torch

    rows, columns = weight.shape
    shape = packed_shape(element_type, rows, columns)
    packed = torch.empty(shape, dtype=torch.uint8, device=weight.device)
    arguments = _matrix(weight, rows, columns, packed)
    _start("compress", element_type, (shape[1], 4 * shape[0]), weight.device, arguments)
    return packed


def count_bits(bits: Tensor) -> Tensor:
    """The number of set bits in each row of a CUDA tensor of uint8."""
    import torch

    rows, columns = bits.shape
    counts = torch.empty(rows, dtype=torch.int32, device=bits.device)
    if not rows:
        return counts
    arguments = _matrix(bits, rows, columns, counts)
    _start("count_bits", "u8", (-(-rows // 8), 1), bits.device, arguments)
    return counts


def _matrix(x: Tensor, rows: int, columns: int, result: Tensor) -> list[Parameter]:
    size = x.element_size()
    return [
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_longlong(x.stride(0) * size),
        ctypes.c_int(rows),
        ctypes.c_longlong(columns * size),
        ctypes.c_void_p(result.data_ptr()),
    ]


def _start(
    name: str,
    element_type: str,
    grid: tuple[int, int],
    device: torch.device,
    arguments: list[Parameter],
) -> None:
    import torch

    from fragmenta.hopper.kernels.launch import load, start

    with torch.cuda.device(device):
        stream = torch.cuda.current_stream().cuda_stream
        handle = load(prepare_cubin(dtype(element_type).name), name)
        start(handle, grid, 256, 0, stream, [ctypes.addressof(x) for x in arguments])


@lru_cache(maxsize=16)
def prepare_cubin(element_type: str) -> bytes:
    """The machine code for one type.

    >>> prepare_cubin("bf16")[1:4]
    b'ELF'
    """
    return to_cubin(prepare_source(element_type), TARGET)
