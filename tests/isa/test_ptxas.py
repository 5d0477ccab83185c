"""The catalogue before its judge: ptxas, for every target and version."""

import re
from functools import cache

import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.cuda.source import kernel, ptx
from fragmenta.cuda.tools import assembler
from fragmenta.reference.isa import table
from fragmenta.reference.isa.families import FORMS
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import TARGETS, Version
from tests.thinning import THOROUGH, some

VERSIONS = [
    Version(major, minor)
    for major, last in ((6, 5), (7, 8), (8, 8), (9, 4))
    for minor in range(last + 1)
]
OPS = list(catalogue())


@cache  # every target is asked about the same statements
def written(op, a_registers=False):
    declared = ptx.declarations(op, a_registers=a_registers)
    return [*declared, ptx.statement(op, a_registers=a_registers)]


def both_sources(op):
    """A wgmma takes A from a descriptor or from registers: two statements."""
    return (False, True) if op.warpgroup else (False,)


@pytest.fixture(scope="module", autouse=True)
def newest():
    assert assembler.newest_version() >= Version(9, 4)


@cache
def edges(op):
    """The first target with an entry, and the last one before it, or else the first
    one after it, that does not have it."""
    order = list(TARGETS)
    first = op.requires.targets[0]
    start = order.index(first)
    others = order[:start][::-1] + order[start:]
    return {first, *[each for each in others if not op.supported_on(each)][:1]}


def asked(target):
    """Entries that begin or end to exist at a target, and a fifth of the others."""
    turn = list(TARGETS).index(target)
    for number, op in enumerate(OPS):
        if THOROUGH or target in edges(op) or (number + turn) % 5 == 0:
            yield op


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_takes_what_the_catalogue_says_and_nothing_else(target):
    """The entries at the newest version: accepted, or denied."""
    assert len(OPS) == 4357
    ops = list(asked(target))
    pairs = [(op, written(op, source)) for op in ops for source in both_sources(op)]
    verdicts = assembler.judge([text for _, text in pairs], target, VERSIONS[-1])
    wrong = [
        (str(op), verdict)
        for (op, _), verdict in zip(pairs, verdicts, strict=True)
        if op.supported_on(target) != (verdict is None)
    ]
    assert not wrong


@pytest.mark.long
@pytest.mark.parametrize("target", some(TARGETS, 2))
def test_the_stated_version_is_the_first_that_works(target):
    """Accepted at the stated PTX version, refused one version lower."""
    groups = {}
    for op in asked(target):
        if op.supported_on(target):
            groups.setdefault(op.requires.ptx_on(target), []).append(op)
    for version, ops in groups.items():
        texts = [written(op) for op in ops]
        at = assembler.judge(texts, target, version)
        assert not [(str(o), v) for o, v in zip(ops, at, strict=True) if v]
        lower = VERSIONS[VERSIONS.index(version) - 1]
        below = assembler.judge(texts, target, lower)
        assert not [str(o) for o, v in zip(ops, below, strict=True) if v is None]


def other_spellings(op):
    """The same instruction in each further spelling that has all its words."""
    for spelling in op.form.spellings[1:]:
        named = {name: value for name, value in op.values.items() if value}
        implied = {name for name in named if f"{{{name}}}" not in spelling}
        if not implied:
            yield table.spell(spelling, op.values)
    for spelled, value in op.row.defaults.items():
        name, _, text = spelled.partition("=")
        if op.values[name] == value:
            yield op.form.spell({**op.values, name: text})


def test_other_spellings_are_the_assemblers_own():
    by_target = {}
    for op in OPS:
        target = op.requires.targets[-1]
        for text in other_spellings(op):
            assert fm.instruction(text) == op
            line = ptx.statement(op).replace(str(op), text)
            by_target.setdefault(target, []).append([*ptx.declarations(op), line])
    assert sum(map(len, by_target.values())) > 700
    for target, texts in by_target.items():
        assert not any(assembler.judge(texts, target, VERSIONS[-1])), target


def near_misses():
    """Entries with one qualifier exchanged for another of the same family."""
    for form in FORMS:
        vocabulary = {name: form.vocabulary(name) for name in form.rows[0].allowed}
        for row in form.rows:
            base = next(row.combinations())
            for name, values in base.items():
                for value in vocabulary.get(name, form.vocabulary(name)):
                    if value != values:
                        yield form, row, {**base, name: value}


def exists(form, values):
    try:
        fm.instruction(form.spell(values))
    except fm.errors.UnknownInstruction:
        return False
    return True


# What the assembler lets by and no manual has; none of it means anything new.
LAX = {
    "a .kind::mx… without .block_scale is ignored on 8-bit types": r"mma\..*kind::mx(?!.*block_scale).*\.e[45]m[23]\.e[45]m[23]\.",
    "wmma moves accumulators of types that the shape cannot multiply": r"wmma\.(load\.c|store\.d)\..*\.(f16|f32|s32|f64)$",
    "wmma.load.b takes f64 for a shape that f64 does not have": r"wmma\.load\.b\..*m32n8k16\.f64$",
}


def text_of(form, row, values):
    """A statement with operands that fit the words, where any would fit."""
    op = Instruction(form, row, values)
    try:
        lines = written(op)
    except (fm.Error, KeyError, ValueError, ZeroDivisionError, IndexError):
        op = Instruction(form, row, next(row.combinations()))
        lines = [line.replace(str(op), form.spell(values)) for line in written(op)]
    return lines


def refused(name, lines, target):
    """What parsing lets by must at least not become machine code."""
    if any(re.match(pattern, name) for pattern in LAX.values()):
        return True
    module, _ = kernel.listing([lines], target, VERSIONS[-1])
    try:
        assembler.assemble(module, target)
    except fm.Error:
        return True
    return False


def test_near_misses_are_refused_by_both():
    wrong, each_once = {}, {}
    for form, row, values in near_misses():
        each_once.setdefault(form.spell(values), (form, row, values))
    for name, (form, row, values) in some(each_once.items(), 3):
        if not exists(form, values):
            wrong[name] = text_of(form, row, values)
    assert len(wrong) >= 1000
    for turn, target in enumerate(("sm_90a", "sm_100a", "sm_107a", "sm_120a")):
        names = some(wrong, 2, turn)
        texts = [wrong[name] for name in names]
        verdicts = assembler.judge(texts, target, VERSIONS[-1])
        parsed = [n for n, v in zip(names, verdicts, strict=True) if v is None]
        assert len(parsed) < 60
        assert not [name for name in parsed if not refused(name, wrong[name], target)]


def test_selectors_and_immediates_are_the_assemblers_own():
    """Each legal immediate assembles; the next one up is refused."""
    accepted, refused = {}, {}
    for op in OPS:
        target = op.requires.targets[0]
        for each in op.operands:
            for value in each.values:
                line = ptx.statement(op, **{each.name: value})
                accepted.setdefault(target, []).append([*ptx.declarations(op), line])
            if each.values and not undefined_selector(op, each):
                line = ptx.statement(op, **{each.name: max(each.values) + 1})
                refused.setdefault(target, []).append([*ptx.declarations(op), line])
    for target, texts in accepted.items():
        assert not any(assembler.judge(texts, target, VERSIONS[-1])), target
    for target, texts in refused.items():
        assert all(assembler.judge(texts, target, VERSIONS[-1])), target


def undefined_selector(op, operand):
    """The manual calls selectors 2 and 3 undefined here; ptxas lets them by."""
    f16_k32 = op.values["a"] == "f16" and op.shape.k == 32
    return operand.name == "selector" and op.family == "mma.sp" and f16_k32


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_every_entry_really_becomes_machine_code(part):
    """Parsing is not assembling: generate code, for a target that has each."""
    work = {}
    for op in some(OPS[part::4], 4):
        target = "sm_90a" if op.supported_on("sm_90a") else op.requires.targets[-1]
        # One function works for single CTAs or for pairs.
        work.setdefault((target, op.cta_group), []).append(written(op))
    for (target, _), texts in work.items():
        module, _ = kernel.listing(texts, target, VERSIONS[-1])
        assert assembler.assemble(module, target, "-O0")
