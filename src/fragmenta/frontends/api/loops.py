"""Loops of ``ldmatrix`` and ``stmatrix`` as users have them, with CUDA source."""

from __future__ import annotations

from dataclasses import replace

from fragmenta.frontends.api.fragments import Fragment, public_fragment
from fragmenta.frontends.api.instructions import Instruction, kept
from fragmenta.frontends.api.returning import returning
from fragmenta.frontends.api.texts import Text
from fragmenta.reference.isa.instruction import Instruction as Record
from fragmenta.reference.shared import loops, matrix_loop, suggestions
from fragmenta.reference.shared.addresses import LaneAddresses
from fragmenta.reference.shared.suggestions import Suggestions


class MatrixLoop(matrix_loop.MatrixLoop):
    """The instructions that move a tile between shared memory and registers.

    :func:`fragmenta.shared.ldmatrix_loop` and
    :func:`fragmenta.shared.stmatrix_loop` make it.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> loop = fm.shared.ldmatrix_loop(op, "B", tile=(64, 64), order="col", swizzle=128)
    >>> print(loop)
    16 ldmatrix.sync.aligned.m8n8.x4.b16: k 4, n 4
    B: 64 x 64 f16, column-major, columns 128 bytes apart, 128-byte swizzle
    row = U0 U1 U2 L3 k0 k1  col = L0 L1 L2 L4 n0 n1
    no bank conflicts: 64 turns for 64 phases of 16 instructions
    >>> loop.addresses.shape, loop.addresses[0, 1, :3].tolist()
    ((4, 4, 32), [2048, 2192, 2336])
    """

    @property
    def op(self) -> Instruction:
        """The instruction that multiplies."""
        return kept(self.tiles.op)

    @property
    def part(self) -> Fragment:
        """The fragment of one operand."""
        return public_fragment(self.tiles.part)

    @property
    def move(self) -> Instruction:
        """The ``ldmatrix`` or ``stmatrix``, the same in all steps."""
        return kept(self.group.move)

    def to_cuda(self, name: str | None = None, *, after: str = "") -> Text:
        """A CUDA function that does the loop, with the small functions that it calls.

        Those that the source ``after`` which it is written already has are left out.
        See :func:`fragmenta.cuda.source.loops.to_cuda`.

        >>> import fragmenta as fm
        >>> op = fm.mma("m16n8k16", a="f16", d="f32")
        >>> loop = fm.shared.ldmatrix_loop(op, "A", tile=(64, 32), order="row")
        >>> "load_a(" in loop.to_cuda("load_a")
        True
        """
        from fragmenta.cuda.source.loops import to_cuda

        return Text(to_cuda(self, name, after=after))


def _addressed(
    found: tuple[Record, LaneAddresses],
) -> tuple[Instruction, LaneAddresses]:
    return kept(found[0]), found[1]


def _suggested(found: Suggestions) -> Suggestions:
    each = (replace(one, loop=MatrixLoop.of(one.loop)) for one in found.found)
    return replace(found, found=tuple(each))


_PAIR = "tuple[Instruction, LaneAddresses]"
ldmatrix_loop = returning(loops.ldmatrix_loop, MatrixLoop.of, "MatrixLoop", __name__)
stmatrix_loop = returning(loops.stmatrix_loop, MatrixLoop.of, "MatrixLoop", __name__)
ldmatrix_addresses = returning(loops.ldmatrix_addresses, _addressed, _PAIR, __name__)
stmatrix_addresses = returning(loops.stmatrix_addresses, _addressed, _PAIR, __name__)
suggest_swizzle = returning(
    suggestions.suggest_swizzle, _suggested, "Suggestions", __name__
)
