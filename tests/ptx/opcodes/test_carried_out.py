"""The lines that the engine carries out itself, before ptxas and before the check."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.ptx.checking.texts import check_text
from tests.ptx.opcodes.carried import LINES, statements

HEAD = """\
.version 9.4
.target {}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128]) {{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b128 %q<9>;
.shared .align 128 .b8 tile[1024];
"""


def _is_allowed(statement: str) -> bool:
    """Whether no rule forbids it that is not the table's: what the check says itself.

    Vectors have up to 128 bits, or 256 in global memory; hints are for global memory;
    a kernel does not write its parameters, and has none of a function.
    """
    vector = re.search(r"\.v(\d).*?\.[bsuf](\d+) ", statement)
    bits = int(vector[1]) * int(vector[2]) if vector else 0
    local = re.search(r"\.(shared|local|const|param)", statement)
    narrow = local or "b128" in statement or statement.startswith(("ldu", "st.async"))
    hinted = "cache_hint" in statement and not statement.startswith("cp")
    parameter = "param::func" in statement or statement.startswith(
        ("st.param", "st.weak.param")
    )
    return not (bits > (128 if narrow else 256) or (hinted and local) or parameter)


def split(texts: list[str], target: str) -> tuple[set[str], set[str]]:
    """What ptxas refuses, and what the check does."""
    head = HEAD.format(target)
    first = head.count("\n") + 1
    text = head + "\n".join(texts) + "\nDONE:\nret;\n}\n"
    said = assembler._run(text.splitlines(), target.replace("sm_", "compute_")).stdout
    theirs = {int(line) for line, _, _ in assembler._MESSAGE.findall(said)}
    ours = {each.line for each in check_text(text) if each.severity == "error"}
    return tuple(
        {texts[number - first] for number in some if 0 <= number - first < len(texts)}
        for some in (theirs, ours)
    )


@pytest.mark.parametrize("target", ["sm_100a", "sm_90a"])
def test_what_the_table_allows_assembles(target: str) -> None:
    draw = random.Random(5)
    every = [each.text for line in LINES for each in statements(line, draw)]
    allowed = [each for each in every if _is_allowed(each)]
    assert len(allowed) > 2000
    for start in range(0, len(allowed), 250):
        theirs, ours = split(allowed[start : start + 250], target)
        assert theirs == ours  # on sm_90a, what only later targets have
        if target == "sm_100a":
            assert not theirs


NUMBERS = ("-1", "0", "1", "8", "16", "33", "65536", "1048575", "1048576", "4294967295")


def constants() -> Iterator[str]:
    """Instructions with a constant in the place of an operand that may be one."""
    draw = random.Random(6)
    for each in (some for line in LINES for some in statements(line, draw)[:1]):
        for place, slot in enumerate(each.slots):
            given = each.operands[place]
            named = slot.type in ("tensor", "im2col", "label", "address")
            if slot.address or slot.result or named or given[0] in "{_":
                continue
            for number in NUMBERS:
                operands = [*each.operands]
                operands[place] = number
                yield each._replace(operands=tuple(operands)).text


def test_constants_out_of_range_are_refused_by_both() -> None:
    """Of ``multimem.st`` with fp8, ptxas takes constants, whose type nobody says."""
    every = [each for each in dict.fromkeys(constants()) if _is_allowed(each)]
    every = [each for each in every if not re.match(r"multimem\.st.*\.e\dm\d", each)]
    assert len(every) > 1000
    refused = 0
    for start in range(0, len(every), 400):
        theirs, ours = split(every[start : start + 400], "sm_100a")
        assert theirs == ours
        refused += len(theirs)
    assert refused > 200


WRONG = """
ld.global.v3.b32 %r1, [%d1];
ld.mmio.relaxed.gpu.b32 %r1, [%d1];
ld.global.L2::evict_first.b32 %r1, [%d1];
st.const.b32 [%d1], %r1;
st.acquire.sys.global.b32 [%d1], %r1;
atom.add.s64 %d1, [%d1], %d2;
atom.inc.s32 %r1, [%d1], %r2;
atom.shared.add.v2.f32 {%r1,%r2}, [%d1], {%r3,%r4};
red.exch.b32 [%d1], %r1;
cvta.global.s64 %d1, %d2;
prefetch.shared.L2 [%d1];
createpolicy.fractional.L2::evict_last.L2::evict_normal.b64 %d1, 0.5;
bra.aligned DONE;
barrier.cluster.wait.relaxed;
membar.gpu;
fence;
redux.sync.add.f32 %r1, %r2, -1;
shfl.sync.bfly.f32 %r1, %r2, 1, 31, -1;
mbarrier.init.shared::cluster.b64 [%d1], %r1;
mbarrier.arrive.release.cluster.shared::cluster.b64 %d1, [%d2], 2;
mbarrier.try_wait.parity.shared.b64 %p1, [%d1], 2;
mbarrier.arrive.shared.b64 %d1, [%d2], 0;
mbarrier.arrive_drop.release.cta.shared::cta.b64 %d1, [%d2], -1;
mbarrier.arrive.shared::cluster.b64 _, [%d2], 0;
bar.arrive 1, 0;
stackrestore.u64 16;
cp.async.shared.global [%d1], [%d2], 16;
cp.async.bulk.shared.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r3];
cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%d1, {%r2, %r3}], [%r4], {%h1};
tensormap.replace.tile.box_dim.global.b1024.b32 [%d1], 5, %r2;
"""


def test_near_misses_are_refused_by_both() -> None:
    texts = WRONG.strip().splitlines()
    for each in texts:
        assert split([each], "sm_100a") == ({each}, {each})
