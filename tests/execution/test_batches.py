"""Batches of tiles in machine code, against the same tiles as matrices."""

from unittest.mock import patch

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.execution import batches, mma
from tests.arithmetic.inputs import raw

TILES = 19  # not a multiple of those that are in the cache at a time
CASES = {  # units of 2 and 4 bytes, of 4, of 1 and 4
    "f16": ({"shape": "m16n8k16", "a": "f16", "d": "f32"}, "sm_90"),
    "tf32": ({"shape": "m16n8k8", "a": "tf32", "d": "f32"}, "sm_90"),
    "e4m3": ({"shape": "m16n8k32", "a": "e4m3", "d": "f32"}, "sm_120"),
}


def registers(rng, part, leading):
    """Registers with numbers around one in some tiles, and with any bits in others."""
    bits = raw(rng, part.dtype.name, (*leading, *part.shape), "near")
    words = part.pack(part.dtype.decode(bits))
    wild = rng.random(leading) < 0.2
    words[wild] = rng.integers(0, 1 << 32, words[wild].shape, dtype=np.uint32)
    return words


def both(op, given, target):
    """The result in machine code alone, and as matrices."""
    with patch.object(mma, "_TILES", 1):
        called = patch.object(batches, "execute", wraps=batches.execute)
        with called as machine:
            new = op.execute(*given, target=target)
        machine.assert_called_once()
        with patch.object(batches, "suits", lambda *_: False):
            return new, op.execute(*given, target=target)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_batches(name):
    """Numbers, infinities and NaN; operands of several tiles or of one."""
    options, target = CASES[name]
    op = fm.mma(**options)
    rng = np.random.default_rng(len(name))
    for axes in ([(TILES,)] * 3, [(3, 5), (1,), (3, 1)], [(), (5,), (2, 1)]):
        parts = (op.a, op.b, op.c)
        given = [registers(rng, *each) for each in zip(parts, axes, strict=True)]
        new, old = both(op, given, target)
        assert np.array_equal(new, old)


def test_registers_anywhere_in_memory():
    """Units of two registers, at an address that is no multiple of their size."""
    op = fm.mma("m16n8k16", a="f16", d="f32")
    rng = np.random.default_rng(1)
    given = []
    for part in (op.a, op.b, op.c):
        words = registers(rng, part, (TILES,))
        room = np.zeros(words.size + 2, np.uint32)
        start = 1 if room.ctypes.data % 8 == 0 else 0
        there = room[start : start + words.size].reshape(words.shape)
        there[...] = words
        given.append(there)
    new, old = both(op, given, "sm_90")
    assert np.array_equal(new, old)


def test_others_are_not_computed_here():
    """Accumulators of f16, integers, a sparse A: as matrices."""
    for op in (
        fm.mma("m16n8k16", a="f16", d="f16"),
        fm.mma("m16n8k32", a="s8"),
        fm.find("mma.sp m16n8k32 f32 f16"),
    ):
        model = mma.numeric_model(op, "sm_90a")
        assert not batches.suits(op, model)
