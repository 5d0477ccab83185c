"""Lines of a report on what Tensor Core instructions lose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fragmenta.values.numerics.products import (
    CurvePoint,
    ProductStatistics,
    WorstElement,
    joined_curve,
)
from fragmenta.values.numerics.words import number

MOST_POINTS = 5
"""Points of a curve in a report."""


def product_lines(alike: Sequence[ProductStatistics]) -> Iterator[str]:
    """What instructions of one line lost together."""
    worst = max(alike, key=lambda each: each.worst_added).worst
    if worst is not None:
        yield _worst(worst)
    elements = sum(each.elements for each in alike)
    size = sum(each.size for each in alike)
    if size:
        parts = [
            (sum(each.split.alignment_size for each in alike), "alignment"),
            (sum(each.split.keep_size for each in alike), "the accumulator's bits"),
            (sum(each.split.rounding_size for each in alike), "rounding"),
        ]
        whole = sum(share for share, _ in parts) or 1.0
        shares = [(share / whole, name) for share, name in parts]
        named = [f"{share:.0%} by {name}" for share, name in shares if share > 0.005]
        split = f": {', '.join(named)}" if named else ""
        yield f"each execution loses {size / elements:.3g} of an element{split}"
    products = sum(each.products for each in alike)
    vanished = sum(each.vanished for each in alike)
    if vanished:
        yield f"{vanished / products:.1%} of the products do not count at all"
    curve = joined_curve(alike)
    if len(curve) > 1:
        said = [f"{each.lost_bits:.0f} at k = {each.k:,}" for each in _some(curve)]
        yield f"bits of an f32 that are lost: {', '.join(said)}"


def _worst(worst: WorstElement) -> str:
    """The element to which most was added."""
    of = worst.op.types["d"]
    value = float(of.to_float64(np.array([worst.d], of.bits_dtype))[0])
    place = f"row {worst.row}, column {worst.column} of block {worst.block}"
    return (
        f"{number(value)}, exactly {number(worst.exact)}, after "
        f"{worst.k + worst.op.shape[2]:,} products; {place}, warp {worst.warp}"
    )


def _some(curve: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Some points from the first to the last."""
    last = len(curve) - 1
    places = {round(last * part / (MOST_POINTS - 1)) for part in range(MOST_POINTS)}
    return [curve[place] for place in sorted(places)]
