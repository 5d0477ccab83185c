"""How does a matrix of raw bits become another, exactly as on the target?

One function, :func:`multiply`.  It checks what it is given, chooses the
compiled loop that the model's form needs, and spreads the blocks over threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.arithmetic.models import Model
from fragmenta.dtype import dtype
from fragmenta.errors import Error, ShapeError, ValueRangeError

Bits: TypeAlias = NDArray[Any]

# Below this many products a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 18

# Blocks are handed out in this many portions per thread, so that none idles.
_PORTIONS = 4


def multiply(
    a: Bits,
    b: Bits,
    c: Bits,
    model: Model,
    *,
    index: Bits | None = None,
    scale_a: Bits | None = None,
    scale_b: Bits | None = None,
) -> Bits:
    """A times B plus C, bit for bit as the model's target computes it.

    Matrices are raw bits, one element per item: ``a`` is (..., M, Ks), ``b``
    (..., K, N), ``c`` (..., M, N); leading axes broadcast.  K may be any
    multiple of the instruction's k: the result of one instruction is then the
    accumulator of the next, k ascending.  (b1 may also come packed along k,
    32 to a ``uint32``, lowest k in the lowest bit.)

    A sparse ``a`` holds the stored values, and ``index`` (..., M, Ks) the k of
    each, counted from the first k of its instruction.  Block scales are raw
    bits too: ``scale_a`` is (..., M, V), ``scale_b`` (..., V, N), with
    ``scale_vec`` of them per instruction.

    >>> import numpy as np
    >>> from fragmenta.arithmetic import model
    >>> one = np.full((1, 16, 16), 0x3C00, np.uint16)  # 1.0 as f16
    >>> c = np.zeros((1, 16, 8), np.uint32)
    >>> d = multiply(one, one[:, :, :8], c, model("sm_90", *"f16 f16 f32 f32".split(), 16))
    >>> d.view(np.float32)[0, 0, 0]
    np.float32(16.0)
    """  # noqa: E501
    call = _Call.check(a, b, c, model, index, scale_a, scale_b)
    return call.answer(_FORMS[model.form](call))


@dataclass(frozen=True, slots=True)
class _Call:
    """The operands of one call, checked and flattened to (batch, rows, columns).

    An operand that every batch shares has batch 1.
    """

    model: Model
    a: Bits
    b: Bits
    c: Bits
    index: Bits | None
    scale_a: Bits | None
    scale_b: Bits | None
    leading: tuple[int, ...]
    batches: int
    rows: int
    columns: int
    instructions: int

    @classmethod
    def check(
        cls,
        a: Bits,
        b: Bits,
        c: Bits,
        model: Model,
        index: Bits | None,
        scale_a: Bits | None,
        scale_b: Bits | None,
    ) -> _Call:
        """Refuse whatever does not fit the model or itself."""
        a, b = _patterns(a, model.a, "a"), _patterns(b, model.b, "b")
        c = _patterns(c, model.c, "c")
        given = {"a": a, "b": b, "c": c}
        if model.sparse != (index is not None):
            wanted = "needs" if model.sparse else "takes no"
            raise Error(f"{model} {wanted} index")
        if index is not None:
            given["index"] = index = _positions(index, model.k)
        if (scale_a is None) or (scale_b is None):
            if model.scale or scale_a is not None or scale_b is not None:
                wanted = "needs" if model.scale else "takes no"
                raise Error(f"{model} {wanted} scale_a and scale_b")
        elif model.scale is None:
            raise Error(f"{model} takes no scale_a and scale_b")
        else:
            given["scale_a"] = scale_a = _patterns(scale_a, model.scale, "scale_a")
            given["scale_b"] = scale_b = _patterns(scale_b, model.scale, "scale_b")
        per_word = 32 if model.form == "bits" and a.dtype == np.uint32 else 1
        rows, columns, instructions = _sizes(given, model, per_word)
        leading, flat = _flatten(given)
        return cls(
            model, flat["a"], flat["b"], flat["c"], flat.get("index"),
            flat.get("scale_a"), flat.get("scale_b"), leading,
            int(np.prod(leading)), rows, columns, instructions,
        )  # fmt: skip

    @property
    def work(self) -> int:
        """How many products there are."""
        return (
            self.batches * self.rows * self.columns * self.instructions
            * self.model.stored
        )  # fmt: skip

    def answer(self, d: Bits) -> Bits:
        """d in the shape that was asked for."""
        return d.reshape(*self.leading, self.rows, self.columns)


def _patterns(bits: Bits, name: str, what: str) -> Bits:
    """An array of raw bits of a type, or an error that says what is wrong."""
    kind = dtype(name)
    wanted = kind.bits_dtype
    given = np.asarray(bits)
    if name == "b1" and given.dtype == np.uint32:
        return given
    if given.dtype.kind in "iu" and given.dtype.itemsize == wanted.itemsize:
        given = given.view(wanted)
    if given.dtype != wanted:
        raise Error(
            f"{what} is {given.dtype}; raw bits of {name} are {wanted}, "
            f"as fragmenta.dtype.dtype({name!r}).encode gives them"
        )
    if kind.mask < np.iinfo(wanted).max and given.size and given.max() > kind.mask:
        raise ValueRangeError(
            f"{what} holds {given.max():#x}, but {name} has {kind.bits} bits: "
            f"nothing above {kind.mask:#x}"
        )
    return given


def _positions(index: Bits, k: int) -> Bits:
    given = np.asarray(index)
    if given.dtype.kind not in "iu":
        raise Error(f"index is {given.dtype}; positions are integers")
    if given.size and (given.max() >= k or given.min() < 0):
        raise ValueRangeError(
            f"index holds {given.max()}; positions count from the first k of their "
            f"instruction, so they lie below its k = {k}"
        )
    return given.astype(np.uint8, copy=False)


def _sizes(given: dict[str, Bits], model: Model, per_word: int) -> tuple[int, int, int]:
    """Rows, columns and chained instructions, if all shapes agree on them."""
    for name, array in given.items():
        if array.ndim < 2:
            raise ShapeError(f"{name} has shape {array.shape}; a matrix has two axes")
    rows, length = given["a"].shape[-2:]
    columns = given["b"].shape[-1]
    length *= per_word
    chained, rest = divmod(length, model.stored)
    if rest or not chained:
        stored = "stored " if model.sparse else ""
        raise ShapeError(
            f"a has {length} {stored}columns; {model} takes {model.stored} at a time"
        )
    if chained > 1 and model.c != model.d:
        raise ShapeError(
            f"a has the columns of {chained} instructions, but {model} cannot feed "
            f"its {model.d} result to the next as c"
        )
    wanted = {
        "b": (chained * model.k // per_word, columns),
        "c": (rows, columns),
        "index": (rows, length),
        "scale_a": (rows, chained * model.scale_vec),
        "scale_b": (chained * model.scale_vec, columns),
    }
    for name, array in given.items():
        if name != "a" and array.shape[-2:] != wanted[name]:
            raise ShapeError(
                f"{name} is {array.shape[-2]} x {array.shape[-1]}; with a of "
                f"{rows} x {given['a'].shape[-1]} and b of {columns} columns "
                f"it must be {wanted[name][0]} x {wanted[name][1]}"
            )
    return rows, columns, chained


def _flatten(given: dict[str, Bits]) -> tuple[tuple[int, ...], dict[str, Bits]]:
    """The batch shape, and every operand with one batch axis or none to share."""
    try:
        leading = np.broadcast_shapes(*(array.shape[:-2] for array in given.values()))
    except ValueError:
        shapes = ", ".join(f"{n} {g.shape[:-2]}" for n, g in given.items())
        raise ShapeError(f"the batch axes do not broadcast: {shapes}") from None
    flat = {}
    for name, array in given.items():
        shape = leading + array.shape[-2:]
        if array.shape != shape and array.size != array.shape[-2] * array.shape[-1]:
            array = np.broadcast_to(array, shape)
        flat[name] = np.ascontiguousarray(array).reshape(-1, *array.shape[-2:])
    return leading, flat


def _fused(call: _Call) -> Bits:
    """Fused steps, in the loops of :mod:`fragmenta.arithmetic.floating`."""
    from fragmenta.arithmetic import floating

    model = call.model
    d = _accumulators(call)
    plan = floating.Plan(
        call.rows, call.columns, model.k, model.stored, call.instructions,
        *map(_batches, (call.a, call.b, call.index, call.scale_a, call.scale_b)),
        model.products, model.fraction, model.floor, model.keep,
        int(model.rounding == "rn"), int(model.start == "zero"),
        int(model.accumulator == "f16"), _least(model.accumulator),
        _least(model.c_enters), model.scale_vec, int(model.sparse),
        int(model.order != tuple(range(model.stored))),
        _format(model.a, model.operand), _format(model.b, model.operand),
    )  # fmt: skip
    narrow = max(plan.a.exponent_bits, plan.b.exponent_bits) <= 5 and not model.scale
    nothing = np.empty(0, np.uint8)
    scales = (
        _flat(nothing if array is None else array)
        for array in (call.scale_a, call.scale_b)
    )
    arguments = (
        _flat(call.a), _flat(call.b), d.reshape(-1), _index(call), *scales,
        _order(model), plan, np.empty(0, np.float32 if narrow else np.float64),
    )  # fmt: skip
    down = -(-call.rows // floating.BLOCK_ROWS)
    across = -(-call.columns // floating.BLOCK_COLUMNS)
    blocks = call.batches * down * across
    _spread(partial(floating.multiply_blocks, *arguments), blocks, call.work)
    return _results(d, model)


def _grouped(call: _Call) -> Bits:
    """mxf4 and mxf4nvf4, in :mod:`fragmenta.arithmetic.grouped`."""
    from fragmenta.arithmetic import grouped

    model, width = call.model, -(-call.columns // 8) * 8
    twice = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
    assert call.scale_a is not None
    assert call.scale_b is not None
    a, b = _flat(twice[call.a]), _flat(twice[_padded(call.b, width)])
    d = _padded(_accumulators(call), width)
    arguments = (
        a, b, _flat(np.abs(a)), _flat(np.abs(b)), d.reshape(-1), _index(call),
        _flat(call.scale_a), _flat(_padded(call.scale_b, width)),
        call.rows, width, model.k, model.stored, call.instructions, model.scale_vec,
        *map(_batches, (call.a, call.b, call.index, call.scale_a, call.scale_b)),
        model.scale == "ue4m3", model.products, model.fraction, model.floor,
        model.keep,
    )  # fmt: skip
    _spread(partial(grouped.groups, *arguments), call.batches * call.rows, call.work)
    return d[..., : call.columns]


def _chain(call: _Call) -> Bits:
    """Fused multiply-adds, in :mod:`fragmenta.arithmetic.chain`."""
    from fragmenta.arithmetic import chain

    model = call.model
    if model.accumulator != "f64":
        return _software(call)
    d = np.empty((call.batches, call.rows, call.columns))
    d[...] = call.c.view(np.float64)
    arguments = (
        _flat(call.a.view(np.float64)), _flat(call.b.view(np.float64)), d.reshape(-1),
        call.rows, call.columns, model.k * call.instructions,
        len(call.a), len(call.b), chain.MODES[model.rounding],
    )  # fmt: skip
    _spread(partial(chain.chain64, *arguments), call.batches * call.rows, call.work)
    return d.view(np.uint64)


def _software(call: _Call) -> Bits:
    """f16 with k = 4 where no hardware has it, one instruction at a time."""
    from fragmenta.arithmetic import chain

    model, d = call.model, _accumulators(call)
    with np.errstate(invalid="ignore"):
        a = call.a.view(np.float16).astype(np.float32)
        b = call.b.view(np.float16).astype(np.float32)
    for first in range(0, a.shape[-1], 4):
        arguments = (
            _flat(np.ascontiguousarray(a[..., first : first + 4])),
            _flat(np.ascontiguousarray(b[..., first : first + 4, :])),
            d.view(np.float32).reshape(-1),
            call.rows, call.columns, 4, len(a), len(b), model.form == "pairs",
        )  # fmt: skip
        _spread(partial(chain.chain32, *arguments), call.batches * call.rows, call.work)
        if model.d == "f16":
            d = _widened(_rounded(d))
    d[np.isnan(d.view(np.float32))] = 0x7FFFFFFF
    return _rounded(d) if model.d == "f16" else d


def _integer(call: _Call) -> Bits:
    """Integers: BLAS for large matrices, else :mod:`fragmenta.arithmetic.exact`."""
    from fragmenta.arithmetic import exact

    model = call.model
    a, b = _integers(call.a, model.a), _integers(call.b, model.b)
    if _suits_blas(call):
        return _blas(call, a, b)
    width = -(-call.columns // 8) * 8
    d = np.empty((call.batches, call.rows, width), np.int32)
    d[..., : call.columns] = call.c.view(np.int32)
    d[..., call.columns :] = 0
    arguments = (
        _flat(a), _flat(_padded(b, width)), d.reshape(-1), _index(call),
        call.rows, width, model.k, model.stored, call.instructions,
        *map(_batches, (a, b, call.index)), model.satfinite,
    )  # fmt: skip
    _spread(partial(exact.integers, *arguments), call.batches * call.rows, call.work)
    return d[..., : call.columns].view(np.uint32)


def _suits_blas(call: _Call) -> bool:
    """Whether the matrices are large, and clamping cannot happen on the way."""
    if min(call.rows, call.columns, call.model.stored * call.instructions) < 64:
        return False
    if not call.model.satfinite:
        return True
    most = _most(call.model.a) * _most(call.model.b) * call.work
    most //= call.batches * call.rows * call.columns
    c = call.c.view(np.int32)
    return int(c.max()) + most < 1 << 31 and int(c.min()) - most >= -(1 << 31)


def _blas(call: _Call, a: Bits, b: Bits) -> Bits:
    """Integers as float32, few enough k at a time for every sum to be exact."""
    model = call.model
    # Sums below 2**24 are exact in whatever order they are added.
    deep = (1 << 24) // (_most(model.a) * _most(model.b)) // model.k * model.k
    d = np.empty((call.batches, call.rows, call.columns), np.int32)
    d[...] = call.c.view(np.int32)
    for first in range(0, b.shape[-2], deep):
        last = min(first + deep, b.shape[-2])
        x = _dense(call, a, first, last)
        y = b[:, first:last].astype(np.float32)
        for batch in range(call.batches):
            one = np.matmul(x[batch % len(x)], y[batch % len(y)])
            d[batch] += one.astype(np.int32)
    return d.view(np.uint32)


def _dense(call: _Call, a: Bits, first: int, last: int) -> Bits:
    """Columns of A as float32, with zeros where a sparse A stores nothing."""
    model, index = call.model, call.index
    if index is None:
        return a[..., first:last].astype(np.float32)
    share = slice(first * model.stored // model.k, last * model.stored // model.k)
    batches = max(len(a), len(index))
    x = np.zeros((batches, call.rows, last - first), np.float32)
    base = np.arange(0, last - first, model.k).repeat(model.stored)
    place = index[..., share].astype(np.int64) + base
    shape = (batches, *place.shape[1:])
    stored = np.broadcast_to(a[..., share], shape).astype(np.float32)
    np.put_along_axis(x, np.broadcast_to(place, shape), stored, axis=-1)
    return x


def _bits(call: _Call) -> Bits:
    """Single bits, counted in :mod:`fragmenta.arithmetic.exact`."""
    from fragmenta.arithmetic import exact

    a, b = _words(call.a), _words(np.swapaxes(call.b, -1, -2))
    d = np.empty((call.batches, call.rows, call.columns), np.int32)
    d[...] = call.c.view(np.int32)
    arguments = (
        _flat(a), _flat(b), d.reshape(-1), call.rows, call.columns, a.shape[-1],
        len(a), len(b), call.model.bitop == "xor",
    )  # fmt: skip
    _spread(partial(exact.bits, *arguments), call.batches * call.rows, call.work)
    return d.view(np.uint32)


_FORMS: dict[str, Callable[[_Call], Bits]] = {
    "fused": _fused,
    "grouped": _grouped,
    "chain": _chain,
    "pairs": _software,
    "integer": _integer,
    "bits": _bits,
}


def _integers(bits: Bits, name: str) -> Bits:
    """Raw bits as integers of 8 bits."""
    if name == "s8":
        return bits.view(np.int8)
    if name == "s4":
        return (bits << 4).view(np.int8) >> 4
    return bits


def _most(name: str) -> int:
    """The largest magnitude of an integer type."""
    low, high = dtype(name).limits
    return max(-low, high)


def _words(bits: Bits) -> Bits:
    """Bits along the last axis as 64-bit words, zeros after the last."""
    if bits.dtype == np.uint8:
        packed = np.packbits(bits, axis=-1, bitorder="little")
    else:
        packed = np.ascontiguousarray(bits).view(np.uint8)
    rest = -packed.shape[-1] % 8
    if rest:
        packed = np.pad(packed, [(0, 0), (0, 0), (0, rest)])
    return np.ascontiguousarray(packed).view(np.uint64)


def _padded(array: Bits, width: int) -> Bits:
    """The array with columns of zeros up to a width."""
    if array.shape[-1] == width:
        return array
    return np.pad(array, [(0, 0), (0, 0), (0, width - array.shape[-1])])


def _index(call: _Call) -> Bits:
    return _flat(np.empty(0, np.uint8) if call.index is None else call.index)


def _accumulators(call: _Call) -> Bits:
    """A new array of the accumulators that c brings, as 32-bit words."""
    c = call.c
    wide = call.model.form in ("chain", "pairs") or call.model.accumulator == "f32"
    if call.model.c == "f16" and wide:
        c = _widened(c)
    d = np.empty((call.batches, call.rows, call.columns), np.uint32)
    d[...] = c
    return d


def _results(d: Bits, model: Model) -> Bits:
    """The accumulators of fused steps as raw bits of d."""
    if model.accumulator == "f16":
        return d.astype(np.uint16)
    return _rounded(d) if model.d == "f16" else d


def _widened(half: Bits) -> Bits:
    """f16 bits as f32 bits."""
    with np.errstate(invalid="ignore"):
        return half.view(np.float16).astype(np.float32).view(np.uint32)


def _rounded(single: Bits) -> Bits:
    """f32 bits as f16 bits, to nearest."""
    with np.errstate(over="ignore", invalid="ignore"):
        half = single.view(np.float32).astype(np.float16)
    return np.where(np.isnan(half), np.uint16(0x7FFF), half.view(np.uint16))


def _flat(array: Bits) -> Bits:
    """All items in a row, read-only: one kind of array to compile for."""
    flat = array.reshape(-1)
    flat.flags.writeable = False
    return flat


def _batches(array: Bits | None) -> int:
    return 1 if array is None else len(array)


@cache
def _order(model: Model) -> NDArray[np.int64]:
    return np.array(model.order)


@cache
def _least(name: str) -> int:
    """The exponent of a type's subnormals."""
    return 1 - dtype(name).bias


@cache
def _format(name: str, operand: str | None) -> Any:
    """A type as the compiled loops know it, after conversion to ``operand``."""
    from fragmenta.arithmetic.floating import Format

    kind = dtype(name)
    top = ((1 << kind.exponent_bits) - 1) << kind.fraction_bits
    special, infinity = 1 << 30, -1
    if kind.has_infinity:
        special = infinity = top
    elif kind.has_nan:
        special = top | ((1 << kind.fraction_bits) - 1)
    return Format(
        kind.exponent_bits, kind.fraction_bits, special & 0x7FFFFFFF,
        infinity & 0x7FFFFFFF, _least(operand or name),
    )  # fmt: skip


def _spread(run: Callable[[int, int], None], blocks: int, work: int) -> None:
    """Call ``run(first, last)`` so that every block is done, on all cores."""
    threads = _threads()
    if threads == 1 or blocks == 1 or work < _WORTH_A_THREAD:
        run(0, blocks)
        return
    portions = min(blocks, threads * _PORTIONS)
    edges = [blocks * i // portions for i in range(portions + 1)]
    done = [
        _pool(os.getpid()).submit(run, first, last)
        for first, last in zip(edges, edges[1:], strict=False)
    ]
    for future in done:
        future.result()


@cache
def _threads() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of a process: a fork inherits none, and needs its own."""
    return ThreadPoolExecutor(_threads(), thread_name_prefix="fragmenta")
