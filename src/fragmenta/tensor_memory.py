"""What is where in tensor memory.

Tensor memory holds the accumulators of ``tcgen05.mma``, and may hold A, its metadata
and the scales.  The operands themselves are fragments of an instruction (``op.d``,
``op.scale_a`` …).  Here is what brings data to them and fetches it:

- :func:`load` and :func:`store`: ``tcgen05.ld`` and ``.st``, from and to registers.
  :func:`reduce` is the one more register of ``ld.red``.  :func:`reach` says which lanes
  a warp reaches.
- :func:`copy`: ``tcgen05.cp``, from shared memory; :func:`copies` is its map.
- :func:`scale_blocks` and :func:`scale_matrix`: scale factors in the order in which
  cuBLAS has them in memory; :func:`scale_copy` says which copy moves them.
- :class:`Allocator`: the rules of ``tcgen05.alloc``.
- :class:`TensorAddress`, :class:`Cell`: places.  :class:`InstructionDescriptor` and
  :class:`ZeroColumnMask` are arguments of ``tcgen05.mma``.

An image of tensor memory is a NumPy array, uint32 (…, 128 lanes, 512 columns).

>>> import numpy as np, fragmenta as fm
>>> op = fm.tcgen05("m128n64k16", a="f16", d="f32")
>>> D = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
>>> image = op.d.pack(D, address=32)
>>> registers = fm.tensor_memory.load(
...     "tcgen05.ld.sync.aligned.32x32b.x64.b32", image, address=32
... )
>>> bool((registers.view(np.float32) == D).all())
True

No GPU was at hand that has these instructions.  The maps are those of the PTX manual,
on which independent implementations agree.  What is not known is refused with that
reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.base.door import homes, opener

_HOME = homes(
    {
        "reference.tensor_memory.allocator": "Allocator",
        "reference.tensor_memory.copying": "copy expanded",
        "reference.tensor_memory.moves": "load reduce shift store",
        "reference.tensor_memory.reaching": "base_lanes reach reached",
        "reference.tensor_memory.scales": "scale_blocks scale_matrix",
        "frontends.api.tensor_memory": "copies scale_copy",
        "frontends.api.fragments": "TensorFragment",
        "reference.registers.tensor_fragment": "Cell TensorAddress",
        "reference.isa.instruction_descriptor": "InstructionDescriptor",
        "reference.shared.zero_columns": "ZeroColumnMask",
    }
)
__all__ = sorted(_HOME)  # noqa: PLE0605 - the keys are strings

# The imports say to type checkers what the table says; a test holds the two together.
if TYPE_CHECKING:
    from fragmenta.frontends.api.fragments import TensorFragment as TensorFragment
    from fragmenta.frontends.api.tensor_memory import copies as copies
    from fragmenta.frontends.api.tensor_memory import scale_copy as scale_copy
    from fragmenta.reference.isa.instruction_descriptor import (
        InstructionDescriptor as InstructionDescriptor,
    )
    from fragmenta.reference.registers.tensor_fragment import Cell as Cell
    from fragmenta.reference.registers.tensor_fragment import (
        TensorAddress as TensorAddress,
    )
    from fragmenta.reference.shared.zero_columns import ZeroColumnMask as ZeroColumnMask
    from fragmenta.reference.tensor_memory.allocator import Allocator as Allocator
    from fragmenta.reference.tensor_memory.copying import copy as copy
    from fragmenta.reference.tensor_memory.copying import expanded as expanded
    from fragmenta.reference.tensor_memory.moves import load as load
    from fragmenta.reference.tensor_memory.moves import reduce as reduce
    from fragmenta.reference.tensor_memory.moves import shift as shift
    from fragmenta.reference.tensor_memory.moves import store as store
    from fragmenta.reference.tensor_memory.reaching import base_lanes as base_lanes
    from fragmenta.reference.tensor_memory.reaching import reach as reach
    from fragmenta.reference.tensor_memory.reaching import reached as reached
    from fragmenta.reference.tensor_memory.scales import scale_blocks as scale_blocks
    from fragmenta.reference.tensor_memory.scales import scale_matrix as scale_matrix
else:
    __getattr__ = opener(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
