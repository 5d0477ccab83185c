"""Second values through products of matrices: one gather, any algebra.

Beside every bit of a register or of memory there are P bits, one in each *plane*.  The
bits of an element in all planes together are its *second value*.  If all of them are 0,
the element has no second value.  An *algebra* says what second values mean.  This
module hands it the operands of ``mma``, ``mma.sp``, ``wmma.mma``, ``wgmma``,
``wgmma.sp`` or ``tcgen05.mma`` as matrices, with their second values, and puts the
second values of D back into the planes.

An algebra writes its code once, for all instructions (:class:`ProductAlgebra`)::

    class Sums:
        name, planes, most = "sums", 4, 2

        def product(self, code, how, tiles):
            with each_eight(code, how) as at:        # eight neighbours of a row of D
                tiles.d2[at.c] = tiles.c2.lanes(at.c)
            return tiles.has_c                       # whether D has second values

All of :class:`ProductMatrices` is memory of traced code
(:mod:`fragmenta.base.jit.trace`), in *panels* of eight:

=================  =====================================================================
``a``              A: (panels of 8 rows, stored k, 8), the raw bits of each element
``b``              B: (panels of 8 columns, k, 8)
``c``, ``d``       (panels of 8 columns, rows, 8): before and after the instruction
``index``          of a sparse A, (rows, stored k): the logical k of each element
``scale_a``        block scales, their raw bits: (panels of 8 rows, scales along k, 8)
``scale_b``        the same of B
``scale_a2``       second values of scales, if the algebra's are ``numbers``
``scale_b2``       the same of B
``a2`` ... ``d2``  second values, in the order of ``a`` ... ``d``
=================  =====================================================================

Raw bits are words of 32 bits (of f64, 64).  A second value is :func:`words` words of
64 bits; word w of all elements comes before word w + 1.  Word by word:

- 16 bits: planes 0 to 3, plane 0 lowest; then planes 4 to 7, and so on
- 32 bits: the upper halves of planes 0 to 3, then their lower halves; and so on
- 64 bits: those of the upper 32 bits, then those of the lower
- 8 bits: planes 0 to 7; 4 bits: planes 0 to 15

``a2``, ``b2`` and ``c2`` are filled only if ``has_a``, ``has_b``, ``has_c`` (I1) say
that any element has a second value.  ``d2`` must be filled if the algebra answers 1.

Who calls:

- ``mma``, ``mma.sp``, ``wmma.mma``: a call of compiled code after the instruction,
  which :func:`fragmenta.engine.planes.code.warp_products.write_product` writes
- ``wgmma``: :class:`fragmenta.engine.planes.group_products.GroupProducts`, at issue
- ``tcgen05.mma``: :func:`fragmenta.engine.planes.tensor_products.tensor_product`, at
  issue
- matrices in NumPy arrays, for tests: :func:`on_matrices`
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.planes.code.products import (
    ARRAYS,
    NOWHERE,
    SCALES,
    Eight,
    ProductAlgebra,
    ProductMatrices,
    ProductShape,
    ProductSite,
    each_eight,
    fields,
    matrix_function,
    product_model,
    words,
)
from fragmenta.reference.isa.instruction import Instruction

__all__ = [
    "NOWHERE",
    "Eight",
    "Matrices",
    "ProductAlgebra",
    "ProductMatrices",
    "ProductShape",
    "ProductSite",
    "combined",
    "each_eight",
    "on_matrices",
    "product_model",
    "separated",
    "words",
]

LANES = 8
"""Rows or columns of a panel."""


def combined(planes: NDArray[np.generic], bits: int) -> NDArray[np.uint64]:
    """Second values as words, (words, ...), of the elements in planes, (P, ...).

    >>> planes = np.array([[0x11112222], [0x33334444], [0], [0x5555]], np.uint32)
    >>> [hex(word) for word in combined(planes, 32)[:, 0].tolist()]
    ['0x33331111', '0x5555000044442222']
    """
    part, given = fields(bits), planes.astype(np.uint64)
    mask = np.uint64((1 << part.bits) - 1)
    rounds = -(-len(given) // part.per)
    found = np.zeros((rounds, len(part.quarters), *given.shape[1:]), np.uint64)
    for number, plane in enumerate(given):
        turn, place = divmod(number, part.per)
        for goal, quarter in enumerate(part.quarters):
            field = plane >> np.uint64(part.bits * quarter) & mask
            found[turn, goal] |= field << np.uint64(part.bits * place)
    return found.reshape(-1, *given.shape[1:])


def separated(values: NDArray[np.uint64], bits: int, planes: int) -> NDArray[np.uint64]:
    """The inverse of :func:`combined`: the elements in planes, (P, ...).

    >>> values = np.array([[0x33331111], [0x5555000044442222]], np.uint64)
    >>> [hex(word) for word in separated(values, 32, 4)[:, 0].tolist()]
    ['0x11112222', '0x33334444', '0x0', '0x5555']
    """
    part = fields(bits)
    mask = np.uint64((1 << part.bits) - 1)
    found = np.zeros((planes, *values.shape[1:]), np.uint64)
    for number in range(planes):
        turn, place = divmod(number, part.per)
        for source, quarter in enumerate(part.quarters):
            index = turn * len(part.quarters) + source
            if index >= len(values):  # the algebra uses fewer words
                continue
            word = values[index]
            field = word >> np.uint64(part.bits * place) & mask
            found[number] |= field << np.uint64(part.bits * quarter)
    return found


# ── matrices in arrays ──────────────────────────────────────────────────────


class Matrices(NamedTuple):
    """The operands of a product in arrays: raw bits, and words of second values.

    A is (m, stored k), B (k, n), C and D are (m, n); second values have one more axis
    in front, :func:`words`.  None: no element has one.
    """

    a: NDArray[np.generic]
    b: NDArray[np.generic]
    c: NDArray[np.generic]
    d: NDArray[np.generic]
    index: NDArray[np.generic] | None = None  # type: ignore[assignment]
    scale_a: NDArray[np.generic] | None = None
    """(m, scales along k)"""
    scale_b: NDArray[np.generic] | None = None
    """(scales along k, n)"""
    a2: NDArray[np.uint64] | None = None
    b2: NDArray[np.uint64] | None = None
    c2: NDArray[np.uint64] | None = None
    scale_a2: NDArray[np.uint64] | None = None
    """Of the shape of ``scale_a``; one word each."""
    scale_b2: NDArray[np.uint64] | None = None


def on_matrices(
    op: Instruction,
    target: str,
    algebra: ProductAlgebra,
    given: Matrices,
    *,
    negated: tuple[bool, bool] = (False, False),
    where: ProductSite = NOWHERE,
) -> NDArray[np.uint64] | None:
    """The second values of D, (words, m, n), as an algebra computes them.

    None if no element has one.
    """
    function = matrix_function(op, target, algebra, negated)
    how = ProductShape(
        op, product_model(op, target), algebra.planes, negated, algebra.most
    )
    raw = np.uint64 if how.model.accumulator == "f64" else np.uint32
    none = np.zeros(LANES, np.uint64)
    arrays: dict[str, NDArray[np.generic]] = {
        "a": _panels(given.a.astype(raw)),
        **{name: _panels(getattr(given, name).astype(raw).T) for name in "bcd"},
        "index": np.zeros(LANES, np.int32),
        "scale_a": none.view(np.uint8),
        "scale_b": none.view(np.uint8),
    }
    if given.index is not None:
        arrays["index"] = np.ascontiguousarray(given.index, np.int32)
    if given.scale_a is not None and given.scale_b is not None:
        arrays["scale_a"] = _panels(given.scale_a.view(np.uint8))
        arrays["scale_b"] = _panels(given.scale_b.view(np.uint8).T)
    has = 0
    for place, name in enumerate("abc"):
        second = getattr(given, f"{name}2")
        if second is not None and second.any():
            has |= 1 << place
            turned = second if name == "a" else second.swapaxes(1, 2)
            arrays[f"{name}2"] = np.stack([_panels(each) for each in turned])
        else:
            arrays[f"{name}2"] = none
    for place, name in enumerate(SCALES, 3):
        second = getattr(given, name)
        arrays[name] = none
        if second is not None and second.any():
            has |= 1 << place
            arrays[name] = _panels(second if name == "scale_a2" else second.T)
    count = how.words("d")
    arrays["d2"] = np.zeros((count, how.sizes["d"]), np.uint64)
    ordered = [arrays[name] for name in (*ARRAYS, *SCALES)]
    if not function(*ordered, has, *where):
        return None
    m, n = given.c.shape
    made = arrays["d2"].reshape(count, n // LANES, m, LANES)
    return np.ascontiguousarray(made.transpose(0, 2, 1, 3).reshape(count, m, n))


def _panels(matrix: NDArray[np.generic]) -> NDArray[np.generic]:
    """A matrix of rows in panels of eight rows: (panels, along, 8)."""
    rows, along = matrix.shape
    parted = matrix.reshape(rows // LANES, LANES, along).swapaxes(1, 2)
    return np.ascontiguousarray(parted)
