"""Cards: processors, clocks, memory and rates of the GPUs that can be chosen by name.

This is the one table of cards.  What a program is told about its device follows from it
(``programs``, ``triton``), and so do occupancy and bounds of time (``counters``,
``judge``).

Numbers of the H200 are those that its driver told (580.159, 2026-11-17); those of the
others are from NVIDIA's data sheets and from what their drivers are known to tell.  The
bandwidth of the memory follows from its clock and its bus; the column ``sheet`` is what
the data sheet says, in GB/s, and ``tests/test_cards.py`` compares them.
"""

from __future__ import annotations

from dataclasses import field
from functools import cache
from math import log2

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.reference.isa.table import read

#: Clocks are in MHz, the L2 cache in MiB, memory in GiB, shared memory in KiB.
CARDS = """
card    | name                    | target  | processors | clock | memory | memory_clock | bus  | sheet | l2  | shared | threads | blocks
v100    | Tesla V100-SXM2-32GB    | sm_70   | 80         | 1530  | 31     | 877          | 4096 | 900   | 6   | 96     | 2048    | 32
t4      | Tesla T4                | sm_75   | 40         | 1590  | 15     | 5001         | 256  | 320   | 4   | 64     | 1024    | 16
a100    | NVIDIA A100-SXM4-80GB   | sm_80   | 108        | 1410  | 79     | 1593         | 5120 | 2039  | 40  | 164    | 2048    | 32
rtx3090 | NVIDIA GeForce RTX 3090 | sm_86   | 82         | 1695  | 24     | 9751         | 384  | 936   | 6   | 100    | 1536    | 16
orin    | Orin                    | sm_87   | 16         | 1300  | 30     | 3199         | 256  | 204.8 | 4   | 164    | 1536    | 16
rtx4090 | NVIDIA GeForce RTX 4090 | sm_89   | 128        | 2520  | 24     | 10501        | 384  | 1008  | 72  | 100    | 1536    | 24
l40s    | NVIDIA L40S             | sm_89   | 142        | 2520  | 44     | 9001         | 384  | 864   | 96  | 100    | 1536    | 24
h100    | NVIDIA H100 80GB HBM3   | sm_90a  | 132        | 1980  | 79     | 2619         | 5120 | 3350  | 50  | 228    | 2048    | 32
h200    | NVIDIA H200             | sm_90a  | 132        | 1980  | 140    | 3201         | 6016 | 4800  | 60  | 228    | 2048    | 32
b200    | NVIDIA B200             | sm_100a | 148        | 1965  | 178    | 3996         | 8192 | 8000  | 126 | 228    | 2048    | 32
b300    | NVIDIA B300 SXM6 AC     | sm_103a | 148        | 1965  | 267    | 3996         | 8192 | 8000  | 126 | 228    | 2048    | 32
thor    | NVIDIA Thor             | sm_110a | 20         | 1575  | 122    | 4266         | 256  | 273   | 32  | 228    | 1536    | 24
rtx5090 | NVIDIA GeForce RTX 5090 | sm_120a | 170        | 2407  | 32     | 14001        | 512  | 1792  | 96  | 100    | 1536    | 24
gb10    | NVIDIA GB10             | sm_121a | 48         | 2418  | 120    | 4266         | 256  | 273   | 24  | 100    | 1536    | 24
"""
#: Operations of Tensor Cores in a second, dense, in units of 10^12 (two for a product):
#: what the named paper of NVIDIA says, with the narrowest sums, at the clock in MHz
#: that it assumes.  ``lanes`` are those of CUDA cores on f32.  ``-`` is what it does not
#: have, or says with sparse matrices only.
PEAKS = """
card    | paper                             | at   | lanes | f64  | tf32  | f16   | f8    | s8    | s4   | b1   | f4
v100    | V100 data sheet                   | 1530 | 15.7  | -    | -     | 125   | -     | -     | -    | -    | -
t4      | T4 data sheet                     | 1590 | 8.1   | -    | -     | 65    | -     | 130   | 260  | -    | -
a100    | A100 data sheet, GA100 paper (b1) | 1410 | 19.5  | 19.5 | 156   | 312   | -     | 624   | 1248 | 4992 | -
rtx3090 | GA102 paper                       | 1695 | 35.6  | -    | 35.6  | 142   | -     | 284   | 568  | -    | -
orin    | -                                 | -    | -     | -    | -     | -     | -     | -     | -    | -    | -
rtx4090 | AD102 paper                       | 2520 | 82.6  | -    | 82.6  | 330.3 | 660.6 | 660.6 | 1321 | -    | -
l40s    | L40S data sheet                   | 2520 | 91.6  | -    | 183   | 362   | 733   | 733   | 733  | -    | -
h100    | H100 data sheet, GH100 paper      | 1830 | 67    | 67   | 494.7 | 989.4 | 1979  | 1979  | -    | -    | -
h200    | H200 data sheet                   | 1830 | 67    | 67   | 494.7 | 989.4 | 1979  | 1979  | -    | -    | -
b200    | HGX B200 data sheet               | 1850 | 75    | 37   | 1100  | 2250  | 4500  | 4500  | -    | -    | 9000
b300    | -                                 | -    | -     | -    | -     | -     | -     | -     | -    | -    | -
thor    | Jetson Thor data sheet            | 1575 | -     | -    | -     | -     | 517   | 517   | -    | -    | 1035
rtx5090 | GB202 paper                       | 2407 | 104.8 | -    | 104.8 | 419   | 838   | 838   | -    | -    | 1676
gb10    | -                                 | -    | -     | -    | -     | -     | -     | -     | -    | -    | -
"""
DEFAULT = "h200"
"""The card that times are for, unless another is chosen."""
KINDS = ("lanes", "f64", "tf32", "f16", "f8", "s8", "s4", "b1", "f4")
"""Kinds of products, each with a rate of its own: of lanes, and of Tensor Cores."""
REGISTERS = 65536
"""Registers of a processor."""
REGISTER_UNIT = 256
"""A warp has a multiple of so many registers."""
SHARED_UNIT = 128
"""A block has a multiple of so many bytes of shared memory."""
PARTITIONS = 4
"""A processor has so many schedulers, each with registers of its own."""
L2_BYTES = 64
"""Bytes that a processor gets from the L2 cache in a cycle, at most."""


@dataclass(frozen=True)
class Card:
    """A card.

    >>> card("h200").bandwidth // 10 ** 9, card("h200").rates["f16"]
    (4814, 2048)
    """

    card: str
    """The name by which it is chosen."""
    name: str
    target: str
    processors: int
    clock: int
    """The highest, in MHz."""
    memory: int
    """In GiB."""
    memory_clock: int
    """In MHz; two words for each line of the bus in a cycle."""
    bus: int
    """Lines of the bus, in bits."""
    sheet: float
    """The bandwidth that its data sheet says, in GB/s."""
    l2: int
    """In MiB."""
    shared: int
    """Shared memory of a processor, in KiB."""
    threads: int
    """Threads of a processor."""
    blocks: int
    """Blocks of a processor."""
    rates: dict[str, int] = field(repr=False, compare=False)
    """Products that a processor begins in a cycle, of dense matrices, by kind."""

    @property
    def lanes(self) -> int:
        """Products of f32 that the lanes of a processor begin in a cycle."""
        return self.rates["lanes"]

    @property
    def number(self) -> int:
        """The compute capability as one number, such as 90."""
        return int(self.target[3:].rstrip("af"))

    @property
    def bandwidth(self) -> int:
        """Of its memory, in bytes a second."""
        return 2 * self.memory_clock * 10**6 * self.bus // 8

    @property
    def cycles(self) -> int:
        """Cycles of all processors in a second, at the highest clock."""
        return self.processors * self.clock * 10**6

    @property
    def reserved(self) -> int:
        """Bytes of shared memory in each block that belong to the system."""
        return 1024 if self.number >= 80 else 0


def rate(operations: float, processors: int, clock: float) -> int:
    """Products of a processor in a cycle, a power of two, from 10^12 operations a second.

    >>> rate(989.4, 132, 1830), rate(67, 132, 1830)
    (2048, 128)
    """
    exact = operations * 1e12 / 2 / (processors * clock * 1e6)
    return 1 << round(log2(exact))


@cache
def cards() -> dict[str, Card]:
    """All cards by name.

    >>> cards()["h100"].target
    'sm_90a'
    """
    peaks = {each["card"]: each for each in read(PEAKS)}
    found = {}
    for row in read(CARDS):
        card, name, target = row["card"], row["name"], row["target"]
        sizes = {k: int(v) for k, v in row.items() if k not in _OTHERS}
        said = peaks[card]
        rates = {
            kind: rate(float(said[kind]), sizes["processors"], float(said["at"]))
            for kind in KINDS
            if said[kind] != "-"
        }
        sheet = float(row["sheet"])
        found[card] = Card(card, name, target, **sizes, sheet=sheet, rates=rates)
    return found


_OTHERS = ("card", "name", "target", "sheet")
"""Columns that are not whole numbers."""


def card(name: str) -> Card:
    """A card by name.

    >>> card("h1000")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: no card h1000 (did you mean h100?); there are v100, t4, \
a100, rtx3090, orin, rtx4090, l40s, h100, h200, b200, b300, thor, rtx5090 and gb10
    """
    if name.lower() not in cards():
        raise BadCall(
            f"no card {name}{nearest(name, cards())}; there are "
            f"{one_of(cards(), 'and')}"
        )
    return cards()[name.lower()]
