"""Wrong descriptors are reported, if they change what a kernel computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import cases
from tests.ptx.hopper.descriptors import mutants
from tests.thinning import some

ENTRIES = ("k_major", "mn_major")
ROWS = {each.row.entry: each.row for each in cases() if each.row.entry in ENTRIES}


def launched(entry: str, text: str) -> tuple[set[str], Any]:
    """The rules that are broken, and the result; none if the kernel is stopped."""
    row, given = ROWS[entry], running.made(ROWS[entry])
    kernel = ptx.parse(text, "layouts").kernels[entry]
    said = running.reported(
        kernel, row.grid, row.block, running.for_launch(row, given), watch="report"
    )
    arrays = [each for each in given if isinstance(each, np.ndarray)]
    return {each.rule for each in said if each.severity != "info"}, arrays[-1]


@pytest.mark.long
@pytest.mark.parametrize("entry", ENTRIES)
def test_wrong_descriptors_are_reported(entry: str) -> None:
    whole = running.text("layouts", 0)
    right, expected = launched(entry, whole)
    assert not right
    for wrong in some(mutants(whole), 12):
        found, result = launched(entry, wrong.text)
        if not np.array_equal(result, expected):
            assert found, wrong.change
