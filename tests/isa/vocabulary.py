"""Asks ptxas for every modifier that it knows, in every place of our families.

ptxas tells an unknown modifier from one that an instruction never has, and from one that
does not fit the others.  So candidates can be asked about: the words of our own tables,
of the table of opcodes and of the manual's newer chapters, and systematic series of
shapes, types, kinds and counts, most of which do not exist.

Known words are then put into instructions of the catalogue: instead of one qualifier,
instead of two, and in addition.  What ptxas makes machine code of has to be in the
catalogue, or in :data:`LEFT_OUT` with the reason.

    python -m tests.isa.vocabulary          # the whole search, in some minutes
"""

import re
from functools import cache
from itertools import combinations, permutations, product

import fragmenta as fm
from fragmenta.cuda.source import ptx
from fragmenta.cuda.tools import assembler
from fragmenta.ptx.checking.tensor import Remark, _unordered, named
from fragmenta.ptx.opcodes.table import TYPES
from fragmenta.reference.isa.families import FORMS
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import expand
from tests.isa.assembling import become_code, kernels

NEWEST = assembler.newest_version()
#: One target of each kind; all of them are asked about in tests.isa.test_ptxas.
TARGETS = ("sm_90a", "sm_100a", "sm_103a", "sm_107a", "sm_120a")

# ── words ───────────────────────────────────────────────────────────────────

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256)
KINDS = (
    "f4",
    "f6",
    "f8",
    "f16",
    "bf16",
    "tf32",
    "f32",
    "f64",
    "i4",
    "i8",
    "i16",
    "ti8",
    "ti16",
    "ti32",
    "u8",
    "s8",
    "b1",
    "nvf4",
)
USES = ("fill", "use", "lastuse", "discard", "keep", "reuse")
_OTHERS = """
row col sync aligned async trans sat satfinite relu ftz noftz abs NaN xorsign xor and or
popc add sub min max minabs maxabs rn rz rm rp rs rna pzo approx full lo hi wide sp
sp::ordered_metadata sp::unordered_metadata ws down up exclusive shared shared::cta
shared::cluster global local generic mbarrier::arrive::one multicast::cluster
multicast::cluster::all cluster cta sync_restrict::shared::read::mma::a
sync_restrict::shared::read::mma::b sync_restrict::shared::read::mma
sync_restrict::shared::write::mma::a block_scale ashift bshift spcompress red ordered
noinc expand read write reads uni no_allocate weak relaxed acquire release volatile
L2::cache_hint b1024 acc::f32 acc::f16 op_restrict tile im2col pred seq dual
"""
OTHERS = tuple(_OTHERS.split())


def _series():
    """Words that follow a pattern, whether they exist or not."""
    for m, n in product((8, 16, 32, 64, 128, 256), (8, 16, 24, 32, 48, 64, 128, 256)):
        yield f"m{m}n{n}"
        yield from (f"m{m}n{n}k{k}" for k in (2, 4, 8, 16, 32, 64, 96, 128, 256, 512))
    for bits, count in product(
        (1, 2, 4, 6, 8, 16, 32, 64), ("", "x2", "x4", "x8", "x16")
    ):
        yield from (f"{letter}{bits}{count}" for letter in "bsuf")
    for e, m, count in product(range(1, 9), range(8), ("", "x2", "x4")):
        yield from (f"{sign}{e}m{m}{count}" for sign in ("e", "ue"))
    for first, second in product(("", *KINDS), KINDS):
        yield from (f"kind::{mx}{first}{second}" for mx in ("", "mx"))
    yield from ("kind::f8f6f4", "kind::mxf8f6f4", "kind::mxf4nvf4", "kind::f6f4")
    for n in SIZES:
        yield from (f"x{n}", f"scale_vec::{n}X", f"block{n}", f"cta_group::{n}")
        yield from (f"pack::{n}b", f"unpack::{n}b", f"multicast::cluster::{n}b")
        yield from (f"warpx{n}", f"buffer{n}", *(f"sp::{n}:{m}" for m in SIZES))
    for part in (
        "a",
        "b",
        "c",
        "d",
        "e",
        *(f"{of}{i}" for of in "ab" for i in range(5)),
    ):
        yield from (f"collector::{part}::{use}" for use in USES)
        yield from (f"decompress::lut::{part}", f"decompress::{part}", f"lut::{part}")
    for a, b, c, d in permutations("0123"):
        yield f"warpx2::{a}{b}_{c}{d}"
    for bits, count, padding in product((2, 3, 4, 5, 6), (8, 16, 32), (16, 32, 64, 96)):
        yield from (f"b{bits}x{count}", f"b{bits}x{count}_p{padding}")
    for lanes, bits in product((4, 16, 32, 64, 128), (32, 64, 128, 256)):
        yield from (f"{lanes}x{bits}b", f"{lanes}x{bits}bx2")


def candidates():
    """Every word to ask about."""
    found = dict.fromkeys((*OTHERS, *TYPES, *_series()))
    for form in FORMS:
        for row in form.rows:
            values = [each for of in row.allowed.values() for each in of]
            found.update(
                dict.fromkeys(w for each in values for w in each.split(".") if w)
            )
    return list(found)


def is_unknown(why):
    """Whether ptxas does not know a word at all."""
    return why is not None and why.startswith(("Unknown modifier", "Parsing error"))


@cache
def known():
    """The candidates that ptxas knows, in any instruction."""
    words = candidates()
    texts = [[f".reg .b32 %r; mov.{word}.b32 %r, %r;"] for word in words]
    said = assembler.judge(texts, "sm_107a", NEWEST)
    return [word for word, why in zip(words, said, strict=True) if not is_unknown(why)]


# ── statements ──────────────────────────────────────────────────────────────


@cache
def templates(form):
    """A statement of each list of operands that a form has, with its mnemonic."""
    found = {}
    for op in fm.catalogue(form.name):
        if op.form is form:
            listed = tuple((each.ptx, each.count, each.vector) for each in op.operands)
            found.setdefault(listed, op)
    return [
        (str(op), [*ptx.declarations(op), ptx.statement(op)]) for op in found.values()
    ]


def qualifiers(form):
    """The fields of a form that its rows fill, in the order of its spelling."""
    return [name for name in form.fields() if name in form.rows[0].allowed]


def statement(form, row, values):
    """A statement with these words, and the operands of the first one of the row."""
    name, lines = _first(form, row)
    return [*lines[:-1], lines[-1].replace(name, form.spell(values))]


@cache
def _of_rows(form):
    """The first instruction of each row, by the row's identity: its name, its lines."""
    found = {}
    for row in form.rows:
        op = Instruction(form, row, next(row.combinations()))
        found[id(row)] = (str(op), [*ptx.declarations(op), ptx.statement(op)])
    return found


def _first(form, row):
    return _of_rows(form)[id(row)]


def is_about_operands(why):
    """Whether the words may be right, and the operands are not theirs."""
    return why is not None and re.search(
        r"[Aa]rguments? |[Vv]ector (of size|expected|is not)|Incorrect no. of matrix",
        why,
    )


def is_never(word, why):
    """Whether the instruction has this word in no combination, as ptxas says."""
    named = rf"'\.{re.escape(word)}'"
    return why is not None and re.match(
        rf"(Unknown|Illegal|Unsupported) modifier {named}|Illegal matrix shape {named}"
        rf"|Feature {named} not supported|Illegal rounding|Comparison qualifier"
        r"|No state space qualifier|Parsing error",
        why,
    )


# ── the search ──────────────────────────────────────────────────────────────


def bases(form):
    """One combination of each row."""
    return [(row, next(row.combinations())) for row in form.rows]


@cache
def _legal(form, target):
    """The words that the instruction may have in some combination, on a target.

    Behind a whole instruction, a word is refused as one of another instruction, or
    because the instruction has one like it already.
    """
    here = [of for of in bases(form) if target in expand(of[0].targets)]
    if not here:
        return frozenset()
    (row, values), last = here[-1], qualifiers(form)[-1]
    asked = []
    for word in known():
        behind = f"{values.get(last, '')}.{word}".strip(".")
        asked.append((word, {**values, last: behind}))
        asked += [
            (word, {**values, name: word})
            for name, value in values.items()
            if _pattern(word) in map(_pattern, value.split("."))
        ]
    texts = [statement(form, row, each) for _, each in asked]
    said = assembler.judge(texts, target, NEWEST)
    pairs = zip(asked, said, strict=True)
    never = {word for (word, _), why in pairs if is_never(word, why)}
    return frozenset(known()) - never


@cache
def legal(form):
    """The words that the instruction may have on some target, in their order."""
    found = frozenset().union(*(_legal(form, target) for target in TARGETS))
    return [word for word in known() if word in found]


@cache
def _vocabulary():
    """The words of all rows of all forms."""
    values = (
        each for form in FORMS for row in form.rows for each in row.allowed.values()
    )
    return frozenset(word for of in values for each in of for word in each.split("."))


def instead(form, name, *, every):
    """What may stand in the place of a qualifier: its words, and others like them.

    Shapes and counts of other instructions, and types that are several numbers, count
    only with ``every``.
    """
    own = form.vocabulary(name)
    words = [word for value in own for word in value.split(".")]
    like = [
        word
        for word in legal(form)
        if _pattern(word) in map(_pattern, words)
        and (every or _is_number(word) or word not in _vocabulary())
    ]
    return list(dict.fromkeys(["", *own, *like]))


def _is_number(word):
    return _pattern(word) == "type" and "x" not in word


def _pattern(word):
    """What a word is: a type, a shape, a count ..."""
    if re.fullmatch(r"(b|s|u|f|bf|tf|e|ue)\d+(m\d+)?(x\d+(_p\d+)?)?", word):
        return "type"
    return re.sub(r"\d+", "0", word)


#: Types that are exchanged together.
TYPES_OF = (("a", "b"), ("d", "c"))


def changes(form):
    """Rows with one or two qualifiers exchanged, or with a word too many."""
    fields = qualifiers(form)
    pairs = [pair for pair in TYPES_OF if set(pair) <= set(fields)]
    numbers = {name for pair in pairs for name in pair}
    own = {name: ["", *form.vocabulary(name)] for name in fields}
    more = {
        name: own[name] if name in numbers else instead(form, name, every=False)
        for name in fields
    }
    pairs += combinations([name for name in fields if name not in numbers], 2)
    every = {name: instead(form, name, every=True) for name in fields}
    for row, values in bases(form):
        for name in fields:
            yield from ((row, {**values, name: word}) for word in every[name])
            if any("." in value for value in form.vocabulary(name)):
                single = [word for word in every[name] if word and "." not in word]
                for both in product(single, repeat=2):
                    yield row, {**values, name: ".".join(both)}
        for one, two in pairs:
            for first, second in product(more[one], more[two]):
                yield row, {**values, one: first, two: second}
    for row, values in (bases(form)[0], bases(form)[-1]):
        for word in legal(form):
            yield (
                row,
                {
                    **values,
                    fields[-1]: f"{values.get(fields[-1], '')}.{word}".strip("."),
                },
            )
    yield from _together(form, fields)


def _together(form, fields):
    """Every shape with every type of A and B, and every type of D and C."""
    if not {"shape", "a", "d"} <= set(fields):
        return
    row, values = bases(form)[0]
    names = [name for pair in TYPES_OF for name in pair if name in fields]
    words = [instead(form, name, every=False) for name in ("shape", "a", "d")]
    few = words[0] if len(words[0]) < 40 else words[0][:: len(words[0]) // 20]
    for shape, a, d in product(few, *words[1:]):
        of = {"a": a, "b": a, "d": d, "c": d}
        yield row, {**values, "shape": shape, **{name: of[name] for name in names}}


@cache
def _ours():
    return {_unordered(str(op)) for op in fm.catalogue()}


def asked(form):
    """Each text that is not in the catalogue as it stands, with its row and words."""
    found = {}
    for row, values in changes(form):
        text = form.spell(values)
        if text not in found and _unordered(text) not in _ours():
            found[text] = (row, values)
    return found


def accepted(asked, target):
    """The texts that ptxas parses for a target, with a statement that it takes."""
    found, left = {}, {}
    items = list(asked.items())
    said = assembler.judge([lines for _, (_, lines) in items], target, NEWEST)
    for (text, (form, lines)), why in zip(items, said, strict=True):
        if why is None:
            found[text] = lines
        elif is_about_operands(why):
            left[text] = form
    retried = [
        (text, [*lines[:-1], lines[-1].replace(name, text)])
        for text, form in left.items()
        for name, lines in templates(form)
    ]
    said = assembler.judge([lines for _, lines in retried], target, NEWEST)
    for (text, lines), why in zip(retried, said, strict=True):
        if why is None:
            found.setdefault(text, lines)
    return found


# ── what is left out ────────────────────────────────────────────────────────

#: What becomes machine code and is not in the catalogue: a pattern, why, an example and
#: a target that takes it.
LEFT_OUT = (
    (
        r"tcgen05\.cp\..*\.b2\.b2$",
        "ptxas ignores .b2, also twice: the machine code is the same",
        "tcgen05.cp.cta_group::1.128x256b.b2.b2",
        "sm_100a",
    ),
    (
        r"(ld|st)matrix\..*\.x(8|16|32|64|128)(\.|$)",
        "ptxas takes these counts, of tcgen05.ld, for .x1: the machine code is the same",
        "ldmatrix.sync.aligned.m8n8.x8.b16",
        "sm_90a",
    ),
    (
        r"mma\.sync\.aligned\.m8n8k4\..*f32\.bf16\.bf16\.f32",
        "no manual has m8n8k4 with bf16, and no source says what it computes",
        "mma.sync.aligned.m8n8k4.row.col.f32.bf16.bf16.f32",
        "sm_90a",
    ),
    (
        r"mma\..*kind::mx(?!.*block_scale)",
        "a kind of block scales without .block_scale is ignored on 8-bit types",
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.f32.e4m3.e4m3.f32",
        "sm_120a",
    ),
    (
        r"wmma\.(load\.c|store\.d)\..*\.(f16|f32|s32|f64)$",
        "wmma moves accumulators of types that the shape cannot multiply",
        "wmma.load.c.sync.aligned.row.m8n8k32.f32",
        "sm_90a",
    ),
)


def left_out(text):
    """Why a text is left out; nothing if it is not."""
    return next((why for known, why, *_ in LEFT_OUT if re.match(known, text)), "")


def ignored(text, lines, target):
    """A word of a text without which the machine code is the same, if there is one.

    Without it, the text has to be in the catalogue.
    """
    words = text.split(".")
    for number in range(1, len(words)):
        less = ".".join(words[:number] + words[number + 1 :])
        if isinstance(named(less), Remark):
            continue
        without = [*lines[:-1], lines[-1].replace(text, less)]
        if _code(lines, target) == _code(without, target):
            return words[number]
    return ""


def _code(lines, target):
    try:
        return assembler.assemble(kernels([lines], target, NEWEST), target, "-O0")
    except fm.Error:
        return None


def searched():
    """The forms that have qualifiers."""
    return [form for form in FORMS if qualifiers(form)]


def found(form, texts):
    """What of these becomes machine code, and is neither in the catalogue nor left out."""
    asked_for = {text: (form, statement(form, *of)) for text, of in texts.items()}
    missing = {}
    for target in TARGETS:
        if not any(target in expand(row.targets) for row in form.rows):
            continue
        new = {
            text: lines
            for text, lines in accepted(asked_for, target).items()
            if isinstance(named(text), Remark) and not left_out(text)
        }
        made = become_code(list(new.values()), target, NEWEST) if new else []
        for (text, lines), yes in zip(new.items(), made, strict=True):
            if yes and text not in missing and not ignored(text, lines, target):
                missing[text] = target
    return missing


def main():
    """The whole search; what it finds is printed."""
    number = 0
    for form in searched():
        texts = asked(form)
        print(f"{form.spellings[0]}: {len(texts):,} texts", flush=True)
        for text, target in found(form, texts).items():
            number += 1
            print(f"  {target} takes {text}", flush=True)
    print(f"{number} that the catalogue does not have")
    return number


if __name__ == "__main__":
    raise SystemExit(bool(main()))
