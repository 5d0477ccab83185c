"""Fast paths of ``tcgen05`` leave the same as Python alone, in every schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.machine import Machine
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import Case, cases
from tests.ptx.test_triton_blackwell import kept
from tests.ptx.test_triton_hopper import arrays_of, memory_of, parameters
from tests.thinning import some

SCHEDULES = ("eager", "lazy", 1)
CASES = some([each for each in cases() if each.row.source == "tensor"], 2)
FAST = {
    ("tcgen05", "mma"),
    ("tcgen05", "ld"),
    ("tcgen05", "st"),
    ("tcgen05", "wait::ld"),
    ("tcgen05", "wait::st"),
}
"""How instructions begin that Python sees only at their first use."""


class Counted:
    """How often Python is called for each instruction."""

    def __init__(self, patch: pytest.MonkeyPatch, fast: bool) -> None:
        self.calls: Counter[tuple[str, ...]] = Counter()
        event, begin = Cluster.event, Machine.__init__

        def called(cluster: Cluster, *given: Any) -> int:
            self.calls[cluster.machine.events[given[2]].words[:2]] += 1
            return event(cluster, *given)

        def made(machine: Machine, *given: Any) -> None:
            begin(machine, *given)
            machine.fast = fast

        patch.setattr(Cluster, "event", called)
        patch.setattr(Machine, "__init__", made)


def both(run: Callable[[], Any]) -> tuple[Any, Any, Counter[tuple[str, ...]]]:
    """What a launch leaves with fast paths and without, and the calls with them."""
    found, calls = [], []
    for fast in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            counted = Counted(patch, fast)
            found.append(run())
            calls.append(counted.calls)
    return found[0], found[1], calls[0]


@pytest.mark.parametrize("case", some(CASES, 2), ids=lambda case: case.name)
def test_kernels_leave_the_same_without_a_watch(case: Case) -> None:
    for schedule in SCHEDULES:

        def run(schedule: str | int = schedule) -> Any:
            said, arrays = running.launch(case, schedule, watched=False)
            return said, running.left(case.row, arrays)

        fast, alone, _ = both(run)
        assert fast == alone


def triton(
    name: str, schedule: str, watch: str | bool, infinite: bool = False
) -> Callable[[], Any]:
    """A launch of a kernel of Triton, made ready; A may have an infinity."""
    row = kept()[name]
    kernel = ptx.parse(row["text"], row["name"]).kernels[row["entry"]]

    def run() -> Any:
        arrays = arrays_of(row)
        if infinite:
            arrays[0].view(np.uint16)[3, 70] = 0x7F80  # of bf16
        result = kernel.launch(
            row["grid"],
            row["block"],
            parameters(row, arrays),
            cluster=row["cluster"],
            shared=row["shared"],
            target="sm_100a",
            watch=watch,
            schedule=schedule,
        )
        left = [each.tobytes() for each in memory_of(arrays)]
        return left, [each.rule for each in result.problems]

    return run


@pytest.mark.parametrize("watch", [False, "report"])
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_a_second_launch_needs_no_python(schedule: str, watch: str | bool) -> None:
    run = triton("matmul_specialised", schedule, watch)
    run()
    fast, alone, calls = both(run)
    assert fast == alone
    assert not {each: n for each, n in calls.items() if each in FAST}
    assert calls["tcgen05", "alloc"]  # what is left to Python is counted


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_products_of_fp4_need_no_python(schedule: str) -> None:
    run = triton("matmul_scaled-nvfp4", schedule, False)
    run()
    fast, alone, calls = both(run)
    assert fast == alone
    assert not {each: n for each, n in calls.items() if each in FAST}


@pytest.mark.parametrize("watch", [False, "report"])
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_copies_of_a_pair_signal_without_python(
    schedule: str, watch: str | bool
) -> None:
    """Both blocks copy, and the mbarriers of the first one count that."""
    run = triton("pair_matmul", schedule, watch)
    run()
    fast, alone, calls = both(run)
    assert fast == alone
    assert bool(calls["cp", "async"]) == bool(watch)  # Python watches them


def test_a_run_that_follows_undefined_bits_needs_less_python() -> None:
    """It uses registers that were not written, so it is run twice."""
    run = triton("matmul_scaled-nvfp4", "lazy", "report")
    fast, alone, calls = both(run)
    assert fast == alone
    assert calls["tcgen05", "mma"]  # its operands may be undefined
    assert not calls["mbarrier", "arrive"]
    assert not calls["tcgen05", "fence::after_thread_sync"]


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_python_computes_what_machine_code_cannot(schedule: str) -> None:
    plain, odd = (
        triton("matmul-bf16", schedule, False, each) for each in (False, True)
    )
    fast, alone, calls = both(odd)
    assert fast == alone
    assert fast != plain()
    # A product with an infinity: at its issue, or when a thread waits for it.
    place = ("tcgen05", "mma") if schedule == "eager" else ("mbarrier", "try_wait")
    assert calls[place]
