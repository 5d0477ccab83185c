"""What the table says only computes is left out by ptxas if its result is not used."""

import re

import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.ptx.opcodes.kinds import computes
from fragmenta.ptx.opcodes.table import Syntax
from tests.disassembly import disassemble
from tests.ptx.opcodes.judging import TARGET, forms, lines, statement, supported

REGISTERS = ".reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;"
#: Lines without a function: the engine carries them out, and they only compute.
ENGINE = (
    "mov.v2.b32 {%r0, %r1}, {%r2, %r3};",
    "cvta.global.u64 %rd0, %rd1;",
    "cvta.to.shared.u64 %rd0, %rd1;",
    "isspacep.global %p0, %rd1;",
    "mapa.shared::cluster.u32 %r0, %r1, %r2;",
    "getctarank.u64 %r0, %rd1;",
    "createpolicy.fractional.L2::evict_last.b64 %rd0;",
    "createpolicy.cvt.L2.b64 %rd0, 0x10f0000000000000;",
)


def judged(line: Syntax) -> bool:
    """Whether ptxas makes no call of it, and it leaves no carry for others."""
    called = line.opcode in ("div", "rem", "sqrt", "rcp", "rsqrt")
    flags = any(each.name == "carry_out" for each in line.operands)
    return line.computes and not called and not flags and supported(line, TARGET)


def sizes(bodies: list[str]) -> list[int]:
    """How many machine instructions a kernel with each of these bodies has."""
    text = f".version 9.4\n.target {TARGET}\n.address_size 64\n"
    for number, body in enumerate(bodies):
        text += f".visible .entry k{number}() {{\n{body}\nret;\n}}\n"
    found = {}
    listing = disassemble(assembler.assemble(text, TARGET))
    for part in listing.split(".section\t.text.k")[1:]:
        code = re.findall(r"/\*[0-9a-f]{4}\*/\s+(?!NOP)\S", part)
        found[int(part[: part.index(",")])] = len(code)
    return [found[number] for number in range(len(bodies))]


@pytest.mark.long
def test_ptxas_leaves_out_what_only_computes():
    chosen = [next(forms(line, few=True)) for line in lines() if judged(line)]
    bodies = ["\n".join(statement(form)) for form in chosen]
    bodies += [f"{REGISTERS} {each}" for each in ENGINE]
    effect = f"{REGISTERS} atom.shared.add.u32 %r0, [%r1], %r2;"
    empty, least, *others = sizes(["", effect, *bodies])
    assert least > empty  # what is not left out is seen
    names = [*map(str, chosen), *ENGINE]
    assert [n for n, s in zip(names, others, strict=True) if s != empty] == []


def test_the_table_knows_which_lines_only_compute():
    for each in ENGINE:
        assert computes(each.split()[0]), each
    for each in ("createpolicy.range.global.L2::evict_last.b64", "shfl.sync.up.b32"):
        assert not computes(each)
