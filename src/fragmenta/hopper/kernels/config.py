"""The configuration of a kernel: types, tile and epilogue.

A :class:`Kernel` holds everything that is fixed when the source is compiled: the
types, the tile, and what happens to the result before it is stored.
:func:`~fragmenta.hopper.kernels.choosing.choose` takes the tile for a shape.

Counted in bytes, the kernel is the same for all types.  A slab is 128 bytes of every
row of B and the part of A that they are multiplied with: 64 stored bytes of each row
and their metadata if A is sparse, else 128 bytes.  A stage of the kernel's ring
buffer has one slab, or several if they are small.

A of 4-bit integers (``s4``) is converted to the type of B in registers.  Its slab is
128 columns of k, whatever the type of B: 256 bytes of each row of B if it has 16 bits,
else 128.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from fragmenta.errors import BadCall, ShapeError, UnknownType, nearest, one_of
from fragmenta.reference.isa.building import wgmma
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.dtype import dtype

SLAB_BYTES = 128
"""Bytes of each row of B in a slab."""
READ_BYTES = 32
"""Stored bytes of each row of A that one instruction reads."""
SLAB_S4 = 128
"""Columns of k in a slab of 4-bit integers."""
PACKED_M = 256
"""Rows of a packed A whose slabs are adjacent in memory."""
ALIGNMENT = 16
"""The copy engine needs rows of B and D to begin on multiples of this many bytes.

It also stores whole units of this size.  If a row of D ends within a unit, the bytes
after it are overwritten, and the buffer must have room for them.
"""

MOST_EXPERTS = 512
"""A grouped product has at most so many experts."""

_SHARED = 232_448  # most bytes of shared memory in a block
_BARRIERS = 1024 + 1024  # aligning the ring to 1024, and the barriers
_STAGING = (24_576, 16_384, 8192)  # possible sizes of a consumer's buffer for results
_ENOUGH = 4  # stages that hide the latency of memory
_STAGES = {4: 6, 2: 8, 1: 12}  # slabs in a stage: most stages (more are slower)
#: Rows of a tile: most columns for which four slabs in a stage are fast, and two.
_SHARING = {64: (64, 120), 128: (24, 88), 256: (0, 0)}
PROCESSORS = 132
"""Multiprocessors of an H200."""
CLUSTERS = {1: 132, 2: 66, 3: 39, 4: 30, 6: 17, 8: 15}
"""Clusters that fit on it at a time, by their blocks."""
_HEIGHTS = (64, 128, 256)
WIDTHS = (*range(8, 128, 8), *range(128, 257, 16))
"""Columns that a tile can have."""
_SPLITS = (2, 3, 4, 6, 8)
_ACCUMULATORS = 192  # most registers for sums in a thread of a consumer

OUTPUTS = {"f32": 0, "bf16": 1, "f16": 2, "s32": 3}
BYTES = {"f32": 4, "bf16": 2, "f16": 2, "s32": 4}
"""Bytes of an element of D."""
#: What 4-bit integers are multiplied with, and as which type.
FOUR_BITS = {"bf16": "bf16", "f16": "f16", "e4m3": "e4m3"}
GROUPS = (0, 32, 64, 128)
"""Columns that share a scale, if A has 4 bits; 0: a row has no scales in A."""
GROUP_SCALES = ("f16", "bf16")
"""The types of these scales."""
S4_SUMS = 144
"""Most registers for all sums in a thread, if A has 4 bits."""
_S4_TWO_SETS = 128  # the same, if two groups can be under way
_KEPT = {"b1": ("s32",), "s8": ("s32",), "u8": ("s32",)}
ACTIVATIONS = {"none": 0, "relu": 1, "relu2": 2}
"""The activations, as ``chunk.cuh`` numbers them; relu2 is the square of relu."""
ACTIVATED = {"bf16": "0xB16", "f16": "16"}
"""The types that go through an activation, as ``chunk.cuh`` calls them."""
_SMOOTH = ("silu", "swi", "gelu", "glu", "mish")
_PACKED_BLOCK = 64 * 64 + 128 * 4 * 2  # bytes of 64 rows and 128 columns of e4m3


@dataclass(frozen=True, order=True)
class Tile:
    """The part of D that a block of threads computes at a time: m x n.

    The blocks of a ``cluster`` compute tiles one below the other and share what
    they read of B.  The warpgroups that multiply share a tile; with ``turns``, two
    of them take whole tiles alternately, and one stores while the other multiplies.
    With a ``split``, the blocks of a cluster share a tile: each sums a part of k.

    >>> Tile(256, 192, cluster=2).consumers, Tile(64, 16).consumers
    (2, 1)
    >>> str(Tile(256, 192, cluster=2)), str(Tile(128, 192, turns=True))
    ('256x192/2', '2*128x192')
    >>> str(Tile(128, 96, split=4))
    '128x96 k/4'
    """

    m: int
    n: int
    cluster: int = 1
    turns: bool = False
    split: int = 1

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return 1 if self.m == 64 and not self.turns else 2

    @property
    def blocks(self) -> int:
        """m64 blocks of D that each of these warpgroups holds."""
        return self.m // 64 // (1 if self.turns else self.consumers)

    @property
    def promotes(self) -> bool:
        """Whether promotion has enough registers for its second set of sums."""
        return self.blocks <= 1 and self.n <= 192

    def __str__(self) -> str:
        cluster = f"/{self.cluster}" if self.cluster > 1 else ""
        split = f" k/{self.split}" if self.split > 1 else ""
        return f"{'2*' if self.turns else ''}{self.m}x{self.n}{cluster}{split}"


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel.

    >>> kernel = Kernel("e4m3", out="bf16", tile=Tile(256, 192, cluster=2))
    >>> str(kernel.instruction)
    'wgmma.mma_async.sp.sync.aligned.m64n192k64.f32.e4m3.e4m3'
    >>> kernel.stages, kernel.shared_bytes
    (4, 230400)
    """

    a: str
    b: str = ""
    out: str = ""
    tile: Tile = Tile(128, 128)
    sparse: bool = True
    promote: bool = False
    """Add the sums of each 128 of k in f32, outside the tensor core (fp8 only)."""
    scaled: bool = False
    """Whether the result is scaled, or a bias is added."""
    transposed: bool = False
    """Whether D is stored as n x m."""
    xor: bool = False
    """Count the bits that differ, not those set in both (b1 only)."""
    grouped: bool = False
    """Whether each expert has its own A, and multiplies its own rows of B."""
    group: int = 0
    """Columns of A that share a scale (s4 only); 0: none, scale_m can scale rows."""
    scales: str = "f16"
    """The type of these scales: f16 or bf16."""
    activation: str = ""
    """D is the packed A of the next product: two of each four activations, in e4m3."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "b", self.b or ("bf16" if self.four_bits else self.a))
        kept = _KEPT.get(self.a, ("f32",))[0]
        object.__setattr__(self, "out", self.out or kept)
        self._check(kept)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # every call looks a kernel up
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def _check(self, kept: str) -> None:
        integer = kept == "s32"
        outputs = ("s32",) if self.a == "b1" else ("f32", "bf16", "f16")
        if integer and not self.scaled:
            outputs = ("s32",)
        if self.out not in outputs:
            other = "if" if self.scaled else "unless"
            why = f", {other} it is scaled" if integer and self.a != "b1" else ""
            raise BadCall(
                f"the product of {self.a} must be stored as {one_of(outputs)}{why}; "
                f"given {self.out}"
            )
        if self.promote and self.a not in ("e4m3", "e5m2"):
            raise BadCall(f"promotion is only for e4m3 and e5m2; given {self.a}")
        if self.promote and not self.tile.promotes:
            raise BadCall(f"tiles of {self.tile} leave no registers for promotion")
        if self.xor and self.a != "b1":
            raise BadCall(f"xor is for b1; given {self.a}")
        self._check_groups()
        if self.grouped and not (self.sparse and self.transposed):
            raise BadCall(
                "a grouped product has sparse weights, and D is stored transposed; "
                f"given sparse={self.sparse}, transposed={self.transposed}"
            )
        if self.grouped and self.tile.turns:
            raise ShapeError(f"a grouped product takes no turns; given {self.tile}")
        if self.activation:
            self._check_activation()
        self._check_tile()

    def _check_groups(self) -> None:
        if not self.four_bits:
            if self.group:
                raise BadCall(f"groups with a scale are for s4; given {self.a}")
            return
        if self.b not in FOUR_BITS or not self.sparse:
            raise BadCall(
                f"a sparse A of s4 is multiplied with {one_of(FOUR_BITS)}; given "
                f"{'a sparse' if self.sparse else 'a dense'} one and {self.b}"
            )
        if self.group not in GROUPS or self.scales not in GROUP_SCALES:
            raise BadCall(
                f"a scale of {one_of(GROUP_SCALES)} is for {one_of(GROUPS[1:])} columns"
                f", or 0: none; given {self.scales} for {self.group}"
            )
        if self.group and self.group < self.instruction.shape.k:
            raise BadCall(
                f"groups of {self.group} columns are shorter than an instruction of "
                f"{self.b}; use {self.instruction.shape.k} or more, or bf16 or f16"
            )

    def _check_activation(self) -> None:
        activation_macros(self.out, self.activation)
        plain = self.scaled and not (self.sparse or self.transposed)
        if not plain or self.tile.n % 128 or self.tile.split > 1:
            raise BadCall(
                f"activations are of a scaled product of a dense A, not transposed, in "
                f"tiles of 128 or 256 columns that are not split; given {self}"
            )

    def _check_tile(self) -> None:
        tile = self.tile
        known = tile.m in _HEIGHTS and tile.n in WIDTHS and tile.cluster in (1, 2)
        shared = tile.cluster > 1 or tile.turns
        known = known and (tile.split == 1 or (tile.split in _SPLITS and not shared))
        if not known or tile.blocks not in (1, 2) or tile.n % (8 * tile.cluster):
            raise ShapeError(
                f"no kernel for tiles of {tile}: m is {one_of(map(str, _HEIGHTS))}, "
                f"n {one_of(map(str, WIDTHS))}, in clusters of 1 or 2; a split along "
                f"k is {one_of(map(str, _SPLITS))}, with neither a cluster nor turns"
            )
        least = (tile.blocks + 1) * tile.n // 2  # and more if two sums take turns
        many = least > S4_SUMS if self.four_bits else None
        if (many or tile.turns) and self.four_bits:
            raise ShapeError(f"A of s4 has no tiles of {tile}: too many sums, or turns")
        if tile.blocks * tile.n // 2 > _ACCUMULATORS:
            raise ShapeError(f"tiles of {tile} need more registers than a thread has")
        if tile.split > 1 and self._exchanged > self.stages * self.stage_bytes:
            raise ShapeError(f"tiles of {tile} need more shared memory than there is")

    # ── what it multiplies ──────────────────────────────────────────────────

    @property
    def four_bits(self) -> bool:
        """Whether A is stored as 4-bit integers and converted in registers."""
        return self.a == "s4"

    @property
    def multiplied(self) -> str:
        """The type of A in the tensor core.

        >>> Kernel("s4", "f16").multiplied, Kernel("e4m3").multiplied
        ('f16', 'e4m3')
        """
        return FOUR_BITS.get(self.b, self.b) if self.four_bits else self.a

    @cached_property
    def instruction(self) -> Instruction:
        """The wgmma instruction that the kernel repeats."""
        per = 2 if self.sparse else 1
        k = READ_BYTES * 8 * per // dtype(self.multiplied).bits
        kept = _KEPT.get(self.a, ("f32",))[0]
        shape, sp = f"m64n{self.tile.n}k{k}", {"sp": "sp"} if self.sparse else {}
        return wgmma(shape, a=self.multiplied, b=self.b, d=kept, **sp)

    @property
    def accumulator(self) -> str:
        """The type of the sums: f32 or s32."""
        return self.instruction.types["d"].name

    @property
    def steps(self) -> int:
        """Instructions along k in a slab."""
        if self.four_bits:
            return SLAB_S4 // self.instruction.shape.k
        return 2 if self.sparse else 4

    @property
    def slab_k(self) -> int:
        """Elements of k in a slab.

        >>> Kernel("bf16").slab_k, Kernel("b1", sparse=False).slab_k
        (64, 1024)
        """
        return SLAB_S4 if self.four_bits else SLAB_BYTES * 8 // dtype(self.a).bits

    @property
    def groups(self) -> int:
        """Sums of a slab that leave the tensor core, if A has 4 bits."""
        return SLAB_S4 // (self.group or SLAB_S4)

    @property
    def slab_bytes_b(self) -> int:
        """Bytes of each row of B in a slab."""
        return self.slab_k * dtype(self.b).bits // 8

    # ── what it occupies ────────────────────────────────────────────────────

    @property
    def words(self) -> int:
        """Words of metadata per lane, m64 block and slab."""
        return self.steps // self.instruction.metadata.tiles if self.sparse else 0

    @property
    def block_bytes(self) -> int:
        """Bytes of 64 rows of A in a slab, with their metadata."""
        if self.four_bits:
            scales = 64 * 2 * self.groups if self.group else 0
            return 64 * SLAB_S4 // 4 + 128 * 4 * self.words + scales
        row = self.steps * READ_BYTES
        return 64 * row + 128 * 4 * self.words

    @property
    def _slab_bytes(self) -> int:
        a = self.tile.m // 64 * self.block_bytes
        return -(-a // 1024) * 1024 + self.tile.n * self.slab_bytes_b

    @cached_property
    def slabs(self) -> int:
        """Slabs in a stage.

        In a small tile, the barriers around a slab take longer than the slab itself.
        Therefore several slabs share them: as many as leave enough stages.

        >>> low, middle, high = Tile(64, 8), Tile(128, 64), Tile(256, 192)
        >>> [Kernel("bf16", tile=tile).slabs for tile in (low, middle, high)]
        [4, 2, 1]
        """
        tile = self.tile
        four, two = _SHARING[tile.m] if self.sparse or tile.m == 64 else (0, 0)
        most = 4 if tile.n <= four else 2 if tile.n <= two or self.four_bits else 1
        if tile.turns or self.promote:  # promotion adds after every slab
            most = 1
        fit = self._free(min(_STAGING)) // self._slab_bytes
        return next(n for n in _STAGES if n <= most and (n == 1 or fit // n >= _ENOUGH))

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage in shared memory."""
        if self.four_bits:  # all of A, then all of B
            a = self.slabs * self.tile.m // 64 * self.block_bytes
            b = self.slabs * self.tile.n * self.slab_bytes_b
            return -(-a // 1024) * 1024 + b
        return self.slabs * self._slab_bytes

    @property
    def box(self) -> tuple[int, int]:
        """Width in bytes and rows of the part of D that one copy stores."""
        columns = self._columns
        if self.activation:  # copied without a tensor map
            return 128, 64
        return (128, columns) if self.transposed else (columns * BYTES[self.out], 64)

    @property
    def _columns(self) -> int:
        """Columns of an m64 block of D that are stored at a time.

        As many as a box can have, but so few that all parts of k store some.
        """
        if self.activation:
            return 128
        tile, size = self.tile, BYTES[self.out]
        allowed = range(8, 129, 8) if self.transposed else (16, 32, 64, 128)
        found = [x if self.transposed else x // size for x in allowed]
        found = [x for x in found if x >= 8 and tile.n % x == 0]
        even = [x for x in found if tile.m // 64 * (tile.n // x) % tile.split == 0]
        even = even or found[:1]
        few = [x for x in even if x <= 64]
        return max(few) if few and max(few) >= 24 else max(even)

    @property
    def _exchanged(self) -> int:
        """Bytes of the sums that a block gets from the other parts of k, at most."""
        tile, columns = self.tile, self._columns
        slices = tile.m // 64 * (tile.n // columns)
        return -(-slices // tile.split) * tile.split * columns * 64 * 4

    def _piece_bytes(self) -> int:
        """Bytes of the least that is stored at a time: columns of D that fill boxes."""
        if self.activation:
            return _PACKED_BLOCK
        wide, high = self.box
        return wide * high * (64 * BYTES[self.out] // 128 if self.transposed else 1)

    def _staged(self, room: int) -> int:
        """Bytes of a consumer's buffer for results, if ``room`` bytes are set aside."""
        piece = self._piece_bytes()
        return piece * min(self.tile.n // self._columns, max(1, room // piece))

    def _free(self, room: int) -> int:
        """Bytes left for the ring, if ``room`` bytes are set aside for results."""
        experts = 8 * (MOST_EXPERTS + 1) if self.grouped else 0
        return _SHARED - _BARRIERS - experts - self._storing * self._staged(room)

    def _stages(self, room: int) -> int:
        return min(_STAGES[self.slabs], self._free(room) // self.stage_bytes)

    @property
    def _storing(self) -> int:
        """Consumers that can store at the same time."""
        return 1 if self.tile.turns else self.tile.consumers

    @cached_property
    def staging_room(self) -> int:
        """Bytes set aside for results: as many as leave enough stages."""
        for room in _STAGING:
            if self._stages(room) >= _ENOUGH:
                return room
        return max(_STAGING, key=self._stages)

    @property
    def staging_bytes(self) -> int:
        """Bytes of the buffer in which a consumer collects its results."""
        return self._staged(self.staging_room)

    @property
    def stages(self) -> int:
        """Stages in the ring, as many as fit."""
        return self._stages(self.staging_room)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        staging = self._storing * self.staging_bytes
        return 1024 + self.stages * self.stage_bytes + staging

    @property
    def threads(self) -> int:
        """Threads of a block: the consumers' and the producer's warpgroups."""
        return 128 * (self.tile.consumers + 1)

    @property
    def macros(self) -> dict[str, object]:
        """The macros that the source is compiled with."""
        tile = self.tile
        return {
            "TILE_M": tile.m,
            "TILE_N": tile.n,
            "STAGES": self.stages,
            "SLABS": self.slabs,
            "STAGING_ROOM": self.staging_room,
            "CLUSTER": tile.cluster,
            "SPLIT": tile.split,
            "CONSUMERS": tile.consumers,
            "TURNS": int(tile.turns),
            "BLOCKS": tile.blocks,
            "SPARSE": int(self.sparse),
            "WORDS": self.words,
            "PAIRED": int(self.sparse and self.instruction.metadata.tiles == 2),
            "ACCUMULATOR": {"f32": "float", "s32": "int"}[self.accumulator],
            "OUTPUT": OUTPUTS[self.out],
            "BOX_WIDE": self.box[0],
            "BOX_HIGH": self.box[1],
            "PROMOTE": int(self.promote),
            "SCALED": int(self.scaled),
            "TRANSPOSED": int(self.transposed),
            "XOR": int(self.xor),
            **(self._four_bit_macros if self.four_bits else {"FOUR_BITS": 0}),
            "GROUPED": int(self.grouped),
            "MOST_EXPERTS": MOST_EXPERTS,
            "ACTIVATED": int(bool(self.activation)),
            **self._activation_macros,
        }

    @property
    def _four_bit_macros(self) -> dict[str, object]:
        """How A is converted: FOUR_BITS is 1 for bf16, 2 for f16, 8 for e4m3."""
        return {
            "FOUR_BITS": {"bf16": 1, "f16": 2, "e4m3": 8}[self.multiplied],
            "GROUPS": self.groups,
            "GROUP_SCALES": {"f16": 2, "bf16": 1}[self.scales] if self.group else 0,
            "SETS": self.sets,
        }

    @property
    def sets(self) -> int:
        """Sums of a group that may be under way at the same time, if A has 4 bits."""
        tile = self.tile
        return 2 if (tile.blocks + 2) * tile.n // 2 <= _S4_TWO_SETS else 1

    @property
    def _activation_macros(self) -> dict[str, object]:
        if not self.activation:
            return {}
        macros = activation_macros(self.out, self.activation)
        return {**macros, "PACKED_BLOCK": _PACKED_BLOCK}

    def parts(self, k: int) -> list[tuple[int, int]]:
        """The first and the last (exclusive) k of each part that is summed by itself.

        >>> Kernel("bf16", tile=Tile(128, 96, split=2)).parts(300)
        [(0, 128), (128, 300)]
        """
        split, slabs = self.tile.split, -(-k // self.slab_k)
        stages = -(-slabs // self.slabs)
        if stages < split:
            raise ShapeError(
                f"tiles of {self.tile} need k of at least "
                f"{((split - 1) * self.slabs) * self.slab_k + 1}; given {k}"
            )
        ends = [stages * x // split * self.slabs * self.slab_k for x in range(split)]
        return list(zip(ends, [*ends[1:], k], strict=True))

    def tiles(self, m: int, n: int) -> int:
        """Number of tiles of D; the tiles of a cluster count as one."""
        return self.rows_of_tiles(m) * -(-n // self.tile.n)

    def rows_of_tiles(self, m: int) -> int:
        """Rows of tiles of D; those of a cluster count as one."""
        return -(-m // (self.tile.m * self.tile.cluster))

    def most_tiles(self, m: int, n: int, experts: int) -> int:
        """Tiles of D if ``experts`` share n rows of B in the worst way.

        >>> kernel = Kernel("bf16", tile=Tile(64, 8), transposed=True, grouped=True)
        >>> kernel.most_tiles(64, 5, 128), kernel.most_tiles(64, 20, 4)
        (5, 6)
        """
        columns = n if n <= experts else experts + (n - experts) // self.tile.n
        return self.rows_of_tiles(m) * columns

    def grid(
        self, m: int, n: int, processors: int = PROCESSORS, experts: int = 0
    ) -> int:
        """Blocks to launch; each computes one tile after the other.

        The shares of the ``experts`` of a grouped product are not known before the
        launch, so that some blocks may have no tile.
        """
        tile = self.tile
        tiles = self.most_tiles(m, n, experts) if self.grouped else self.tiles(m, n)
        if tile.split == 1:
            tiles = min(tiles, processors // tile.cluster)
        return tiles * tile.cluster * tile.split

    @property
    def at_once(self) -> int:
        """Tiles that an H200 computes at the same time; those of a cluster are one.

        >>> Kernel("bf16").at_once, Kernel("bf16", tile=Tile(64, 64, split=4)).at_once
        (132, 30)
        """
        return CLUSTERS[self.tile.cluster * self.tile.split]

    @property
    def kind(self) -> str:
        """Everything about the kernel except its tile.

        >>> Kernel("e4m3", "e5m2", out="bf16", scaled=True).kind
        'e4m3.e5m2 bf16 sparse scaled'
        """
        words = [self.a if self.a == self.b else f"{self.a}.{self.b}", self.out]
        words.append("sparse" if self.sparse else "dense")
        words += [f"{self.group} {self.scales}"] if self.group else []
        for name in ("promote", "scaled", "transposed", "xor", "grouped"):
            words += [name] if getattr(self, name) else []
        words += [self.activation] if self.activation else []
        return " ".join(words)

    def __str__(self) -> str:
        return f"{self.kind} {self.tile}"


def check_activation(activation: object) -> str:
    """The name of an activation; refuses any other.

    >>> check_activation("gelu")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: an activation must be none, relu or relu2; given 'gelu': \
its results are not zero, so that two of four would lose half
    """
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        hint = nearest(str(activation), ACTIVATIONS)
        if any(name in str(activation).lower() for name in _SMOOTH):
            hint = ": its results are not zero, so that two of four would lose half"
        raise BadCall(
            f"an activation must be {one_of(ACTIVATIONS)}; given {activation!r}{hint}"
        )
    return activation


def activation_macros(given: str, activation: str) -> dict[str, object]:
    """The macros of ``chunk.cuh``.

    >>> activation_macros("bf16", "relu2")
    {'FLOATS': '0xB16', 'ACTIVATION': 2}
    """
    if given not in ACTIVATED:
        raise UnknownType(f"activations must be {one_of(ACTIVATED)}; given {given}")
    number = ACTIVATIONS[check_activation(activation)]
    return {"FLOATS": ACTIVATED[given], "ACTIVATION": number}
