"""The parser: text is read as it is written, and nothing else is accepted.

The judge is the list of all mnemonics, and what is a part of which, found by
comparing words; for layouts, counting places.
"""

from __future__ import annotations

import random
from functools import cache
from itertools import product

import fragmenta as fm
from fragmenta import catalogue, find, instruction
from fragmenta.reference.isa.target import TARGETS, check_target
from fragmenta.reference.registers.dtype import DTYPES, dtype
from fragmenta.reference.registers.layout import Layout
from tests.fuzz.engine import Ask, Surface, Wrong, expect, odd

LONG = 20_000
"""Characters of the longest texts."""
ALPHABET = (
    "mnksp.:;,{}[]%@! \t\n0123456789abcdefxyzMNK_-+*/=|<>'\"\\\0\x1b\u00b2\u0661…é"
)


# What the manual lets one leave out, by the word that then stands for it.
DISCARDS = ("collector::a::discard", "collector::b0::discard")
LEFT_OUT = {"kind::mxf8f6f4": "scale_vec::1X", "kind::mxf4": "scale_vec::2X"}


@cache
def known() -> dict[str, fm.Instruction]:
    """Every mnemonic there is."""
    return {str(op): op for op in catalogue()}


@cache
def names() -> list[str]:
    return list(known())


@cache
def tokens() -> dict[str, tuple[str, ...]]:
    """The words of each mnemonic."""
    return {name: tuple(name.lower().split(".")) for name in names()}


@cache
def vocabulary() -> list[str]:
    words = {word for name in names() for word in name.split(".")}
    return sorted(
        words | {"f8", "m16n8k7", "m0n0k0", "sp::", "kind::", "x3", "rni", ""}
    )


def contains(words: tuple[str, ...], wanted: list[str]) -> bool:
    """Whether all are there, in this order."""
    left = iter(words)
    return all(word in left for word in wanted)


# ── games ───────────────────────────────────────────────────────────────────


def whole_names(ask: Ask) -> None:
    """A mnemonic names its instruction, with white space about it or a guard."""
    rng = ask.rng
    name = rng.choice(names())
    space = " " * rng.randrange(3)
    text = rng.choice(["", "", "@%p1 ", "@!%p2\t"]) + space + name + space
    found = ask.accepted(rng.choice((instruction, find)), text)
    expect(found == known()[name], f"{found} is not what {text!r} names")


def changed_names(ask: Ask) -> None:
    """A mnemonic with something changed is another one that exists, or none."""
    rng = ask.rng
    words = rng.choice(names()).split(".")
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(words))
        kind = rng.randrange(5)
        if kind == 0:
            words[at] = rng.choice(vocabulary())
        elif kind == 1:
            del words[at]
        elif kind == 2:
            words.insert(at, rng.choice(vocabulary()))
        elif kind == 3:
            other = rng.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        else:
            words[at] = _misspelled(rng, words[at])
        words = words or ["mma"]
    text = ".".join(words)
    if text in known():
        found = ask.accepted(instruction, text)
        expect(str(found) == text, f"{text!r} is read as {found}")
        return
    # wmma has two orders of shape and layout; a dot at the end is forgiven.
    found = ask(instruction, text)
    words = text.rstrip(".").split(".")
    if found.family.startswith("tcgen05"):  # to discard is what happens without a word
        words = [w for w in words if w not in DISCARDS]
    elif "scale_vec" not in text:
        words += [LEFT_OUT[w] for w in words if w in LEFT_OUT]
    expect(
        sorted(str(found).split(".")) == sorted(words), f"{text!r} is read as {found}"
    )


def _misspelled(rng: random.Random, word: str) -> str:
    at = rng.randrange(len(word) + 1)
    with_it = rng.choice("0123456789mnkx_:" + word)
    return word[:at] + with_it * rng.randrange(2) + word[at + 1 :]


def abbreviations(ask: Ask) -> None:
    """What is found has all the words; what nobody has is not found."""
    rng = ask.rng
    words = [w for w in rng.choice(names()).split(".") if rng.random() < 0.7]
    if rng.random() < 0.3 and words:
        words[rng.randrange(len(words))] = rng.choice(vocabulary())
    text = ".".join(words)
    wanted = [word.lower() for word in words if word]
    fits = [name for name, have in tokens().items() if contains(have, wanted)]
    if not fits and "tcgen05" in wanted:
        _by_descriptor(ask, text, wanted)
        return
    if not fits or not wanted:
        ask.refused(find, text)
        return
    found = ask.accepted(find, text) if len(fits) == 1 else ask(find, text)
    expect(str(found) in fits, f"{text!r} finds {found}, which has not all of it")


def _by_descriptor(ask: Ask, text: str, wanted: list[str]) -> None:
    """A shape that stands in a descriptor is a word of it; options have no order."""
    try:
        found = ask(find, text)
    except fm.Error:
        return
    name, _, descriptor = str(found).partition(" ")
    have = [*name.lower().split("."), *([str(found.shape)] if descriptor else [])]
    left = [word for word in wanted if word not in DISCARDS]
    expect(
        all(left.count(word) <= have.count(word) for word in left),
        f"{text!r} finds {found}, which has not all of it",
    )


def junk(ask: Ask) -> None:
    """Any text at all, long ones among them, is refused soon."""
    rng = ask.rng
    size = rng.choice((1, 3, 10, 40, 200, 2000, LONG)) if rng.random() < 0.1 else 12
    start = rng.choice(("", "", "mma", "mma.sync.aligned.", "wgmma.mma_async."))
    piece = rng.choice((" ", ".", "x1.", "a", "9", "sp::", "mma.", "(", "\n", "f32."))
    if rng.random() < 0.5:
        piece = "".join(rng.choices(ALPHABET, k=rng.randint(1, 8)))
    text = (start + piece * (1 + size // len(piece)))[: size + len(start)] + "?"
    ask.refused(instruction, text)
    if size < LONG or rng.random() < 0.2:
        ask.refused(find, text)


def not_text(ask: Ask) -> None:
    """What is no text names nothing."""
    value = odd(ask.rng)
    ask.refused(instruction, value)
    ask.refused(find, value)


def by_qualifiers(ask: Ask) -> None:
    """An instruction built of qualifiers has them."""
    rng = ask.rng
    op = known()[rng.choice(names())]
    given = {n: v for n, v in op.values.items() if v and rng.random() < 0.9}
    given = {n: v for n, v in given.items() if n in ("a", "b", "c", "d", "sp", "kind")}
    if rng.random() < 0.2:
        given[rng.choice(["a", "b", "d", "rounding", "nonsense"])] = rng.choice(
            vocabulary()
        )
    make = {"mma": fm.mma, "mma.sp": fm.mma, "wgmma": fm.wgmma, "wgmma.sp": fm.wgmma}
    shape = str(op.shape) if rng.random() < 0.9 else rng.choice(vocabulary())
    found = ask(make.get(op.family, fm.mma), shape, given.pop("a", "f16"), **given)
    expect(str(found.shape) == shape.lstrip("."), f"{found} is not {shape}")
    expect(str(found) in known(), f"{found} does not exist")


def types_and_targets(ask: Ask) -> None:
    """Names of types and targets are those of the tables."""
    rng = ask.rng
    name = rng.choice([*DTYPES, "f15", "e4m4", "", ".s4", "S8", " f16 ", "x" * 200])
    key = name.strip().lower().removeprefix(".")
    found = ask.maybe(key in DTYPES, dtype, name)
    expect(found is None or found.name == key, f"{name!r} is read as {found}")
    target = rng.choice([*TARGETS, "sm_1", "sm_90b", "", "90", "sm_" + "9" * 300])
    found = ask.maybe(target in TARGETS, check_target, target)
    expect(found in (None, target), f"{target!r} is read as {found}")


# ── layouts ─────────────────────────────────────────────────────────────────


def layouts(ask: Ask) -> None:
    """A line that is taken is a bijection, and reads back as it was written."""
    rng = ask.rng
    line, sizes = _line(rng)
    if rng.random() < 0.6:
        line = _changed(rng, line)
    layout = ask(Layout.parse, line, **sizes)
    _check_bijection(layout, sizes)
    again = ask.accepted(Layout.parse, str(layout), **sizes)
    expect(again == layout, f"{layout} reads back as {again}")
    back = layout.inverse()
    if "".join(layout.sizes).isalpha():  # names with digits are no names of axes
        again = ask.accepted(Layout.parse, str(back), **dict(back.axes))
        expect(again == back, f"{back} reads back as {again}")
    ask(layout.to_cuda, rng.choice(["where", "holds", "hold"]), row=rng.choice("mL0 "))


def _line(rng: random.Random) -> tuple[str, dict[str, int]]:
    sizes = {axis: 1 << rng.randint(0, 3) for axis in rng.sample("WLRE", 2)}
    digits = [
        f"{axis}{bit}"
        for axis, size in sizes.items()
        for bit in range(size.bit_length() - 1)
    ]
    rng.shuffle(digits)
    cut = rng.randint(0, len(digits))
    row, col = digits[:cut], digits[cut:]
    free = rng.choice(["", "", " | copy = 0"])
    return (
        f"row = {' '.join(row) or '0'}  col = {' '.join(col) or '0'}{free}",
        sizes,
    )


def _changed(rng: random.Random, line: str) -> str:
    at = rng.randrange(len(line) + 1)
    put = rng.choice(
        ["", "", "L", "R1*", "=", "|", " ", "0", "9", "W3", "x", "*", "/1*2", "I0"]
    )
    return line[:at] + put + line[at + rng.randrange(3) :]


def _check_bijection(layout: Layout, sizes: dict[str, int]) -> None:
    seen = set()
    for place in product(*(range(size) for size in sizes.values())):
        found = layout.element(**dict(zip(sizes, place, strict=True)))
        seen.add(tuple(found.values()))
        for name, value in found.items():
            if not 0 <= value < layout.sizes[name]:
                raise Wrong(f"{layout}: {name} {value} is out of its own range")
    count = 1
    for size in sizes.values():
        count *= size
    expect(len(seen) == count, f"{layout}: {len(seen)} elements in {count} places")


def long_lines(ask: Ask) -> None:
    """Lines that are no layouts are refused, however long."""
    rng = ask.rng
    piece = rng.choice(["a", "a=", "L0 ", "row = ", "|", " ", "= L0", "0 ", "é", "L9*"])
    text = piece * (rng.choice((1, 10, 100, 1000, LONG)) // len(piece) + 1)
    ask.refused(Layout.parse, text + "?", L=4)


SURFACE = Surface(
    "parser",
    {
        whole_names: 30,
        changed_names: 20,
        abbreviations: 1,
        junk: 12,
        not_text: 8,
        by_qualifiers: 1,
        types_and_targets: 8,
        layouts: 8,
        long_lines: 1,
    },
    share=0.16,
)
