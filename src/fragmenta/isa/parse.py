"""Which instruction does this text mean?

Full mnemonics are read qualifier by qualifier against the family's spelling,
then against its rows, so that the first thing wrong can be named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from fragmenta.errors import (
    AmbiguousInstruction,
    Error,
    UnknownInstruction,
    nearest,
    one_of,
)
from fragmenta.isa import mma as mma_table
from fragmenta.isa import mma_sp, moves
from fragmenta.isa import wgmma as wgmma_table
from fragmenta.isa import wmma as wmma_table
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.table import Form, Row

FORMS: tuple[Form, ...] = (
    mma_table.FORM,
    mma_sp.FORM,
    wmma_table.MMA_F16,
    wmma_table.MMA,
    wmma_table.LOAD,
    wmma_table.STORE,
    wgmma_table.DENSE,
    wgmma_table.SPARSE,
    moves.LDMATRIX,
    moves.STMATRIX,
    moves.MOVMATRIX,
)
FAMILIES = tuple(dict.fromkeys(form.name for form in FORMS))

#: What to call each qualifier in a message.
_WORDS = {
    "shape": "shape",
    "alayout": "layout of A",
    "blayout": "layout of B",
    "layout": "layout",
    "d": "type of D",
    "a": "type of A",
    "b": "type of B",
    "c": "type of C",
    "type": "type",
    "sp": "sparsity",
    "kind": "kind",
    "scale_vec": "scale vector",
    "stype": "scale type",
    "bitop": "bit operation",
    "satfinite": "saturation",
    "rounding": "rounding",
    "operand": "operand",
    "space": "state space",
    "num": "count",
    "trans": "transposition",
    "block_scale": "block scaling",
}


def instruction(text: str | Instruction) -> Instruction:
    """The instruction that a PTX mnemonic names; an instruction is its own name.

    White space, a guard predicate and a trailing operand list are tolerated.

    >>> op = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> op.shape
    Shape(m=16, n=8, k=16)
    >>> instruction("mma.sync.aligned.m16n8k64.row.col.f32.tf32.tf32.f32")
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnknownInstruction: mma m16n8k64 with .tf32 as the type of A does \
not exist; .tf32 has m16n8k4 and m16n8k8, and in mma.sp m16n8k8 and m16n8k16; \
nearest: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
    """
    if isinstance(text, Instruction):
        return text
    _check_text(text)
    return _named(text)


@lru_cache(maxsize=4096)
def _named(text: str) -> Instruction:
    mnemonic = _mnemonic(text)
    reading = max(_readings(mnemonic), key=lambda r: (r.complete, r.consumed))
    if not reading.complete:
        hint = "" if "sync" in mnemonic else "; find() takes names in short"
        raise UnknownInstruction(_misspelled(mnemonic, reading) + hint)
    return _choose(reading)


def catalogue(
    family: str | None = None, *, form: Form | None = None
) -> Iterator[Instruction]:
    """Every instruction, in table order; optionally of one family.

    >>> sum(1 for op in catalogue("movmatrix"))
    1
    """
    if family is not None and family not in FAMILIES:
        raise UnknownInstruction(
            f"no family {family}{nearest(str(family), FAMILIES)}; there are "
            f"{one_of(FAMILIES, 'and')}"
        )
    return _combinations(family, FORMS if form is None else (form,))


def _combinations(family: str | None, forms: Iterable[Form]) -> Iterator[Instruction]:
    seen: set[str] = set()
    for each in forms:
        if family is not None and each.name != family:
            continue
        for row in each.rows:
            for values in row.combinations():
                op = Instruction(each, row, values)
                if op.mnemonic not in seen:  # rows may overlap; the first rules
                    seen.add(op.mnemonic)
                    yield op


def find(text: str) -> Instruction:
    """The one instruction that a mnemonic or an abbreviation of it means.

    An abbreviation is some of the qualifiers, in their order.  A qualifier
    that may be left out is taken to be absent unless it is named.

    >>> str(find("mma.m16n8k64.s4.s4"))
    'mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32'
    """
    try:
        return instruction(text)
    except UnknownInstruction as unknown:
        candidates = search(text)
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise _no_such_abbreviation(text, unknown) from None
        shown = [f"  {op}" for op in candidates[:12]]
        more = len(candidates) - len(shown)
        tail = f"\n  … and {more} more" if more else ""
        raise AmbiguousInstruction(
            f"{text!r} fits {len(candidates)} instructions:\n" + "\n".join(shown) + tail
        ) from None


def _no_such_abbreviation(text: str, unknown: UnknownInstruction) -> Error:
    """What is wrong with words that are not a mnemonic and fit none."""
    words = _words(text)
    if "sync" in words or not words:
        return unknown  # a full mnemonic: its own error is the better one
    known = [word for word in words if any(_has(form, word) for form in FORMS)]
    strange = [word for word in words if word not in known]
    if strange:
        everything = {value for form in FORMS for value in _vocabulary(form)}
        hint = _nearest_shape(strange[0], everything) or nearest(strange[0], everything)
        return UnknownInstruction(f"no instruction has {strange[0]}{hint}")
    longest = max(
        (words[:i] + words[i + 1 :] for i in range(len(words))),
        key=lambda fewer: bool(search(".".join(fewer))),
    )
    near = [str(op) for op in search(".".join(longest))[:3]]
    hint = f"; without one of them there are {one_of(near, 'and')}" if near else ""
    return UnknownInstruction(
        f"no instruction has {one_of(words, 'and')} in this order{hint}"
    )


def _nearest_shape(word: str, known: Iterable[str]) -> str:
    """The shape whose n is nearest, if all but n is that of another."""
    given = re.fullmatch(r"(m\d+n)(\d+)(k\d+)", word)
    if given is None:
        return ""
    before, n, after = given.groups()
    sizes = [
        int(each.removeprefix(before).removesuffix(after))
        for each in known
        if re.fullmatch(rf"{before}\d+{after}", each)
    ]
    if not sizes:
        return ""
    near = min(sizes, key=lambda size: (abs(size - int(n)), size))
    return f" (did you mean {before}{near}{after}?)"


def search(text: str) -> list[Instruction]:
    """Instructions whose qualifiers include these, in this order.

    If any of them leaves every optional qualifier out, only those count.

    >>> [str(op) for op in search("movmatrix")]
    ['movmatrix.sync.aligned.m8n8.trans.b16']
    """
    wanted = _words(text)
    if not wanted:
        return []
    found = [
        op
        for form in FORMS
        for row in form.rows
        if _may_fit(form, row, wanted)
        for op in (Instruction(form, row, values) for values in row.combinations())
        if _is_abbreviation(wanted, op.mnemonic)
    ]
    unique = list({op.mnemonic: op for op in found}.values())
    exact = [op for op in unique if op.mnemonic.split(".")[0] == wanted[0]]
    unique = exact or unique
    plain = [op for op in unique if not _extra_options(op, wanted)]
    return plain or unique


def _words(text: str) -> list[str]:
    _check_text(text)
    return [word for word in re.split(r"[.;\s]+", text.strip().lower()) if word]


def _vocabulary(form: Form, row: Row | None = None) -> set[str]:
    """Every word that can stand in a mnemonic of a form, or of one row."""
    words = set(re.findall(r"[\w:]+", re.sub(r"\{\w+\}", "", form.spellings[0])))
    for each in form.rows if row is None else (row,):
        for values in each.allowed.values():
            for value in values:
                words.update(value.lower().split("."))
    return words


def _has(form: Form, word: str) -> bool:
    return word in _vocabulary(form)


def _may_fit(form: Form, row: Row, wanted: list[str]) -> bool:
    """Whether every word occurs in the row at all: cheap, before spelling."""
    words = _vocabulary(form, row)
    return all(word in words for word in wanted)


def _is_abbreviation(wanted: list[str], mnemonic: str) -> bool:
    tokens = iter(mnemonic.lower().split("."))
    return all(word in tokens for word in wanted)


def _extra_options(op: Instruction, wanted: list[str]) -> bool:
    """Whether it carries a qualifier that could be left out and was not named."""
    if op.sparse and not any(word.startswith("sp") for word in wanted):
        return True
    if op.kind and not any(word.startswith("kind::") for word in wanted):
        return True
    optional = [op.values[n] for n, vs in op.row.allowed.items() if "" in vs]
    return any(value and value not in wanted for value in optional)


# ── construction by keyword ─────────────────────────────────────────────────


def mma(shape: str, a: str, b: str | None = None, **qualifiers: str) -> Instruction:
    """An ``mma`` or, with ``sp=``, an ``mma.sp`` by its qualifiers.

    ``b`` defaults to ``a``; ``c`` to ``d``; what is not given must be the
    only choice, or have a default in the mnemonic.

    >>> str(mma("m16n8k64", a="s4", b="u4"))
    'mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32'
    >>> str(mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata"))
    'mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32'
    """
    sparse = _sparse(qualifiers.get("sp"), mma_sp.FORM.vocabulary("sp"))
    form = mma_sp.FORM if sparse else mma_table.FORM
    return build((form,), shape=shape, a=a, b=b or a, **qualifiers)


def _sparse(given: object, words: Iterable[str]) -> bool:
    """Whether a sparse form is wanted: by one of these words, or not at all."""
    if not given:
        return False
    if not isinstance(given, str) or given.removeprefix(".") not in words:
        raise UnknownInstruction(f"sp is {one_of(map(repr, words))}; given {given!r}")
    return True


def wgmma(shape: str, a: str, b: str | None = None, **qualifiers: str) -> Instruction:
    """A ``wgmma.mma_async``, or ``.sp`` with ``sp="sp"``, by its qualifiers.

    >>> str(wgmma("m64n256k64", a="e4m3", d="f32", sp="sp"))
    'wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e4m3.e4m3'
    """
    sparse = _sparse(qualifiers.pop("sp", ""), ("sp",))
    form = wgmma_table.SPARSE if sparse else wgmma_table.DENSE
    return build((form,), shape=shape, a=a, b=b or a, **qualifiers)


def wmma(shape: str, a: str, **qualifiers: str) -> Instruction:
    """A ``wmma.mma`` by its qualifiers.

    >>> str(wmma("m8n8k32", a="s4"))
    'wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32'
    """
    forms = (wmma_table.MMA_F16, wmma_table.MMA)
    return build(forms, shape=shape, a=a, **qualifiers)


def build(forms: Iterable[Form], **given: str) -> Instruction:
    """The one instruction with these qualifiers.

    Optional qualifiers that are not given are absent; layouts default to
    row and col; otherwise several choices are an error that lists them.
    """
    forms = tuple(forms)
    given = {name: _qualifier(name, value) for name, value in given.items() if value}
    known = {name for form in forms for row in form.rows for name in row.allowed}
    for name in given:
        if name not in known:
            raise UnknownInstruction(
                f"{forms[0].name} has no qualifier {name}{nearest(name, known)}; "
                f"it has {one_of(sorted(known), 'and')}"
            )
    for form in forms:
        order = sorted(given, key=_importance)
        if _select(form, given, order, strict=form is forms[-1]):
            break
    found: dict[str, Instruction] = {}
    for form in forms:
        for row in form.rows:
            if all(row.takes(n, v) for n, v in given.items()):
                for values in row.combinations():
                    op = Instruction(form, row, values)
                    if all(
                        values.get(n, "") == row.settle(n, v) for n, v in given.items()
                    ):
                        found.setdefault(op.mnemonic, op)
    candidates = list(found.values())
    plain = [op for op in candidates if not _unasked(op, given)]
    candidates = plain or candidates
    if len(candidates) == 1:
        return candidates[0]
    shown = "\n".join(f"  {op}" for op in candidates[:12])
    raise AmbiguousInstruction(
        f"{_describe(forms[0].name, given)} fits {len(candidates)} instructions; "
        f"say more:\n{shown}"
    )


def _unasked(op: Instruction, given: Mapping[str, str]) -> bool:
    """Whether it chose a non-default where nothing was asked for."""
    if op.kind and "kind" not in given:
        return True
    defaults = {"alayout": "row", "blayout": "col", "c": op.values.get("d", "")}
    for name, allowed in op.row.allowed.items():
        value = op.values[name]
        if name in given or (len(allowed) == 1 and name != "c"):
            continue
        if "" in allowed and value:
            return True
        if name in defaults and value != defaults[name]:
            return True
    return False


def _qualifier(name: str, value: str) -> str:
    """Tolerate dots, bare kinds, counts and bit operations."""
    if isinstance(value, type):
        raise UnknownInstruction(
            f"{name} is a word of PTX, such as s8 or f16; given {value!r}"
        )
    text = str(value).strip().lstrip(".")
    prefix = {"kind": "kind::", "scale_vec": "scale_vec::"}.get(name, "")
    if prefix and not text.startswith(prefix):
        text = prefix + text
    if name == "bitop" and not text.endswith(".popc"):
        text += ".popc"
    return text


# ── reading a mnemonic ──────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Reading:
    """How far a mnemonic follows one spelling, and what it says."""

    form: Form
    spelling: str
    values: Mapping[str, str]
    consumed: int
    complete: bool
    expected: str


def _mnemonic(text: str) -> str:
    """The mnemonic alone: no guard, no operands, no white space in it."""
    bare = re.sub(r"^\s*@!?[%\w]+\s+", "", text.strip())
    bare = re.sub(r"\s+(?=\.)|(?<=\.)\s+", "", bare)
    match = re.match(r"[\w.:]+", bare)
    if match is None:
        raise UnknownInstruction(f"{text!r} does not begin with a mnemonic")
    return match[0].rstrip(".")


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise UnknownInstruction(f"an instruction is named by text; given {text!r}")


def _readings(mnemonic: str) -> list[_Reading]:
    tokens = mnemonic.split(".")
    return [
        _read(form, spelling, tokens) for form in FORMS for spelling in form.spellings
    ]


@cache
def _grammar(form: Form, spelling: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The spelling as steps: ('', (literal,)) or (field, its values)."""
    steps = []
    for item in spelling.split("."):
        field = item.strip("{}") if item.startswith("{") else ""
        words = form.vocabulary(field) if field else [item]
        steps.append((field, tuple(sorted(words, key=len, reverse=True))))
    return tuple(steps)


def _read(form: Form, spelling: str, tokens: list[str]) -> _Reading:
    values: dict[str, str] = {}
    position = 0
    for field, words in _grammar(form, spelling):
        for word in words:
            parts = word.split(".") if word else []
            if tokens[position : position + len(parts)] == parts:
                break
        else:
            expected = field or words[0]
            return _Reading(form, spelling, values, position, False, expected)
        if field:
            values[field] = word
        position += len(parts)
    complete = position == len(tokens)
    return _Reading(form, spelling, values, position, complete, "")


def _misspelled(mnemonic: str, reading: _Reading) -> str:
    """The first token that fits no spelling, and what could stand there."""
    tokens = mnemonic.split(".")
    if reading.consumed == 0:
        names = dict.fromkeys(form.spellings[0].split(".")[0] for form in FORMS)
        return (
            f"no instruction {tokens[0]}{nearest(tokens[0], names)}; "
            f"the families are {one_of(FAMILIES, 'and')}"
        )
    here = ".".join(tokens[: reading.consumed])
    if reading.consumed == len(tokens):
        what = _WORDS.get(reading.expected, f".{reading.expected}")
        near = _nearest_text(reading.form, reading.values)
        return f"{mnemonic} ends too soon: the {what} is missing{near}"
    token = tokens[reading.consumed]
    name = reading.expected
    if not name:
        return f".{token} does not belong after {here}{_nearest_text(reading.form, reading.values)}"
    options = (
        [w for w in reading.form.vocabulary(name) if w] if name in _WORDS else [name]
    )
    fits = [f".{word}" for word in _fitting(reading, name)] or [
        f".{w}" for w in options
    ]
    hint = nearest(token, options)
    if name not in _WORDS:
        return f".{token} cannot follow {here}{hint}; .{name} comes next"
    return f".{token} is not a {_WORDS[name]}{hint}; after {here} it is {_short(fits)}"


def _fitting(reading: _Reading, name: str) -> list[str]:
    """What rows that agree with the reading so far have for a field."""
    given = reading.values
    rows = [
        r for r in reading.form.rows if all(r.takes(n, v) for n, v in given.items())
    ]
    values = dict.fromkeys(v for row in rows for v in row.allowed.get(name, ()) if v)
    return list(values)


def _short(words: list[str], most: int = 12) -> str:
    if len(words) <= most:
        return one_of(words)
    return f"{', '.join(words[:3])} … {words[-1]} ({len(words)} choices)"


def _choose(reading: _Reading) -> Instruction:
    """The row that a well-spelled mnemonic names, or the first contradiction."""
    order = sorted(reading.form.fields(reading.spelling), key=_importance)
    row = _select(reading.form, reading.values, order, strict=True)
    assert row is not None
    values = {
        name: row.settle(name, reading.values.get(name, allowed[0]))
        for name, allowed in row.allowed.items()
    }
    return Instruction(reading.form, row, values)


def _importance(name: str) -> int:
    """Shape and multiplicands first: they are what one is looking for."""
    first = ("sp", "shape", "kind", "a", "b", "type", "operand", "num")
    return first.index(name) if name in first else len(first)


def _select(
    form: Form, values: Mapping[str, str], order: list[str], *, strict: bool
) -> Row | None:
    rows = list(form.rows)
    for position, name in enumerate(order):
        value = values.get(name, "")
        left = [row for row in rows if row.takes(name, value)]
        if not left:
            if not strict:
                return None
            before = {n: values.get(n, "") for n in order[:position]}
            raise UnknownInstruction(
                _contradiction(form, rows, before, name, value, values)
            )
        rows = left
    return rows[0]


def _contradiction(
    form: Form,
    rows: list[Row],
    before: Mapping[str, str],
    name: str,
    value: str,
    values: Mapping[str, str],
) -> str:
    """Name what does not go together, what would, and the nearest whole."""
    there = dict.fromkeys(v for row in rows for v in row.allowed.get(name, ("",)))
    fits = one_of(f".{v}" if v else "none" for v in there)
    what = (
        f".{value} as the {_WORDS.get(name, name)}"
        if value
        else f"no {_WORDS.get(name, name)}"
    )
    text = f"{_describe(form.name, before)} with {what} does not exist"
    shapes = _shapes_with(form, name, value) if value and name != "shape" else ""
    text += f"; .{value} has {shapes}" if shapes else f"; it has {fits}"
    return text + _nearest_text(form, values)


def _describe(family: str, values: Mapping[str, str]) -> str:
    """A few words for what has been read so far: ``mma m16n8k16 .f16 x .f16``."""
    if values.get("sp"):
        family = f"mma.{values['sp']}"
    told = [values.get("shape", ""), values.get("kind", ""), values.get("type", "")]
    types = " x ".join(f".{values[n]}" for n in "ab" if values.get(n))
    return " ".join(word for word in (family, *told, types) if word)


def _shapes_with(form: Form, name: str, value: str) -> str:
    """The shapes that have a value, here and in the sparse or dense sibling."""
    sibling = {"mma": mma_sp.FORM, "mma.sp": mma_table.FORM}.get(form.name)
    texts = []
    for each in (form, sibling):
        if each is None:
            continue
        rows = [row for row in each.rows if value in row.allowed.get(name, ())]
        shapes = list(dict.fromkeys(s for row in rows for s in row.allowed["shape"]))
        if shapes:
            where = "" if each is form else f"in {each.name} "
            texts.append(where + _short(shapes).replace(" or ", " and "))
    return ", and ".join(texts)


def _nearest_text(form: Form, values: Mapping[str, str]) -> str:
    """The instruction that differs in the fewest qualifiers."""
    weights = {"a": 4, "b": 4, "sp": 3, "kind": 3, "shape": 2}

    def distance(row: Row) -> tuple[int, int]:
        wrong = [n for n, v in values.items() if not row.takes(n, v)]
        shapes = [_difference(values.get("shape", ""), s) for s in row.allowed["shape"]]
        return sum(weights.get(n, 1) for n in wrong), min(shapes)

    row = min(form.rows, key=distance)
    chosen = {}
    for name, allowed in row.allowed.items():
        wanted = row.settle(name, values.get(name, ""))
        chosen[name] = wanted if wanted in allowed else _closest(wanted, allowed)
    return f"; nearest: {form.spell(chosen)}"


def _closest(wanted: str, allowed: tuple[str, ...]) -> str:
    """The allowed value that looks most like the wanted one."""
    return min(allowed, key=lambda value: (_difference(wanted, value), len(value)))


def _difference(wanted: str, value: str) -> int:
    """How far the numbers in two names are apart."""
    numbers = [map(int, re.findall(r"\d+", text)) for text in (wanted, value)]
    return sum(abs(x - y) for x, y in zip(*numbers, strict=False))
