"""Measures tiles on this GPU for the products of a call."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch

from fragmenta.errors import NoDevice
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.tuning import ProductShape, tune
from fragmenta.hopper.torch.running import SEARCHES, TileSearch, forget

_CALLS, _REPLAYS = 5, 9


def autotune(
    call: Callable[..., object], *arguments: object, **options: object
) -> dict[tuple[str, ProductShape], Tile]:
    """Measure promising tiles for every product in a call; keep the fastest.

    The call may be one product or a whole model, but a CUDA graph must be able to
    record it.  From then on its products use the tiles that were found, in other
    processes too.  Returns the tiles by kernel and shape (m, n, k; products of experts
    have their number, too, and are tuned for the shares that they have in the call)::

        autotune(sparse_linear, x, weight, bias)
        autotune(model, x)
    """
    if not torch.cuda.is_available():
        raise NoDevice("tiles are measured on a Hopper GPU; PyTorch finds no GPU here")
    once = partial(call, *arguments, **options)
    search = TileSearch()
    SEARCHES.append(search)
    try:
        with torch.no_grad():
            once()
            for (kind, shape, device), kernel in list(search.seen.items()):
                measure = partial(_measure, once, search, shape)
                gpu = torch.cuda.get_device_name(device)
                with torch.cuda.device(device):
                    best = tune(kernel, shape, gpu, measure)
                search.forced[kind, shape] = best.tile
    finally:
        SEARCHES.remove(search)
        forget()
    return search.forced


def _measure(
    once: Callable[[], object], search: TileSearch, shape: ProductShape, kernel: Kernel
) -> float:
    """Milliseconds of the call with this kernel."""
    search.forced[kernel.kind, shape] = kernel.tile
    return milliseconds(once)


def milliseconds(once: Callable[[], object]) -> float:
    """The time of a call on the current GPU: the median of replays of a graph.

    Timing single calls would measure the host, not the GPU.
    """
    once()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            once()
    times: list[float] = []
    for _ in range(_REPLAYS):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        graph.replay()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) / _CALLS)
    return statistics.median(times[1:])
