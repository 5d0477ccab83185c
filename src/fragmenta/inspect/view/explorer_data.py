"""The data of the explorer page.

The page has two compressed records.  The *catalogue* has every instruction with its
operands, each as the one line of its layout, from which the page computes which lane
holds what.  The *sources* are the CUDA and PTX of every instruction, and are unpacked
when they are shown.  They have many lines in common, so each line is kept once.

All of it is computed.  ``python -m fragmenta.inspect.view.explorer_data`` updates the
page after a change of the catalogue or of the emitted code.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from fragmenta.cuda.source.emit import to_cuda, to_ptx
from fragmenta.errors import BadFile, LayoutError, one_of
from fragmenta.inspect.view.explorer_links import implied, others
from fragmenta.inspect.view.explorer_memory import memory_record
from fragmenta.inspect.view.explorer_numbers import rounding_words, type_record, ways
from fragmenta.inspect.view.palette import hex_colour, inks
from fragmenta.inspect.view.path import loads, path
from fragmenta.inspect.view.tensor_memory import arrangement
from fragmenta.reference.isa.building import tcgen05
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.sass import by_architecture
from fragmenta.reference.isa.synonyms import UNNAMED_F16, meaning, vocabulary
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.target import TARGETS
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND, sizes
from fragmenta.reference.registers import notation
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.metadata import Metadata
from fragmenta.reference.registers.tensor_fragment import TensorFragment

PAGE = Path(__file__).with_name("explorer.html")
RECORDS = ("catalogue", "sources")
POOLS = ("parts", "notes", "targets", "patterns", "words", "models", "sums", "sass")

JsonRecord = dict[str, object]


class SharedValues:
    """Values that many instructions share, each kept once."""

    def __init__(self) -> None:
        self.items: list[object] = []
        self._index: dict[str, int] = {}

    def add(self, item: object) -> int:
        """The number of an item; a new item is added.

        >>> pool = SharedValues()
        >>> [pool.add(item) for item in ("a", "b", "a")]
        [0, 1, 0]
        """
        key = json.dumps(item)
        if key not in self._index:
            self._index[key] = len(self.items)
            self.items.append(item)
        return self._index[key]


# ── the catalogue ───────────────────────────────────────────────────────────


def catalogue_record() -> JsonRecord:
    """All instructions with fragments, and the pools that they share."""
    pools = {name: SharedValues() for name in POOLS}
    types: dict[str, JsonRecord] = {}
    held = holding()
    ops = [_instruction(op, pools, types) for op in held]
    return {
        "families": list(dict.fromkeys(op["family"] for op in ops)),
        "allTargets": {name: str(since) for name, since in TARGETS.items()},
        "types": types,
        "rounded": rounding_words(),
        "memory": memory_record(),
        "lanes": {
            theme: [hex_colour(lane, dark=theme == "dark") for lane in range(32)]
            for theme in ("light", "dark")
        },
        "inks": {theme: inks(dark=theme == "dark") for theme in ("light", "dark")},
        **{name: pool.items for name, pool in pools.items()},
        "said": {word: _meant(word) for word in vocabulary()},
        "instructions": ops,
        "others": others(held),
        "implied": implied(),
    }


def _meant(word: str) -> JsonRecord:
    """The fields of a synonym's meaning that are not empty."""
    found = meaning(word)
    assert found is not None
    about = {name: value for name, value in asdict(found).items() if value}
    del about["word"]
    if word in UNNAMED_F16:
        about["unnamed"] = "f16"
    plain: JsonRecord = json.loads(json.dumps(about))
    return plain


def holding() -> list[Instruction]:
    """The instructions of the page: those with fragments.

    A ``tcgen05.mma`` has matrices only with a descriptor.  There are millions of them;
    the page has every shape of each kind and group, with the types that are used most.
    """
    found = [op for op in catalogue() if op.fragments]
    moves = [op for op in found if op.unit == "tcgen05"]
    others = [op for op in found if op.unit != "tcgen05"]
    return [*others, *_multiplications(), *moves]


# The types of A and D that look different, or that are used most.
_TYPES = """
kind     | A    | D
f16      | f16  | f32
f16      | f16  | f16
f16      | bf16 | f32
tf32     | tf32 | f32
f8f6f4   | e4m3 | f32
f8f6f4   | e4m3 | f16
f8f6f4   | e2m3 | f32
f8f6f4   | e2m1 | f32
i8       | s8   | s32
mxf8f6f4 | e4m3 | f32
mxf8f6f4 | e2m1 | f32
mxf4     | e2m1 | f32
mxf4nvf4 | e2m1 | f32
"""


@cache
def _multiplications() -> list[Instruction]:
    """Of each kind and group, every M and every N."""
    found = []
    choices = ((1, False), (2, False), (1, True))
    for (group, ws), sp, line in product(choices, (False, True), read(_TYPES)):
        kind = line["kind"]
        have = sizes(kind, group, ws=ws, sparse=sp)
        for m, widths in have.items():
            for n in widths:
                shape = f"m{m}n{n}k{OF_KIND[kind].k[sp]}"
                op = tcgen05(
                    shape,
                    line["A"],
                    d=line["D"],
                    kind=kind,
                    cta_group=group,
                    ws=ws,
                    sp=sp,
                )
                # Without the place of the metadata, A cannot be drawn.
                if not sp or "metadata" in op.fragments:
                    found.append(op)
    return found


def drawn_record(ops: Iterable[Instruction]) -> JsonRecord:
    """Some instructions, with what it takes to draw them and to compute with them.

    The element types are not in it: a page has them all.

    >>> import fragmenta as fm
    >>> record = drawn_record([fm.find("m16n8k16 f16 f32")])
    >>> [list(each["parts"]) for each in record["instructions"]]
    [['A', 'B', 'C', 'D']]
    """
    pools = {name: SharedValues() for name in POOLS}
    types: dict[str, JsonRecord] = {}
    found = [_drawn(op, pools, types) for op in ops]
    used = ("parts", "patterns", "words", "models", "sums")
    return {
        "rounded": rounding_words(),
        "memory": memory_record(),
        **{name: pools[name].items for name in used},
        "instructions": found,
    }


def _instruction(
    op: Instruction, pools: Mapping[str, SharedValues], types: dict[str, JsonRecord]
) -> JsonRecord:
    return {
        **_drawn(op, pools, types),
        "requires": pools["targets"].add(_requirement(op)),
        "notes": [pools["notes"].add(note) for note in op.notes],
        "sass": [pools["sass"].add(code) for code in _machine_code(op)],
    }


def _drawn(
    op: Instruction, pools: Mapping[str, SharedValues], types: dict[str, JsonRecord]
) -> JsonRecord:
    """What it takes to draw an instruction, and to compute with it."""
    for of in (*op.types.values(), *(part.dtype for part in op.fragments.values())):
        types[of.name] = type_record(of)
    record: JsonRecord = {
        "name": str(op),
        "family": op.family,
        "shape": list(op.shape) if "shape" in op.values else [0, 0, 0],
        "values": {key: value for key, value in op.values.items() if value},
        "parts": {
            name: pools["parts"].add(_part(part)) for name, part in op.fragments.items()
        },
        "operands": [str(operand) for operand in op.operands],
    }
    if op.multiplies:
        record["sums"] = _sums(op, pools)
    if op.tensor_memory:
        record["tensor"] = _tensor(op, pools["words"])
    if "metadata" in op.fragments:
        record["pattern"] = pools["patterns"].add(_pattern(op.metadata))
    return record


def _sums(op: Instruction, pools: Mapping[str, SharedValues]) -> int:
    """How each target adds its products: a number of the pool of sums."""
    found = ways(op)
    for way in found["ways"]:
        if way["model"] is not None:
            way["model"] = pools["models"].add(way["model"])
    return pools["sums"].add(found)


def _tensor(op: Instruction, words: SharedValues) -> JsonRecord:
    """What the descriptor says, and where the operands are drawn."""
    assert op.descriptor is not None
    addresses = arrangement(op)
    return {
        "letter": op.layout_letter,
        "ctas": op.cta_group,
        "says": [each.text for each in op.descriptor.fields() if each.code],
        "columns": {name: at.column for name, at in addresses.items()},
        "path": _path(op, words),
    }


def _path(op: Instruction, words: SharedValues) -> JsonRecord:
    """The words of the path from shared memory to registers, and the loads of D."""
    found = path(op)
    lists = ["shared", "copies", "inputs", "multiplies", "result", "loaded", "notes"]
    return {
        **{name: [words.add(line) for line in getattr(found, name)] for name in lists},
        "bypass": words.add(found.bypass),
        "registers": words.add(found.registers),
        "warps": [
            [[warp, words.add(line)] for warp, line in cta] for cta in found.warps
        ],
        "loads": [[words.add(str(load.op)), load.column] for load in loads(op)],
    }


def _requirement(op: Instruction) -> JsonRecord:
    """Where it runs, and what the assembler writes in its place there."""
    return {
        "ptx": str(op.requires.ptx),
        "text": op.requires.text,
        "targets": {each: op.expanded_to(each) or "" for each in op.requires.targets},
    }


def _machine_code(op: Instruction) -> list[list[object]]:
    """What the assembler writes: targets, names with numbers, others, expanded to."""
    return [
        [targets, [list(each) for each in code.code], code.others, code.expanded or ""]
        for targets, code in by_architecture(op)
    ]


@cache
def _part(part: Fragment) -> JsonRecord:
    """One operand: its line, and the same in other notations."""
    more: JsonRecord = {}
    if isinstance(part, TensorFragment):
        more["skipped"] = part.skipped
        if part.windows:
            more["windows"] = [list(each) for each in part.windows]
    return {
        **more,
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


def _pattern(metadata: Metadata) -> JsonRecord:
    """Each of the sixteen codes: the positions it keeps, or why it is illegal."""
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


def sources_record() -> JsonRecord:
    """CUDA and PTX of every such instruction, in the order of the catalogue.

    A text is a list of paragraphs, a paragraph a list of lines; both by number.  What
    is new has the next number, and :data:`NEXT` stands for it.
    """
    lines, paragraphs = SharedValues(), SharedValues()

    def folded(text: str) -> list[int]:
        return [
            paragraphs.add([lines.add(line) for line in paragraph.split("\n")])
            for paragraph in text.rstrip("\n").split("\n\n")
        ]

    texts = [[folded(to_cuda(op)), folded(to_ptx(op))] for op in holding()]
    return {
        "lines": lines.items,
        "paragraphs": _counted(paragraphs.items),
        "texts": _counted(texts),
    }


NEXT = -1


def _counted(lists: Iterable[Any]) -> list[list[object]]:
    """Lists of numbers with :data:`NEXT` for each that is new.

    >>> _counted([[0, 1], [[0, 2], 3], [1]])
    [[-1, -1], [[0, -1], -1], [1]]
    """
    known = 0

    def marked(item: object) -> object:
        nonlocal known
        if isinstance(item, list):
            return [marked(each) for each in item]
        if item != known:
            return item
        known += 1
        return NEXT

    return [[marked(item) for item in each] for each in lists]


# ── in and out of the page ──────────────────────────────────────────────────


def packed(record: JsonRecord) -> str:
    """A record as the page holds it: JSON, deflated, in base64."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    squeezed = deflate.compress(text.encode()) + deflate.flush()
    return base64.b64encode(squeezed).decode()


def unpacked(text: str) -> JsonRecord:
    """The inverse of :func:`packed`.

    >>> unpacked(packed({"families": ["mma"]}))
    {'families': ['mma']}
    """
    record: JsonRecord = json.loads(zlib.decompress(base64.b64decode(text), -15))
    return record


def _slot(name: str) -> re.Pattern[str]:
    return re.compile(rf'(<script type="text/plain" id="{name}">)([^<]*)(</script>)')


def records_of(page: str) -> JsonRecord:
    """The records of a page, by the names in :data:`RECORDS`."""
    found = {name: _slot(name).search(page) for name in RECORDS}
    if missing := [name for name, match in found.items() if match is None]:
        raise BadFile(f"this page has no script for {one_of(missing, 'and')}")
    return {name: unpacked(match[2]) for name, match in found.items() if match}


def refreshed(page: str, records: Iterable[tuple[str, JsonRecord]]) -> str:
    """A page with other records in it."""
    for name, record in records:
        match = _slot(name).search(page)
        if match is None:
            raise BadFile(f"this page has no script for {name}")
        page = page[: match.start(2)] + packed(record) + page[match.end(2) :]
    return page


def refresh() -> None:
    """Bring the page in this package up to date."""
    records = {"catalogue": catalogue_record(), "sources": sources_record()}
    page = refreshed(PAGE.read_text(encoding="utf-8"), records.items())
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    refresh()
