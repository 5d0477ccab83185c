"""Executes one ``mma``: the registers of D.

:func:`execute` takes registers and returns registers, with any batch axes.
:func:`call` takes matrices and returns a matrix.  The bits of the result depend on
the target, because targets round differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array, batch_shape, is_whole
from fragmenta.base.progress import Progress, ignore_progress
from fragmenta.errors import BadCall, BadMetadata, ShapeError, one_of
from fragmenta.reference import arithmetic
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.arithmetic.operands import Bits
from fragmenta.reference.isa.families import OF_WARPS, check_multiplies
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.quant.quantization import Quantized
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.registers.fragment import Fragment, Words
from fragmenta.reference.sparse.compression import (
    Compressed,
    check_compressed,
    compress,
)

# So many tiles are worth the compilation of machine code for them alone.
_TILES = 256

_INSTEAD = {
    "wmma.load": "fm.wmma.load_matrix_sync loads a fragment",
    "wmma.store": "fm.wmma.store_matrix_sync stores a fragment",
    "tcgen05.ld": "fm.tensor_memory.load(op, image, address) returns the registers",
    "tcgen05.st": "fm.tensor_memory.store(op, image, address, registers) returns "
    "tensor memory",
    "spcompress": "fm.sparse.compress_registers(op, data, spdesc) returns its "
    "registers",
    "spdecompress": "fm.sparse.decompress_registers(op, mdata, cdata) returns its "
    "registers",
    "tcgen05.cp": "fm.tensor_memory.copy(op, image, smem, address, descriptor) returns "
    "tensor memory",
}


def numeric_model(op: Instruction, target: str) -> Model:
    """How the target computes the instruction.

    >>> import fragmenta as fm
    >>> numeric_model(fm.mma("m16n8k16", a="f16", d="f32"), "sm_90a").products
    16
    """
    types = op.types
    bitop = op.values.get("bitop", "").removesuffix(".popc") or None
    return arithmetic.model(
        target,
        types["a"].name,
        types["b"].name,
        types.get("c", types["d"]).name,
        types["d"].name,
        op.shape.k,
        unit=op.unit,
        kind=op.kind,
        sparse=op.sparse,
        scale=op.values.get("stype") or None,
        scale_vec=op.scale_vec or None,
        rounding=op.values.get("rounding") or "rn",
        satfinite=op.satfinite,
        bitop=bitop,
        cta_group=op.cta_group or 1,
        ws=op.ws,
    )


def execute(
    op: Instruction,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    *,
    metadata: ArrayLike | None = None,
    selector: int = 0,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_a: int = 0,
    thread_a: int = 0,
    byte_b: int = 0,
    thread_b: int = 0,
    target: str | None = None,
) -> Words:
    """The registers of D: what one ``mma`` or ``mma.sp`` returns, bit for bit.

    Registers are (…, lanes, n), as :meth:`Fragment.pack` returns them; the leading
    axes of all operands broadcast.  The default ``target`` is sm_90a, or the first
    target with the instruction if sm_90a does not have it.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> one = op.a.pack(np.ones((16, 16), np.float16))
    >>> d = execute(op, one, op.b.pack(np.ones((16, 8), np.float16)),
    ...             op.c.pack(np.full((16, 8), 0.5, np.float32)))
    >>> float(op.d.unpack(d)[0, 0])
    16.5
    """
    if not op.warp:
        raise BadCall(
            f"{op.family} takes other operands; this function is for {one_of(OF_WARPS)}"
        )
    model = numeric_model(op, chosen_target(op, target))
    index = stored_columns(op, metadata, selector)
    scales = _scales(op, scale_a, scale_b, (byte_a, thread_a), (byte_b, thread_b))
    given = {
        "a": op.a.checked(a),
        "b": op.b.checked(b),
        "c": op.c.checked(c),
    }
    if _many(op, model, given):
        return _batch(op, model, given)
    return _as_matrices(op, model, given, index, scales)


def _as_matrices(
    op: Instruction,
    model: Model,
    given: Mapping[str, Array],
    index: Bits | None,
    scales: dict[str, Bits],
) -> Words:
    """The registers of D, from those of A, B and C as matrices."""
    d = multiply_bits(
        op.a.unpack_bits(given["a"]),
        op.b.unpack_bits(given["b"]),
        op.c.unpack_bits(given["c"]),
        model,
        index,
        scales,
    )
    return op.d.pack(op.d.dtype.decode(d))


def _many(op: Instruction, model: Model, given: dict[str, Words]) -> bool:
    """Whether there are so many tiles that they are computed in machine code alone."""
    tiles = prod(batch_shape(**{name: x.shape[:-2] for name, x in given.items()}))
    if model.form != "fused" or tiles < _TILES:
        return False
    from fragmenta.reference.execution import batches

    return batches.suits(op, model)


def _batch(op: Instruction, model: Model, given: dict[str, Words]) -> Words:
    """Many tiles; those that are left there are computed as matrices."""
    from fragmenta.reference.execution import batches

    d, left = batches.execute(op, model, given)
    if left.size:
        leading = d.shape[:-2]
        places = np.unravel_index(left, leading)
        some = {
            name: np.broadcast_to(each, leading + each.shape[-2:])[places]
            for name, each in given.items()
        }
        d[places] = _as_matrices(op, model, some, None, {})
    return d


def why_not(op: Instruction) -> str:
    """Why an instruction cannot be executed alone, and what to use instead.

    >>> import fragmenta as fm
    >>> print(why_not(fm.find("wgmma.wait_group")))
    wgmma.wait_group.sync.aligned has no result of its own; what it does is seen in a \
kernel: fm.ptx.parse
    >>> print(why_not(fm.find("spdecompress.b8.b4.sp::2:4.x2")))
    spdecompress.b8.b4.sp::2:4.x2 has no execute; \
fm.sparse.decompress_registers(op, mdata, cdata) returns its registers
    """
    kernel = "what it does is seen in a kernel: fm.ptx.parse"
    other = _INSTEAD.get(op.family)
    if other is None:
        return f"{op} has no result of its own; {kernel}"
    return f"{op} has no execute; {other}"


def call(
    op: Instruction,
    A: ArrayLike | Compressed,
    B: ArrayLike,
    C: ArrayLike | None = None,
    *,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    target: str | None = None,
) -> Array:
    """D = A B + C for matrices of the instruction's shape.

    A sparse instruction takes a pruned A or a ``Compressed`` one.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="s8")
    >>> A = np.ones((16, 32), np.int8)
    >>> int(call(op, A, np.ones((32, 8), np.int8))[3, 5])
    32
    """
    check_multiplies(op)
    where = chosen_target(op, target)
    a, index, columns = stored(op, A)
    _expect(op, "A", a.shape, (op.shape.m, op.stored_k))
    m, n, k = op.shape
    if columns != k:
        raise ShapeError(f"A of {op} is {m}x{k}; given a Compressed of {m}x{columns}")
    b = matrix_b(op, B)
    _expect(op, "B", b.shape, (k, n))
    c = accumulator(op, C, (m, n))
    _expect(op, "C", c.shape, (m, n))
    scales = scale_bits(op, scale_a, scale_b)
    for name, bits in scales.items():
        _expect(op, name, bits.shape, getattr(op, name).shape)
    model = numeric_model(op, where)
    d = multiply_bits(a, b, c, model, index, scales)
    return op.types["d"].decode(d)


def multiply_bits(
    a: Bits,
    b: Bits,
    c: Bits,
    model: Model,
    index: Bits | None,
    scales: dict[str, Bits],
    progress: Progress = ignore_progress,
) -> Bits:
    """``arithmetic.multiply``, with the scales in a dictionary."""
    scale_a, scale_b = scales.get("scale_a"), scales.get("scale_b")
    return arithmetic.multiply(
        a, b, c, model, index=index, scale_a=scale_a, scale_b=scale_b, progress=progress
    )


def scale_bits(
    op: Instruction, scale_a: ArrayLike | None, scale_b: ArrayLike | None
) -> dict[str, Bits]:
    """The bits of the scale matrices by name; empty without block scaling."""
    given = given_scales(op, scale_a, scale_b)
    return {name: _encode(op.scale_a.dtype, each) for name, each in given.items()}


def given_scales(
    op: Instruction, scale_a: ArrayLike | None, scale_b: ArrayLike | None
) -> dict[str, Any]:
    """The scales by name; missing or needless scales are refused.

    >>> import fragmenta as fm
    >>> given_scales(fm.mma("m16n8k16", a="f16", d="f32"), None, None)
    {}
    """
    both = {"scale_a": scale_a, "scale_b": scale_b}
    given = {name: each for name, each in both.items() if each is not None}
    if not op.scale_vec:
        if given:
            raise BadCall(f"{op} takes no scales")
        return {}
    if len(given) < len(both):
        missing = [name for name in both if name not in given]
        raise BadCall(f"{op} needs {one_of(missing, 'and')}")
    return given


class Shaped(Protocol):
    """An array, perhaps one of Dask, of which only the shape is looked at."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The size along each axis."""
        ...


def check_whole(
    op: Instruction,
    size: tuple[int, int, int],
    c: Shaped | None = None,
    scales: Mapping[str, Shaped] | None = None,
) -> None:
    """Refuse a C or scales that do not fit whole matrices of size m x n x k.

    >>> import fragmenta as fm, numpy as np
    >>> check_whole(fm.mma("m16n8k16", a="f16", d="f32"), (4, 5, 6), np.ones((4, 4)))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: A B is 4x5; C has shape (4, 4)
    """
    m, n, k = size
    if c is not None and c.shape != (m, n):
        raise ShapeError(f"A B is {m}x{n}; C has shape {c.shape}")
    blocks = -(-k // op.shape.k) * op.scale_vec
    wanted = {"scale_a": (m, blocks), "scale_b": (blocks, n)}
    for name, each in (scales or {}).items():
        rows, columns = wanted[name]
        if each.shape != (rows, columns):
            raise ShapeError(f"{name} is {rows}x{columns}; given {each.shape}")


class Stored(NamedTuple):
    """A as an instruction takes it."""

    bits: Bits
    places: Bits | None
    """The column of each stored value; None if A is dense."""
    columns: int
    """The columns of A with its zeros, but without the padding of the last chunk."""


def stored(op: Instruction, A: ArrayLike | Compressed) -> Stored:
    """The stored bits of A, the column of each value, and the width of A."""
    of = op.types["a"]
    if not op.sparse:
        if isinstance(A, Compressed):
            raise BadCall(f"{op} is dense; decompress A first")
        bits = signed(op, "a", _encode(of, A))
        return Stored(bits, None, bits.shape[-1] if bits.ndim else 0)
    if isinstance(A, Compressed):
        check_compressed(A, op)
    else:
        A = compress(op, A)
    bits = signed(op, "a", _encode(of, A.values))
    return Stored(bits, A.columns(), A.width)


def matrix_b(op: Instruction, B: ArrayLike) -> Bits:
    """The bits of B."""
    return signed(op, "b", _encode(op.types["b"], B))


def signed(op: Instruction, name: str, bits: Bits) -> Bits:
    """The bits of A or B, negated if the instruction descriptor says so.

    >>> import fragmenta as fm
    >>> op = fm.tcgen05("m128n16k16", kind="f16", a="f16", d="f32", negate_a=True)
    >>> signed(op, "a", np.uint16([0x3C00])).view(np.float16)
    array([-1.], dtype=float16)
    """
    word = op.descriptor
    if word is None or not (word.negate_a if name == "a" else word.negate_b):
        return bits
    return negated(bits, op.types[name])


def negated(bits: Bits, of: DType) -> Bits:
    """The same elements with their sign bits inverted."""
    inverted: Bits = bits ^ bits.dtype.type(1 << (of.bits - 1))
    return inverted


def accumulator(op: Instruction, C: ArrayLike | None, shape: tuple[int, ...]) -> Bits:
    """The bits of C; zeros if C is None."""
    of = op.types.get("c", op.types["d"])
    return np.zeros(shape, of.bits_dtype) if C is None else _encode(of, C)


def _encode(of: DType, matrix: ArrayLike) -> Bits:
    if isinstance(matrix, Quantized):
        raise BadCall(
            "a Quantized is given by its parts here, its values and its scales as "
            "scale_a= or scale_b=; fm.matmul takes it whole"
        )
    bits: Bits = of.encode(as_array(matrix))
    return bits


def _expect(
    op: Instruction, name: str, given: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    if given[len(given) - len(wanted) :] != wanted or len(given) < len(wanted):
        size = "x".join(map(str, wanted))
        raise ShapeError(f"{name} of {op} is {size}; given shape {given}")


def stored_columns(
    op: Instruction, metadata: ArrayLike | None, selector: int
) -> Bits | None:
    """The logical column of each stored value, from the metadata registers."""
    if not op.sparse:
        if metadata is not None or selector != 0:
            raise BadCall(f"{op} is dense: it takes no metadata and no selector")
        return None
    if metadata is None:
        raise BadMetadata(f"{op} needs metadata: op.metadata.pack(indices, selector)")
    if not is_whole(selector) or selector not in op.selectors:
        allowed = one_of(op.selectors)
        raise ShapeError(f"selector {selector!r} is out of range; {op} has {allowed}")
    codes = op.metadata.unpack(metadata, selector=selector)
    granularity = op.granularity
    assert granularity is not None
    values = np.empty((*codes.shape[:-1], op.stored_k), np.uint8)
    return Compressed(values, codes, granularity).columns()


def _scales(
    op: Instruction,
    scale_a: ArrayLike | None,
    scale_b: ArrayLike | None,
    a: tuple[int, int],
    b: tuple[int, int],
) -> dict[str, Bits]:
    """The bits of both scale matrices, chosen by their selectors."""
    if not op.scale_vec or scale_a is None or scale_b is None:
        if any((*a, *b)):
            has = "needs scale_a and scale_b" if op.scale_vec else "takes no scales"
            raise BadCall(
                f"byte_a, thread_a, byte_b and thread_b select scales; {op} {has}"
            )
        return scale_bits(op, scale_a, scale_b)  # empty, or an error
    return {
        "scale_a": op.scale_a.unpack_bits(scale_a, **_selected(op.scale_a, *a)),
        "scale_b": op.scale_b.unpack_bits(scale_b, **_selected(op.scale_b, *b)),
    }


def _selected(part: Fragment, byte: int, thread: int) -> dict[str, int]:
    """The selectors by name; a byte-id counts single bytes, not groups of bytes."""
    step = part.layout.shape[1 if part.name == "scale_A" else 0]
    if not is_whole(byte) or byte not in range(0, 5 - step, step):
        allowed = one_of(range(0, 5 - step, step))
        raise ShapeError(
            f"byte {byte!r} of {part.name} is not allowed; it is {allowed}"
        )
    named = {"thread": thread, "byte": byte, "pair": byte // 2}
    return {name: value for name, value in named.items() if name in part.selectors}
