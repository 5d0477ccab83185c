"""The approximations of constants are those that ptxas writes into machine code."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools import assembler
from fragmenta.ptx.ptxas.folding import fold

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
ONE = """.visible .entry k{number}(.param .u64 x) {{
    .reg .b32 %r<9>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    ld.global.b32 %r1, [%rd1];
    mov.b32 %r3, {last};
    {name} %r4, {first}%r3;
    max.NaN.f32 %r5, %r1, %r4;
    st.global.b32 [%rd1], %r5;
    ret;
}}
"""
"""A machine instruction shows the constant as the operand of a maximum."""
ALL = """.visible .entry k(.param .u64 x) {{
    .reg .b32 %r<9>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    {lines}
    ret;
}}
"""
OPCODES = [
    f"{name}{ftz}.f32"
    for name in (
        "rcp.approx",
        "sqrt.approx",
        "rsqrt.approx",
        "ex2.approx",
        "lg2.approx",
        "sin.approx",
        "cos.approx",
        "div.approx",
        "div.full",
    )
    for ftz in ("", ".ftz")
]


def numbers() -> list[np.float32]:
    random = np.random.default_rng(7)
    some = [
        *random.uniform(0.01, 30, 12),
        *random.uniform(-30, -0.01, 4),
        96,
        1,
        3,
        1e-30,
    ]
    return [np.float32(each) for each in some]


def bits(value: np.float32) -> str:
    return f"0f{int(value.view(np.uint32)):08X}"


def first_operand(name: str) -> str:
    """What stands before the constant: a division has a dividend."""
    return "0f41C80000, " if name.startswith("div") else ""


@cache  # one run of each tool for all opcodes
def listing() -> str:
    """The machine code of a kernel for each opcode and each number."""
    text = HEAD + "".join(
        ONE.format(number=i, name=name, first=first_operand(name), last=bits(each))
        for i, (name, each) in enumerate(product(OPCODES, numbers()))
    )
    with TemporaryDirectory() as folder:
        source, code = Path(folder, "a.ptx"), Path(folder, "a.cubin")
        source.write_text(text)
        command = [assembler.tool("ptxas"), "-arch=sm_90a", source, "-o", code]
        subprocess.run(command, check=True)
        return subprocess.run(
            [assembler.tool("nvdisasm"), code],
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def shown(name: str) -> dict[int, np.float32]:
    """The constant that an opcode makes of each number; none if the GPU computes it."""
    found, count = {}, len(numbers())
    for part in listing().split(".section\t.text.k")[1:]:
        opcode, number = divmod(int(part[: part.index(",")]), count)
        if OPCODES[opcode] != name:
            continue
        operand = re.search(r"FMNMX\S* \w+, R\d+, (-?[\d.e+-]+), !", part)
        if operand and "MUFU" not in part:
            found[number] = np.float32(float(operand[1]))
    return found


@pytest.mark.parametrize("name", OPCODES)
def test_ptxas_computes_the_same(name: str) -> None:
    given, wanted = numbers(), shown(name)
    assert len(wanted) > 8
    lines = "".join(
        f"{name} %r4, {first_operand(name)}{bits(each)}; st.global.b32 [%rd1 + {4 * i}], %r4;\n"
        for i, each in enumerate(given)
    )
    every = ALL.format(lines=lines)
    out = np.zeros(len(given), np.float32)
    ptx.parse(HEAD + every).kernels["k"].launch(
        1, 1, [out], target="sm_90a", watch=False
    )
    for number, want in wanted.items():
        assert out[number].view(np.uint32) == want.view(np.uint32), given[number]


def test_what_is_no_constant_is_left_to_the_gpu() -> None:
    """A register that is assigned twice, or under a guard, and tanh."""
    lines = """
    mov.b32 %r3, 0f42C00000; @%p1 mov.b32 %r3, 0f40400000; rcp.approx.f32 %r4, %r3;
    @%p1 mov.b32 %r5, 0f42C00000; rcp.approx.f32 %r6, %r5;
    tanh.approx.f32 %r7, 0f3F800000; rcp.approx.f32 %r8, 0f00000001;"""
    text = f"{HEAD}.entry k() {{ .reg .b32 %r<9>; .reg .pred %p<2>; {lines} ret; }}"
    kept = [each.opcode for each in fold(ptx.parse(text).functions["k"]).instructions]
    assert kept.count("rcp") == 3
    assert "tanh" in kept
