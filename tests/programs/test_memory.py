"""Memory of programs: what nobody touches costs nothing, and stays what it is."""

import os

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt import untouched
from fragmenta.engine.simt.arguments import Received
from fragmenta.frontends.programs.memory import AllocationKind, ProgramMemory
from tests.programs.test_programs import HERE, run

GIB = 1 << 30
STORES = """
.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 p, .param .u64 far) {
    .reg .b64 %d<6>; .reg .b32 %r<3>;
    ld.param.u64 %d1, [p]; ld.param.u64 %d2, [far];
    mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4;
    add.u64 %d4, %d1, %d3; st.global.u32 [%d4], %r1;
    add.u64 %d5, %d4, %d2; st.global.u32 [%d5], %r1;
    ld.global.u32 %r2, [%d1+LOADED]; st.global.u32 [%d5+4096], %r2;
    ret;
}
"""


def pages(memory):
    """The bytes that memory has, of those that it could have."""
    return os.fstat(memory.file).st_blocks * 512


@pytest.fixture
def gibibyte():
    held = ProgramMemory(1 << 40)
    yield held, held.allocate(GIB, AllocationKind.DEVICE)
    held.close()


@pytest.mark.parametrize("loaded", [8192, 4], ids=["right", "racy"])
def test_a_watched_launch_reads_no_more_than_the_kernel(gibibyte, loaded):
    held, made = gibibyte
    parameters = np.array([made.address, GIB // 2], np.uint64).tobytes()
    kernel = ptx.parse(STORES.replace("LOADED", str(loaded))).kernels["k"]
    given = Received(list(held.segments({})), parameters)
    result = kernel.launch(1, 64, given, watch="report")
    assert any(each.rule == "global-race" for each in result.problems) == (loaded == 4)
    assert pages(made.memory) < 1 << 20
    assert made.memory.data[GIB // 2 + 4] == 1


def test_schedules_compare_what_was_touched(gibibyte):
    held, made = gibibyte
    parameters = np.array([made.address, GIB // 2], np.uint64).tobytes()
    given = Received(list(held.segments({})), parameters)
    kernel = ptx.parse(STORES.replace("LOADED", "8192")).kernels["k"]
    result = kernel.launch(1, 32, given, schedule=("eager", "lazy"), watch="report")
    assert not result.problems
    assert pages(made.memory) < 1 << 20


def test_copies_leave_out_what_nobody_touched(gibibyte):
    _, made = gibibyte
    data = made.memory.data
    data[5], data[GIB // 2], data[-1] = 1, 2, 3
    image = untouched.copied(data)
    assert pages(made.memory) < 1 << 16
    assert [image[5], image[GIB // 2], image[-1], image[7]] == [1, 2, 3, 0]
    data[5], data[GIB // 4] = 9, 9
    assert untouched.different(data, image).tolist() == [5, GIB // 4]
    untouched.put_back(data, image)
    assert not untouched.different(data, image).size
    assert [data[5], data[GIB // 4]] == [1, 0]


SUMS = """
.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 p, .param .u64 far) {
    .reg .b64 %d<4>; .reg .b32 %r; .reg .f32 %f<3>;
    ld.param.u64 %d1, [p]; ld.param.u64 %d2, [far];
    mov.u32 %r, %tid.x; cvt.rn.f32.u32 %f1, %r;
    add.rn.f32 %f2, %f1, 0f4B800001;
    mul.wide.u32 %d3, %r, 4; add.u64 %d3, %d1, %d3;
    add.u64 %d3, %d3, %d2; st.global.f32 [%d3], %f2;
    ret;
}
"""
"""Stores of 2^24 + 2 and more, which lose the lowest bit of odd sums."""


def test_lost_bits_are_looked_for_where_memory_was_touched(gibibyte):
    held, made = gibibyte
    parameters = np.array([made.address, GIB // 2], np.uint64).tobytes()
    given = Received(list(held.segments({})), parameters)
    kernel = ptx.parse(SUMS).kernels["k"]
    result = kernel.launch(1, 64, given, numerics=True, watch="report")
    assert pages(made.memory) < 1 << 20
    (output,) = result.numerics.outputs.values()
    ((first, part),) = output.held.parts()
    assert first <= GIB // 8 < first + part.values.size
    wrong = first + np.flatnonzero(part.error)
    assert wrong.tolist() == [GIB // 8 + lane for lane in range(1, 64, 2)]
    assert output.held.size == GIB // 4


def test_a_digest_changes_with_memory_alone(gibibyte):
    _, made = gibibyte
    data = made.memory.data
    assert untouched.digest(data) == 0
    data[GIB // 2] = 0
    assert untouched.digest(data) == 0
    data[GIB // 2] = 1
    one = untouched.digest(data)
    data[GIB // 2], data[GIB // 4] = 0, 1  # the same bytes, elsewhere
    assert len({0, one, untouched.digest(data)}) == 3
    assert pages(made.memory) < 1 << 20


@pytest.mark.long
@pytest.mark.xdist_group("programs")
def test_what_a_program_clears_costs_nothing(source):
    done = run(HERE / "untouched.cu")
    first, values, cleared, last = done.stdout.splitlines()
    assert max(int(each.split()[0]) for each in (first, last)) < 64
    assert values == "2 4"
    assert cleared == "2 0, 0 0 4"
    assert "no problems" in done.stderr
