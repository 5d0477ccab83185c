"""What a program can ask about the GPU that a kernel is compiled for."""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.reference.cards import cards


class TritonDevice(NamedTuple):
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


def card(architecture: int) -> TritonDevice:
    """The GPU of an architecture; the nearest below it if none is known.

    >>> card(90).name, card(90).processors
    ('NVIDIA H200', 132)
    """
    known = {each.number: each for each in cards().values()}  # the last of a kind
    row = known[max((n for n in known if n <= architecture), default=min(known))]
    return TritonDevice(
        divmod(architecture, 10),
        row.name,
        (row.shared << 10) - row.reserved,
        row.processors,
        row.threads,
        row.memory << 30,
        row.l2 << 20,
    )
