"""Cases of products for the benchmark of numerics: GEMMs with and without it.

``python benchmarks/product_numerics.py`` prints how many times as long each takes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from fragmenta import ptx
from fragmenta.kernels import Kernel, Tile
from fragmenta.values.numerics.engine import NumericsAlgebra
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import Gemm

HERE = Path(__file__).resolve().parent
GOAL = 6
"""At most so many times as long as a launch that nobody watches."""


def synchronous(size: int = 512) -> Callable[..., None]:
    """A Triton kernel with ``mma.sync`` of f16, ``ldmatrix`` and ``cp.async``."""
    (kernel,) = ptx.load(HERE / "matmul_f16_sm80.ptx").kernels.values()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(np.float16) for _ in "ab")
    given = [a, b, np.zeros((size, size), np.float32), *[np.int32(size)] * 3, 0, 0]

    def run(**options: Any) -> None:
        grid, shared = (size // 128, size // 128), 32768
        kernel.launch(grid, 256, given, shared=shared, target="sm_90a", **options)

    return run


def warpgroups(kind: str, size: int = 1024) -> Callable[..., None]:
    """The project's own Hopper kernel: ``wgmma``, tensor copies, mbarriers."""
    kernel = Kernel(kind, out="f32", tile=Tile(128, 256))
    gemm = Gemm(kernel, size, size, size, blocks=132)
    compiled = ptx.parse(gemm.text).kernels[launching.ENTRY]

    def run(**options: Any) -> None:
        launching.launch(gemm, compiled, **options)

    return run


CASES = {
    "mma.sync f16": (synchronous, (), 4),
    "wgmma bf16": (warpgroups, ("bf16",), 4),
    "wgmma e4m3": (warpgroups, ("e4m3",), 8),
}


def times(run: Callable[[], None]) -> float:
    """The least processor time of three runs, after one that compiles."""
    run()
    found = []
    for _ in range(3):
        start = process_time()
        run()
        found.append(process_time() - start)
    return min(found)


def product_ratios() -> dict[str, float]:
    """How many times as long each case takes with numerics."""
    found = {}
    for name, (make, given, planes) in CASES.items():
        run: Callable[..., None] = make(*given)  # type: ignore[operator]
        plain = times(lambda run=run: run(watch=False))
        watched = times(
            lambda run=run, planes=planes: run(
                watch=False, algebra=NumericsAlgebra(planes)
            )
        )
        found[name] = watched / plain
    return found


if __name__ == "__main__":
    for name, ratio in product_ratios().items():
        print(f"{name}: {ratio:.1f} times as long; the goal is at most {GOAL}")
