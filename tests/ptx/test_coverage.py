"""Is it true what is said about which instructions run?"""

from __future__ import annotations

import re

import pytest

from fragmenta import ptx
from fragmenta.errors import KernelFault
from fragmenta.ptx.coverage import Covered, coverage, runs
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.tensor import TENSOR

KERNEL = """
.version 9.4
.target sm_90a
.address_size 64
.entry f() {{
.reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %d<9>;
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


def test_what_needs_an_mbarrier_does_not_run(every: list[Covered]) -> None:
    """It would be wrong in silence: the copy made, and the barrier not completed."""
    needing = [each for each in every if re.search("mbar[\\]r]", each.syntax.text)]
    assert len(needing) > 40
    running = {each.syntax.opcode for each in needing if each.runs != "no"}
    assert running <= {"fence", "membar"}  # a fence has nothing to do here


@pytest.mark.parametrize(
    "line",
    [
        "mbarrier.init.shared.b64 [%d1], 1;",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r3];",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
        ".add.u32 [%r1], %r2, [%r3];",
        "st.bulk.shared::cta [%r1], %d2, 0;",
        "mapa.shared::cluster.u32 %r1, %r2, 0;",
    ],
)
def test_a_refused_instruction_is_named_when_it_is_reached(line: str) -> None:
    with pytest.raises(KernelFault, match="not supported") as caught:
        ptx.parse(KERNEL.format(line)).kernels["f"].launch(1, 32)
    assert caught.value.kind == "unsupported"
    assert line.split(maxsplit=1)[0] in str(caught.value)
    skipped = KERNEL.format(f"setp.ne.b32 %p1, 0, 0;\n@%p1 {line}")
    ptx.parse(skipped).kernels["f"].launch(1, 32)


def test_tensor_core_opcodes() -> None:
    said = {opcode: runs(opcode) for opcode in TENSOR}
    assert [opcode for opcode, yes in said.items() if not yes] == ["wgmma"]
