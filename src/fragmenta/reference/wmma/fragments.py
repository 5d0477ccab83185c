"""``nvcuda::wmma::fragment``: what it holds, and where.

A fragment is declared by its use, shape, type and layout in memory.  The CUDA C++
programming guide does not specify which of its entries is which element, so its
layout is marked as observed.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, check_numbers, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import (
    BadCall,
    ShapeError,
    UnknownInstruction,
    UnsupportedTarget,
    one_of,
)
from fragmenta.reference.isa.instruction import Shape
from fragmenta.reference.isa.tables import wmma as table
from fragmenta.reference.isa.target import number
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.registers.fragment import Fragment, Words
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.wmma.memory import Transfer
from fragmenta.reference.wmma.names import (
    NAMES,
    SUB_BYTE_STORAGE,
    Major,
    Use,
    accumulator,
    choose,
    col_major,
    element_type,
    matrix_a,
    member,
    row_major,
)

UNSPECIFIED = (
    "The CUDA programming guide does not specify which element of the matrix an entry "
    "of x holds, and any architecture may change it.  Do not write a kernel that "
    "depends on it, and pass matrices to separately compiled code through memory, "
    "not as fragments."
)


@dataclass(frozen=True, eq=False, repr=False)
class ObservedLayout(Layout):
    """A layout that no manual specifies, with where it was observed and a warning.

    >>> from fragmenta import wmma
    >>> c = wmma.fragment(wmma.accumulator, 8, 8, 32, int)
    >>> c.layout(target="sm_90")
    ObservedLayout('row = L2 L3 L4  col = R0 L0 L1', L=32, R=2, E=1, \
observed='sm_90 (H200)')
    """

    observed: str = ""
    warning: str = field(default=UNSPECIFIED, compare=False)

    def __eq__(self, other: object) -> bool:
        """Equal to any layout with the same map."""
        if not isinstance(other, Layout):
            return NotImplemented
        return _key(self) == _key(other)

    def __hash__(self) -> int:
        return hash(_key(self))

    def __repr__(self) -> str:
        plain = Layout(self.coordinates, self.axes, self.free)
        return f"Observed{repr(plain)[:-1]}, observed={self.observed!r})"


def _key(layout: Layout) -> tuple[object, ...]:
    return (layout.coordinates, layout.axes, layout.free)


MOST_WARPS = 1 << 20
"""Warps of a fragment: more would be gigabytes."""


class fragment:
    """A matrix that is distributed over the lanes of a warp.

    ``use`` is matrix_a, matrix_b or accumulator.  ``type`` is an element type, by its
    name in CUDA or in this package.  ``layout`` is how matrix_a or matrix_b is stored
    in memory.  ``warps`` is for many warps at once: a number, or the shape of a grid.

    >>> from fragmenta import wmma
    >>> u4 = wmma.experimental.precision.u4
    >>> a = wmma.fragment(wmma.matrix_a, 8, 8, 32, u4, wmma.row_major)
    >>> a
    <fragment<matrix_a, 8, 8, 32, experimental::precision::u4, row_major>>
    >>> a.num_elements, a.num_storage_elements, a.x.shape, a.x.dtype
    (8, 1, (32, 1), dtype('uint32'))
    """

    def __init__(
        self,
        use: Use,
        m: int,
        n: int,
        k: int,
        type: object,
        layout: Major | None = None,
        *,
        warps: int | tuple[int, ...] = (),
    ) -> None:
        self.use: Use = member(Use, use, "use")
        check_numbers(m=m, n=n, k=k)
        self.shape = Shape(m, n, k)
        self.element_type = element_type(type)
        _check_fragment(self.use, self.shape, self.element_type)
        self.memory_layout = _check_major(self.use, self.element_type, layout)
        self.warps = warps if isinstance(warps, tuple) else (warps,)
        if any(not is_whole(size) or size < 1 for size in self.warps):
            raise ShapeError(f"warps must be 1 or more; given {warps!r}")
        if prod(self.warps) > MOST_WARPS:
            raise ShapeError(f"there are at most {MOST_WARPS:,} warps; given {warps!r}")
        self._part = _part(self.use, str(self.shape), self.element_type.name)
        self._x: Array = np.zeros(
            (*self.warps, 32, self.num_storage_elements), self.storage_element_type
        )
        self._defined = False

    @property
    def num_elements(self) -> int:
        """The number of elements that each lane holds, including copies.

        >>> from fragmenta import wmma
        >>> a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
        >>> a.num_elements
        16
        """
        return self._part.registers * self._part.elements

    @property
    def num_storage_elements(self) -> int:
        """The number of entries of ``x`` for each lane; fewer if elements are packed.

        >>> from fragmenta import wmma
        >>> a = wmma.fragment(wmma.matrix_a, 8, 8, 128, "b1", wmma.row_major)
        >>> a.num_storage_elements
        1
        """
        packed = self.element_type.name in SUB_BYTE_STORAGE
        return self._part.registers if packed else self.num_elements

    @property
    def storage_element_type(self) -> np.dtype[np.generic]:
        """The type of ``x``: that of the elements, or of the word that they share.

        >>> from fragmenta import wmma
        >>> a = wmma.fragment(wmma.matrix_b, 8, 8, 32, "s4", wmma.col_major)
        >>> a.storage_element_type
        dtype('int32')
        """
        of = self.element_type
        return np.dtype(SUB_BYTE_STORAGE.get(of.name, of.storage))

    @property
    def x(self) -> Array:
        """The entries of each lane: (…warps, 32, num_storage_elements), writable.

        The same operation on every entry is allowed, as in CUDA.  An operation that
        depends on the position of an entry is not portable to other targets.

        >>> from fragmenta import wmma
        >>> c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
        >>> wmma.fill_fragment(c, 3.0)
        >>> c.x *= 2
        >>> c.x.shape, float(c.x[31, 7])
        ((32, 8), 6.0)
        """
        self._defined = True  # the caller may write to it
        return self._x

    @x.setter
    def x(self, values: ArrayLike) -> None:
        try:
            np.copyto(self._x, np.asarray(values), casting="same_kind")
        except (TypeError, ValueError) as why:
            raise ShapeError(
                f"x of {self} must be {self._x.dtype} of shape {self._x.shape}: {why}"
            ) from why
        self._defined = True

    @property
    def registers(self) -> Words:
        """``x`` as registers of PTX: (…warps, 32, registers).

        >>> from fragmenta import wmma
        >>> a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
        >>> a.registers.shape
        (32, 8)
        """
        words: Words = self.x.view(f"uint{self._part.register_bits}")
        return words

    def layout(self, target: str | None = None) -> ObservedLayout:
        """The observed layout; an error for a target where it was not measured.

        Read its ``warning``: no manual specifies this layout.

        >>> from fragmenta import wmma
        >>> tf32 = wmma.precision.tf32
        >>> a = wmma.fragment(wmma.matrix_a, 16, 16, 8, tf32, wmma.row_major)
        >>> print(a.layout(target="sm_90"))
        row = L2 L3 L4 R0  col = L0 L1 R1
        >>> a.layout("sm_80")
        Traceback (most recent call last):
        ...
        fragmenta.errors.UnsupportedTarget: the layout of \
fragment<matrix_a, 16, 16, 8, precision::tf32, row_major> on sm_80 was not \
measured; it was observed only on sm_90 (H200), and no manual specifies it
        """
        chosen = choose(target)
        if number(chosen.name) != number(table.OBSERVED.split()[0]):
            raise UnsupportedTarget(
                f"the layout of {self} on {chosen.name} was not measured; it was "
                f"observed only on {table.OBSERVED}, and no manual specifies it"
            )
        seen = self._part.layout
        return ObservedLayout(seen.coordinates, seen.axes, seen.free, table.OBSERVED)

    def copy(self) -> fragment:
        """A new fragment with the same contents.

        >>> from fragmenta import wmma
        >>> c = wmma.fragment(wmma.accumulator, 8, 8, 4, wmma.double)
        >>> wmma.fill_fragment(c, 1.0)
        >>> d = c.copy()
        >>> d.x += 1
        >>> float(c.x[0, 0]), float(d.x[0, 0])
        (1.0, 2.0)
        """
        m, n, k = self.shape
        same = fragment(
            self.use, m, n, k, self.element_type, self.memory_layout, warps=self.warps
        )
        same._x[...] = self._x
        same._defined = self._defined
        return same

    def _access(self, call: str, rules: str, *, write: bool = False) -> Transfer:
        """A load or store of this fragment, to be checked."""
        name = NAMES[self.element_type.name][0]
        return Transfer(call, self._part, str(self), name, self.warps, rules, write)

    def __str__(self) -> str:
        m, n, k = self.shape
        words = [self.use.name, m, n, k, NAMES[self.element_type.name][0]]
        words += [self.memory_layout.name] if self.memory_layout else []
        return f"fragment<{', '.join(map(str, words))}>"

    def __repr__(self) -> str:
        return f"<{self}>" + (f" of {self.warps} warps" if self.warps else "")


@lru_cache
def _part(use: Use, shape: str, of: str) -> Fragment:
    """The observed fragment, from the only place where its layout is written."""
    return table.fragment(use.value, shape, of)


def _check_fragment(use: Use, shape: Shape, of: DType) -> None:
    """Refuse a combination of use, shape and type that does not exist."""
    operand = use.value.lower()
    rows = [row for row in table.LOAD.rows if row.allowed["operand"] == (operand,)]
    fits = [
        row.allowed["shape"][0] for row in rows if row.allowed["type"] == (of.name,)
    ]
    if str(shape) in fits and all(map(is_whole, shape)):
        return
    name = NAMES[of.name][0]
    given = f"fragment<{use.name}, {shape.m!r}, {shape.n!r}, {shape.k!r}, {name}>"
    if not fits:
        types = dict.fromkeys(row.allowed["type"][0] for row in rows)
        have = one_of((NAMES[each][0] for each in types), "and")
        raise UnknownInstruction(f"no {given}; {use.name} has {have}")
    have = one_of(("x".join(map(str, Shape.parse(text))) for text in fits), "and")
    raise UnknownInstruction(f"no {given}; {use.name} of {name} has {have}")


def _check_major(use: Use, of: DType, layout: object) -> Major | None:
    if use is accumulator:
        if layout is not None:
            raise BadCall(
                "an accumulator has no layout; load_matrix_sync and "
                "store_matrix_sync take mem_row_major or mem_col_major"
            )
        return None
    if layout is None:
        raise BadCall(f"{use.name} needs a layout: row_major or col_major")
    major: Major = member(Major, layout, "layout of a multiplicand")
    only = row_major if use is matrix_a else col_major
    if of.name in SUB_BYTE_STORAGE and major is not only:
        name = NAMES[of.name][0]
        raise BadCall(f"{use.name} of {name} must be {only.name}; given {major.name}")
    return major
