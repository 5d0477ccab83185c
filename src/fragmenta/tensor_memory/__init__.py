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

An image of tensor memory is a NumPy array, uint32 (…, 128 lanes, 512 columns).

>>> import numpy as np, fragmenta as fm
>>> op = fm.tcgen05("m128n64k16", a="f16", d="f32")
>>> D = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
>>> image = op.d.pack(D, address=32)
>>> registers = fm.tensor_memory.load(
...     image, "tcgen05.ld.sync.aligned.32x32b.x64.b32", address=32
... )
>>> bool((registers.view(np.float32) == D).all())
True

No GPU was at hand that has these instructions.  The maps are those of the PTX manual,
on which independent implementations agree.  What is not known is refused with that
reason.
"""

from typing import TYPE_CHECKING

from fragmenta.door import homes, opener
from fragmenta.tensor_memory.allocator import Allocator
from fragmenta.tensor_memory.copying import copy, expanded
from fragmenta.tensor_memory.moves import load, reduce, shift, store
from fragmenta.tensor_memory.reach import base_lanes, reach, reached
from fragmenta.tensor_memory.scales import scale_blocks, scale_matrix

if TYPE_CHECKING:
    from fragmenta.api.tensor_memory import copies, scale_copy
else:
    __getattr__ = opener(__name__, homes({"api.tensor_memory": "copies scale_copy"}))

__all__ = [
    "Allocator",
    "base_lanes",
    "copies",
    "copy",
    "expanded",
    "load",
    "reach",
    "reached",
    "reduce",
    "scale_blocks",
    "scale_copy",
    "scale_matrix",
    "shift",
    "store",
]
