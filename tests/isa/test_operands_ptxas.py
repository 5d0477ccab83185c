"""Operand lists before their judge: what is accepted assembles, near misses do not.

Every variant is one statement with its declarations; many stand in one module.
What ptxas only refuses when it writes machine code is assembled on its own.
"""

import re
from itertools import chain

import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.cuda.source import kernel, ptx
from fragmenta.cuda.tools import assembler
from fragmenta.reference.isa import operand_checks, operand_lists
from fragmenta.reference.isa.families import NOT_YET, OTHERS, uncovered
from fragmenta.reference.isa.statement import split
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.target import TARGETS, expand
from tests.isa.assembling import become_code, kernels
from tests.thinning import some

NEWEST = assembler.newest_version()
MORE = (
    ".reg .pred %guard, %p9; .reg .b16 %h<2>; .reg .b64 %rd9; .reg .b32 %r9; "
    ".shared .align 16 .b8 tile[4096];"
)


def representative(widths=(8, 24, 256)):
    """One of each that could be read differently."""
    seen = {}
    for op in catalogue():
        if op.form.any_order:  # tests.isa.test_tcgen05_ptxas
            continue
        if op.warpgroup and op.shape.n not in widths:
            continue
        counts = tuple((each.count, each.ptx, each.values) for each in op.operands)
        key = (op.family, op.values.get("a"), op.values.get("type"), op.kind, counts)
        if not (op.values.get("space") or op.satfinite):
            seen.setdefault(key, op)
    return list(seen.values())


def native_target(op):
    """A target that runs it itself: expansions have rules of their own."""
    wanted = ("sm_90a", "sm_80", "sm_75", *reversed(op.requires.targets))
    return next(t for t in wanted if op.native_on(t) and t not in ("sm_70", "sm_72"))


OPS = representative()


def sources(op):
    return (False, True) if op.warpgroup else (False,)


def declarations(op, source):
    return [MORE, *ptx.declarations(op, a_registers=source)]


def other(op, source, name, text):
    return ptx.statement(op, a_registers=source, **{name: text})


def braced(items):
    return "{" + ", ".join(items) + "}"


def names_of(each):
    return [f"%{each.name}{i}" for i in range(each.count)]


# ── accepted ────────────────────────────────────────────────────────────────

IMMEDIATES = (hex, lambda v: f"{v:#b}", lambda v: f"0{v:o}", str)
CONSTANTS = {
    "0f": "0f3F800000",
    "0d": "0d3FF0000000000000",
    "decimal": "1.5",
    "integer": "-3",
}


def variants(op, source):
    """Statements that are read, beyond the plain one."""
    plain = ptx.statement(op, a_registers=source)
    yield plain
    yield f"@%guard {plain}"
    yield f"again: @!%guard {plain}".replace(",", "/* , */,")
    for each in ptx.operands(op, a_registers=source):
        for text in chain(scalars(op, each), vectors(op, each)):
            yield other(op, source, each.name, text)
    if op.family in ("wmma.load", "wmma.store"):
        yield re.sub(r", %stride;", ";", plain)


def scalars(op, each):
    if each.values:
        for value in each.values:
            spelled = [write(value) for write in IMMEDIATES] if value >= 0 else [value]
            yield from map(str, spelled)
        if each.name.startswith(("byte", "thread")):
            yield "%h0"
    yield from {
        ".pred": ("!%scale_d", "0", "1", "! %scale_d"),
        ".b64": ("16", "0x10", "-1", "0xffffffffffffffff"),
        "stride": ("16", "0x10", "16U", "4294967296"),
        "integer": ("0", "1", "7", "8", "0x10", "65536"),
        "address": (
            "[tile]",
            "[tile+16]",
            "[%address + 16]",
            "[%address+-16]",
            "[%r9]",
        ),
    }.get(each.ptx, ())
    if op.values.get("space") == "global" and each.ptx == "address":
        return
    if each.ptx == ".b32" and not each.vector and op.family != "movmatrix":
        yield "{%r9}"


def vectors(op, each):
    if not operand_lists.is_vector(each):
        return
    names = names_of(each)
    writes = each.name == operand_lists.destination(op)
    if writes and each.count > 1 and operand_lists.has_sinks(op):
        yield braced(["_", *names[1:]])
        yield braced([*names[:-1], "_"])
    if writes or (op.family == "wmma.mma" and each.ptx == ".b32"):
        return
    line = operand_checks._CONSTANTS[each.ptx]
    for kind in line["beside"].split():
        if each.count > 1:
            yield braced([CONSTANTS[kind], *names[1:]])
    for kind in line["alone"].split():
        yield braced([CONSTANTS[kind]] * each.count)


def vector_variables(op, source):
    """Vectors declared as such, in the place of braces."""
    for each in ptx.operands(op, a_registers=source):
        if operand_lists.is_vector(each) and operand_lists.has_variables(op, each):
            declared = f".reg .v{each.count} {each.ptx} whole;"
            yield declared, other(op, source, each.name, "whole")


@pytest.mark.long
@pytest.mark.parametrize("family", sorted({op.family for op in OPS}))
def test_what_is_read_assembles(family):
    work = {}
    for op in (op for op in OPS if op.family == family):
        texts = work.setdefault(native_target(op), [])
        for source in sources(op):
            lines = declarations(op, source)
            texts += [[*lines, text] for text in variants(op, source)]
            texts += [[more, *lines, t] for more, t in vector_variables(op, source)]
    for target, texts in work.items():
        for *_, text in texts:
            fm.instruction(text)
        refused = assembler.judge(texts, target, NEWEST)
        assert not [(t[-1], why) for t, why in zip(texts, refused, strict=True) if why]
        # With -O0, ptxas 13.4 never ends with vector variables.
        module = kernels(some(texts, 8), target, NEWEST)
        assert assembler.assemble(module, target, "-O1")


# ── refused ─────────────────────────────────────────────────────────────────


def near_misses(op, source):
    """Statements with one thing wrong."""
    plain = ptx.statement(op, a_registers=source)
    mnemonic, _, rest = plain.partition(" ")
    rest = rest.rstrip(";")
    listed = ptx.operands(op, a_registers=source)
    yield f"{plain.rstrip(';')}{',' if listed else ''} %r9;"
    yield f"{mnemonic} garbage !!;"
    yield f"@1 {plain}"
    yield f"{plain};"
    if not listed:
        return
    # without imm-trans-b, a bare A is a vector variable: A comes from registers
    bare = op.warpgroup and op.types["a"].bits == 16 and not source
    if len(listed) > 1 and listed[-1].ptx != "stride" and not bare:
        yield f"{mnemonic} {_without_last(rest)};"
    yield f"{mnemonic} {rest},;"
    yield f"{mnemonic} ,{rest};"
    for each in listed:
        for text in chain(wrong_scalars(op, each), wrong_vectors(op, each)):
            yield other(op, source, each.name, text)


def _without_last(rest):
    return re.sub(r",?\s*(\{[^}]*\}|[^,{}]+)$", "", rest)


def wrong_scalars(op, each):
    if each.values:
        paired = each.name.startswith(("byte", "thread"))
        yield from (str(max(each.values) + 1), "1.0", "_", "{0}", "9" * 30, "08")
        yield from () if paired else ("%r9", "[0]")
    yield from {
        ".pred": ("2", "_", "1.0", "{%p9}", "%r9|%p9"),
        ".b64": ("_", "{%rd9}", "[%rd9]", "1.0", "0x10000000000000000"),
        "stride": ("_", "{%r9}", "[%r9]", "1.0", "9" * 30),
        "integer": ("-1", "_", "%r9", "{1}", "1.0", "9" * 30),
        "address": (
            *("%rd9", "{%rd9}", "[%rd9-16]", "[%rd9+%r9]", "[16]", "[]", "[_]"),
            *("[1.0]", "[[%rd9]]", "[%rd9*2]", "[tile-16]"),
        ),
    }.get(each.ptx, ())
    if each.ptx == ".b32" and not each.vector:
        yield from ("5", "_", "[%r9]", "1.0", "{%r9, %r9}")
        yield from ("{%r9}",) if op.family == "movmatrix" else ()


def wrong_vectors(op, each):
    if not operand_lists.is_vector(each):
        return
    names = names_of(each)
    writes = each.name == operand_lists.destination(op)
    yield braced([*names, names[0]])
    yield braced(names[:-1]) if each.count > 1 else "{}"
    yield braced([braced(names)])
    yield " ".join(["{", *names, "}"]) if each.count > 1 else f"({names[0]})"
    yield f"[{names[0]}]"
    yield "_"
    yield braced(["_"] * each.count)
    if each.count == 1 or each.count not in (2, 4):
        yield names[0]
    if not (writes and operand_lists.has_sinks(op)):
        yield braced(["_", *names[1:]])
    if writes:
        yield braced(["0", *names[1:]])
    if (
        each.count > 1
        and operand_lists.writes_all(op)
        and operand_lists.is_written(op, each)
    ):
        yield braced([names[0], *names[:-1]])


# What the assembler lets by and no manual has; none of it means anything new.
LAX = {
    "selectors that the manual calls undefined": (
        r"mma\.sp.*m16n8k32\.row\.col\.f(16|32)\.f16\.f16.* [23];$"
    ),
    "two registers where one is read": r".*\{%r9, %r9\}",
    "hexadecimal constants that are cut to 64 bits": r".* 0x10000000000000000,",
}


def let_by(text):
    return any(re.match(pattern, text) for pattern in LAX.values())


def refused(lines, target):
    """What parsing lets by must at least not become machine code."""
    module, _ = kernel.listing([lines], target, NEWEST)
    try:
        assembler.assemble(module, target)
    except fm.Error:
        return True
    return let_by(lines[-1])


@pytest.mark.long
@pytest.mark.parametrize("family", some(sorted({op.family for op in OPS}), 2))
def test_near_misses_are_refused_by_both(family):
    ops = [op for op in representative(widths=(8,)) if op.family == family]
    work = {}
    many = 2 if family.startswith("wgmma") else 5  # two lists of operands each
    for number, op in enumerate(ops[:: max(1, len(ops) // many)]):
        texts = work.setdefault(native_target(op), [])
        for source in sources(op):
            lines, missed = declarations(op, source), list(near_misses(op, source))
            for text in missed:
                with pytest.raises(fm.errors.UnknownInstruction):
                    fm.instruction(text)
            # ptxas stops at most of them, so that each needs a run of its own.
            asked = some(missed, 3, number + source) if len(ops) > 1 else missed
            texts += [[*lines, text] for text in asked]
    assert work
    for target, texts in work.items():
        verdicts = assembler.judge(texts, target, NEWEST)
        parsed = [t for t, why in zip(texts, verdicts, strict=True) if why is None]
        assert not [t[-1] for t in parsed if not refused(t, target)]


# ── registers by their declaration ──────────────────────────────────────────

TYPES = (
    ".b16",
    ".u16",
    ".f16",
    ".b32",
    ".u32",
    ".s32",
    ".f32",
    ".f16x2",
    ".b64",
    ".u64",
    ".s64",
    ".f64",
    ".pred",
)
# Types that ptxas takes, which say nothing about the numbers in the registers.
LAX_TYPES = {
    ("", ".b32", ".pred"),
    ("wmma.mma", ".f64", ".u64"),
    ("wmma.mma", ".f64", ".s64"),
    ("wmma.load", ".b32", ".f32"),
    ("wmma.load", ".b32", ".f16x2"),
}
NAMED = (
    "mma.m16n8k16.f32.f16.f16.f32",
    "mma.m16n8k16.f16.f16.f16.f16",
    "mma.m16n8k8.tf32",
    "mma.m16n8k16.bf16",
    "mma.m8n8k4.f64",
    "mma.m16n8k32.s8.s8",
    "mma.sp.m16n8k64.s8.s8",
    "wmma.mma.row.col.m16n16k16.s32.s8",
    "wmma.mma.row.col.m8n8k4.f64",
    "wmma.mma.row.col.m16n16k8.tf32",
    "wmma.load.a.row.m16n16k16.bf16",
    "wmma.load.a.row.m8n8k32.s4",
    "wmma.load.c.row.m16n16k16.s32",
    "wmma.store.d.row.m16n16k16.f16",
    "wmma.store.d.row.m8n8k4.f64",
    "wgmma.m64n8k16.f32.bf16",
    "wgmma.sp.m64n8k64.f16.e4m3.e4m3",
    "ldmatrix.m8n8.x2.b16",
    "stmatrix.m8n8.x2.b16",
    "movmatrix",
)


@pytest.mark.parametrize("name", some(NAMED, 2))
def test_declared_types_are_the_assemblers_own(name):
    op = fm.find(name)
    target = native_target(op)
    asked, modules = [], []
    for source in sources(op):
        listed = ptx.operands(op, a_registers=source)
        plain = declared(listed)
        for each in listed:
            if each.ptx in ("immediate", "integer"):
                continue
            for of in TYPES:
                types = plain | dict.fromkeys(registers(each), of)
                text = ptx.statement(op, a_registers=source)
                found = fits(op, text, types)
                lines = [f".reg {t} {n};" for n, t in types.items()]
                if not {(f, each.ptx, of) for f in ("", op.family)} & LAX_TYPES:
                    asked.append((each, of, found))
                    modules.append([*lines, text])
    said = become_code(modules, target, NEWEST)
    assert not [a for a, yes in zip(asked, said, strict=True) if a[-1] != yes]


def registers(each):
    return names_of(each) if operand_lists.is_vector(each) else [f"%{each.name}"]


def declared(listed):
    kinds = {"address": ".b64", "stride": ".b32"}
    return {
        name: kinds.get(each.ptx, each.ptx)
        for each in listed
        if each.ptx not in ("immediate", "integer")
        for name in registers(each)
    }


def fits(op, text, types):
    try:
        operand_checks.check(op, split(text).operands, declared=types)
    except fm.errors.BadOperands:
        return False
    return True


# ── what is not covered ─────────────────────────────────────────────────────

EXAMPLES = {
    "cp.async": "cp.async.commit_group;",
    "cp.reduce": "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 "
    "[%rd9], [tile], 16;",
    "mbarrier": "mbarrier.init.shared.b64 [tile], 1;",
    "setmaxnreg": "setmaxnreg.inc.sync.aligned.u32 128;",
}


@pytest.mark.parametrize("line", read(NOT_YET), ids=lambda line: line["begins"])
def test_what_is_not_covered_yet_is_where_it_is_said_to_be(line):
    text = EXAMPLES[line["begins"]]
    have = [t for t in TARGETS if not assembler.judge([[MORE, text]], t, NEWEST)[0]]
    assert have == list(expand(line["targets"]))
    with pytest.raises(fm.errors.UnknownInstruction, match="is not covered yet; sm_"):
        fm.instruction(text)
    with pytest.raises(fm.errors.UnknownInstruction, match="is not covered yet; sm_"):
        fm.find(line["begins"])


# Opcodes that are none without some of their qualifiers.
LONGER = {
    word.partition(".")[0]: word
    for word in (
        "brx.idx",
        "cp.async.commit_group",
        "createpolicy.fractional.L2::evict_last.b64",
        "mad24.lo.u32",
        "madc.lo.u32",
        "mul24.lo.u32",
        "multimem.ld_reduce.global.add.u32",
        "shf.l.wrap.b32",
        "suld.b.1d.b32.trap",
        "sured.b.add.1d.u32.trap",
        "sust.b.1d.b32.trap",
        "tensormap.replace.tile.rank.global.b1024.b32",
        "clusterlaunchcontrol.try_cancel.async.shared::cta"
        ".mbarrier::complete_tx::bytes.b128",
    )
}


def test_the_other_opcodes_are_the_assemblers_own():
    """ptxas knows each name, whatever it says about the rest."""
    words = OTHERS.split()
    texts = [f"{LONGER.get(word, word)} 1;" for word in words]
    said = [assembler.judge([[text]], "sm_120a", NEWEST)[0] for text in texts]
    known = dict(zip(words, said, strict=True))
    strange = ("Not a name", "Unknown modifier")
    assert not [w for w, why in known.items() if (why or "").startswith(strange)]
    assert "Not a name" in assembler.judge([["mow 1;"]], "sm_120a", NEWEST)[0]
    for word in words:
        assert "not one of the Tensor Cores" in uncovered([word])
        with pytest.raises(fm.errors.UnknownInstruction):
            fm.instruction(f"{word}.what 1;")
