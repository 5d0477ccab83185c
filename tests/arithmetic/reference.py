"""One output element at a time, in Python integers and fractions.

Slow, plain, and meant to be obviously right: the compiled loops are held
against it.  It shares nothing with them but the model's parameters.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

FORMATS = {  # exponent bits, fraction bits, infinity?, NaN?
    "f64": (11, 52, True, True),
    "f32": (8, 23, True, True),
    "tf32": (8, 10, True, True),
    "bf16": (8, 7, True, True),
    "f16": (5, 10, True, True),
    "e5m2": (5, 2, True, True),
    "e4m3": (4, 3, False, True),
    "e3m2": (3, 2, False, False),
    "e2m3": (2, 3, False, False),
    "e2m1": (2, 1, False, False),
    "ue4m3": (4, 3, False, True),
}


class MinusZero(Fraction):
    """Zero with a sign, for the operations of IEEE 754 that keep it."""


class NaN64(float):
    """A NaN of f64 that keeps its bits."""


MINUS_ZERO = MinusZero(0)
NAN_BITS = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "f64": 0xFFF8000000000000}


@lru_cache(maxsize=1 << 14)  # small types have few values
def value(bits, name):
    """A Fraction, or a float that is infinite or NaN."""
    bits = int(bits)
    if name == "ue8m0":
        return math.nan if bits == 255 else Fraction(2) ** (bits - 127)
    exponent_bits, fraction_bits, has_infinity, has_nan = FORMATS[name]
    if name == "tf32":
        bits >>= 13
    fraction = bits & ((1 << fraction_bits) - 1)
    field = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    sign = -1 if bits >> (fraction_bits + exponent_bits) & 1 else 1
    top = (1 << exponent_bits) - 1
    if has_infinity and field == top:
        if not fraction:
            return sign * math.inf
        nan = NaN64(math.nan)
        nan.bits = bits | 1 << 51
        return nan if name == "f64" else math.nan
    ones = (1 << fraction_bits) - 1
    if has_nan and not has_infinity and field == top and fraction == ones:
        return math.nan
    bias = (1 << (exponent_bits - 1)) - 1
    if field:
        fraction |= 1 << fraction_bits
    if not fraction:
        return MINUS_ZERO if sign < 0 else Fraction(0)
    scale = max(field, 1) - bias - fraction_bits
    return sign * Fraction(fraction) * Fraction(2) ** scale


def least_exponent(name):
    return 2 - (1 << (FORMATS[name][0] - 1))


def exponent(x, name):
    """floor(log2 |x|), but a subnormal has the least exponent of its type."""
    denominator = x.denominator  # a power of two
    power = abs(x.numerator).bit_length() - denominator.bit_length()
    return max(power, least_exponent(name))


def special(x):
    return isinstance(x, float)


def add_specials(values):
    """What infinities and NaN add up to, or None if there are none."""
    found = [x for x in values if special(x)]
    return sum(found) if found else None


def negative(x):
    return x < 0 or isinstance(x, MinusZero)


def multiply_values(x, y):
    if special(x) or special(y):
        return float(x) * float(y) if x and y else math.nan
    if x * y == 0 and negative(x) != negative(y):
        return MINUS_ZERO
    return x * y


def cut(x, unit):
    """The multiple of ``unit`` next to x on the side of zero."""
    whole = abs(x) // unit * unit
    return -whole if x < 0 else whole


def nearest(x, unit):
    """The nearest multiple of ``unit``; of two, the even one."""
    return round(x / unit) * unit


def round_to(x, name, keep, rounding):
    """x with ``keep`` fraction bits in a type's range, as a Fraction or inf."""
    if x == 0:
        return Fraction(0)
    unit = Fraction(2) ** (exponent(x, name) - keep)
    below = cut(x, unit)
    away = below + (unit if x > 0 else -unit)
    if rounding == "rz" or x == below:
        rounded = below
    elif rounding == "rn":
        rounded = nearest(x, unit)
    elif rounding == "rp":
        rounded = max(below, away)
    else:
        rounded = min(below, away)
    limit = Fraction(2) ** (1 << (FORMATS[name][0] - 1))
    if abs(rounded) >= limit:
        return _overflow(x, name, rounding)
    return rounded


def _overflow(x, name, rounding):
    """Tensor cores go to infinity even toward zero; f64 does as IEEE says."""
    if name != "f64" or rounding in ("rn", "rp" if x > 0 else "rm"):
        return math.inf if x > 0 else -math.inf
    limit = Fraction(2) ** (1 << (FORMATS[name][0] - 1))
    largest = limit - limit / Fraction(2) ** (FORMATS[name][1] + 1)
    return largest if x > 0 else -largest


def encode(x, name):
    """Raw bits of a value the type holds exactly."""
    exponent_bits, fraction_bits, _, _ = FORMATS[name]
    if special(x):
        if math.isnan(x):
            return x.bits if isinstance(x, NaN64) else NAN_BITS[name]
        sign = x < 0
        return (sign << exponent_bits | (1 << exponent_bits) - 1) << fraction_bits
    if x == 0:
        return negative(x) << (exponent_bits + fraction_bits)
    power = exponent(x, name)
    fraction = abs(x) / Fraction(2) ** (power - fraction_bits)
    assert fraction.denominator == 1
    normal = fraction >= 1 << fraction_bits
    field = power - least_exponent(name) + 1 if normal else 0
    fraction = int(fraction) & ((1 << fraction_bits) - 1)
    return ((x < 0) << exponent_bits | field) << fraction_bits | fraction


def fused_step(terms, c, model, c_type=None):
    """``terms`` are (value, exponent) pairs; all of a step, and its rounding."""
    found = add_specials([x for x, _ in terms] + [c])
    if found is not None:
        return found
    name = model.accumulator
    exponents = [e for _, e in terms if e is not None]
    if c:
        exponents.append(exponent(c, c_type or name))
    unit = Fraction(2) ** (max([*exponents, model.floor]) - model.fraction)
    total = cut(c, unit) + sum(cut(x, unit) for x, _ in terms)
    return round_to(total, name, model.keep, model.rounding)


def rounded_sum(x, y, name, rounding):
    """x + y as IEEE 754 rounds it, the sign of zero included."""
    found = add_specials([x, y])
    if found is not None:
        return found
    if x + y == 0:
        both = negative(x) and negative(y)
        either = negative(x) or negative(y)
        return MINUS_ZERO if (either if rounding == "rm" else both) else Fraction(0)
    rounded = round_to(x + y, name, FORMATS[name][1], rounding)
    return MINUS_ZERO if rounded == 0 and x + y < 0 else rounded


def add(x, y, name):
    """An ordinary addition of a type, to nearest."""
    return rounded_sum(x, y, name, "rn")


def fma(x, y, c, name, rounding="rn"):
    return rounded_sum(multiply_values(x, y), c, name, rounding)


def float_product(x, y, x_type, y_type):
    product = multiply_values(x, y)
    if special(product) or product == 0:
        return product, None
    return product, exponent(x, x_type) + exponent(y, y_type)


def _scaled(product, power, scales):
    for scale in scales:
        product = multiply_values(product, scale)
        if not special(product) and product and power is not None:
            power += round(math.log2(scale))
    return product, power


def fused(a, b, c, model, scale_a=None, scale_b=None):
    """One instruction; a and b are the stored products' bits."""
    a_type, b_type = model.operand or model.a, model.operand or model.b
    terms = []
    for p, (x, y) in enumerate(zip(a, b, strict=True)):
        term = float_product(value(x, model.a), value(y, model.b), a_type, b_type)
        if scale_a is not None:
            block = p * len(scale_a) // len(a)
            scales = (value(s[block], model.scale) for s in (scale_a, scale_b))
            term = _scaled(*term, scales)
        terms.append(term)
    total = c if model.start == "c" else Fraction(0)
    for i, step in enumerate(model.steps):
        c_type = model.c_enters if i == 0 else None
        total = fused_step([terms[p] for p in step], total, model, c_type)
    return total if model.start == "c" else add(c, total, model.accumulator)


def grouped(a, b, c, model, scale_a, scale_b):
    """Steps of four groups of 16 products; a group shares its scales."""
    for step in model.steps:
        terms = []
        for first in range(step[0], step[-1] + 1, 16):
            block = first * len(scale_a) // len(a)
            scales = [value(s[block], model.scale) for s in (scale_a, scale_b)]
            group = slice(first, first + 16)
            terms += group_term(a[group], b[group], scales, model.scale)
        c = fused_step(terms, c, model)
    return c


def group_term(a, b, scales, name):
    """The (value, exponent) of a group, or nothing if all products are zero."""
    products = [value(x, "e2m1") * value(y, "e2m1") for x, y in zip(a, b, strict=True)]
    factor = multiply_values(*scales)
    if special(factor):
        return [(factor, None)]
    if not any(products) or not factor:
        return []
    least = -6 if name == "ue4m3" else -127
    power = sum(max(math.floor(math.log2(scale)), least) for scale in scales)
    return [(sum(products) * factor, power)]


def chain(a, b, c, model):
    name = model.accumulator
    total = c if model.start == "c" else Fraction(0)
    for x, y in zip(a, b, strict=True):
        x, y = value(x, model.a), value(y, model.b)
        given = [v for v in (y, total, x) if special(v) and math.isnan(v)]
        total = given[0] if given else fma(x, y, total, name, model.rounding)
    return total if model.start == "c" else add(c, total, name)


def pairs(a, b, c, model):
    x = [value(bits, model.a) for bits in a]
    y = [value(bits, model.b) for bits in b]
    for i in (0, 2):
        pair = fma(x[i + 1], y[i + 1], multiply_values(x[i], y[i]), "f32")
        c = add(c, pair, "f32")
    return c if special(c) else add(c, MINUS_ZERO, "f16")


def integer(bits, name):
    width, signed = int(name[1:]), name[0] == "s"
    bits = int(bits)
    return bits - (1 << width) if signed and bits >> (width - 1) else bits


def wrap(x):
    return (x + (1 << 31)) % (1 << 32) - (1 << 31)


def exact(a, b, c, model):
    """Integers and single bits."""
    if model.form == "bits":
        join = np.bitwise_xor if model.bitop == "xor" else np.bitwise_and
        total = c + int(sum(join(x, y) for x, y in zip(a, b, strict=True)))
    else:
        total = c + sum(
            integer(x, model.a) * integer(y, model.b) for x, y in zip(a, b, strict=True)
        )
    if model.satfinite:
        return min(max(total, -(1 << 31)), (1 << 31) - 1)
    return wrap(total)


def element(a, b, c, model, index=None, scale_a=None, scale_b=None):
    """d of one row of A, one column of B and one c, over any number of k.

    ``index`` holds the logical k of each stored value within its instruction.
    """
    k, stored = model.k, model.stored
    whole = model.form in ("integer", "bits")
    state = integer(c, "s32") if whole else value(c, model.c)
    for i in range(len(a) // stored):
        row = a[i * stored : (i + 1) * stored]
        column = b[i * k : (i + 1) * k]
        if index is not None:
            column = [column[p] for p in index[i * stored : (i + 1) * stored]]
        scales = ()
        if scale_a is not None:
            block = slice(i * model.scale_vec, (i + 1) * model.scale_vec)
            scales = (scale_a[block], scale_b[block])
        state = STEPS[model.form](row, column, state, model, *scales)
    if whole:
        return state % (1 << 32)
    if model.d == "f16" and not special(state):
        state = add(state, MINUS_ZERO, "f16")
    return encode(state, model.d)


STEPS = {
    "fused": fused,
    "grouped": grouped,
    "chain": chain,
    "pairs": pairs,
    "integer": exact,
    "bits": exact,
}


def multiply(a, b, c, model, index=None, scale_a=None, scale_b=None):
    """The reference's own (batch, M, N), element by element."""
    batch, rows, columns = c.shape
    d = np.empty(c.shape, {"f16": np.uint16, "f64": np.uint64}.get(model.d, np.uint32))
    for t in range(batch):
        for m in range(rows):
            for n in range(columns):
                d[t, m, n] = element(
                    a[t, m],
                    b[t, :, n],
                    c[t, m, n],
                    model,
                    None if index is None else index[t, m],
                    None if scale_a is None else scale_a[t, m],
                    None if scale_b is None else scale_b[t, :, n],
                )
    return d
