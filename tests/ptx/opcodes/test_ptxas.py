"""The table of opcodes before its judge: ptxas."""

import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.reference.isa.target import TARGETS, Version
from tests.ptx.opcodes.judging import (
    NEWEST,
    WORDS,
    forms,
    home,
    judged,
    lines,
    mnemonics,
    near_misses,
    supported,
)

FLOATS = ("floating", "half", "conversion", "fp8")
MODULES = ("comparison", "fields", "integer", "logic", "moving", "video", *FLOATS)
LINES = [line for module in MODULES for line in lines(module)]
#: How many near misses of each line are tried.
MISSES = 60
VERSIONS = [
    f"{major}.{minor}"
    for major, last in ((6, 5), (7, 8), (8, 8), (9, 4))
    for minor in range(last + 1)
]
# Words that are put in the place of a right one.
MODIFIERS = (
    "ftz",
    "sat",
    "relu",
    "cc",
    "lo",
    "hi",
    "wide",
    "and",
    "clamp",
    "ltu",
    "rn",
)
ROUNDING = (
    *("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "approx", "full"),
    *("ftz", "sat", "relu", "satfinite", "NaN", "abs", "oob", "xorsign"),
)
# ptxas takes these without generating code; the manual does not have them.
UNWRITTEN = {
    *("addc.sat.s32", "subc.sat.s32", "madc.hi.sat.s32"),
    *(
        f"{name}.{kind}"
        for name in ("addc", "subc", "madc.lo", "madc.hi")
        for kind in ("u16", "s16")
    ),
    *(
        f"fma.{mode}{more}.{kind}"
        for mode in ("rz", "rm", "rp")
        for more in ("", ".relu", ".oob", ".oob.relu")
        for kind in ("bf16", "bf16x2")
    ),
    *(f"fma.rn.oob.sat.{kind}" for kind in ("f16", "f16x2")),
}
# Opcodes that floats have too: their lines are in other modules.
SHARED = {"add", "sub", "mul", "mad", "div", "abs", "neg", "min", "max", "cvt"}


@pytest.fixture(scope="module", autouse=True)
def newest():
    assert assembler.newest_version() >= Version.parse(NEWEST)


def some(line):
    """A few forms of a line: the first, the last, and between."""
    every = list(forms(line, few=True))
    return every[:: max(1, len(every) // 6)] + every[-1:]


@pytest.mark.long
@pytest.mark.parametrize("module", MODULES)
def test_every_form_assembles(module):
    every = [form for line in lines(module) for form in forms(line, few=True)]
    assert every
    assert not judged(every)


def words_for(line):
    """The words that are tried in a line."""
    if home(line) in FLOATS:
        return WORDS + ROUNDING
    if line.opcode in SHARED:
        return tuple(word for word in WORDS + MODIFIERS if "f" not in word)
    if line.opcode.startswith("v"):  # ptxas takes .sat twice, and .lo at its whim
        return WORDS
    return WORDS + MODIFIERS


@pytest.mark.long
def test_near_misses_are_refused():
    missed = {}
    for line in LINES:
        for form in near_misses(line, words_for(line), MISSES):
            missed.setdefault(form.mnemonic, form)
    refused = judged(missed.values())
    assert len(missed) > 3000
    wrong = {name for name, form in missed.items() if str(form) not in refused}
    # The words of floating-point instructions may stand in any order, and twice.
    known = {
        frozenset(name.split("."))
        for module in FLOATS
        for line in lines(module)
        for name, _ in mnemonics(line)
    }
    wrong = {name for name in wrong if frozenset(name.split(".")) not in known}
    assert wrong <= UNWRITTEN


def test_each_target_has_what_the_table_says():
    one = {line: next(forms(line)) for line in LINES}
    for target in TARGETS:
        if target in ("sm_70", "sm_72"):
            continue  # ptxas no longer knows them
        refused = judged(one.values(), target)
        wrong = [
            line.text
            for line, form in one.items()
            if supported(line, target) == (str(form) in refused)
        ]
        assert not wrong, target


def test_the_stated_version_is_the_first_that_works():
    groups = {}
    for line in LINES:
        if line.since:
            first = line.targets.split()[-1] if line.targets else "sm_75"
            groups.setdefault((first, line.since), []).extend(some(line))
    for (target, since), every in groups.items():
        assert not judged(every, target, since)
        before = VERSIONS[VERSIONS.index(since) - 1]
        if Version.parse(before) >= TARGETS[target]:
            assert {*judged(every, target, before)} == {*map(str, every)}


def test_lines_without_a_version_are_as_old_as_any():
    old = [form for line in LINES if not line.since for form in some(line)]
    assert not judged(old, "sm_75", "6.3")


def test_the_judge_refuses():
    """The question reaches it: a wrong operand is seen."""
    line = next(line for line in LINES if line.text.startswith("add.type"))
    good = next(forms(line))
    bad = type(good)(line, "add.u64", good.qualifiers, good.slots)
    assert not judged([good])
    assert judged([bad])
