"""Messages for a mnemonic that does not exist.

The first thing wrong is named, then what could be there instead, then the
nearest instruction that exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from fragmenta.errors import (
    LONGEST_WORD,
    AmbiguousInstruction,
    nearest,
    one_of,
    shortened,
)
from fragmenta.reference.isa.families import FAMILIES, FORMS, uncovered
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.table import Form, Row
from fragmenta.reference.isa.tables import mma, mma_sp

if TYPE_CHECKING:
    from fragmenta.reference.isa.reading import SpellingMatch

#: What each qualifier is called in a message.
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
    "cta_group": "CTA group",
    "collector": "collector",
    "collector_b": "collector of B",
    "ashift": "shift of A",
    "lut": "table for B",
    "tile": "shape",
    "pack": "packing",
    "unpack": "unpacking",
    "red": "reduction",
    "abs": "absolute value",
    "nan": "treatment of NaN",
    "multicast": "multicast",
    "source": "source format",
    "exclusive": "exclusive use",
    "restrict": "restriction",
}


def misspelled(mnemonic: str, readings: Sequence[SpellingMatch]) -> str:
    """The first token that fits no spelling, and what could be there instead."""
    tokens = mnemonic.split(".")
    reading = readings[0]
    why = uncovered(tokens)
    if why and reading.consumed <= 1:
        return why
    if reading.consumed == 0:
        names = dict.fromkeys(form.spellings[0].split(".")[0] for form in FORMS)
        return (
            f"no instruction {quoted(tokens[0])}{nearest(tokens[0], names)}; "
            f"the families are {one_of(FAMILIES, 'and')}"
        )
    if reading.named:  # of tcgen05.mma and tcgen05.mma.ws, the longer name is meant
        heads = [
            each
            for each in readings
            if f"{mnemonic}.".startswith(f"{each.form.any_order}.")
        ]
        longest = max(heads or readings, key=lambda each: len(each.form.any_order))
        return _unordered(tokens, longest)
    if reading.consumed == len(tokens):
        what = _WORDS.get(reading.expected) or _literals(readings)
        near = _nearest_text(reading.form, reading.values)
        return f"{mnemonic} ends too soon: the {what} is missing{near}"
    return _misplaced(tokens, readings)


def _misplaced(tokens: list[str], readings: Sequence[SpellingMatch]) -> str:
    """What is wrong with the first token that fits none of the readings."""
    reading = readings[0]
    here, token = ".".join(tokens[: reading.consumed]), tokens[reading.consumed]
    name = reading.expected
    if not name:
        near = _nearest_text(reading.form, reading.values)
        return f".{quoted(token)} does not belong after {here}{near}"
    if name not in _WORDS:
        hint = nearest(token, [each.expected for each in readings])
        comes = _literals(readings)
        return f".{quoted(token)} cannot follow {here}{hint}; {comes} comes next"
    options = [word for word in reading.form.vocabulary(name) if word]
    fits = [f".{word}" for word in _fitting(reading, name) or options]
    hint = nearest(token, options)
    after = f"after {here} it is {_short(fits)}"
    return f".{quoted(token)} is not a {_WORDS[name]}{hint}; {after}"


def _unordered(tokens: list[str], reading: SpellingMatch) -> str:
    """What is wrong where qualifiers may stand in any order: one more, or one less."""
    form, name = reading.form, reading.expected
    head = form.any_order
    near = _nearest_text(form, reading.values)
    values = [word for word in form.vocabulary(name) if word] if name in _WORDS else []
    its = f"the {_WORDS[name]}" if name in _WORDS else f".{name}"
    are = f": {_short([f'.{word}' for word in values])}" if values else ""
    if not reading.left:
        return f"{quoted('.'.join(tokens))} lacks {its}{are}{near}"
    strange = reading.left[0]
    if strange in _IN_NAMES:
        return f".{strange} comes directly after the name, as in {_IN_NAMES[strange]}"
    if tokens.count(strange) > 1:
        return f".{quoted(strange)} is there twice{near}"
    words = [word for field in form.fields() for word in form.vocabulary(field) if word]
    others = [word for word in form.spellings[0].split(".") if not word.startswith("{")]
    hint = nearest(strange, values) or nearest(strange, [*words, *others])
    lacks = f"; {its} is missing{are}" if name else ""
    return f".{quoted(strange)} is not a qualifier of {head}{hint}{lacks}{near}"


#: Words that belong to the name of an instruction, and so have their place.
_IN_NAMES = {
    "ws": "tcgen05.mma.ws",
    "red": "tcgen05.ld.red",
    "spcompress": "tcgen05.ld.red.spcompress",
}


def _literals(readings: Iterable[SpellingMatch]) -> str:
    """The words, not qualifiers, that some reading expects next."""
    words = dict.fromkeys(each.expected for each in readings)
    return one_of(f".{word}" for word in words if word and word not in _WORDS)


def quoted(token: str) -> str:
    """A word as a message quotes it: whole, unless it is very long.

    >>> quoted("f17")
    'f17'
    """
    return token if len(token) <= LONGEST_WORD else shortened(token)


def _fitting(reading: SpellingMatch, name: str) -> list[str]:
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


def contradiction(
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
        f".{quoted(value)} as the {_WORDS.get(name, name)}"
        if value
        else f"no {_WORDS.get(name, name)}"
    )
    text = f"{describe(form.name, before)} with {what} does not exist"
    shapes = _shapes_with(form, name, value) if value and name != "shape" else ""
    text += f"; .{value} has {shapes}" if shapes else f"; it has {fits}"
    return text + _nearest_text(form, values)


def ambiguous(what: str, fitting: Sequence[Instruction]) -> AmbiguousInstruction:
    """The error for what fits several instructions: it lists the first of them."""
    listed = [f"{op}  {op.descriptor or ''}".rstrip() for op in fitting[:12]]
    shown = "".join(f"\n  {each}" for each in listed)
    more = f"\n  … and {len(fitting) - 12} more" if len(fitting) > 12 else ""
    return AmbiguousInstruction(
        f"{what} fits {len(fitting)} instructions; say more:{shown}{more}"
    )


def describe(family: str, values: Mapping[str, str]) -> str:
    """A few words for what has been read so far: ``mma m16n8k16 .f16 x .f16``."""
    if values.get("sp"):
        family = f"mma.{values['sp']}"
    known = [quoted(values.get(name, "")) for name in ("shape", "kind", "tile", "type")]
    types = " x ".join(f".{quoted(values[n])}" for n in "ab" if values.get(n))
    return " ".join(word for word in (family, *known, types) if word)


def _shapes_with(form: Form, name: str, value: str) -> str:
    """The shapes that have a value, here and in the sparse or dense sibling."""
    sibling = {"mma": mma_sp.FORM, "mma.sp": mma.FORM}.get(form.name)
    texts = []
    for each in (form, sibling):
        if each is None:
            continue
        rows = [row for row in each.rows if value in row.allowed.get(name, ())]
        shapes = list(
            dict.fromkeys(s for row in rows for s in row.allowed.get("shape", ()))
        )
        if shapes:
            where = "" if each is form else f"in {each.name} "
            texts.append(where + _short(shapes).replace(" or ", " and "))
    return ", and ".join(texts)


def _nearest_text(form: Form, values: Mapping[str, str]) -> str:
    """The instruction that differs in the fewest qualifiers."""
    weights = {"a": 4, "b": 4, "sp": 3, "kind": 3, "shape": 4}

    def distance(row: Row) -> tuple[int, int]:
        wrong = [n for n, v in values.items() if not row.takes(n, v)]
        shape = values.get("shape", "")
        shapes = [difference(shape, each) for each in row.allowed.get("shape", ("",))]
        return sum(weights.get(n, 1) for n in wrong), min(shapes)

    row = min(form.rows, key=distance)
    chosen = {}
    for name, allowed in row.allowed.items():
        wanted = row.settle(name, values.get(name, ""))
        chosen[name] = wanted if wanted in allowed else _closest(wanted, allowed)
    return f"; nearest: {form.spell(chosen)}"


def _closest(wanted: str, allowed: tuple[str, ...]) -> str:
    """The allowed value that looks most like the wanted one."""
    return min(allowed, key=lambda value: (difference(wanted, value), len(value)))


@lru_cache(maxsize=1 << 14)
def difference(wanted: str, value: str) -> int:
    """How far the numbers in two names are apart."""
    numbers = [map(_number, re.findall(r"\d+", text)) for text in (wanted, value)]
    return sum(abs(x - y) for x, y in zip(*numbers, strict=False))


def _number(digits: str) -> int:
    """The number that digits spell; a very long one is only called large.

    Python refuses to read thousands of digits, and no size needs them.
    """
    return int(digits) if len(digits) < 10 else 10**10


def nearest_shape(word: str, known: Iterable[str]) -> str:
    """The shape whose numbers are nearest: of equally near ones, the smallest.

    >>> nearest_shape("m64n7k16", ["m64n8k16", "m64n16k16", "m64n8k32"])
    ' (did you mean m64n8k16?)'
    >>> nearest_shape("m16n8k13", ["m16n8k32", "m16n8k16", "m8n8k16"])
    ' (did you mean m16n8k16?)'
    """
    if not _SHAPE.fullmatch(word):
        return ""
    letters = re.sub(r"\d+", "", word)
    alike = [
        each
        for each in known
        if _SHAPE.fullmatch(each) and re.sub(r"\d+", "", each) == letters
    ]
    near = min(
        alike, key=lambda each: (difference(word, each), _sizes(each)), default=""
    )
    return f" (did you mean {near}?)" if near else ""


def _sizes(shape: str) -> list[int]:
    return [_number(each) for each in re.findall(r"\d+", shape)]


_SHAPE = re.compile(r"m\d+n\d+(k\d+)?", re.ASCII)
