"""``nvcuda::wmma`` of CUDA C++, executed.

The names, arguments and rules are those of ``nvcuda::wmma`` in the CUDA C++
programming guide.  So a kernel can be tried line by line on the CPU::

    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::load_matrix_sync(a, A + 256, 16);

    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
    wmma.load_matrix_sync(a, wmma.pointer(A) + 256, 16)
    wmma.load_matrix_sync(a, A, 16, offset=256)

Memory is a NumPy array.  ``wmma.pointer(A) + n`` counts items of the array, as
``A + n`` does in C++; ``offset=n`` counts elements of the fragment.  Both are the same,
except for 4-bit and 1-bit elements, because several of them share an item of A.

What the guide forbids is an error here.  The guide does not specify which element a
fragment has where; here it is the order observed on sm_90, for every target.  The
numbers are those of the target: sm_90, or the one given by
``with wmma.target("sm_80"):`` or by ``target=`` of a call.

One object is the fragments of a whole warp, or of many warps at once: ``x`` is
(…warps, 32 lanes, storage elements).

:func:`mma` builds the PTX instruction ``wmma.mma`` from its qualifiers, as ``fm.mma``
and ``fm.wgmma`` build theirs.  ``wmma`` itself cannot be called: it is a namespace, as
in C++ and in PTX, which also has ``wmma.load`` and ``wmma.store``.

>>> import numpy as np
>>> from fragmenta import wmma
>>> str(wmma.mma("m16n16k16", a="f16", d="f32"))
'wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32'
>>> a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
>>> b = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.col_major)
>>> c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
>>> A = np.arange(256, dtype=np.float16)
>>> wmma.load_matrix_sync(a, A, 16)
>>> wmma.fill_fragment(b, 2.0)
>>> wmma.fill_fragment(c, 0.5)
>>> wmma.mma_sync(c, a, b, c)
>>> D = np.zeros((16, 16), np.float32)
>>> wmma.store_matrix_sync(D, c, 16, wmma.mem_row_major)
>>> D[1, :3], bool((D == 2 * A.reshape(16, 16).sum(1, np.float32)[:, None] + 0.5).all())
(array([752.5, 752.5, 752.5], dtype=float32), True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.base.door import homes, opener

_HOME = homes(
    {
        "errors": "AlignmentError OutOfBounds",
        "reference.wmma.calls": "DeprecatedVariant __float_to_tf32 bmma_sync "
        "fill_fragment float_to_tf32 load_matrix_sync mma_sync store_matrix_sync",
        "reference.wmma.fragments": "ObservedLayout fragment",
        "reference.wmma.memory": "pointer",
        "reference.wmma.names": "__half __nv_bfloat16 accumulator col_major double "
        "experimental half layout_t matrix_a matrix_b mem_col_major mem_row_major "
        "nv_bfloat16 precision row_major signed_char target unsigned_char",
        "frontends.api.wmma": "mma",
    }
)
__all__ = sorted(_HOME)  # noqa: PLE0605 - the keys are strings

# The imports say to type checkers what the table says; a test holds the two together.
if TYPE_CHECKING:
    from fragmenta.errors import AlignmentError as AlignmentError
    from fragmenta.errors import OutOfBounds as OutOfBounds
    from fragmenta.frontends.api.wmma import mma as mma
    from fragmenta.reference.wmma.calls import DeprecatedVariant as DeprecatedVariant
    from fragmenta.reference.wmma.calls import __float_to_tf32 as __float_to_tf32
    from fragmenta.reference.wmma.calls import bmma_sync as bmma_sync
    from fragmenta.reference.wmma.calls import fill_fragment as fill_fragment
    from fragmenta.reference.wmma.calls import float_to_tf32 as float_to_tf32
    from fragmenta.reference.wmma.calls import load_matrix_sync as load_matrix_sync
    from fragmenta.reference.wmma.calls import mma_sync as mma_sync
    from fragmenta.reference.wmma.calls import store_matrix_sync as store_matrix_sync
    from fragmenta.reference.wmma.fragments import ObservedLayout as ObservedLayout
    from fragmenta.reference.wmma.fragments import fragment as fragment
    from fragmenta.reference.wmma.memory import pointer as pointer
    from fragmenta.reference.wmma.names import __half as __half
    from fragmenta.reference.wmma.names import __nv_bfloat16 as __nv_bfloat16
    from fragmenta.reference.wmma.names import accumulator as accumulator
    from fragmenta.reference.wmma.names import col_major as col_major
    from fragmenta.reference.wmma.names import double as double
    from fragmenta.reference.wmma.names import experimental as experimental
    from fragmenta.reference.wmma.names import half as half
    from fragmenta.reference.wmma.names import layout_t as layout_t
    from fragmenta.reference.wmma.names import matrix_a as matrix_a
    from fragmenta.reference.wmma.names import matrix_b as matrix_b
    from fragmenta.reference.wmma.names import mem_col_major as mem_col_major
    from fragmenta.reference.wmma.names import mem_row_major as mem_row_major
    from fragmenta.reference.wmma.names import nv_bfloat16 as nv_bfloat16
    from fragmenta.reference.wmma.names import precision as precision
    from fragmenta.reference.wmma.names import row_major as row_major
    from fragmenta.reference.wmma.names import signed_char as signed_char
    from fragmenta.reference.wmma.names import target as target
    from fragmenta.reference.wmma.names import unsigned_char as unsigned_char
else:
    __getattr__ = opener(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
