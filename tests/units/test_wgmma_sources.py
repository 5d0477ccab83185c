"""Tensor cores read the right units of shared memory, and a bad descriptor is reported."""

from __future__ import annotations

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.engine.units.wgmma_sources import bad_descriptor, owners, units
from fragmenta.reference.execution.warpgroup import warpgroup_function
from fragmenta.reference.shared.descriptor import MAJORS, Descriptor, extent

DENSE, SPARSE = "wgmma.mma_async.sync.aligned", "wgmma.mma_async.sp.sync.aligned"
OPS = [
    f"{DENSE}.m64n24k16.f32.f16.f16",
    f"{DENSE}.m64n8k8.f32.tf32.tf32",
    f"{DENSE}.m64n16k32.s32.s8.s8",
    f"{DENSE}.m64n8k256.s32.b1.b1.and.popc",
    f"{SPARSE}.m64n16k32.f32.bf16.bf16",
    f"{SPARSE}.m64n8k64.s32.u8.u8",
]
RNG = np.random.default_rng(3)


def descriptors(count: int) -> list[Descriptor]:
    """Any start, any strides, all swizzles, with base offsets."""
    found = []
    for number in range(count):
        swizzle = (0, 32, 64, 128)[number % 4]
        start, leading, stride = (int(x) * 16 for x in RNG.integers(64, 300, 3))
        base = int(RNG.integers(0, 8)) if number % 3 == 0 else 0
        found.append(Descriptor(start, leading, stride, swizzle, base))
    return found


def ways(op: fm.Instruction) -> tuple[int, ...]:
    return (0, 1) if op.types["a"].bits == 16 else (0,)


@pytest.mark.parametrize("text", OPS)
def test_units_are_the_bytes_of_all_elements(text: str) -> None:
    op = fm.find(text)
    for of in descriptors(24):
        for name in "AB":
            for trans in ways(op):
                found = units(op, name, of.encode(), trans)
                rows, k = extent(op, name)
                kind = op.types[name.lower()]
                bits = of.bit_address(*np.ogrid[:rows, :k], kind, MAJORS[trans])
                assert set(found.tolist()) == set((bits.reshape(-1) >> 7 << 4).tolist())
                assert found.size * 128 == rows * k * kind.bits
                if name == "A":
                    by = bits // 128 * 16
                    for warp in range(4):
                        mine = found[owners(op, trans) == warp]
                        want = by[16 * warp : 16 * warp + 16].reshape(-1)
                        assert set(mine.tolist()) == set(want.tolist())


@pytest.mark.parametrize("trans", [0, 1])
def test_the_product_reads_the_units_and_nothing_else(trans: int) -> None:
    """All other bytes are NaN; one unit of A gives values in its warp's rows only."""
    op = fm.find(f"{DENSE}.m64n8k16.f32.f16.f16")
    run = warpgroup_function(op, "sm_90a", trans_a=trans, trans_b=trans)
    for of in descriptors(12):
        a = Descriptor(of.start, of.leading, of.stride, of.swizzle, of.base_offset)
        b = Descriptor(65536 + of.start, 2048, 4096, of.swizzle, of.base_offset)
        image = np.full(1 << 18, 0xFF, np.uint8)
        lines = image.reshape(-1, 16)
        lines[units(op, "A", a.encode(), trans) // 16] = 0
        lines[units(op, "B", b.encode(), trans) // 16] = np.tile([0, 0x3C], 8)
        words = np.array([a.encode(), b.encode()], np.uint64)
        d = np.zeros((4, 128), np.uint32)
        assert run(d, None, words, image) == 0
        assert not d.any()
        found = units(op, "A", a.encode(), trans)
        single = np.flatnonzero(np.bincount(found // 16)[found // 16] == 1)
        for number in single[:: max(1, len(single) // 8)]:
            there = lines[found[number] // 16]
            there[:] = np.tile([0, 0x3C], 8)
            d[:] = 0
            assert run(d, None, words, image) == 0
            there[:] = 0
            warps = np.flatnonzero(d.reshape(4, 4, 32).any(axis=(0, 2)))
            assert warps.tolist() == [owners(op, trans)[number]]


def test_what_is_wrong_with_a_descriptor() -> None:
    op = fm.find(f"{DENSE}.m64n8k16.f32.f16.f16")
    plain = Descriptor(2048, 0, 1024, 128)

    def said(word: int, size: int = 1 << 16, name: str = "A") -> str:
        return bad_descriptor(op, name, word, 0, size)

    assert said(plain.encode()) == ""
    assert said(plain.encode() | 1 << 15) == (
        "the descriptor of A: 0x4000004000008080 is not a wgmma descriptor: bit 15 "
        "must be 0"
    )
    free = Descriptor(2048, 128, 256, 0).encode()
    assert said(free) == ""
    assert said(free | 7 << 49) == ""  # without a swizzle, no pattern begins anywhere
    ends = 2048 + 8 * 1024  # the last line is line 7 of the last atom
    assert said(plain.encode(), ends) == ""
    assert said(plain.encode(), ends - 1).endswith("shared memory has 1024 to 10238")
    # The first kilobyte is not the kernel's.
    assert "reads bytes 0 to " in said(Descriptor(0, 0, 1024, 128).encode())
    # A start in the middle of a pattern is read by absolute addresses, as it is meant.
    assert said(Descriptor(2048 + 128, 0, 1024, 128).encode()) == ""
