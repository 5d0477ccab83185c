"""What does a GPU answer to ``wmma``: its loads, multiplications and stores?

Three kinds of kernel, one warp per tile:

load
    ``wmma.load`` from a memory image, and the fragment's registers out;
multiply
    three loads, ``wmma.mma``, the registers of D out, and ``wmma.store``;
round
    ``cvt.rna.tf32.f32``, which the C++ API calls ``__float_to_tf32``.

Leading dimensions are arguments, so that one kernel serves several.  What lies
between the rows of an image is junk on the way in and poison on the way out: a
read or write of a wrong place shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta import wmma
from fragmenta.cuda.source import ptx
from fragmenta.evidence.inputs import Source, tile_count, trial
from fragmenta.evidence.record import POISON
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.reading import instruction
from fragmenta.registers.dtype import DType
from fragmenta.registers.fragment import Fragment
from fragmenta.registers.words import pack_words
from fragmenta.wmma.names import Major, Use, layout_t

Array = NDArray[Any]
Words32 = NDArray[np.uint32]

#: Leading dimensions to try: this many times 16 bytes beyond the shortest.
LONGER = (0, 1, 3)

ROUND = "cvt.rna.tf32.f32"

_BASE = """
.reg .u64 %base, %offset;
.reg .u32 %tile, %lane, %bytes;
mov.u32 %tile, %ctaid.x;
mov.u32 %lane, %tid.x;
"""


class Work(Protocol):
    """One kernel with everything it needs, and what it should answer."""

    @property
    def instruction(self) -> str:
        """What it is about."""

    @property
    def variant(self) -> int:
        """Which leading dimensions."""

    @property
    def kernel(self) -> str:
        """Its name; works that share a kernel share the name."""

    @property
    def inputs(self) -> list[Array]:
        """What it reads, in the order of its parameters."""

    @property
    def shape(self) -> tuple[int, int]:
        """What it answers: tiles, and 32-bit words of each."""

    def entry(self) -> str:
        """The kernel in PTX."""

    def expect(self, target: str) -> Words32:
        """The same, computed by :mod:`fragmenta.wmma`."""

    def name(self, word: int) -> str:
        """What a word of the answer is."""


# ── memory images ───────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Image:
    """How one matrix lies in memory."""

    part: Fragment
    layout: str
    longer: int

    @property
    def of(self) -> DType:
        """The element type."""
        return self.part.dtype

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and their length; columns and theirs if they are in one piece."""
        rows, cols = self.part.shape
        return (rows, cols) if self.layout == "row" else (cols, rows)

    @property
    def ldm(self) -> int:
        """The leading dimension, a multiple of 16 bytes."""
        step = 128 // self.of.bits
        return (-(-self.sizes[1] // step) + self.longer) * step

    @property
    def row_bytes(self) -> int:
        """Bytes of one tile for each element of the leading dimension."""
        return self.sizes[0] * self.of.bits // 8

    @property
    def words(self) -> int:
        """32-bit words of one tile."""
        return self.row_bytes * self.ldm // 4

    def write(self, matrices: Array, junk: Source) -> Words32:
        """Raw bits (tiles, rows, cols) as images (tiles, words), junk between."""
        tiles = len(matrices)
        leading, inner = self.sizes
        every = junk.words((tiles, leading, self.ldm)) & np.uint64(self.of.mask)
        memory = every.astype(self.of.bits_dtype)
        memory[..., :inner] = matrices if self.layout == "row" else matrices.mT
        flat = memory.reshape(tiles, -1)
        packed: Words32 = pack_words(flat, self.of.bits, max(32, self.of.bits))
        return packed.reshape(tiles, -1).view(np.uint32)

    def offsets(self, tiles: int) -> NDArray[np.int64]:
        """Where the matrix of each tile begins, in elements."""
        return np.arange(tiles) * (self.sizes[0] * self.ldm)


# ── kernels ─────────────────────────────────────────────────────────────────


def _entry(name: str, params: Iterable[str], body: Iterable[str]) -> str:
    listed = ", ".join(f".param .u64 p_{each}" for each in params)
    lines = "\n".join(f"    {line}" for line in body if line)
    return f".visible .entry {name}({listed})\n{{\n{lines}\n    ret;\n}}\n"


def _leading(names: str) -> list[str]:
    """Read the leading dimension of each matrix."""
    lines = [f".reg .b64 %{each}_address;" for each in names]
    lines += [f".reg .b32 %{each}_ldm;" for each in names]
    lines += ["ld.param.u64 %base, [p_ldm];", "cvta.to.global.u64 %base, %base;"]
    lines += [
        f"ld.global.u32 %{each}_ldm, [%base + {4 * i}];" for i, each in enumerate(names)
    ]
    return lines


def _load(name: str, op: Instruction, row_bytes: int) -> list[str]:
    """Load one fragment of this tile's image."""
    statement = ptx.statement(op, address=f"[%{name}_address]", stride=f"%{name}_ldm")
    return [
        f"ld.param.u64 %base, [p_{name}];",
        "cvta.to.global.u64 %base, %base;",
        f"mul.lo.u32 %bytes, %{name}_ldm, {row_bytes};",
        "mul.wide.u32 %offset, %tile, %bytes;",
        f"add.u64 %{name}_address, %base, %offset;",
        statement,
    ]


def _tile_of_output(tail: str = "") -> list[str]:
    """The address of this tile's part of the output; its size is in %bytes."""
    return [
        "ld.param.u64 %base, [p_out];",
        "cvta.to.global.u64 %base, %base;",
        tail,
        "mul.wide.u32 %offset, %tile, %bytes;",
        "add.u64 %base, %base, %offset;",
    ]


def _store_registers(name: str, part: Fragment, kind: str) -> list[str]:
    """Write the registers of this lane, from %base on."""
    size = part.register_bits // 8
    lines = [
        f"mul.wide.u32 %offset, %lane, {size * part.registers};",
        "add.u64 %offset, %base, %offset;",
    ]
    return lines + [
        f"st.global{kind} [%offset + {size * i}], %{name}{i};"
        for i in range(part.registers)
    ]


def _register_class(op: Instruction, name: str) -> str:
    return next(each.ptx for each in op.operands if each.name == name)


# ── the three kinds of work ─────────────────────────────────────────────────


def _moving(operand: str, layout: str, shape: object, of: object) -> Instruction:
    """The ``wmma.load`` or ``wmma.store`` of one operand, from global memory."""
    verb = "store" if operand == "d" else "load"
    return instruction(
        f"wmma.{verb}.{operand}.sync.aligned.{layout}.{shape}.global.{of}"
    )


@dataclass(frozen=True)
class OfInstruction:
    """What is done with one instruction."""

    op: Instruction
    variant: int
    tiles: int
    seed: int

    @property
    def instruction(self) -> str:
        """Its whole name."""
        return str(self.op)


class Load(OfInstruction):
    """``wmma.load`` of random bits, and the registers it fills."""

    @property
    def kernel(self) -> str:
        """One for each instruction."""
        return _identifier(self.op)

    @property
    def operand(self) -> str:
        """``a``, ``b`` or ``c``."""
        return self.op.values["operand"]

    @cached_property
    def image(self) -> Image:
        """What is loaded."""
        part = self.op.fragments[self.operand.upper()]
        return Image(part, self.op.values["layout"], LONGER[self.variant])

    @cached_property
    def inputs(self) -> list[Array]:
        """The images, and the leading dimension."""
        source = Source("load", str(self.op), self.variant, self.tiles, self.seed)
        part, of = self.image.part, self.image.of
        bits = source.words((self.tiles, *part.shape)) & np.uint64(of.mask)
        images = self.image.write(bits.astype(of.bits_dtype), source)
        return [images, np.array([self.image.ldm], np.uint32)]

    @property
    def shape(self) -> tuple[int, int]:
        """The registers of each tile."""
        part = self.image.part
        return self.tiles, part.lanes * part.registers * part.register_bits // 32

    def entry(self) -> str:
        """Load, then write the registers."""
        part = self.image.part
        size = part.lanes * part.registers * part.register_bits // 8
        body = [
            *_BASE.splitlines(),
            ptx.declarations(self.op)[0],
            *_leading(self.operand),
            *_load(self.operand, self.op, self.image.row_bytes),
            *_tile_of_output(f"mov.u32 %bytes, {size};"),
            *_store_registers(
                self.operand, part, _register_class(self.op, self.operand)
            ),
        ]
        return _entry(self.kernel, ("out", self.operand, "ldm"), body)

    def expect(self, target: str) -> Words32:
        """What :func:`fragmenta.wmma.load_matrix_sync` fills in."""
        use = Use(self.operand.upper())
        frag = _fragment(use, self.op, self.image, self.tiles)
        _fill(frag, self.image, self.inputs[0], target)
        return frag.registers.reshape(self.tiles, -1).view(np.uint32)

    def name(self, word: int) -> str:
        """The register that a word is of."""
        return _register(self.operand, self.image.part, word)


class Multiply(OfInstruction):
    """Three loads, ``wmma.mma`` and ``wmma.store``: registers and image of D."""

    @property
    def layout(self) -> str:
        """How C and D lie in memory: by rows or, in one variant, by columns."""
        return "col" if self.variant == 1 else "row"

    @property
    def kernel(self) -> str:
        """One for each instruction and layout of C and D."""
        return f"{_identifier(self.op)}_{self.layout}"

    @cached_property
    def images(self) -> dict[str, Image]:
        """A, B, C and D in memory, each with a leading dimension of its own."""
        layouts = (*(self.op.values[f"{x}layout"] for x in "ab"), *[self.layout] * 2)
        return {
            name: Image(
                self.op.fragments[name.upper()],
                layout,
                LONGER[(self.variant + turn) % len(LONGER)],
            )
            for turn, (name, layout) in enumerate(zip("abcd", layouts, strict=True))
        }

    @cached_property
    def inputs(self) -> list[Array]:
        """The images of A, B and C, and the leading dimensions."""
        made = trial(self.op, self.tiles, self.seed + self.variant, None)
        source = Source("junk", str(self.op), self.variant, self.tiles, self.seed)
        images: list[Array] = []
        for name in "abc":
            image = self.images[name]
            bits = image.part.unpack_bits(made.registers[name])[self._chosen]
            images.append(image.write(bits, source))
        ldm = [self.images[name].ldm for name in "abcd"]
        return [*images, np.array(ldm, np.uint32)]

    @property
    def _chosen(self) -> slice:
        """The first variant sees every kind of input, the others a quarter."""
        return slice(None) if self.variant == 0 else slice(self.variant, None, 4)

    @property
    def _registers(self) -> int:
        """32-bit words of the registers of D."""
        part = self.op.d
        return part.lanes * part.registers * part.register_bits // 32

    @property
    def shape(self) -> tuple[int, int]:
        """The registers of D, then its image."""
        tiles = len(range(tile_count(self.op, self.tiles))[self._chosen])
        return tiles, self._registers + self.images["d"].words

    def entry(self) -> str:
        """Load A, B and C, multiply, and write D twice."""
        shape, types = self.op.shape, self.op.types
        body = [*_BASE.splitlines(), *ptx.declarations(self.op), *_leading("abcd")]
        for name in "abc":
            image = self.images[name]
            load = _moving(name, image.layout, shape, types[name])
            body += _load(name, load, image.row_bytes)
        store = _moving("d", self.layout, shape, types["d"])
        size = 4 * self._registers
        tile = f"mad.lo.u32 %bytes, %d_ldm, {self.images['d'].row_bytes}, {size};"
        body += [
            ptx.statement(self.op),
            *_tile_of_output(tile),
            *_store_registers("d", self.op.d, _register_class(self.op, "d")),
            f"add.u64 %d_address, %base, {size};",
            ptx.statement(store, address="[%d_address]", stride="%d_ldm"),
        ]
        return _entry(self.kernel, ("out", *"abc", "ldm"), body)

    def expect(self, target: str) -> Words32:
        """What :mod:`fragmenta.wmma` computes and stores."""
        tiles = len(self.inputs[0])
        parts = {
            name: _fragment(
                Use("C" if name == "d" else name.upper()), self.op, at, tiles
            )
            for name, at in self.images.items()
        }
        for name, memory in zip("abc", self.inputs, strict=False):
            _fill(parts[name], self.images[name], memory, target)
        a, b, c, d = parts.values()
        if "bitop" in self.op.values:
            known = wmma.experimental
            xor = self.op.values["bitop"].startswith("xor")
            bits = known.bmmaBitOpXOR if xor else known.bmmaBitOpAND
            wmma.bmma_sync(d, a, b, c, bits, target=target)
        else:
            wmma.mma_sync(d, a, b, c, self.op.satfinite, target=target)
        image = self.images["d"]
        stored = np.full((tiles, image.words), POISON, np.uint32)
        wmma.store_matrix_sync(
            stored.view(np.uint8),
            d,
            image.ldm,
            layout_t(self.layout),
            offset=image.offsets(tiles),
            target=target,
        )
        registers = d.registers.reshape(tiles, -1).view(np.uint32)
        return np.concatenate([registers, stored], axis=1)

    def name(self, word: int) -> str:
        """The register, or the element of the image, that a word is of."""
        if word < self._registers:
            return _register("d", self.op.d, word)
        image = self.images["d"]
        per_word = 32 / image.of.bits
        element = int((word - self._registers) * per_word)
        return f"element {element} in memory (ldm {image.ldm}, {image.layout})"


@dataclass(frozen=True)
class Round:
    """``cvt.rna.tf32.f32`` of every exponent, sign, and fraction near a tie."""

    variant: int
    tiles: int
    seed: int

    instruction = ROUND
    kernel = "round"

    @cached_property
    def inputs(self) -> list[Array]:
        """One lane, one float; no randomness is needed."""
        upper = np.array([0, 1, 2, 0x1FF, 0x200, 0x3FE, 0x3FF], np.uint32) << 13
        lower = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], np.uint32)
        exponents = np.arange(512, dtype=np.uint32) << 23  # the sign on top
        every = exponents[:, None, None] | upper[:, None] | lower
        return [every.reshape(-1, 32)]

    @property
    def shape(self) -> tuple[int, int]:
        """A word for each lane."""
        return self.inputs[0].shape[0], 32

    def entry(self) -> str:
        """Load, round, store."""
        body = [
            *_BASE.splitlines(),
            ".reg .f32 %from;",
            ".reg .b32 %to;",
            "mad.lo.u32 %bytes, %tile, 32, %lane;",
            "mul.wide.u32 %offset, %bytes, 4;",
            "ld.param.u64 %base, [p_from];",
            "cvta.to.global.u64 %base, %base;",
            "add.u64 %base, %base, %offset;",
            "ld.global.f32 %from, [%base];",
            f"{ROUND} %to, %from;",
            "ld.param.u64 %base, [p_out];",
            "cvta.to.global.u64 %base, %base;",
            "add.u64 %base, %base, %offset;",
            "st.global.b32 [%base], %to;",
        ]
        return _entry(self.kernel, ("out", "from"), body)

    def expect(self, target: str) -> Words32:
        """What :func:`fragmenta.wmma.float_to_tf32` makes of it, on any target."""
        rounded: Words32 = wmma.float_to_tf32(self.inputs[0].view(np.float32))
        return rounded.view(np.uint32)

    def name(self, word: int) -> str:
        """The float that a word is of."""
        return f"float {word} of 32"


def _identifier(op: Instruction) -> str:
    """The mnemonic as a name that PTX takes."""
    return "".join(each if each.isalnum() else "_" for each in str(op))


def _register(name: str, part: Fragment, word: int) -> str:
    index = word * 32 // part.register_bits
    lane, register = divmod(index, part.registers)
    return f"register {name}{register} of lane {lane}"


def _fragment(use: Use, op: Instruction, image: Image, tiles: int) -> wmma.fragment:
    m, n, k = op.shape
    layout = None if use is wmma.accumulator else Major(image.layout)
    return wmma.fragment(use, m, n, k, image.of, layout, warps=tiles)


def _fill(frag: wmma.fragment, image: Image, memory: Array, target: str) -> None:
    """Load all tiles of a memory image."""
    layout = layout_t(image.layout) if frag.use is wmma.accumulator else None
    # Only bytes fit every element type; single bytes are of one sign or the other.
    raw = memory.view(image.of.storage if image.of.bits == 8 else np.uint8)
    offsets = image.offsets(len(memory))
    wmma.load_matrix_sync(frag, raw, image.ldm, layout, offset=offsets, target=target)
