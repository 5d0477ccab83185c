"""Structs by value and tensor maps, as arguments of a kernel.

Such a parameter is bytes that contain addresses of arrays.  The addresses are known
only at the launch, on the CPU as on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fragmenta.base.arrays.checks import Array, as_array, is_whole
from fragmenta.engine.simt.arguments import Pointer, Struct, pointer
from fragmenta.engine.simt.program import MOST_PARAMETERS
from fragmenta.errors import AlignmentError, BadCall, ShapeError
from fragmenta.reference.shared.tensor_map import ALIGNMENT, Fill, Im2col, TensorMap


class _Field(NamedTuple):
    """A field of a struct."""

    data: bytes
    align: int
    pointers: tuple[tuple[int, Pointer], ...] = ()


def struct(*fields: object, size: int | None = None) -> Struct:
    r"""A struct by value, laid out as a C compiler does.

    A field is a NumPy scalar, an array or a :func:`~fragmenta.ptx.pointer`, which give
    an address, ``None`` for a null pointer, bytes, another struct or a
    :func:`tensor_map`.  If the compiler lays them out in another way, give one
    dictionary of fields by their offsets, and the size.

    >>> made = struct(np.int32(7), np.zeros(3), None)
    >>> made.data[:4], len(made.data), [at for at, _ in made.pointers]
    (b'\x07\x00\x00\x00', 24, [8])
    >>> made = struct({0: np.int32(7), 16: np.zeros(3)}, size=32)
    >>> len(made.data), [at for at, _ in made.pointers]
    (32, [16])
    """
    if len(fields) == 1 and isinstance(fields[0], Mapping):
        return _laid_out({at: _field(each) for at, each in fields[0].items()}, size)
    places, end, widest = {}, 0, 1
    for field in map(_field, fields):
        end += -end % field.align
        places[end] = field
        end += len(field.data)
        widest = max(widest, field.align)
    return _laid_out(places, end + -end % widest if size is None else size, widest)


def _laid_out(fields: Mapping[int, _Field], size: int | None, align: int = 8) -> Struct:
    """Fields at their offsets, with zeros between them."""
    if not is_whole(size) or size is None:
        raise BadCall(f"a struct of fields by offsets needs its size; given {size!r}")
    if not 0 <= size <= MOST_PARAMETERS:
        raise ShapeError(f"a struct has 0 to {MOST_PARAMETERS:,} bytes; given {size}")
    data, pointers, end = bytearray(size), [], 0
    for at, field in sorted(fields.items()):
        if not is_whole(at) or at < end or at + len(field.data) > size:
            raise ShapeError(
                f"the field of {len(field.data)} bytes at offset {at!r} is not behind "
                f"the one before, which ends at {end}, and within {size} bytes"
            )
        end = at + len(field.data)
        data[at:end] = field.data
        pointers += [(at + inner, each) for inner, each in field.pointers]
    return Struct(bytes(data), tuple(pointers), align)


def _field(value: object) -> _Field:
    if isinstance(value, np.generic):
        return _Field(value.tobytes(), value.dtype.alignment)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _Field(bytes(value), 1)
    if isinstance(value, Struct):
        return _Field(value.data, value.align, value.pointers)
    if value is None:
        return _Field(bytes(8), 8)
    if isinstance(value, Pointer):
        return _Field(bytes(8), 8, ((0, value),))
    if isinstance(value, np.ndarray) or hasattr(value, "__dlpack__"):
        return _Field(bytes(8), 8, ((0, pointer(value)),))
    raise BadCall(
        "a field of a struct is a NumPy scalar, an array, a pointer, None, bytes, a "
        f"struct or a tensor map; given {type(value).__name__}"
    )


# ── tensor maps ─────────────────────────────────────────────────────────────


def tensor_map(
    array: object,
    box: Sequence[int] = (),
    strides: Sequence[int] | None = None,
    swizzle: int = 0,
    interleave: int = 0,
    fill: Fill = "zeros",
    element_strides: Sequence[int] | None = None,
    l2: int | str = "none",
    dtype: str | None = None,
    im2col: Im2col | None = None,
) -> Struct:
    """The tensor map of an array, as an argument of a kernel.

    Everything is in the order of the array's axes, as in
    :meth:`fragmenta.reference.shared.tensor_map.TensorMap.of`.  The array may be part
    of a larger one: ``x[:, :100]`` has rows that are as far apart as those of
    ``x``.  A map for im2col has ``im2col`` and no box.

    >>> made = tensor_map(np.zeros((64, 128), np.float16), box=(8, 64), swizzle=128)
    >>> len(made.data), [at for at, _ in made.pointers]
    (128, [0])
    """
    given = array if isinstance(array, np.ndarray) else _foreign(array)
    made = TensorMap.of(
        given,
        box,
        strides,
        swizzle,
        interleave,
        fill,
        element_strides,
        l2,
        dtype,
        im2col=im2col,
    )
    inside = _inside(given)
    unit = 32 if interleave == 32 else 16
    if inside.offset % unit:
        raise AlignmentError(
            f"the array of a tensor map must begin at a multiple of {unit} bytes of "
            f"the array that it is a part of; it begins at byte {inside.offset}"
        )
    return Struct(made.encode(), ((0, inside),), ALIGNMENT)


def _foreign(array: object) -> Array:
    """An array of another library, with the same memory."""
    if not hasattr(array, "__dlpack__"):
        raise BadCall(f"a tensor map is made of an array; given {type(array).__name__}")
    return as_array(array)


def _inside(array: Array) -> Pointer:
    """A pointer to an array that may be a part of another one.

    The memory is that of the largest one: the copy engine stores whole units of 16
    bytes, also past the end of a row.
    """
    found: Array | None = None
    whole: object = array
    while isinstance(whole, np.ndarray):
        found = whole if whole.flags.c_contiguous else found
        whole = whole.base
    if found is None:
        raise ShapeError(
            "the array of a tensor map is part of an array that is contiguous in C "
            f"order; given strides {array.strides} for shape {array.shape}"
        )
    starts = [each.__array_interface__["data"][0] for each in (array, found)]
    return pointer(found, starts[0] - starts[1])
