"""Shared memory: tiles, descriptors, swizzles, bank conflicts, and what moves them.

tile(...), read_tile(...)     a matrix <-> an image of shared memory and its descriptor
Descriptor                    the matrix descriptor of wgmma and tcgen05.mma
ldmatrix, stmatrix            run one instruction, and movmatrix
ldmatrix_loop(...)            the instructions that move a whole tile -> MatrixLoop
suggest_swizzle(...)          swizzles without bank conflicts; XorSwizzle is one
bank_conflicts(...)           how often lanes meet in a bank
swizzle_picture(...)          a drawing

>>> import numpy as np, fragmenta as fm
>>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
>>> image, descriptor = fm.shared.tile(op, "A", np.ones((64, 16)), swizzle=32)
>>> float(fm.shared.read_tile(op, "A", image, descriptor).view(np.float16)[63, 15])
1.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.base.door import homes, opener

_HOME = homes(
    {
        "reference.shared.descriptor": "Descriptor",
        "reference.shared.addresses": "LaneAddresses",
        "reference.shared.tiles": "tile read_tile",
        "reference.shared.moves": "ldmatrix stmatrix movmatrix",
        "frontends.api.loops": "ldmatrix_loop stmatrix_loop ldmatrix_addresses "
        "stmatrix_addresses MatrixLoop suggest_swizzle",
        "reference.shared.swizzles": "XorSwizzle",
        "reference.shared.banks": "bank_conflicts",
        "inspect.view.swizzle_picture": "swizzle_picture",
    }
)
__all__ = sorted(_HOME)  # noqa: PLE0605 - the keys are strings

# The imports say to type checkers what the table says; a test holds the two together.
if TYPE_CHECKING:
    from fragmenta.frontends.api.loops import MatrixLoop as MatrixLoop
    from fragmenta.frontends.api.loops import ldmatrix_addresses as ldmatrix_addresses
    from fragmenta.frontends.api.loops import ldmatrix_loop as ldmatrix_loop
    from fragmenta.frontends.api.loops import stmatrix_addresses as stmatrix_addresses
    from fragmenta.frontends.api.loops import stmatrix_loop as stmatrix_loop
    from fragmenta.frontends.api.loops import suggest_swizzle as suggest_swizzle
    from fragmenta.inspect.view.swizzle_picture import (
        swizzle_picture as swizzle_picture,
    )
    from fragmenta.reference.shared.addresses import LaneAddresses as LaneAddresses
    from fragmenta.reference.shared.banks import bank_conflicts as bank_conflicts
    from fragmenta.reference.shared.descriptor import Descriptor as Descriptor
    from fragmenta.reference.shared.moves import ldmatrix as ldmatrix
    from fragmenta.reference.shared.moves import movmatrix as movmatrix
    from fragmenta.reference.shared.moves import stmatrix as stmatrix
    from fragmenta.reference.shared.swizzles import XorSwizzle as XorSwizzle
    from fragmenta.reference.shared.tiles import read_tile as read_tile
    from fragmenta.reference.shared.tiles import tile as tile
else:
    __getattr__ = opener(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
