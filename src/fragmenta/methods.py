"""What can later rooms do with an instruction, a fragment or a kernel?

``op.execute``, ``part.to_svg`` or ``kernel.verify`` read well, but what they do is
written in rooms that import :class:`Instruction`, :class:`Fragment` and
:class:`Kernel`.  So these methods are written here, as functions that open the
later room when they are called, and the classes take them over by name::

    class Fragment:
        to_svg = methods.fragment_to_svg

In the same way ``fragmenta.ptx`` takes over :func:`of_ptx`, for its names that are
written in later rooms.

No other module may import from a room above its own; ``tests/test_house.py``
reads every import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from fragmenta.cuda.tools.raw import RawKernel as RawKernel  # noqa: PLC0414
    from fragmenta.evidence.kernels import Verified
    from fragmenta.execution.compare import Compared
    from fragmenta.execution.explain import Explained
    from fragmenta.execution.summing import Summing
    from fragmenta.isa.instruction import Instruction
    from fragmenta.isa.sass import Sass
    from fragmenta.ptx.kernel import Kernel
    from fragmenta.ptx.result import Result
    from fragmenta.registers.fragment import Fragment, Words
    from fragmenta.view.timeline import Timeline


# ── of an instruction ───────────────────────────────────────────────────────


def reduce_instruction(
    self: Instruction,
) -> tuple[Callable[[str], Instruction], tuple[str]]:
    """Copies and pickles are the instruction of that name."""
    from fragmenta.isa.reading import instruction

    return instruction, (str(self),)


def execute(self: Instruction, *operands: ArrayLike, **options: Any) -> Words:
    """Registers in, registers out, bit for bit.

    See :func:`fragmenta.execution.mma.execute`, for the instructions of a
    warpgroup :func:`fragmenta.execution.wgmma.execute`, and for those with D in
    tensor memory :func:`fragmenta.execution.tcgen05.execute`.
    """
    room: Any
    if self.tensor_memory:
        from fragmenta.execution import tcgen05 as room
    elif self.warpgroup:
        from fragmenta.execution import wgmma as room
    else:
        from fragmenta.execution import mma as room
    result: Words = room.execute(self, *operands, **options)
    return result


def call(self: Instruction, *matrices: ArrayLike, **options: Any) -> NDArray[Any]:
    """Matrices in, matrix out; see :func:`fragmenta.execution.mma.call`."""
    from fragmenta.execution.mma import call

    return call(self, *matrices, **options)


def explain(self: Instruction, *matrices: ArrayLike, **options: Any) -> Explained:
    """One element of D step by step; see :mod:`fragmenta.execution.explain`."""
    from fragmenta.execution.explain import explain

    return explain(self, *matrices, **options)


def sums(self: Instruction) -> tuple[Summing, ...]:
    """How each target adds the products; see :mod:`fragmenta.execution.summing`.

    >>> import fragmenta as fm
    >>> for each in fm.mma("m16n8k16", a="f16", d="f32").sums()[:2]:
    ...     print(each)
    2 steps of 8 products; 24 bits below emax; 23 kept, toward zero; published
    1 step of 16 products; 25 bits below emax; 23 kept, toward zero; measured on H200
    """
    from fragmenta.execution.summing import sums

    return sums(self)


def sass(self: Instruction, target: str | None = None) -> Sass:
    """The machine instructions that the assembler writes for it on a target.

    See :func:`fragmenta.isa.sass.sass`; :func:`fragmenta.from_sass` is the way back.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="e4m3", d="f32")
    >>> print(op.sass("sm_89"))
    QMMA.16832.F32.E4M3.E4M3
    >>> print(op.sass("sm_90"))
    HMMA.16816.F32 x 2, and 16 others; expanded to f16
    """
    from fragmenta.isa.sass import sass

    return sass(self, target)


def to_cuda(self: Instruction, **options: Any) -> str:
    """A CUDA function around it; see :func:`fragmenta.cuda.source.emit.to_cuda`."""
    from fragmenta.cuda.source.emit import to_cuda

    return to_cuda(self, **options)


def to_ptx(self: Instruction, **options: Any) -> str:
    """A PTX module that does it; see :func:`fragmenta.cuda.source.emit.to_ptx`."""
    from fragmenta.cuda.source.emit import to_ptx

    return to_ptx(self, **options)


def on_device(self: Instruction, *operands: ArrayLike, **options: Any) -> Words:
    """As ``execute``, on the GPU; see :mod:`fragmenta.cuda.tools.launch`."""
    from fragmenta.cuda.tools.launch import on_device

    return on_device(self, *operands, **options)


def instruction_to_svg(self: Instruction) -> str:
    """A picture of all operands; see :mod:`fragmenta.view.svg`.

    Of a ``tcgen05.mma`` it is tensor memory: :mod:`fragmenta.view.tensor_memory`.
    """
    if self.tensor_memory and self.fragments:
        from fragmenta.view.tensor_memory import tensor_memory_svg

        return tensor_memory_svg(self)
    from fragmenta.view.svg import instruction_svg

    return instruction_svg(self)


# ── of a comparison ─────────────────────────────────────────────────────────


def compared_to_svg(self: Compared) -> str:
    """A plot of the mean relative error over k; see :mod:`fragmenta.view.plot`.

    >>> import fragmenta as fm
    >>> fm.compare("mma.m16n8k16.f32.f16", k=64).to_svg()[:4]
    '<svg'
    """
    from fragmenta.view.plot import error_plot

    return error_plot(self)


# ── of a fragment ───────────────────────────────────────────────────────────


def table(self: Fragment, by: str = "matrix", format: str = "text") -> str:
    """Who holds what, written out by matrix or by lane.

    ``format`` is text (cut to 80 columns), csv, markdown or json.

    >>> import fragmenta as fm
    >>> op = fm.instruction("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
    >>> for line in op.a.table().splitlines()[4:6]:
    ...     print(line)
          0  T0:a0  T1:a0  T2:a0  T3:a0
          1  T4:a0  T5:a0  T6:a0  T7:a0
    """
    from fragmenta.view.table import table

    return table(self, by, format)


def fragment_to_svg(self: Fragment) -> str:
    """A picture, lanes in colours; see :mod:`fragmenta.view.svg`.

    >>> import fragmenta as fm
    >>> fm.mma("m16n8k16", a="f16", d="f32").a.to_svg()[:4]
    '<svg'
    """
    from fragmenta.view.svg import fragment_svg

    return fragment_svg(self)


# ── of the room ptx ─────────────────────────────────────────────────────────


def of_ptx(name: str) -> Any:
    """The names of ``fragmenta.ptx`` that need a compiler: ``RawKernel``.

    >>> of_ptx("RawKernel").__name__
    'RawKernel'
    """
    if name != "RawKernel":
        raise AttributeError(f"module 'fragmenta.ptx' has no attribute {name!r}")
    from fragmenta.cuda.tools.raw import RawKernel

    return RawKernel


# ── of a launch ─────────────────────────────────────────────────────────────


def timeline(
    self: Result,
    cluster: int | None = None,
    start: int | None = None,
    stop: int | None = None,
) -> Timeline:
    """A picture of what happened in one cluster of the launch, event by event.

    Without ``cluster`` it is the one with the first problem, or else the first one.
    ``start`` and ``stop`` choose events; see :mod:`fragmenta.view.timeline`.
    """
    from fragmenta.view.timeline import timeline

    return timeline(self, cluster, start, stop)


# ── of a kernel ─────────────────────────────────────────────────────────────


def verify_kernel(
    self: Kernel, grid: Any, block: Any, arguments: Any = (), **options: Any
) -> Verified:
    """Launch it here and on the GPU, and compare every byte of every array.

    See :func:`fragmenta.evidence.kernels.verify`.
    """
    from fragmenta.evidence.kernels import verify

    return verify(self, grid, block, arguments, **options)
