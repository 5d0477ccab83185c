"""The launches of the project's own kernels that must give the GPU's bits.

A :class:`Gemm` is one launch of ``gemm.cu``: the kernel, a small shape, and how the
inputs are drawn.  Every type, tile, epilogue and way to store stands in :data:`GEMMS`
at least once.  Few thread blocks share the tiles, so that each computes several and its
ring goes round; most shapes end inside a tile.

The inputs come from integer arithmetic, so that a recording needs no bytes of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fragmenta as fm
from fragmenta.cuda.tools.compiler import to_ptx
from fragmenta.hopper.kernels.arguments import Geometry, Matrix, geometry
from fragmenta.hopper.kernels.choosing import DENSE_TILES, SPARSE_TILES, tiles_for
from fragmenta.hopper.kernels.config import ALIGNMENT, Kernel, Tile
from fragmenta.hopper.kernels.emulate import STORAGE, Epilogue, emulate
from fragmenta.hopper.kernels.four_bits import SCALE_TYPES, pack_integers
from fragmenta.hopper.kernels.packing import Packed, pack
from fragmenta.hopper.kernels.source import TARGET, source
from fragmenta.inspect.evidence import arguments as draw
from fragmenta.reference.registers.dtype import dtype

Bytes = NDArray[np.uint8]

POISON = 0xA5
PAD = 16
"""Bytes of poison after each row."""
SCALES = ("scale", "scale_m", "scale_n", "bias")


@dataclass(frozen=True)
class Gemm:
    """One launch."""

    kernel: Kernel
    m: int
    n: int
    k: int
    blocks: int
    """Thread blocks that share the tiles."""
    inputs: str = "normal"
    """``normal``, or ``special``: infinities, NaN, subnormals, every bit pattern."""
    parts: tuple[str, ...] = ()
    """What the epilogue is given."""
    stages: int = 0
    """A ring of so many stages, not of as many as fit."""

    @property
    def name(self) -> str:
        """A name that no other launch has."""
        more = "".join(f" {part}" for part in self.parts)
        special = " special" if self.inputs == "special" else ""
        return f"{self.kernel} {self.m}x{self.n}x{self.k}{more}{special}"

    @property
    def geometry(self) -> Geometry:
        """Grid, block and everything else that does not depend on the memory."""
        return geometry(self.kernel, self.m, self.n, self.k, self.blocks)

    @property
    def source(self) -> str:
        """The CUDA C++ source."""
        whole, ring = source(self.kernel), self.kernel.stages
        chosen = self.stages or ring
        return whole.replace(f"#define STAGES {ring}\n", f"#define STAGES {chosen}\n")

    @cached_property
    def text(self) -> str:
        """The PTX, with line numbers of the source."""
        return to_ptx(self.source, TARGET, "-lineinfo", compiler="nvrtc")

    # ── inputs ──────────────────────────────────────────────────────────────

    def _drawn(self, what: str, of: str, *shape: int) -> NDArray[Any]:
        seed = draw.seed_of(self.name, what)
        if of == "b1":
            spec = draw.integers("u8", *shape, low=0, high=2)
        elif dtype(of).is_integer:
            spec = draw.bits({"s8": "i8", "u8": "u8"}[of], *shape)
        elif self.inputs == "special" and dtype(of).bits == 8:
            spec = draw.bits(of, *shape)
        elif self.inputs == "special" and of == "tf32":  # the sums must not overflow
            spec = draw.wide("f32", *shape, low=-70, high=40)
        else:
            kind = draw.special if self.inputs == "special" else draw.normal
            spec = kind({"tf32": "f32"}.get(of, of), *shape)
        made = draw.make(spec, seed)
        assert isinstance(made, np.ndarray)
        found = made.view(dtype(of).storage)
        return _mostly_finite(found, seed) if self.inputs == "special" else found

    @cached_property
    def a(self) -> NDArray[Any] | Packed:
        """A: packed if it is sparse."""
        if self.kernel.four_bits:
            return self._integers()
        drawn = self._drawn("a", self.kernel.a, self.m, self.k)
        if not self.kernel.sparse:
            return drawn
        op = self.kernel.instruction
        return pack(
            op, fm.sparse.compress(op, fm.sparse.prune(op, drawn, pad=True), pad=True)
        )

    def _integers(self, number: str = "") -> Packed:
        """A of 4-bit integers: two of four, and a scale for each group."""
        kernel, op = self.kernel, self.kernel.instruction
        words = draw.make(
            draw.integers("i8", self.m, self.k, low=-8, high=8),
            draw.seed_of(self.name, f"a{number}"),
        )
        assert isinstance(words, np.ndarray)
        pruned = fm.sparse.prune(op, words.astype(op.types["a"].storage), pad=True)
        sp = fm.sparse.compress(op, pruned, pad=True)
        integers = replace(sp, values=sp.values.astype(np.float32).astype(np.int8))
        if not kernel.group:
            return pack_integers(integers, b=kernel.b)
        made = draw.make(
            draw.normal("f32", self.m, -(-self.k // kernel.group)),
            draw.seed_of(self.name, f"scales{number}"),
        )
        assert isinstance(made, np.ndarray)
        scales = made.astype(SCALE_TYPES[kernel.scales])
        return pack_integers(integers, scales, b=kernel.b, group=kernel.group)

    @cached_property
    def b(self) -> NDArray[Any]:
        """B."""
        return self._drawn("b", self.kernel.b, self.n, self.k)

    @cached_property
    def epilogue(self) -> dict[str, NDArray[Any]]:
        """What the epilogue is given, by name."""
        found: dict[str, NDArray[Any]] = {}
        for name in self.parts:
            count = {"scale": 1, "scale_n": self.n}.get(name, self.m)
            made = draw.make(draw.normal("f32", count), draw.seed_of(self.name, name))
            assert isinstance(made, np.ndarray)
            found[name] = made
        if self.kernel.xor:
            assert isinstance(self.a, np.ndarray)
            found["count_m"], found["count_n"] = (
                x.sum(axis=1, dtype=np.int32) for x in (self.a, self.b)
            )
        return found

    @cached_property
    def expected(self) -> NDArray[Any]:
        """D, by the emulation of the kernel's chain of instructions."""
        given: dict[str, Any] = {x: y for x, y in self.epilogue.items() if x in SCALES}
        if "scale" in given:
            given["scale"] = given["scale"].reshape(())
        return emulate(self.kernel, self.a, self.b, Epilogue(**given))

    # ── memory ──────────────────────────────────────────────────────────────

    def memory(self) -> Memory:
        """The arrays that the kernel gets, with D poisoned."""
        a = self.a
        wide = self.m if self.kernel.transposed else self.n
        high = self.n if self.kernel.transposed else self.m
        return Memory(
            a.data.reshape(-1) if isinstance(a, Packed) else Rows.of(a, self.kernel.a),
            Rows.of(self.b, self.kernel.b),
            Rows.empty(high, wide * STORAGE[self.kernel.out].itemsize),
            self.epilogue,
        )

    def digest(self) -> str:
        """A short hash of all inputs."""
        made = self.memory()
        a = made.a.buffer if isinstance(made.a, Rows) else made.a
        return short_hash(a, made.b.buffer, *made.epilogue.values())


def _mostly_finite(values: NDArray[Any], seed: int) -> NDArray[Any]:
    """One infinity spoils a row of D: most rows keep none."""
    wild = ~np.isfinite(values.astype(np.float32))
    keep = draw.random_words(seed + 1, len(values)) % np.uint64(8) == 0
    return np.where(wild & ~keep[:, None], values.dtype.type(0), values)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of bytes, each followed by poison."""

    buffer: Bytes
    """(rows, pitch)"""
    width: int

    @classmethod
    def empty(cls, rows: int, width: int) -> Rows:
        """Rows that are all poison."""
        pitch = -(-width // ALIGNMENT) * ALIGNMENT + PAD
        return cls(np.full((rows, pitch), POISON, np.uint8), width)

    @classmethod
    def of(cls, matrix: NDArray[Any], element_type: str) -> Rows:
        """The rows of a matrix."""
        if element_type == "b1":
            raw = np.packbits(matrix, axis=-1, bitorder="little")
        else:
            raw = np.ascontiguousarray(matrix).view(np.uint8)
        made = cls.empty(*raw.shape)
        made.inside[:] = raw
        return made

    @property
    def inside(self) -> Bytes:
        """The bytes without the poison."""
        return self.buffer[:, : self.width]

    def matrix(self, pointer: Any = None) -> Matrix:
        """Where they are: at an address, or in this array."""
        rows, pitch = self.buffer.shape
        at = self.buffer if pointer is None else pointer
        return Matrix(at, rows, self.width, pitch)


@dataclass(frozen=True, eq=False)
class Memory:
    """What a launch reads and writes."""

    a: Bytes | Rows
    b: Rows
    d: Rows
    epilogue: dict[str, NDArray[Any]]
    ends: NDArray[np.int32] | None = None
    """Of a grouped product: where the rows of each expert end."""
    settled: bool = False


def short_hash(*arrays: NDArray[Any]) -> str:
    """SHA-256 of the bytes, shortened."""
    state = hashlib.sha256()
    for each in arrays:
        state.update(np.ascontiguousarray(each).tobytes())
    return state.hexdigest()[:16]


# ── shapes ──────────────────────────────────────────────────────────────────


def sized(kernel: Kernel, number: int, **more: Any) -> Gemm:
    """A launch with several tiles for each block; ``number`` varies its edges.

    A block goes through more stages than its ring has.
    """
    tile = kernel.tile
    area = tile.m * tile.n * tile.cluster
    tall, wide = (3, 2) if area <= 8192 else ((1, 4), (2, 2))[number % 2]
    shares = 2 if number % 4 == 3 else 1  # clusters, or blocks
    stages = max(2, kernel.stages * shares // (tall * wide) + 1)
    if tile.split > 1:  # every part has a cluster of its own, and one tile
        tall, wide = (2, 1) if number % 2 else (1, 2)
        stages = tile.split * (kernel.stages + 1) - number % 2
    slabs = stages * kernel.slabs - (kernel.slabs > 1 and number % 2)
    step = 128 // dtype(kernel.multiplied).bits  # elements in 16 bytes
    less = (0, step, step // 2 + 8 * (kernel.a == "b1"))[number % 3]
    if kernel.sparse:
        less -= less % 4
    return Gemm(
        kernel,
        tall * tile.m * tile.cluster - (0, 5, 17, 40)[number % 4],
        wide * tile.n - (0, 3, 7)[number // 2 % 3],
        slabs * kernel.slab_k - less,
        shares * tile.cluster,
        **more,
    )


# ── the list ────────────────────────────────────────────────────────────────

TYPES = (
    ("bf16", "bf16"),
    ("e4m3", "e4m3"),
    ("s8", "s8"),
    ("tf32", "tf32"),
    ("f16", "f16"),
    ("e5m2", "e5m2"),
    ("e4m3", "e5m2"),
    ("u8", "u8"),
    ("e5m2", "e4m3"),
    ("s8", "u8"),
    ("u8", "s8"),
)


def tiles() -> Iterator[Kernel]:
    """Every dense tile and many sparse ones, with one type after the other."""
    for sparse in (True, False):
        for number, tile in enumerate(many() if sparse else DENSE_TILES):
            a, b = TYPES[(number + 3 * sparse) % len(TYPES)]
            if tile not in tiles_for(Kernel(a, b, sparse=sparse)):
                a = b = "f16"  # integers have fewer widths
            yield Kernel(a, b, tile=tile, sparse=sparse)


def many() -> list[Tile]:
    """Tiles of every height with every split and cluster, and of every width."""
    found: list[Tile] = []
    kinds: set[tuple[int, int, int]] = set()
    widths: set[tuple[int, bool]] = set()
    for tile in SPARSE_TILES:
        kind, width = (tile.m, tile.cluster, tile.split), (tile.n, tile.split > 1)
        if kind not in kinds or width not in widths:
            kinds.add(kind)
            widths.add(width)
            found.append(tile)
    return found


def bit_kernels() -> Iterator[Kernel]:
    """And, and exclusive or, of bits."""
    for tile in (Tile(64, 8), Tile(128, 128), Tile(128, 192, 2, True), Tile(64, 32, 2)):
        for xor in (False, True):
            yield Kernel("b1", tile=tile, sparse=False, xor=xor)


def promoted() -> Iterator[Kernel]:
    """Sums that leave the tensor core after every slab."""
    for number, (a, b) in enumerate(x for x in TYPES if x[0] in ("e4m3", "e5m2")):
        tile = (Tile(64, 16), Tile(128, 64), Tile(64, 64, 2), Tile(128, 192))[number]
        yield Kernel(a, b, tile=tile, sparse=number % 2 == 0, promote=True)
        across = {"transposed": True, "scaled": True, "promote": True}
        yield Kernel(a, b, "bf16", Tile(64, 32), sparse=number % 2 == 1, **across)


def stored() -> Iterator[Kernel]:
    """Every type of D, straight and transposed, with and without scales."""
    few = (Tile(64, 32), Tile(128, 64), Tile(64, 64, 2), Tile(64, 8), Tile(128, 128))
    number = 0
    for transposed in (False, True):
        for out in ("f32", "bf16", "f16"):
            for scaled in (False, True):
                a = ("f16", "bf16", "s8" if scaled else "e4m3")[number % 3]
                tile = few[number % len(few)]
                plain = Kernel("bf16", tile=tile, sparse=number % 4 > 1)
                yield replace(
                    plain, a=a, b=a, out=out, scaled=scaled, transposed=transposed
                )
                number += 1
    for tile in (Tile(128, 128, 2, True), Tile(64, 256, 2, True)):
        yield Kernel("bf16", out="f16", tile=tile, sparse=False, transposed=True)
        yield Kernel("s8", out="bf16", tile=tile, sparse=False, scaled=True)
    yield Kernel("s8", tile=Tile(64, 16), transposed=True)
    yield Kernel("tf32", tile=Tile(64, 64), transposed=True, sparse=False)


def _all() -> Iterator[Gemm]:
    """Every launch."""
    givens = [
        SCALES,
        ("bias",),
        ("scale",),
        ("scale_m", "scale_n"),
        ("scale_n", "bias"),
    ]
    listed = [*tiles(), *bit_kernels(), *promoted(), *stored()]
    scaled = 0
    for number, kernel in enumerate(listed):
        parts = givens[scaled % len(givens)] if kernel.scaled else ()
        scaled += kernel.scaled
        yield sized(kernel, number, parts=parts)
    for number, (a, tile) in enumerate(
        [
            ("bf16", Tile(64, 32)),
            ("e4m3", Tile(64, 16)),
            ("e5m2", Tile(64, 32, 2)),
            ("f16", Tile(128, 64)),
            ("tf32", Tile(64, 8)),
        ]
    ):
        for sparse in (True, False):
            kernel = Kernel(a, out="f32", tile=tile, sparse=sparse)
            yield sized(kernel, number + 4 * sparse, inputs="special")
    # More rows of tiles than are kept in the cache together, and one row too many.
    yield Gemm(Kernel("bf16", tile=Tile(64, 8)), 9 * 64 + 1, 13, 64, 2)
    yield Gemm(Kernel("f16", tile=Tile(64, 16), sparse=False), 1, 1, 1, 1)


INTEGERS = (
    ("bf16", 128, Tile(64, 8)),
    ("e4m3", 128, Tile(64, 16)),
    ("f16", 32, Tile(64, 32, split=2)),
    ("bf16", 64, Tile(128, 16)),
    ("e4m3", 64, Tile(128, 64, 2)),
    ("bf16", 0, Tile(256, 64)),
    ("e4m3", 0, Tile(256, 96, split=2)),
    ("f16", 128, Tile(128, 144)),
    ("bf16", 32, Tile(64, 64, split=4)),
    ("e4m3", 128, Tile(128, 128, 2)),
    ("f16", 0, Tile(64, 24)),
)
"""4-bit integers: what they are multiplied with, their groups, and tiles."""


def _four_bits() -> Iterator[Gemm]:
    for number, (b, group, tile) in enumerate(INTEGERS):
        kernel = Kernel(
            "s4", b, "f32", tile, group=group, scales=("f16", "bf16")[number % 2]
        )
        yield sized(kernel, number)
        across = replace(kernel, transposed=True, out=("bf16", "f16")[number % 2])
        if number % 3 == 0:
            yield sized(replace(across, scaled=True), number + 1, parts=SCALES)
        elif number % 3 == 1:
            yield sized(kernel, number + 1, inputs="special")
        else:
            yield sized(across, number + 1)


MORE_INTEGERS = (
    ("e4m3", 128, Tile(64, 96, split=2)),
    ("f16", 32, Tile(128, 16, 2)),
    ("bf16", 64, Tile(128, 64)),
    ("e4m3", 64, Tile(256, 32)),
    ("bf16", 128, Tile(256, 64)),
    ("e4m3", 128, Tile(256, 64)),
    ("f16", 128, Tile(128, 128)),
    ("e4m3", 0, Tile(128, 96)),
    ("bf16", 32, Tile(256, 48, split=2)),
)
"""4-bit integers in tiles whose stages have as many slabs as theirs alone have."""


def _more_four_bits() -> Iterator[Gemm]:
    for number, (b, group, tile) in enumerate(MORE_INTEGERS):
        scales = ("f16", "bf16")[number % 2]
        kernel = Kernel("s4", b, "f32", tile, group=group, scales=scales)
        if number % 3 == 2:
            kernel = replace(kernel, transposed=True, out="bf16", scaled=True)
        yield sized(kernel, number, parts=SCALES if kernel.scaled else ())


GEMMS: list[Gemm] = list(_all())
OF_INTEGERS: list[Gemm] = list(_four_bits())
"""A of 4-bit integers."""
OF_MORE_INTEGERS: list[Gemm] = list(_more_four_bits())
"""The same in other tiles."""

FEW = [*GEMMS[5::12], GEMMS[39], GEMMS[-1]]
"""Those that are compared whenever the tests run."""
