"""The machine code leaves the registers of running products alone.

``wgmma`` reads its registers of A and metadata while it runs.  The assembler does not
count metadata among them, so that it may reuse such a register too early: a rule that
PTX cannot show, and that only the machine code tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fragmenta.cuda.tools.compiler import to_cubin
from fragmenta.hopper.kernels.source import TARGET, source
from fragmenta.kernels import Kernel
from tests.disassembly import disassemble
from tests.ptx.hopper.gemms import OF_INTEGERS, OF_MORE_INTEGERS
from tests.ptx.hopper.grouped import OF_INTEGERS as OF_EXPERTS
from tests.thinning import some

LAUNCHES = (*OF_INTEGERS, *OF_MORE_INTEGERS, *OF_EXPERTS)
KERNELS = list(dict.fromkeys(each.kernel for each in LAUNCHES))
PRODUCT = re.compile(
    r"[HQ]GMMA\S* R\d+, R(\d+), gdesc\[\w+\], [^,]+,(?: !?UPT,)? R(\d+)"
)
WIDTHS = {"128": 4, "64": 2}
NO_RESULT = re.compile(
    r"(ST|BRA|BAR|SYNCS|R2UR|ISETP|FSETP|PLOP3|RED|UTMA|UBLKCP|WARP)"
)


def code_of(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The instructions of a source, and the first and last one of each loop."""
    lines: list[str] = []
    labels: dict[str, int] = {}
    for line in disassemble(to_cubin(text, TARGET)).splitlines():
        if label := re.match(r"(\.L_x_\d+):", line.strip()):
            labels[label[1]] = len(lines)
        elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            lines.append(re.sub(r"^@!?U?P\w+\s+", "", found[1]))
    loops = []
    for end, line in enumerate(lines):
        jump = re.match(r"BRA\S* .*?(\.L_x_\d+)", line)
        if jump and labels.get(jump[1], end) < end:
            loops.append((labels[jump[1]], end))
    return lines, loops


def written(line: str) -> range:
    """The registers that an instruction writes."""
    name, _, operands = line.partition(" ")
    if NO_RESULT.match(name):
        return range(0)
    first = re.match(r"(?:P\w+, )?R(\d+)", operands)
    if not first:
        return range(0)
    width = next((WIDTHS[x] for x in name.split(".") if x in WIDTHS), 1)
    width = 2 if name.startswith(("CS2R", "IMAD.WIDE")) else width
    return range(int(first[1]), int(first[1]) + width)


def overwritten(lines: list[str]) -> Iterator[str]:
    """The instructions that write what a running product still reads."""
    groups: list[set[int]] = [set()]  # the last one is not committed yet
    for line in lines:
        if found := PRODUCT.match(line):
            a, codes = map(int, found.groups())
            groups[-1] |= {*range(a, a + 4), codes}
            if "gsb0" in line:
                groups.append(set())
        elif waiting := re.match(r"WARPGROUP.DEPBAR.LE gsb0, 0x(\d)", line):
            groups = groups[len(groups) - 1 - int(waiting[1]) :] or [set()]
        elif set().union(*groups) & set(written(line)):
            yield line


def broken(lines: list[str], loops: list[tuple[int, int]]) -> list[str]:
    """What code overwrites: from one end to the other, and twice in each loop."""
    passes = [lines, *(2 * lines[first : last + 1] for first, last in loops)]
    return [line for each in passes for line in overwritten(each)]


@pytest.mark.long
@pytest.mark.parametrize("kernel", some(KERNELS, 10), ids=str)
def test_running_products_keep_their_registers(kernel: Kernel) -> None:
    lines, loops = code_of(source(kernel))
    assert any(PRODUCT.match(line) for line in lines)
    assert not broken(lines, loops)


START = "HGMMA.SP.64x8x32.F32.BF16 R28, R56, gdesc[UR4], RZ, !UPT, R34, 0x0, gsb0"
OTHER = "HGMMA.SP.64x8x32.F32.BF16 R40, R60, gdesc[UR4], RZ, !UPT, R36, 0x0, gsb0"


@pytest.mark.parametrize(
    "lines, count",
    [
        ([START, "LDS.64 R34, [R6+0x800]"], 1),
        ([START, "LDS.128 R32, [R6]"], 1),
        ([START, "LOP3.LUT R59, R7, 0xf, R9, 0xec, !PT"], 1),
        ([START, "LOP3.LUT P0, RZ, R34, 0x1f, RZ, 0xc0, !PT"], 0),
        ([START, "ISETP.NE.AND P0, PT, R34, -0x1, PT"], 0),
        ([START, "WARPGROUP.DEPBAR.LE gsb0, 0x0", "LDS.64 R34, [R6]"], 0),
        ([START, OTHER, "WARPGROUP.DEPBAR.LE gsb0, 0x1", "LDS.64 R34, [R6]"], 0),
        ([START, OTHER, "WARPGROUP.DEPBAR.LE gsb0, 0x1", "LDS R36, [R6]"], 1),
    ],
)
def test_writes_while_a_product_runs_are_seen(lines: list[str], count: int) -> None:
    assert len(list(overwritten(lines))) == count
