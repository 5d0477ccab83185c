"""How is a struct given that has pointers in it, or a tensor map?

Such a parameter is bytes in which the addresses of arrays stand.  Where the arrays are
is known only at the launch, on the CPU as on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import Error, ShapeError
from fragmenta.ptx.arguments import Pointer, Struct, pointer
from fragmenta.shared import tensor_map as maps
from fragmenta.shared.tensor_map import Fill


def struct(*fields: Any) -> Struct:
    r"""A struct by value, laid out as a C compiler does.

    A field is a NumPy scalar, an array or a :func:`~fragmenta.ptx.pointer`, which give
    an address, or ``None`` for a null pointer.

    >>> made = struct(np.int32(7), np.zeros(3), None)
    >>> made.data[:4], len(made.data), [at for at, _ in made.pointers]
    (b'\x07\x00\x00\x00', 24, [8])
    """
    data, pointers, widest = bytearray(), [], 1
    for field in fields:
        content = field.tobytes() if isinstance(field, np.generic) else bytes(8)
        align = max(1, len(content))
        widest = max(widest, align)
        data += bytes(-len(data) % align)
        if isinstance(field, Pointer):
            pointers.append((len(data), field))
        elif isinstance(field, np.ndarray) or hasattr(field, "__dlpack__"):
            pointers.append((len(data), pointer(field)))
        elif field is not None and not isinstance(field, np.generic):
            raise Error(
                "a field of a struct is a NumPy scalar, an array, a pointer or None; "
                f"given {type(field).__name__}"
            )
        data += content
    return Struct(bytes(data + bytes(-len(data) % widest)), tuple(pointers))


def tensor_map(
    array: Any,
    box: Sequence[int],
    strides: Sequence[int] | None = None,
    swizzle: int = 0,
    interleave: int = 0,
    fill: Fill = "zeros",
    element_strides: Sequence[int] | None = None,
    l2: int | str = "none",
    dtype: str | None = None,
) -> Struct:
    """The tensor map of an array, as an argument of a kernel.

    Everything is in the order of the array's axes, as in
    :func:`fragmenta.shared.tensor_map.tensor_map`.  The array may be part of a larger
    one: ``x[:, :100]`` has rows that are as far apart as those of ``x``.

    >>> made = tensor_map(np.zeros((64, 128), np.float16), box=(8, 64), swizzle=128)
    >>> len(made.data), [at for at, _ in made.pointers]
    (128, [0])
    """
    given = np.asarray(np.from_dlpack(array)) if _foreign(array) else array
    made = maps.tensor_map(
        given, box, strides, swizzle, interleave, fill, element_strides, l2, dtype
    )
    return Struct(made.encode(), ((0, _inside(np.asarray(given))),))


def _foreign(array: Any) -> bool:
    return not isinstance(array, np.ndarray) and hasattr(array, "__dlpack__")


def _inside(array: NDArray[Any]) -> Pointer:
    """A pointer to an array that may be a part of another one.

    The memory is that of the largest one: the copy engine stores whole units of 16
    bytes, also behind the end of a row.
    """
    whole, found = array, None
    while isinstance(whole, np.ndarray):
        found = whole if whole.flags.c_contiguous else found
        whole = whole.base  # type: ignore[assignment]
    if found is None:
        raise ShapeError(
            "the array of a tensor map is part of an array that is contiguous in C "
            f"order; given strides {array.strides} for shape {array.shape}"
        )
    starts = [each.__array_interface__["data"][0] for each in (array, found)]
    return pointer(found, starts[0] - starts[1])
