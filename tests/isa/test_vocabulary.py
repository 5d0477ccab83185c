"""What ptxas accepts is in the catalogue, or in a short list of what is left out."""

import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.reference.isa.families import FORMS
from tests.isa import vocabulary
from tests.thinning import THOROUGH

# ── is the judge fed right? ─────────────────────────────────────────────────

MADE_UP = ("foo", "m8n32", "m16n8k3", "kind::f8f7f5", "x3", "scale_vec::3X", "sp::3:4")
KNOWN = ("m16n8k16", "kind::mxf4nvf4", "e2m1", "sp::2:4", "collector::a::fill", "x128")


def test_made_up_words_are_unknown_and_words_of_tables_are_known():
    known = vocabulary.known()
    assert not {*MADE_UP} & {*known}
    assert {*KNOWN} <= {*known}
    words = vocabulary.candidates()
    assert len(words) > 2000
    assert 300 < len(known) < 500
    ours = {
        word
        for form in FORMS
        for row in form.rows
        for values in row.allowed.values()
        for value in values
        for word in value.split(".")
    }
    assert ours - {"", *"abcd"} <= {*known}  # wmma.load.a: a part of the name


FORMED = {form.spellings[0].split(".{")[0]: form for form in FORMS}


@pytest.mark.parametrize(
    ("name", "has", "never"),
    [
        ("ldmatrix.sync.aligned", ("m8n16", "s4", "trans"), ("kind::f16", "exclusive")),
        ("mma.sync.aligned", ("e2m1", "s4"), ("trans", "abs", "collector::a::fill")),
        ("spcompress", ("x64", "b16"), ("sync", "trans", "x128", "kind::f16")),
        ("tcgen05.cp", ("warpx4", "128x256b"), ("trans", "abs")),
    ],
)
def test_words_of_an_instruction_and_of_others(name, has, never):
    legal = vocabulary.legal(FORMED[name])
    assert {*has} <= {*legal}
    assert not {*never} & {*legal}


def test_operands_are_found_for_words_that_have_others():
    """ldmatrix.x4 has four registers; the row's first instruction has one."""
    form = FORMED["ldmatrix.sync.aligned"]
    (row, values), *_ = vocabulary.bases(form)
    asked = vocabulary.statement(form, row, {**values, "num": "x4"})
    (why,) = assembler.judge([asked], "sm_90a", vocabulary.NEWEST)
    assert vocabulary.is_about_operands(why)
    text = form.spell({**values, "num": "x4"})
    assert text in vocabulary.accepted({text: (form, asked)}, "sm_90a")


def test_a_crash_of_the_judge_is_no_acceptance():
    """ptxas 13.4 crashes at the second; the others keep their verdicts."""
    words = ".reg .b32 %r<16>; "
    eight = "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}"
    four = "{%r0, %r1, %r2, %r3}"
    text = "wmma.mma.sync.aligned.row.row.SHAPE.f16.f16 "
    text += f"{four}, {eight}, {eight}, {four};"
    shapes = ("m16n16k16", "m8n8k32", "m16n16k16.foo")
    texts = [text.replace("SHAPE", shape) for shape in shapes]
    said = assembler.judge([[words, each] for each in texts], "sm_90a", "9.4")
    assert said == [None, "ptxas crashes", "Unknown modifier '.foo'"]


# ── the search ──────────────────────────────────────────────────────────────


FEW = ("ldmatrix.sync.aligned", "spcompress")
"""Forms that an ordinary run searches; a thorough one searches all of them."""


def test_what_ptxas_accepts_is_in_the_catalogue_or_left_out():
    """Some of the search; ``python -m tests.isa.vocabulary`` does all of it."""
    forms = vocabulary.searched() if THOROUGH else [FORMED[name] for name in FEW]
    for number, form in enumerate(forms):
        items = list(vocabulary.asked(form).items())
        step = max(1, len(items) // 200)
        taken = dict(items[number % min(7, step) :: step])
        assert len(taken) >= min(len(items), 100)
        assert not vocabulary.found(form, taken)


@pytest.mark.parametrize("line", vocabulary.LEFT_OUT, ids=lambda line: line[2])
def test_what_is_left_out_becomes_machine_code(line):
    """Each line of the list is needed."""
    _, why, example, target = line
    assert vocabulary.left_out(example) == why
    assert isinstance(vocabulary.named(example), vocabulary.Remark)
    begins = ".".join(example.split(".")[:2]) if "tcgen05" in example else example[:8]
    form = next(form for form in FORMS if form.spellings[0].startswith(begins))
    texts = [
        [*lines[:-1], lines[-1].replace(name, example)]
        for name, lines in vocabulary.templates(form)
    ]
    assert any(vocabulary.become_code(texts, target, vocabulary.NEWEST))


def test_a_word_that_changes_nothing_is_told():
    form = FORMED["ldmatrix.sync.aligned"]
    (row, values), *_ = vocabulary.bases(form)
    text = form.spell(values)
    more = f"{text}.row"
    (lines,) = [vocabulary.statement(form, row, values)]
    lines = [*lines[:-1], lines[-1].replace(text, more)]
    assert vocabulary.ignored(more, lines, "sm_90a") == "row"
    turned = text.replace(".x1", ".x1.trans")
    lines = [*lines[:-1], lines[-1].replace(more, turned)]
    assert not vocabulary.ignored(turned, lines, "sm_90a")
