"""How an instruction adds on each target, told from the model that computes it."""

import json
from dataclasses import replace

import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.families import MULTIPLYING


def some():
    """One instruction of every set of types and family."""
    seen = {}
    for op in catalogue():
        if op.family in MULTIPLYING and "shape" in op.values:
            seen.setdefault((op.family, op.kind, *map(str, op.types.values())), op)
    return seen.values()


def test_every_target_is_told_once_and_as_it_computes():
    for op in some():
        told = op.sums()
        assert sorted(t for each in told for t in each.targets) == sorted(
            op.requires.targets
        )
        assert len({replace(each, targets=()) for each in told}) == len(told)
        for each in told:
            model = numeric_model(op, each.targets[-1])
            assert each.form == model.form
            assert (each.expanded_to is not None) == each.source.startswith("expanded")
            if each.steps is not None:
                assert each.steps * each.products == model.stored
                assert (each.fraction, each.keep) == (model.fraction, model.keep)
            json.dumps(each.to_dict())


@pytest.mark.parametrize(
    "op, target, said",
    [
        (fm.mma("m16n8k8", a="f64"), "sm_90", "a fused multiply-add for each product"),
        (fm.mma("m8n8k4", a="f16", d="f16"), "sm_80", "(c + (p0 + p1)) + (p2 + p3)"),
        (fm.mma("m8n8k4", a="f16", d="f32"), "sm_80", "c is added last; expanded"),
        (fm.tcgen05("m128n64k32", a="e4m3", d="f32"), "sm_103a", "assumed: as on"),
        (fm.mma("m16n8k32", a="e4m3", d="f32"), "sm_90", "then c is added"),
    ],
)
def test_what_is_said(op, target, said):
    (found,) = (each for each in op.sums() if target in each.targets)
    assert said in str(found)


def test_a_sum_that_nobody_published_has_no_numbers():
    op = fm.tcgen05("m128n64k96", kind="mxf4", a="e2m1", scale="ue8m0")
    (told,) = op.sums()[:1]
    assert (told.form, told.products, told.keep) == ("unknown", None, None)
    assert "not known; open: nobody has published" in str(told)


def test_what_does_not_multiply_has_no_sums():
    with pytest.raises(fm.Error, match="does not multiply"):
        fm.find("movmatrix").sums()
