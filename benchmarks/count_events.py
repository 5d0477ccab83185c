"""Which instructions of the tests' kernels Python carries out, and what that costs.

Each launch runs twice; the first one makes forms and checks tensor maps, so the second
counts.

    PYTHONPATH=. python benchmarks/count_events.py blackwell
    PYTHONPATH=. python benchmarks/count_events.py recorded --no-watch --schedule eager
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, NamedTuple

from fragmenta import ptx
from fragmenta.engine.units.machine import Machine
from fragmenta.inspect.evidence.arguments import for_kernel
from tests.ptx import recordings, test_triton_blackwell, test_triton_hopper
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import cases

SHOWN = 12
"""Instructions and launches that are printed."""


class Spent(NamedTuple):
    """How often Python was called, and the CPU time of these calls in seconds."""

    calls: int = 0
    seconds: float = 0.0


class Count:
    """Counts what Python carries out."""

    def __init__(self) -> None:
        self.spent: dict[str, Spent] = defaultdict(Spent)
        self._lock = Lock()
        self._call = Machine._call
        Machine._call = self._counted()  # type: ignore[method-assign]

    def _counted(self) -> Callable[..., int]:
        def call(
            machine: Machine, block: int, warp: int, number: int, lanes: int
        ) -> int:
            name = ".".join(machine.events[number].words)
            start = time.thread_time()
            passed = self._call(machine, block, warp, number, lanes)
            with self._lock:
                calls, seconds = self.spent[name]
                took = time.thread_time() - start
                self.spent[name] = Spent(calls + 1, seconds + took)
            return passed

        return call

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(each.seconds for each in self.spent.values())


Launch = Callable[..., object]


def _triton(rows: dict[str, Any], target: str) -> Iterator[tuple[str, Launch]]:
    for name, row in rows.items():
        kernel = ptx.parse(row["text"], name).kernels[row["entry"]]

        def launch(row: Any = row, kernel: Any = kernel, **options: Any) -> object:
            arrays = test_triton_hopper.arrays_of(row)
            return kernel.launch(
                row["grid"],
                row["block"],
                test_triton_hopper.parameters(row, arrays),
                cluster=row["cluster"],
                shared=row["shared"],
                target=target,
                **options,
            )

        yield name, launch


def _hazards() -> Iterator[tuple[str, Launch]]:
    for case in (each for each in cases() if not each.bug):

        def launch(case: Any = case, watch: Any = True, **options: Any) -> object:
            return running.launch(case, options["schedule"], watched=bool(watch))

        yield case.name, launch


def _recorded() -> Iterator[tuple[str, Launch]]:
    for each in recordings.every_launch():
        kernel = each.file.kernel(each.row)

        def launch(of: Any = each, kernel: Any = kernel, **options: Any) -> object:
            return kernel.launch(
                of.row.grid,
                of.row.block,
                for_kernel(of.make_arguments()),
                shared=of.row.shared,
                target=of.file.made["target"],
                **options,
            )

        yield each.identity, launch


KERNELS: dict[str, Callable[[], Iterator[tuple[str, Launch]]]] = {
    "hopper": lambda: _triton(test_triton_hopper.recorded("3.9.0"), "sm_90a"),
    "blackwell": lambda: _triton(test_triton_blackwell.kept(), "sm_100a"),
    "hazards": _hazards,
    "recorded": _recorded,
}


def main() -> None:
    """Launch the kernels, and print where their time goes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", choices=KERNELS)
    parser.add_argument("--no-watch", action="store_true")
    parser.add_argument("--schedule", default="lazy")
    given = parser.parse_args()
    options = {
        "watch": False if given.no_watch else "report",
        "schedule": given.schedule,
    }
    count, total, launches = Count(), 0.0, []
    everything: dict[str, Spent] = defaultdict(Spent)
    for name, launch in KERNELS[given.kernels]():
        launch(**options)
        count.spent.clear()
        start = time.process_time()
        launch(**options)
        took = time.process_time() - start
        total += took
        launches.append((count.seconds, took, name))
        for words, (calls, seconds) in count.spent.items():
            before = everything[words]
            everything[words] = Spent(before.calls + calls, before.seconds + seconds)
    _show(total, launches, everything)


def _show(
    total: float, launches: list[tuple[float, float, str]], spent: dict[str, Spent]
) -> None:
    inside = sum(each.seconds for each in spent.values())
    print(f"{total * 1e3:.0f} ms of CPU time, {inside / total:.0%} of it in Python")
    print(f"{'ms':>9} {'calls':>7} {'us each':>8}")
    often = sorted(spent.items(), key=lambda each: -each[1].seconds)
    for words, (calls, seconds) in often[:SHOWN]:
        each = seconds / calls * 1e6
        print(f"{seconds * 1e3:9.1f} {calls:7} {each:8.0f}  {words}")
    for seconds, took, name in sorted(launches, reverse=True)[:SHOWN]:
        print(f"{seconds * 1e3:9.1f} of {took * 1e3:.1f} ms  {name}")


if __name__ == "__main__":
    main()
