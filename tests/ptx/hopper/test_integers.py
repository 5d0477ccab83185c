"""Products of 4-bit integers give an H200's bits, in every schedule.

``make hopper`` runs all launches, ``make test`` a few.
"""

import json
import os
from dataclasses import replace

import pytest

from fragmenta.kernels import Kernel, Tile
from tests.ptx.hopper import judging, launching, subjects
from tests.ptx.hopper.gemms import OF_INTEGERS, Gemm, short_hash
from tests.ptx.hopper.record import INTEGERS_FILE, MORE, MORE_FILE, recorded

COMPLETE = bool(os.environ.get("FRAGMENTA_HOPPER"))
RECORDED = {INTEGERS_FILE: OF_INTEGERS, MORE_FILE: MORE}
EVERY = [(file, each) for file, listed in RECORDED.items() for each in listed]
LAUNCHES = EVERY if COMPLETE else EVERY[3::13]
NAMES = [each.name for _, each in LAUNCHES]
SCHEDULES = ("eager", "lazy", 1) if COMPLETE else ("lazy",)

MISTAKES = {
    "do not wait at try_wait": "rule",
    "expect 16 bytes more": "deadlock",
    "remove wgmma.fence": "rule",
    "remove wgmma.wait_group": "rule",
    "remove mbarrier.arrive": "deadlock",
}
"""Changes of the synchronisation, and what shows them."""


def names(gemms: list[Gemm]) -> list[str]:
    return [each.name for each in gemms]


def test_every_kind_of_kernel_is_there():
    kernels = [each.kernel for each in OF_INTEGERS]
    assert len(set(names(OF_INTEGERS))) == len(OF_INTEGERS)
    assert {each.b for each in kernels} == {"bf16", "f16", "e4m3"}
    assert {each.group for each in kernels} == {0, 32, 64, 128}
    assert {each.scales for each in kernels if each.group} == {"f16", "bf16"}
    assert {each.tile.m for each in kernels} == {64, 128, 256}
    assert {each.tile.split for each in kernels} >= {1, 2, 4}
    assert {each.tile.cluster for each in kernels} == {1, 2}
    assert {each.slabs for each in kernels} == {1, 2, 4}
    assert {each.sets for each in kernels} == {1, 2}
    assert {each.transposed for each in kernels} == {True, False}
    assert {each.out for each in kernels} == {"f32", "bf16", "f16"}


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_the_recording_is_of_an_h200(file):
    read = json.loads(file.read_text())
    assert "H200" in read["made"]["gpu"]
    assert list(read["launches"]) == names(RECORDED[file])


@pytest.mark.parametrize("file, gemm", LAUNCHES, ids=NAMES)
def test_the_emulation_has_the_bits_of_the_gpu(file, gemm):
    kept = recorded(file)[gemm.name]
    assert (gemm.digest(), short_hash(gemm.expected)) == (kept.inputs, kept.rows)


@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("file, gemm", LAUNCHES, ids=NAMES)
def test_a_launch_leaves_the_bytes_of_the_gpu(file, gemm, schedule):
    found = launching.launch(gemm, schedule=schedule, watch="report")
    assert found.right(gemm)
    assert short_hash(found.d.buffer) == recorded(file)[gemm.name].buffer
    assert not [str(each) for each in found.result.problems if each.severity == "error"]


@pytest.mark.long
def test_mistakes_are_seen():
    subject = subjects.of_kernel(Kernel("s4", "e4m3", tile=Tile(64, 8), group=64))
    subject = replace(subject, launches=subject.launches[:1])
    kinds = {each.change: each for each in judging.one_of_each(subject.mutants())}
    table = judging.run_mutants(subject, ("lazy",), [kinds[each] for each in MISTAKES])
    assert {each.mutant.change: each.way for each in table} == MISTAKES
