"""Which tile is the fastest here, measured?

The model of :func:`~fragmenta.kernels.config.choose` knows one card.  Measured
choices are kept by kernel, shape and GPU, in memory and in a file beside the
compiled kernels, and are preferred from then on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import astuple, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from fragmenta.cuda.compiler import Cache
from fragmenta.kernels.config import Kernel, Tile, choose, expected_time, tiles_for
from fragmenta.kernels.source import text

Shape = tuple[int, int, int]


def key(kernel: Kernel, shape: Shape, gpu: str) -> str:
    """What a choice is kept under: all but the tile.

    >>> key(Kernel("s8"), (64, 64, 64), "H200")
    's8 s32 sparse, 64x64x64, H200'
    """
    return f"{kernel.kind}, {'x'.join(map(str, shape))}, {gpu}"


def known(kernel: Kernel, shape: Shape, gpu: str) -> Kernel:
    """The kernel with the tile that was measured, else with the expected one."""
    tile = _kept().get(key(kernel, shape, gpu))
    return choose(kernel, *shape) if tile is None else replace(kernel, tile=tile)


def tune(
    kernel: Kernel,
    shape: Shape,
    gpu: str,
    measure: Callable[[Kernel], float],
    *,
    most: int = 6,
) -> Kernel:
    """Measure the ``most`` promising tiles, and remember the fastest.

    >>> best = tune(Kernel("s8"), (64, 8, 64), "nothing", lambda k: k.tile.n)
    >>> best.tile.n, known(Kernel("s8"), (64, 8, 64), "nothing") == best
    (8, True)
    """
    listed = [replace(kernel, tile=tile) for tile in tiles_for(kernel)]
    listed.sort(key=lambda each: expected_time(each, *shape))
    best = min(listed[:most], key=measure)
    _kept()[key(kernel, shape, gpu)] = best.tile
    _write()
    return best


@cache
def _kept() -> dict[str, Tile]:
    return _read()


def _read() -> dict[str, Tile]:
    path = _path()
    try:
        read = json.loads(path.read_text()) if path else {}
        return {name: Tile(*sizes) for name, sizes in read.items()}
    except (OSError, ValueError, TypeError):
        return {}


def _write() -> None:
    """Add what is known here to what other processes have written meanwhile."""
    path = _path()
    if path is None:
        return
    sizes = {name: astuple(tile) for name, tile in {**_read(), **_kept()}.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(sizes, indent=1) + "\n")
        draft.replace(path)
    except OSError:  # a disk that cannot be written costs the next process a tuning
        return


def _path() -> Path | None:
    """The file of these kernels: what was measured with others says little."""
    folder = Cache.present().folder
    version = sha256(text("gemm.cu").encode()).hexdigest()[:12]
    return None if folder is None else folder / f"tiles-{version}.json"
