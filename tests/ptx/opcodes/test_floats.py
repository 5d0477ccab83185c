"""The floating-point instructions give the exact result, rounded once."""

from functools import cache
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from fragmenta.ptx.opcodes.table import TABLE
from tests.ptx.opcodes import fractions, running
from tests.ptx.opcodes.conversions import conversion
from tests.ptx.opcodes.inputs import COUNT, KINDS, PLACES, pools
from tests.ptx.opcodes.judging import bits_of_type, forms, lines, mnemonics
from tests.ptx.opcodes.scalars import chosen

MODULES = ("floating", "half", "conversion", "fp8")
#: How many inputs of each form are compared.
TRIED = 48
_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


# ── inputs ──────────────────────────────────────────────────────────────────


def _numbers(kind, place, draw):
    """Numbers of every size, the limits of integers, and results that are tiny."""
    exponent, fraction = _FLOATS[kind]
    bias, width = (1 << (exponent - 1)) - 1, 1 + exponent + fraction
    bits = draw.integers(0, 1 << 64, COUNT, dtype=np.uint64) >> np.uint64(64 - width)
    keep = np.uint64((1 << fraction) - 1 | 1 << (width - 1))
    sizes = draw.integers(0, min(1 << exponent, bias + 70), COUNT, dtype=np.uint64)
    found = bits & keep | sizes << np.uint64(fraction)
    # The special numbers stand in the first quarter of the other pools.
    row = KINDS.index(kind) * PLACES + place
    found[:256] = pools()[row, :256]
    limits = [
        (bias + size << fraction) + more
        for size in (7, 8, 15, 16, 31, 32, 63, 64)
        if bias + size < 2 * bias
        for more in (-1, 0, 1)
    ]
    found[512 : 512 + len(limits)] = limits
    # The product of the first two is near the least normal number.
    half = bias // 2 if kind != "f16" else 7
    low = bias - half if place == 0 else bias - (bias - 1 - half)
    found[256:512] = bits[256:512] & keep | np.uint64(low << fraction)
    if place == 1:
        first = _numbers(kind, 0, np.random.default_rng([7, KINDS.index(kind), 0]))
        found[256:512] = _inverse(kind, first[256:512], draw)
    if place == 2:
        found[256:384] = 0
    return found


def _inverse(kind, words, draw):
    """Numbers whose products with others are near the least normal number."""
    found = []
    form = fractions.FORMATS[kind]
    for word in words.tolist():
        x = fractions.decoded(word, kind)
        exact = fractions.Fraction(2) ** form.least / x.value
        found.append(fractions.rounded(fractions.Number(False, exact), kind, "rn"))
    return np.array(found, np.uint64) + draw.integers(0, 3, len(found), dtype=np.uint64)


@cache
def harder():
    """Pools of the shape of those that are recorded, with other floats in them."""
    found = pools().copy()
    for kind, place in product(_FLOATS, range(PLACES)):
        draw = np.random.default_rng([7, KINDS.index(kind), place])
        row = KINDS.index(kind) * PLACES + place
        found[row] = _numbers(kind, place, draw)
        if kind in ("f16", "bf16"):
            pair = KINDS.index(f"{kind}x2") * PLACES + place
            found[pair] = found[row] | np.roll(found[row], 37) << np.uint64(16)
    return found


# ── what is expected ────────────────────────────────────────────────────────


def expected(form, words):
    """The result as the exact statement has it; None where it says nothing."""
    q = {**form.qualifiers, "mnemonic": form.mnemonic}
    opcode = form.syntax.opcode
    kinds = [kind for _, kind in form.operands()]
    of = form.results()[0][1]
    if opcode == "cvt":
        return conversion(q, of, kinds[0], words) if "rs" not in form.mnemonic else None
    if of.endswith("x2"):
        return _pairs(form, of.removesuffix("x2"), words)
    return _single(opcode, q, of, kinds, words)


def _pairs(form, of, words):
    width = fractions.FORMATS[of].width
    parts = [[word >> at & (1 << width) - 1 for word in words] for at in (width, 0)]
    kinds = [of] * len(words)
    upper, lower = (
        _single(form.syntax.opcode, form.qualifiers, of, kinds, part) for part in parts
    )
    return upper << width | lower


def _single(opcode, q, of, kinds, words):
    if opcode == "testp":
        return fractions.tested(q, kinds[0], words)
    if opcode in ("neg", "abs", "copysign"):
        return fractions.signs(opcode, q, of, words)
    if opcode in ("min", "max"):
        return fractions.extreme(opcode, q, of, words)
    return fractions.arithmetic(opcode, q, of, words, kinds)


@pytest.mark.long
@pytest.mark.parametrize("module", MODULES)
def test_every_result_is_the_exact_one_rounded(module, monkeypatch):
    monkeypatch.setattr(running, "pools", harder)
    some = chosen(module)
    wrong, compared = [], 0
    draw = np.random.default_rng(1)
    for form, found in zip(some, running.computed(some), strict=True):
        given = running.inputs(form)
        kinds = [kind for _, kind in form.operands()]
        for at in draw.choice(COUNT, TRIED, replace=False).tolist():
            words = [
                int(each[at]) & (1 << bits_of_type(kind)) - 1
                for each, kind in zip(given, kinds, strict=True)
            ]
            answer = expected(form, words)
            if answer is None:
                break
            compared += 1
            if form.results()[0][1] == "s8":  # as its register holds it
                answer = (answer ^ 0x80) - 0x80 & 0xFFFFFFFF
            if answer != int(found[0, at]):
                wrong.append(
                    (str(form), [*map(hex, words)], hex(answer), hex(found[0, at]))
                )
                break
    assert not wrong, wrong[:5]
    assert compared > 0.9 * TRIED * len(some) - 100 * TRIED


# ── all 65,536 inputs ───────────────────────────────────────────────────────

_TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _sixteen_bits():
    """The forms with one 16-bit operand that NumPy states, too."""
    found = []
    for module in ("half", "conversion"):
        for line in lines(module):
            for form in forms(line):
                kinds = [kind for _, kind in form.operands()]
                plain = not any(form.qualifiers.get(w) for w in ("sat", "ftz", "relu"))
                near = form.qualifiers.get("rnd") in (None, "", "rn")
                if kinds in (["f16"], ["bf16"]) and plain and near:
                    found.append(form)
    return found


def _stated(form, of, x):
    """What NumPy and ml_dtypes make of all numbers; where they are NaN does not count."""
    to = form.results()[0][1]
    wide = x.astype(np.float64)
    if form.syntax.opcode in ("neg", "abs"):
        wide = -wide if form.syntax.opcode == "neg" else abs(wide)
    if form.qualifiers.get("irnd"):
        wide = _ROUND[form.qualifiers["irnd"]](wide)
    if to in _TYPES:
        return wide.astype(_TYPES[to]).view(f"u{np.dtype(_TYPES[to]).itemsize}")
    limits = np.iinfo(f"{'iu'[to[0] == 'u']}{int(to[1:]) // 8}")
    high, low = wide >= float(limits.max), wide <= float(limits.min)
    whole = np.where(high | low, 0, wide).astype(limits.dtype)
    whole[high], whole[low] = limits.max, limits.min
    return whole.view(f"u{limits.bits // 8}")


def test_all_16_bit_numbers():
    some = _sixteen_bits()
    assert len(some) > 70
    parts = {str(form): [] for form in some}
    run = running.compiled(some)
    for first in range(0, 65536, COUNT):
        every = pools().copy()
        for kind in ("f16", "bf16"):
            every[KINDS.index(kind) * PLACES] = np.arange(first, first + COUNT)
        for form, found in zip(some, run(every), strict=True):
            parts[str(form)].append(found[0])
    words = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore", over="ignore"):
        _compare(some, parts, words)


def _compare(some, parts, words):
    for form in some:
        of = form.operands()[0][1]
        x = words.view(_TYPES[of])
        number = ~np.isnan(x.astype(np.float32))
        found = np.concatenate(parts[str(form)])
        stated = _stated(form, of, x)
        found = found.astype(stated.dtype)
        assert (found == stated)[number].all(), str(form)


def test_no_instruction_is_on_two_lines():
    seen = {}
    for module in MODULES:
        for line in lines(module):
            for mnemonic, _ in mnemonics(line):
                assert seen.setdefault((mnemonic, len(line.operands)), line) is line
                assert TABLE.find(mnemonic, len(line.operands)).syntax is line
