"""The statements about which instructions run are true."""

from __future__ import annotations

import re

import pytest

from fragmenta import ptx
from fragmenta.errors import KernelFault
from fragmenta.launch.coverage import Covered, coverage, runs
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.tensor import TENSOR

KERNEL = """
.version 9.4
.target sm_90a
.address_size 64
.entry f() {{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>;
.reg .b128 %q<2>;
.shared .align 8 .b8 tile[1024];
mov.u64 %d1, tile;
{}
ret;
}}
"""


@pytest.fixture(scope="module")
def every() -> list[Covered]:
    return coverage()


def test_every_line_is_tried(every: list[Covered]) -> None:
    lines = [line for some in TABLE.lines.values() for line in some]
    assert len(every) == sum(not line.opcode.startswith("_") for line in lines)
    for each in every:
        assert set(each.refused) <= set(each.tried)
        words = {word for piece in each.syntax.pieces for word in piece.words}
        used = {word for one in each.tried for word in one.split(".")[1:]}
        assert words <= used


def test_a_line_with_a_function_runs(every: list[Covered]) -> None:
    assert {each.runs for each in every if each.syntax.emit} == {"yes"}
    assert {each.runs for each in every if not each.syntax.emit} >= {"yes", "no"}


LATER = re.compile("im2col::w|swizzle_atomicity")
"""Words of lines that no Hopper GPU has."""
NONE = {"multimem"}


def test_every_asynchronous_line_of_hopper_runs(every: list[Covered]) -> None:
    needing = [each for each in every if re.search("mbar[\\]r]", each.syntax.text)]
    assert len(needing) > 40
    stopped = {each.syntax.text for each in every if each.runs == "no"}
    for each in every:
        line = each.syntax
        later = (
            line.targets and "sm_90" not in line.targets and "sm_80" not in line.targets
        )
        if not later and not LATER.search(line.text) and line.opcode not in NONE:
            assert line.text not in stopped


def test_a_line_that_only_later_gpus_have_does_not_run(every: list[Covered]) -> None:
    """The engine writes a call for each, but nothing answers it."""
    later = [
        each
        for each in every
        if LATER.search(each.syntax.text) or each.syntax.opcode in NONE
    ]
    assert len(later) > 50
    assert {each.runs for each in later} == {"no"}
    assert not [each for each in every if each.runs == "in part"]


def test_how_sure_the_bits_of_asynchronous_lines_are(every: list[Covered]) -> None:
    said = {each.syntax.text.split()[0]: each.syntax.fidelity for each in every}
    assert said["mbarrier.init{.space}.b64"] == "ieee"
    # PTX does not say what is in a state.
    assert said["mbarrier.arrive{.space}.b64"] == "modelled"
    assert said["tensormap.replace.tile.rank{.space}.b1024.b32"] == "h200"
    reduced = {said for name, said in said.items() if name.startswith("cp.reduce")}
    assert reduced == {"h200"}


def test_a_state_that_nobody_takes_has_no_bits() -> None:
    for result, sure in (("_", "ieee"), ("%d2", "modelled")):
        lines = f"mbarrier.init.b64 [%d1], 64; mbarrier.arrive.b64 {result}, [%d1];"
        text = KERNEL.format(lines).replace("tile;", "tile; cvta.shared.u64 %d1, %d1;")
        done = ptx.parse(text).kernels["f"].launch(1, 32, watch=False)
        assert done.counts["mbarrier.arrive.b64"] == 1
        assert done.fidelity.get("modelled", 0) == (sure == "modelled")


@pytest.mark.parametrize(
    "line",
    [
        "st.bulk.shared::cta [%r1], %d2, 0;",
        "multimem.red.global.add.u32 [%d1], %r2;",
        "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col::w"
        " [%d1, {%r1, %r2, %r3}], {%h1, %h2};",
    ],
)
def test_a_refused_instruction_is_named_when_it_is_reached(line: str) -> None:
    with pytest.raises(KernelFault) as caught:
        ptx.parse(KERNEL.format(line)).kernels["f"].launch(1, 32, watch=False)
    assert caught.value.kind == "unsupported"
    assert line.split(maxsplit=1)[0] in str(caught.value)
    skipped = KERNEL.format(f"setp.ne.b32 %p1, 0, 0;\n@%p1 {line}")
    ptx.parse(skipped).kernels["f"].launch(1, 32, watch=False)


def test_tensor_core_opcodes() -> None:
    assert all(runs(opcode) for opcode in TENSOR)
