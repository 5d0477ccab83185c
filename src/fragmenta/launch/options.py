"""Checks of the options of a launch: its shape, memory, schedules and reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TypedDict

import numpy as np

from fragmenta.base.arrays.checks import is_among, is_whole
from fragmenta.engine.simt.context import Grid
from fragmenta.engine.units.schedule import ADVERSARIAL, Given, read
from fragmenta.errors import (
    BadCall,
    ShapeError,
    ValueRangeError,
)
from fragmenta.ptx.module import Function

MOST_CLUSTER = 16
"""Blocks of a cluster, also of one that is not portable."""


class RunOptions(TypedDict):
    """The options of a launch that every run of it has."""

    shared: int
    target: str
    contract: bool
    stack: int
    cooperative: bool


def check_dynamic(shared: int) -> None:
    """Refuse what is not a size of dynamic shared memory."""
    if not is_whole(shared) or shared < 0:
        raise BadCall(f"shared is the bytes of dynamic shared memory; given {shared!r}")


def check_cooperative(cooperative: bool, client: object) -> None:
    """Refuse what is not a flag, and blocks that cannot run together."""
    if not isinstance(cooperative, bool | np.bool_):
        raise BadCall(f"cooperative is True or False; given {cooperative!r}")
    if cooperative and client is not None:
        raise BadCall(
            "the blocks of a cooperative grid run together; the workers of a Dask "
            "cluster cannot"
        )


def check_shared(static: int, dynamic: int, target: str) -> None:
    """Refuse more shared memory than a block can have."""
    if static + dynamic <= 48 * 1024:  # every target has so much
        return
    # It takes a while to import.
    from fragmenta.ptx.checking.memory import limits

    most = limits(target)[1]
    if static + dynamic > most:
        raise ValueRangeError(
            f"a block on {target} has {most:,} bytes of shared memory; the kernel "
            f"declares {static:,}, and shared={dynamic:,}"
        )


def check_shape(kernel: Function, grid: object, block: object) -> Grid:
    """The grid and the block as three numbers each."""
    if any("hidden" in each.attributes for each in kernel.parameters):
        raise BadCall(
            f"{kernel.shown} has hidden parameters, tensor maps that NVIDIA's driver "
            "makes of cuTile's arrays; give ct.load and ct.store allow_tma=False, or "
            "compile for a target before sm_90, such as with --card a100"
        )
    shape = Grid(_three(grid, "grid", 0), _three(block, "block", 0))
    if shape.threads > 1024 or shape.threads == 0 or shape.block[2] > 64:
        raise ShapeError(
            f"a block has 1 to 1,024 threads, at most 64 along z; given {shape.block}"
        )
    x, y, z = shape.grid
    if x >= 1 << 31 or y >= 1 << 16 or z >= 1 << 16:
        raise ShapeError(
            f"a grid has at most {(1 << 31) - 1:,} blocks along x and "
            f"{(1 << 16) - 1:,} along y and z; given {shape.grid}"
        )
    needed = kernel.directives.get("reqntid")
    if needed is not None:
        wanted = tuple(int(n) for n in (*needed, 1, 1)[:3])
        if wanted != shape.block:
            raise ShapeError(
                f"{kernel.shown} needs blocks of {wanted}; given {shape.block}"
            )
    most = kernel.directives.get("maxntid")
    if most is not None:
        allowed = int(np.prod([int(n) for n in most]))
        if shape.threads > allowed:
            raise ShapeError(
                f"{kernel.shown} allows {allowed} threads in a block; given "
                f"{shape.threads}"
            )
    return shape


def _three(given: object, name: str, least: int) -> tuple[int, int, int]:
    """One to three sizes along x, y and z, each at least so large."""
    numbers: tuple[object, ...] = (given,)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        flat = not isinstance(given, np.ndarray) or given.ndim == 1
        numbers = tuple(given) if flat else numbers
    sizes = [
        int(each)
        for each in numbers
        if isinstance(each, int | np.integer) and not isinstance(each, bool)
    ]
    if not 1 <= len(numbers) == len(sizes) <= 3 or min(sizes) < least:
        start = f" from {least}" if least else ""
        raise ShapeError(
            f"{name} is one to three whole numbers{start}; given {given!r}"
        )
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def check_cluster(kernel: Function, shape: Grid, given: object) -> tuple[int, int, int]:
    """The blocks of a cluster along each axis: given, or required by the kernel."""
    required = kernel.directives.get("reqnctapercluster")
    wanted = tuple(int(n) for n in (*required, 1, 1)[:3]) if required else None
    if given is not None:
        found = _three(given, "cluster", 1)
    else:
        x, y, z = wanted or (1, 1, 1)
        found = x, y, z
    if wanted is not None and found != wanted:
        raise ShapeError(f"{kernel.shown} needs clusters of {wanted}; given {found}")
    if prod(found) > MOST_CLUSTER:
        raise ShapeError(f"a cluster has at most {MOST_CLUSTER} blocks; given {found}")
    if any(of % by for of, by in zip(shape.grid, found, strict=True)):
        raise ShapeError(
            f"the grid {shape.grid} cannot be divided into clusters of {found}"
        )
    return found


def check_clusters(
    kernel: Function, grid: object, block: object, cluster: object
) -> Grid:
    """The grid and the block as three numbers each, and the clusters."""
    shape = check_shape(kernel, grid, block)
    return shape._replace(cluster=check_cluster(kernel, shape, cluster))


def check_schedules(schedule: Given | Sequence[Given]) -> list[Given]:
    """The schedules of a launch, at least one.

    >>> check_schedules(("eager", "adversarial"))[:2]
    ['eager', 'lazy+in-steps']
    """
    named: list[Given] = [schedule]  # type: ignore[list-item]
    if isinstance(schedule, Sequence) and not isinstance(schedule, str):
        named = list(schedule)
    chosen: list[Given] = []
    for each in named:
        chosen += ADVERSARIAL if is_among(each, ("adversarial",)) else [each]
    if not chosen:
        raise BadCall("schedule is one schedule or several; given none")
    for each in chosen:
        read(each)  # refuses what is not a schedule
    return chosen
