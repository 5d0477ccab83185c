"""Measures the time of calls on the GPU, and keeps what was measured.

Calls are captured in a CUDA graph, so that the host's time does not count, and the
graph is replayed.  Rivals take turns: the card's clock falls as it gets hot, and all of
them see the same.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.source import cubin

Call = Callable[[], object]
Given = TypeVar("Given")
Made = TypeVar("Made")


def captured(calls: Sequence[Call], times: int = 1) -> torch.cuda.CUDAGraph:
    """A graph of all calls, one after the other.

    They run some times before, so that everything is compiled and chosen, and a kernel
    starts early if its weight was seen before.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            for call in calls:
                call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def replayed(graph: torch.cuda.CUDAGraph) -> float:
    """Microseconds of one replay."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    graph.replay()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) * 1e3


def in_turn(
    graphs: Sequence[torch.cuda.CUDAGraph],
    seconds: float,
    least: int = 7,
    most: int = 2000,
) -> list[list[float]]:
    """Microseconds of the replays of each graph.

    Each has at least ``least`` of them, and more, up to ``most``, until it has kept the
    card busy for so many seconds on average.
    """
    times: list[list[float]] = [[] for _ in graphs]
    spent = 0.0
    for count in range(most):
        if count >= least and spent >= seconds * 1e6 * len(graphs):
            break
        for graph, taken in zip(graphs, times, strict=True):
            taken.append(replayed(graph))
            spent += taken[-1]
    return times


def medians_us(
    rivals: Sequence[Sequence[Call]], warm: float, busy: float, most: int = 2000
) -> list[float]:
    """Microseconds of one call of each rival: medians of replays.

    Before, each keeps the card busy for ``warm`` seconds: it may have slept.
    """
    graphs = [captured(calls) for calls in rivals]
    in_turn(graphs, warm)
    return [
        statistics.median(taken) / len(calls)
        for taken, calls in zip(in_turn(graphs, busy, most=most), rivals, strict=True)
    ]


def in_processes(work: Callable[[Given], Made], given: Iterable[Given]) -> list[Made]:
    """What ``work`` returns for each, made by many processes."""
    with ProcessPoolExecutor(14, mp_context=get_context("spawn")) as pool:
        return list(pool.map(work, given))


def compile_all(kernels: Iterable[Kernel]) -> None:
    """Compile kernels, so that no measurement waits for it."""
    in_processes(cubin, kernels)


def versions() -> dict[str, str]:
    """The date, the card and the libraries."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "cusparselt": str(torch.backends.cusparselt.version()),
    }


# ── a run of a benchmark ────────────────────────────────────────────────────


def options_of(
    doc: str,
    batches: Sequence[int],
    layers: str,
    seconds: float = 500.0,
    tiles: bool = True,
) -> argparse.ArgumentParser:
    """The options of benchmarks of layers; those with ``tiles`` can measure several."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--layers", default="", help=f"such as {layers}")
    parser.add_argument("--batches", type=numbers, default=list(batches))
    if tiles:
        parser.add_argument("--tiles", type=int, default=1, help="tiles to measure")
    parser.add_argument("--seconds", type=float, default=seconds, help="stop after")
    return parser


def numbers(text: str) -> list[int]:
    """Numbers between commas."""
    return [int(each) for each in text.split(",") if each]


def sizes(text: str, default: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Rows and columns between commas, such as 4096x4096; those known if none are."""
    found = []
    for each in text.split(","):
        if each:
            rows, columns = each.split("x")
            found.append((int(rows), int(columns)))
    return found or list(default)


class Run:
    """One run: cases are written as they come, so that none is lost."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.out, self.seconds = name, options.out, options.seconds
        self.begun = time.time()
        self.cases: list[Any] = []

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.time() - self.begun

    def compile(self, kernels: Iterable[Kernel]) -> None:
        """Compile all kernels before anything is measured, and say so."""
        needed = sorted(set(kernels), key=str)
        compile_all(needed)
        print(f"{len(needed)} kernels compiled in {self.spent:.0f} s", flush=True)

    def reaches(self, what: str) -> bool:
        """Whether there is time for one more; if not, it is said."""
        if self.spent <= self.seconds:
            return True
        print(f"not reached: {what}", flush=True)
        return False

    def keep(self, found: Iterable[Any], told: Callable[[list[Any]], str]) -> None:
        """Measure cases, tell them, and write all that there are so far."""
        new = list(found)
        self.cases += new
        torch.cuda.empty_cache()
        print(f"{told(new)}  ({self.spent:.0f} s)", flush=True)
        self.out.mkdir(parents=True, exist_ok=True)
        record = {"about": versions(), "cases": [vars(each) for each in self.cases]}
        (self.out / f"{self.name}.json").write_text(json.dumps(record, indent=0))

    def finish(self, text: str) -> None:
        """Write and print the page."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / f"{self.name}.md").write_text(text.rstrip() + "\n")
        print(text)


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def read_cases(path: Path) -> list[dict[str, Any]]:
    """The cases that a run wrote."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["cases"]
    return found


def costs_of_choices(
    cases: Iterable[tuple[str, Sequence[str], dict[str, float]]], most: int = 30
) -> str:
    """What the choice of tiles costs: the worst cases, and the mean.

    A case is its name, all tiles with the one that is expected best first, and the
    microseconds of those that were measured.
    """
    costs: list[tuple[float, str]] = []
    for name, listed, took in cases:
        known = [tile for tile in listed if tile in took]
        if len(known) < 2:
            continue
        chosen, best = known[0], min(known, key=took.__getitem__)
        told = f"{chosen} {took[chosen]:.1f} us, {best} {took[best]:.1f} us"
        costs.append((took[chosen] / took[best], f"{name}: {told}"))
    costs.sort(reverse=True)
    lines = [f"{cost:.2f}  {told}" for cost, told in costs[:most]]
    if costs:
        average = mean([cost for cost, _ in costs])
        lines.append(f"{len(costs)} cases: {average:.3f} on average")
    return "\n".join(lines or ["no case has several tiles"])
