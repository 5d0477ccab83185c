"""Launches the project's own kernels without a GPU.

With the values that the launcher gives to a GPU: only the tensor maps and the pointers
are of arrays here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fragmenta import ptx
from fragmenta.hopper.kernels.arguments import Box, Matrix, arguments
from tests.ptx.hopper.gemms import Gemm, Memory, Rows

ENTRY = "gemm"


def given(gemm: Gemm, memory: Memory) -> list[Any]:
    """The arguments."""
    a = memory.a.matrix() if isinstance(memory.a, Rows) else memory.a
    made = arguments(
        gemm.geometry,
        a,
        memory.b.matrix(),
        memory.d.matrix(),
        tensor_map,
        memory.epilogue,
        memory.ends,
        memory.settled,
    )
    parts = [None if isinstance(each, int) else each for each in made.epilogue]
    sizes = (made.m, made.n, made.slabs)
    maps = (made.map_a, made.map_b, made.map_d)
    return [*maps, made.packed, ptx.struct(*parts), *sizes, *made.group]


def tensor_map(_: str, matrix: Matrix, box: Box) -> Any:
    """The tensor map of rows of bytes."""
    inside = matrix.pointer[:, : matrix.width]
    return ptx.tensor_map(inside, (box.high, box.wide), swizzle=box.swizzle, l2=256)


class Outcome(NamedTuple):
    """What a launch left."""

    result: ptx.Result
    d: Rows

    def right(self, gemm: Gemm) -> bool:
        """Whether D has the expected bits."""
        return self.d.inside.tobytes() == gemm.expected.tobytes()


def launch(gemm: Gemm, kernel: ptx.Kernel | None = None, **options: Any) -> Outcome:
    """Run a launch, or a changed kernel in its place."""
    made, memory = gemm.geometry, gemm.memory()
    chosen = kernel or ptx.parse(gemm.text).kernels[ENTRY]
    result = chosen.launch(
        made.grid,
        made.block,
        given(gemm, memory),
        shared=made.shared,
        cluster=made.cluster,
        **options,
    )
    return Outcome(result, memory.d)
