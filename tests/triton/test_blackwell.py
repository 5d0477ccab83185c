"""Triton kernels for Blackwell give the right result when they are simply called."""

from copy import deepcopy

import pytest

from fragmenta.triton import on_cpu
from tests.ptx import blackwell_results
from tests.ptx.corpus.gluon_blackwell import LAUNCHES as PAIRS
from tests.ptx.corpus.triton_blackwell import LAUNCHES
from tests.ptx.corpus.triton_hopper import Launched
from tests.ptx.test_triton_blackwell import SCHEDULES
from tests.ptx.test_triton_hopper import WHOLE
from tests.triton.record import as_given, make_arrays

pytestmark = pytest.mark.triton

LONG = ("attention-causal", "attention_by_maps-causal-128")


@pytest.mark.parametrize(
    "launch",
    [each for each in (*LAUNCHES, *PAIRS) if WHOLE or not each.name.startswith(LONG)],
    ids=lambda launch: launch.name,
)
def test_a_call_is_right_and_nothing_is_said(launch: Launched) -> None:
    arrays = make_arrays(launch)
    before = deepcopy(arrays)
    with on_cpu("sm_100a", watch="report", schedule=SCHEDULES) as cpu:
        launch.function[launch.grid](
            *as_given(launch, arrays), **launch.constants, **launch.options
        )
    assert cpu.last is not None
    assert not [each for each in cpu.last.problems if each.severity != "info"]
    blackwell_results.check(launch.name, launch.arguments, before, arrays)
