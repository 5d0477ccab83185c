"""What does the explorer page know?

Two records, compressed into the page.  The *catalogue* has every instruction
with its operands, each as the one line of its layout: the page works out by
itself who holds what.  The *sources* are the CUDA and PTX of every instruction,
unpacked only when somebody looks; they repeat each other so much that each line
is kept once.

Nothing here is typed in.  ``python -m fragmenta.view.explorer_data`` brings the
page up to date after the catalogue or what is emitted has changed.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fragmenta.errors import Error, LayoutError, one_of
from fragmenta.isa.families import catalogue
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.table import read
from fragmenta.isa.target import TARGETS
from fragmenta.registers import notation
from fragmenta.registers.fragment import Fragment
from fragmenta.registers.metadata import Metadata
from fragmenta.shared.descriptor import FIELDS, OFFSETS
from fragmenta.view.palette import hex_colour

PAGE = Path(__file__).with_name("explorer.html")
RECORDS = ("catalogue", "sources")

Record = dict[str, Any]


class Pool:
    """Things that many instructions share, each kept once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._index: dict[str, int] = {}

    def add(self, item: Any) -> int:
        """The number of an item, new or known.

        >>> pool = Pool()
        >>> [pool.add(item) for item in ("a", "b", "a")]
        [0, 1, 0]
        """
        key = json.dumps(item)
        if key not in self._index:
            self._index[key] = len(self.items)
            self.items.append(item)
        return self._index[key]


# ── the catalogue ───────────────────────────────────────────────────────────


def catalogue_record() -> Record:
    """Every instruction that holds matrices, and what they share."""
    pools = {name: Pool() for name in ("parts", "notes", "targets", "patterns")}
    types: dict[str, Record] = {}
    ops = [_instruction(op, pools, types) for op in _holding()]
    return {
        "families": list(dict.fromkeys(op["family"] for op in ops)),
        "allTargets": {name: str(since) for name, since in TARGETS.items()},
        "types": types,
        "offsets": read(OFFSETS),
        "fields": read(FIELDS),
        "lanes": {
            theme: [hex_colour(lane, dark=theme == "dark") for lane in range(32)]
            for theme in ("light", "dark")
        },
        **{name: pool.items for name, pool in pools.items()},
        "instructions": ops,
    }


def _holding() -> list[Instruction]:
    """The page is about who holds what: nothing else is on it."""
    return [op for op in catalogue() if op.fragments]


def _instruction(
    op: Instruction, pools: Mapping[str, Pool], types: dict[str, Record]
) -> Record:
    for of in (*op.types.values(), *(part.dtype for part in op.fragments.values())):
        types[of.name] = {"bits": of.bits, "kind": of.kind}
    record: Record = {
        "name": str(op),
        "family": op.family,
        "shape": list(op.shape),
        "values": {key: value for key, value in op.values.items() if value},
        "requires": pools["targets"].add(_requirement(op)),
        "parts": {
            name: pools["parts"].add(_part(part)) for name, part in op.fragments.items()
        },
        "operands": [str(operand) for operand in op.operands],
        "notes": [pools["notes"].add(note) for note in op.notes],
    }
    if op.sparse:
        record["pattern"] = pools["patterns"].add(_pattern(op.metadata))
    return record


def _requirement(op: Instruction) -> Record:
    """Where it runs, and what the assembler writes in its place there."""
    return {
        "ptx": str(op.requires.ptx),
        "text": op.requires.text,
        "targets": {each: op.expanded_to(each) or "" for each in op.requires.targets},
    }


def _part(part: Fragment) -> Record:
    """One operand in registers: its line, and the same in other notations."""
    return {
        "name": part.name,
        "letter": part.letter,
        "type": part.dtype.name,
        "line": str(part.layout),
        "axes": dict(part.layout.axes),
        "slot": [part.container.bits, part.container.shift],
        "stored": part.stored,
        "observed": part.observed,
        "formula": part.formula(),
        "cute": part.to_cute(),
        "linear": _linear(part),
    }


def _linear(part: Fragment) -> str:
    try:
        bases = part.to_linear_layout()
    except LayoutError as error:
        return f"There is none: {error}."
    return notation.linear_layout_text(bases, part.shape)


def _pattern(metadata: Metadata) -> Record:
    """Each of the sixteen codes: what it keeps, or what is wrong with it."""
    kept = metadata.granularity
    legal = kept.codes(ordered=False)
    return {
        "text": str(kept),
        "kept": kept.kept,
        "chunk": kept.chunk,
        "ordered": metadata.ordered,
        "positions": [
            list(kept.positions(code)) if code in legal else [] for code in range(16)
        ],
        "problems": [kept.problem(code, metadata.ordered) for code in range(16)],
    }


# ── the sources ─────────────────────────────────────────────────────────────


def sources_record() -> Record:
    """CUDA and PTX of every such instruction, in the order of the catalogue.

    A text is a list of paragraphs, a paragraph a list of lines; both by number.
    """
    lines, paragraphs = Pool(), Pool()

    def folded(text: str) -> list[int]:
        return [
            paragraphs.add([lines.add(line) for line in paragraph.split("\n")])
            for paragraph in text.rstrip("\n").split("\n\n")
        ]

    texts = [[folded(op.to_cuda()), folded(op.to_ptx())] for op in _holding()]
    return {"lines": lines.items, "paragraphs": paragraphs.items, "texts": texts}


# ── in and out of the page ──────────────────────────────────────────────────


def packed(record: Record) -> str:
    """A record as the page holds it: JSON, deflated, in base64."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    squeezed = deflate.compress(text.encode()) + deflate.flush()
    return base64.b64encode(squeezed).decode()


def unpacked(text: str) -> Record:
    """The record again.

    >>> unpacked(packed({"families": ["mma"]}))
    {'families': ['mma']}
    """
    record: Record = json.loads(zlib.decompress(base64.b64decode(text), -15))
    return record


def _slot(name: str) -> re.Pattern[str]:
    return re.compile(rf'(<script type="text/plain" id="{name}">)([^<]*)(</script>)')


def records_of(page: str) -> Record:
    """What a page holds, by the names in :data:`RECORDS`."""
    found = {name: _slot(name).search(page) for name in RECORDS}
    if missing := [name for name, match in found.items() if match is None]:
        raise Error(f"this page has no script for {one_of(missing, 'and')}")
    return {name: unpacked(match[2]) for name, match in found.items() if match}


def refreshed(page: str, records: Iterable[tuple[str, Record]]) -> str:
    """A page with other records in it."""
    for name, record in records:
        match = _slot(name).search(page)
        if match is None:
            raise Error(f"this page has no script for {name}")
        page = page[: match.start(2)] + packed(record) + page[match.end(2) :]
    return page


def refresh() -> None:
    """Bring the page in this package up to date."""
    records = {"catalogue": catalogue_record(), "sources": sources_record()}
    page = refreshed(PAGE.read_text(encoding="utf-8"), records.items())
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    refresh()
