"""What an H200 answered to wgmma, the moves and wmma: every bit replayed."""

from pathlib import Path

import numpy as np
import pytest

from fragmenta import catalogue, instruction
from fragmenta.inspect.evidence import record, warpgroup
from fragmenta.inspect.evidence.variants import Variant
from fragmenta.reference.shared.descriptor import Descriptor

GOLDEN = Path(__file__).parents[1] / "golden" / "h200"


@pytest.mark.long
@pytest.mark.parametrize("name", ["wgmma", "moves", "wmma"])
def test_no_bit_differs(name):
    recording = record.load(GOLDEN / f"{name}.npz")
    compared = list(record.replay_any(recording))
    assert len(compared) == len(recording.cases)
    assert not [(case, wrong) for case, wrong in compared if wrong]
    assert recording.made["gpu"] == "NVIDIA H200"


def test_the_wgmma_recording_covers_what_matters():
    recording = record.load(GOLDEN / "wgmma.npz")
    cases = [
        (instruction(c.instruction), Variant(**c.variant)) for c in recording.cases
    ]
    types = {
        (op.family, op.values["d"], op.values["a"], op.values["b"]) for op, _ in cases
    }
    for family in ("wgmma", "wgmma.sp"):
        wanted = {
            (family, op.values["d"], op.values["a"], op.values["b"])
            for op in catalogue(family)
        }
        assert wanted <= types
        for registers in (False, True):
            seen = {
                op.shape.n
                for op, v in cases
                if op.family == family and v.a_registers is registers
            }
            assert {8, 24, 64, 96, 256} <= seen
    variants = [v for _, v in cases]
    assert {v.scale_a for v in variants} == {v.scale_b for v in variants} == {-1, 1}
    assert {(v.trans_a, v.trans_b) for v in variants} == {
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    }
    assert {v.selector for v in variants} == {None, 0, 1}


def test_the_wgmma_cases_vary_their_descriptors():
    words, scales = [], []
    for case in warpgroup.cases("sm_90a", seed=1)[::5]:
        made = case.inputs()
        words += [Descriptor.decode(int(word)) for word in made["b"].ravel()]
        scales += made["scale_d"].ravel().tolist()
    assert {each.swizzle for each in words} == {0, 32, 64, 128}
    assert len({each.leading for each in words}) > 8
    assert len({each.stride for each in words}) > 8
    # starts that are advanced within a swizzled row, not only at its beginning
    assert any(each.start % 1024 and each.swizzle == 128 for each in words)
    assert set(scales) == {0, 1}


def test_the_moves_cover_the_catalogue_of_the_target():
    recording = record.load(GOLDEN / "moves.npz")
    recorded = {case.instruction.replace(".shared", "") for case in recording.cases}
    wanted = {
        str(op)
        for family in ("ldmatrix", "stmatrix", "movmatrix")
        for op in catalogue(family)
        if op.supported_on("sm_90a", ptx="9.0") and not op.values["space"]
    }
    assert {name.replace("::cta", "") for name in recorded} >= wanted
    assert np.count_nonzero(recording.words) > recording.words.size // 2
