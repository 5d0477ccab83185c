"""Names of inputs: which memory of two programs stands for the same numbers.

Memory is named after the array that it is a view of: ``x[3:4]`` and ``x`` share names.
Two programs share names where they share memory, and where an array of the same
parameter holds the same numbers, or the first of them.  ``labels`` says it in other
cases.  Arrays of whole numbers have no names: they are taken as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import BadCall, nearest
from fragmenta.inspect.sameness.calls import ArrayArgument, Program
from fragmenta.reference.registers.dtype import dtype
from fragmenta.values.expressions.algebra import Name

Labels: TypeAlias = Mapping[str, "str | tuple[str, int]"]
"""For parameters: the label of an array, or the label and its first element."""


@dataclass(eq=False)
class Root:
    """Memory that arrays are views of."""

    array: Array
    name: str
    """The parameter that showed it first."""
    bits: int
    """The bits of an element that has a name; 0 if numbers are taken as they are."""
    label: str = ""
    first: int = 0
    """The number of its first element under this label."""
    floats: np.dtype[np.generic] | None = None
    """The type of its elements, if they have names."""
    shape: tuple[int, ...] = ()
    """Its shape where it is an argument as a whole."""

    @property
    def start(self) -> int:
        """Its address on this machine."""
        return int(np.lib.array_utils.byte_bounds(self.array)[0])

    @property
    def size(self) -> int:
        """Its bytes."""
        low, high = np.lib.array_utils.byte_bounds(self.array)
        return int(high - low)

    def named(self) -> Name | None:
        """The names of its elements."""
        return Name(self.label, self.first, self.bits) if self.bits else None

    @property
    def raw(self) -> Array:
        """The bits of its elements with names, which may be changed."""
        whole = self.array.ravel(order="K")  # a view: it has no gaps
        return whole.view(f"u{self.bits // 8}")

    def holds(self, array: Array) -> bool:
        """Whether an array is a view of it."""
        low, high = np.lib.array_utils.byte_bounds(array)
        return bool(self.start <= low and high <= self.start + self.size)


def root_of(array: Array) -> Array:
    """The array whose memory an array is a view of.

    >>> x = np.zeros((4, 4))
    >>> root_of(x[1:2, ::2]) is x
    True
    """
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def float_bits(array: Array) -> int:
    """The bits of an element, if the elements are floats; else 0.

    >>> float_bits(np.zeros(2, np.float16)), float_bits(np.zeros(2, np.int32))
    (16, 0)
    """
    named = array.dtype.name
    fits = array.dtype.kind == "f" or named.startswith(("bfloat", "float8"))
    return 8 * array.itemsize if fits and array.itemsize in (1, 2, 4, 8) else 0


def roots(
    of: Program,
    by_value: Collection[str] = (),
    types: Mapping[str, str] | None = None,
) -> list[Root]:
    """The memory of a program; parameters in ``by_value`` are taken as they are.

    ``types`` says of parameters which floats their whole numbers are.
    """
    found: list[Root] = []
    for name, array in _given(of):
        if not array.nbytes:
            continue
        whole = root_of(array)
        known = next((each for each in found if each.holds(array)), None)
        given = (types or {}).get(name)
        bits = dtype(given).bits if given else float_bits(array)
        bits = 0 if name in by_value else bits
        if known is None:
            known = Root(whole, name, 0, shape=whole.shape or (1,))
            found.append(known)
        if bits and not known.bits:
            known.bits = bits
            known.floats = dtype(given).storage if given else array.dtype
        if array.nbytes == known.size:
            known.shape = array.shape or (1,)
    return found


def check_names(of: Program, names: Iterable[str], what: str) -> None:
    """Refuse names that no array among the arguments has."""
    known = list(dict.fromkeys(name for name, _ in _given(of)))
    for each in names:
        if each not in known:
            raise BadCall(
                f"{what}: no array is called {each!r}{nearest(str(each), known)}; "
                f"there are {', '.join(known) or 'none'}"
            )


def _given(of: Program) -> Iterable[ArrayArgument]:
    return (each for call in of for each in call.arrays())


def name_roots(given: Iterable[Root], labels: Labels | None = None) -> None:
    """Give memory of one program its labels: the names of parameters."""
    taken: set[str] = set()
    for each in given:
        chosen = (labels or {}).get(each.name)
        if chosen is not None:
            label, each.first = (chosen, 0) if isinstance(chosen, str) else chosen
            each.label = label
        else:
            each.label = _free(each.name, taken)
        taken.add(each.label)


def _free(name: str, taken: set[str]) -> str:
    label, number = name, 2
    while label in taken:
        label, number = f"{name}#{number}", number + 1
    return label


def name_alike(first: list[Root], second: list[Root], labels: Labels | None) -> None:
    """Give memory of a second program the labels of the first, where they agree."""
    taken = {each.label for each in first}
    for each in second:
        chosen = (labels or {}).get(each.name)
        if chosen is not None:
            label, each.first = (chosen, 0) if isinstance(chosen, str) else chosen
            each.label = label
            continue
        twin = _twin(each, first)
        if twin is None:
            each.label = _free(f"{each.name}'", taken)
        else:
            step = each.start - twin.start if twin.holds(each.array) else 0
            each.label = twin.label
            each.first = twin.first + (step * 8 // twin.bits if twin.bits else 0)
        taken.add(each.label)


def _twin(of: Root, among: list[Root]) -> Root | None:
    """The memory that stands for the same numbers."""
    for each in among:
        if each.holds(of.array) or of.holds(each.array):
            return each
    for each in among:
        if each.name == of.name and each.bits == of.bits and _begins(each, of):
            return each
    return None


def _begins(first: Root, second: Root) -> bool:
    """Whether one array holds the first numbers of the other."""
    one, two = (_bytes(each.array) for each in (first, second))
    size = min(one.size, two.size)
    return bool(np.array_equal(one[:size], two[:size]))


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
