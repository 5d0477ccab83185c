"""Checks of the options of a launch: its shape, memory, schedules and reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from fragmenta.arrays.checks import check_flags, is_among, is_whole
from fragmenta.arrays.lazy_dataclass import dataclass
from fragmenta.errors import (
    BadCall,
    ShapeError,
    ValueRangeError,
    nearest,
    one_of,
    shortened,
)
from fragmenta.ptx.module import Function
from fragmenta.simt.context import Shape
from fragmenta.units.schedule import ADVERSARIAL, Given, read

if TYPE_CHECKING:
    from fragmenta.tracing.told import Window

MOST_CLUSTER = 16
"""Blocks of a cluster, also of one that is not portable."""


class Options(TypedDict):
    """The options of a launch that every run of it has."""

    shared: int
    target: str
    contract: bool
    stack: int
    cooperative: bool


@dataclass(frozen=True)
class Watch:
    """How a launch is watched.

    ``launch(watch=True)`` is ``Watch()``, ``watch="report"`` is ``Watch("report")``,
    and ``watch="strict"`` is ``Watch(strict=True)``; ``watch=False`` does not watch.

    >>> from fragmenta import ptx
    >>> ptx.Watch("report", strict=True)
    Watch(problems='report', strict=True)
    >>> ptx.Watch("rise")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: problems is 'raise' or 'report'; given 'rise' (did you \
mean raise?)
    """

    problems: str = "raise"
    """``"raise"``: an error is a :class:`KernelHazard`.  ``"report"``: it is in
    ``result.problems`` only."""
    strict: bool = False
    """Whether to report also what only some sources demand."""

    def __post_init__(self) -> None:
        words = ("raise", "report")
        if not is_among(self.problems, words):
            hint = nearest(str(self.problems), words)
            given = f"given {self.problems!r}{hint}"
            raise BadCall(f"problems is 'raise' or 'report'; {given}")
        check_flags(strict=self.strict)


def check_watch(watch: bool | str | Watch) -> Watch | None:
    """How a launch is watched; None if it is not.

    >>> check_watch("report"), check_watch(False)
    (Watch(problems='report', strict=False), None)
    """
    if isinstance(watch, Watch):
        return watch
    if isinstance(watch, bool | np.bool_):
        return Watch() if watch else None
    words = {"raise": Watch(), "report": Watch("report"), "strict": Watch(strict=True)}
    if isinstance(watch, str) and watch in words:
        return words[watch]
    hint = nearest(watch, words) if isinstance(watch, str) else ""
    raise BadCall(
        f"watch is True, False, {one_of(map(repr, words))}, or a ptx.Watch; given "
        f"{watch!r}{hint}"
    )


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


def check_shape(kernel: Function, grid: object, block: object) -> Shape:
    """The grid and the block as three numbers each."""
    if any("hidden" in each.attributes for each in kernel.parameters):
        raise BadCall(
            f"{kernel.shown} has hidden parameters, tensor maps that NVIDIA's driver "
            "makes of cuTile's arrays; give ct.load and ct.store allow_tma=False, or "
            "compile for a target before sm_90, such as with --card a100"
        )
    shape = Shape(_three(grid, "grid", 0), _three(block, "block", 0))
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


def check_cluster(
    kernel: Function, shape: Shape, given: object
) -> tuple[int, int, int]:
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
) -> Shape:
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


MOST_STATES = 1_000_000
"""States of an exploration of all orders, unless the user gives another number."""


def check_nan(nan: object, numerics: object) -> None:
    """Refuse what is not known to be done at the birth of a NaN.

    >>> check_nan("report", False)
    """
    if not is_among(nan, ("report", "raise")):
        raise BadCall(f'nan is "report" or "raise"; given {shortened(str(nan))}')
    if nan == "raise" and not numerics:
        raise BadCall('nan="raise" needs numerics=True')


def check_algebra(client: object) -> None:
    """Refuse second values where they cannot be followed.

    >>> check_algebra(None)
    """
    if client is not None:
        raise BadCall(
            "second values are followed on one machine; the workers of a Dask cluster "
            "cannot; launch without client="
        )


def check_orders(
    orders: str | int | None, watch: Watch | None, client: object
) -> int | None:
    """The most states that are looked at; None if orders are not explored.

    >>> check_orders("all", Watch(), None), check_orders(500, Watch(), None)
    (1000000, 500)
    >>> check_orders("every", Watch(), None)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: orders is 'all', or the most states to look at, a whole \
number from 1; given 'every'
    """
    if orders is None:
        return None
    if watch is None:
        raise BadCall("orders need the launch to be watched, without watch=False")
    if client is not None:
        raise BadCall(
            "orders are explored on one machine; the workers of a Dask cluster cannot"
        )
    if is_among(orders, ("all",)):
        return MOST_STATES
    if is_whole(orders) and not isinstance(orders, bool) and int(orders) > 0:
        return int(orders)
    hint = nearest(orders, ("all",)) if isinstance(orders, str) else ""
    raise BadCall(
        "orders is 'all', or the most states to look at, a whole number from 1; given "
        f"{orders!r}{hint}"
    )


def check_replay(replay: object, shape: Shape, client: object) -> Window | None:
    """What is recorded; None if nothing is.

    >>> shape = Shape((2, 1, 1), (32, 1, 1))
    >>> check_replay(True, shape, None).most
    200000
    >>> check_replay("all", shape, None)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: replay is True, False or a Window; given 'all'
    """
    if replay is False:
        return None
    # A launch that is not recorded does not load it.
    from fragmenta.tracing.told import Window

    window = Window() if replay is True else replay
    if not isinstance(window, Window):
        raise BadCall(f"replay is True, False or a Window; given {replay!r}")
    if client is not None:
        raise BadCall("a launch on a Dask cluster is not recorded; leave client= out")
    if not isinstance(window.blocks, list | tuple | range):
        raise BadCall(f"blocks are several numbers; given {window.blocks!r}")
    wrong = [each for each in window.blocks if not _is_block(each, shape)]
    if wrong:
        raise BadCall(
            f"the blocks of the grid are 0 to {shape.blocks - 1}; given {wrong[0]!r}"
        )
    if not is_whole(window.first) or window.first < 0:
        raise BadCall(f"steps are counted from 0; given {window.first!r}")
    if not is_whole(window.most) or window.most < 1:
        raise BadCall(f"at least 1 step is kept; given {window.most!r}")
    return window


def _is_block(given: int, shape: Shape) -> bool:
    return is_whole(given) and 0 <= int(given) < shape.blocks
