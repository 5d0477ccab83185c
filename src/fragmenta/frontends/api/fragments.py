"""Fragments as users have them: places and packing, and also tables and pictures."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, overload

from fragmenta.frontends.api.texts import Svg, Text
from fragmenta.reference.registers import fragment, tensor_fragment

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class Fragment(fragment.Fragment):
    """One operand of one instruction, spread over lanes and registers.

    >>> import fragmenta as fm
    >>> a = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32").a
    >>> a
    <Fragment A: s4 16x64, row = L2 L3 L4 R0  col = E0 E1 E2 L0 L1 R1>
    >>> a.where(3, 17)
    Place(lane=14, register=0, bits=(4, 7), warp=None)
    """

    def table(self, by: str = "matrix", format: str = "text") -> Text:
        """Who holds what, written out by matrix or by lane.

        ``format`` is text (cut to 80 columns), csv, markdown or json.

        >>> import fragmenta as fm
        >>> op = fm.instruction("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
        >>> for line in op.a.table().splitlines()[4:6]:
        ...     print(line)
              0  T0:a0  T1:a0  T2:a0  T3:a0
              1  T4:a0  T5:a0  T6:a0  T7:a0
        """
        from fragmenta.inspect.view.table import table

        return Text(table(self, by, format))

    def to_svg(self, values: ArrayLike | None = None) -> Svg:
        """A picture, lanes in colours; see :mod:`fragmenta.inspect.view.svg`.

        ``values`` are drawn in the cells: an array in the shape of the fragment.  For
        ``op.metadata`` they are codes, which are drawn in binary.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k16", a="f16", d="f32").a.to_svg()[:4]
        '<svg'
        >>> e = fm.mma("m16n8k64", a="s4", sp="sp").metadata
        >>> picture = e.to_svg([[0b0100] * 8] * 16)
        >>> "metadata[3, 2]: lane 12, register 0, bits 11:8, e2 = 0100" in picture
        True
        """
        from fragmenta.inspect.view.svg import fragment_svg

        return Svg(fragment_svg(self, values))

    def _repr_svg_(self) -> str:
        return self.to_svg()


class TensorFragment(Fragment, tensor_fragment.TensorFragment):
    """One operand of one instruction, in tensor memory.

    >>> import fragmenta as fm
    >>> d = fm.tcgen05("m64n32k16", a="f16", d="f32").d
    >>> print(d.where(17, 3))
    lane 33, column 3, bits 31:0
    >>> print(d.where(17, 3, address=16 << 16))
    lane 49, column 3, bits 31:0
    """


@overload
def public_fragment(part: tensor_fragment.TensorFragment) -> TensorFragment: ...
@overload
def public_fragment(part: fragment.Fragment) -> Fragment: ...
@lru_cache(maxsize=4096)  # many instructions share a fragment, and what it computed
def public_fragment(part: fragment.Fragment) -> Fragment:
    """The fragment as users have it.

    >>> from fragmenta.reference.isa.building import mma
    >>> part = mma("m16n8k16", a="f16", d="f32").a
    >>> hasattr(part, "to_svg"), hasattr(public_fragment(part), "to_svg")
    (False, True)
    """
    if isinstance(part, tensor_fragment.TensorFragment):
        return TensorFragment.of(part)
    return Fragment.of(part)
