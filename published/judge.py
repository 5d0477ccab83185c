"""Calls MMA-Sim, with operands in its own formats.

MMA-Sim 2.1.1 takes PyTorch's own types where there are any.  Other elements come
as bytes: one fp6 or fp4 to a byte for ``.kind::f8f6f4`` and ``.kind::mxf8f6f4``,
fp6 in bits 5 to 0 and fp4 in bits 5 to 2 (as the registers hold them); two fp4
to a byte for ``.kind::mxf4`` and ``.kind::mxf4nvf4``, the first in the high
bits.  B is K x N; the scales are M x blocks and blocks x N.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from survey import Row

from fragmenta.reference.registers.dtype import dtype

# MMA-Sim compiles its fused multiply-add with OpenMP and does not link to it.
ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)

from mmasim import nv_ptx  # noqa: E402
from mmasim.nv_ptx import isa_mma, isa_tcgen05mma, isa_wgmma  # noqa: E402

Bits = NDArray[Any]

VERSION = version("mmasim")

NAMES: dict[str, dict[str, list[str]]] = {
    "MMA": isa_mma.mma_shape_and_type,
    "MMABlockScale": isa_mma.mma_block_scale_shape_and_type,
    "WGMMA": isa_wgmma.wgmma_shape_and_type,
    "TCGen05MMA": isa_tcgen05mma.tcgen05mma_shape_and_type,
    "TCGen05MMABlockScale": isa_tcgen05mma.tcgen05mma_block_scale_shape_and_type,
}

_TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "tf32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "ue8m0": torch.float8_e8m0fnu,
    "ue4m3": torch.float8_e4m3fn,
}
_SIGNED = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


@cache
def _names(unit: str, architecture: str) -> frozenset[str]:
    return frozenset(NAMES.get(unit, {}).get(architecture, ()))


def known(unit: str, architecture: str, name: str) -> bool:
    """Whether MMA-Sim has an instruction on an architecture."""
    return name in _names(unit, architecture)


def every_name() -> list[tuple[str, str, str]]:
    """All that MMA-Sim has for NVIDIA's targets."""
    return [
        (unit, architecture, name)
        for unit, by_architecture in NAMES.items()
        for architecture, names in by_architecture.items()
        for name in names
    ]


class Judge:
    """MMA-Sim's model of the instructions of a row."""

    def __init__(self, row: Row) -> None:
        made = [getattr(nv_ptx, row.unit)(row.architecture, name) for name in row.names]
        self.types = {key: row.instructions[0].values.get(key) for key in "abd"}
        self.scale = row.model.scale
        self.instruction = made[0]
        self.packed = getattr(made[0], "packing", 1) == 2
        # The width is no part of its arithmetic: else one could not stand for all.
        if any(_numbers(each) != _numbers(made[0]) for each in made):
            raise AssertionError(f"MMA-Sim computes {row.id} in several ways")

    def matrix(self, a: Bits, b: Bits, c: Bits, scales: tuple[Bits, ...] = ()) -> Bits:
        """D of single matrices, through the door that MMA-Sim documents."""
        A = self._feed(a, str(self.types["a"]))
        B = self._feed(b.T, str(self.types["b"])).T
        more = [_tensor(each, str(self.scale)) for each in scales]
        return _bits(self.instruction(A, B, self._accumulators(c), *more))

    def batch(self, a: Bits, b: Bits, c: Bits, scales: tuple[Bits, ...] = ()) -> Bits:
        """D of a batch: each row of A with each column of B, as vectors."""
        return _bits(self.instruction.dpa(*self.vectors(a, b, c, scales)))

    def vectors(
        self, a: Bits, b: Bits, c: Bits, scales: tuple[Bits, ...] = ()
    ) -> list[torch.Tensor]:
        """What MMA-Sim's function of vectors takes."""
        rows, columns = c.shape[-2:]
        A = _across(self._feed(a, str(self.types["a"])), columns)
        B = _down(self._feed(b.swapaxes(-1, -2), str(self.types["b"])), rows)
        given = [A, B, self._accumulators(c)]
        if scales:
            alpha, beta = scales[0], scales[1].swapaxes(-1, -2)
            given.append(_across(_tensor(alpha, str(self.scale)), columns))
            given.append(_down(_tensor(beta, str(self.scale)), rows))
        return given

    def _accumulators(self, c: Bits) -> torch.Tensor:
        # A copy: some of MMA-Sim's functions write into what they are given.
        return _tensor(
            c.copy(), "f16" if c.dtype == np.uint16 else str(self.types["d"])
        )

    def _feed(self, bits: Bits, name: str) -> torch.Tensor:
        """A or B with k along the last axis, in MMA-Sim's own format."""
        if name in _TORCH:
            return self.whole(_tensor(bits, name))
        if self.packed:
            bits = bits[..., 0::2] << 4 | bits[..., 1::2]
        elif dtype(name).bits == 4:
            bits = bits << 2
        return self.whole(torch.from_numpy(np.ascontiguousarray(bits)))

    def whole(self, fed: torch.Tensor) -> torch.Tensor:
        """The operand, if it has as many values as the instruction has k.

        MMA-Sim does not check: two fp4 values fed in two bytes, not one, are four
        values to it, every second one a zero.
        """
        k = fed.shape[-1] * (2 if self.packed else 1)
        if k != self.instruction.k:
            raise AssertionError(f"fed {k} values along k, not {self.instruction.k}")
        return fed


def _numbers(instruction: Any) -> tuple[str, dict[str, Any]]:
    used = instruction.arithmetic_op
    return type(used).__name__, vars(used)


def _tensor(bits: Bits, name: str) -> torch.Tensor:
    signed = np.ascontiguousarray(bits).view(_SIGNED[bits.dtype.itemsize])
    return torch.from_numpy(signed).view(_TORCH[name])


def _across(vectors: torch.Tensor, columns: int) -> torch.Tensor:
    shape = (*vectors.shape[:-1], columns, vectors.shape[-1])
    return vectors.unsqueeze(-2).expand(shape)


def _down(vectors: torch.Tensor, rows: int) -> torch.Tensor:
    shape = (*vectors.shape[:-2], rows, *vectors.shape[-2:])
    return vectors.unsqueeze(-3).expand(shape)


def _bits(result: torch.Tensor) -> Bits:
    size = result.element_size()
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return result.contiguous().view(whole).numpy().view(f"u{size}")
