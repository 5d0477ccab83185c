"""Remembers which tiles were measured to be the fastest on a GPU.

:func:`~fragmenta.hopper.kernels.choosing.choose` estimates times for one GPU
only.  Choices that were measured are kept by kernel, shape and GPU, in memory and on
disk beside the compiled kernels.  They are preferred to the estimates.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple, replace
from functools import cache
from hashlib import sha256

from fragmenta.base.jit.cache import Cache
from fragmenta.errors import ShapeError
from fragmenta.hopper.kernels import choosing, grouping
from fragmenta.hopper.kernels.choosing import candidates
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.source import text

ProductShape = tuple[int, ...]
"""m, n and k; of a grouped product also the number of experts."""


def key(kernel: Kernel, shape: ProductShape, gpu: str) -> str:
    """The name that a choice is kept under; it has everything but the tile.

    >>> key(Kernel("s8"), (64, 64, 64), "H200")
    's8 s32 sparse, 64x64x64, H200'
    """
    return f"{kernel.kind}, {'x'.join(map(str, shape))}, {gpu}"


def known(kernel: Kernel, shape: ProductShape, gpu: str) -> Kernel:
    """The kernel with the measured tile, or else the one that is expected best."""
    tile = _kept().get(key(kernel, shape, gpu))
    if tile is not None:
        return replace(kernel, tile=tile)
    if kernel.grouped:
        return grouping.choose_grouped(kernel, *shape)
    return choosing.choose(kernel, *shape)


def expected_time(kernel: Kernel, shape: ProductShape) -> float:
    """Microseconds on an H200, roughly.

    >>> round(expected_time(Kernel("bf16", tile=Tile(128, 64)), (4096, 64, 4096)))
    14
    """
    estimate = grouping.expected_time if kernel.grouped else choosing.expected_time
    return estimate(kernel, *shape)


def tune(
    kernel: Kernel,
    shape: ProductShape,
    gpu: str,
    measure: Callable[[Kernel], float],
    *,
    most: int = 6,
) -> Kernel:
    """Measure the ``most`` tiles that look best, and remember the fastest.

    All of them add floats along k in the order of the one that is expected best, so
    that tuning changes no bit of a result.

    >>> best = tune(Kernel("s8"), (64, 8, 64), "nothing", lambda k: k.tile.n)
    >>> best.tile.n, known(Kernel("s8"), (64, 8, 64), "nothing") == best
    (8, True)
    """
    listed = sorted(candidates(kernel), key=lambda each: expected_time(each, shape))
    if kernel.accumulator == "f32":
        k = shape[2]
        parts = listed[0].parts(k)
        listed = [each for each in listed if _parts(each, k) == parts]
    best = min(listed[:most], key=measure)
    _kept()[key(kernel, shape, gpu)] = best.tile
    _write()
    return best


def _parts(kernel: Kernel, k: int) -> list[tuple[int, int]] | None:
    """How the sum is split along k; None if k is too short for that."""
    try:
        return kernel.parts(k)
    except ShapeError:
        return None


@cache
def _kept() -> dict[str, Tile]:
    return _read()


def _read() -> dict[str, Tile]:
    kept = Cache.present().get(_version())
    try:
        read = json.loads(kept) if kept else {}
        return {name: Tile(*sizes) for name, sizes in read.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _write() -> None:
    """Write the choices of this process, and keep those of other processes."""
    sizes = {name: astuple(tile) for name, tile in {**_read(), **_kept()}.items()}
    Cache.present().put(_version(), json.dumps(sizes).encode())


@cache
def _version() -> str:
    """The cache key of all choices; it changes with the source of the kernel."""
    return f"tiles {sha256(text('gemm.cu').encode()).hexdigest()}"
