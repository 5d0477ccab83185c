"""What a real H200 answered, against what the package computes: every bit."""

from pathlib import Path

import numpy as np
import pytest

from fragmenta import catalogue, instruction
from fragmenta.errors import Error
from fragmenta.inspect.evidence import inputs
from fragmenta.inspect.evidence.record import CaseRecording, load, replay
from fragmenta.inspect.evidence.registers import RegisterCase

GOLDEN = Path(__file__).parents[1] / "golden" / "h200"
FAMILIES = ("mma", "mma.sp")


@pytest.fixture(scope="module", params=FAMILIES)
def recording(request):
    return request.param, load(GOLDEN / f"{request.param}.npz")


def test_every_variant_and_selector_was_recorded(recording):
    family, found = recording
    wanted = {
        (str(op), selector)
        for op in catalogue(family)
        if op.supported_on("sm_90a")
        for selector in op.selectors or (None,)
    }
    assert {(case.instruction, case.selector) for case in found.cases} == wanted
    assert all(case.shape[0] >= 30 for case in found.cases)
    assert found.made["gpu"] == "NVIDIA H200"


@pytest.mark.long
@pytest.mark.xdist_group("golden")
def test_no_bit_differs(recording):
    _, found = recording
    different = [difference for _, difference in replay(found) if difference]
    assert not [(d.case.instruction, d.bits, d.first) for d in different]


def test_nothing_recorded_was_left_unwritten(recording):
    _, found = recording
    unwritten = np.uint32(0xDEADBEEF)
    assert (found.words == unwritten).mean() < 1e-6


def test_a_wrong_bit_would_be_seen():
    found = load(GOLDEN / "mma.npz")
    case = found.cases[0]
    words = found.words.copy()
    words[case.start + 7] ^= 4
    spoiled = CaseRecording(found.made, [case], words)
    ((_, difference),) = replay(spoiled)
    assert (difference.bits, difference.elements) == (1, 1)
    assert "GPU" in difference.first


def test_changed_inputs_would_be_seen():
    found = load(GOLDEN / "mma.npz")
    case = found.cases[0]
    moved = type(case)(**{**vars(case), "seed": case.seed + 1})
    with pytest.raises(Error, match="not those that were recorded"):
        list(replay(CaseRecording(found.made, [moved], found.words)))


def test_the_inputs_are_of_every_kind():
    op = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    made = RegisterCase(op, None, tiles=40, seed=1).inputs()
    a = op.a.unpack(made["a"]).reshape(8, 5, 16, 16)
    kinds = dict(zip(inputs.FLOAT_KINDS, a, strict=True))
    assert np.isnan(kinds["bits"]).any()
    assert np.isinf(kinds["special"]).any()
    assert np.isfinite(kinds["wide"]).all()
    assert (np.abs(kinds["subnormal"]) < 2.0**-12).all()
    assert np.unique(np.abs(kinds["cancel"])).size == 4
    assert (kinds["zeros"] == 0).mean() > 0.5
