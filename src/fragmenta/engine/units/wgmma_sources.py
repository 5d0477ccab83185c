"""The bytes of shared memory that a ``wgmma`` reads.

A descriptor says where A or B is.  The Tensor Cores read *units* of 16 bytes, which no
swizzle takes apart.  All warps of a warpgroup read B.  Of A, each warp reads its own 16
rows.

Many descriptors differ only in their start: a loop over k, or over stages.  A swizzle
repeats every 1024, 512 or 256 bytes.  So where the units are is computed once for all
starts that are whole repeats apart.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import SHARED_START
from fragmenta.errors import AddressError
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.shared.descriptor import MAJORS, UNIT, Descriptor, extent
from fragmenta.reference.shared.swizzles import pattern

_Number = TypeVar("_Number", bound=np.generic)
ROWS = 16
"""Rows of A that one warp reads."""


def units(
    op: Instruction, name: str, descriptor: int, trans: int = 0
) -> NDArray[np.uint32]:
    """The addresses of all 16-byte units of A or B.

    ``name`` is "A" or "B", ``descriptor`` the 64-bit word, and ``trans`` the immediate
    ``imm-trans-a`` or ``imm-trans-b``.  Units may occur more than once, because a
    stride may be 0.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> units(op, "B", Descriptor(1024, 0, 1024, swizzle=128).encode())[:6]
    array([1024, 1040, 1168, 1152, 1312, 1328], dtype=uint32)
    """
    of, first = _apart(descriptor)
    return _pattern(op, name, of, trans) + np.uint32(first)


@lru_cache(maxsize=1024)
def owners(op: Instruction, trans: int = 0) -> NDArray[np.uint8]:
    """The warp of the warpgroup that reads each unit of A, in the order of ``units``.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> owners(op).reshape(64, 2)[::8, 0]
    array([0, 0, 1, 1, 2, 2, 3, 3], dtype=uint8)
    """
    rows, _ = np.broadcast_arrays(*_elements(op, "A", trans))
    return _fixed((rows // ROWS).astype(np.uint8).reshape(-1))


@lru_cache(maxsize=4096)
def bad_descriptor(
    op: Instruction, name: str, descriptor: int, trans: int, size: int
) -> str:
    """Why a descriptor reads bytes that the kernel does not have; "" if it does not.

    ``size`` are the bytes of shared memory, with those of the system at its start.  A
    swizzled tile may start anywhere in its pattern: the swizzle takes the absolute
    address, as tensor copies do.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> bad_descriptor(op, "B", Descriptor(1024, 128, 256, 0).encode(), 0, 1200)
    'the descriptor of B reads bytes 1024 to 1279; shared memory has 1024 to 1199'
    """
    what = f"the descriptor of {name}"
    try:
        found = units(op, name, descriptor, trans)
    except AddressError as error:
        return f"{what}: {error}"
    first, end = int(found.min()), int(found.max()) + UNIT
    if first >= SHARED_START and end <= size:
        return ""
    return (
        f"{what} reads bytes {first} to {end - 1}; shared memory has {SHARED_START} to "
        f"{size - 1}"
    )


@lru_cache(maxsize=4096)
def _apart(word: int) -> tuple[Descriptor, int]:
    """The same descriptor in the first repeat, and the distance to the real start."""
    of = Descriptor.decode(word)
    repeat = pattern(of.swizzle).repeat
    first = of.start // repeat * repeat
    return replace(of, start=of.start - first), first


@lru_cache(maxsize=1024)
def _pattern(
    op: Instruction, name: str, of: Descriptor, trans: int
) -> NDArray[np.uint32]:
    rows, k = _elements(op, name, trans)
    kind = op.types[name.lower()]
    found = of.address(rows, k, kind, MAJORS[trans])
    return _fixed(found.astype(np.uint32).reshape(-1))


def _elements(
    op: Instruction, name: str, trans: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The row (of B the column) and the k of the first element of each unit."""
    rows, k = extent(op, name)
    per = 8 * UNIT // op.types[name.lower()].bits
    across, along = (k, rows) if trans else (rows, k)
    line = np.arange(across)[:, None]
    unit = np.arange(0, along, per)[None, :]
    return (unit, line) if trans else (line, unit)


def _fixed(of: NDArray[_Number]) -> NDArray[_Number]:
    """The same array, read-only: all callers share it."""
    of.flags.writeable = False
    return of
