"""Bank conflicts: accesses of shared memory that take more passes than they need.

Compiled code counts the passes of the first executions of each instruction, and keeps
the addresses of the worst one.  From these, Python finds out whether a swizzle or a
padding of the rows would help.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Value,
    convert,
    shift_unsigned,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import address_of, sparse
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import POINTER, Routine, field, pointer_at
from fragmenta.engine.simt.memory import AccessForm, addresses, spill
from fragmenta.engine.simt.passes import passes
from fragmenta.engine.simt.warps import routine
from fragmenta.reference.shared.banks import IDLE, WORD, bank_conflicts
from fragmenta.reference.shared.descriptor import swizzled

MOST_EXECUTIONS = 256
"""Executions of an instruction that are counted, in each context."""

SITE = np.dtype(
    [
        ("executions", "i8"),
        ("passes", "i8"),
        ("least", "i8"),
        ("worst", "i4"),
        ("lanes", "u4"),
        ("width", "i4"),
        ("kept", "i4"),
        ("addresses", "i4", LANES),
    ]
)
"""What is kept for each instruction: counts, and the worst execution."""


def counted_banks(access: AccessForm) -> Routine:
    """The routine that counts the passes of an access of shared memory.

    It takes what the routine of the access takes, without its registers.  An
    ``ldmatrix`` is an access of 16 bytes by the lanes that have a row each.
    """
    name = f"watch.banks.{access.bytes}.a{access.address}"

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        number: Value,
    ) -> None:
        table = pointer_at(code, block, layout.BLOCK_BANKS)
        there = Value(code.builder, code.builder.ptrtoint(table, I64)) != 0
        with code.when(there & (lanes != 0)):
            _count(code, access, table, register, offset, lanes, number)

    return routine(name, trace, [POINTER, POINTER, POINTER, I64, I32, I32], None)


def _count(
    code: Code,
    access: AccessForm,
    table: Raw,
    register: Raw,
    offset: Value,
    lanes: Value,
    number: Value,
) -> None:
    b = code.builder
    place = convert(number, I64) * SITE.itemsize
    line = b.gep(table, [place.raw])
    wide = field(code, line, 0, I64)
    with code.when(wide[0] < MOST_EXECUTIONS):
        at = addresses(code, register, access.address, offset)
        words = spill(code, convert(shift_unsigned(at, 2), I32))
        taken, least = passes(code, max(1, access.bytes // WORD), words, lanes)
        wide[0] = wide[0] + 1
        wide[1] = wide[1] + convert(taken, I64)
        wide[2] = wide[2] + convert(least, I64)
        narrow = field(code, line, 24, I32)
        with code.when(taken - least > narrow[0]):
            narrow[0] = taken - least
            narrow[1] = lanes
            narrow[2] = lanes.lift(access.bytes)
            kept = convert(at, I32)
            goal = b.bitcast(
                b.gep(line, [ir.Constant(I32, 40)]), kept.type.as_pointer()
            )
            b.store(kept.raw, goal).align = 4


# ── in Python ───────────────────────────────────────────────────────────────


class Banks(NamedTuple):
    """The conflicts of one instruction."""

    site: int
    executions: int
    passes: int
    least: int
    degree: int
    """How many lanes want different words of one bank, in the worst execution."""
    advice: str
    """What would help; nothing if nothing simple does."""

    @property
    def message(self) -> str:
        """The conflicts in words."""
        per = self.passes / self.executions
        needed = self.least / self.executions
        text = (
            f"{per:.3g} passes for each execution instead of {needed:.3g}, in "
            f"{self.executions} execution{'s' * (self.executions != 1)}; "
            f"{self.degree} lanes at most want different words of one bank"
        )
        return f"{text}; {self.advice}" if self.advice else text


class BankCounts:
    """The counts of all contexts of a launch."""

    def __init__(self, sites: int) -> None:
        self._sites = sites
        self._tables: list[NDArray[np.void]] = []

    def attach(self, block: NDArray[np.uint8]) -> None:
        """Let the block of a context count."""
        self._tables.append(sparse(max(1, self._sites) * SITE.itemsize).view(SITE))
        place = slice(layout.BLOCK_BANKS, layout.BLOCK_BANKS + 8)
        block[place].view(np.int64)[0] = address_of(self._tables[-1])

    def of(self, blocks: Iterable[NDArray[np.uint8]]) -> list[NDArray[np.void]]:
        """The counts of some blocks."""
        tables = {address_of(each): each for each in self._tables}
        place = layout.BLOCK_BANKS
        return [tables[int(e[place : place + 8].view(np.int64)[0])] for e in blocks]

    def add(self, tables: Iterable[NDArray[np.uint8]]) -> None:
        """Add the counts of blocks that were not attached, as bytes."""
        self._tables += [each.view(SITE) for each in tables]

    @property
    def tables(self) -> list[NDArray[np.void]]:
        """The counts of each context that counted anything."""
        return [each for each in self._tables if each["executions"].any()]

    def take(self, tables: list[NDArray[np.void]]) -> None:
        """Add the counts of contexts of another process."""
        self._tables += tables

    def found(self) -> Iterator[Banks]:
        """The instructions with conflicts."""
        none = np.zeros(max(1, self._sites), np.int64)
        executions, passes, least = (
            sum((table[name] for table in self._tables), none)
            for name in ("executions", "passes", "least")
        )
        for site in np.flatnonzero(passes > least).tolist():
            lines = [table[site] for table in self._tables]
            line = max(lines, key=lambda each: int(each["worst"]))
            given, width = worst_of(line)
            judged = _judged(given.tobytes(), width)
            if judged is None:
                continue  # a misaligned access: the launch ended with a fault
            total, taken, needed = (int(e[site]) for e in (executions, passes, least))
            yield Banks(site, total, taken, needed, *judged)


@lru_cache(maxsize=1 << 14)
def _judged(addresses: bytes, width: int) -> tuple[int, str] | None:
    """The degree of an access, and what helps; None if it is misaligned.

    Further launches of a kernel have the same accesses.
    """
    given = np.frombuffer(addresses, np.int64)
    if ((given != IDLE) & (given % width != 0)).any():
        return None
    return bank_conflicts(given, width).degree, advice(given, width)


def worst_of(line: np.void) -> tuple[NDArray[np.int64], int]:
    """The addresses of the worst execution, -1 for idle lanes, and the width."""
    active = int(line["lanes"]) >> np.arange(LANES) & 1
    # A rank in the cluster is in the bits above; the banks are the same there.
    given = line["addresses"].astype(np.int64) & 0xFFFFFF
    width = max(WORD, int(line["width"]))
    return np.where(active != 0, given // WORD * WORD, IDLE), width


def advice(given: NDArray[np.int64], width: int) -> str:
    """The swizzle or the padding with the fewest passes, if it helps."""
    now = bank_conflicts(given, width).turns
    choices: list[tuple[int, int, str]] = []
    for mode in (32, 64, 128):
        turns = _turns(given, swizzled(np.maximum(given, 0), mode), width)
        choices.append((turns, 0, f"a {mode}-byte swizzle needs {_shown(turns)}"))
    first = int(given[given != IDLE].min())
    for pitch in _pitches(given):
        padded = given + (given - first) // pitch * width
        turns = _turns(given, padded, width)
        text = f"rows of {pitch} bytes padded by {width} need {_shown(turns)}"
        choices.append((turns, pitch, text))
    turns, _, text = min(choices)
    return text if turns < now else ""


def _shown(turns: int) -> str:
    return f"{turns} pass{'es' * (turns != 1)}"


def _turns(given: NDArray[np.int64], moved: NDArray[np.int64], width: int) -> int:
    return bank_conflicts(np.where(given == IDLE, IDLE, moved), width).turns


def _pitches(given: NDArray[np.int64]) -> list[int]:
    """Distances between lanes that may be the length of a row."""
    used = given[given != IDLE]
    steps = np.abs(np.diff(used)) if used.size > 1 else used[:0]
    return [int(each) for each in np.unique(steps) if each >= 64 and each % WORD == 0]
