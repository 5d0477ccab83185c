"""The approximate instructions give the H200's bits, and ptxas writes the same.

The recording was made by ``tests/ptx/special_check.py``, which compares all operands.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fragmenta.base.jit.compiler import kernel, pointer
from fragmenta.base.jit.trace import I32, LANES, joined
from fragmenta.cuda.tools import assembler
from fragmenta.ptx.opcodes import special_tables, special_unit
from tests.disassembly import disassemble
from tests.ptx.opcodes import special_cases as cases
from tests.ptx.opcodes.judging import forms, judged, lines

GOLDEN = Path(__file__).parents[2] / "golden" / "ptx" / "special.npz"


@cache
def recording():
    with np.load(GOLDEN) as kept:
        return dict(kept)


@pytest.mark.parametrize("mnemonic", cases.INSTRUCTIONS)
def test_the_h200_computes_the_same(mnemonic):
    operands = cases.recorded_operands(mnemonic)
    full, sums = cases.compacted(cases.results(mnemonic, *operands))
    wrong = np.flatnonzero(full != recording()[f"{mnemonic} full"]) * cases.FULL
    given = [[hex(x[place]) for x in operands] for place in wrong[:4]]
    assert not wrong.size, given
    blocks = np.flatnonzero(sums != recording()[f"{mnemonic} sums"])
    assert not blocks.size, blocks * cases.BLOCK


def test_every_instruction_is_recorded_and_in_the_table():
    assert {name.rpartition(" ")[0] for name in recording()} == {*cases.INSTRUCTIONS}
    allowed = {str(form) for line in lines("special") for form in forms(line)}
    assert allowed == {*cases.INSTRUCTIONS}


def test_a_wrong_result_is_seen():
    found = cases.results("rcp.approx.ftz.f32", cases.singles())
    before = cases.compacted(found)
    for place in range(0, found.size, 1023):
        found[place] ^= 1
        after = cases.compacted(found)
        assert any((x != y).any() for x, y in zip(before, after, strict=True))
        found[place] ^= 1


def test_ptxas_accepts_every_line():
    assert not judged(form for line in lines("special") for form in forms(line))


# ── the square ──────────────────────────────────────────────────────────────


@kernel(x=pointer(I32), d=pointer(I32), count=I32)
def squares(code, x, d, count):
    with code.loop(1 << 17, step=LANES) as i:
        d[i] = special_unit.square(x.lanes(i))


def test_the_square_drops_the_bits_of_partial_products_below_2_to_the_18():
    x = np.arange(1 << 17, dtype=np.int32)
    expected = np.zeros(x.size, np.int64)
    for place in range(17):
        expected += np.where(x >> place & 1, x >> (18 - place), 0)
    found = np.empty_like(x)
    squares(x, found, 0)
    assert (found == expected >> 1).all()
    exact = x.astype(np.int64) ** 2 / 2**19
    assert (exact - found).min() >= 0
    assert (exact - found).max() < 9


# ── any number of lanes ─────────────────────────────────────────────────────


@pytest.mark.parametrize("lanes", [1, 4, 32])
def test_lanes_do_not_matter(lanes):
    def wide(code, x, d):
        with code.loop(1024, step=lanes) as i:
            given = [x[i + lane] for lane in range(lanes)]
            d[i] = special_unit.tanh(joined(given) if lanes > 1 else given[0])

    x = cases.singles()[-1024:].copy()
    found = np.empty_like(x)
    kernel(x=pointer(I32), d=pointer(I32))(wide)(x, found)
    assert (found == cases.results("tanh.approx.f32", x)).all()


# ── the sequences ───────────────────────────────────────────────────────────

#: What stands between the load and the store, in order of the arithmetic.
SEQUENCES = {
    "rcp.approx.ftz.f32": "MUFU.RCP",
    "rcp.approx.f32": "FMUL MUFU.RCP FMUL",
    "rsqrt.approx.ftz.f32": "MUFU.RSQ",
    "rsqrt.approx.f32": "FMUL MUFU.RSQ FMUL",
    "sqrt.approx.ftz.f32": "MUFU.SQRT",
    "sqrt.approx.f32": "FMUL MUFU.SQRT FMUL",
    "ex2.approx.ftz.f32": "MUFU.EX2",
    "ex2.approx.f32": "FMUL MUFU.EX2 FMUL",
    "lg2.approx.ftz.f32": "MUFU.LG2",
    "lg2.approx.f32": "FMUL MUFU.LG2 FADD",
    "sin.approx.ftz.f32": "FMUL.RZ MUFU.SIN",
    "sin.approx.f32": "FMUL.RZ MUFU.SIN",
    "cos.approx.ftz.f32": "FMUL.RZ MUFU.COS",
    "cos.approx.f32": "FMUL.RZ MUFU.COS",
    "tanh.approx.f32": "MUFU.TANH",
    "div.approx.f32": "FMUL FMUL MUFU.RCP FMUL",
    "div.approx.ftz.f32": "MUFU.RCP FMUL.FTZ",
    "div.full.f32": "FMUL FMUL FMUL FMUL MUFU.RCP FMUL",
    "div.full.ftz.f32": "FMUL.FTZ FMUL.FTZ MUFU.RCP FMUL.FTZ",
    "ex2.approx.f16": "MUFU.EX2.F16",
    "tanh.approx.f16": "MUFU.TANH.F16",
    "ex2.approx.ftz.bf16": "MUFU.EX2.BF16",
    "tanh.approx.bf16": "MUFU.TANH.BF16",
    "rcp.approx.ftz.f64": "MUFU.RCP64H",
    "rsqrt.approx.ftz.f64": "MUFU.RSQ64H",
}


def entry(number, mnemonic):
    bits = {"f64": 64, "f16": 16, "bf16": 16}.get(mnemonic.rpartition(".")[2], 32)
    two = mnemonic in cases.DIVISIONS
    return f"""
    .visible .entry k{number}(.param .u64 in, .param .u64 out) {{
      .reg .u64 %in, %out; .reg .b{bits} %a, %b, %d;
      ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
      ld.global.b{bits} %a, [%in]; ld.global.b{bits} %b, [%in + 8];
      {mnemonic} %d, %a{", %b" * two};
      st.global.b{bits} [%out], %d; ret;
    }}"""


def test_ptxas_writes_the_sequences_that_are_modelled():
    texts = [entry(number, mnemonic) for number, mnemonic in enumerate(SEQUENCES)]
    head = ".version 8.7\n.target sm_90a\n.address_size 64\n"
    cubin = assembler.assemble(head + "\n".join(texts), "sm_90a")
    found, name = {}, ""
    for line in disassemble(cubin).splitlines():
        if line.startswith(".text.k"):
            name = list(SEQUENCES)[int(line.strip(" :")[7:])]
        words = line.partition("*/")[2].split()
        operation = next(
            (w for w in words if w.startswith(("MUFU", "FMUL", "FADD"))), ""
        )
        if operation:
            found.setdefault(name, []).append(operation)
    assert {each: " ".join(some) for each, some in found.items()} == SEQUENCES


def test_tables_have_a_row_for_each_segment():
    tables = vars(special_tables).values()
    rows = {
        each.name: len(each.rows)
        for each in tables
        if isinstance(each, special_tables.LookupTable)
    }
    assert rows == {
        "RCP": 128,
        "RSQ": 128,
        "SQRT": 128,
        "EX2": 64,
        "LG2": 64,
        "SIN": 64,
        "TANH": 51,
    }
