"""Cases of ``wmma``: its loads, multiplications and stores.

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

import warnings
from abc import abstractmethod
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.source import ptx
from fragmenta.cuda.source.kernel import WARP, KernelBuilder
from fragmenta.cuda.tools.launch import Arrays, identifier, poisoned
from fragmenta.errors import BadFile
from fragmenta.inspect.evidence.case import AnswerForm, Case, CaseOptions
from fragmenta.inspect.evidence.inputs import WordStream, registers, tile_count
from fragmenta.inspect.evidence.validation import RecordedCase
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.isa.target import TARGETS, Version, check_target
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.words import pack_words
from fragmenta.reference.wmma import calls, fragments, names
from fragmenta.reference.wmma.names import Major, Use, layout_t

Words32 = NDArray[np.uint32]

TILES = 8
"""Tiles of a multiplication; a load has one."""

#: Leading dimensions to try: this many times 16 bytes beyond the shortest.
LONGER = (0, 1, 3)

ROUND = "cvt.rna.tf32.f32"


# ── memory images ───────────────────────────────────────────────────────────


@dataclass(frozen=True)
class StoredMatrix:
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

    def write(self, matrices: Array, junk: WordStream) -> Words32:
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


# ── parts of kernels ────────────────────────────────────────────────────────


def _add_leading(entry: KernelBuilder, names: str) -> None:
    """Read the leading dimension of each matrix."""
    entry.declare(Operand(f"{each}_ldm", "stride") for each in names)
    entry.point("ldm")
    entry.do(
        *(
            f"ld.global.u32 %{each}_ldm, [%base + {4 * i}];"
            for i, each in enumerate(names)
        )
    )


def _add_load(entry: KernelBuilder, name: str, op: Instruction, row_bytes: int) -> None:
    """Load one fragment of this tile's image."""
    entry.do(f"mul.lo.u32 %bytes, %{name}_ldm, {row_bytes};")
    entry.point(name, "%tile", "%bytes")
    entry.do(ptx.statement(op, address="[%base]", stride=f"%{name}_ldm"))


def _moving(operand: str, layout: str, shape: object, of: object) -> Instruction:
    """The ``wmma.load`` or ``wmma.store`` of one operand, from global memory."""
    verb = "store" if operand == "d" else "load"
    return instruction(
        f"wmma.{verb}.{operand}.sync.aligned.{layout}.{shape}.global.{of}"
    )


def _operand(op: Instruction, name: str) -> Operand:
    return next(each for each in op.operands if each.name == name)


# ── the three cases ─────────────────────────────────────────────────────────


class WmmaCase(Case):
    """One kernel of a warp on one set of inputs: words for each tile."""

    kind = "wmma"
    variant: int
    """Which of :data:`LONGER` comes first."""

    @property
    def threads(self) -> int:
        """A warp."""
        return WARP

    @property
    def options(self) -> CaseOptions:
        """Which leading dimensions."""
        return {"variant": self.variant}

    @property
    def form(self) -> AnswerForm:
        """Tiles, and 32-bit words of each."""
        return self.shape, np.dtype(np.uint32)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The shape of the answer."""

    def expect(self, inputs: Arrays, target: str) -> Words32:
        """What :mod:`fragmenta.wmma` computes, without its warnings."""
        with warnings.catch_warnings():
            # the target was named, so the warning is of no use
            warnings.simplefilter("ignore", calls.DeprecatedVariant)
            return self.computed(inputs, target)

    @abstractmethod
    def computed(self, inputs: Arrays, target: str) -> Words32:
        """What :mod:`fragmenta.wmma` computes."""

    def where(self, tile: int, place: tuple[int, ...]) -> str:
        """Which register or which element in memory a word is of."""
        return f"tile {tile}, {self.word(*place)}"

    @abstractmethod
    def word(self, number: int) -> str:
        """What a word of a tile's answer is."""


@dataclass(frozen=True)
class _InstructionCase(WmmaCase):
    """A case of one instruction."""

    op: Instruction
    variant: int
    tiles: int
    seed: int

    @property
    def instruction(self) -> str:
        """Its whole name."""
        return str(self.op)

    def version(self, target: str) -> Version:
        """The PTX version of the instruction."""
        return self.op.requires.ptx_on(target)


class LoadCase(_InstructionCase):
    """``wmma.load`` of random bits, and the registers it fills."""

    @property
    def name(self) -> str:
        """One for each instruction."""
        return identifier(str(self.op))

    @property
    def operand(self) -> str:
        """``a``, ``b`` or ``c``."""
        return self.op.values["operand"]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The images, and the leading dimension."""
        return self.operand, "ldm"

    @cached_property
    def image(self) -> StoredMatrix:
        """What is loaded."""
        part = self.op.fragments[self.operand.upper()]
        return StoredMatrix(part, self.op.values["layout"], LONGER[self.variant])

    def inputs(self) -> Arrays:
        """Images of random bits."""
        source = WordStream("load", str(self.op), self.variant, self.tiles, self.seed)
        part, of = self.image.part, self.image.of
        bits = source.words((self.tiles, *part.shape)) & np.uint64(of.mask)
        images = self.image.write(bits.astype(of.bits_dtype), source)
        return {self.operand: images, "ldm": np.array([self.image.ldm], np.uint32)}

    @property
    def shape(self) -> tuple[int, int]:
        """The registers of each tile."""
        return self.tiles, _words(self.image.part)

    def entry(self) -> str:
        """Load, then write the registers."""
        held = _operand(self.op, self.operand)
        entry = KernelBuilder(self.name)
        entry.pointers(("out", *self.parameters))
        entry.declare([held])
        entry.tiles(WARP)
        _add_leading(entry, self.operand)
        _add_load(entry, self.operand, self.op, self.image.row_bytes)
        entry.store(held, "out")
        return entry.text()

    def computed(self, inputs: Arrays, target: str) -> Words32:
        """What :func:`fragmenta.wmma.load_matrix_sync` fills in."""
        use = Use(self.operand.upper())
        frag = _fragment(use, self.op, self.image, self.tiles)
        _fill(frag, self.image, inputs[self.operand], target)
        return frag.registers.reshape(self.tiles, -1).view(np.uint32)

    def word(self, number: int) -> str:
        """The register that a word is of."""
        return _register(self.operand, self.image.part, number)


class MultiplyCase(_InstructionCase):
    """Three loads, ``wmma.mma`` and ``wmma.store``: registers and image of D."""

    parameters = ("a", "b", "c", "ldm")

    @property
    def layout(self) -> str:
        """How C and D lie in memory: by rows or, in one variant, by columns."""
        return "col" if self.variant == 1 else "row"

    @property
    def name(self) -> str:
        """One for each instruction and layout of C and D."""
        return f"{identifier(str(self.op))}_{self.layout}"

    @cached_property
    def images(self) -> dict[str, StoredMatrix]:
        """A, B, C and D in memory, each with a leading dimension of its own."""
        layouts = (*(self.op.values[f"{x}layout"] for x in "ab"), *[self.layout] * 2)
        return {
            name: StoredMatrix(
                self.op.fragments[name.upper()],
                layout,
                LONGER[(self.variant + turn) % len(LONGER)],
            )
            for turn, (name, layout) in enumerate(zip("abcd", layouts, strict=True))
        }

    def inputs(self) -> Arrays:
        """The images of A, B and C, and the leading dimensions."""
        made = registers(self.op, self.tiles, self.seed + self.variant, None)
        source = WordStream("junk", str(self.op), self.variant, self.tiles, self.seed)
        found: dict[str, Array] = {}
        for name in "abc":
            image = self.images[name]
            bits = image.part.unpack_bits(made[name])[self._chosen]
            found[name] = image.write(bits, source)
        ldm = [self.images[name].ldm for name in "abcd"]
        return {**found, "ldm": np.array(ldm, np.uint32)}

    @property
    def _chosen(self) -> slice:
        """The first variant sees every kind of input, the others a quarter."""
        return slice(None) if self.variant == 0 else slice(self.variant, None, 4)

    @property
    def shape(self) -> tuple[int, int]:
        """The registers of D, then its image."""
        tiles = len(range(tile_count(self.op, self.tiles))[self._chosen])
        return tiles, _words(self.op.d) + self.images["d"].words

    def entry(self) -> str:
        """Load A, B and C, multiply, and write D twice."""
        shape, types = self.op.shape, self.op.types
        entry = KernelBuilder(self.name)
        entry.pointers(("out", *self.parameters))
        entry.declare(self.op.operands)
        entry.tiles(WARP)
        _add_leading(entry, "abcd")
        for name in "abc":
            image = self.images[name]
            load = _moving(name, image.layout, shape, types[name])
            _add_load(entry, name, load, image.row_bytes)
        entry.do(ptx.statement(self.op))
        d, size = _operand(self.op, "d"), 4 * _words(self.op.d)
        row_bytes = self.images["d"].row_bytes
        entry.do(f"mad.lo.u32 %bytes, %d_ldm, {row_bytes}, {size};")
        entry.point("out", "%tile", "%bytes")
        entry.step("%from", "%thread", ptx.size(d))
        entry.store_at(d, "%from")
        store = _moving("d", self.layout, shape, types["d"])
        entry.do(
            f"add.u64 %base, %base, {size};",
            ptx.statement(store, address="[%base]", stride="%d_ldm"),
        )
        return entry.text()

    def computed(self, inputs: Arrays, target: str) -> Words32:
        """The registers of D, and what is stored of them."""
        tiles = len(inputs["a"])
        parts = {
            name: _fragment(
                Use("C" if name == "d" else name.upper()), self.op, at, tiles
            )
            for name, at in self.images.items()
        }
        for name in "abc":
            _fill(parts[name], self.images[name], inputs[name], target)
        a, b, c, d = parts.values()
        if "bitop" in self.op.values:
            known = names.experimental
            xor = self.op.values["bitop"].startswith("xor")
            bits = known.bmmaBitOpXOR if xor else known.bmmaBitOpAND
            calls.bmma_sync(d, a, b, c, bits, target=target)
        else:
            calls.mma_sync(d, a, b, c, self.op.satfinite, target=target)
        held = d.registers.reshape(tiles, -1).view(np.uint32)
        return np.concatenate([held, self._stored(d, tiles, target)], axis=1)

    def _stored(self, d: fragments.fragment, tiles: int, target: str) -> Words32:
        """The image of D, poison between its rows."""
        image = self.images["d"]
        memory = poisoned((tiles, image.words), np.dtype(np.uint32))
        calls.store_matrix_sync(
            memory.view(np.uint8),
            d,
            image.ldm,
            layout_t(self.layout),
            offset=image.offsets(tiles),
            target=target,
        )
        return memory

    def word(self, number: int) -> str:
        """The register, or the element of the image, that a word is of."""
        held = _words(self.op.d)
        if number < held:
            return _register("d", self.op.d, number)
        image = self.images["d"]
        element = (number - held) * 32 // image.of.bits
        return f"element {element} in memory (ldm {image.ldm}, {image.layout})"


@dataclass(frozen=True)
class RoundCase(WmmaCase):
    """``cvt.rna.tf32.f32`` of every exponent, sign, and fraction near a tie.

    >>> RoundCase(0, 1, 0).shape
    (672, 32)
    """

    variant: int
    tiles: int
    seed: int

    instruction = ROUND
    name = "round"
    parameters = ("x",)

    def version(self, target: str) -> Version:
        """The target's own, and at least that of the conversion."""
        return max(TARGETS[check_target(target)], Version(7, 0))

    def inputs(self) -> Arrays:
        """One lane, one float; no randomness is needed."""
        upper = np.array([0, 1, 2, 0x1FF, 0x200, 0x3FE, 0x3FF], np.uint32) << 13
        lower = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], np.uint32)
        exponents = np.arange(512, dtype=np.uint32) << 23  # the sign on top
        every = exponents[:, None, None] | upper[:, None] | lower
        return {"x": every.reshape(-1, WARP)}

    @property
    def shape(self) -> tuple[int, int]:
        """A word for each lane."""
        return len(self.inputs()["x"]), WARP

    def entry(self) -> str:
        """Load, round, store."""
        x = Operand("x", ".f32", vector=False)
        y = Operand("y", ".b32", vector=False)
        entry = KernelBuilder(self.name)
        entry.pointers(("out", *self.parameters))
        entry.declare([x, y])
        entry.tiles(WARP)
        entry.load(x)
        entry.do(f"{ROUND} %y, %x;")
        entry.store(y, "out")
        return entry.text()

    def computed(self, inputs: Arrays, target: str) -> Words32:
        """What :func:`fragmenta.wmma.float_to_tf32` makes of it, on any target."""
        rounded: Words32 = calls.float_to_tf32(inputs["x"].view(np.float32))
        return rounded.view(np.uint32)

    def word(self, number: int) -> str:
        """The float that a word is of."""
        return f"float {number} of {WARP}"


def _words(part: Fragment) -> int:
    """32-bit words of the registers of a fragment."""
    return part.lanes * part.registers * part.register_bits // 32


def _register(name: str, part: Fragment, word: int) -> str:
    index = word * 32 // part.register_bits
    lane, register = divmod(index, part.registers)
    return f"register {name}{register} of lane {lane}"


def _fragment(
    use: Use, op: Instruction, image: StoredMatrix, tiles: int
) -> fragments.fragment:
    m, n, k = op.shape
    layout = None if use is names.accumulator else Major(image.layout)
    return fragments.fragment(use, m, n, k, image.of, layout, warps=tiles)


def _fill(
    frag: fragments.fragment, image: StoredMatrix, memory: Array, target: str
) -> None:
    """Load all tiles of a memory image."""
    layout = layout_t(image.layout) if frag.use is names.accumulator else None
    # Only bytes fit every element type; single bytes are of one sign or the other.
    raw = memory.view(image.of.storage if image.of.bits == 8 else np.uint8)
    offsets = image.offsets(len(memory))
    calls.load_matrix_sync(frag, raw, image.ldm, layout, offset=offsets, target=target)


# ── what is recorded ────────────────────────────────────────────────────────


def cases(target: str, *, tiles: int = TILES, seed: int) -> list[WmmaCase]:
    """All cases of a target, in a fixed order.

    >>> found = cases("sm_90a", seed=1)
    >>> len(found), found[0].instruction
    (631, 'wmma.load.a.sync.aligned.row.m16n16k16.global.f16')
    """
    numbers = range(len(LONGER))
    loads = [
        op
        for op in catalogue("wmma.load")
        if op.values["space"] == "global" and op.supported_on(target)
    ]
    products = [
        op
        for op in catalogue("wmma.mma")
        # the C++ API rounds f64 to nearest only
        if not op.values.get("rounding") and op.supported_on(target)
    ]
    found: list[WmmaCase] = [LoadCase(op, v, 1, seed) for op in loads for v in numbers]
    found += [MultiplyCase(op, v, tiles, seed) for op in products for v in numbers]
    return [*found, RoundCase(0, 1, seed)]


@cache
def _recorded(target: str) -> frozenset[str]:
    return frozenset(each.instruction for each in cases(target, tiles=1, seed=1))


def again(recorded: RecordedCase, target: str) -> WmmaCase:
    """The case that was recorded; an error if there is no such case."""
    name, variant = recorded.instruction, recorded.variant
    if name not in _recorded(target):
        raise BadFile(f"{target} is not asked for {name:.80}")
    if not isinstance(variant, int) or variant not in range(len(LONGER)):
        raise BadFile(f"variant {variant!r:.40} is not one of 0 to {len(LONGER) - 1}")
    if recorded.selector is not None:
        raise BadFile(f"wmma has no selectors; given {recorded.selector}")
    if name == ROUND:
        if recorded.tiles != 1:
            raise BadFile(f"{ROUND} has one tile; given {recorded.tiles}")
        return RoundCase(variant, recorded.tiles, recorded.seed)
    op = instruction(name)
    kind = LoadCase if op.loads else MultiplyCase
    return kind(op, variant, recorded.tiles, recorded.seed)
