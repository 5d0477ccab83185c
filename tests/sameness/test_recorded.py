"""Recorded launches are the same as themselves, in another memory."""

from pathlib import Path

import pytest

from fragmenta import ptx
from fragmenta.inspect.evidence import launches
from fragmenta.inspect.evidence.arguments import for_kernel
from tests.thinning import some

FOLDER = Path(__file__).parents[1] / "golden" / "launches"
CASES = [
    ("layers", "rmsnorm_bf16"),
    ("wmma", "wmma_f16_f32"),
    ("reduce", "reduce_tree"),
    ("pipelines", "gemm_f16_3_stages"),
    ("triton", "layer_norm"),
    ("halves", "half_arithmetic-ordinary"),
]


def call(file, name):
    found = launches.load(FOLDER / f"{file}.npz")
    row = next(each for each in found.launches if each.name == name)
    kernel = ptx.parse(found.texts[row.text][1]).kernels[row.entry]
    given = launches.make_arguments(row.arguments, row.seed, found.data)
    return ptx.Call(kernel, row.grid, row.block, for_kernel(given), shared=row.shared)


@pytest.mark.parametrize("file, name", some(CASES, 3), ids=str)
def test_a_launch_is_the_same_as_itself(file, name):
    found = ptx.same(call(file, name), call(file, name), watch=False)
    assert found.verdict == "same"
    assert found.elements
