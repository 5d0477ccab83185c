"""Cards: processors, bandwidth and rates, for occupancy and bounds of time.

Rates are products that one processor begins in one cycle, of dense matrices; clocks are
the highest.  Both are the vendor's, so a bound that follows from them holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.isa.table import read

#: Bandwidth is in GB/s, clocks are in MHz, shared memory of a processor is in KiB.
CARDS = """
card | name        | processors | clock | bandwidth | shared | warps | blocks
a100 | NVIDIA A100 | 108        | 1410  | 2039      | 164    | 64    | 32
h100 | NVIDIA H100 | 132        | 1980  | 3352      | 228    | 64    | 32
h200 | NVIDIA H200 | 132        | 1980  | 4916      | 228    | 64    | 32
b200 | NVIDIA B200 | 148        | 1965  | 8184      | 228    | 64    | 32
"""
#: Products in a cycle of one processor, by the width of an element of A.
RATES = """
kind | a100  | h100  | h200  | b200
f64  | 64    | 128   | 128   | 64
tf32 | 512   | 1024  | 1024  | 2048
f16  | 1024  | 2048  | 2048  | 4096
f8   | -     | 4096  | 4096  | 8192
s8   | 2048  | 4096  | 4096  | 8192
s4   | 4096  | 4096  | 4096  | 8192
f4   | -     | -     | -     | 16384
b1   | 16384 | 16384 | 16384 | 16384
"""
REGISTERS = 65536
"""Registers of a processor."""
REGISTER_UNIT = 256
"""A warp has a multiple of so many registers."""
SHARED_UNIT, SHARED_SYSTEM = 128, 1024
"""A block has a multiple of the first, and the second belongs to the system."""
PARTITIONS = 4
"""A processor has so many schedulers, each with registers of its own."""
L2_BYTES = 64
"""Bytes that a processor gets from the L2 cache in a cycle, at most."""
DEFAULT = "h200"


@dataclass(frozen=True)
class Card:
    """A card."""

    name: str
    processors: int
    clock: float
    """In hertz."""
    bandwidth: float
    """Of its memory, in bytes a second."""
    shared: int
    """Bytes of shared memory of a processor."""
    warps: int
    blocks: int
    rates: dict[str, int]
    """Products in a cycle of a processor, dense, by kind."""


@cache
def cards() -> dict[str, Card]:
    """All cards by name.

    >>> cards()["h200"].processors
    132
    """
    rates = read(RATES)
    found = {}
    for row in read(CARDS):
        own = {
            each["kind"]: int(each[row["card"]])
            for each in rates
            if each[row["card"]] != "-"
        }
        found[row["card"]] = Card(
            row["name"],
            int(row["processors"]),
            1e6 * int(row["clock"]),
            1e9 * int(row["bandwidth"]),
            int(row["shared"]) << 10,
            int(row["warps"]),
            int(row["blocks"]),
            own,
        )
    return found


def card(name: str) -> Card:
    """A card by name.

    >>> card("h20")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: no card h20 (did you mean h200?); there are a100, h100, \
h200 and b200
    """
    if not isinstance(name, str) or name.lower() not in cards():
        raise BadCall(
            f"no card {name}{nearest(str(name), cards())}; there are "
            f"{one_of(cards(), 'and')}"
        )
    return cards()[name.lower()]
