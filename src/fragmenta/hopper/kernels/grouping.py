"""Which tile a grouped product gets.

The shares of the experts are on the device, so the choice knows only how many tokens
and experts there are.  It expects shares that are uneven: an expert has c tokens with
the probability (c + 1) (1 - q)^2 q^c, a negative binomial distribution.
"""

from __future__ import annotations

import math
from functools import lru_cache

from fragmenta.hopper.kernels.choosing import candidates, integer_slab_time
from fragmenta.hopper.kernels.config import SLAB_BYTES, Kernel


def expected_columns(tokens: int, experts: int, width: int) -> float:
    """Columns of tiles of this width, if ``experts`` share the tokens.

    >>> round(expected_columns(8, 256, 8), 1), round(expected_columns(4096, 8, 64), 1)
    (7.8, 67.9)
    """
    mean = tokens / experts
    q = mean / (mean + 2)
    # An expert has x tokens or more with the probability q^x (1 + x (1 - q)): the sum
    # of this over x = 1, 1 + width, 1 + 2 width, ...
    each = q**width
    whole = (2 - q) / (1 - each) + (1 - q) * width * each / (1 - each) ** 2
    return experts * q * whole


def expected_time(kernel: Kernel, m: int, tokens: int, k: int, experts: int) -> float:
    """Microseconds of a grouped product on an H200, roughly.

    The greatest counts most of three times: that of the tiles, of which some are
    computed at once; that of reading and writing memory; that of reading the L2.  The
    constants were fitted to 2,808 measurements of ``benchmarks/gpu/bench_experts.py``:
    on average, the tile of the least estimate is 1.3% slower than the fastest one.

    >>> from fragmenta.hopper.kernels.config import Tile
    >>> kernel = Kernel("bf16", tile=Tile(64, 8), transposed=True, grouped=True)
    >>> round(expected_time(kernel, 768, 8, 2048, 128))
    8
    """
    tile, tokens = kernel.tile, max(tokens, 1)
    slabs = -(-k // kernel.slab_k)
    stages = -(-slabs // kernel.slabs)
    if stages < tile.split:
        return math.inf
    tiles = expected_columns(tokens, experts, tile.n) * kernel.rows_of_tiles(m)
    full = tiles / kernel.at_once
    waves = max(1.0, full + 0.44 * min(1.0, 4 * max(0.0, full - 1)))
    count = -(-stages // tile.split) * kernel.slabs
    body = waves * (_tile_time(kernel) + count * _slab_time(kernel, tokens))
    size = 4 if kernel.out in ("f32", "s32") else 2
    active = expected_columns(tokens, experts, 1 << 16) * -(-m // 64)
    whole = active * kernel.block_bytes + tokens * kernel.slab_bytes_b
    memory = (whole * slabs + m * tokens * size) / 4.18e6
    each = tile.cluster * tile.m // 64 * kernel.block_bytes
    each += tile.n * kernel.slab_bytes_b
    cache = tiles * each * slabs / 18e6
    power = 2.35
    found = math.pow(body**power + memory**power + cache**power, 1 / power)
    found = 3.8 + found * (1.05 if tile.cluster > 1 else 1.0)
    if tile.split > 1:  # clusters without a tile come and go
        found += 0.0076 * (kernel.most_tiles(m, tokens, experts) - tiles)
    return found


def _tile_time(kernel: Kernel) -> float:
    """Microseconds of a tile beside its slabs: exchanging sums, storing results."""
    tile = kernel.tile
    area = tile.m * tile.n
    stored = area * (2.5e-5 if kernel.scaled else 5.0e-6)
    if tile.split == 1:
        return 0.51 + stored
    sent = 4 * area * (tile.split - 1) / tile.split
    return 0.51 + stored + 0.67 + 0.096 * tile.split + 8.2e-5 * sent


def _slab_time(kernel: Kernel, tokens: int) -> float:
    """Microseconds of a slab.

    Lines of 128 bytes that shared memory takes and gives limit the products.  A copy
    takes long for rows that are not there: those after the last token.
    """
    tile, blocks = kernel.tile, kernel.tile.m // 64
    high = tile.n // tile.cluster  # rows of a copy
    missing = high - tokens / 2 if tokens < high else high * high / (2 * tokens)
    if kernel.four_bits:  # as in single products; grouped ones were not measured
        copies = kernel.slab_bytes_b // SLAB_BYTES
        return max(integer_slab_time(kernel), 5.7e-3 * missing * copies)
    lines = blocks * (tile.n + kernel.block_bytes / 128)
    lines += tile.n + blocks * kernel.block_bytes / 128
    slab = 3.68e-4 * lines + 0.0325 * blocks
    slab *= 1 + 0.067 * max(0, 6 - kernel.stages * kernel.slabs)  # a short ring
    found = max(slab, {1: 0.214, 2: 0.166, 4: 0.074}[kernel.slabs], 5.7e-3 * missing)
    # Scales leave the largest tiles no registers to spare.
    return found * (1.09 if kernel.scaled and tile.m * tile.n >= 256 * 192 else 1.0)


@lru_cache(maxsize=4096)
def choose_grouped(kernel: Kernel, m: int, tokens: int, k: int, experts: int) -> Kernel:
    """The same kernel with the tile of the least expected time.

    >>> kernel = Kernel("bf16", out="bf16", transposed=True, grouped=True)
    >>> str(choose_grouped(kernel, 14336, 2, 4096, 8).tile)
    '128x8'
    """
    return min(
        candidates(kernel), key=lambda x: expected_time(x, m, tokens, k, experts)
    )
