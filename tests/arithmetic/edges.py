"""Operands that show where a sum is cut; random ones hardly ever do.

``cut``: large products cancel, beside small ones at the place where the step cuts
them.  ``floor``: a sum on the edge of being rounded, and beside it a product so
small that only the floor under emax decides whether it counts.
"""

import numpy as np

from fragmenta.reference.registers.dtype import dtype


def operands(rng, model, kind, shapes):
    """a, b, c and the scales, if the model has any."""
    if model.form == "grouped":
        a, b, scales, around = _grouped(rng, model, kind, shapes)
    else:
        a, b, scales, around = _fused(rng, model, kind, shapes)
    batch, rows, columns, _ = shapes
    of = dtype(model.c)
    c = np.zeros((batch, rows, columns), of.bits_dtype)
    if kind == "cut":
        c = powers(rng, of, around + rng.integers(-2, 8, c.shape))
        c |= signs(rng, of, c.shape)
    return a, b, c, scales


def _levels(model):
    """The exponents of: large products; the edge of rounding; what the floor cuts.

    A large product minus F must still be within the accumulator's range.  Toward
    zero, anything below the least accumulator makes a zero of it; to nearest,
    half of the least is a tie that anything decides.
    """
    result = dtype(model.accumulator)
    largest = result.bias - 8 + model.fraction
    least = 1 - result.bias - result.fraction_bits
    edge = least if model.rounding == "rz" else least - 1
    return largest, edge, model.floor - model.fraction


def _fused(rng, model, kind, shapes):
    batch, rows, columns, chained = shapes
    A, B = dtype(model.a), dtype(model.b)
    largest, edge, tiny = _levels(model)
    k = np.arange(model.k * chained)
    top, scale = highest(A) + highest(B), 0
    large = min(largest, top)
    if kind == "cut":
        steady, small = k % 4 < 2, large - model.fraction + 2
    else:
        steady, large, small = k % model.k == 0, edge, tiny
        scale = edge - top if model.scale else 0
    x, y = split(np.where(steady, large, small) - scale, A, B)
    x = x + np.where(steady, 0, _around(rows))
    x, y = (
        np.broadcast_to(x, (batch, rows, k.size)),
        np.broadcast_to(y[:, None], (batch, k.size, columns)),
    )
    a, b = powers(rng, A, x, kind == "floor"), powers(rng, B, y, kind == "floor")
    if kind == "cut":
        a |= signs(rng, A, a.shape)
        a[..., 1::4] = a[..., 0::4] ^ sign(A)
        b[:, 1::4] = b[:, 0::4]
        a[:, ::4, ~steady] = 0  # the accumulator alone
    else:
        a[..., k % model.k > 1] = 0
        b[:, k % model.k == 1, ::2] |= sign(B)
    scales = _even(model, shapes, scale) if model.scale else ()
    return a[..., : model.stored * chained], b, scales, large - model.fraction


def _around(rows):
    """Exponents on both sides of the place that counts, from row to row."""
    return (np.arange(rows) % 8 - 4)[:, None]


def _even(model, shapes, exponent):
    """Scales that together multiply every product by the same power of two."""
    batch, rows, columns, chained = shapes
    of, count = dtype(model.scale), model.scale_vec * chained
    x, y = split(np.full(count, exponent), of, of)
    every = (batch, rows, count), (batch, count, columns)
    return (
        powers(None, of, np.broadcast_to(x, every[0]), True),
        powers(None, of, np.broadcast_to(y[:, None], every[1]), True),
    )


def _grouped(rng, model, kind, shapes):
    """The exponents are those of the scales; the first block is the large one."""
    batch, rows, columns, chained = shapes
    of, count = dtype(model.scale), model.scale_vec * chained
    largest, edge, tiny = _levels(model)
    first = np.arange(count) % model.scale_vec == 0
    large = min(largest, 2 * highest(of))
    if kind == "cut":
        small = large - model.fraction - 1
    else:
        large, small = edge, tiny
    x, y = split(np.where(first, large, small), of, of)
    x = np.broadcast_to(x + np.where(first, 0, _around(rows)), (batch, rows, count))
    exact = kind == "floor"
    scales = (
        powers(rng, of, x, exact),
        powers(rng, of, np.broadcast_to(y[:, None], (batch, count, columns)), exact),
    )
    length, depth = model.stored * chained, model.k * chained
    a = rng.integers(1, 8, (batch, rows, length)).astype(np.uint8)
    b = rng.integers(1, 8, (batch, depth, columns)).astype(np.uint8)
    a |= signs(rng, dtype("e2m1"), a.shape)
    if kind == "cut":
        inside = np.repeat(first, length // count)[::2]
        a[..., 1::2] = np.where(inside, a[..., ::2] ^ 8, a[..., 1::2])
        b[:, 1::2] = b[:, ::2]
    else:  # one product of a block, 1 x 1
        one = np.arange(length) % (length // count) == 0
        a[:] = np.where(one, 2, 0)
        b[:] = 2
        b[:, np.arange(depth) % model.k > 0, ::2] |= 8
    return a, b, scales, large - model.fraction


def highest(of):
    """The exponent of a type's largest power of two."""
    return (
        (1 << of.exponent_bits) - 1 - of.bias - of.has_infinity - (of.name == "ue8m0")
    )


def lowest(of):
    """The exponent of a type's smallest number."""
    if of.name == "ue8m0":
        return -of.bias
    return 1 - of.bias - of.fraction_bits


def split(power, x, y):
    """Two exponents that add up to each given one, if two types can hold them."""
    first = np.clip(power // 2, lowest(x), highest(x))
    second = np.clip(power - first, lowest(y), highest(y))
    return np.clip(power - second, lowest(x), highest(x)), second


def powers(rng, of, exponent, exact=False):
    """Numbers of these exponents: powers of two, or with any fraction."""
    exponent = np.clip(exponent, lowest(of), highest(of))
    spare = 13 if of.name == "tf32" else 0
    if of.name == "ue8m0":
        return (exponent + of.bias).astype(of.bits_dtype)
    field = np.maximum(exponent + of.bias, 0)
    subnormal = 1 << np.maximum(exponent - lowest(of), 0)
    bits = np.where(field > 0, field << of.fraction_bits, subnormal)
    if not exact:
        ones = (1 << of.fraction_bits) - 1 - (not of.has_infinity)  # all ones: NaN
        fraction = rng.integers(0, ones, bits.shape, endpoint=True)
        bits = np.where(field > 0, bits | fraction, bits)
    return (bits << spare).astype(of.bits_dtype)


def signs(rng, of, shape):
    """The sign bit of a type, here and there."""
    return rng.integers(0, 2, shape).astype(of.bits_dtype) * sign(of)


def sign(of):
    """The sign bit of a type."""
    return of.bits_dtype.type(1 << (of.bits - 1))
