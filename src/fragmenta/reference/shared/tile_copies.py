"""The tensor-map copies that write a tile.

Rows of a box follow each other in shared memory, a span each.  So a box is one span
wide, and a tile of several spans needs a copy for each of them.
"""

from __future__ import annotations

from math import prod

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import AddressError, Error, ShapeError
from fragmenta.reference.registers.dtype import DType, dtype
from fragmenta.reference.shared.descriptor import (
    LIMIT,
    Descriptor,
    Family,
    MajorAxis,
    Swizzle,
    atoms,
    span,
)
from fragmenta.reference.shared.elements import stored
from fragmenta.reference.shared.swizzles import pattern
from fragmenta.reference.shared.tensor_map import CONSTANT, TensorMap, element_type
from fragmenta.reference.shared.tensor_map_rules import MOST_BOX


@dataclass(frozen=True)
class TileCopies:
    """The tensor-map copies that write the bytes of a tile.

    ``copies`` are the ``cp.async.bulk.tensor`` instructions to issue: for each, the
    coordinates of its first element, fastest dimension first and counted from the
    first element of the tile, and the address in shared memory.
    """

    dtype: str
    """The element type of the map; types that it does not have are copied as bytes."""
    dimensions: tuple[str, str]
    """The dimensions of the tensor, fastest first."""
    box: tuple[int, int]
    swizzle: Swizzle
    copies: tuple[tuple[tuple[int, int], int], ...]

    @property
    def data_type(self) -> str:
        """The element type in the driver's interface."""
        return f"{CONSTANT}DATA_TYPE_{element_type(self.dtype).constant}"

    def map(self, sizes: tuple[int, int], stride: int, address: int = 0) -> TensorMap:
        """The map of a tensor with these sizes, fastest first, and bytes in a row.

        >>> tile_copies(64, 128, "f16").map((512, 4096), 1024).box_bytes
        8192
        """
        if not isinstance(self.swizzle, int):
            raise Error(
                f"swizzle {self.swizzle!r} is in tensor maps of sm_100, whose bytes "
                "are not known here; those of sm_90 have 0, 32, 64 and 128"
            )
        return TensorMap(
            self.dtype,
            sizes,
            (stride,),
            self.box,
            address=address,
            swizzle=self.swizzle,
        )

    def to_json(self) -> dict[str, object]:
        """The arguments of ``cuTensorMapEncodeTiled`` and the copies, for a program."""
        return {
            "data_type": self.data_type,
            "dimensions": self.dimensions,
            "box": self.box,
            "swizzle": f"{CONSTANT}{pattern(self.swizzle).constant}",
            "copies": self.copies,
            "interleave": f"{CONSTANT}INTERLEAVE_NONE",
            "element_strides": (1, 1),
        }

    def __str__(self) -> str:
        found = self.to_json()
        lines = [
            f"tensorDataType {self.data_type}, tensorRank 2",
            f"globalDim      {{{', '.join(self.dimensions)}}}",
            f"boxDim         {{{self.box[0]}, {self.box[1]}}}, elementStrides {{1, 1}}",
            f"interleave     {found['interleave']}",
            f"swizzle        {found['swizzle']}",
        ]
        for (first, second), address in self.copies:
            lines.append(f"copy {{{first}, {second}}} to shared address {address}")
        return "\n".join(lines)


_DTYPES = {"f16": "f16", "bf16": "bf16", "tf32": "f32"}
"""The types of a map that copy these; no copy converts anything."""


def tile_copies(
    rows: int,
    k: int,
    of: str | DType,
    *,
    major: MajorAxis = "k",
    swizzle: Swizzle = 128,
    start: int = 0,
    family: Family = "wgmma",
    kind: str | None = None,
) -> TileCopies:
    """The tensor-map copies that write the tile of :meth:`Descriptor.for_tile`.

    There is one copy for each span and each 256 elements across.  A span that the
    tile does not fill still has its full width in shared memory.

    >>> print(tile_copies(64, 128, "f16", swizzle=128))
    tensorDataType CU_TENSOR_MAP_DATA_TYPE_FLOAT16, tensorRank 2
    globalDim      {k, m or n}
    boxDim         {64, 64}, elementStrides {1, 1}
    interleave     CU_TENSOR_MAP_INTERLEAVE_NONE
    swizzle        CU_TENSOR_MAP_SWIZZLE_128B
    copy {0, 0} to shared address 0
    copy {64, 0} to shared address 8192
    """
    dt = dtype(of)
    # A tile that does not fit is refused here, with the reason.
    descriptor = Descriptor.for_tile(
        rows, k, dt, major=major, swizzle=swizzle, start=start, family=family, kind=kind
    )
    if stored(dt, major, family, swizzle, kind).padded:
        raise Error(
            f"{dt} has padding in shared memory: only tensor maps of sm_100 add it, "
            "and their bytes are not known here"
        )
    parts = atoms(rows, k, dt, major, swizzle, family, kind)
    end = start + prod(parts) * pattern(swizzle).atom
    if end > LIMIT:
        raise AddressError(
            f"{rows} x {k} elements of {dt} from byte {start} on end at byte {end:,}; "
            f"they must end by {LIMIT:,}, the limit of descriptors"
        )
    along, across = (k, rows) if major == "k" else (rows, k)
    per_item = max(1, 8 // dt.bits)  # elements per item of the tensor
    items = along // per_item
    item_bytes = dt.bits * per_item // 8
    wide = min(items, span(swizzle) // item_bytes)
    high = min(across, MOST_BOX)
    if items % wide or across % high:
        raise ShapeError(
            f"{along} x {across} elements of {dt} are not a whole number of boxes of "
            f"{wide * per_item} x {high}: the last copy would read beyond the tile"
        )
    copies = []
    for first in range(0, items, wide):
        for second in range(0, across, high):
            mn, at = (second, first * per_item) if major == "k" else (first, second)
            where = descriptor.address(mn, at, dt, major)
            copies.append(((first, second), where))
    return TileCopies(
        _DTYPES.get(dt.name, "u8"),
        ("k", "m or n") if major == "k" else ("m or n", "k"),
        (wide, high),
        swizzle,
        tuple(copies),
    )
