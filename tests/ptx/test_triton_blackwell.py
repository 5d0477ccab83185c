"""Triton's kernels for Blackwell give the right result, without reports.

The PTX is what Triton compiles; see ``tests/triton/keep_blackwell.py``.
"""

from __future__ import annotations

import json
import lzma
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fragmenta import ptx
from tests.ptx import blackwell_results
from tests.ptx.test_triton_hopper import WHOLE, arrays_of, parameters

FOLDER = Path(__file__).parents[1] / "golden" / "triton_blackwell"
SCHEDULES = ("eager", "lazy", 1)
SLOW = ("attention_by_maps-causal-64-specialised",)
"""Without ``make hopper``, these have one schedule, and others two."""
LEFT_OUT = ("matmul-bf16",)
"""These need ``make hopper``."""


@cache
def kept() -> dict[str, Any]:
    """The launches by name."""
    (path,) = FOLDER.glob("*.xz")
    read = json.loads(lzma.decompress(path.read_bytes()))
    return {each["name"]: each for each in read["launches"]}


@pytest.mark.long
@pytest.mark.parametrize("name", [e for e in kept() if WHOLE or e not in LEFT_OUT])
def test_a_launch_is_right_in_every_schedule(name: str) -> None:
    row = kept()[name]
    arrays = arrays_of(row)
    before = deepcopy(arrays)
    kernel = ptx.parse(row["text"], row["name"]).kernels[row["entry"]]
    result = kernel.launch(
        row["grid"],
        row["block"],
        parameters(row, arrays),
        cluster=row["cluster"],
        shared=row["shared"],
        target="sm_100a",
        watch="report",
        schedule=SCHEDULES if WHOLE else SCHEDULES[name in SLOW : 2],
    )
    assert not [each for each in result.problems if each.severity != "info"]
    blackwell_results.check(name, row["arguments"], before, arrays)
