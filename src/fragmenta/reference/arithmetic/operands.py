"""Checks that matrices of raw bits fit the instruction and each other.

All operands are checked here, before anything is computed.  Afterwards all sizes
agree, and every pattern is valid.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TypeAlias

import numpy as np

from fragmenta.base.arrays.checks import Array, batch_shape
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.progress import Progress, ignore_progress
from fragmenta.errors import BadCall, ShapeError, ValueRangeError
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.registers.dtype import dtype

Bits: TypeAlias = Array


@dataclass(frozen=True, slots=True)
class Operands:
    """The checked operands of one call, each of shape (batch, rows, columns).

    An operand that is the same for the whole batch has batch 1.
    """

    model: Model
    a: Bits
    b: Bits
    c: Bits
    index: Bits | None
    scale_a: Bits | None
    scale_b: Bits | None
    leading: tuple[int, ...]  #: the batch axes of the result
    batches: int
    rows: int
    columns: int
    instructions: int  #: the number of instructions along k
    progress: Progress = ignore_progress

    @classmethod
    def check(
        cls,
        model: Model,
        a: Bits,
        b: Bits,
        c: Bits,
        index: Bits | None = None,
        scale_a: Bits | None = None,
        scale_b: Bits | None = None,
        progress: Progress = ignore_progress,
    ) -> Operands:
        """Refuse an operand that does not fit the model or the other operands.

        >>> from fragmenta.reference.arithmetic import model
        >>> f64 = model("sm_80", "f64", "f64", "f64", "f64", 4)
        >>> eye = np.eye(8).view(np.uint64)
        >>> checked = Operands.check(f64, eye, eye, eye)
        >>> checked.a.shape, checked.instructions
        ((1, 8, 8), 2)
        """
        given = {
            "a": patterns(a, model.a, "a"),
            "b": patterns(b, model.b, "b"),
            "c": patterns(c, model.c, "c"),
        }
        _expect(model, "index", model.sparse, index is not None)
        if index is not None:
            given["index"] = _positions(index, model.k)
        for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
            _expect(model, name, model.scale is not None, scale is not None)
            if scale is not None and model.scale is not None:
                given[name] = patterns(scale, model.scale, name)
        rows, columns, instructions = _sizes(given, model)
        leading, flat = _flatten(given)
        return cls(
            model,
            flat["a"],
            flat["b"],
            flat["c"],
            flat.get("index"),
            flat.get("scale_a"),
            flat.get("scale_b"),
            leading,
            prod(leading),
            rows,
            columns,
            instructions,
            progress,
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the result, with one axis for all batches."""
        return self.batches, self.rows, self.columns

    def copy_of(self, c: Bits) -> Bits:
        """A new array of the result's shape that holds c for every batch."""
        d = np.empty(self.shape, c.dtype)
        d[...] = c
        return d

    @property
    def products(self) -> int:
        """The number of all products."""
        length = self.instructions * self.model.stored
        return self.batches * self.rows * self.columns * length


def patterns(bits: Bits, name: str, what: str) -> Bits:
    """An array of raw bits of a type; anything else is refused.

    >>> patterns(np.array([7, 16], np.uint8), "s4", "a")
    Traceback (most recent call last):
    ...
    fragmenta.errors.ValueRangeError: a holds 0x10; s4 has 4 bits, up to 0xf
    """
    wanted, mask = _container(name)
    given = bits if isinstance(bits, np.ndarray) else np.asarray(bits)
    if given.dtype != wanted:
        given = _reinterpreted(given, wanted, name, what)
    if mask is not None and given.dtype == wanted and given.size:
        largest = int(given.max())
        if largest > mask:
            raise ValueRangeError(
                f"{what} holds {largest:#x}; {name} has {mask.bit_length()} bits, "
                f"up to {mask:#x}"
            )
    return given


@cache
def _container(name: str) -> tuple[np.dtype[np.generic], int | None]:
    """The NumPy type of a type's raw bits, and the mask if some bits are not used."""
    kind = dtype(name)
    full = kind.mask == np.iinfo(kind.bits_dtype.name).max
    return kind.bits_dtype, None if full else kind.mask


def _reinterpreted(
    given: Bits, wanted: np.dtype[np.generic], name: str, what: str
) -> Bits:
    """Signed integers as unsigned integers; packed b1 stays packed."""
    if name == "b1" and given.dtype in (np.uint32, np.int32):
        return given.view(np.uint32)
    if given.dtype.kind == "i" and given.dtype.itemsize == wanted.itemsize:
        return given.view(wanted)
    raise BadCall(
        f"{what} is {given.dtype}; raw bits of {name} are {wanted}; "
        f"fm.dtype({name!r}).encode converts values to raw bits"
    )


def _expect(model: Model, name: str, wanted: bool, given: bool) -> None:
    if wanted != given:
        raise BadCall(f"{model} {'needs' if wanted else 'takes no'} {name}")


def _positions(index: Bits, k: int) -> Bits:
    given = np.asarray(index)
    if given.dtype.kind not in "iu":
        raise BadCall(f"index is {given.dtype}; positions are integers")
    if given.size and (given.max() >= k or given.min() < 0):
        wrong = given.max() if given.max() >= k else given.min()
        raise ValueRangeError(
            f"index holds {wrong}; positions are 0 to {k - 1}, counted from the first "
            "k of the instruction"
        )
    return given.astype(np.uint8, copy=False)


def _sizes(given: dict[str, Bits], model: Model) -> tuple[int, int, int]:
    """Rows, columns and instructions along k; shapes that disagree are refused."""
    for name, array in given.items():
        if array.ndim < 2:
            raise ShapeError(
                f"{name} has shape {array.shape}; a matrix has two axes or more"
            )
    per_word = 32 if model.a == "b1" and given["a"].dtype == np.uint32 else 1
    rows, length = given["a"].shape[-2:]
    columns = given["b"].shape[-1]
    chained, rest = divmod(length * per_word, model.stored)
    if rest or not chained:
        raise ShapeError(
            f"a has {length * per_word} columns; {model} takes a multiple of "
            f"{model.stored}"
        )
    if chained > 1 and model.c != model.d:
        raise ShapeError(
            f"a has the columns of {chained} instructions, but {model} cannot use "
            f"the {model.d} result of one as the {model.c} c of the next"
        )
    blocks = chained * model.scale_vec
    wanted = {
        "a": (rows, length),
        "b": (chained * model.k // per_word, columns),
        "c": (rows, columns),
        "index": (rows, length),
        "scale_a": (rows, blocks),
        "scale_b": (blocks, columns),
    }
    for name, array in given.items():
        if array.shape[-2:] != wanted[name]:
            (m, n), (right_m, right_n) = array.shape[-2:], wanted[name]
            raise ShapeError(
                f"{name} is {m} x {n}; with a of {rows} x {length} and b of "
                f"{columns} columns it must be {right_m} x {right_n}"
            )
    return rows, columns, chained


def _flatten(given: dict[str, Bits]) -> tuple[tuple[int, ...], dict[str, Bits]]:
    """The batch axes, and every operand with all batch axes joined into one."""
    leading = given["a"].shape[:-2]
    if any(array.shape[:-2] != leading for array in given.values()):
        leading = batch_shape(**{name: x.shape[:-2] for name, x in given.items()})
    flat = {}
    for name, array in given.items():
        shape = array.shape[-2:]
        if array.shape[:-2] != leading and prod(array.shape[:-2]) != 1:
            array = np.broadcast_to(array, leading + shape)  # noqa: PLW2901
        count = prod(array.shape[:-2])
        flat[name] = np.ascontiguousarray(array).reshape(count, *shape)
    return leading, flat
