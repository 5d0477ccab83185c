"""Moves the kept values of a sparse matrix on the GPU, for training with a fixed mask.

The kept values are a matrix of half the columns, so that an optimiser sees only them.
Their codes never change.  ``kept.cu`` packs them for a product, packs the transpose,
restores the dense matrix, and takes the values of a dense matrix at the kept places.
Each is one pass over memory, and none but the third makes a dense matrix.

    codes[row][unit]   16 bits: the codes of four chunks; a unit is 32 bytes of a row
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

from fragmenta.cuda.tools.compiler import to_cubin
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.packing import packed_shape, places_macro
from fragmenta.hopper.kernels.prepare import Parameter
from fragmenta.hopper.kernels.source import TARGET, text
from fragmenta.reference.sparse.compression import sparse

if TYPE_CHECKING:
    from torch import Tensor

TRAINED = ("bf16", "f16", "tf32")
"""The element types whose kept values can be trained."""
CODES = 2
"""Bytes of the codes of a unit."""
_UNIT = 32  # bytes of a row that make a unit


def units(element_type: str, columns: int) -> int:
    """The units of a row.

    >>> units("bf16", 64), units("tf32", 20)
    (4, 3)
    """
    count = _UNIT * 8 // Kernel(element_type).instruction.types["a"].bits
    return -(-columns // count)


@lru_cache(maxsize=8)
def kept_source(element_type: str) -> str:
    """The CUDA C++ source of the kernels in ``kept.cu``, for one type.

    >>> "#define EMPTY 0xeeee" in kept_source("bf16")
    True
    """
    kernel = Kernel(element_type, tile=Tile(64, 8))
    op, granularity = sparse(kernel.instruction)
    macros = {
        "ELEMENT": {16: "unsigned short", 32: "unsigned"}[op.types["a"].bits],
        "ONE_OF_TWO": int(granularity.chunk == 2),
        "EMPTY": hex(granularity.empty * 0x1111),
        "BLOCK_BYTES": kernel.block_bytes,
        "PLACES": places_macro(element_type),
    }
    lines = (f"#define {name} {value}\n" for name, value in macros.items())
    return "".join(lines) + text("kept.cu")


@lru_cache(maxsize=8)
def kept_cubin(element_type: str) -> bytes:
    """The machine code for one type.

    >>> kept_cubin("bf16")[1:4]
    b'ELF'
    """
    return to_cubin(kept_source(element_type), TARGET)


def kept_grid(name: str, element_type: str, rows: int, columns: int) -> tuple[int, int]:
    """The blocks of a launch: one for each packed block, 64 rows of a slab.

    >>> kept_grid("pack", "bf16", 300, 128), kept_grid("gather", "bf16", 300, 128)
    ((2, 8), (2, 5))
    """
    if name == "pack_transposed":
        rows, columns = columns, rows
    tall, slabs, blocks, _ = packed_shape(element_type, rows, columns)
    return slabs, tall * blocks if name.startswith("pack") else -(-rows // 64)


def start_kept(
    name: str,
    element_type: str,
    values: Tensor,
    codes: Tensor,
    columns: int,
    other: Tensor,
) -> None:
    """Launch a kernel of ``kept.cu`` on the current stream.

    Rows of ``values`` and of a dense ``other`` begin on multiples of 16 bytes, and
    ``codes`` is contiguous.
    """
    import torch

    from fragmenta.hopper.kernels.launch import adopt_context, load, start

    arguments: list[Parameter] = [
        ctypes.c_void_p(values.data_ptr()),
        ctypes.c_longlong(values.stride(0) * values.element_size()),
        ctypes.c_int(values.shape[0]),
        ctypes.c_int(columns),
        ctypes.c_void_p(codes.data_ptr()),
        ctypes.c_void_p(other.data_ptr()),
    ]
    if not name.startswith("pack"):
        arguments.append(ctypes.c_longlong(other.stride(0) * other.element_size()))
    raw: ModuleType = torch._C
    here = values.device.index == raw._cuda_getDevice()  # changing it takes time
    with nullcontext() if here else torch.cuda.device(values.device):
        stream = raw._cuda_getCurrentRawStream(values.device.index)
        adopt_context(values.device.index)
        handle = load(kept_cubin(element_type), name)
        grid = kept_grid(name, element_type, values.shape[0], columns)
        start(handle, grid, 256, 0, stream, [ctypes.addressof(x) for x in arguments])
