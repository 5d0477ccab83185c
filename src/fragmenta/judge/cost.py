"""What launches did, in counts: instructions, bytes, products, and a bound of the time.

Counts are of executed warp instructions.  A warp may execute an instruction for some of
its lanes only, so bytes and products here are at most what was done.  This is the one
place where counters of a launch are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

LANES = 32
_BITS = re.compile(r"\.[bufse]+(8|16|32|64|128)(?:x2)?\b")
_VECTOR = re.compile(r"\.v([248])\b")
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_FLOAT = re.compile(r"\.b?f(?:16|32|64)(?:x2)?\b")
_PACKED = re.compile(r"\.(?:f16x2|bf16x2|f32x2)\b")
BANDWIDTH, PRODUCTS, TENSOR_PRODUCTS = 4.8e12, 33.5e12, 989e12 / 2
"""Bytes, products of lanes in float32, and products of Tensor Cores in float16 that an
H200 does in a second, at most."""


@dataclass
class Cost:
    """What some launches did."""

    launches: int = 0
    instructions: int = 0
    loaded: int = 0
    """Bytes that were loaded from global memory, at most."""
    stored: int = 0
    copied: bool = False
    """Whether the copy engine was used, whose bytes are not known from counts."""
    products: int = 0
    """Products of lanes, at most."""
    tensor_products: int = 0
    kernels: dict[str, int] = field(default_factory=dict)

    def add(self, kernel: str, counts: Mapping[str, int]) -> None:
        """Add a launch.

        >>> cost = Cost()
        >>> cost.add("f", {"ld.global.v4.f32": 2, "fma.rn.f32": 3})
        >>> cost.loaded, cost.products
        (1024, 96)
        """
        self.launches += 1
        self.kernels[kernel] = self.kernels.get(kernel, 0) + 1
        for mnemonic, count in counts.items():
            self.instructions += count
            self._count(mnemonic, count)

    def _count(self, mnemonic: str, count: int) -> None:
        opcode = mnemonic.partition(".")[0]
        if opcode in ("ld", "ldu", "atom", "red") and ".param" not in mnemonic:
            if ".shared" not in mnemonic and ".local" not in mnemonic:
                self.loaded += count * LANES * _width(mnemonic)
        elif opcode == "st" and ".shared" not in mnemonic:
            self.stored += count * LANES * _width(mnemonic)
        elif mnemonic.startswith("cp.async") and "bulk" not in mnemonic:
            self.loaded += count * LANES * 16
        elif mnemonic.startswith("cp."):
            self.copied = True
        elif opcode in ("mma", "wgmma", "tcgen05") and _SHAPE.search(mnemonic):
            m, n, k = map(int, _SHAPE.findall(mnemonic)[0])
            self.tensor_products += count * m * n * k
        elif opcode in ("fma", "mul", "mad") and _FLOAT.search(mnemonic):
            wide = 2 if _PACKED.search(mnemonic) else 1
            self.products += count * LANES * wide

    @property
    def all_products(self) -> int:
        """Products of lanes and of Tensor Cores."""
        return self.products + self.tensor_products

    def least_seconds(self, needed: int, products: int) -> float:
        """A bound: no H200 does what the problem needs in less time.

        ``needed`` are bytes that must be read, ``products`` those of the problem.
        """
        return max(needed / BANDWIDTH, products / (TENSOR_PRODUCTS + PRODUCTS))

    def to_dict(self) -> dict[str, object]:
        """The counts as plain values."""
        return {
            "launches": self.launches,
            "instructions": self.instructions,
            "bytes_loaded_at_most": None if self.copied else self.loaded,
            "bytes_stored_at_most": None if self.copied else self.stored,
            "products_at_most": self.all_products,
            "kernels": dict(self.kernels),
        }


def _width(mnemonic: str) -> int:
    """The bytes that an access moves in each lane."""
    bits = _BITS.findall(mnemonic)
    vector = _VECTOR.search(mnemonic)
    return int(bits[-1] if bits else 32) // 8 * (int(vector[1]) if vector else 1)
