"""MMA-Sim's recorded answers, for tests that run without it.

A small file holds, for each row that can be compared, operands of every kind
and MMA-Sim's D.  Rows of the same types share their operands.  ``record.py``
writes the file; reading it needs neither MMA-Sim nor PyTorch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.reference.arithmetic import Model

FILE = Path(__file__).resolve().parent.parent / "tests/golden/published/mma-sim.npz"

Bits = NDArray[Any]


@dataclass(frozen=True)
class Answers:
    """Operands by key, and each row's D; the first axis is the kind of inputs."""

    made: dict[str, Any]
    operands: dict[str, Bits]
    results: dict[str, Bits]  #: by the row's id

    @classmethod
    def load(cls, path: Path = FILE) -> Answers:
        """Read the file."""
        with np.load(path) as stored:
            ids = [str(each) for each in stored["rows"]]
            return cls(
                json.loads(str(stored["made"])),
                {key: stored[key] for key in stored.files if ":" in key},
                {each: stored[f"d{i}"] for i, each in enumerate(ids)},
            )

    def save(self, path: Path = FILE) -> None:
        """Write the file."""
        path.parent.mkdir(exist_ok=True)
        results = {f"d{i}": each for i, each in enumerate(self.results.values())}
        made, rows = np.array(json.dumps(self.made)), np.array(list(self.results))
        np.savez_compressed(path, made=made, rows=rows, **self.operands, **results)

    def of(self, how: Model) -> dict[str, Bits]:
        """The operands of a model, by name."""
        return {
            name: np.concatenate([self.operands[key] for key in two])
            for name, two in keys(how).items()
        }


def keys(how: Model) -> dict[str, tuple[str, str]]:
    """Under what each operand of a model is kept: random ones, then edges.

    Random operands depend on the type alone, those at the edges on the model.
    """
    own = (how.a, how.b, how.c, how.k, how.products, how.fraction, how.floor, how.scale)
    edge = ":".join(map(str, (*own, how.scale_vec)))
    found = {"a": f"{how.a}:{how.k}", "b": f"{how.b}:{how.k}", "c": how.c}
    if how.scale:
        found |= dict.fromkeys(("scale_a", "scale_b"), f"{how.scale}:{how.scale_vec}")
    return {name: (f"{name}:{of}", f"{name}:{edge}") for name, of in found.items()}
