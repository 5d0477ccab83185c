"""The meaning of ``cvt`` for floating-point numbers, in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

from tests.ptx.opcodes.fractions import FORMATS, Number, decoded, integral, rounded

INTEGRAL = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


def integer(name):
    return name[0] in "us" and name[1:].isdecimal()


def to_integer(x, name, of, mode):
    """A number as an integer of a type: limits for what is too large."""
    width, is_signed = int(name[1:]), name[0] == "s"
    mask = (1 << width) - 1
    if x.value is None:
        return 1 << (width - 1) if of == "f64" or width == 64 else 0
    low = -(1 << (width - 1)) if is_signed else 0
    high = (1 << (width - is_signed)) - 1
    if x.value == math.inf:
        return (low if x.negative else high) & mask
    whole = integral(x.value, mode, x.negative)
    return min(max(-whole if x.negative else whole, low), high) & mask


def from_integer(word, name, to, mode, sat):
    """An integer as a float."""
    width = int(name[1:])
    word &= (1 << width) - 1
    if name[0] == "s" and word >> (width - 1):
        word -= 1 << width
    if sat:
        word = min(max(word, 0), 1)
    return rounded(Number(word < 0, Fraction(abs(word))), to, mode)


def tf32(word, q):
    """The bits of a tf32 in its register."""
    x = decoded(word, "f32")
    if "rna" in q["mnemonic"]:
        # What ptxas makes of it: integer arithmetic that does not know NaN.
        special = x.value is None or x.value == math.inf
        found = (word if special else word + 0x1000) & 0xFFFFE000
        over = found & 0x7F800000 == 0x7F800000
        return found - 0x2000 if over and q.get("satfinite") else found
    if x.value is None:
        return 0x7FFFE000
    if q.get("relu") and x.negative:
        return 0
    return rounded(x, "tf32", q["rnd"], finite=bool(q.get("satfinite"))) << 13


def nan(x, of, to, q):
    """The bits of a NaN that is converted."""
    form = FORMATS[to]
    if of == to and of in ("f32", "f64") and not q.get("ftz") and not q.get("irnd"):
        return x.bits  # nothing is computed
    if of == "bf16" and to == "f32" and not q.get("ftz"):
        return x.bits << 16
    if of == "f64" and to != "f64":
        upper = (x.bits >> (52 - form.fraction)) % (1 << form.fraction)
        quiet = form.infinity | 1 << (form.fraction - 1)
        return form.sign * x.negative | quiet | upper
    if to == "f64":
        source = FORMATS[of]
        bits = FORMATS["f32"].nan if of == "f32" and q.get("ftz") else x.bits
        source_sign = bits >> (source.width - 1)
        payload = bits % (1 << source.fraction) << (52 - source.fraction)
        return source_sign << 63 | 0x7FF8 << 48 | payload
    return form.nan


def converted(q, to, of, word):
    """The bits of one float converted to another type."""
    flush = bool(q.get("ftz"))
    x = decoded(word, of, flush and of == "f32" and to != "f16")
    if integer(to):
        return to_integer(x, to, of, INTEGRAL[q["irnd"]])
    if q.get("sat") and (x.value is None or x.negative):
        return 0
    if x.value is None:
        return nan(x, of, to, q)
    if q.get("irnd") and x.finite:
        whole = integral(x.value, INTEGRAL[q["irnd"]], x.negative)
        x = Number(x.negative, Fraction(whole))
    if q.get("sat"):
        x = Number(False, min(x.value, Fraction(1)))
    if q.get("relu") and x.negative:
        return 0
    small = FORMATS[to].width <= 8
    finite = small or bool(q.get("satfinite"))
    mode = q.get("rnd") or "rn"
    bits = rounded(x, to, mode, finite=finite, flush=flush and to == "f32")
    return 0 if small and q.get("relu") and bits >> (FORMATS[to].width - 1) else bits


def exponent(q, x):
    """The bits of ue8m0: the exponent alone."""
    if x.value is None or (x.value == math.inf and not q.get("satfinite")):
        return 255
    if x.value == math.inf:
        return 254
    for field in range(255):
        power = Fraction(2) ** (field - 127)
        if q["rnd"] == "rp" and power >= x.value:
            return field
        if q["rnd"] == "rz" and 2 * power > x.value:
            return field
    return 254 if q.get("satfinite") else 255


def halves(word, width):
    """The upper and the lower part of a word."""
    return word >> width, word % (1 << width)


def joined(parts, width):
    """Numbers in one word, the first one on top."""
    found = 0
    for part in parts:
        found = found << width | part
    return found


def conversion(q, to, of, words):
    """The bits of the result of ``cvt``."""
    if integer(of):
        return from_integer(words[0], of, to, q.get("rnd") or "rn", bool(q.get("sat")))
    if "tf32" in q:
        return tf32(words[0], q)
    if not to.endswith("x2"):
        return converted(q, to, of, words[0])
    single, source = to.removesuffix("x2"), of.removesuffix("x2")
    width = 4 if single == "e2m1" else FORMATS.get(single, FORMATS["e4m3"]).width
    width = 8 if width == 6 else width
    if of.endswith("x2"):
        step = {"e2m1": 4}.get(source, 16 if source in ("f16", "bf16") else 8)
        words = halves(words[0], step)
    if single == "ue8m0":
        return joined([exponent(q, decoded(word, source)) for word in words], 8)
    if source == "ue8m0":
        powers = [Number(False, Fraction(2) ** (word - 127)) for word in words]
        return joined(
            [
                0x7FFF if word == 255 else rounded(x, "bf16", "rn")
                for word, x in zip(words, powers, strict=True)
            ],
            16,
        )
    width_of = FORMATS[source].width
    words = [word % (1 << width_of) for word in words]
    return joined([converted(q, single, source, word) for word in words], width)
