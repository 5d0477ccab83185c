"""Which tile a grouped product gets.

The shares of the experts are on the device, so the choice knows only how many tokens
and experts there are.  It expects uneven shares: that an expert gets one token more is
always as likely, whatever it has.  This is a geometric distribution.
"""

from __future__ import annotations

import math
from functools import lru_cache

from fragmenta.kernels.config import Kernel, candidates, tiles_time


def expected_columns(tokens: int, experts: int, width: int) -> float:
    """Columns of tiles of this width, if ``experts`` share the tokens.

    >>> round(expected_columns(8, 256, 8), 1), round(expected_columns(4096, 8, 64), 1)
    (7.8, 68.0)
    """
    mean = tokens / experts
    more = mean / (mean + 2)
    round_ = more**width
    first = (2 - more) / (1 - round_)
    return experts * more * (first + (1 - more) * width * round_ / (1 - round_) ** 2)


def expected_time(kernel: Kernel, m: int, tokens: int, k: int, experts: int) -> float:
    """Microseconds of a grouped product on an H200, roughly.

    >>> from fragmenta.kernels.config import Tile
    >>> kernel = Kernel("bf16", tile=Tile(64, 8), transposed=True, grouped=True)
    >>> round(expected_time(kernel, 768, 8, 2048, 128))
    5
    """
    tile, tokens = kernel.tile, max(tokens, 1)
    active = math.ceil(expected_columns(tokens, experts, 1 << 20))
    columns = math.ceil(expected_columns(tokens, experts, tile.n))
    rows = -(-m // (tile.m * tile.cluster))
    # The last column of an expert reads other tokens, so that no row is missing.
    whole = -(-tokens // tile.n) * tile.n
    took = tiles_time(
        kernel, m, whole, k, rows * columns, columns, active * -(-m // 64)
    )
    if tile.split > 1:  # clusters without a tile come and go
        took += 0.004 * (kernel.most_tiles(m, tokens, experts) - rows * columns)
    return took


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
