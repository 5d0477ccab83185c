"""A register that a lane reads before it is written is detected while a kernel runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.ptx import rules
from fragmenta.watch.races.probes.unwritten_registers import maybe_unwritten, tracked
from tests.simt.kernels import kernel

SKIP = """
    setp.ge.u32 %p1, %t, {first};
    @%p1 bra JOIN;
    mov.u32 %r1, 5;
JOIN:
    {use}
    st.global.u32 [%mine], %r2;
    ret;
"""


def found(body: str, threads: int = 32) -> list[tuple[str, int]]:
    """The text of each problem with uninitialised registers, and its count."""
    made = kernel(body)
    out = np.zeros(threads, np.int32)
    result: Any = made.launch(1, threads, [out], watch="report")
    told = [each for _, each in result.found if each.rule is rules.UNINITIALISED]
    return [(each.message.split()[0], each.lanes) for each in told]


@pytest.mark.parametrize("first, lanes", [(32, 0), (30, 3 << 30), (0, 0xFFFFFFFF)])
def test_a_register_that_some_lanes_have_not_written(first: int, lanes: int) -> None:
    body = SKIP.format(first=first, use="add.u32 %r2, %r1, 1;")
    assert found(body) == ([("%r2", lanes)] if lanes else [])


def test_a_copy_does_no_harm_before_it_is_used() -> None:
    use = "mov.u32 %r3, %r1; mov.u32 %r2, 0; @!%p1 add.u32 %r2, %r3, 1;"
    assert found(SKIP.format(first=7, use=use)) == []
    use = "mov.u32 %r3, %r1; add.u32 %r2, %r3, 1;"
    assert found(SKIP.format(first=31, use=use)) == [("%r2", 1 << 31)]


def test_half_of_a_pair_may_be_left_open() -> None:
    # As compilers use add.f32x2 for one number.
    body = """
    .reg .b64 %pair; .reg .b32 %open, %low, %high;
    mov.b32 %low, 7;
    mov.b64 %pair, {{%low, {second}}};
    mov.b64 {{%r2, %high}}, %pair;
    st.global.u32 [%mine], %r2;
    ret;
    """
    assert found(body.format(second="%open")) == []
    both = body.replace("mov.b32 %low, 7;", "")
    assert found(both.format(second="%open")) == [("%r2", 0xFFFFFFFF)]


def test_lanes_that_nobody_asks_add_up_what_they_like() -> None:
    # As compilers write a reduction of the first lanes.
    body = """
    setp.lt.u32 %p1, %t, 4;
    @%p1 mov.u32 %r1, 7;
    shfl.sync.bfly.b32 %r2, %r1, 2, 31, -1;
    add.u32 %r3, %r1, %r2;
    shfl.sync.bfly.b32 %r2, %r3, 1, 31, -1;
    add.u32 %r3, %r3, %r2;
    {} st.global.u32 [%mine], %r3;
    ret;
    """
    assert found(body.format("@%p1")) == []
    assert found(body.format("")) == [("%r3", 0xFFFFFFF0)]


def test_an_address_and_a_branch_matter() -> None:
    use = "add.u32 %r2, %r1, 3; mul.wide.u32 %rd1, %r1, 0; add.u64 %rd1, %rd1, %mine;"
    load = "ld.global.u32 %r2, [%rd1];"
    assert found(SKIP.format(first=9, use=use + load)) == [("%rd1", 0xFFFFFE00)]
    use = "mov.u32 %r2, 0; setp.eq.u32 %p2, %r1, 9; @%p2 bra END; END:"
    assert found(SKIP.format(first=9, use=use)) == [("%p2", 0xFFFFFE00)]


def test_a_message_names_the_register_behind_it() -> None:
    made = kernel(SKIP.format(first=9, use="add.u32 %r2, %r1, 1;"))
    result = made.launch(1, 32, [np.zeros(32, np.int32)])
    (told,) = [each for each in result.hazards if each.rule == "uninitialised"]
    assert "%r2 is made of %r1, which these lanes" in told.message
    assert told.severity == "warning"


def test_a_selection_takes_one_of_its_sources() -> None:
    use = "selp.u32 %r2, 7, %r1, %p1;"
    assert found(SKIP.format(first=7, use=use)) == []


def test_a_guarded_write_counts_for_its_lanes() -> None:
    use = "@%p1 mov.u32 %r1, 4; add.u32 %r2, %r1, 1;"
    assert found(SKIP.format(first=7, use=use)) == []


def test_a_write_that_only_some_lanes_do() -> None:
    body = "setp.lt.u32 %p1, %t, 4; {0} @%p1 mov.u32 %r1, 7; {1} ret;"
    store = "{} st.global.u32 [%mine], %r1;"
    assert found(body.format("", store.format(""))) == [("%r1", 0xFFFFFFF0)]
    assert found(body.format("", store.format("@%p1"))) == []
    assert found(body.format("mov.u32 %r1, 1;", store.format(""))) == []


def test_a_predicate_that_guards() -> None:
    body = """
    setp.ge.u32 %p1, %t, 9;
    @%p1 bra JOIN;
    setp.ge.u32 %p2, %t, 3;
JOIN:
    mov.u32 %r2, 0;
    @%p2 mov.u32 %r2, 1;
    st.global.u32 [%mine], %r2;
    ret;
    """
    assert found(body) == [("%r2", 0xFFFFFE00)]
    branch = body.replace("mov.u32 %r2, 1;", "bra END; END:")
    assert found(branch) == [("%p2", 0xFFFFFE00)]


def test_a_loop_that_writes_before_it_reads() -> None:
    body = """
    mov.u32 %r3, 0;
LOOP:
    setp.eq.u32 %p1, %r3, 0;
    @%p1 bra FIRST;
    add.u32 %r2, %r1, 1;
FIRST:
    mov.u32 %r1, 1;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 3;
    @%p1 bra LOOP;
    st.global.u32 [%mine], %r2;
    ret;
    """
    assert found(body) == []


def test_only_doubtful_registers_have_a_word() -> None:
    made = kernel(SKIP.format(first=7, use="mov.u32 %r3, %r1; add.u32 %r2, %r3, 1;"))
    function = made.function
    assert [each.name for each in maybe_unwritten(function)] == ["%r1"]
    names = {function.registers[number].name for number in tracked(function)}
    assert names == {"%r1", "%r2", "%r3"}
    assert maybe_unwritten(kernel("st.global.u32 [%mine], %t; ret;").function) == set()
