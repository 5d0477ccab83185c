"""The passes of accesses to shared memory are counted as ``shared.banks`` counts them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta.base.jit import compiler
from fragmenta.engine.simt import layout, library
from fragmenta.engine.simt.compiled import aligned
from fragmenta.engine.simt.memory import AccessForm
from fragmenta.reference.shared.banks import IDLE, bank_conflicts
from fragmenta.watch.races.shadow.bank_counts import (
    MOST_EXECUTIONS,
    BankCounts,
    counted_banks,
)

ALL = 0xFFFFFFFF
_ENGINES: list[Any] = []


@cache
def routine(width: int, bits: int) -> Any:
    """The routine as a function of addresses."""
    made = counted_banks(AccessForm("shared", 8, 16, width, address=bits))
    engine = compiler.load(o.code for o in library.objects([made]))
    _ENGINES.append(engine)
    kinds = [ctypes.c_void_p] * 3 + [ctypes.c_int64] + [ctypes.c_int32] * 2
    return ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(made.name))


class Counter:
    """A block whose accesses are counted."""

    def __init__(self) -> None:
        self.counts = BankCounts(4)
        self.block = aligned(layout.BLOCK_BYTES)
        self.counts.attach(self.block)

    def access(self, where: Any, width: int, site: int = 1, lanes: int = ALL) -> None:
        """A warp accesses shared memory."""
        register = aligned(128).view(np.uint32)
        register[:] = where
        routine(width, 32)(
            0,
            self.block.ctypes.data,
            register.ctypes.data,
            0,
            ctypes.c_int32(lanes).value,
            site,
        )


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_random_addresses(width: int) -> None:
    random = np.random.default_rng(width)
    counter, passes, least = Counter(), 0, 0
    for number in range(60):
        most = 2 ** int(random.integers(3, 12))
        where = 1024 + width * random.integers(0, most, 32)
        lanes = ALL if number % 2 else int(random.integers(1, 1 << 32))
        used = np.where(lanes >> np.arange(32) & 1, where // 4 * 4, IDLE)
        cost = bank_conflicts(used, max(4, width))
        passes += cost.turns
        least += sum(phase.degree > 0 for phase in cost.phases)
        counter.access(where, width, lanes=lanes)
    (found,) = counter.counts.found()
    assert (found.site, found.executions) == (1, 60)
    assert (found.passes, found.least) == (passes, least)


def test_a_column_of_a_tile() -> None:
    counter = Counter()
    for _ in range(3):
        counter.access(1024 + 128 * np.arange(32), 4)
    (found,) = counter.counts.found()
    assert (found.executions, found.passes, found.least) == (3, 96, 3)
    assert found.degree == 32
    assert found.advice == "rows of 128 bytes padded by 4 need 1 pass"
    assert "32 passes for each execution instead of 1" in found.message


def test_rows_of_ldmatrix() -> None:
    counter = Counter()
    lane = np.arange(32)
    counter.access(1024 + 128 * (lane % 8) + 16 * (lane // 8), 16, site=2)
    (found,) = counter.counts.found()
    assert (found.site, found.passes, found.least) == (2, 32, 4)
    assert found.advice == "a 128-byte swizzle needs 4 passes"


@pytest.mark.parametrize(
    "where", [np.zeros(32), 4 * np.arange(32), 4 * (np.arange(32) * 33 % 32)]
)
def test_no_conflict_is_no_note(where: Any) -> None:
    counter = Counter()
    counter.access(1024 + where, 4)
    assert not list(counter.counts.found())


def test_a_misaligned_access_is_no_conflict() -> None:
    # The launch ends with a fault, which must be told, not hidden by another error.
    counter = Counter()
    counter.access(1024 + 132 * np.arange(32), 16)
    assert list(counter.counts.found()) == []


def test_only_the_first_executions_are_counted() -> None:
    counter = Counter()
    for _ in range(MOST_EXECUTIONS + 10):
        counter.access(1024 + 8 * np.arange(32), 4)
    (found,) = counter.counts.found()
    assert found.executions == MOST_EXECUTIONS
    assert found.passes == 2 * MOST_EXECUTIONS


def test_nothing_is_counted_without_a_table() -> None:
    counter = Counter()
    counter.block[:] = 0
    counter.access(1024 + 128 * np.arange(32), 4)
    assert not list(counter.counts.found())
