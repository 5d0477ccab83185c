"""Loads, stores and products of fragments.

These are the functions of ``nvcuda::wmma``; :mod:`fragmenta.wmma` has an example.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array, is_real, is_whole
from fragmenta.errors import (
    BadCall,
    Error,
    ShapeError,
    UnknownInstruction,
    UnsupportedTarget,
    ValueRangeError,
    one_of,
)
from fragmenta.reference.execution.mma import execute
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.isa.target import number
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Index
from fragmenta.reference.wmma.fragments import fragment
from fragmenta.reference.wmma.memory import pointer, view
from fragmenta.reference.wmma.names import (
    NAMES,
    CallTarget,
    accumulator,
    bmmaAccumulateOp,
    bmmaBitOp,
    choose,
    layout_t,
    matrix_a,
    matrix_b,
    member,
    no_member,
)


class DeprecatedVariant(DeprecationWarning):
    """The programming guide deprecates this multiplication on the given target.

    >>> from fragmenta.wmma import *

    >>> a = fragment(matrix_a, 8, 8, 32, "s4", row_major)
    >>> b = fragment(matrix_b, 8, 8, 32, "s4", col_major)
    >>> c = fragment(accumulator, 8, 8, 32, int)
    >>> for each in (a, b, c):
    ...     fill_fragment(each, 1)
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     mma_sync(c, a, b, c, target="sm_90")
    >>> said[0].category.__name__
    'DeprecatedVariant'
    """


# ── memory ──────────────────────────────────────────────────────────────────


def load_matrix_sync(
    frag: fragment,
    memory: Array | bytes | bytearray | memoryview | pointer,
    ldm: int,
    layout: layout_t | None = None,
    *,
    offset: ArrayLike = 0,
    target: str | None = None,
) -> None:
    """Load a fragment from memory.

    ``ldm`` is the distance in elements between the beginnings of rows (row major) or
    columns.  ``offset`` is the element at which the matrix begins: one for all warps,
    or one for each.  A :class:`pointer` can be given instead, as in C++.  Only an
    accumulator takes ``layout``.

    >>> from fragmenta.wmma import *

    >>> A = np.arange(16 * 24, dtype=np.int8)
    >>> a = fragment(matrix_a, 16, 16, 16, signed_char, row_major)
    >>> load_matrix_sync(a, A, 20)
    Traceback (most recent call last):
    ...
    fragmenta.errors.AlignmentError: ldm 20 of signed char is 20 bytes; it must \
be a multiple of 8 bytes, 8 elements (nearest: 16 or 24)
    >>> load_matrix_sync(a, A, 16, offset=32)
    >>> int(a.x[0, 0])
    32
    """
    _require_fragments(frag=frag)
    chosen = choose(target)
    _require(_move(frag), chosen, frag)
    access = frag._access("load_matrix_sync", chosen.rules)
    found = view(access, memory, ldm, _load_layout(frag, layout), offset)
    frag.x.view(found.units.dtype)[...] = found.units[found.index]


def store_matrix_sync(
    memory: Array | bytearray | memoryview | pointer,
    frag: fragment,
    ldm: int,
    layout: layout_t,
    *,
    offset: ArrayLike = 0,
    target: str | None = None,
) -> None:
    """Store an accumulator to memory; after an error, nothing has been written.

    >>> from fragmenta.wmma import *

    >>> c = fragment(accumulator, 8, 8, 32, int)
    >>> fill_fragment(c, 7)
    >>> D = np.zeros((8, 12), np.int32)
    >>> store_matrix_sync(D, c, 12, mem_row_major)
    >>> D[0]
    array([7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0], dtype=int32)
    >>> store_matrix_sync(D, c, 12, mem_row_major, offset=8)
    Traceback (most recent call last):
    ...
    fragmenta.errors.OutOfBounds: store_matrix_sync would access elements 8 to 99 \
of memory with 96 elements of int
    """
    _require_fragments(frag=frag)
    if frag.use is not accumulator:
        raise BadCall(f"only an accumulator can be stored; given {frag}")
    chosen = choose(target)
    _require(_move(frag), chosen, frag)
    _require_defined(frag=frag)
    major = member(layout_t, layout, "layout in memory")
    access = frag._access("store_matrix_sync", chosen.rules, write=True)
    found = view(access, memory, ldm, major.value, offset)
    found.units[found.index] = frag.x.view(found.units.dtype)


def fill_fragment(frag: fragment, value: float) -> None:
    """Set every element to one value, converted as in C++.

    Integers keep their low bits, and fractions are truncated.  A floating-point value
    outside the range of an integer type is refused: in C++ the result is undefined.

    >>> from fragmenta.wmma import *

    >>> a = fragment(matrix_a, 8, 8, 32, "s4", row_major)
    >>> fill_fragment(a, -2)
    >>> hex(a.registers[0, 0])
    '0xeeeeeeee'
    >>> b = fragment(matrix_b, 16, 16, 16, signed_char, col_major)
    >>> fill_fragment(b, -1.75)
    >>> int(b.x[0, 0])
    -1
    """
    _require_fragments(frag=frag)
    of = frag.element_type
    number = _one_number(value)
    if of.is_integer:
        low = _converted(number, frag.storage_element_type) & of.mask
        bits = 8 * frag.storage_element_type.itemsize
        word = sum(low << at for at in range(0, bits, of.bits))
        frag.x.view(f"u{bits // 8}")[...] = word
    else:
        with np.errstate(all="ignore"):  # too large becomes infinite, as in C++
            wide = number.astype(np.float64) if number.dtype == object else number
            frag.x[...] = wide.astype(of.storage)


def _one_number(value: object) -> Array:
    given = as_array(value)
    if is_whole(value) and given.dtype == object and abs(given.item()) < 1 << 1023:
        return given  # an integer beyond 64 bits
    if given.ndim or not is_real(given):
        raise ValueRangeError(f"fill_fragment takes one real number; given {value!r}")
    return given


def _converted(number: Array, storage: np.dtype[np.generic]) -> int:
    """A number as an integer; refuses a float outside the range of the type."""
    if number.dtype == object or number.dtype.kind in "biu":
        return int(number)
    value = float(number)
    limits = np.iinfo(storage.name)
    if not limits.min - 1 < value < limits.max + 1:  # true for NaN too
        raise ValueRangeError(
            f"{storage} holds {limits.min} to {limits.max}; given {value}, whose "
            "conversion is undefined in C++"
        )
    return int(value)


def _require(op: Instruction, chosen: CallTarget, what: object) -> None:
    if not op.supported_on(chosen.name):
        raise UnsupportedTarget(f"{what} needs {op.requires.text}; given {chosen.name}")


def _load_layout(frag: fragment, layout: object) -> str:
    """``row`` or ``col``, from the fragment or from the call."""
    if frag.memory_layout is None:
        if layout is None:
            raise BadCall(f"loading {frag} needs mem_row_major or mem_col_major")
        return str(member(layout_t, layout, "layout in memory").value)
    if layout is not None:
        raise BadCall(
            f"{frag} has its own layout, so layout must not be given; given {layout!r}"
        )
    return frag.memory_layout.value


@lru_cache
def _load(operand: str, layout: str, shape: str, of: str) -> Instruction:
    return instruction(f"wmma.load.{operand}.sync.aligned.{layout}.{shape}.{of}")


def _move(frag: fragment) -> Instruction:
    """The load instruction of a fragment; it knows the targets."""
    layout = frag.memory_layout.value if frag.memory_layout else "row"
    operand = frag.use.value.lower()
    return _load(operand, layout, str(frag.shape), frag.element_type.name)


# ── multiplication ──────────────────────────────────────────────────────────


def mma_sync(
    d: fragment,
    a: fragment,
    b: fragment,
    c: fragment,
    satf: bool = False,
    *,
    target: str | None = None,
) -> None:
    """D = A B + C, exactly as the target computes it; ``d`` may be ``c``.

    With ``satf``, integer results are clamped instead of wrapping around.

    >>> from fragmenta.wmma import *

    >>> a = fragment(matrix_a, 8, 8, 32, "u4", row_major)
    >>> b = fragment(matrix_b, 8, 8, 32, "u4", col_major)
    >>> c = fragment(accumulator, 8, 8, 32, int)
    >>> for each, value in ((a, 15), (b, 15), (c, 2**31 - 1)):
    ...     fill_fragment(each, value)
    >>> mma_sync(c, a, b, c, True)
    >>> int(c.x[0, 0]) == 2**31 - 1
    True
    """
    _check_operands(d, a, b, c)
    if a.element_type.name == "b1":
        raise BadCall(f"mma_sync does not multiply {a}; bmma_sync does")
    if not isinstance(satf, bool | np.bool_):
        raise BadCall(f"satf must be True or False; given {satf!r}")
    if satf and not a.element_type.is_integer:
        name = NAMES[a.element_type.name][0]
        raise BadCall(f"satf is for integers; given {a} of {name}")
    _multiply(d, a, b, c, "", "satfinite" if satf else "", target)


def bmma_sync(
    d: fragment,
    a: fragment,
    b: fragment,
    c: fragment,
    op: bmmaBitOp = bmmaBitOp.bmmaBitOpXOR,
    accumulate: bmmaAccumulateOp = bmmaAccumulateOp.bmmaAccumulateOpPOPC,
    *,
    target: str | None = None,
) -> None:
    """D = C + the number of ones in (a row of A ``op`` a column of B).

    >>> from fragmenta.wmma import *

    >>> a = fragment(matrix_a, 8, 8, 128, "b1", row_major)
    >>> b = fragment(matrix_b, 8, 8, 128, "b1", col_major)
    >>> c = fragment(accumulator, 8, 8, 128, int)
    >>> for each, value in ((a, 1), (b, 0), (c, 1000)):
    ...     fill_fragment(each, value)
    >>> bmma_sync(c, a, b, c, experimental.bmmaBitOpXOR)
    >>> int(c.x[0, 0])
    1128
    """
    _check_operands(d, a, b, c)
    if a.element_type.name != "b1":
        raise BadCall(f"bmma_sync does not multiply {a}; mma_sync does")
    for kind, given in ((bmmaBitOp, op), (bmmaAccumulateOp, accumulate)):
        if not isinstance(given, kind):
            raise no_member(kind, given, kind.__name__)
    word = "xor" if op is bmmaBitOp.bmmaBitOpXOR else "and"
    _multiply(d, a, b, c, f"{word}.popc", "", target, op.name)


def _check_operands(d: fragment, a: fragment, b: fragment, c: fragment) -> None:
    """Refuse fragments that do not fit together."""
    wanted = {"d": accumulator, "a": matrix_a, "b": matrix_b, "c": accumulator}
    given = {"d": d, "a": a, "b": b, "c": c}
    _require_fragments(**given)
    for name, each in given.items():
        if each.use is not wanted[name]:
            raise BadCall(f"{name} must be {wanted[name].name}; given {each}")
        if each.shape != a.shape:
            raise ShapeError(
                f"{name} is {each}, but a is {a}: the shapes must be the same"
            )
    if a.element_type != b.element_type:
        raise UnknownInstruction(
            f"a is {a} and b is {b}: their element types must be the same"
        )
    try:
        together = np.broadcast_shapes(a.warps, b.warps, c.warps, d.warps)
    except ValueError:
        together = ()
    if together != d.warps:
        shapes = one_of((f"{name} {each.warps}" for name, each in given.items()), "and")
        raise ShapeError(f"the warps of {shapes} do not fit those of d")
    _require_defined(a=a, b=b, c=c)


def _require_fragments(**given: object) -> None:
    for name, each in given.items():
        if not isinstance(each, fragment):
            raise BadCall(f"{name} must be a fragment; given {type(each).__name__}")


def _require_defined(**given: fragment) -> None:
    for name, each in given.items():
        if not each._defined:
            raise Error(f"{name}, {each}, was not loaded or filled before")


def _multiply(
    d: fragment,
    a: fragment,
    b: fragment,
    c: fragment,
    bitop: str,
    satfinite: str,
    named: str | None,
    what: str = "",
) -> None:
    chosen = choose(named)
    op = _mma(
        *(each.memory_layout.value for each in (a, b) if each.memory_layout),
        str(a.shape),
        *(each.element_type.name for each in (d, a, c)),
        bitop,
        satfinite,
    )
    _require(op, chosen, what or a)
    _warn_deprecated(a, bitop, chosen)
    for each in (a, b):
        _refuse_torn(each)
    registers = execute(op, a.registers, b.registers, c.registers, target=chosen.name)
    d.registers[...] = registers


@lru_cache
def _mma(
    a_layout: str,
    b_layout: str,
    shape: str,
    d: str,
    a: str,
    c: str,
    bitop: str,
    satfinite: str,
) -> Instruction:
    """The PTX instruction of a call of mma_sync or bmma_sync."""
    types = (d, c) if a == "f16" else (d, a, a, c)
    words = ("wmma.mma", bitop, "sync.aligned", a_layout, b_layout, shape, *types)
    try:
        return instruction(".".join(word for word in (*words, satfinite) if word))
    except UnknownInstruction as why:
        of, with_c, with_d = (NAMES[each][0] for each in (a, c, d))
        raise UnknownInstruction(
            f"{of} has no mma_sync with c of {with_c} and d of {with_d}: {why}"
        ) from why


def _warn_deprecated(a: fragment, bitop: str, chosen: CallTarget) -> None:
    """Warn if such a target is given: the guide announces the removal in sm_90."""
    if not chosen.named or number(chosen.name) < 90:
        return
    of = a.element_type.name
    if of in ("u4", "s4") or bitop == "xor.popc":
        what = NAMES[of][0] + (" with bmmaBitOpXOR" if bitop else "")
        warnings.warn(
            f"the CUDA programming guide deprecates {what} and announces its removal "
            f"in sm_90; on {chosen.name} the assembler still accepts it, and computes "
            "it by other instructions",
            DeprecatedVariant,
            stacklevel=4,
        )


def _refuse_torn(frag: fragment) -> None:
    """Refuse copies of an element that differ: it is not defined which is used."""
    part = frag._part
    if part.layout.copies == 1:
        return
    bits = frag._x.view(f"uint{part.dtype.bits}").reshape(*frag.warps, -1)
    if (bits != bits[..., _first_copies(part)]).any():
        raise Error(
            f"{frag} has copies of elements, and x was changed so that they differ; "
            "change every copy in the same way"
        )


@lru_cache
def _first_copies(part: Fragment) -> Index:
    """For each place, the first place with the same element."""
    first: Index = part.layout.scatter().ravel()[part.layout.gather().ravel()]
    return first


# ── tf32 ────────────────────────────────────────────────────────────────────


def float_to_tf32(value: ArrayLike) -> Any:
    """Round float32 to tf32: to nearest, ties away from zero.

    The bits are those of ``cvt.rna.tf32.f32``.  The machine code that ptxas generates
    for it, on every target with tf32, adds half of the last kept place to a finite
    value and then clears the low 13 bits.  So values above the largest tf32 become
    infinite, and infinities stay.  A NaN keeps its sign and the upper 10 bits of its
    payload; if these are all zero, which no arithmetic produces, it becomes an
    infinity.

    CUDA's name ``__float_to_tf32`` exists here too.  The name without underscores is
    for use inside a class, where Python rewrites names that begin with ``__``.

    >>> import fragmenta.wmma
    >>> float_to_tf32(np.float32(1 + 2**-11))
    np.float32(1.0009766)
    >>> fragmenta.wmma.__float_to_tf32([1 + 2**-12, -1 - 2**-11])
    array([ 1.       , -1.0009766], dtype=float32)
    """
    source = as_array(float(value) if isinstance(value, int) else value)
    if not is_real(source):
        raise ValueRangeError(f"float_to_tf32 takes real numbers; given {source.dtype}")
    with np.errstate(all="ignore"):  # a float64 too large for float32 becomes infinite
        given = source.astype(np.float32)
    bits = given.view(np.uint32)
    finite = bits & np.uint32(0x7F800000) != 0x7F800000
    rounded = bits + np.where(finite, np.uint32(0x1000), np.uint32(0))
    kept: Array = (rounded & np.uint32(0xFFFFE000)).astype(np.uint32)
    return kept.view(np.float32)[()]


__float_to_tf32 = float_to_tf32
