"""Quick functions of ``wgmma`` give the bits of ``op.execute``, or change nothing."""

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.evidence.variants import Variant
from fragmenta.evidence.warpgroup import WarpgroupCase
from fragmenta.execution.warpgroup_floors import (
    FAILED,
    Numbers,
    is_quick,
    quick_function,
)
from fragmenta.isa.tables.wgmma import Ways
from fragmenta.simt.layout import LANES

from .warpgroups import TARGET, inputs

DENSE, SPARSE = "wgmma.mma_async.sync.aligned", "wgmma.mma_async.sp.sync.aligned"
SOME = [
    (f"{DENSE}.m64n40k16.f32.f16.f16", Variant(False, None, -1, 1, 1, 1)),
    (f"{DENSE}.m64n8k16.f32.bf16.bf16", Variant(False, None, 1, -1, 1, 0)),
    (f"{DENSE}.m64n256k16.f32.bf16.bf16", Variant(False, None, 1, 1, 0, 1)),
    (f"{DENSE}.m64n136k16.f32.f16.f16", Variant(True, None, -1, 1)),
    (f"{DENSE}.m64n24k8.f32.tf32.tf32", Variant(True, None, -1, -1)),
    (f"{DENSE}.m64n72k32.f32.e4m3.e5m2", Variant(False, None, -1, 1)),
    (f"{DENSE}.m64n16k32.f32.e5m2.e4m3", Variant(True, None, 1, -1)),
    (f"{SPARSE}.m64n16k32.f32.f16.f16", Variant(False, 1, 1, -1, 1, 1)),
    (f"{SPARSE}.m64n120k16.f32.tf32.tf32", Variant(False, 0, -1, 1)),
    (f"{SPARSE}.m64n8k64.f32.e5m2.e5m2", Variant(True, 0, 1, -1)),
]


class Warps:
    """D of a tile in four warps, whose registers are anywhere."""

    def __init__(self, c: np.ndarray, seed: int) -> None:
        registers = c.shape[1]
        order = np.random.default_rng(seed).permutation(registers + 3)[:registers]
        self.memory = np.zeros((4, registers + 3, LANES), np.uint32)
        self.places = order * (4 * LANES)
        self._order = order
        self.memory[:, order] = c.reshape(4, LANES, registers).swapaxes(1, 2)
        self.starts = self.memory.ctypes.data + self.memory[0].nbytes * np.arange(4)

    def d(self) -> np.ndarray:
        """All lanes, all registers."""
        return self.memory[:, self._order].swapaxes(1, 2).reshape(128, -1)


def quickly(case: WarpgroupCase, one: dict[str, np.ndarray]) -> tuple[int, np.ndarray]:
    """The result of a quick function for one tile, and D."""
    op, way = case.op, case.way
    ways = Ways(way.a_registers, way.scale_a, way.scale_b, way.trans_a, way.trans_b)
    numbers = Numbers(op, TARGET)
    work, warps = np.zeros(numbers.bytes, np.uint8), Warps(one["c"], case.seed)
    words = [one["b"]] if way.a_registers else [one["a"], one["b"]]
    nothing = np.zeros(1, np.uint32)
    found = quick_function(op, TARGET, ways)(
        warps.starts.astype(np.int64),
        warps.places.astype(np.int64),
        np.ascontiguousarray(one["a"].T) if way.a_registers else nothing,
        np.array(words, np.uint64),
        one["image"],
        one["image"].size,
        one["metadata"].reshape(-1) if op.sparse else nothing,
        np.array([one["scale_d"], way.selector or 0], np.int64),
        numbers.listed(work),
    )
    return found, warps.d()


@pytest.mark.parametrize("text, way", SOME)
def test_the_bits_of_execute(text: str, way: Variant) -> None:
    op = fm.find(text)
    assert is_quick(op, TARGET)
    case = WarpgroupCase(op, way, 8, 5)
    given = inputs(case)
    want, results = case.expect(given, TARGET), []
    for tile in range(case.tiles):
        one = {name: array[tile] for name, array in given.items()}
        found, d = quickly(case, one)
        results.append(found)
        assert (d == (want[tile] if found == 0 else one["c"])).all()
    assert 0 in results
    assert set(results) <= {0, FAILED}


@pytest.mark.parametrize("what", ["metadata", "outside", "a bit", "infinity"])
def test_what_cannot_be_done_changes_nothing(what: str) -> None:
    op, way = fm.find(f"{SPARSE}.m64n16k32.f32.f16.f16"), Variant(False, 0)
    case = WarpgroupCase(op, way, 8, 5)
    given = case.inputs()
    tiles = ({name: array[i] for name, array in given.items()} for i in range(8))
    one = next(each for each in tiles if quickly(case, each)[0] == 0)
    if what == "metadata":
        one["metadata"][...] = 0
    elif what == "outside":
        one["b"] = one["b"] + np.uint64(one["image"].size >> 4)
    elif what == "a bit":
        one["b"] = one["b"] | np.uint64(1 << 14)
    else:
        one["image"].view(np.uint16)[:] = 0x7C00
    found, d = quickly(case, one)
    assert found == FAILED
    assert (d == one["c"]).all()


def test_instructions_that_have_none() -> None:
    for text in (
        f"{DENSE}.m64n8k32.s32.s8.s8",
        f"{DENSE}.m64n8k256.s32.b1.b1.and.popc",
        f"{DENSE}.m64n8k16.f16.f16.f16",
    ):
        assert not is_quick(fm.find(text), TARGET)
