"""Products: of Tensor Core instructions by unit, and of lanes by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from fragmenta.ptx import families
from fragmenta.ptx.checking.tensor import Remark, named

WARPS = dict.fromkeys(families.WARPGROUP, 4)
"""Warps that execute an instruction together."""
OPERATIONS = {
    "f64": "fp64",
    "tf32": "tf32_dst_fp32",
    "bf16": "bf16_dst_fp32",
    "f16": "fp16",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "s8": "int8",
    "u8": "int8",
    "b1": "int1",
}
"""Types of A in the names of metrics."""
_RATES = {
    "f64": "f64",
    "tf32": "tf32",
    "f16": "f16",
    "bf16": "f16",
    "s8": "s8",
    "u8": "s8",
    "s4": "s4",
    "u4": "s4",
    "b1": "b1",
    "i8": "s8",
    "mxf4": "f4",
    "mxf4nvf4": "f4",
}


class TensorPipe(NamedTuple):
    """What computes products: an instruction, and the type of A."""

    instruction: str
    """``mma``, ``wgmma``, ``wmma``, ``tcgen05``."""
    a: str
    """The type of A; of ``tcgen05`` the kind, since only a descriptor has the type."""
    d: str
    sparse: bool

    @property
    def rate(self) -> str:
        """The row of rates of a card."""
        return _RATES.get(self.a, "f4" if self.a.endswith("m1") else "f8")

    @property
    def metric(self) -> str | None:
        """The metric that counts its operations."""
        there = self.instruction in families.TENSOR_MEMORY
        name = None if there else OPERATIONS.get(self.a)
        return None if name is None else f"sm__ops_path_tensor_src_{name}.sum"

    @property
    def operations(self) -> int:
        """Operations for each product: also those with zeros of a sparse A."""
        return 4 if self.sparse else 2

    def __str__(self) -> str:
        sparse = " sparse" if self.sparse else ""
        return " ".join(filter(None, (self.instruction, self.a, self.d))) + sparse


@cache
def multiplies(mnemonic: str) -> tuple[TensorPipe, int] | None:
    """The unit of an instruction, and the products of one execution by a warp.

    Products with a zero that a sparse A does not have are not counted.

    >>> unit, count = multiplies("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> str(unit), count
    ('mma f16 f32', 2048)
    """
    opcode = mnemonic.partition(".")[0]
    if opcode not in families.WARP_PRODUCTS | families.WARPGROUP:
        return None
    op = named(mnemonic)
    if isinstance(op, Remark) or not op.multiplies:
        return None
    m, n, k = op.shape
    unit = TensorPipe(opcode, op.a.dtype.name, op.d.dtype.name, op.sparse)
    kept = k // 2 if op.sparse else k
    return unit, m * n * kept // WARPS.get(opcode, 1)


def tensor_kind(mnemonic: str) -> str:
    """The kind of a ``tcgen05.mma``.

    >>> tensor_kind("tcgen05.mma.cta_group::1.kind::f16")
    'f16'
    """
    return next(
        each.removeprefix("kind::")
        for each in mnemonic.split(".")
        if each.startswith("kind::")
    )


def products(counts: Mapping[str, int]) -> dict[TensorPipe, int]:
    """The products of executed warp instructions.

    >>> made = products({"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64": 3})
    >>> {str(unit): count for unit, count in made.items()}
    {'mma f64 f64': 768}
    """
    found: Counter[TensorPipe] = Counter()
    for mnemonic, times in counts.items():
        one = multiplies(mnemonic)
        if one is not None:
            found[one[0]] += times * one[1]
    return dict(found)


LANE_TYPES = ("f64", "f32", "f32x2", "f16", "f16x2", "bf16", "bf16x2")
"""Types of numbers that lanes multiply."""


def lane_products(threads: Mapping[str, int]) -> dict[str, int]:
    """The products of numbers that lanes computed, by type, one of a pair for each.

    >>> lane_products({"fma.rn.f32": 64, "mul.rn.f16x2": 32, "add.f32": 32})
    {'f32': 64, 'f16': 64}
    """
    found: Counter[str] = Counter()
    for mnemonic, times in threads.items():
        opcode, _, rest = mnemonic.partition(".")
        kinds = [each for each in rest.split(".") if each in LANE_TYPES]
        if opcode in families.PRODUCTS | families.FUSED and kinds:
            kind, pair, _ = kinds[-1].partition("x2")
            found[kind] += 2 * times if pair else times
    return dict(found)
