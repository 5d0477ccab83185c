"""Does the engine give the functions of the table what they need, and keep what they give?

The kernels are those that were launched on the GPU: one for each line of the table.
"""

import zlib

import numpy as np
import pytest

from fragmenta import ptx
from tests.ptx.opcodes import running
from tests.ptx.opcodes.inputs import COUNT, pools
from tests.ptx.opcodes.judging import NEWEST, forms, lines, target_of
from tests.ptx.opcodes.scalars import entry

MODULES = ("comparison", "fields", "integer", "logic", "moving", "video")


def one_form(line):
    """Some form of a line, not always the first."""
    every = list(forms(line))
    return every[zlib.crc32(line.text.encode()) % len(every)]


@pytest.mark.parametrize("module", MODULES)
def test_a_kernel_of_each_line(module):
    groups = {}
    for line in lines(module):
        groups.setdefault(target_of(line), []).append(one_form(line))
    for target, some in groups.items():
        named = {f"form{number}": form for number, form in enumerate(some)}
        texts = [entry(form, name) for name, form in named.items()]
        header = f".version {NEWEST}\n.target {target}\n.address_size 64\n"
        kernels = ptx.parse(header + "\n".join(texts)).kernels
        for (name, form), want in zip(
            named.items(), running.computed(some), strict=True
        ):
            found = np.zeros_like(want)
            kernels[name].launch(COUNT // 128, 128, [pools(), found])
            assert np.array_equal(found, want), str(form)
