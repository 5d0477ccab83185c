"""Compares every row with MMA-Sim, bit by bit.

    make published          about 10,000 elements a row
    make published FULL=1   a million a row; rewrites docs/published/mma-sim.json

``compare.py TCGen05MMA`` compares only the rows of that class of MMA-Sim, and the
other lines of the file stay as they are.

Bits are compared as they are, with one exception: any NaN of f64 equals any
other, because MMA-Sim's f64 is the host's fused multiply-add, whose NaN are
the host's.  MMA-Sim's NaN of f32 and f16 are those of the hardware.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import judge
import numpy as np
import torch
from survey import Excluded, Row, survey

import fragmenta
from fragmenta.reference.arithmetic import Model, multiply
from tests.arithmetic.inputs import KINDS, operands

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "docs" / "published" / "mma-sim.json"
DAILY, FULL = 10_000, 1_000_000
TILE = 16 * 8
TILES = 128  #: at once: MMA-Sim needs some hundred bytes for every product

#: The numbers of a model that MMA-Sim's result vouches for.
PARAMETERS = ("form", "products", "fraction", "floor", "keep", "rounding")


@dataclass(frozen=True)
class Compared:
    """How many elements of a row were compared, and how many were not equal."""

    row: Row
    elements: int
    different: int
    first: str = ""  #: where the first difference is, in words

    def __str__(self) -> str:
        told = f"{self.elements:>9,} elements, {self.different:,} different"
        return f"{self.row.id:<82}{told}{self.first and '; ' + self.first}"


@cache
def surveyed() -> tuple[list[Row], list[Excluded]]:
    """What MMA-Sim can judge and what not."""
    return survey(judge.known)


def compare(row: Row, elements: int) -> Compared:
    """At least so many elements of a row, all kinds of inputs in equal parts."""
    asked, how = judge.Judge(row), row.model
    count, different, first = 0, 0, ""
    for kind, batch, seed in _portions(elements):
        rng = np.random.default_rng((KINDS.index(kind), seed))
        a, b, c, more = operands(rng, how, kind, batch, 16, 8)
        ours = multiply(a, b, c, how, **more)
        theirs = asked.batch(a, b, c, tuple(more.values()))
        wrong = unequal(ours, theirs, how)
        count, different = count + ours.size, different + int(wrong.sum())
        if wrong.any() and not first:
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            bits = f"{int(ours[at]):#x}, MMA-Sim {int(theirs[at]):#x}"
            first = f"{kind}, seed {seed}, element {at}: {bits}"
    return Compared(row, count, different, first)


def _portions(elements: int) -> Iterator[tuple[str, int, int]]:
    tiles = -(-elements // (TILE * len(KINDS)))
    for kind in KINDS:
        for seed, done in enumerate(range(0, tiles, TILES)):
            yield kind, min(TILES, tiles - done), seed


def unequal(ours: Any, theirs: Any, how: Model) -> Any:
    """Where two results differ; see above about the NaN of f64."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        raise AssertionError(f"{how}: {ours.dtype} against {theirs.dtype}")
    wrong = ours != theirs
    if how.d == "f64":
        wrong &= ~(np.isnan(ours.view("f8")) & np.isnan(theirs.view("f8")))
    return wrong


def parameters(how: Model) -> dict[str, Any]:
    """What a committed result says about the model it was made with."""
    return {name: getattr(how, name) for name in PARAMETERS}


def main(units: list[str]) -> None:
    """Compare a million elements of every row, and keep the result."""
    rows, excluded = surveyed()
    kept = json.loads(RESULT.read_text(encoding="utf-8")) if units else {}
    start, found = time.perf_counter(), []
    for row in rows:
        if not units or row.unit in units:
            found.append(compare(row, FULL))
            print(found[-1], flush=True)
    made = {
        "date": date.today().isoformat(),
        "script": "make published FULL=1",
        "fragmenta": fragmenta.__version__,
        "mmasim": judge.VERSION,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seconds": round(time.perf_counter() - start),
        "inputs": list(KINDS),
    }
    others = [line for line in kept.get("rows", ()) if line["unit"] not in units]
    if kept:
        made = kept["made"] | {"of " + " ".join(units): made}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(written(made, others, found, excluded), encoding="utf-8")
    wrong = sum(each.different for each in found)
    print(f"{len(found)} rows, {wrong} elements different; see {RESULT.name}")
    raise SystemExit(bool(wrong))


def written(
    made: dict[str, Any],
    others: list[dict[str, Any]],
    found: list[Compared],
    excluded: list[Excluded],
) -> str:
    """The result as JSON, a line for each row; ``others`` are lines already."""
    rows = others + [
        {
            "target": each.row.target,
            "unit": each.row.unit,
            "architecture": each.row.architecture,
            "name": each.row.name,
            "instructions": len(each.row.instructions),
            "elements": each.elements,
            "different": each.different,
            "model": parameters(each.row.model),
        }
        for each in found
    ]
    left_out = [
        {
            "reason": each.reason,
            "targets": each.targets,
            "instructions": len(each.instructions),
        }
        for each in excluded
    ]
    parts = [f' "made": {json.dumps(made)}']
    for name, lines in (("rows", rows), ("excluded", left_out)):
        listed = ",\n".join(f"  {json.dumps(line)}" for line in lines)
        parts.append(f' "{name}": [\n{listed}\n ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
