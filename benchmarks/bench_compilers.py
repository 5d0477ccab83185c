"""The speed of Hopper kernels that Triton compiled, on the CPU, watched and not.

The PTX is what Triton compiled for the tests: persistent matmuls, with warps that copy
and warps that multiply.  They are small, so that what a launch costs beside its
products counts, too.  The time is that of this process.

Compare with an older checkout, which has this file as well:

    python benchmarks/compare_checkouts.py ../older -k triton_matmul
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from timing import least

from fragmenta import ptx
from tests.ptx.test_triton_hopper import arrays_of, parameters, recorded

KERNELS = (
    "matmul_persistent",
    "matmul_persistent-specialised",
    "matmul_persistent-cluster",
    "matmul_specialised",
)
ROUNDS = 40


@pytest.mark.parametrize("watch", [False, "report"], ids=["not watched", "watched"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_triton_matmul_for_hopper(
    benchmark: Any, name: str, watch: bool | str
) -> None:
    """The CPU time of a launch whose kernel is compiled."""
    row = recorded("3.9.0")[name]
    kernel = ptx.parse(row["text"], name).kernels[row["entry"]]
    # Made once: random numbers took a third of the time, and are no part of a launch.
    given = parameters(row, arrays_of(row))

    def run() -> None:
        kernel.launch(
            row["grid"],
            row["block"],
            given,
            cluster=row["cluster"],
            shared=row["shared"],
            target="sm_90a",
            watch=watch,
            schedule="lazy",
        )

    run()
    spent = least(run, ROUNDS, time.process_time)
    benchmark.pedantic(run, rounds=1)
    print(f"\n{name}, {'watched' if watch else 'not watched'}: {spent * 1e3:.1f} ms")
