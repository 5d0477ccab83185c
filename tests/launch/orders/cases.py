"""Kernels that hang or race in some orders, right and wrong, and how they are launched."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fragmenta import ptx
from fragmenta.cuda.tools import compiler
from fragmenta.launch.kernel import Kernel
from tests.ptx.hazards.running import with_headers, without_folders

SOURCE = Path(__file__).parent / "sources" / "orders.cu"


class Row(NamedTuple):
    """How a kernel is launched, and what is wrong with it by the number of the bug."""

    grid: int
    block: int
    arguments: tuple[Any, ...] = ()
    cluster: int | None = None
    hangs: tuple[int, ...] = ()
    """Bugs with which some order hangs."""
    others: tuple[int, ...] = ()
    """Bugs that are another error in some order."""


def _zeros(count: int) -> Any:
    return np.zeros(count, np.uint32)


def _words(count: int) -> Any:
    return np.arange(count, dtype=np.uint32)


ROWS = {
    "handshake": Row(1, 96, (np.int32(2),), others=(1,)),
    "taken_turns": Row(1, 96, (np.int32(4),), others=(1,)),
    "two_roles": Row(1, 128, hangs=(1,)),
    "ring": Row(
        1,
        96,
        (_words(160), _zeros(64), np.int32(5)),
        hangs=(1, 2, 3, 4, 5),
        others=(6,),
    ),
    "which_parity": Row(1, 64, (_words(4), _zeros(32)), hangs=(1,)),
    "locks": Row(2, 32, (_zeros(2), _zeros(1)), hangs=(1,)),
    "flags": Row(2, 32, (_zeros(2), _zeros(2)), hangs=(1,)),
    "pair": Row(2, 32, (_words(32), _zeros(64)), 2, hangs=(1,)),
    "last_block": Row(3, 32, (_zeros(3), _zeros(1), _zeros(1)), hangs=(1,)),
}


@cache
def text(bug: int) -> str:
    """The PTX of all kernels with one bug."""
    source = with_headers(SOURCE.read_text(), SOURCE.name)
    made = compiler.to_ptx(source, "sm_90a", f"-DBUG={bug}", "-lineinfo")
    return without_folders(made)


@cache
def _module(bug: int) -> Any:
    return ptx.parse(text(bug), "orders")


def kernel(name: str, bug: int) -> Kernel:
    """A kernel with one bug."""
    found: Kernel = _module(bug).kernels[name]
    return found


def launch(name: str, bug: int, **options: Any) -> Any:
    """Launch a kernel, and explore all of its orders."""
    row = ROWS[name]
    given = [e.copy() if isinstance(e, np.ndarray) else e for e in row.arguments]
    options = {"orders": "all", "watch": "report", **options}
    found = kernel(name, bug)
    return found.launch(row.grid, row.block, given, cluster=row.cluster, **options)
