"""Which tile a kernel has: the one with the least expected time for a shape.

The estimates were fitted to measurements on an H200.  They order the tiles of a shape
better than they tell the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from fragmenta.hopper.kernels.config import (
    BYTES,
    CLUSTERS,
    PROCESSORS,
    S4_SUMS,
    SLAB_BYTES,
    WIDTHS,
    Kernel,
    Tile,
)
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.registers.dtype import dtype

#: Tiles of sparse kernels: rows, columns, and the splits along k beside no split.
_SPARSE = """
256 : 192 176 160 144                :
256 : 128 120 112 104 96 88 80 72 64 : 2
128 : 256 240 224 208 192 176 160    : 2
128 : 144 128 120 112 104 96 88 80   : 2 3
128 : 72 64                          : 2 3
128 : 56 48 40 32 24 16 8            :
 64 : 256 240 224 208 192 176 160    : 2
 64 : 144 128 120 112 104 96 88 80   : 2 3 4
 64 : 72 64 56 48 40 32 24 16 8      : 2 3 4 6 8
"""


def _sparse_tiles() -> Iterator[Tile]:
    for line in _SPARSE.split("\n")[1:-1]:
        m, widths, splits = line.split(":")
        for n in map(int, widths.split()):
            if int(m) > 64 and n >= 128 and n % 32 == 0:  # the multicast is worth it
                yield Tile(int(m), n, 2)
            yield Tile(int(m), n)
            yield from (Tile(int(m), n, split=int(x)) for x in splits.split())


#: Tiles that compile without a warning of the assembler, tallest first.
SPARSE_TILES = tuple(_sparse_tiles())
#: Tiles of kernels for 4-bit integers: as many sums as there are registers for.
INTEGER_TILES = tuple(
    Tile(m, n, split=split)
    for m, splits in ((256, (1, 2)), (128, (1, 2, 3)), (64, (1, 2, 3, 4)))
    for n in reversed(WIDTHS)
    for split in splits
    if (Tile(m, n).blocks + 1) * n // 2 <= S4_SUMS
)
DENSE_TILES = (
    Tile(128, 256, 2),
    Tile(128, 256),
    Tile(128, 192, 2, turns=True),
    Tile(128, 192, turns=True),
    Tile(128, 128, 2, turns=True),
    Tile(64, 256, 2, turns=True),
    Tile(256, 128, 2),
    Tile(256, 128),
    Tile(128, 192, 2),
    Tile(128, 192),
    Tile(128, 128, 2),
    Tile(128, 128),
    Tile(128, 64),
    Tile(64, 64, 2),
    Tile(64, 64),
    Tile(64, 32, 2),
    Tile(64, 32),
    Tile(64, 16),
    Tile(64, 8),
)


def tiles_for(kernel: Kernel) -> Iterator[Tile]:
    """The tiles that a kernel of these types can have.

    >>> [str(t) for t in tiles_for(Kernel("e4m3", promote=True))][:3]
    ['128x192/2', '128x192', '128x192 k/2']
    """
    if kernel.four_bits:
        yield from INTEGER_TILES
        return
    widths = _widths(kernel.a, kernel.b, kernel.sparse)
    for tile in SPARSE_TILES if kernel.sparse else DENSE_TILES:
        if kernel.activation and tile.n % 128:
            continue
        if tile.n in widths and (tile.promotes or not kernel.promote):
            yield tile


@lru_cache(maxsize=64)
def _widths(a: str, b: str, sparse: bool) -> frozenset[int]:
    """The widths that instructions for these types have: integers have fewer."""
    return frozenset(
        op.shape.n
        for op in catalogue("wgmma.sp" if sparse else "wgmma")
        if (op.types["a"].name, op.types["b"].name) == (a, b)
    )


def expected_time(kernel: Kernel, m: int, n: int, k: int) -> float:
    """Microseconds on an H200, roughly, if other kernels run before and after.

    The time itself is less exact than the order of the tiles of a shape.

    >>> round(expected_time(Kernel("bf16", tile=Tile(256, 192, 2)), 8192, 8192, 8192))
    960
    """
    estimate = _sparse_time if kernel.sparse else _dense_time
    if kernel.four_bits:
        estimate = _integer_time
    return estimate(kernel, max(m, 1), max(n, 1), k)  # an empty product has one tile


#: Microseconds for the signals of a slab, by the slabs of a stage.
_SIGNALS = {1: 0.127, 2: 0.116, 4: 0.102}


def _sparse_time(kernel: Kernel, m: int, n: int, k: int) -> float:
    """The expected time, from three estimates of which the greatest counts most.

    They are that of the waves of tiles, that of reading and writing memory, and that
    of reading the L2.  In a wave, the lines of 128 bytes that shared memory takes and
    gives limit the products.  The constants were fitted to 8,900 measurements of the
    layers of ``benchmarks/gpu/bench_layers.py``: on average, the tile of the least
    estimate is 0.6% slower than the fastest one.
    """
    tile, slabs = kernel.tile, -(-k // kernel.slab_k)
    stages = -(-slabs // kernel.slabs)
    if stages < tile.split or tile.n >= n + 8 > 16:  # k is too short, or n
        return math.inf
    tiles = kernel.tiles(m, n)
    waves = -(-tiles // CLUSTERS[tile.cluster * tile.split])
    sent = 4 * tile.m * tile.n * (tile.split - 1) / tile.split
    exchange = 0.725 + 0.0963 * tile.split + 5.27e-5 * sent if sent else 0.0
    count = -(-stages // tile.split) * kernel.slabs
    slab, edge = _slab_times(kernel, n)
    edges = -(-waves // -(-n // tile.n))
    body = waves * (1.45 + count * slab + exchange) + edges * count * (edge - slab)
    row = kernel.slab_bytes_b
    a, b = -(-m // 64) * kernel.block_bytes * slabs, n * row * slabs
    memory = (a + b + m * n * BYTES[kernel.out]) / 4.65e6
    each = tile.cluster * tile.m // 64 * kernel.block_bytes + tile.n * row
    cache = tiles * each * slabs / 17.3e6
    # Blocks of a cluster wait for each other; several waves even that out.
    waiting = 1.14 if waves == 1 and tile.cluster > 1 else 1.0
    power = 2.8
    whole = math.pow(body**power + memory**power + cache**power, 1 / power)
    return whole * waiting


def _slab_times(kernel: Kernel, n: int) -> tuple[float, float]:
    """Microseconds of a slab: of most tiles, and of the last tile of a row.

    The last tile may reach beyond B, and a copy takes longer for rows that are not
    there than for real rows; but not if none of them is there.
    """
    tile, blocks = kernel.tile, kernel.tile.m // 64
    read = blocks * (tile.n + kernel.block_bytes / 128)
    written = tile.n + blocks * kernel.block_bytes / 128
    promotion = 0.09 if kernel.promote else 0.0
    slab = 3.68e-4 * (read + written) + 0.034 * blocks
    slab *= 1 + 0.0536 * max(0, 6 - kernel.stages * kernel.slabs)  # a short ring
    slab = max(slab + promotion, _SIGNALS[kernel.slabs])
    share = tile.n // tile.cluster  # rows of a copy
    return slab, max(slab, 8.3e-3 * (-n % share))


#: Rows of tiles that are computed in turn: how much longer activations took than here.
_ACTIVATED_TURNS = {64: 1.0, 128: 1.06}


#: Microseconds of a slab of 4-bit integers, and more for each column of a tile, by the
#: bits of B and the rows of the tile.
_INTEGER_SLABS = {
    (16, 64): (0.0858, 1.98e-3),
    (16, 128): (0.124, 3.33e-3),
    (16, 256): (0.246, 5.44e-3),
    (8, 64): (0.0641, 1.08e-3),
    (8, 128): (0.103, 1.89e-3),
    (8, 256): (0.255, 2.69e-3),
}


def integer_slab_time(kernel: Kernel) -> float:
    """Microseconds of a slab of 4-bit integers: loaded, converted, multiplied, scaled.

    >>> round(integer_slab_time(Kernel("s4", "e4m3", tile=Tile(64, 8))), 3)
    0.073
    """
    each, column = _INTEGER_SLABS[dtype(kernel.b).bits, kernel.tile.m]
    return each + column * kernel.tile.n


def _integer_time(kernel: Kernel, m: int, n: int, k: int) -> float:
    """The expected time of a product with 4-bit integers.

    Converting them takes longer than multiplying them, so that the time of a slab
    grows with the rows and columns of a tile.  The constants were fitted to 1,728
    measurements of ``benchmarks/gpu/bench_int4.py --tiles 12``: on average, the tile of
    the least estimate was 0.4% slower than the fastest one.
    """
    tile, slabs = kernel.tile, -(-k // kernel.slab_k)
    stages = -(-slabs // kernel.slabs)
    if stages < tile.split or tile.n >= n + 8 > 16:  # k is too short, or n
        return math.inf
    if tile.n < n <= 96:  # A would be read and converted twice
        return math.inf
    waves = -(-kernel.tiles(m, n) // CLUSTERS[tile.cluster * tile.split])
    sent = 4 * tile.m * tile.n * (tile.split - 1) / tile.split
    exchange = 0.374 * tile.split + 4.9e-5 * sent if sent else 0.0
    if sent and tile.m == 64 and dtype(kernel.b).bits == 8:
        exchange += 0.632  # parts are as short as their exchange
    count = -(-stages // tile.split) * kernel.slabs
    body = waves * (0.842 + count * integer_slab_time(kernel) + exchange)
    a, b = -(-m // 64) * kernel.block_bytes * slabs, n * kernel.slab_bytes_b * slabs
    memory = (a + b + m * n * BYTES[kernel.out]) / 4.25e6
    power = 2.07
    return 0.93 + math.pow(body**power + memory**power, 1 / power)


def _dense_time(kernel: Kernel, m: int, n: int, k: int) -> float:
    """The greater of two times: that of the waves of tiles, and that of memory.

    The constants were fitted to 300 measurements.
    """
    tile, slabs = kernel.tile, -(-k // kernel.slab_k)
    waves = -(-kernel.tiles(m, n) // (PROCESSORS // tile.cluster))
    multiplied = _dense_slab_time(kernel) * slabs
    # Activations take longer than the transfer of their bytes.
    size = 5 if kernel.activation else BYTES[kernel.out]
    stored = tile.m * tile.n * size / 49_000
    if tile.turns:  # only the last store is not hidden
        body = waves * max(1.04 * multiplied, stored) + stored
    else:
        body = waves * (multiplied + stored)
    a, b = -(-m // 64) * kernel.block_bytes * slabs, n * SLAB_BYTES * slabs
    memory = (a + b + m * n * BYTES[kernel.out]) / 4.0e6
    # Blocks of a cluster wait for each other; several waves even that out.
    waiting = 1.2 if waves == 1 and tile.cluster > 1 else 1.0
    exposed = 0.2 * min(body, memory)  # the part that does not overlap
    if kernel.activation:
        waiting *= 1.12 if not tile.turns else _ACTIVATED_TURNS[tile.m]
    return (max(body, memory) + exposed) * waiting + 2.9


def _dense_slab_time(kernel: Kernel) -> float:
    """Microseconds of a slab: the greatest of arithmetic, copies and latency."""
    tile = kernel.tile
    each = (tile.n + 31) * 0.000299
    arithmetic = kernel.steps * tile.m // 64 * max(each, 0.02)
    promotion = 0.09 if kernel.promote else 0.0
    # Bytes from the L2 (a cluster shares those of B), and bytes into shared memory.
    a, b = tile.m // 64 * kernel.block_bytes, tile.n * SLAB_BYTES
    copies = (a + b / tile.cluster) * 6.5e-6 + (a + b) * 5.8e-6
    signals = 0.166 if kernel.slabs == 1 else 0.15
    return max(arithmetic + promotion, copies, signals)


@lru_cache(maxsize=4096)
def choose(kernel: Kernel, m: int, n: int, k: int) -> Kernel:
    """The same kernel with the tile of the least expected time.

    >>> str(choose(Kernel("e4m3", out="bf16"), 8192, 8192, 8192).tile)
    '256x192/2'
    >>> str(choose(Kernel("e4m3", out="bf16"), 8192, 16, 8192).tile)
    '64x16'
    """
    return min(candidates(kernel), key=lambda each: expected_time(each, m, n, k))


def candidates(kernel: Kernel) -> tuple[Kernel, ...]:
    """The same kernel with every tile that it can have.

    >>> len(candidates(Kernel("b1", sparse=False)))
    19
    """
    return _candidates(replace(kernel, tile=Tile(64, 128)))


@lru_cache(maxsize=64)
def _candidates(kernel: Kernel) -> tuple[Kernel, ...]:
    return tuple(replace(kernel, tile=tile) for tile in tiles_for(kernel))
