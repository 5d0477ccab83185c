"""Values as text that fits a width."""

from __future__ import annotations

from collections.abc import Sequence

from fragmenta.errors import ranges
from fragmenta.inspect.debugging.values import IN_FLIGHT, MARKS, UNWRITTEN, Value

WIDTH = 80
MOST_ROWS = 32
_ROWS = (16, 8, 4, 2, 1)


def lanes_text(mask: int) -> str:
    """The lanes of a mask.

    >>> lanes_text(0xFFFFFFFF), lanes_text(0b1011), lanes_text(0)
    ('all lanes', 'lanes 0-1, 3', 'no lane')
    """
    found = [lane for lane in range(32) if mask >> lane & 1]
    if len(found) == 32:
        return "all lanes"
    if not found:
        return "no lane"
    return f"lane{'s' * (len(found) > 1)} {ranges(found)}"


def grid(
    labels: Sequence[str], texts: Sequence[str], width: int = WIDTH, gap: int = 2
) -> list[str]:
    """Values in rows, behind the label of the first of each row.

    >>> grid(["0", "1", "2"], ["a", "bb", "c"], 11)
    ['0   a  bb', '2   c']
    """
    widest = max(map(len, texts), default=0)
    margin = max(map(len, labels), default=0)
    per = next((n for n in _ROWS if margin + 2 + n * (widest + gap) <= width), 1)
    lines = []
    for first in range(0, len(texts), per):
        cells = (f"{each:>{widest}}" for each in texts[first : first + per])
        line = f"{labels[first]:>{margin}}  {(' ' * gap).join(cells)}"
        lines.append(line[: max(width, margin + 8)])
    return lines


def shown(name: str, value: Value, width: int = WIDTH) -> list[str]:
    """A value with its name and its type.

    >>> import numpy as np
    >>> print(*shown("%r1", Value(np.full(32, 7, np.uint32), "u32", tuple(range(32)))))
    %r1 = 7 in all lanes, u32
    """
    texts = value.texts
    kind = f", {value.type}" if value.type and value.type != "pred" else ""
    notes = _notes(value)
    if len(texts) == 1:
        lane = f" in lane {value.lanes[0]}" if value.lanes else ""
        return [f"{name} = {texts[0]}{lane}{kind}", *notes]
    if value.lanes and len(set(texts)) == 1:
        mask = sum(1 << lane for lane in value.lanes)
        return [f"{name} = {texts[0]} in {lanes_text(mask)}{kind}", *notes]
    if value.lanes:
        labels = [str(lane) for lane in value.lanes]
        return [f"{name}{kind}, by lane", *grid(labels, texts, width), *notes]
    if value.states is not None and not value.states.any():
        return [f"{name}: {len(texts)} elements{kind}, not written"]
    labels = [hex(each) for each in value.offsets] if value.offsets is not None else []
    gap = 1 if value.type == "b8" else 2
    rows = grid(labels or [""] * len(texts), texts, width, gap)
    if len(rows) > MOST_ROWS:
        rows = [*rows[:MOST_ROWS], f"… {len(rows) - MOST_ROWS} more rows"]
    return [f"{name}{kind}, by offset", *rows, *notes]


def _notes(value: Value) -> list[str]:
    """What the marks behind values mean."""
    if value.states is None:
        return []
    said = {UNWRITTEN: "not written", IN_FLIGHT: "in flight: may still be written"}
    return [
        f"  {MARKS[state]} {words}"
        for state, words in said.items()
        if (value.states == state).any()
    ]
