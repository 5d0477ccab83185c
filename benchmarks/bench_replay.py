"""What a recording costs: a launch with ``replay=True`` against one without.

Both are measured in turns, in one run, so that a busy machine slows both.  What counts
is the time of the processor, and the launch itself, not the reading of its record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from bench_numerics import case
from bench_ptx import HERE, TARGET
from ml_dtypes import bfloat16

from fragmenta import ptx
from fragmenta.kernels import Kernel, Tile
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import Gemm
from tests.ptx.test_triton_blackwell import kept
from tests.ptx.test_triton_hopper import arrays_of, parameters, recorded

LIMIT = 2
"""How many times as long a recorded launch may take."""
ROUNDS = 5
Run: TypeAlias = Callable[..., object]


def _softmax() -> Run:
    """A softmax of 64 blocks of 256 threads, 200 steps each."""
    kernel, blocks, threads, given = case("a softmax")
    return lambda **more: kernel.launch(blocks, threads, given, **more)


def _mma(size: int = 512) -> Run:
    """A GEMM by ``mma`` and ``cp.async``, as Triton compiles it for sm_80."""
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((size, size)).astype(np.float16) for _ in "AB")
    given = [A, B, np.zeros((size, size), np.float32), *[np.int32(size)] * 3, 0, 0]
    (kernel,) = ptx.load(HERE / "matmul_f16_sm80.ptx").kernels.values()
    grid, how = (size // 128, size // 128), {"shared": 32768, "target": TARGET}
    return lambda **more: kernel.launch(grid, 256, given, **how, **more)


def _triton(size: int = 512) -> Run:
    """A matmul of Triton for Hopper: ``cp.async`` and ``wgmma``, tiles of 64 x 64."""
    rng, row = np.random.default_rng(0), recorded("3.9.0")["matmul-bf16"]
    kernel = ptx.parse(row["text"], "matmul").kernels[row["entry"]]
    A, B = (rng.standard_normal((size, size)).astype(bfloat16) for _ in "AB")
    C = np.zeros((size, size), np.float32)
    given = [A, B, C, *[np.int32(size)] * 4, 0, 0]
    grid, how = (size // 64, size // 64), {"shared": row["shared"]}

    def run(**more: Any) -> object:
        return kernel.launch(grid, row["block"], given, target="sm_90a", **how, **more)

    run()
    wanted = A.astype(np.float32) @ B.astype(np.float32).T
    assert np.allclose(C, wanted, rtol=1e-3, atol=1e-3)
    return run


def _wgmma(size: int = 1024, wide: int = 256) -> Run:
    """The project's own GEMM: bulk copies, mbarriers and ``wgmma``."""
    gemm = Gemm(Kernel("bf16", out="f32", tile=Tile(128, wide)), size, size, size, 132)
    kernel = ptx.parse(gemm.text).kernels[launching.ENTRY]
    return lambda **more: launching.launch(gemm, kernel, **more)


def _kept(row: dict[str, Any], target: str) -> Run:
    """A launch of Triton as it was recorded: few blocks, all of it asynchronous."""
    kernel = ptx.parse(row["text"], row["name"]).kernels[row["entry"]]
    given = parameters(row, arrays_of(row))
    sizes = {"cluster": row["cluster"], "shared": row["shared"], "target": target}
    return lambda **more: kernel.launch(
        row["grid"], row["block"], given, **sizes, **more
    )


def _hopper(name: str) -> Callable[[], Run]:
    return lambda: _kept(recorded("3.9.0")[name], "sm_90a")


def _blackwell(name: str) -> Callable[[], Run]:
    return lambda: _kept(kept()[name], "sm_100a")


CASES: dict[str, Callable[[], Run]] = {
    "a softmax": _softmax,
    "a GEMM by mma": _mma,
    "Triton's matmul for Hopper": _triton,
    "the GEMM by wgmma": _wgmma,
    "one block of the GEMM by wgmma": lambda: _wgmma(128, 128),
    "a persistent matmul, 3 blocks": _hopper("matmul_persistent"),
    "a persistent matmul, a cluster": _hopper("matmul_persistent-cluster"),
    "an attention, specialised warps": _hopper(
        "attention_by_maps-causal-64-specialised"
    ),
    "a pair of blocks by tcgen05": _blackwell("pair_matmul"),
    "a matmul by tcgen05, specialised": _blackwell("matmul_specialised"),
    "a matmul of nvfp4 by tcgen05": _blackwell("matmul_scaled-nvfp4"),
}


def ratio(run: Run, watch: bool | str, clock: Callable[[], float]) -> list[float]:
    """The least times without and with a recording."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS + 1):
        for record, found in times.items():
            start = clock()
            run(watch=watch, **({"replay": True} if record else {}))
            found.append(clock() - start)
    return [min(each[1:]) for each in times.values()]  # the first warms up


@pytest.mark.parametrize("watch", [False, "report"], ids=["not watched", "watched"])
@pytest.mark.parametrize("name", CASES)
def test_a_recording(name: str, watch: bool | str) -> None:
    """At most twice as long."""
    plain, recorded_ = ratio(CASES[name](), watch, time.process_time)
    kind = "watched" if watch else "not watched"
    print(
        f"\n{name}, {kind}: {plain * 1e3:.1f} ms, recorded {recorded_ * 1e3:.1f} ms: "
        f"{recorded_ / plain:.2f} times as long; the limit is {LIMIT}"
    )
    assert recorded_ <= LIMIT * plain


if __name__ == "__main__":
    for each in CASES:
        for how in (False, "report"):
            test_a_recording(each, how)
