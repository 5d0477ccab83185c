"""Blocks and memory that stand in for those of a launch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import OutOfBounds

SHARED = 1 << 15
WINDOW = 1 << 36
"""Each array is a segment, so far from the last one."""


class Cluster:
    """Blocks with shared memory of their own, and global memory for all of them."""

    def __init__(self, count: int = 1, shared: int = SHARED) -> None:
        self.segments: list[tuple[int, NDArray[np.uint8]]] = []
        self.blocks = [Block(self, rank, shared) for rank in range(count)]

    def add(self, array: NDArray[np.generic], address: int = 0) -> int:
        """The address of an array, which becomes global memory."""
        data = array.reshape(-1).view(np.uint8)
        address = address or (16 + len(self.segments)) * WINDOW
        self.segments.append((address, data))
        return address


class Block:
    """One block."""

    def __init__(self, cluster: Cluster, rank: int, shared: int) -> None:
        self.cluster, self.rank = cluster, rank
        random = np.random.default_rng(rank)
        self.shared = random.integers(0, 256, shared, np.uint8)

    def memory(self, address: int) -> tuple[NDArray[np.uint8], int]:
        """The array that an address is in."""
        for start, data in self.cluster.segments:
            if start <= address <= start + data.size:
                return data, address - start
        raise OutOfBounds(f"nothing is at {address:#x}")

    def at(self, offset: int) -> int:
        """The shared address of a place in this block."""
        return self.rank << 24 | offset


WHO = (None, 7)
"""The thread and the site of a copy; no copy looks at them."""
