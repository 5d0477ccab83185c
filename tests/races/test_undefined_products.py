"""What one undefined element of A, B or D of a ``wgmma`` does to D."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.wgmma_operands import LaneOperand
from fragmenta.reference.isa.tables.wgmma import Ways
from fragmenta.reference.shared.descriptor import MAJORS
from fragmenta.watch.races.undefined_products import WARPS, warpgroup_product

TWIN = 1 << 16
"""How far the shadow of a register is behind it."""
FORMS = [
    ("m64n8k16", "f16", "f32", (0, 0), 0),
    ("m64n16k16", "f16", "f16", (1, 0), 128),
    ("m64n64k16", "bf16", "f32", (0, 1), 128),
    ("m64n128k16", "f16", "f32", (1, 1), 64),
    ("m64n8k8", "tf32", "f32", (0, 0), 32),
    ("m64n24k32", "e4m3", "f32", (0, 0), 0),
    ("m64n16k32", "s8", "s32", (0, 0), 64),
]


class Warpgroup:
    """Four warps whose registers are defined, and an empty shared memory."""

    def __init__(self, form: Any, a_from_registers: bool, adds: int) -> None:
        shape, kind, d, trans, swizzle = form
        self.op = fm.wgmma(shape, a=kind, d=d)
        self.trans = dict(zip("AB", trans, strict=True))
        self.shared = np.zeros(1 << 16, np.uint8)
        self.of = {
            name: fm.shared.tile(
                self.op,
                name,
                np.zeros(self.shape(name), self.op.types[name.lower()].storage),
                start=at,
                swizzle=swizzle,
                major=MAJORS[self.trans[name]],
            )[1]
            for name, at in (("A", 1024), ("B", 32768))
        }
        self.warps = [
            SimpleNamespace(words=np.zeros(TWIN // 2, np.uint32)) for _ in "1234"
        ]
        self.places = {
            name: [
                128 * (40 * number + n)
                for n in range(self.op.fragments[name].registers)
            ]
            for number, name in enumerate("AD")
        }
        self.ways = Ways(a_from_registers, 1, 1, *trans)
        self.adds = adds

    def shape(self, name: str) -> tuple[int, int]:
        """Rows and columns of an operand."""
        m, n, k = self.op.shape
        return {"A": (m, k), "B": (k, n), "D": (m, n)}[name]

    def undefine(self, name: str, row: int, col: int) -> None:
        """Make one element undefined, in shared memory or in a register."""
        if name == "B" or (name == "A" and not self.ways.a_from_registers):
            mn, k = (row, col) if name == "A" else (col, row)
            kind = self.op.types[name.lower()]
            major = MAJORS[self.trans[name]]
            self.shared[int(self.of[name].address(mn, k, kind, major))] = 1
            return
        place = self.op.fragments[name].where(row, col)
        at = self.places[name][place.register] + TWIN
        assert place.warp is not None
        self.warps[place.warp].words[at // 4 + place.lane] |= 1 << place.bits[0]

    def multiply(self) -> np.ndarray:
        """The undefined elements of D."""
        used = [LaneOperand(each) for each in self.places["A"]]
        in_registers = self.ways.a_from_registers
        located = SimpleNamespace(
            op=self.op,
            mnemonic=str(self.op),
            ways=self.ways,
            metadata=None,
            d=self.places["D"],
            a=used if in_registers else (),
        )
        words = [self.of[n].encode() for n in ("B" if in_registers else "AB")]
        work = SimpleNamespace(
            located=located, descriptors=words, given=(*words, self.adds)
        )
        twins = {each: each + TWIN for some in self.places.values() for each in some}
        warpgroup_product(work, self.warps, twins, self.shared)
        rows = [
            np.concatenate([w.words[at // 4 :][:LANES] for w in self.warps])
            for at in (each + TWIN for each in self.places["D"])
        ]
        assert len(self.warps) == WARPS
        return np.asarray(self.op.d.unpack_bits(np.stack(rows, axis=1)) != 0)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_an_undefined_element_makes_those_undefined_that_depend_on_it(
    form: Any,
) -> None:
    every = slice(None)
    for in_registers in (False, True):
        if in_registers and form[3][0]:
            continue  # only A in shared memory can be transposed
        for name, adds in (("A", 1), ("B", 1), ("D", 1), ("D", 0)):
            made = Warpgroup(form, in_registers, adds)
            row, col = (size - 3 for size in made.shape(name))
            made.undefine(name, row, col)
            wanted = np.zeros(made.shape("D"), bool)
            where = {"A": (row, every), "B": (every, col), "D": (row, col)}[name]
            wanted[where] = name != "D" or adds == 1
            assert np.array_equal(made.multiply(), wanted), (name, in_registers)
