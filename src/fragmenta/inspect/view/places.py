"""Names of places in registers and in tensor memory.

A place in registers is a warp, a lane and a register; ``T13:a5`` is the lane and the
manual's number of an element in it.  A place in tensor memory is a CTA of a pair, a
lane and a column; ``T13:C5E1`` is lane 13, column 5 and element 1 of the cell, in the
letters of the layout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.reference.registers.tensor_fragment import TensorAddress, TensorFragment

if TYPE_CHECKING:
    from fragmenta.reference.registers.fragment import Fragment

Record = dict[str, int]

WARP = 32
_NAMES = {"cta": "CTA"}


def axes(fragment: Fragment) -> list[str]:
    """The axes of a place, outermost first.

    >>> import fragmenta as fm
    >>> axes(fm.mma("m16n8k16", a="f16", d="f32").a)
    ['lane', 'register']
    >>> axes(fm.tcgen05("m256n64k16", a="f16", cta_group=2).d)
    ['cta', 'lane', 'column']
    """
    if isinstance(fragment, TensorFragment):
        return (["cta"] if fragment.pair else []) + ["lane", "column"]
    return (["warp"] if fragment.lanes > WARP else []) + ["lane", "register"]


def records(fragment: Fragment, address: int | TensorAddress = 0) -> Iterator[Record]:
    """Every element with its place; in tensor memory, of an operand at an address.

    >>> import fragmenta as fm
    >>> d = fm.tcgen05("m64n8k16", a="f16", d="f32").d
    >>> list(records(d, TensorAddress(lane=16, column=40)))[1]
    {'lane': 16, 'column': 41, 'low': 0, 'high': 31, 'row': 0, 'col': 1}
    """
    if not isinstance(fragment, TensorFragment):
        yield from fragment.rows()
        return
    at = TensorAddress.of(address)
    fragment.where(
        *(0,) * len(fragment.shape), address=at
    )  # refuses impossible addresses
    for record in fragment.rows():
        base = record.pop("base", 0)
        if base == at.lane // 16:
            record.pop("copy", None)
            record["column"] += at.column
            yield record


def coordinates(fragment: Fragment) -> dict[str, int]:
    """The coordinates of an element and their sizes: matrices, and selectors."""
    sizes = dict(zip(fragment.layout.data, fragment.shape, strict=True))
    if not isinstance(fragment, TensorFragment):
        sizes |= {name: fragment.layout.sizes[name] for name in fragment.layout.free}
    return sizes


def number(fragment: Fragment, register: int, low: int) -> int:
    """The index i of an element in its lane, as the manual counts."""
    return register * fragment.elements + low // fragment.container.bits


def in_words(place: Mapping[str, int]) -> str:
    """A place in words.

    >>> in_words({"cta": 1, "lane": 5, "column": 7})
    'CTA 1, lane 5, column 7'
    """
    return ", ".join(f"{_NAMES.get(name, name)} {at}" for name, at in place.items())


Lane = TypeVar("Lane", int, NDArray[np.int64])


def reaching_warp(lane: Lane) -> Lane:
    """The warp of a warpgroup that reaches a lane of tensor memory, or each of many.

    >>> reaching_warp(33)
    1
    """
    return lane // WARP


def label(fragment: Fragment, found: Iterable[Record]) -> str:
    """The places of one element in short, copies included.

    >>> import fragmenta as fm
    >>> op = fm.tcgen05("m128n32k64", a="e2m1", kind="mxf4", cta_group=2)
    >>> label(op.scale_b, [r for r in records(op.scale_b) if r["row"] == r["col"] == 1])
    'P0,1.T1,33:C0E1'
    """
    if isinstance(fragment, TensorFragment):
        return _cells(fragment, found)
    lanes: defaultdict[str, list[str]] = defaultdict(list)
    for record in found:
        i = number(fragment, record["register"], record["low"])
        warp = f"W{record['warp']}." if "warp" in record else ""
        lanes[f"{warp}T{record['lane']}"].append(f"{fragment.letter}{i}")
    return "/".join(f"{lane}:{','.join(held)}" for lane, held in lanes.items())


def _cells(fragment: TensorFragment, found: Iterable[Record]) -> str:
    """Copies in several lanes of one CTA, and in both CTAs, share one name."""
    lanes: defaultdict[tuple[int | None, str], list[str]] = defaultdict(list)
    for record in found:
        lanes[record.get("cta"), column_label(fragment, record)].append(
            str(record["lane"])
        )
    ctas: defaultdict[str, list[str]] = defaultdict(list)
    for (cta, cell), held in lanes.items():
        ctas[f"T{','.join(held)}:{cell}"] += [] if cta is None else [str(cta)]
    return "/".join(
        f"P{','.join(held)}.{cell}" if held else cell for cell, held in ctas.items()
    )


def column_label(fragment: Fragment, record: Record) -> str:
    """``C5``, or ``C5E1`` where a cell holds several elements."""
    slot = record["low"] // fragment.container.bits
    element = f"E{slot}" if fragment.elements > 1 else ""
    return f"C{record['column']}{element}"
