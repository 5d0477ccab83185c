"""The data of the interactive pictures.

A page has a mark, ``<!-- widget: name -->``.  The site puts an interactive picture
there.  Which lane holds what is computed here from the layouts; look/fragment.js draws
it.
"""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

import fragmenta as fm
from fragmenta.inspect.view.places import records
from making import explorer

MARK = re.compile(r"<!-- widget: (\w+) -->")
HALF = fm.mma("m16n8k16", a="f16", d="f32")
TYPES = (
    fm.mma("m16n8k8", a="tf32"),
    HALF,
    fm.mma("m16n8k32", a="s8"),
    fm.mma("m16n8k64", a="s4"),
)
WIDGETS = {
    "lanes": [(HALF, "A"), (HALF, "B"), (HALF, "D")],
    "product": [(HALF, "A"), (HALF, "B"), (HALF, "D")],
    "wires": [(HALF, "A")],
    "types": [(op, "A") for op in TYPES],
}
"""The operands that each picture shows."""


def put(text: str) -> str:
    """A page with the pictures in place of their marks."""
    return MARK.sub(lambda mark: _widget(mark[1]), text)


def _widget(name: str) -> str:
    operands = WIDGETS[name]
    parts = [
        {**part(op.fragments[each]), "explorer": explorer.link(op)}
        for op, each in operands
    ]
    data = json.dumps({"parts": parts})
    shown = '<noscript><img src="pictures/index.svg" alt="A, B and D"></noscript>'
    holder = f'<script type="application/json">{escape(data, quote=False)}</script>'
    return f'<div class="fm-widget" data-widget="{name}">{shown}{holder}</div>'


def part(fragment: fm.Fragment) -> dict[str, Any]:
    """An operand: its line, and the place of every element, row by row.

    >>> shown = part(HALF.a)
    >>> shown["line"], shown["lanes"][3 * 16 + 9], shown["lows"][3 * 16 + 9]
    ('row = L2 L3 L4 R0  col = E0 L0 L1 R1', 12, 16)
    """
    found = sorted(records(fragment), key=lambda each: (each["row"], each["col"]))
    rows, cols = fragment.shape
    return {
        "name_": fragment.name,
        "type": str(fragment.dtype),
        "width": fragment.container.bits,
        "rows": rows,
        "cols": cols,
        "line": str(fragment.layout),
        "lanes": [each["lane"] for each in found],
        "registers": [each["register"] for each in found],
        "lows": [each["low"] for each in found],
    }
