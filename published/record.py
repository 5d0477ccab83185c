"""Ask MMA-Sim a little about every row, and keep the answers for ``make test``.

    make published RECORD=1

rewrites tests/golden/published/mma-sim.npz; see answers.py.
"""

from __future__ import annotations

from datetime import date

import judge
import numpy as np
import torch
from answers import FILE, Answers, keys
from compare import surveyed
from survey import Row

from tests.arithmetic.inputs import EDGES, KINDS, operands

ROWS, COLUMNS = 8, 8


def record(rows: list[Row]) -> Answers:
    """Operands of every kind, drawn once for each type, and MMA-Sim's answers."""
    made = {
        "date": date.today().isoformat(),
        "script": "make published RECORD=1",
        "mmasim": judge.VERSION,
        "torch": torch.__version__,
        "inputs": list(KINDS),
    }
    kept = Answers(made, {}, {})
    for row in rows:
        _draw(row, kept)
        given = kept.of(row.model)
        a, b, c, *scales = given.values()
        kept.results[row.id] = judge.Judge(row).batch(a, b, c, tuple(scales))
    return kept


def _draw(row: Row, kept: Answers) -> None:
    """The operands of a row that no other row has brought yet."""
    how, found = row.model, []
    for number, kind in enumerate(KINDS):
        rng = np.random.default_rng((number, len(kept.operands)))
        a, b, c, more = operands(rng, how, kind, 1, ROWS, COLUMNS)
        found.append({"a": a[0], "b": b[0], "c": c[0]})
        found[-1].update({name: each[0] for name, each in more.items()})
    edges = len(KINDS) - len(EDGES)
    for name, (random, edge) in keys(how).items():
        drawn = np.stack([each[name] for each in found])
        kept.operands.setdefault(random, drawn[:edges])
        kept.operands.setdefault(edge, drawn[edges:])


if __name__ == "__main__":
    record(surveyed()[0]).save()
    print(f"wrote {FILE.name}")
