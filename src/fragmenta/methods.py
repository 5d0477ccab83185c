"""What can later rooms do with an instruction, a fragment or a kernel?

``op.execute``, ``part.to_svg`` or ``kernel.verify`` read well, but what they do is
written in rooms that import :class:`Instruction`, :class:`Fragment` and
:class:`Kernel`.  So these methods are written here, as functions that open the
later room when they are called, and the classes take them over by name::

    class Fragment:
        to_svg = methods.fragment_to_svg

No other module may import from a room above its own; ``tests/test_house.py``
reads every import.
"""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from fragmenta.evidence.kernels import Verified
    from fragmenta.execution.compare import Compared
    from fragmenta.execution.summing import Summing
    from fragmenta.execution.tcgen05 import Address
    from fragmenta.isa.instruction import Instruction
    from fragmenta.isa.sass import Sass
    from fragmenta.launch.kernel import Kernel
    from fragmenta.launch.result import Result
    from fragmenta.registers.fragment import Fragment, Words
    from fragmenta.registers.tensor import Image, TensorAddress
    from fragmenta.shared.descriptor import Descriptor
    from fragmenta.shared.matrix_loop import MatrixLoop
    from fragmenta.shared.zero_columns import ZeroColumnMask
    from fragmenta.view.timeline import Timeline


# ── methods of later rooms ──────────────────────────────────────────────────


class Late:
    """A method that a later room does: the room is opened when it is asked for.

    ``find`` returns the function, which takes the instruction as its first argument.
    """

    def __init__(self, find: Callable[[Instruction | None], Any]) -> None:
        self.find = find
        self.__doc__ = find.__doc__
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, op: Instruction | None, owner: type) -> Any:
        if op is None:
            return self.of_class()
        found = vars(op).get(self.name)
        if found is None:  # kept in the instruction, where Python looks first
            found = vars(op)[self.name] = MethodType(self.of_one(op), op)
        return found

    def of_class(self) -> Any:
        """The method as the class has it."""
        return self.find(None)

    def of_one(self, op: Instruction) -> Any:
        """The function that one instruction has as its method."""
        return self.find(op)


class Fitted(Late):
    """A method whose arguments depend on the instruction.

    Its signature and its help are made for each: :mod:`fragmenta.isa.calling`.  For the
    class, ``find`` returns all functions that may do it.
    """

    _general: Any = None

    def of_class(self) -> Any:
        """A function with the arguments of all instructions; made once."""
        if self._general is not None:
            return self._general
        from fragmenta.isa.calling import general

        made = general(self.name, self.find(None), self.__doc__ or "")
        # All threads get the function that was kept first.
        return vars(self).setdefault("_general", made)

    def of_one(self, op: Instruction) -> Any:
        """A function with the arguments of this instruction."""
        from fragmenta.isa.calling import method

        return method(op, self.find(op), self.name)


# ── of an instruction ───────────────────────────────────────────────────────


def reduce_instruction(
    self: Instruction,
) -> tuple[Callable[[str], Instruction], tuple[str]]:
    """Copies and pickles are the instruction of that name."""
    from fragmenta.isa.reading import instruction

    return instruction, (str(self),)


if TYPE_CHECKING:

    @overload
    def execute(
        op: Instruction,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike,
        *,
        metadata: ArrayLike | None = None,
        selector: int = 0,
        scale_a: ArrayLike | None = None,
        scale_b: ArrayLike | None = None,
        byte_a: int = 0,
        thread_a: int = 0,
        byte_b: int = 0,
        thread_b: int = 0,
        target: str | None = None,
    ) -> Words: ...
    @overload
    def execute(
        op: Instruction,
        d: ArrayLike,
        a: ArrayLike | Descriptor,
        b: ArrayLike | Descriptor,
        *,
        smem: ArrayLike,
        metadata: ArrayLike | None = None,
        selector: int = 0,
        scale_d: ArrayLike = 1,
        scale_a: int = 1,
        scale_b: int = 1,
        trans_a: int = 0,
        trans_b: int = 0,
        target: str | None = None,
    ) -> Words: ...
    @overload
    def execute(
        op: Instruction,
        tmem: ArrayLike,
        a: ArrayLike | Descriptor | TensorAddress,
        b: ArrayLike | Descriptor,
        *,
        smem: ArrayLike,
        d: Address = 0,
        enable_input_d: ArrayLike = 1,
        scale_input_d: int | None = None,
        disable_output_lane: ArrayLike | None = None,
        scale_a: Address | None = None,
        scale_b: Address | None = None,
        metadata: Address | None = None,
        zero_column_mask: int | ZeroColumnMask | None = None,
        target: str | None = None,
    ) -> Image: ...
    @overload
    def execute(op: Instruction, image: ArrayLike, addresses: ArrayLike) -> Words: ...
    @overload
    def execute(
        op: Instruction, image: ArrayLike, addresses: ArrayLike, registers: ArrayLike
    ) -> Image: ...
    @overload
    def execute(op: Instruction, registers: ArrayLike) -> Words: ...
    def execute(op: Instruction, *operands: Any, **options: Any) -> Any:
        """What type checkers see; what runs is below."""

else:

    @Fitted
    def execute(op):
        """Registers in, registers out, bit for bit.

        The operands and their order depend on the instruction::

            d = op.execute(a, b, c)                             mma, wmma.mma
            d = op.execute(a, b, c, metadata=…)                 mma.sp
            d = op.execute(d, a, b, smem=…)                     wgmma
            tmem = op.execute(tmem, a, b, smem=…)               tcgen05.mma
            registers = op.execute(image, addresses)            ldmatrix
            image = op.execute(image, addresses, registers)     stmatrix
            registers = op.execute(registers)                   movmatrix

        ``help(op.execute)`` shows the call of one instruction, with all that it takes.

        >>> import inspect, fragmenta as fm
        >>> op = fm.mma("m16n8k64", a="s4", sp="sp")
        >>> print(inspect.signature(op.execute))
        (a, b, c, *, metadata, selector=0, target=None)
        """
        from fragmenta.execution.mma import execute, refuse
        from fragmenta.execution.tcgen05 import execute as in_tensor_memory
        from fragmenta.execution.wgmma import execute as of_warpgroup
        from fragmenta.shared.moves import ldmatrix, movmatrix, stmatrix

        if op is None:
            return execute, of_warpgroup, in_tensor_memory
        if op.tensor_memory:
            return in_tensor_memory
        families = {
            **dict.fromkeys(("mma", "mma.sp", "wmma.mma"), execute),
            **dict.fromkeys(("wgmma", "wgmma.sp"), of_warpgroup),
            "ldmatrix": ldmatrix,
            "stmatrix": stmatrix,
            "movmatrix": movmatrix,
        }
        return families.get(op.family, refuse)


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


if TYPE_CHECKING:
    from fragmenta.cuda.source.emit import to_cuda as to_cuda  # noqa: PLC0414
    from fragmenta.cuda.source.emit import to_ptx as to_ptx  # noqa: PLC0414
    from fragmenta.cuda.tools.launch import on_device as on_device  # noqa: PLC0414
    from fragmenta.execution.explain import explain as explain  # noqa: PLC0414
    from fragmenta.execution.mma import call as call  # noqa: PLC0414
else:

    @Fitted
    def call(op):
        """Matrices in, matrix out: D = A B + C, bit for bit.

        See :func:`fragmenta.execution.mma.call`.

        >>> import inspect, fragmenta as fm, numpy as np
        >>> op = fm.mma("m16n8k32", a="s8")
        >>> print(inspect.signature(op.__call__))
        (A, B, C=None, *, target=None)
        >>> int(op(np.ones((16, 32), np.int8), np.ones((32, 8), np.int8))[3, 5])
        32
        """
        from fragmenta.execution.mma import call

        return (call,) if op is None else call

    @Fitted
    def explain(op):
        """One element of D step by step; see :mod:`fragmenta.execution.explain`."""
        from fragmenta.execution.explain import explain

        return (explain,) if op is None else explain

    @Late
    def to_cuda(op):
        """A CUDA function around it; see :func:`fragmenta.cuda.source.emit.to_cuda`."""
        from fragmenta.cuda.source.emit import to_cuda

        return to_cuda

    @Late
    def to_ptx(op):
        """A PTX module that does it; see :func:`fragmenta.cuda.source.emit.to_ptx`."""
        from fragmenta.cuda.source.emit import to_ptx

        return to_ptx

    @Fitted
    def on_device(op):
        """As ``execute``, on the GPU; see :mod:`fragmenta.cuda.tools.launch`."""
        from fragmenta.cuda.tools.launch import on_device

        return (on_device,) if op is None else on_device


def instruction_to_svg(self: Instruction) -> str:
    """A picture of all operands; see :mod:`fragmenta.view.svg`.

    Of a ``tcgen05.mma`` it is tensor memory: :mod:`fragmenta.view.tensor_memory`.
    """
    if self.tensor_memory and self.fragments:
        from fragmenta.view.tensor_memory import tensor_memory_svg

        return tensor_memory_svg(self)
    from fragmenta.view.svg import instruction_svg

    return instruction_svg(self)


# ── of a loop of ldmatrix ──────────────────────────────────────────────────


def loop_to_cuda(self: MatrixLoop, name: str | None = None, *, after: str = "") -> str:
    """A CUDA function that does the loop, with the small functions that it calls.

    Those that the source ``after`` which it is written already has are left out.  See
    :func:`fragmenta.cuda.source.loops.to_cuda`.
    """
    from fragmenta.cuda.source.loops import to_cuda

    return to_cuda(self, name, after=after)


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
