"""Measures the time of calls on the GPU.

Calls are captured in a CUDA graph, so that the host's time does not count, and the
graph is replayed.  Rivals take turns: the card's clock falls as it gets hot, and all of
them see the same.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

import torch

from fragmenta.kernels.config import Kernel
from fragmenta.kernels.source import cubin

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
