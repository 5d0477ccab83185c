"""The explorer's data about shared memory.

These are the tables of descriptors and swizzles.  The possible major sides and their
swizzles come from the rules themselves.  From this and from the lines of layouts, the
page computes what lies where and what an access costs.
"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.errors import AddressError
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.tables.moves import PACKINGS
from fragmenta.reference.shared.banks import ACCESSES, BANKS, WORD
from fragmenta.reference.shared.descriptor import LIMIT, OFFSETS
from fragmenta.reference.shared.elements import GROUP, MAJORS, PADDED_KINDS, stored
from fragmenta.reference.shared.fields import CONSTANT, FAMILIES, FIELDS_OF, MODES_OF
from fragmenta.reference.shared.swizzles import LINE, PATTERNS, SWIZZLES, UNIT, pattern

# One element type for each number of bits, and the kind of tcgen05 that has it.
_TYPES = {
    1: ("b1", None),
    4: ("e2m1", "mxf4"),
    6: ("e2m3", "mxf8f6f4"),
    8: ("e4m3", None),
    16: ("f16", None),
    32: ("tf32", None),
}


def memory_record() -> dict[str, object]:
    """The tables by name."""
    packed = {
        words: {"bits": each.bits, "row": each.row_bytes}
        for words, each in PACKINGS.items()
    }
    return {
        "unit": UNIT,
        "line": LINE,
        "banks": BANKS,
        "word": WORD,
        "limit": LIMIT,
        "swizzles": [_named(line) for line in read(PATTERNS)],
        "offsets": read(OFFSETS),
        "fields": FIELDS_OF,
        "modes": {
            family: list(map(_name, modes)) for family, modes in MODES_OF.items()
        },
        "constant": CONSTANT,
        "allowed": list(_allowed()),
        "padded": {"kinds": PADDED_KINDS, "group": GROUP, "moves": packed},
        "accesses": ACCESSES,
    }


def _named(line: dict[str, str]) -> dict[str, str]:
    """A line of the table of swizzles, with the name in CuTe's words."""
    (swizzle,) = (each for each in SWIZZLES if str(each) == line["swizzle"])
    of = pattern(swizzle)
    xor = of.xor
    changed, source = (range(at, at + xor.bits) for at in (xor.low, xor.source))
    return {
        **{name: line[name] for name in ("swizzle", "span", "lines")},
        "bits": " ".join(map(str, changed)),
        "with": " ".join(map(str, source)),
        "words": of.words,
        "cute": str(xor) if xor.bits else "",
    }


def _name(swizzle: int | str | None) -> str:
    return "" if swizzle is None else str(swizzle)


def _allowed() -> Iterator[dict[str, object]]:
    """For each family, bits of an element and major side: the swizzles.

    >>> [line["swizzles"] for line in _allowed() if line["bits"] == 32]
    [['0', '32', '64', '128'], ['0', '32', '64', '128'], ['128/32']]
    """
    for family in FAMILIES:
        for bits, (of, kind) in _TYPES.items():
            for major in MAJORS:
                found = []
                for swizzle in SWIZZLES:
                    try:
                        stored(of, major, family, swizzle, kind)
                    except AddressError:
                        continue
                    found.append(str(swizzle))
                if found:
                    yield {
                        "family": family,
                        "bits": bits,
                        "major": major,
                        "swizzles": found,
                    }
