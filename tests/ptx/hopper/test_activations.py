"""Packed activations have an H200's bits, in every schedule."""

import json
import os

import pytest

from fragmenta import ptx
from tests.ptx.hopper.activations import FILE, FUSED, LAUNCHES, PACKINGS, recorded
from tests.ptx.hopper.gemms import short_hash
from tests.ptx.hopper.mutants import mutants

COMPLETE = bool(os.environ.get("FRAGMENTA_HOPPER"))
SCHEDULES = ("eager", "lazy", 1, 2) if COMPLETE else ("lazy",)
SOME = LAUNCHES if COMPLETE else [PACKINGS[1], FUSED[4]]


def test_the_recording_is_of_an_h200():
    read = json.loads(FILE.read_text())
    assert "H200" in read["made"]["gpu"]
    assert list(read["launches"]) == [each.name for each in LAUNCHES]


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda each: each.name)
def test_the_emulation_has_the_bits_of_the_gpu(launch):
    kept = recorded()[launch.name]
    assert [launch.digest(), short_hash(*launch.expected())] == kept


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("launch", SOME, ids=lambda each: each.name)
def test_a_launch_leaves_these_bytes_and_nothing_is_reported(launch, schedule):
    found = launch.launch(schedule=schedule, watch="report")
    assert found.same(launch.expected())
    assert not [x for x in found.result.problems if x.severity == "error"]


@pytest.mark.long
def test_a_missing_fence_and_a_missing_barrier_are_reported():
    """What the threads pack must be seen by the copy engine, and not too early."""
    launch = FUSED[4]
    listed = [
        each
        for each in mutants(launch.text, "gemm")
        if each.change in ("remove fence.proxy.async", "remove bar.sync")
    ]
    assert {each.change for each in listed} == {
        "remove fence.proxy.async",
        "remove bar.sync",
    }
    kinds = {each.change: each for each in listed}
    for each in listed if COMPLETE else kinds.values():
        kernel = ptx.parse(each.text).kernels["gemm"]
        found = launch.launch(kernel, schedule="lazy", watch="report")
        wrong = not found.same(launch.expected())
        assert wrong or found.result.problems, each.change
