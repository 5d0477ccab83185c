"""Metadata of a sparse A in tensor memory: which cells hold which codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadMetadata
from fragmenta.reference.registers.granularity import Codes, as_codes
from fragmenta.reference.registers.metadata import Metadata, Nibble
from fragmenta.reference.registers.tensor_fragment import (
    Image,
    TensorAddress,
    TensorFragment,
)


@dataclass(frozen=True, repr=False)
class TensorMetadata(Metadata):
    """Sparsity metadata in tensor memory: one code for each row and chunk.

    >>> import fragmenta as fm
    >>> e = fm.tcgen05("m128n64k32", a="f16", d="f32", sp=True).metadata
    >>> image = e.pack(np.full((128, 8), 0b0100), address=6)
    >>> hex(image[0, 6]), e.unpack(image, address=6).shape
    ('0x44444444', (128, 8))
    """

    def pack(  # type: ignore[override]
        self,
        matrix: ArrayLike,
        *,
        address: int | TensorAddress = 0,
        image: ArrayLike | None = None,
    ) -> Image:
        """An image of tensor memory with the codes (…, rows, chunks) in it."""
        codes = self.fragment._matrix(as_codes(matrix))
        self._check_codes(codes, address)
        found: Image = self._cells.pack(codes, address=address, image=image)
        return found

    def unpack(  # type: ignore[override]
        self, image: ArrayLike, *, address: int | TensorAddress = 0
    ) -> Array:
        """The codes in an image of tensor memory; illegal codes are refused."""
        codes: Codes = self._cells.unpack_bits(image, address=address)
        self._check_codes(codes, address)
        return codes

    @property
    def _cells(self) -> TensorFragment:
        assert isinstance(self.fragment, TensorFragment)
        return self.fragment

    def decode(self, words: ArrayLike, *, lane: int = 0, warp: int = 0) -> list[Nibble]:
        """Refused: codes are read from an image, with :meth:`unpack`."""
        raise BadMetadata(
            "this metadata is in tensor memory: unpack an image of it, with its address"
        )

    def _check_codes(self, codes: Codes, address: int | TensorAddress) -> None:
        """Refuse illegal codes; name the cell of the first."""
        wrong = self.granularity.illegal(codes, self.ordered)
        if not wrong.any():
            return
        found = np.unravel_index(int(wrong.argmax()), wrong.shape)
        *batch, row, chunk = (int(i) for i in found)
        cell = self._cells.where(row, chunk, address=address)
        tile = f" of tile {batch}" if batch else ""
        where = f"{cell} (row {row}, chunk {chunk}{tile})"
        code, count = int(codes[found]), int(wrong.sum())
        raise self.granularity.refusal(where, code, self.ordered, count)
