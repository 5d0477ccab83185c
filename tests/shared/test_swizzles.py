"""Swizzles as layouts, against XORs of bits written out by hand."""

import numpy as np
import pytest

from fragmenta.base.jit.compiler import kernel, pointer
from fragmenta.base.jit.trace import I64
from fragmenta.cuda.source.loops import _swizzle
from fragmenta.errors import AddressError
from fragmenta.reference.registers import notation
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.shared.descriptor import Descriptor, swizzled
from fragmenta.reference.shared.elements import allowed_swizzles
from fragmenta.reference.shared.fields import MODES
from fragmenta.reference.shared.swizzles import (
    REPEAT,
    SWIZZLES,
    WGMMA_SWIZZLES,
    XorSwizzle,
    exchanged,
    moved,
    pattern,
    xor_swizzle,
)
from tests.thinning import some

#: As the PTX manual has them: which bit of an address changes by which.
BY_HAND = {
    0: (),
    32: ((4, 7),),
    64: ((4, 7), (5, 8)),
    128: ((4, 7), (5, 8), (6, 9)),
    "128/32": ((5, 7), (6, 8)),
}
ANY = [
    XorSwizzle(bits, base, shift)
    for bits in range(4)
    for base in range(7)
    for shift in (-6, -4, -3, 3, 4, 6)
]
KILOBYTE = np.arange(REPEAT)
FAR = np.concatenate([KILOBYTE, 5 * REPEAT + KILOBYTE, (1 << 40) + KILOBYTE])


def by_hand(address, bits, base_offset=0):
    found = address
    first = min((high for _, high in bits), default=0)
    for low, high in bits:
        found = found ^ ((address - (base_offset << first)) >> high & 1) << low
    return found


def bits_of(swizzle):
    if swizzle in BY_HAND:
        return BY_HAND[swizzle]
    bits, base, shift = swizzle
    if shift > 0:
        return [(base + bit, base + bit + shift) for bit in range(bits)]
    return [(base + bit - shift, base + bit) for bit in range(bits)]


@pytest.mark.parametrize("swizzle", [*SWIZZLES, *some(ANY, 3)], ids=str)
def test_a_swizzle_is_its_layout(swizzle):
    """Every reader of the line gives the same bits: of a pattern, and far away."""
    bits, xor = bits_of(swizzle), xor_swizzle(swizzle)
    for base in range(8):
        right = by_hand(FAR, bits, base)
        assert (moved(FAR, swizzle, base) == right).all()
    assert (swizzled(FAR, swizzle) == by_hand(FAR, bits)).all()

    size = max(REPEAT, xor.repeat)
    layout, at = xor.layout(size), np.arange(size)
    right = by_hand(at, bits)
    assert (layout.element(A=at)["address"] == right).all()
    assert (layout.grid()["address"] == right).all()
    assert (layout.inverse().element(address=right)["A"] == at).all()
    assert (layout.place_index()[right] == at).all()
    assert layout.places(address=int(right[size // 3])) == [{"A": size // 3}]
    assert layout.then(layout.inverse()) == Layout.parse("A = A*", A=size)
    assert Layout.parse(str(layout), A=size) == layout

    python = {"language": "python"}
    holds = layout.to_cuda("holds", **python, A="at")["address"]
    where = layout.to_cuda("where", **python, address="at")["A"]
    assert (eval(holds, {"at": at}) == right).all()
    assert (eval(where, {"at": right}) == at).all()
    for one in (0, 5, size // 2 - 1, size - 1):
        assert int(layout.to_cuda("holds", A=one)["address"]) == right[one]
    bases = notation.linear_layout(layout, [("A", "A")])["A"]
    linear = np.zeros_like(at)
    for bit, (basis,) in enumerate(bases):
        linear ^= np.where(at >> bit & 1, basis, 0)
    assert (linear == right).all()
    (formula,) = notation.formula(layout, "a").cases
    assert (eval(formula[1][0].expression, {"A": at}) == right).all()

    text = _swizzle(xor).split("return ")[1].split(";")[0] if xor.bits else "offset"
    assert (eval(text, {"offset": FAR}) == by_hand(FAR, bits)).all()


@pytest.mark.parametrize("swizzle", SWIZZLES, ids=str)
def test_the_numbers_of_a_swizzle_are_those_of_its_line(swizzle):
    of = pattern(swizzle)
    assert of.layout == of.xor.layout(REPEAT)
    assert of.changed == sum(1 << low for low, _ in BY_HAND[swizzle])
    at = np.arange(4 * REPEAT)
    same = by_hand(at, BY_HAND[swizzle]) - at
    assert (same[of.repeat :] == same[: -of.repeat]).all()
    assert of.repeat == 16 or (same[of.repeat // 2 :] != same[: -of.repeat // 2]).any()


def test_a_swizzle_that_is_known_at_run_time_has_the_same_bits():
    """In Python, and in compiled code that takes the mode and the base offset."""

    @kernel(out=pointer(I64), mode=I64, base=I64)
    def compiled(code, out, mode, base):
        changed = code.table([pattern(each).changed for each in MODES], I64)[mode]
        with code.loop(REPEAT) as at:
            out[at] = exchanged(at, changed, base)

    for mode, swizzle in enumerate(MODES):
        for base in range(8):
            right = by_hand(KILOBYTE, BY_HAND[swizzle], base)
            found = exchanged(KILOBYTE, pattern(swizzle).changed, base)
            assert (found == right).all()
            out = np.zeros(REPEAT, np.int64)
            compiled(out, mode, base)
            assert (out == right).all()
    assert set(MODES) == set(WGMMA_SWIZZLES)


TYPES = {"b1": 1, "e2m1": 4, "e4m3": 8, "f16": 16, "tf32": 32}


@pytest.mark.parametrize("swizzle", SWIZZLES, ids=str)
@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize("major", ["k", "mn"])
def test_every_element_of_an_atom_is_where_its_bits_say(of, major, swizzle):
    """A whole atom, all element sizes: the layout of memory and the descriptor agree."""
    bits, shape = TYPES[of], pattern(swizzle)
    family = "wgmma" if of in ("b1", "f16") and swizzle != "128/32" else "tcgen05"
    kind = "mxf4" if of == "e2m1" else None
    d = Descriptor(0, shape.atom, shape.atom, swizzle, family=family)
    along, across = np.arange(shape.span * 8 // bits), np.arange(shape.lines)[:, None]
    mn, k = (across, along) if major == "k" else (along, across)
    allowed = family == "wgmma" or swizzle in allowed_swizzles(of, major)
    if not allowed or (of == "b1" and (family, major) != ("wgmma", "k")):
        with pytest.raises(AddressError):
            d.bit_address(mn, k, of, major, kind)
        return
    linear = across * shape.span * 8 + along * bits
    right = by_hand(linear // 8, BY_HAND[swizzle]) * 8 + linear % 8
    found = d.bit_address(mn, k, of, major, kind)
    assert (found == right).all()
    assert len(np.unique(found)) == found.size
    assert (
        shape.layout.element(A=linear // 8)["address"] * 8 + linear % 8 == found
    ).all()


def test_layouts_that_are_no_swizzle_are_refused():
    two = Layout.parse("address = A0^A2 A1^A4 A2*", A=64)
    with pytest.raises(AddressError, match="not the layout of one XOR"):
        XorSwizzle.of_layout(two)
    for size in (48, 512, 3000):
        with pytest.raises(AddressError, match="a power of two of bytes, from 1024"):
            XorSwizzle(3, 4, 3).layout(size)
