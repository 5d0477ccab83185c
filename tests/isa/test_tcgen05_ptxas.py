"""tcgen05 before its judge: orders of words, operands, two assemblers.

What tests.isa.test_ptxas asks of the whole catalogue is not asked again here.
"""

import random
import re
import sys
from pathlib import Path

import pytest

import fragmenta as fm
from fragmenta.cuda.source import ptx
from fragmenta.cuda.tools import assembler
from fragmenta.reference.isa import operand_checks, operand_lists
from fragmenta.reference.isa.statement import split
from fragmenta.reference.isa.target import TARGETS, Version
from tests.isa.assembling import become_code, kernels
from tests.thinning import some

NEWEST = assembler.newest_version()
OPS = [op for op in fm.catalogue() if op.family.startswith("tcgen05")]
MORE = (
    ".reg .pred %guard, %p9; .reg .b16 %h9; .reg .b64 %rd9; .reg .b32 %w9; "
    ".reg .f32 %f9; .shared .align 16 .b8 tile[4096];"
)


def first_target(op):
    """A target for it; sm_100a, if any, which has every operand."""
    return op.requires.targets[0]


def judged(pairs):
    """Statements that ptxas parses, and those that it refuses, with its words."""
    work = {}
    for op, lines in pairs:
        work.setdefault(first_target(op), []).append(lines)
    taken, refused = [], []
    for target, texts in work.items():
        for lines, why in zip(
            texts, assembler.judge(texts, target, NEWEST), strict=True
        ):
            (taken if why is None else refused).append((target, lines, why))
    return taken, refused


# ── the order of words ──────────────────────────────────────────────────────


def shuffled(op, draw):
    """The words behind the name in another order; those of one field keep theirs."""
    head = op.form.any_order.split(".")
    fields = [value.split(".") for value in op.values.values() if "." in value]
    words = str(op).split(".")[len(head) :]
    draw.shuffle(words)
    for parts in fields:
        places = sorted(words.index(part) for part in parts)
        for place, part in zip(places, parts, strict=True):
            words[place] = part
    return ".".join((*head, *words))


def test_words_behind_the_name_stand_in_any_order():
    draw = random.Random(5)
    pairs = []
    for op in OPS:
        text = shuffled(op, draw)
        assert fm.instruction(text) == op
        line = ptx.statement(op).replace(str(op), text)
        pairs.append((op, [*ptx.declarations(op), line]))
    taken, refused = judged(pairs)
    assert len(taken) == len(OPS)
    assert not refused


MISPLACED = (
    "tcgen05.mma.sp.ws.cta_group::1.kind::f16 [%w9], %rd9, %rd9, [%w9], %w9, %p9;",
    "tcgen05.mma.cta_group::1.ws.kind::f16 [%w9], %rd9, %rd9, %w9, %p9;",
    "tcgen05.cta_group::1.mma.kind::f16 [%w9], %rd9, %rd9, %w9, %p9;",
    "tcgen05.mma.cta_group::1.cta_group::1.kind::f16 [%w9], %rd9, %rd9, %w9, %p9;",
    "tcgen05.mma.cta_group::1.kind::f16.kind::tf32 [%w9], %rd9, %rd9, %w9, %p9;",
    "tcgen05.mma.cta_group::1.kind::f16.collector::a:fill [%w9], %rd9, %rd9, %w9, %p9;",
    "tcgen05.mma.kind::f16 [%w9], %rd9, %rd9, %w9, %p9;",
    "tcgen05.mma.cta_group::1 [%w9], %rd9, %rd9, %w9, %p9;",
    "tcgen05.ld.sync.red.aligned.32x32b.x2.min.f32 {%w9, %f9}, %f9, [%w9];",
    "tcgen05.ld.sync.32x32b.x1.b32 {%w9}, [%w9];",
    "tcgen05.ld.aligned.32x32b.x1.b32 {%w9}, [%w9];",
    "tcgen05.ld.sync.aligned.32x32b.x1 {%w9}, [%w9];",
    "tcgen05.ld.spcompress.sync.aligned.32x32b.x4.min.sp::2:4.b2.f32 {%w9}, {%w9, %f9}, [%w9];",
    "tcgen05.cp.cta_group::1.128x256b.b4x16_p64.b8x16 [%w9], %rd9;",
    "tcgen05.cp.cta_group::1.128x256b.b8x16 [%w9], %rd9;",
    "tcgen05.shift.cta_group::1 [%w9];",
    "tcgen05.wait::ld.sync;",
    "tcgen05.wait.ld.sync.aligned;",
    "tcgen05.commit.cta_group::1.b64 [tile];",
)


@pytest.mark.parametrize("text", MISPLACED)
def test_words_that_have_their_place(text):
    with pytest.raises(fm.errors.UnknownInstruction):
        fm.instruction(text)
    assert all(assembler.judge([[MORE, text]], t, NEWEST)[0] for t in ("sm_107a",))


# ── operands ────────────────────────────────────────────────────────────────


def representative():
    """One of each that could be read differently."""
    seen = {}
    for op in OPS:
        lists = operand_lists.lists(op)
        counts = tuple(tuple((o.name, o.ptx, o.count) for o in each) for each in lists)
        seen.setdefault((op.family, op.kind, op.values.get("exclusive"), counts), op)
    found = list(seen.values())
    large = [op for op in found if any(each.count > 16 for each in op.operands)]
    return [op for op in found if op not in large] + large[::4]


SOME = representative()


def statement(op, listed, **given):
    texts = [given.get(each.name) or ptx._operand(each, {}) for each in listed]
    return f"{op.mnemonic} {', '.join(texts)};" if texts else f"{op.mnemonic};"


def declared(listed):
    return [MORE, *ptx.declared(listed)]


RIGHT = {
    "tensor": ("[{}+4]", "[{} + 0x10]", "[{}+-4]"),
    ".b64": ("16", "0x10", "-1", "0xffffffffffffffff"),
    "number": ("0", "0xffffffff"),
    ".pred": ("!{}", "! {}", "0", "1"),
    "constant": ("-1", "65536", "0x10"),
    ".b16": ("0", "65535"),
    "immediate": ("0", "0xf", "017"),
    "address": ("[tile]", "[tile+16]", "[%w9]", "[%rd9+8]"),
}


def right(op, each):
    """What may stand for an operand, beyond its plain text."""
    for text in RIGHT.get(each.ptx, ()):
        yield text.format(f"%{each.name}")
    if each.ptx == "columns":
        yield from ("96", "0x400") if op.values["exclusive"] else ("32", "0x200")
    if each.name == "idesc":
        yield "-1"
    if not operand_lists.is_vector(each) or each.count == 1:
        return
    names = ptx.names(each)
    if not operand_lists.is_written(op, each):
        yield braced(["-3", *names[1:]])


def braced(items):
    return "{" + ", ".join(items) + "}"


def variants(op):
    for listed in operand_lists.lists(op):
        plain = statement(op, listed)
        for text in (plain, f"@!%guard {plain}"):
            yield [*declared(listed), text]
        for each in listed:
            for text in right(op, each):
                yield [*declared(listed), statement(op, listed, **{each.name: text})]


def test_what_is_read_assembles():
    pairs = [(op, lines) for op in some(SOME, 2) for lines in variants(op)]
    for op, (*_, text) in pairs:
        operand_checks.check(op, split(text).operands) if op.operands else None
    taken, refused = judged(pairs)
    assert not [(lines[-1], why) for _, lines, why in refused]
    assert len(taken) > 1000
    work = {}
    for target, lines, _ in some(taken, 9):
        work.setdefault(target, []).append(lines)
    for target, texts in work.items():
        assert assembler.assemble(kernels(texts, target, NEWEST), target, "-O1")


WRONG = {
    "tensor": ("%w9", "{{%w9}}", "[5]", "[]", "[_]", "[{}-4]", "[{}+%w9]", "[1.0]"),
    ".b64": ("_", "{{%rd9}}", "1.0", "9" * 30, "!%p9"),
    "number": ("_", "1.0", "[%w9]", "9" * 30, "!%p9", "{{%w9}}"),
    "columns": ("0", "16", "48", "-1", "1.0", "_", "{{%w9}}", "[%w9]"),
    ".pred": ("_", "1.0", "{{%p9}}", "[%w9]"),
    "constant": ("%w9", "1.0", "_", "{{1}}", "9" * 30),
    ".b16": ("65536", "-1", "_", "1.0", "[%w9]", "{{%h9}}"),
    "immediate": ("16", "-1", "%w9", "1.0", "_", "{{1}}"),
    "address": ("%rd9", "[5]", "[]", "[%rd9-16]", "[%rd9+%w9]", "tile", "{{%rd9}}"),
}


def wrong(op, each):
    for text in WRONG.get(each.ptx, ()):
        yield text.format(f"%{each.name}")
    if each.ptx == "columns" and not op.values["exclusive"]:
        yield from ("96", "1024")
    if not operand_lists.is_vector(each):
        return
    names = ptx.names(each)
    yield from (
        braced([*names, names[0]]),
        braced([braced(names)]),
        f"[{names[0]}]",
        "_",
    )
    yield braced(names[:-1]) if each.count > 1 else "{}"
    yield braced(["_", *names[1:]])
    if operand_lists.is_written(op, each):
        yield braced(["5", *names[1:]])
        yield braced([names[0]] * each.count) if each.count > 1 else "5"


def misses(op):
    for listed in (operand_lists.lists(op)[0], operand_lists.lists(op)[-1]):
        plain = statement(op, listed)
        lines = declared(listed)
        if len(listed) == max(map(len, operand_lists.lists(op))):
            yield [*lines, f"{plain.rstrip(';')}{',' if listed else ''} %f9;"]
        yield [*lines, f"{plain.rstrip(';')},;"]
        yield [*lines, f"@1 {plain}"]
        if listed and not op.tensor_memory:
            given = ", ".join(ptx._operand(each, {}) for each in listed[:-1])
            yield [*lines, f"{op} {given};"]
        for each in listed:
            for text in wrong(op, each):
                yield [*lines, statement(op, listed, **{each.name: text})]


# What the assembler lets by; none of it means anything new.
LAX = {
    "the immediate of kind::i8 and ti16, which is ignored": r".*kind::t?i(8|16).* -?\w+;",
    "the address of a copy or a shift, whatever it is": r"tcgen05\.(cp|shift)",
    "the name of a variable in shared memory": r"tcgen05\.(ld|st)\..*\[tile\]",
    "brackets in which nothing is": r".*\[\]",
    "one register in braces": r"tcgen05\.ld\.red.*\{%w9\}",
}


def let_by(target, lines):
    """Whether what was parsed becomes machine code, and is in no list."""
    if any(re.match(pattern, lines[-1]) for pattern in LAX.values()):
        return False
    try:
        assembler.assemble(kernels([lines], target, NEWEST), target)
    except fm.Error:
        return False
    return True


def types_in(lines):
    """The type of each register that lines declare; a variable is an address."""
    found = {"tile": ".b64"}
    for of, names in re.findall(r"\.reg (\.\w+) ([^;]+);", " ".join(lines)):
        for name in names.split(", "):
            base, _, count = name.rstrip(">").partition("<")
            every = [f"{base}{i}" for i in range(int(count))] if count else [base]
            found |= dict.fromkeys(every, of)
    return found


def test_near_misses_are_refused_by_both():
    one_each = {op.family: op for op in SOME}.values()
    others = [op for op in SOME if op.family == "tcgen05"]
    ops = dict.fromkeys((*one_each, *others, fm.instruction(NAMED[0])))
    pairs = [(op, lines) for op in ops for lines in misses(op)]
    assert not [
        lines[-1] for op, lines in pairs if fits(op, lines[-1], types_in(lines))
    ]
    # ptxas stops at most of them, so that each needs a run of its own.
    taken, refused = judged(some(pairs, 3))
    assert len(refused) > 100
    assert not [lines[-1] for target, lines, _ in taken if let_by(target, lines)]


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
NAMED = (
    "tcgen05.mma.sp.cta_group::1.kind::f16",
    "tcgen05.mma.cta_group::1.kind::mxf4.block_scale",
    "tcgen05.mma.ws.cta_group::1.kind::tf32",
    "tcgen05.ld.sync.aligned.16x32bx2.x2.b32",
    "tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32",
    "tcgen05.ld.spcompress.sync.aligned.32x32b.x8.max.sp::2:4.f32.b2",
    "tcgen05.st.sync.aligned.32x32b.x2.b32",
    "tcgen05.cp.cta_group::1.128x256b",
    "tcgen05.alloc.cta_group::1.sync.aligned.b32",
    "tcgen05.dealloc.cta_group::1.sync.aligned.b32",
    "tcgen05.shift.cta_group::1.down",
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.multicast::cluster.b64",
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.multicast::cluster::32b.b64",
)
#: Registers that ptxas takes, which say nothing about what they hold.
LAX_TYPES = {("tensor", ".f16x2")}


@pytest.mark.parametrize("name", NAMED)
def test_declared_types_are_the_assemblers_own(name):
    op = fm.instruction(name)
    listed = max(operand_lists.lists(op), key=len)
    asked, modules = [], []
    for each in listed:
        if each.ptx in ("immediate", "constant"):
            continue
        for of in TYPES:
            types = {name: kind for o in listed for name, kind in names_of(o)}
            types |= {name: of for name, _ in names_of(each)}
            text = statement(op, listed)
            lines = [f".reg {kind} {name};" for name, kind in types.items()]
            if (each.ptx, of) not in LAX_TYPES:
                asked.append((each, of, fits(op, text, types)))
                modules.append([*lines, text])
    said = become_code(modules, first_target(op), NEWEST)
    assert not [a for a, yes in zip(asked, said, strict=True) if a[-1] != yes]


def names_of(each):
    kinds = {"address": ".b64", "tensor": ".b32", "number": ".b32", "columns": ".b32"}
    if each.ptx in ("immediate", "constant"):
        return []
    return [(name, kinds.get(each.ptx, each.ptx)) for name in ptx.names(each)]


def fits(op, text, types):
    try:
        guard, _, given = split(text)
        operand_checks.check(op, given, guard=guard, declared=types)
    except fm.errors.UnknownInstruction:  # also what is not a list of operands at all
        return False
    return True


# ── two assemblers ──────────────────────────────────────────────────────────

#: Where ptxas 13.0 needs a later version than the catalogue says, which ptxas 13.4 takes.
LATER_IN_13_0 = {
    r"kind::mxf(8f6f)?4\.block_scale(?!\.scale_vec|\.block)": Version(8, 8)
}


OLDER = Path(sys.prefix) / "toolkit-13.0" / "nvidia" / "cu13" / "bin" / "ptxas"
"""The assembler of toolkit 13.0, which ``make test`` installs."""


def test_an_older_assembler_differs_only_where_it_is_known(monkeypatch):
    """The newest one is asked about the whole catalogue in tests.isa.test_ptxas."""
    if not OLDER.exists():
        pytest.skip("NOT TESTED: tcgen05 before ptxas 13.0, which make test installs")
    monkeypatch.setattr(assembler, "tool", lambda name: OLDER)
    newest = Version(9, 0)
    texts = {op: [*ptx.declarations(op), ptx.statement(op)] for op in OPS}
    unsized = fm.instruction("tcgen05.mma.cta_group::1.kind::mxf4.block_scale")
    for version, refused in ((Version(8, 6), True), (Version(8, 8), False)):
        (why,) = assembler.judge([texts[unsized]], "sm_100a", version)
        assert (why is not None) == refused  # so it is the older one that answers
    for target in (t for t, since in TARGETS.items() if (8, 6) <= since <= newest):
        groups = {}
        for op in (op for op in OPS if op.requires.ptx <= newest):
            groups.setdefault(first_version(op, target), []).append(op)
        for version, ops in groups.items():
            asked = [texts[op] for op in ops]
            said = assembler.judge(asked, target, version or newest)
            for op, why in zip(ops, said, strict=True):
                assert (why is None) == (version is not None), (op, target, why)


def first_version(op, target):
    """The first version in which ptxas 13.0 has an instruction; None: in none."""
    if not op.supported_on(target):
        return None
    needs = op.requires.ptx_on(target)
    for pattern, later in LATER_IN_13_0.items():
        if re.search(pattern, op.mnemonic):
            needs = max(needs, later)
    return needs


def test_what_each_target_takes():
    """The size of what is left out would be the size of the mistake."""
    counts = {t: sum(op.supported_on(t) for op in OPS) for t in TARGETS}
    assert {t: n for t, n in counts.items() if n} == {
        "sm_100a": 600,
        "sm_100f": 446,
        "sm_103a": 712,
        "sm_103f": 614,
        "sm_107a": 2004,
        "sm_107f": 1450,
        "sm_110a": 768,
        "sm_110f": 614,
    }
    assert len(OPS) == 2060
