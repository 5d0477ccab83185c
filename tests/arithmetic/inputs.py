"""Raw bits of several kinds, for every element type."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from fragmenta.reference.arithmetic import floored
from fragmenta.reference.registers.dtype import dtype

from . import edges

EDGES = ("cut", "floor")
KINDS = (
    *("bits", "near", "wide", "subnormal", "cancel", "large", "zeros", "special"),
    *EDGES,
)


@contextmanager
def worth_compiling(products):
    """With the kernels for many products, if there are at least so many."""
    compiled = patch.object(floored, "_COMPILED", set())
    with patch.object(floored, "_WORTH_COMPILING", products), compiled:
        yield


def raw(rng, name, shape, kind="near"):
    """Random elements of a type: the kind says where their exponents lie."""
    of = dtype(name)
    if kind == "bits" or of.is_integer:
        return _uniform(rng, of, shape)
    if kind == "zeros":
        some = raw(rng, name, shape, "near")
        return np.where(rng.random(shape) < 0.6, some & _sign(of), some)
    if kind == "cancel":
        few = raw(rng, name, (4,), "near")[rng.integers(0, 4, shape)]
        return few ^ (rng.integers(0, 2, shape) * _sign(of)).astype(few.dtype)
    if kind == "special":
        return _some_special(rng, of, raw(rng, name, shape, "near"))
    top = (1 << of.exponent_bits) - 1
    if kind in EDGES:  # of a model that cuts nothing
        kind = "near"
    low, high = {
        "near": (max(0, of.bias - 2), min(of.bias + 3, top)),
        "wide": (0, top),
        "subnormal": (0, 2),
        "large": (max(0, top - 4), top),
    }[kind]
    field = rng.integers(low, max(high, low + 1), shape).astype(np.uint64)
    spare = 13 if name == "tf32" else 0
    place = np.uint64(of.fraction_bits + spare)
    rest = _uniform(rng, of, shape).astype(np.uint64) & ~(np.uint64(top) << place)
    return (rest | field << place).astype(of.bits_dtype)


def operands(rng, model, kind, batch=1, rows=3, columns=5, chained=1):
    """a, b, c and the keyword arguments of one call."""
    shapes = (batch, rows, columns, chained)
    if kind in EDGES and model.form in ("fused", "grouped"):
        a, b, c, scales = edges.operands(rng, model, kind, shapes)
    else:
        length = model.stored * chained
        a = raw(rng, model.a, (batch, rows, length), kind)
        b = raw(rng, model.b, (batch, model.k * chained, columns), kind)
        c = raw(rng, model.c, (batch, rows, columns), kind)
        if model.c == "f32" and kind != "bits":
            c = _beside(rng, c, model)
        scales = _scales(rng, model, shapes, kind) if model.scale else ()
    more = dict(zip(("scale_a", "scale_b"), scales, strict=False))
    if model.sparse:
        more["index"] = index(rng, model, (batch, rows, chained))
    return a, b, c, more


def _scales(rng, model, shapes, kind):
    """Scales of any pattern, near one, or of all sizes but opposed to each other.

    Opposed, the products of two scales are near one although each is anything
    from the smallest to the largest.
    """
    batch, rows, columns, chained = shapes
    of, count = dtype(model.scale), model.scale_vec * chained
    if kind != "wide":
        some = kind if kind == "bits" else "near"
        a, b = (batch, rows, count), (batch, count, columns)
        return raw(rng, of.name, a, some), raw(rng, of.name, b, some)
    top = of.mask - 1  # the last pattern is NaN
    size = rng.integers(0, top, (batch, 1, count), endpoint=True)
    a = size + rng.integers(-2, 3, (batch, rows, count))
    b = (top - size.swapaxes(1, 2)) + rng.integers(-2, 3, (batch, count, columns))
    return tuple(np.clip(each, 0, top).astype(of.bits_dtype) for each in (a, b))


def index(rng, model, shape):
    """Where the stored values of each instruction lie: half of every four k."""
    chunk = min(4, model.k)
    chosen = rng.random((*shape, model.k // chunk, chunk)).argsort(axis=-1)
    chosen = np.sort(chosen[..., : chunk // 2], axis=-1)
    chosen += np.arange(0, model.k, chunk)[:, None]
    return chosen.reshape(*shape[:-1], shape[-1] * model.stored).astype(np.uint8)


def _beside(rng, c, model):
    """f32 accumulators of all sizes: of the products' size, and far from it."""
    exponent = rng.integers(-40, 40, c.shape)
    with np.errstate(all="ignore"):
        moved = np.ldexp(c.view(np.float32), exponent).view(np.uint32)
    keep = rng.random(c.shape) < 0.5
    return np.where(keep | np.isnan(moved.view(np.float32)), c, moved)


def _some_special(rng, of, values):
    """One in 48 replaced by a zero, or by an infinity or NaN if the type has them."""
    if of.kind == "scale":
        return values
    spare = of.bits - 1 - of.exponent_bits - of.fraction_bits
    fraction = ((1 << of.fraction_bits) - 1) << spare
    top = ((1 << of.exponent_bits) - 1) << (of.fraction_bits + spare)
    first, last = 1 << spare, fraction
    found = [0, top | last, top, top | first]  # NaN, infinity, NaN
    if not of.has_infinity:
        found = found[:2]
    chosen = np.array(found, np.uint64)[rng.integers(0, len(found), values.shape)]
    sign = (rng.integers(0, 2, values.shape) * _sign(of)).astype(values.dtype)
    replaced = chosen.astype(values.dtype) | sign
    return np.where(rng.random(values.shape) < 1 / 48, replaced, values)


def _uniform(rng, of, shape):
    bits = rng.integers(0, of.mask, shape, dtype=np.uint64, endpoint=True)
    return bits.astype(of.bits_dtype)


def _sign(of):
    return of.bits_dtype.type(0 if of.kind == "scale" else 1 << (of.bits - 1))
