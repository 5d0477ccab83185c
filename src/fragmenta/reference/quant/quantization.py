"""Quantisation: numbers as small elements with scales, and back.

    quantize     numbers -> elements, one scale for each block, perhaps one for all
    dequantize   elements and scales -> the numbers that they stand for, exactly

A format is an element type, a type of scales, and how many elements share a scale::

    nvfp4                     e2m1   a ue4m3 for 16 elements, a float32 for the matrix
    mxfp4                     e2m1   a ue8m0 for 32 elements
    mxfp6_e2m3, mxfp6_e3m2           a ue8m0 for 32 elements
    mxfp8_e4m3, mxfp8_e5m2           a ue8m0 for 32 elements
    e4m3, e5m2, s8, s4, …            a float32 for a row, a column, a group, a matrix

An instruction with block scales is a format, too.  The elements of a block follow each
other along k: along a row of A, along a column of B.

Each number is divided by its scale and rounded once, as if both steps were exact; see
:mod:`fragmenta.reference.arithmetic.rounding` and
:mod:`fragmenta.reference.arithmetic.scale_rules`.

>>> import fragmenta as fm
>>> q = quantize("mxfp4", [[1.0, -2.7, 0.3, 12.0]])
>>> q.values.astype(float), q.scales.astype(float)
(array([[ 0.5, -1.5,  0. ,  6. ]]), array([[2.]]))
>>> dequantize(q)
array([[ 1., -3.,  0., 12.]])
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array, is_real, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.threads import in_blocks
from fragmenta.base.progress import bar
from fragmenta.errors import (
    BadCall,
    ShapeError,
    UnknownOperand,
    UnknownType,
    ValueRangeError,
    one_of,
    shortened,
)
from fragmenta.reference.arithmetic.rounding import Numbers, round_elements
from fragmenta.reference.arithmetic.scale_rules import (
    RULES,
    block_scales,
    tensor_scales,
)
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.isa.synonyms import meaning
from fragmenta.reference.registers.dtype import DType, dtype, nearest_type

ELEMENTS = ("e2m1", "e2m3", "e3m2", "e4m3", "e5m2", "s4", "s8")
"""The types that numbers are scaled for."""
_AXES = {"A": -1, "B": -2}
_SHARED = {"row": -1, "column": -2, "tensor": -1}


@dataclass(frozen=True)
class _Format:
    """What is made of the numbers."""

    name: str
    dtype: DType
    scale_dtype: DType
    axis: int = -1
    block: int = 0
    """Elements along the axis that share a scale; 0 for all of them."""
    whole: int = 1
    """The scales are those of a multiple of this many elements."""
    tensor: bool = False
    """Whether a plain format has one scale for the matrix."""
    rule: str = ""

    @property
    def two_level(self) -> bool:
        return self.scale_dtype.name == "ue4m3"


def _block_formats() -> dict[str, _Format]:
    types = {"mxfp4": "e2m1"}
    for each in ("mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3", "mxfp8_e5m2"):
        types[each] = each.partition("_")[2]
    power = dtype("ue8m0")
    return {
        "nvfp4": _Format("nvfp4", dtype("e2m1"), dtype("ue4m3"), block=16),
        **{name: _Format(name, dtype(t), power, block=32) for name, t in types.items()},
    }


FORMATS = _block_formats()
_SEVERAL = {
    "fp4": ("nvfp4", "mxfp4", "e2m1"),
    "fp6": ("mxfp6_e2m3", "mxfp6_e3m2"),
    "fp8": ("mxfp8_e4m3", "mxfp8_e5m2", "e4m3", "e5m2"),
    "mxfp6": ("mxfp6_e2m3", "mxfp6_e3m2"),
    "mxfp8": ("mxfp8_e4m3", "mxfp8_e5m2"),
}
"""Names that leave a choice."""
_TORCHAO = {"floor": "ocp", "rceil": "up"}
"""Rules that torchao has under other names."""


@dataclass(frozen=True, eq=False, repr=False)
class Quantized:
    """Elements and their scales, as :func:`quantize` makes them.

    >>> import numpy as np, fragmenta as fm
    >>> q = fm.quant.quantize("nvfp4", np.ones((2, 3, 64)))
    >>> q
    <Quantized 2x3x64 nvfp4: e2m1, one ue4m3 for 16 along axis -1, rule nearest>
    >>> q.scales.shape, q.tensor_scale.shape
    ((2, 3, 4), (2, 1, 1))

    What another program quantised can be given, too:

    >>> s4, f32 = fm.dtype("s4"), fm.dtype("f32")
    >>> q = fm.quant.Quantized([[3, -7]], [[0.5]], s4, f32, block=2)
    >>> fm.quant.dequantize(q)
    array([[ 1.5, -3.5]])
    """

    values: Array
    """The elements, in the shape of the numbers."""
    scales: Array
    """The scale of each block.  For A (…, M, blocks), for B (…, blocks, N)."""
    dtype: DType
    """The type of the elements."""
    scale_dtype: DType
    """The type of the scales: ue4m3, ue8m0 or f32."""
    block: int
    """How many elements along the axis share a scale."""
    axis: int = -1
    """The axis along which elements share a scale: -1 for A, -2 for B."""
    tensor_scale: NDArray[np.float32] | None = None
    """One more factor for each matrix, (…, 1, 1); None without."""
    rule: str = ""
    """How the scales were chosen; empty if that is not known."""
    format: str = ""
    """The name of the format."""

    def __post_init__(self) -> None:
        of, scale = dtype(self.dtype), dtype(self.scale_dtype)
        stored = {
            "dtype": of,
            "scale_dtype": scale,
            "values": of.decode(of.encode(self.values)),
            "scales": scale.decode(scale.encode(self.scales)),
        }
        if self.tensor_scale is not None:
            factor = dtype("f32").encode(self.tensor_scale)
            stored["tensor_scale"] = factor.view(np.float32)
        for name, each in stored.items():
            object.__setattr__(self, name, each)
        if self.axis not in (-1, -2) or not is_whole(self.block) or self.block < 1:
            raise ShapeError(
                "axis is -1 or -2 and block is 1 or more; given "
                f"{self.axis!r} and {self.block!r}"
            )
        self._check_shapes()

    def _check_shapes(self) -> None:
        shape, given = self.values.shape, self.scales.shape
        if len(shape) < 2 or len(given) != len(shape):
            raise ShapeError(
                "values and scales are matrices with the same batch axes; given "
                f"shapes {shape} and {given}"
            )
        across = -3 - self.axis
        least = -(-shape[self.axis] // self.block)
        if (
            given[:-2] != shape[:-2]
            or given[across] not in (1, shape[across])
            or given[self.axis] < least
        ):
            wanted = list(shape)
            wanted[self.axis] = least
            raise ShapeError(
                f"values of shape {shape} with one scale for {self.block} along axis "
                f"{self.axis} have scales of shape {tuple(wanted)}; given {given}"
            )
        if self.tensor_scale is not None:
            each = self.tensor_scale.shape
            if each not in ((), (*shape[:-2], 1, 1)):
                raise ShapeError(
                    f"tensor_scale is one number, or has shape {(*shape[:-2], 1, 1)}; "
                    f"given {each}"
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        return self.values.shape

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        name = f" {self.format}" if self.format else ""
        return f"<Quantized {size}{name}: {described(self)}>"


def described(q: Quantized) -> str:
    """The types, what shares a scale, and the rule.

    >>> described(quantize("s8", [[1.0, 2.0], [3.0, 4.0]], per="tensor"))
    's8, one f32 for each matrix, rule nearest'
    """
    shared = f"{q.block} along axis {q.axis}"
    if q.scales.shape[-3 - q.axis] < q.shape[-3 - q.axis]:  # rows, or columns, share it
        alone = q.scales.shape[q.axis] == 1
        shared = "each matrix" if alone else f"{shared} of each matrix"
    rule = f", rule {q.rule}" if q.rule else ""
    return f"{q.dtype}, one {q.scale_dtype} for {shared}{rule}"


def quantize(
    op: Instruction | DType | str,
    X: ArrayLike,
    *,
    operand: str = "A",
    per: str | int | None = None,
    rule: str | None = None,
    tensor_scale: ArrayLike | None = None,
) -> Quantized:
    """The elements and scales of numbers, for a format or an operand of an instruction.

    ``op`` is an instruction, an element type, or ``nvfp4``, ``mxfp4``, ``mxfp6_e2m3``,
    ``mxfp6_e3m2``, ``mxfp8_e4m3``, ``mxfp8_e5m2``.  ``operand`` is ``"A"``, with blocks
    along the rows, or ``"B"``, with blocks along the columns.  X is (…, rows, columns).

    Without block scales, ``per`` says what shares a float32 scale: ``"row"`` (usual for
    A), ``"column"`` (usual for B), ``"tensor"``, or how many elements along k.

    ``rule`` is how scales are chosen: ``"ocp"``, ``"up"`` or ``"nearest"``; the module
    ``fragmenta.reference.arithmetic.scale_rules`` defines them.  ``nvfp4`` has a
    float32 for each matrix besides, amax / (6 * 448); ``tensor_scale`` is another
    one, 1 for none.

    The last block may be shorter.  With an instruction, scales fill up the last one.
    Elements of a block whose scale is 0 are zeros.  NaN and infinity are refused.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k64", a="e2m1", kind="mxf4nvf4", stype="ue4m3")
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(16, 64)), rng.normal(size=(64, 8))
    >>> a, b = quantize(op, X), quantize(op, Y, operand="B")
    >>> D = op(a.values, b.values, scale_a=a.scales, scale_b=b.scales)
    >>> D = D * a.tensor_scale * b.tensor_scale
    >>> bool(np.abs(D - dequantize(a) @ dequantize(b)).max() < 1e-5)
    True
    >>> quantize("s8", [[1.0, 300.0]]).scales
    array([[2.3622048]], dtype=float32)
    """
    how = _format(op, operand, per, rule)
    given = numbers(X)
    if tensor_scale is not None and not how.two_level:
        raise BadCall(f"{how.name} has no tensor scale; nvfp4 has one")
    rows = given if how.axis == -1 else given.swapaxes(-1, -2)
    size = rows.shape[-1]
    if how.scale_dtype.name == "f32":  # of a group that is longer, the rest is missing
        how = replace(how, block=min(how.block or size, size))
    parts = _cut(rows, how)
    amax = np.abs(parts).max(-1)
    if how.tensor:
        amax = amax.max((-1, -2), keepdims=True)
    unit = _unit(amax, how, tensor_scale)
    scales = block_scales(amax, how.dtype, how.scale_dtype, how.rule, unit)
    found = scaled_elements(parts, scales * unit, how.dtype)
    found = found.reshape(*rows.shape[:-1], -1)[..., :size]
    if how.axis == -2:
        found, scales = found.swapaxes(-1, -2), scales.swapaxes(-1, -2)
    return Quantized(
        values=np.ascontiguousarray(found),
        scales=np.ascontiguousarray(scales),
        tensor_scale=unit.astype(np.float32) if how.two_level else None,
        dtype=how.dtype,
        scale_dtype=how.scale_dtype,
        axis=how.axis,
        block=how.block,
        rule=how.rule,
        format=how.name,
    )


def dequantize(q: Quantized) -> NDArray[np.float64]:
    """What elements and scales stand for: their products, which float64 holds exactly.

    >>> import numpy as np, fragmenta as fm
    >>> X = np.array([[448.0, 1.1, 0.0, -3.0]])
    >>> fm.quant.dequantize(fm.quant.quantize("e4m3", X))
    array([[448.   ,   1.125,   0.   ,  -3.   ]])
    """
    if not isinstance(q, Quantized):
        raise BadCall(
            f"dequantize takes what quantize returns, Quantized; given "
            f"{type(q).__name__}"
        )
    return np.asarray(q.values.astype(np.float64) * element_scales(q))


def element_scales(q: Quantized) -> NDArray[np.float64]:
    """The scale of each element, the tensor scale included, to multiply with.

    >>> element_scales(quantize("s4", [[1.0, 4.0]], per=1))
    array([[0.14285715, 0.5714286 ]])
    """
    size = q.shape[q.axis]
    scales = q.scales.astype(np.float64).repeat(min(q.block, size), axis=q.axis)
    scales = scales[..., :size] if q.axis == -1 else scales[..., :size, :]
    if q.tensor_scale is not None:
        scales = scales * q.tensor_scale.astype(np.float64)
    return scales


# ── the numbers ─────────────────────────────────────────────────────────────


def numbers(X: ArrayLike) -> Numbers:
    """X as float64, exactly; what is not a finite number is refused."""
    given = as_array(X)
    if not is_real(given):
        raise ValueRangeError(f"quantize takes real numbers, not {given.dtype}")
    if given.ndim < 2 or not given.size:
        raise ShapeError(
            f"X is (…, rows, columns) with an element or more; given {given.shape}"
        )
    with np.errstate(all="ignore"):
        wide = given.astype(np.float64)
    finite = np.isfinite(wide)
    if not finite.all():
        index = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueRangeError(
            f"{given[index]} at {list(index)}: it has no place in a scaled block; "
            "np.nan_to_num or np.clip replaces it"
        )
    integers = given.dtype.kind in "iu" and np.abs(wide).max() > 2.0**53
    if given.itemsize > 8 or integers:
        raise ValueRangeError(
            f"{given.dtype} may hold numbers that float64 does not; "
            ".astype(np.float64) rounds them"
        )
    return wide


def _cut(rows: Numbers, how: _Format) -> Numbers:
    """The numbers in blocks, (…, rows, blocks, elements), filled up with zeros."""
    step = max(how.block, how.whole)
    missing = -rows.shape[-1] % step
    if missing:
        rows = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, missing)])
    return rows.reshape(*rows.shape[:-1], -1, how.block)


def _unit(amax: Numbers, how: _Format, given: ArrayLike | None) -> Numbers:
    """The tensor scale of each matrix, (…, 1, 1); ones for formats without one."""
    top = amax.max((-1, -2), keepdims=True)
    if not how.two_level:
        return np.ones_like(top)
    if given is None:
        return tensor_scales(top, how.dtype, how.scale_dtype)
    f32 = dtype("f32")
    factor = f32.to_float64(f32.encode(given))
    if factor.shape not in ((), top.shape):
        raise ShapeError(
            f"tensor_scale is one number, or has shape {top.shape}; given "
            f"{factor.shape}"
        )
    if not ((factor > 0) & (factor < np.inf)).all():
        raise ValueRangeError(f"tensor_scale must be above 0 and finite; given {given}")
    return np.broadcast_to(factor, top.shape)


def scaled_elements(parts: Numbers, scales: Numbers, of: DType) -> Array:
    """Each number divided by the scale of its block, rounded; zeros if that is 0.

    The numbers are (…, rows, blocks, elements).

    >>> scaled_elements(np.array([[[1.0, 3.0]]]), np.array([[2.0]]), dtype("s8"))
    array([[[0, 2]]], dtype=int8)
    """
    flat = parts.reshape(-1, *parts.shape[-2:])
    divisors = np.where(scales == 0, np.inf, scales)  # zeros keep their sign
    divisors = np.broadcast_to(divisors, parts.shape[:-1]).reshape(*flat.shape[:2], 1)
    found = np.empty(flat.shape, of.storage)

    def work(rows: slice) -> None:
        with np.errstate(over="ignore", under="ignore"):
            quotient = flat[rows] / divisors[rows]
        found[rows] = round_elements(quotient, of).astype(of.storage)  # exact

    with bar("quantising") as progress:
        in_blocks(work, len(flat), 4 * flat[0].nbytes, progress)
    return found.reshape(parts.shape)


# ── the format ──────────────────────────────────────────────────────────────


def _format(op: object, operand: object, per: object, rule: object) -> _Format:
    """The format with its axis, its blocks and its rule."""
    if not isinstance(operand, str) or operand.upper() not in _AXES:
        raise UnknownOperand(f"operands with scales are A and B; given {operand!r}")
    name = operand.upper()
    how = replace(_named(op, name), axis=_AXES[name])
    if not how.block:
        how = _shared(how, {"A": "row", "B": "column"}[name] if per is None else per)
    elif per is not None:
        raise BadCall(
            f"{how.name} has one scale for {how.block} elements along k; per is for "
            f"formats without block scales; given {per!r}"
        )
    rules = RULES[how.scale_dtype.name]
    chosen = rules[0] if rule is None else str(rule).lower()
    if chosen not in rules:
        here = _TORCHAO.get(chosen)
        same = f"; what torchao calls {chosen} is {here}" if here in rules else ""
        raise BadCall(
            f"scales of {how.scale_dtype} have the rules {one_of(rules, 'and')}; given "
            f"{rule!r}{same}"
        )
    return replace(how, rule=chosen)


def _named(op: object, operand: str) -> _Format:
    """The format of a name, an element type or an operand of an instruction."""
    if isinstance(op, Instruction):
        return _of_instruction(op, operand)
    given = op.__name__ if isinstance(op, type) else str(op).strip()
    word = given.lower().removeprefix("torch.").removeprefix(".")
    if word in FORMATS:
        return FORMATS[word]
    choice = _SEVERAL.get(word.replace("float", "fp"))
    if choice:
        raise UnknownType(f"{word} may be {one_of(choice)}; name one of them")
    word = element_name(word)
    if word in ELEMENTS:
        return _Format(word, dtype(word), dtype("f32"))
    if "." in word:
        return _of_instruction(instruction(given), operand)
    known = (*FORMATS, *ELEMENTS)
    raise UnknownType(
        f"no format {shortened(given)}{nearest_type(word, known)}; there are "
        f"{one_of(known, 'and')}, and every instruction with these types"
    )


def element_name(word: str) -> str:
    """What PTX calls an element type that people, NumPy or PyTorch call otherwise.

    >>> element_name("int8"), element_name("float8_e4m3fn"), element_name("omma")
    ('s8', 'e4m3', 'omma')
    """
    meant = meaning(word)
    if meant is None or meant.families or meant.has or len(meant.types) != 1:
        return word
    return meant.types[0]


def _of_instruction(op: Instruction, operand: str) -> _Format:
    check_multiplies(op)
    of = op.types.get(operand.lower())
    if of is None:
        raise BadCall(f"{op} needs its instruction descriptor; it says the types")
    if of.name not in ELEMENTS:
        raise UnknownType(
            f"{operand} of {op} is {of}; numbers are scaled for {one_of(ELEMENTS)}"
        )
    if not op.scale_vec:
        return _Format(of.name, of, dtype("f32"))
    scale, block = op.scale_a.dtype, op.shape.k // op.scale_vec
    names = (
        f.name
        for f in FORMATS.values()
        if (f.dtype, f.scale_dtype, f.block) == (of, scale, block)
    )
    name = next(names, f"{of} with {scale}")
    return _Format(name, of, scale, block=block, whole=op.shape.k)


def _shared(how: _Format, per: object) -> _Format:
    """A format with float32 scales, for what shares one of them."""
    if isinstance(per, str) and per in _SHARED:
        return replace(how, axis=_SHARED[per], tensor=per == "tensor")
    if is_whole(per) and int(str(per)) > 0:
        return replace(how, block=int(str(per)))
    raise ShapeError(
        f"per is {one_of(_SHARED)}, or how many elements along k share a scale; given "
        f"{per!r}"
    )
