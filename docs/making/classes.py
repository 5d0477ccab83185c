"""The classes of configurations of a Triton kernel, and how long they took."""

from __future__ import annotations

import json

from making.markdown import DOCS
from making.markdown import table as _table


def table() -> str:
    """A line for each class: its configurations, and how an element is added."""
    found = json.loads((DOCS / "verification/classes.json").read_text())
    head = ["type", "configurations", "parts of k", "how an element is added"]
    rows = []
    for kind, members in found["classes"].items():
        for names, way in zip(members, found["ways"][kind], strict=True):
            (parts,) = {each.split("split ")[1].split()[0] for each in names}
            rows.append([kind, str(len(names)), parts, way.partition(": ")[2]])
    seconds = found["seconds of processor time"]
    took = " and ".join(f"{each:.0f} s ({kind})" for kind, each in seconds.items())
    end = (
        f"All 40 took {took} of processor time, with nothing compiled before: this is "
        f"Triton's compiler, ours and all runs (Triton {found['triton']}, "
        f"{found['made']})."
    )
    return f"{_table(head, rows)}\n\n{end}"
