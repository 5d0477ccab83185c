"""What a program can ask about the GPU that a kernel is compiled for."""

from __future__ import annotations

from typing import NamedTuple


class Card(NamedTuple):
    """A GPU, as its driver describes it."""

    capability: tuple[int, int]
    name: str
    shared: int
    """Bytes of shared memory that a block can have."""
    processors: int
    """Streaming multiprocessors."""
    threads: int
    """Threads that a multiprocessor can have at a time."""
    memory: int
    """Bytes of global memory."""
    l2: int
    """Bytes of the L2 cache."""


_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

# Kilobytes of shared memory, multiprocessors, threads of each, gigabytes of memory,
# megabytes of L2.
_CARDS = {
    70: ("Tesla V100-SXM2-32GB", 96, 80, 2048, 32, 6),
    75: ("Tesla T4", 64, 40, 1024, 15, 4),
    80: ("NVIDIA A100-SXM4-80GB", 163, 108, 2048, 80, 40),
    86: ("NVIDIA GeForce RTX 3090", 99, 82, 1536, 24, 6),
    87: ("Orin", 163, 16, 1536, 32, 4),
    89: ("NVIDIA L40S", 99, 142, 1536, 45, 96),
    90: ("NVIDIA H200", 227, 132, 2048, 140, 60),
    100: ("NVIDIA B200", 227, 148, 2048, 179, 126),
    103: ("NVIDIA B300", 227, 148, 2048, 268, 126),
    110: ("NVIDIA Thor", 227, 20, 1536, 122, 32),
    120: ("NVIDIA GeForce RTX 5090", 99, 170, 1536, 32, 96),
    121: ("NVIDIA GB10", 99, 48, 1536, 120, 24),
}


def card(architecture: int) -> Card:
    """The GPU of an architecture; the nearest below it if none is known.

    >>> card(90).name, card(90).processors
    ('NVIDIA H200', 132)
    """
    nearest = max((n for n in _CARDS if n <= architecture), default=70)
    name, shared, processors, threads, memory, l2 = _CARDS[nearest]
    return Card(
        divmod(architecture, 10),
        name,
        shared * _KIB,
        processors,
        threads,
        memory * _GIB,
        l2 * _MIB,
    )
