"""Triton kernels for Hopper give the bits of an H200 when they are simply called.

If the installed version of Triton has no recording, kernels are compared whose
arithmetic no version changes.
"""

import pytest
import triton

from fragmenta.errors import Error
from fragmenta.triton import on_cpu
from tests.ptx.corpus.triton_hopper import LAUNCHES, Launched
from tests.ptx.test_triton_hopper import (
    SCHEDULES,
    STORED_TWICE,
    VERSIONS,
    WHOLE,
    memory_of,
    recorded,
)
from tests.triton.record import as_given, make_arrays, short_hash

pytestmark = pytest.mark.triton

QUICK = [
    "matmul-bf16",
    "matmul-f16-cluster",
    "matmul_ragged",
    "matmul_made_here-f16",
    "matmul_persistent",
    "matmul_specialised",
    "matmul_added",
    "attention_by_maps-whole-64",
    *STORED_TWICE,
]


@pytest.mark.parametrize(
    "launch",
    [each for each in LAUNCHES if WHOLE or each.name in QUICK],
    ids=lambda launch: launch.name,
)
def test_a_call_leaves_the_bytes_of_the_gpu(launch: Launched) -> None:
    version = triton.__version__
    row = recorded(version if version in VERSIONS else VERSIONS[-1])[launch.name]
    arrays = make_arrays(launch)
    schedules = SCHEDULES if WHOLE else SCHEDULES[:2]
    with on_cpu("sm_90a", watch="report", schedule=schedules) as cpu:
        launch.function[launch.grid](
            *as_given(launch, arrays), **launch.constants, **launch.options
        )
    if version in VERSIONS or launch.name.startswith("matmul"):
        assert [short_hash(each) for each in memory_of(arrays)] == row["after"]
    assert cpu.last is not None
    problems = cpu.last.problems
    assert not [each for each in problems if each.severity != "info"]
    assert STORED_TWICE.get(launch.name, set()) <= {each.rule for each in problems}


def test_options_are_those_of_a_launch() -> None:
    with pytest.raises(Error, match="did you mean schedule"), on_cpu(schedule_=1):
        pass
