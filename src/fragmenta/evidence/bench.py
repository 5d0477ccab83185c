"""What does a kernel of nothing but one instruction look like?

Each warp (or warpgroup) has several accumulators, so that no instruction waits
for the one before it, and works on random data: what multiplies zeros draws less
power and runs faster than anything real.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta.cuda.source import ptx
from fragmenta.cuda.tools import launch
from fragmenta.errors import Error
from fragmenta.evidence import inputs
from fragmenta.evidence.inputs import Source
from fragmenta.isa.instruction import Instruction, Operand, check_multiplies
from fragmenta.shared.descriptor import LINES, Descriptor, extent

WARPS = 16
"""Warps on each multiprocessor: four for each of its quarters."""
WARPGROUPS = 2
"""So that one issues while the other waits for its group to end."""
STATEMENTS = 16
"""Instructions in one round of the loop, at least."""
REGISTERS = 96
"""Registers that the operands of a thread may take; 512 threads have 128 each."""
ACCUMULATORS = 128
"""Registers for the accumulators of a warpgroup's thread."""
SPAN = 128
"""Bytes of k in shared memory: the longest swizzle."""


class Bench(Protocol):
    """A kernel that does one instruction over and over."""

    @property
    def op(self) -> Instruction:
        """The instruction."""

    @property
    def name(self) -> str:
        """Of the kernel."""

    @property
    def block(self) -> int:
        """Threads on each multiprocessor."""

    @property
    def per_round(self) -> int:
        """Instructions that a multiprocessor does in one round of the loop."""

    def entry(self) -> str:
        """The kernel in PTX: parameters are the output, the inputs, the rounds."""

    def inputs(self) -> list[NDArray[Any]]:
        """Random operands, the same for all blocks."""

    def output(self) -> NDArray[Any]:
        """Room for the accumulators of one block."""


def bench(op: Instruction, target: str) -> Bench:
    """The kernel for an instruction, or why there is none.

    >>> import fragmenta as fm
    >>> found = bench(fm.mma("m16n8k16", a="f16", d="f32"), "sm_90a")
    >>> found.block, found.per_round
    (512, 256)
    """
    check_multiplies(op)
    if op.types.get("c", op.types["d"]) != op.types["d"]:
        raise Error("D is of another type than C, so nothing can be accumulated")
    if op.family.startswith("wgmma"):
        return OfWarpgroups(op)
    return OfWarps(op, op.native_on(target))


# ── warps, operands in registers ────────────────────────────────────────────


@dataclass(frozen=True)
class OfWarps:
    """``mma``, ``mma.sp`` or ``wmma.mma``."""

    op: Instruction
    native: bool
    """Whether the target has it; what stands in for it needs registers, too."""

    @property
    def name(self) -> str:
        """The mnemonic, as a name that PTX takes."""
        return launch.Kernel(self.op).name

    @property
    def warps(self) -> int:
        """Warps on each multiprocessor."""
        return WARPS if self.native else WARPS // 2

    @property
    def block(self) -> int:
        """Threads on each multiprocessor."""
        return 32 * self.warps

    @cached_property
    def held(self) -> list[Operand]:
        """The operands in registers; the accumulators are C and D at once."""
        return [
            each
            for each in self.op.operands
            if each.ptx != "immediate" and each.name != "d"
        ]

    @cached_property
    def chains(self) -> int:
        """Accumulators of a warp, if its registers are enough for them."""
        words = sum(each.count * _bytes(each) // 4 for each in self.held)
        return max(1, min(8 if self.native else 2, REGISTERS // words))

    @property
    def statements(self) -> int:
        """Instructions in the loop: every chain as often, once if expanded."""
        often = -(-STATEMENTS // self.chains) if self.native else 1
        return often * self.chains

    @property
    def per_round(self) -> int:
        """Those of all warps."""
        return self.statements * self.warps

    def inputs(self) -> list[NDArray[Any]]:
        """Registers (warps x chains, 32, n) of each operand."""
        source = Source("throughput", str(self.op))
        parts = {name.lower(): name for name in self.op.fragments}
        return [
            _operands(self.op, parts[each.name], self.warps * self.chains, source)
            for each in self.held
        ]

    def output(self) -> NDArray[Any]:
        """As many accumulators."""
        part = self.op.d
        shape = (self.warps * self.chains, part.lanes, part.registers)
        return np.zeros(shape, f"uint{part.register_bits}")

    def entry(self) -> str:
        """Load, loop, store what the first block has."""
        d = next(each for each in self.op.operands if each.name == "d")
        out = [("c", chain) for chain in range(self.chains)]
        body = [
            *(
                f".reg {each.ptx} %{each.name}{chain}_<{each.count}>;"
                for each in self.held
                for chain in range(self.chains)
            ),
            *_preamble(32),
            *(
                line
                for each in self.held
                for chain in range(self.chains)
                for line in _move("ld", each, f"p_{each.name}", chain, self.chains, 32)
            ),
            *_loop([*self._change(), *self._round()]),
            *(
                line
                for name, chain in out
                for line in _move("st", d, "p_out", chain, self.chains, 32, name)
            ),
            "DONE:",
            "ret;",
        ]
        params = ["out", *(each.name for each in self.held), "rounds"]
        return _entry(self.name, params, self.block, body)

    def _change(self) -> list[str]:
        """New A and B for every round, else their conversion leaves the loop."""
        if self.native:
            return []
        return [
            f"xor.b32 %{each.name}{chain}_{i}, %{each.name}{chain}_{i}, %round;"
            for each in self.held
            for chain in range(self.chains)
            for i in range(each.count)
            if each.name in "ab" and each.ptx == ".b32"
        ]

    def _round(self) -> Iterator[str]:
        for number in range(self.statements):
            chain = number % self.chains
            names = {each.name: _names(each, each.name, chain) for each in self.held}
            yield ptx.statement(self.op, a_registers=False, d=names["c"], **names)


# ── warpgroups, operands in shared memory ───────────────────────────────────


@dataclass(frozen=True)
class OfWarpgroups:
    """``wgmma`` or ``wgmma.sp`` with A and B in shared memory."""

    op: Instruction

    @property
    def name(self) -> str:
        """The mnemonic, as a name that PTX takes."""
        return launch.Kernel(self.op).name

    @property
    def block(self) -> int:
        """Threads on each multiprocessor."""
        return 128 * WARPGROUPS

    @cached_property
    def chains(self) -> int:
        """Accumulators of a warpgroup: four, or what the registers hold."""
        return max(1, min(4, ACCUMULATORS // self.op.d.registers))

    @property
    def per_round(self) -> int:
        """Those of all warpgroups."""
        return STATEMENTS * WARPGROUPS

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

    def inputs(self) -> list[NDArray[Any]]:
        """Accumulators and metadata (warpgroups x chains, 128, n), the image."""
        source = Source("throughput", str(self.op))
        tiles = WARPGROUPS * self.chains
        found = [_operands(self.op, "C", tiles, source)]
        if self.op.sparse:
            found.append(_operands(self.op, "metadata", tiles, source))
        image = [
            _memory(self.op, name, extent(self.op, name)[0] * SPAN, source)
            for name in "AB"
        ]
        return [*found, np.concatenate(image)]

    def output(self) -> NDArray[Any]:
        """As many accumulators."""
        part = self.op.d
        shape = (WARPGROUPS * self.chains, part.lanes, part.registers)
        return np.zeros(shape, np.uint32)

    def entry(self) -> str:
        """Fill shared memory, load, loop, store what the first block has."""
        listed = {each.name: each for each in ptx.operands(self.op)}
        d, held = listed["d"], [listed["d"]]
        held += [listed["metadata"]] if self.op.sparse else []
        chains = range(self.chains)
        arrays = {"d": "p_c", "metadata": "p_metadata"}
        body = [
            f".shared .align {LINES * SPAN} .b8 image[{self.image_bytes}];",
            *(
                f".reg {each.ptx} %{each.name}{chain}_<{each.count}>;"
                for each in held
                for chain in chains
            ),
            ".reg .pred %scale_d;",
            *_preamble(128),
            *self._fill(),
            *(
                line
                for each in held
                for chain in chains
                for line in _move(
                    "ld", each, arrays[each.name], chain, self.chains, 128
                )
            ),
            *self._addresses(),
            "setp.eq.u32 %scale_d, %lane, %lane;",
            *_loop(self._round()),
            *(
                line
                for chain in chains
                for line in _move("st", d, "p_out", chain, self.chains, 128)
            ),
            "DONE:",
            "ret;",
        ]
        named = ["out", "c", *(["metadata"] if self.op.sparse else []), "image"]
        return _entry(self.name, [*named, "rounds"], self.block, body)

    def _fill(self) -> list[str]:
        """All threads copy the image, 16 bytes each at a time."""
        return [
            ".reg .u32 %at, %to, %v<4>;",
            ".reg .u64 %from;",
            ".reg .pred %filled;",
            "ld.param.u64 %base, [p_image];",
            "cvta.to.global.u64 %base, %base;",
            "shl.b32 %at, %thread, 4;",
            "FILL:",
            f"setp.ge.u32 %filled, %at, {self.image_bytes};",
            "@%filled bra FILLED;",
            "cvt.u64.u32 %offset, %at;",
            "add.u64 %from, %base, %offset;",
            "ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%from];",
            "mov.u32 %to, image;",
            "add.u32 %to, %to, %at;",
            "st.shared.v4.u32 [%to], {%v0, %v1, %v2, %v3};",
            f"add.u32 %at, %at, {16 * self.block};",
            "bra FILL;",
            "FILLED:",
            "fence.proxy.async;",
            "bar.sync 0;",
        ]

    def _addresses(self) -> list[str]:
        """The descriptors, moved to where the image is."""
        lines = ["mov.u32 %at, image;", "shr.u32 %at, %at, 4;"]
        lines += ["cvt.u64.u32 %offset, %at;"]
        for name, words in self.descriptors.items():
            lines.append(f".reg .b64 %{name}_at<{len(words)}>;")
            lines += [
                f"add.u64 %{name}_at{step}, %offset, {word:#x};"
                for step, word in enumerate(words)
            ]
        return lines

    def _round(self) -> list[str]:
        """A group of instructions, and the wait for its end."""
        lines = ["wgmma.fence.sync.aligned;"]
        plain = {
            each.name: 1 if each.name.startswith("scale") else 0
            for each in ptx.operands(self.op)
            if each.ptx == "immediate"
        }
        listed = {each.name: each for each in ptx.operands(self.op)}
        for number in range(STATEMENTS):
            step, chain = divmod(number, self.chains)
            named = {
                name: f"%{name}_at{step % len(words)}"
                for name, words in self.descriptors.items()
            }
            for name in ("d", "metadata"):
                if name in listed:
                    named[name] = _names(listed[name], name, chain)
            lines.append(ptx.statement(self.op, a_registers=False, **plain, **named))
        return [
            *lines,
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
        ]


# ── the parts of a kernel ───────────────────────────────────────────────────


def _entry(name: str, params: Iterable[str], block: int, body: Iterable[str]) -> str:
    listed = ",\n    ".join(f".param .u64 p_{each}" for each in params)
    lines = "\n".join(f"    {line}" for line in body)
    return (
        f".visible .entry {name}(\n    {listed})\n.maxntid {block}, 1, 1\n"
        f"{{\n{lines}\n}}\n"
    )


def _preamble(lanes: int) -> list[str]:
    """Which lane of which warp (or warpgroup) this is."""
    return [
        ".reg .u64 %base, %offset;",
        ".reg .u32 %thread, %lane, %group, %place, %round, %rounds, %block;",
        ".reg .pred %more, %other;",
        "mov.u32 %thread, %tid.x;",
        f"and.b32 %lane, %thread, {lanes - 1};",
        f"shr.u32 %group, %thread, {lanes.bit_length() - 1};",
    ]


def _loop(statements: Iterable[str]) -> list[str]:
    """So many rounds of the statements; then only the first block goes on."""
    return [
        "ld.param.u64 %base, [p_rounds];",
        "cvta.to.global.u64 %base, %base;",
        "ld.global.u32 %rounds, [%base];",
        "mov.u32 %round, 0;",
        "LOOP:",
        *statements,
        "add.u32 %round, %round, 1;",
        "setp.lt.u32 %more, %round, %rounds;",
        "@%more bra LOOP;",
        "mov.u32 %block, %ctaid.x;",
        "setp.ne.u32 %other, %block, 0;",
        "@%other bra DONE;",
    ]


def _move(
    direction: str,
    operand: Operand,
    array: str,
    chain: int,
    chains: int,
    lanes: int,
    name: str = "",
) -> list[str]:
    """Load or store the registers of one chain of this lane."""
    size = _bytes(operand)
    lines = [
        f"ld.param.u64 %base, [{array}];",
        "cvta.to.global.u64 %base, %base;",
        f"mad.lo.u32 %place, %group, {chains}, {chain};",
        f"mad.lo.u32 %place, %place, {lanes}, %lane;",
        f"mul.wide.u32 %offset, %place, {size * operand.count};",
        "add.u64 %base, %base, %offset;",
    ]
    for i in range(operand.count):
        register = f"%{name or operand.name}{chain}_{i}"
        address = f"[%base + {i * size}]"
        pair = (
            f"{register}, {address}" if direction == "ld" else f"{address}, {register}"
        )
        lines.append(f"{direction}.global{operand.ptx} {pair};")
    return lines


def _bytes(operand: Operand) -> int:
    return 8 if operand.ptx.endswith("64") else 4


def _names(operand: Operand, name: str, chain: int) -> str:
    listed = ", ".join(f"%{name}{chain}_{i}" for i in range(operand.count))
    return f"{{{listed}}}" if operand.vector else listed


# ── random data ─────────────────────────────────────────────────────────────


def _operands(op: Instruction, name: str, tiles: int, source: Source) -> NDArray[Any]:
    """Registers of ordinary values; legal metadata."""
    part = op.fragments[name]
    if name == "metadata":
        codes = inputs._codes(op, tiles, source)
        return inputs._noise(part, codes, min(op.selectors), source)
    bits = inputs._elements(part, name, "normal", tiles, source)
    return part.pack(part.dtype.decode(bits))


def _memory(op: Instruction, name: str, size: int, source: Source) -> NDArray[np.uint8]:
    """Bytes of ordinary values."""
    of = op.types[name.lower()]
    if of.bits < 8 or of.kind != "float":
        return source.words((size // 8,)).view(np.uint8)
    bits = inputs._floats(of, "normal", False, (8 * size // of.bits,), source)
    return bits.astype(of.bits_dtype).view(np.uint8)
