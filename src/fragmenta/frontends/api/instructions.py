"""Instructions as users have them, one class for each unit.

Mma          mma, mma.sp, wmma.mma      registers of one warp
Wgmma        wgmma, wgmma.sp            registers of a warpgroup, shared memory
TensorMma    tcgen05.mma                tensor memory, shared memory
LdMatrix     ldmatrix                   from shared memory to registers
StMatrix     stmatrix                   from registers to shared memory
MovMatrix    movmatrix                  registers
Instruction  all others                 they cannot be executed alone
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fragmenta.errors import Error
from fragmenta.frontends.api import calls
from fragmenta.frontends.api.calls import checked
from fragmenta.frontends.api.fragments import Fragment, public_fragment
from fragmenta.frontends.api.texts import Svg, Text
from fragmenta.reference.isa import instruction as records
from fragmenta.reference.isa import searching

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from fragmenta.cuda.tools.device import GPU
    from fragmenta.reference.execution.explain import Explained
    from fragmenta.reference.execution.summing import Summing
    from fragmenta.reference.execution.tcgen05 import Address
    from fragmenta.reference.isa.sass import Sass
    from fragmenta.reference.registers.fragment import Words
    from fragmenta.reference.registers.tensor_fragment import Image, TensorAddress
    from fragmenta.reference.shared.descriptor import Descriptor
    from fragmenta.reference.shared.tiles import Image as Bytes
    from fragmenta.reference.shared.zero_columns import ZeroColumnMask
    from fragmenta.reference.sparse.compression import Compressed


class Instruction(records.Instruction):
    """One Tensor Core instruction.

    >>> import fragmenta as fm
    >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    >>> op.shape, str(op.requires)
    (Shape(m=16, n=8, k=64), 'PTX 7.0, sm_80+')
    >>> op.supported_on("sm_90a"), op.supported_on("sm_75")
    (True, False)
    """

    def __reduce__(self) -> tuple[Callable[[str], Instruction], tuple[str]]:
        return instruction, (str(self),)

    # ── its operands ────────────────────────────────────────────────────────

    @cached_property
    def fragments(self) -> Mapping[str, Fragment]:
        """Every operand that is spread over registers, by name."""
        parts = self.form.parts(self)
        made = {name: public_fragment(part) for name, part in parts.items()}
        return MappingProxyType(made)

    def fragment(self, name: str) -> Fragment:
        """The operand of a name, in any case.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k16", a="f16", d="f32").fragment("b").shape
        (16, 8)
        """
        return public_fragment(super().fragment(name))

    @property
    def a(self) -> Fragment:
        """Multiplicand A: m x k, or its stored m x k/2 when sparse."""
        return self.fragment("A")

    @property
    def b(self) -> Fragment:
        """Multiplicand B: k x n."""
        return self.fragment("B")

    @property
    def c(self) -> Fragment:
        """Accumulator C: m x n."""
        return self.fragment("C")

    @property
    def d(self) -> Fragment:
        """Result D: m x n."""
        return self.fragment("D")

    @property
    def scale_a(self) -> Fragment:
        """The scales of A: m x 1, 2 or 4."""
        return self.fragment("scale_A")

    @property
    def scale_b(self) -> Fragment:
        """The scales of B: 1, 2 or 4 x n."""
        return self.fragment("scale_B")

    # ── what it does ────────────────────────────────────────────────────────

    def execute(self, *operands: Any, **options: Any) -> Any:
        """Registers in, registers out, bit for bit.

        The operands and their order depend on the unit::

            d = op.execute(a, b, c)                             mma, wmma.mma
            d = op.execute(a, b, c, metadata=…)                 mma.sp
            d = op.execute(d, a, b, smem=…)                     wgmma
            tmem = op.execute(tmem, a, b, smem=…)               tcgen05.mma
            registers = op.execute(image, addresses)            ldmatrix
            image = op.execute(image, addresses, registers)     stmatrix
            registers = op.execute(registers)                   movmatrix

        :meth:`help` shows the call of one instruction, with all that it takes.  Other
        instructions cannot be executed alone; the error says what to use instead.

        >>> import fragmenta as fm
        >>> fm.find("wgmma.fence").execute()
        Traceback (most recent call last):
        fragmenta.errors.Error: wgmma.fence.sync.aligned has no result of its own; \
what it does is seen in a kernel: fm.ptx.parse
        """
        from fragmenta.reference.execution.mma import why_not

        raise Error(why_not(self))

    @checked
    def __call__(
        self,
        A: ArrayLike | Compressed,
        B: ArrayLike,
        C: ArrayLike | None = None,
        *,
        scale_a: ArrayLike | None = None,
        scale_b: ArrayLike | None = None,
        target: str | None = None,
    ) -> NDArray[Any]:
        """Matrices in, matrix out: D = A B + C, bit for bit.

        A sparse instruction takes a pruned A or a ``Compressed`` one.  See
        :func:`fragmenta.reference.execution.mma.call`.

        >>> import fragmenta as fm, numpy as np
        >>> op = fm.mma("m16n8k32", a="s8")
        >>> int(op(np.ones((16, 32), np.int8), np.ones((32, 8), np.int8))[3, 5])
        32
        """
        from fragmenta.reference.execution.mma import call

        return call(self, A, B, C, scale_a=scale_a, scale_b=scale_b, target=target)

    @checked
    def explain(
        self,
        A: ArrayLike | Compressed,
        B: ArrayLike,
        C: ArrayLike | None = None,
        *,
        row: int,
        col: int,
        scale_a: ArrayLike | None = None,
        scale_b: ArrayLike | None = None,
        target: str | None = None,
    ) -> Explained:
        """One element of D step by step; see
        :mod:`fragmenta.reference.execution.explain`.

        >>> import fragmenta as fm, numpy as np
        >>> op = fm.mma("m16n8k16", a="f16", d="f32")
        >>> told = op.explain(np.ones((16, 16)), np.ones((16, 8)), row=3, col=5)
        >>> print(str(told).splitlines()[1])
        D[3, 5]
        """
        from fragmenta.reference.execution.explain import explain

        scales = {"scale_a": scale_a, "scale_b": scale_b}
        return explain(self, A, B, C, row=row, col=col, **scales, target=target)

    def on_device(
        self, *operands: object, gpu: GPU | None = None, **options: object
    ) -> Words:
        """As ``execute``, on the GPU; see :mod:`fragmenta.cuda.tools.launch`.

        It takes what ``execute`` takes, and ``gpu``, by default that of this machine.

        >>> import fragmenta as fm, numpy as np
        >>> op = fm.mma("m16n8k16", a="f16", d="f32")
        >>> ones = [part.pack(np.ones(part.shape)) for part in (op.a, op.b, op.c)]
        >>> try:
        ...     same = bool((op.on_device(*ones) == op.execute(*ones)).all())
        ... except fm.errors.NoDevice:
        ...     same = True
        >>> same
        True
        """
        calls.check_call(self, "on_device", operands, options)
        from fragmenta.cuda.tools.launch import on_device

        return on_device(self, *operands, gpu=gpu, **options)

    def help(self, method: str = "execute") -> Text:
        """How a method is called with this instruction, and what each argument is.

        ``method`` is ``execute``, ``on_device``, ``explain`` or ``__call__``, whose
        arguments depend on the instruction.

        >>> import fragmenta as fm
        >>> print(fm.mma("m16n8k64", a="s4", sp="sp").help())
        op.execute(a, b, c, *, metadata, selector=0, target=None)
        <BLANKLINE>
            a         registers of A, uint32 (…, 32, 2)
            b         registers of B, uint32 (…, 32, 2)
            c         registers of C, uint32 (…, 32, 4)
            metadata  registers of the metadata, uint32 (…, 32, 1): op.metadata.pack
            selector  0 or 1: which lanes hold the metadata
            target    the GPU, such as "sm_90a"; targets round differently
        """
        if method == "execute" and not calls.call_line(self):
            from fragmenta.reference.execution.mma import why_not

            return Text(why_not(self))
        return Text(calls.help_text(self, method))

    # ── what is known about it ──────────────────────────────────────────────

    def sums(self) -> tuple[Summing, ...]:
        """How each target adds the products; see
        :mod:`fragmenta.reference.execution.summing`.

        >>> import fragmenta as fm
        >>> print(fm.mma("m16n8k16", a="f16", d="f32").sums()[0])
        2 steps of 8 products; 24 bits below emax; 23 kept, toward zero; published
        """
        from fragmenta.reference.execution.summing import sums

        return sums(self)

    def sass(self, target: str | None = None) -> Sass:
        """The machine instructions that the assembler writes for it on a target.

        See :func:`fragmenta.reference.isa.sass.sass`; :func:`fragmenta.from_sass` goes
        back.

        >>> import fragmenta as fm
        >>> op = fm.mma("m16n8k32", a="e4m3", d="f32")
        >>> print(op.sass("sm_89"))
        QMMA.16832.F32.E4M3.E4M3
        >>> print(op.sass("sm_90"))
        HMMA.16816.F32 x 2, and 16 others; expanded to f16
        """
        from fragmenta.reference.isa.sass import sass

        return sass(self, target)

    def to_dict(self) -> dict[str, object]:
        """All that is known about it as plain values, such as JSON has.

        ``fragmenta show --json`` prints the same.  ``schema`` is the version of the
        record; its keys are in docs/reference/instruction.schema.json.

        >>> import fragmenta as fm
        >>> found = fm.mma("m16n8k16", a="f16", d="f32").to_dict()
        >>> found["schema"], found["shape"], found["sass"]["sm_90"]["code"]
        (1, 'm16n8k16', {'HMMA.16816.F32': 1})
        >>> found["fragments"]["A"]["layout"]
        'row = L2 L3 L4 R0  col = E0 L0 L1 R1'
        """
        from fragmenta.frontends.api.records import record

        return record(self)

    def to_cuda(
        self,
        name: str | None = None,
        *,
        a_registers: bool = False,
        fragments: bool = True,
        kernel: bool = False,
        a_tensor: bool = False,
        disable_output_lane: bool = False,
        scale_input_d: bool = False,
        zero_column_mask: bool = False,
    ) -> Text:
        """A CUDA function around it; see :func:`fragmenta.cuda.source.emit.to_cuda`.

        >>> import fragmenta as fm
        >>> op = fm.mma("m16n8k16", a="f16", d="f32")
        >>> "__device__" in op.to_cuda("multiply")
        True
        """
        from fragmenta.cuda.source.emit import to_cuda

        source = to_cuda(
            self,
            name,
            a_registers=a_registers,
            fragments=fragments,
            kernel=kernel,
            a_tensor=a_tensor,
            disable_output_lane=disable_output_lane,
            scale_input_d=scale_input_d,
            zero_column_mask=zero_column_mask,
        )
        return Text(source)

    def to_ptx(
        self,
        name: str | None = None,
        *,
        target: str | None = None,
        a_registers: bool = False,
        a_tensor: bool = False,
        disable_output_lane: bool = False,
        zero_column_mask: bool = False,
        **immediates: int,
    ) -> Text:
        """A PTX module that does it; see :func:`fragmenta.cuda.source.emit.to_ptx`.

        >>> import fragmenta as fm
        >>> text = fm.mma("m16n8k64", a="s4", sp="sp").to_ptx(selector=1)
        >>> print(next(line for line in text.splitlines() if ".entry" in line))
        .visible .entry mma_sp_m16n8k64_s32_s4_s4_s32(
        """
        from fragmenta.cuda.source.emit import to_ptx

        source = to_ptx(
            self,
            name,
            target=target,
            a_registers=a_registers,
            a_tensor=a_tensor,
            disable_output_lane=disable_output_lane,
            zero_column_mask=zero_column_mask,
            **immediates,
        )
        return Text(source)

    def to_svg(self) -> Svg:
        """A picture of all operands; see :mod:`fragmenta.inspect.view.svg`.

        Of a ``tcgen05.mma`` it is tensor memory:
        :mod:`fragmenta.inspect.view.tensor_memory`.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k16", a="f16", d="f32").to_svg()[:4]
        '<svg'
        """
        from fragmenta.inspect.view.svg import instruction_svg

        return Svg(instruction_svg(self))

    def _repr_svg_(self) -> str | None:
        return self.to_svg() if self.fragments else None


class Mma(Instruction):
    """A multiplication by one warp, with all operands in registers.

    These are ``mma``, ``mma.sp`` and ``wmma.mma``.

    >>> import fragmenta as fm
    >>> type(fm.mma("m16n8k16", a="f16", d="f32")).__name__
    'Mma'
    """

    @checked
    def execute(
        self,
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
    ) -> Words:
        """The registers of D, bit for bit.

        Registers are (…, 32 lanes, n), as :meth:`Fragment.pack` returns them; the
        leading axes of all operands broadcast.  The default ``target`` is sm_90a, or
        the first target with the instruction if sm_90a does not have it.  Only a sparse
        instruction takes ``metadata`` and ``selector``, only one with block scales
        takes the others; :meth:`help` says which.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.mma("m16n8k16", a="f16", d="f32")
        >>> d = op.execute(op.a.pack(np.ones((16, 16))), op.b.pack(np.ones((16, 8))),
        ...                op.c.pack(np.full((16, 8), 0.5)))
        >>> float(op.d.unpack(d)[0, 0])
        16.5
        """
        from fragmenta.reference.execution.mma import execute

        return execute(
            self,
            a,
            b,
            c,
            metadata=metadata,
            selector=selector,
            scale_a=scale_a,
            scale_b=scale_b,
            byte_a=byte_a,
            thread_a=thread_a,
            byte_b=byte_b,
            thread_b=thread_b,
            target=target,
        )


class Wgmma(Instruction):
    """A multiplication by a warpgroup, with B in shared memory: a ``wgmma``.

    >>> import fragmenta as fm
    >>> type(fm.wgmma("m64n8k16", a="f16", d="f32")).__name__
    'Wgmma'
    """

    @checked
    def execute(
        self,
        d: ArrayLike,
        a: ArrayLike | Descriptor,
        b: ArrayLike | Descriptor,
        *,
        smem: ArrayLike,
        metadata: ArrayLike | None = None,
        selector: int = 0,
        scale_d: ArrayLike = 1,
        imm_scale_a: int = 1,
        imm_scale_b: int = 1,
        trans_a: int = 0,
        trans_b: int = 0,
        target: str | None = None,
    ) -> Words:
        """The registers of D, bit for bit.

        ``d``, and ``a`` in registers, are (…, 128 lanes, n).  A descriptor is a
        :class:`Descriptor`, its 64-bit word, or an array of words.  ``smem`` is
        (…, bytes).  If ``scale_d`` is 0, the old D is not added.  If ``imm_scale_a`` or
        ``imm_scale_b`` is -1, that operand is negated.  If ``trans_a`` or ``trans_b``
        is 1, neighbours in memory are neighbours along m or n, not along k.  Only a
        sparse instruction takes ``metadata`` and ``selector``; see :meth:`help`.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
        >>> smem, a = fm.shared.tile(op, "A", np.ones((64, 16)), swizzle=32)
        >>> smem, b = fm.shared.tile(op, "B", np.ones((16, 8)), swizzle=32, image=smem)
        >>> d = op.execute(np.zeros((128, 4), np.uint32), a, b, smem=smem)
        >>> float(op.d.unpack(d)[63, 7])
        16.0
        """
        from fragmenta.reference.execution.wgmma import execute

        return execute(
            self,
            d,
            a,
            b,
            smem=smem,
            metadata=metadata,
            selector=selector,
            scale_d=scale_d,
            imm_scale_a=imm_scale_a,
            imm_scale_b=imm_scale_b,
            trans_a=trans_a,
            trans_b=trans_b,
            target=target,
        )


class TensorMma(Instruction):
    """A multiplication with D in tensor memory: a ``tcgen05.mma``.

    >>> import fragmenta as fm
    >>> type(fm.tcgen05("m128n32k16", a="f16", d="f32")).__name__
    'TensorMma'
    """

    @checked
    def execute(
        self,
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
    ) -> Image:
        """Tensor memory afterwards, with the bits of D in it.

        ``a`` is a :class:`TensorAddress`, or a descriptor: a :class:`Descriptor`, its
        64-bit word, or an array of words.  ``d``, ``scale_a``, ``scale_b`` and
        ``metadata`` are addresses in tensor memory.  If ``enable_input_d`` is 0, the
        old D is not added.  ``scale_input_d`` is s in D x 2**-s, 0 to 15.
        ``disable_output_lane`` has 4 words, or 8 for a pair of CTAs: a lane whose bit
        is 1 is not written.  Which of them the instruction takes, :meth:`help` says.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.tcgen05("m128n32k16", kind="f16", a="f16", d="f32")
        >>> smem, a = fm.shared.tile(op, "A", np.ones((128, 16)))
        >>> smem, b = fm.shared.tile(op, "B", np.ones((16, 32)), image=smem)
        >>> tmem = op.d.pack(np.full((128, 32), 0.5), address=64)
        >>> tmem = op.execute(tmem, a, b, smem=smem, d=64)
        >>> float(op.d.unpack(tmem, address=64)[127, 31])
        16.5
        """
        from fragmenta.reference.execution.tcgen05 import execute

        return execute(
            self,
            tmem,
            a,
            b,
            smem=smem,
            d=d,
            enable_input_d=enable_input_d,
            scale_input_d=scale_input_d,
            disable_output_lane=disable_output_lane,
            scale_a=scale_a,
            scale_b=scale_b,
            metadata=metadata,
            zero_column_mask=zero_column_mask,
            target=target,
        )

    def to_svg(self) -> Svg:
        """Tensor memory with all operands; see
        :mod:`fragmenta.inspect.view.tensor_memory`.

        >>> import fragmenta as fm
        >>> fm.tcgen05("m128n32k16", a="f16", d="f32").to_svg()[:4]
        '<svg'
        """
        if not self.fragments:  # without a descriptor, this says what is missing
            return super().to_svg()
        from fragmenta.inspect.view.tensor_memory import tensor_memory_svg

        return Svg(tensor_memory_svg(self))


class LdMatrix(Instruction):
    """An ``ldmatrix``, which loads 8 x 8 matrices from shared memory.

    >>> import fragmenta as fm
    >>> type(fm.find("ldmatrix.m8n8.x4.b16")).__name__
    'LdMatrix'
    """

    @checked
    def execute(self, image: ArrayLike, addresses: ArrayLike) -> Words:
        """The registers that it loads, (…, 32, n): :func:`fragmenta.shared.ldmatrix`.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.find("ldmatrix.m8n8.x1.b16")
        >>> image = np.arange(128, dtype=np.uint8)
        >>> hex(op.execute(image, np.arange(32) * 16 % 128)[1, 0])
        '0x7060504'
        """
        from fragmenta.reference.shared.moves import ldmatrix

        return ldmatrix(self, image, addresses)


class StMatrix(Instruction):
    """An ``stmatrix``, which stores 8 x 8 matrices to shared memory.

    >>> import fragmenta as fm
    >>> type(fm.find("stmatrix.m8n8.x4.b16")).__name__
    'StMatrix'
    """

    @checked
    def execute(
        self, image: ArrayLike, addresses: ArrayLike, registers: ArrayLike
    ) -> Bytes:
        """Shared memory afterwards; see :func:`fragmenta.shared.stmatrix`.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.find("stmatrix.m8n8.x1.b16")
        >>> words = np.arange(32, dtype=np.uint32).reshape(32, 1)
        >>> image = op.execute(np.zeros(128, np.uint8), np.arange(32) * 16 % 128, words)
        >>> image[:8].tolist()
        [0, 0, 0, 0, 1, 0, 0, 0]
        """
        from fragmenta.reference.shared.moves import stmatrix

        return stmatrix(self, image, addresses, registers)


class MovMatrix(Instruction):
    """A ``movmatrix``, which transposes an 8 x 8 matrix in registers.

    >>> import fragmenta as fm
    >>> type(fm.find("movmatrix")).__name__
    'MovMatrix'
    """

    @checked
    def execute(self, registers: ArrayLike) -> Words:
        """The registers of the transposed matrix: :func:`fragmenta.shared.movmatrix`.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.find("movmatrix")
        >>> words = np.arange(32, dtype=np.uint32).reshape(32, 1)
        >>> bool((op.execute(op.execute(words)) == words).all())
        True
        """
        from fragmenta.reference.shared.moves import movmatrix

        return movmatrix(self, registers)


# ── from records ────────────────────────────────────────────────────────────

_MOVES = {"load": LdMatrix, "store": StMatrix, "transpose": MovMatrix}
_UNITS = {"mma": Mma, "wmma": Mma, "wgmma": Wgmma, "tcgen05": TensorMma}


def kind_of(op: records.Instruction) -> type[Instruction]:
    """The class of an instruction.

    >>> from fragmenta.reference.isa.reading import instruction
    >>> kind_of(instruction("movmatrix.sync.aligned.m8n8.trans.b16")).__name__
    'MovMatrix'
    """
    if op.multiplies:
        return _UNITS[op.unit]
    return _MOVES[op.moves] if op.unit == "matrix" else Instruction


def public(op: records.Instruction) -> Instruction:
    """The instruction as users have it, a new object unless it is one already.

    >>> from fragmenta.reference.isa.reading import instruction
    >>> record = instruction("movmatrix.sync.aligned.m8n8.trans.b16")
    >>> public(record) == record, hash(public(record)) == hash(record)
    (True, True)
    """
    return kind_of(op).of(op)


@lru_cache(maxsize=16384)  # the catalogue, and as many with instruction descriptors
def kept(op: records.Instruction) -> Instruction:
    """The same; of one instruction there is one object, with what it has computed."""
    return public(op)


def instruction(
    text: str | records.Instruction, *, idesc: int | None = None
) -> Instruction:
    """The instruction that a PTX mnemonic or words name; an instruction is itself.

    Words are what the command line takes, too: ``"mma m16n8k16 bf16"``,
    ``"sparse int8 16x8x64"``; see :func:`find`.

    A whole statement may be given: a label, a guard, operands, comments and the
    semicolon.  Operands have to fit the instruction
    (:mod:`fragmenta.reference.isa.operand_checks`).  A mnemonic alone says nothing
    about them.

    The shape and the types of a ``tcgen05.mma`` are in its instruction descriptor:
    ``idesc``, or a number after the mnemonic, or the constant among the operands.
    Without it, the instruction has no shape.

    >>> import fragmenta as fm
    >>> op = fm.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> op.shape
    Shape(m=16, n=8, k=16)
    >>> fm.instruction("mma.sync.aligned.m16n8k64.row.col.f32.tf32.tf32.f32")
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnknownInstruction: mma m16n8k64 with .tf32 as the type of A does \
not exist; .tf32 has m16n8k4 and m16n8k8, and in mma.sp m16n8k8 and m16n8k16; \
nearest: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
    """
    found = searching.instruction(text, idesc=idesc)
    return found if isinstance(found, Instruction) else kept(found)
