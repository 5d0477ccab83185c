"""The access of a warp to a tile, for ``fragmenta shared``."""

from __future__ import annotations

from dataclasses import field

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.reference.shared.addresses import LaneAddresses
from fragmenta.reference.shared.banks import Conflicts, RowTile, bank_conflicts
from fragmenta.reference.shared.matching import Along


@dataclass(frozen=True)
class WarpAccess:
    """An access of a warp: an ldmatrix, or loads of 16 bytes."""

    access: str
    name: str
    """The name of the access, or the instruction."""
    tile: RowTile
    """The part of shared memory that is read."""
    addresses: LaneAddresses = field(compare=False)
    where: str = ""
    """Of an ldmatrix, what a lane addresses, as expressions."""
    tiles: int = 1
    """Operands that it loads."""
    along: Along | None = None
    """Where the further operands lie: m, n or k."""

    @property
    def cost(self) -> Conflicts:
        """The turns that the access takes."""
        return bank_conflicts(self.addresses)

    @property
    def num(self) -> str:
        """x1, x2 or x4."""
        return next(word for word in self.name.split(".") if word in ("x1", "x2", "x4"))

    @property
    def counted(self) -> list[int]:
        """The addresses that the instruction uses."""
        return [int(address) for address in self.addresses[: self.addresses.used]]
