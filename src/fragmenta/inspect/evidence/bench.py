"""Kernels that repeat one instruction, for measuring its throughput.

Each warp (or warpgroup) has several accumulators, so that no instruction waits
for the one before it, and works on random data: a kernel that multiplies zeros draws
less power and runs faster than a real one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.source import ptx
from fragmenta.cuda.source.kernel import KernelBuilder, group
from fragmenta.cuda.tools.launch import Arrays, TileKernel
from fragmenta.errors import BadCall
from fragmenta.inspect.evidence import inputs
from fragmenta.inspect.evidence.case import AnswerForm, KernelCase
from fragmenta.inspect.evidence.inputs import WordStream
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.isa.target import Version
from fragmenta.reference.registers.fragment import Words
from fragmenta.reference.shared.descriptor import LINES, Descriptor, extent

WARPS = 16
"""Warps on each multiprocessor: four for each of its quarters."""
WARPGROUPS = 2
"""Warpgroups on each multiprocessor: one issues while the other waits."""
STATEMENTS = 16
"""Instructions in one round of the loop, at least."""
REGISTERS = 96
"""Registers that the operands of a thread may take; 512 threads have 128 each."""
ACCUMULATORS = 128
"""Registers for the accumulators of a warpgroup's thread."""
SPAN = 128
"""Bytes of k in shared memory: the longest swizzle."""


class InstructionLoop(KernelCase):
    """A kernel that repeats one instruction.

    All blocks have the same inputs, and only the first writes its accumulators.
    """

    op: Instruction

    @property
    def name(self) -> str:
        """The mnemonic, as a name that PTX takes."""
        return TileKernel(self.op).name

    def version(self, target: str) -> Version:
        """The PTX version of the instruction."""
        return self.op.requires.ptx_on(target)

    @property
    @abstractmethod
    def groups(self) -> int:
        """Warps or warpgroups on each multiprocessor."""

    @property
    @abstractmethod
    def chains(self) -> int:
        """Accumulators of each of them."""

    @property
    @abstractmethod
    def statements(self) -> int:
        """Instructions in one round of the loop."""

    @property
    def per_round(self) -> int:
        """Instructions that a multiprocessor runs in one round of the loop."""
        return self.statements * self.groups

    @property
    def lanes(self) -> int:
        """The lanes of a warp or a warpgroup."""
        return self.op.d.lanes

    @property
    def threads(self) -> int:
        """The threads on each multiprocessor."""
        return self.lanes * self.groups

    @property
    def form(self) -> AnswerForm:
        """The accumulators of one block."""
        part = self.op.d
        shape = (self.groups * self.chains, part.lanes, part.registers)
        return shape, np.dtype(f"uint{part.register_bits}")

    def begun(self) -> KernelBuilder:
        """A new entry, with its parameters and its number of threads."""
        entry = KernelBuilder(self.name)
        entry.pointers(("out", *self.parameters))
        entry.at_most(self.threads)
        entry.groups(self.lanes)
        return entry

    def ended(self, entry: KernelBuilder, statements: Iterable[str], d: Operand) -> str:
        """The loop; then the first block stores its accumulators."""
        entry.loop(statements)
        entry.do(
            "mov.u32 %block, %ctaid.x;",
            "setp.ne.u32 %other, %block, 0;",
            "@%other bra done;",
        )
        for chain in range(self.chains):
            self.find_chain(entry, chain)
            entry.store(_of_chain(d, chain), "out")
        entry.do("done:")
        return entry.text()

    def load(self, entry: KernelBuilder, operand: Operand, array: str) -> None:
        """The registers of an operand, for each chain."""
        for chain in range(self.chains):
            entry.declare([_of_chain(operand, chain)])
            self.find_chain(entry, chain)
            entry.load(_of_chain(operand, chain), array)

    def find_chain(self, entry: KernelBuilder, chain: int) -> None:
        """``%place``: where this lane finds its part of a chain's registers."""
        entry.do(
            f"mad.lo.u32 %place, %group, {self.chains}, {chain};",
            f"mad.lo.u32 %place, %place, {self.lanes}, %lane;",
        )


def bench(op: Instruction, target: str) -> InstructionLoop:
    """The kernel for an instruction, or why there is none.

    >>> import fragmenta as fm
    >>> found = bench(fm.mma("m16n8k16", a="f16", d="f32"), "sm_90a")
    >>> found.threads, found.per_round
    (512, 256)
    """
    check_multiplies(op)
    if op.tensor_memory:
        raise BadCall(
            f"{op.family} is not measured: only those with D in registers are"
        )
    if op.types.get("c", op.types["d"]) != op.types["d"]:
        raise BadCall("D is of another type than C, so nothing can be accumulated")
    if op.warpgroup:
        return WarpgroupLoop(op)
    return WarpLoop(op, op.native_on(target))


def _of_chain(operand: Operand, chain: int) -> Operand:
    """The operand of one chain, with registers of its own."""
    return Operand(f"{operand.name}{chain}_", operand.ptx, operand.count)


def _written(operand: Operand, chain: int) -> str:
    """The registers of a chain, as the instruction takes them."""
    listed = ", ".join(ptx.names(_of_chain(operand, chain)))
    return f"{{{listed}}}" if operand.vector else listed


# ── warps, operands in registers ────────────────────────────────────────────


@dataclass(frozen=True)
class WarpLoop(InstructionLoop):
    """``mma``, ``mma.sp`` or ``wmma.mma``."""

    op: Instruction
    native: bool
    """Whether the target has it; an expansion needs registers of its own."""

    @property
    def groups(self) -> int:
        """Warps."""
        return WARPS if self.native else WARPS // 2

    @cached_property
    def held(self) -> list[Operand]:
        """The operands in registers; the accumulators are C and D at once."""
        return [
            each
            for each in self.op.operands
            if each.ptx != "immediate" and each.name != "d"
        ]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Those operands, and how many rounds."""
        return (*(each.name for each in self.held), "rounds")

    @cached_property
    def chains(self) -> int:
        """Accumulators of a warp, if its registers are enough for them."""
        words = sum(ptx.size(each) // 4 for each in self.held)
        return max(1, min(8 if self.native else 2, REGISTERS // words))

    @property
    def statements(self) -> int:
        """The same number for every chain; one if the instruction is expanded."""
        often = -(-STATEMENTS // self.chains) if self.native else 1
        return often * self.chains

    def inputs(self) -> Arrays:
        """Registers (warps x chains, 32, n) of each operand."""
        source = WordStream("throughput", str(self.op))
        parts = {name.lower(): name for name in self.op.fragments}
        return {
            each.name: _operands(
                self.op, parts[each.name], self.groups * self.chains, source
            )
            for each in self.held
        }

    def entry(self) -> str:
        """Load, loop, and store the accumulators of the first block."""
        entry = self.begun()
        for each in self.held:
            self.load(entry, each, each.name)
        c = next(each for each in self.held if each.name == "c")
        return self.ended(entry, [*self._change(), *self._round()], c)

    def _change(self) -> list[str]:
        """Change A and B in every round, so that conversions stay in the loop."""
        if self.native:
            return []
        return [
            f"xor.b32 {name}, {name}, %round;"
            for each in self.held
            if each.name in "ab" and each.ptx == ".b32"
            for chain in range(self.chains)
            for name in ptx.names(_of_chain(each, chain))
        ]

    def _round(self) -> Iterator[str]:
        for number in range(self.statements):
            chain = number % self.chains
            names: dict[str, int | str] = {
                each.name: _written(each, chain) for each in self.held
            }
            yield ptx.statement(
                self.op, a_registers=False, options=ptx.PLAIN, d=names["c"], **names
            )


# ── warpgroups, operands in shared memory ───────────────────────────────────


@dataclass(frozen=True)
class WarpgroupLoop(InstructionLoop):
    """``wgmma`` or ``wgmma.sp`` with A and B in shared memory."""

    op: Instruction

    groups = WARPGROUPS
    statements = STATEMENTS

    @property
    def parameters(self) -> tuple[str, ...]:
        """The accumulators, the metadata, the image, and how many rounds."""
        metadata = ("metadata",) if self.op.sparse else ()
        return ("c", *metadata, "image", "rounds")

    @cached_property
    def chains(self) -> int:
        """Accumulators of a warpgroup: four, or what the registers hold."""
        return max(1, min(4, ACCUMULATORS // self.op.d.registers))

    @cached_property
    def descriptors(self) -> dict[str, list[int]]:
        """Words for each step along k, for an image that starts at 0."""
        found = {}
        start = 0
        for name in "AB":
            rows, k = extent(self.op, name)
            of = self.op.types[name.lower()]
            whole = 8 * SPAN // of.bits
            tile = Descriptor.for_tile(rows, whole, of, swizzle=SPAN, start=start)
            found[name.lower()] = [
                tile.advance(self.op, name, k=first).encode()
                for first in range(0, whole, k)
            ]
            start += rows * SPAN
        return found

    @property
    def image_bytes(self) -> int:
        """A and B, one after the other."""
        return sum(extent(self.op, name)[0] for name in "AB") * SPAN

    def inputs(self) -> Arrays:
        """Accumulators and metadata (warpgroups x chains, 128, n), the image."""
        source = WordStream("throughput", str(self.op))
        tiles = self.groups * self.chains
        found = {"c": _operands(self.op, "C", tiles, source)}
        if self.op.sparse:
            found["metadata"] = _operands(self.op, "metadata", tiles, source)
        image = [
            _memory(self.op, name, extent(self.op, name)[0] * SPAN, source)
            for name in "AB"
        ]
        return {**found, "image": np.concatenate(image)}

    def entry(self) -> str:
        """Fill shared memory, load, loop, and store the first block's accumulators."""
        listed = {each.name: each for each in ptx.operands(self.op)}
        entry = self.begun()
        entry.image(self.image_bytes, LINES * SPAN)
        entry.point("image")
        entry.copy("in", self.image_bytes, self.threads)
        entry.show_to_wgmma()
        self.load(entry, listed["d"], "c")
        if self.op.sparse:
            self.load(entry, listed["metadata"], "metadata")
        self._find_descriptors(entry)
        entry.declare([listed["scale_d"]])
        entry.do("setp.eq.u32 %scale_d, %lane, %lane;")
        return self.ended(entry, group(self._round()), listed["d"])

    def _find_descriptors(self, entry: KernelBuilder) -> None:
        """The descriptors, moved to where the image is."""
        entry.units()
        for name, words in self.descriptors.items():
            moved = Operand(f"{name}_at", ".b64", len(words))
            entry.declare([moved])
            for register, word in zip(ptx.names(moved), words, strict=True):
                entry.do(f"add.u64 {register}, %image_units, {word:#x};")

    def _round(self) -> Iterator[str]:
        plain: dict[str, int | str] = {**ptx.immediates(self.op, {})}
        listed = {each.name: each for each in ptx.operands(self.op)}
        for number in range(self.statements):
            step, chain = divmod(number, self.chains)
            named: dict[str, int | str] = {
                name: f"%{name}_at{step % len(words)}"
                for name, words in self.descriptors.items()
            }
            for name in ("d", "metadata"):
                if name in listed:
                    named[name] = _written(listed[name], chain)
            yield ptx.statement(
                self.op, a_registers=False, options=ptx.PLAIN, **plain, **named
            )


# ── random data ─────────────────────────────────────────────────────────────


def _operands(op: Instruction, name: str, tiles: int, source: WordStream) -> Words:
    """Registers of ordinary values; legal metadata."""
    part = op.fragments[name]
    if name == "metadata":
        return inputs.metadata(op, tiles, min(op.selectors), source)
    bits = inputs.elements(part, name, "normal", tiles, source)
    return part.pack(part.dtype.decode(bits))


def _memory(
    op: Instruction, name: str, size: int, source: WordStream
) -> NDArray[np.uint8]:
    """Bytes of ordinary values."""
    of = op.types[name.lower()]
    if of.bits < 8 or of.kind != "float":
        return source.words((size // 8,)).view(np.uint8)
    bits = inputs.floats(of, "normal", False, (8 * size // of.bits,), source)
    return bits.astype(of.bits_dtype).view(np.uint8)
