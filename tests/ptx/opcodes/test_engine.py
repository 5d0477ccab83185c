"""The engine passes operands to the functions of the table, and keeps their results.

The code around each form is that of the kernels that were launched on the GPU.
"""

import zlib

import numpy as np
import pytest

from fragmenta import ptx
from tests.ptx.opcodes import running
from tests.ptx.opcodes.inputs import COUNT, pools
from tests.ptx.opcodes.judging import NEWEST, forms, lines, target_of
from tests.ptx.opcodes.scalars import entry

MODULES = (
    *("comparison", "fields", "integer", "logic", "moving", "video"),
    *("floating", "half", "conversion", "fp8"),
)


def one_form(line):
    """Some form of a line, not always the first."""
    every = list(forms(line))
    return every[zlib.crc32(line.text.encode()) % len(every)]


@pytest.mark.long
@pytest.mark.parametrize("module", MODULES)
def test_a_form_of_each_shape(module):
    """One for each opcode and list of operands."""
    shapes = {
        (line.opcode, *(s.name for s in line.operands)): line for line in lines(module)
    }
    groups = {}
    for line in shapes.values():
        groups.setdefault(target_of(line), []).append(one_form(line))
    for target, some in groups.items():
        header = f".version {NEWEST}\n.target {target}\n.address_size 64\n"
        kernel = ptx.parse(header + entry("all", *some)).kernels["all"]
        want = running.computed(some)
        found = np.zeros_like(np.concatenate(want))
        kernel.launch(COUNT // 128, 128, [pools(), found])
        for form, rows in zip(some, want, strict=True):
            ours, found = found[: len(rows)], found[len(rows) :]
            assert np.array_equal(ours, rows), str(form)
