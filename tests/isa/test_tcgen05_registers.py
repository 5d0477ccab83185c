"""The registers of ``tcgen05.ld`` and ``.st`` hold the right cells.

The formulas are those that five libraries share; ``t`` is the lane of the warp, ``r``
the register, ``row`` and ``column`` count from the address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fragmenta as fm

Formula = Callable[[Any, Any], Any]

# tile: registers at x1, the greatest num, row and column.
FORMULAS: dict[str, tuple[int, int, Formula, Formula]] = {
    "32x32b": (1, 128, lambda t, r: t, lambda t, r: r),
    "16x64b": (
        1,
        128,
        lambda t, r: t // 4 + 8 * (t % 2),
        lambda t, r: t // 2 % 2 + 2 * r,
    ),
    "16x128b": (
        2,
        64,
        lambda t, r: t // 4 + 8 * (r % 2),
        lambda t, r: t % 4 + 4 * (r // 2),
    ),
    "16x256b": (
        4,
        32,
        lambda t, r: t // 4 + 8 * (r // 2 % 2),
        lambda t, r: r % 2 + 2 * (t % 4) + 8 * (r // 4),
    ),
    "16x32bx2": (1, 128, lambda t, r: t % 16, lambda t, r: r),
}
CASES = [
    (tile, 1 << power)
    for tile, (_, most, _, _) in FORMULAS.items()
    for power in range(most.bit_length())
]


def register(tile: str, num: int, *, packed: bool = False, store: bool = False) -> Any:
    name, word = ("st", "unpack") if store else ("ld", "pack")
    form = f".{word}::16b" if packed else ""
    return fm.instruction(
        f"tcgen05.{name}.sync.aligned.{tile}.x{num}{form}.b32"
    ).fragment("R")


@pytest.mark.parametrize("tile, num", CASES)
@pytest.mark.parametrize("packed", [False, True])
def test_every_place(tile: str, num: int, packed: bool) -> None:
    each, _, row, column = FORMULAS[tile]
    part = register(tile, num, packed=packed)
    assert (part.lanes, part.registers) == (32, each * num)
    t, r, e = np.indices((32, each * num, 2 if packed else 1))
    found = part.layout.grid()
    shape = t.shape
    assert (np.reshape(found["row"], shape) == row(t, r)).all()
    # Packed: the low halves of columns 2c and 2c + 1, the first in the low half.
    wanted = 2 * column(t, r) + e if packed else column(t, r)
    assert (np.reshape(found["col"], shape) == wanted).all()
    if tile == "16x32bx2":
        assert (np.reshape(found["half"], shape) == t // 16).all()


@pytest.mark.parametrize("tile, num", CASES)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_stored_is_what_is_loaded(tile: str, num: int, packed: bool) -> None:
    loaded = register(tile, num, packed=packed)
    assert register(tile, num, packed=packed, store=True) == loaded


@pytest.mark.parametrize("num", [1, 2, 32])
def test_16x256b_is_the_accumulator_of_mma(num: int) -> None:
    """One block of 8 columns is C of ``mma.m16n8`` with f32, register for register."""
    c = fm.mma("m16n8k16", a="f16", d="f32").c
    part = register("16x256b", num)
    for block in range(num):
        for lane in range(32):
            four = [
                part.holds(lane, register=4 * block + number)[0] for number in range(4)
            ]
            assert four == [(row, col + 8 * block) for row, col in c.holds(lane)]


def test_16x256b_of_a_warpgroup_is_the_accumulator_of_wgmma() -> None:
    """Each warp loads 16 of the 64 rows, with the registers that D of ``wgmma`` has."""
    d = fm.wgmma("m64n256k16", a="f16", d="f32").d
    part = register("16x256b", 32)
    for warp in range(4):
        rows = [(row + 16 * warp, col) for row, col in part.holds(13)]
        assert d.holds(13, warp=warp) == rows


def test_a_reduction_has_a_type_and_a_compression_no_fragment() -> None:
    text = "tcgen05.ld.red.sync.aligned.32x32b.x4.max.f32"
    part = fm.instruction(text).fragment("R")
    assert (str(part.dtype), part.registers) == ("f32", 4)
    text = "tcgen05.ld.red.spcompress.sync.aligned.32x32b.x4.max.sp::2:4.f32.b2"
    assert not fm.instruction(text).fragments
