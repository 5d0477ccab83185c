"""Weights stored so that a lane loads several fragments at once.

A :class:`Shuffle` is the order of a whole weight in memory.  It is made of the fragment
of an instruction, a line for the order in memory and a line for the order in a word;
see :mod:`fragmenta.reference.weights.orders`.  Packing, its inverse, the order of
scales and CUDA code are all computed from these lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import once_property
from fragmenta.errors import BadCall, Error, ShapeError, nearest, one_of, shortened
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Digit, Index, Layout
from fragmenta.reference.weights import source as text
from fragmenta.reference.weights.moving import Blocks, Words, codes_of, packed, unpacked
from fragmenta.reference.weights.orders import (
    KNOWN,
    WORD,
    LibraryOrder,
    Nibbles,
    listed,
    multiples,
    nibble_digits,
    row_major,
    stored,
)
from fragmenta.reference.weights.part import (
    WeightOperand,
    check_bits,
    check_multiples,
    check_operand,
    check_shape,
    memory_of,
)

What = Literal["repack", "load", "dequantize", "fragments"]


@dataclass(frozen=True, eq=False, repr=False)
class Shuffle:
    """The order of a weight in memory; :func:`shuffle` makes one.

    >>> import numpy as np, fragmenta as fm
    >>> order = fm.weights.shuffle("marlin", shape=(64, 128))
    >>> order
    <Shuffle marlin: 64x128, 4 bits, offset = R0 X0 E0 X1 X2 L0 L1 L2 L3 L4 X3 Y0 Y1>
    >>> W = np.random.default_rng(0).integers(0, 16, (64, 128))
    >>> words = order.pack(W)
    >>> words.shape, words.dtype
    ((4, 256), dtype('uint32'))
    >>> bool((order.unpack(words) == W).all())
    True
    """

    name: str
    """The name of a known order, or that of the operand."""
    op: Instruction | None
    operand: str
    """A or B; empty if the order follows no instruction."""
    bits: int
    """The bits of an element."""
    places: Layout
    """The row and the column of the weight at a place of its fragments."""
    natural: Layout
    """The order in memory before the elements of a word are reordered."""
    digits: tuple[int, ...]
    """The bit of the element's number in its word that each bit of its slot is."""
    channel: Layout | None = None
    """The order of scales for whole columns, if it is one of its own."""
    grouped: bool = True
    """Whether the scales of groups have the order of the weight's columns."""

    # ── the order ───────────────────────────────────────────────────────────

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of the weight; for a sparse one, of its stored values.

        >>> import fragmenta as fm
        >>> fm.weights.shuffle("gptq", shape=(64, 128)).shape
        (64, 128)
        """
        rows, columns = self.places.shape
        return rows, columns

    @property
    def nibbles(self) -> tuple[int, ...]:
        """The element in each slot of a word, the lowest bits first.

        >>> import fragmenta as fm
        >>> fm.weights.shuffle("awq", shape=(64, 128)).nibbles
        (0, 2, 4, 6, 1, 3, 5, 7)
        """
        return listed(self.digits)

    @cached_property
    def memory(self) -> Layout:
        """The offset, in elements, of each place of the fragments."""
        return stored(self.natural, self.digits)

    @cached_property
    def layout(self) -> Layout:
        """The row and the column that is stored at an offset; offsets count elements.

        >>> import fragmenta as fm
        >>> order = fm.weights.shuffle("marlin", shape=(64, 128))
        >>> print(order.layout)
        k = offset2 offset5 offset6 offset0 offset11 offset12  n = offset7 offset8 \
offset9 offset1 offset3 offset4 offset10
        >>> print(order.layout.inverse())
        offset = k3 n3 k0 n4 n5 k1 k2 n0 n1 n2 n6 k4 k5
        """
        return self.memory.inverse().then(self.places)

    @property
    def fragment(self) -> Fragment | None:
        """The operand whose registers the elements become."""
        return self.op.fragment(self.operand) if self.op else None

    @property
    def container(self) -> int:
        """The bits of an element in a register."""
        fragment = self.fragment
        return fragment.container.bits if fragment else max(16, self.bits)

    @cached_property
    def run(self) -> tuple[Digit, ...]:
        """What a lane loads at once: the digits of the offset below all lanes."""
        found: list[Digit] = []
        for digit in self.memory.coordinates[0][1]:
            if digit.axis in "LWkn":
                break
            found.append(digit)
        return tuple(found)

    @property
    def load_bytes(self) -> int:
        """The bytes that lie side by side for a lane; 0 without an instruction.

        >>> import fragmenta as fm
        >>> order = fm.weights.shuffle("marlin", shape=(64, 128))
        >>> order.load_bytes, order.k_steps, order.n_steps
        (16, 1, 8)
        """
        return prod(d.size for d in self.run) * self.bits // 8 if self.op else 0

    def _steps(self, coordinate: str) -> int:
        if not self.op:
            return 0
        axis = self.tile_axes[coordinate]
        return prod(digit.size for digit in self.run if digit.axis == axis)

    @property
    def k_steps(self) -> int:
        """The steps along k in one load; 0 without an instruction."""
        return self._steps("k")

    @property
    def n_steps(self) -> int:
        """The tiles along n in one load; 0 without an instruction."""
        return self._steps("n")

    @cached_property
    def tile_axes(self) -> dict[str, str]:
        """The axis that counts the tiles along k, and that along n."""
        by_rows = "k" if self.operand == "B" else "n"
        other = "n" if by_rows == "k" else "k"
        return {by_rows: "Y", other: "X"}

    def indices(self) -> Index:
        """The index of each stored element: ``W.ravel()[order.indices()]``.

        :meth:`pack` does the same faster, and packs the words.

        >>> import fragmenta as fm
        >>> fm.weights.shuffle("awq", shape=(2, 8)).indices()
        array([ 0,  2,  4,  6,  1,  3,  5,  7,  8, 10, 12, 14,  9, 11, 13, 15])
        """
        rows, columns = self._blocks.shape
        every = np.arange(rows * columns, dtype=np.intp)
        return self._blocks.gather(every.reshape(rows, columns))

    # ── packing ─────────────────────────────────────────────────────────────

    @once_property
    def _blocks(self) -> Blocks:
        return Blocks(self.layout.inverse(), self.layout.data[:2])  # type: ignore[arg-type]

    @cached_property
    def word_shape(self) -> tuple[int, int]:
        """The shape of the words: the outermost tiles, and all words of one.

        >>> import fragmenta as fm
        >>> fm.weights.shuffle("gptq", shape=(64, 128)).word_shape
        (8, 128)
        """
        digits = self.layout.inverse().coordinates[0][1]
        outer, left = 1, dict(zip(self.layout.data, self.shape, strict=True))
        for digit in reversed(digits):
            if digit.axis != digits[-1].axis:
                break
            if digit.stride * digit.size != left[digit.axis]:
                break
            left[digit.axis] = digit.stride
            outer *= digit.size
        words = prod(self.shape) * self.bits // WORD
        return outer, words // outer

    def pack(self, W: ArrayLike) -> Words:
        """The stored words of a weight, (…, *word_shape).

        W holds the codes of the elements, 0 to 15 if they have 4 bits.  A type of
        floats that has as many bits is taken as its bits.  Axes before the last two,
        such as experts, stay.

        >>> import numpy as np, fragmenta as fm
        >>> W = np.arange(16).reshape(2, 8)
        >>> awq = fm.weights.shuffle("awq", shape=(2, 8))
        >>> [hex(word) for word in awq.pack(W).ravel()]
        ['0x75316420', '0xfdb9eca8']
        """
        given = as_array(W)
        if given.shape[-2:] != self.shape:
            raise ShapeError(
                f"{self._title} takes a weight of {_size(self.shape)}; given shape "
                f"{given.shape}"
            )
        moved = self._blocks.gather(codes_of(given, self.bits))
        return packed(moved, self.bits).reshape(*given.shape[:-2], *self.word_shape)

    def unpack(self, words: ArrayLike) -> Array:
        """The codes of the weight: the inverse of :meth:`pack`.

        Words are uint32 or int32.  Their shape is :attr:`word_shape`, with batch axes
        before it, or one axis with all words of one weight.

        >>> import numpy as np, fragmenta as fm
        >>> fm.weights.shuffle("awq", shape=(1, 8)).unpack(np.int32([[0x75316420]]))
        array([[0, 1, 2, 3, 4, 5, 6, 7]], dtype=uint8)
        """
        given = as_array(words)
        if given.dtype.kind not in "iu" or given.itemsize * 8 != WORD:
            raise ShapeError(f"words are uint32 or int32; given {given.dtype}")
        whole = given.ndim == 1 and given.size == prod(self.word_shape)
        if not whole and given.shape[-2:] != self.word_shape:
            raise ShapeError(
                f"{self._title} has words of {_size(self.word_shape)}; given shape "
                f"{given.shape}"
            )
        batch = () if whole else given.shape[:-2]
        flat = np.ascontiguousarray(given).view(np.uint32).reshape(*batch, -1)
        return self._blocks.scatter(unpacked(flat, self.bits))

    # ── scales and zero points ──────────────────────────────────────────────

    def scale_order(self, *, channel: bool = False) -> Layout:
        """The column of the scale at each offset, within one group.

        It is the order of the columns in the weight, so that a lane finds the scales
        of its columns side by side.  ``channel``: the order of scales for whole
        columns.  Marlin applies these to D, so they follow the fragment of D.

        >>> import fragmenta as fm
        >>> order = fm.weights.shuffle("marlin", shape=(64, 128))
        >>> print(order.scale_order().inverse())
        offset = n3 n4 n5 n0 n1 n2 n6
        >>> print(order.scale_order(channel=True).inverse())
        offset = n0 n3 n4 n1 n2 n5 n6
        """
        natural = self.natural.inverse().then(self.places)
        if self.channel and (channel or not self.grouped):
            natural = self.channel
        digits = dict(natural.inverse().coordinates)["offset"]
        kept = tuple(digit for digit in digits if digit.axis == "n")
        return Layout((("offset", kept),), (("n", natural.sizes["n"]),)).inverse()

    def pack_scales(self, scales: ArrayLike, group_size: int | None = None) -> Array:
        """Scales of (…, groups, N) in the order that goes with the weight.

        One group means one scale for each column; see :meth:`scale_order`.
        ``group_size`` counts elements of k (of the whole k of a sparse weight); -1 is
        one group.  If it is given, the number of groups must fit it.
        ``packed[..., order.scale_order().scatter()]`` are the scales again.

        >>> import numpy as np, fragmenta as fm
        >>> order = fm.weights.shuffle("marlin", shape=(64, 64))
        >>> order.pack_scales(np.arange(128.0).reshape(2, 64), 32)[1, :4]
        array([64., 72., 80., 88.])
        """
        given = as_array(scales)
        groups = self._groups(given, "scales", group_size)
        columns = self.scale_order(channel=groups == 1).gather()
        return np.ascontiguousarray(given[..., columns])

    def pack_zeros(self, zeros: ArrayLike) -> Words:
        """Zero points of (…, groups, N), packed in words of (…, groups, N * bits / 32).

        They have as many bits as the elements, the order of the weight's columns, and
        within a word the order of its elements.  (Some versions of GPTQ store one less
        than the zero point: give them that.)

        >>> import numpy as np, fragmenta as fm
        >>> order = fm.weights.shuffle("awq", shape=(128, 8))
        >>> hex(order.pack_zeros(np.arange(8).reshape(1, 8))[0, 0])
        '0x75316420'
        """
        given = as_array(zeros)
        if not self.grouped:
            raise Error(f"the order of zero points in {self.name} is not known")
        self._groups(given, "zero points", None)
        codes = codes_of(given, self.bits)[..., self.scale_order().gather()]
        per = WORD // self.bits
        if codes.shape[-1] % per:
            raise ShapeError(
                f"{per} zero points fill a word, so N must be a multiple of {per}; "
                f"given {codes.shape[-1]}"
            )
        slots = codes.reshape(*codes.shape[:-1], -1, per)[..., list(self.nibbles)]
        return packed(slots.reshape(codes.shape), self.bits)

    def _groups(self, given: Array, what: str, group_size: int | None) -> int:
        """The number of groups; what does not fit the weight is refused."""
        sizes = self.layout.sizes
        fragment = self.fragment
        k, n = sizes["k"] * (fragment.stored if fragment else 1), sizes["n"]
        if given.ndim < 2 or given.shape[-1] != n:
            raise ShapeError(
                f"{what} have the shape (…, groups, {n}); given {given.shape}"
            )
        groups: int = given.shape[-2]
        if groups < 1 or k % groups:
            raise ShapeError(f"{groups} groups do not divide k of {k}")
        if group_size is None:
            return groups
        if not is_whole(group_size) or not (group_size == -1 or group_size > 0):
            raise ShapeError(
                f"group_size is a whole number above 0, or -1 for one group; given "
                f"{group_size!r}"
            )
        wanted = 1 if group_size == -1 else -(-k // group_size)
        if groups != wanted or (group_size > 0 and k % group_size and wanted > 1):
            raise ShapeError(
                f"k of {k} has {k / group_size if group_size > 0 else 1:g} groups of "
                f"{group_size}; given {what} of {groups} groups"
            )
        return groups

    # ── CUDA ────────────────────────────────────────────────────────────────

    def to_cuda(
        self,
        what: What,
        *,
        source: str | Shuffle | None = None,
        to: str | None = None,
        zero: int | None = None,
    ) -> str:
        """CUDA C++ for this order.

        ``"repack"``      a kernel that brings a weight into this order; ``source`` is
                          the order that it has: ``"gptq"``, the default, ``"awq"``,
                          ``"plain"`` (row-major), another name or a :class:`Shuffle`
        ``"load"``        a function by which a lane loads its words of a block
        ``"dequantize"``  a function that makes registers of one word
        ``"fragments"``   both, and a function that calls them: it gives a lane the
                          registers of all instructions of a block

        ``to`` is the type of the registers: f16, bf16, s8 or u8; by default it is that
        of the operand.  ``zero`` is subtracted from each code; by default it is half
        of the number of codes, 8 for 4 bits (0 for u8).

        >>> import fragmenta as fm
        >>> order = fm.weights.shuffle("marlin", shape=(4096, 4096))
        >>> print(order.to_cuda("load"))
        // What a lane loads at once: 16 bytes of B, for 1 step of k and 8 tiles of n.
        // k_block counts 16 rows of k, n_block counts 64 columns of n.
        __device__ __forceinline__ void load_words(
            const unsigned* stored, int k_block, int n_block, int lane,
            unsigned (&words)[4])
        {
            int at = 32 * n_block + 2048 * k_block + lane;
            uint4 part0 = reinterpret_cast<const uint4*>(stored)[at];
            words[0] = part0.x;
            words[1] = part0.y;
            words[2] = part0.z;
            words[3] = part0.w;
        }
        """
        kinds = ("repack", "load", "dequantize", "fragments")
        if what not in kinds:
            near = nearest(str(what), kinds)
            raise BadCall(f"to_cuda writes {one_of(kinds)}; given {what!r}{near}")
        if source is not None and what != "repack":
            raise BadCall("source is for 'repack', which reads another order")
        if what in ("repack", "load") and (to, zero) != (None, None):
            raise BadCall("to and zero are for 'dequantize' and 'fragments'")
        if what == "repack":
            if source is None and self.bits not in KNOWN["gptq"].memory:
                raise BadCall(
                    f"gptq, the default source, has no {self.bits} bits; give source="
                    "'plain', another name or a Shuffle"
                )
            return text.repack(self, self._source("gptq" if source is None else source))
        if what == "load":
            return text.load(self)
        write = text.dequantize if what == "dequantize" else text.fragments
        return write(self, to, zero)

    def _source(self, given: str | Shuffle) -> Shuffle:
        if isinstance(given, Shuffle):
            same = given.layout.sizes == self.layout.sizes and given.bits == self.bits
            if not same:
                raise ShapeError(
                    f"{given!r} does not hold the same weight as {self!r}; shape and "
                    "bits must be equal"
                )
            return given
        sizes = self.layout.sizes
        if given == "plain":  # row-major, whatever the rows are
            outer, inner = self.layout.data
            line = row_major(self.bits, outer, inner)
            return _without_instruction("plain", line, sizes, self.bits, "plain")
        return named(str(given), (sizes["k"], sizes["n"]), self.bits)

    @property
    def _title(self) -> str:
        return f"{self.name} of {self.bits} bits"

    def __repr__(self) -> str:
        size = _size(self.shape)
        return f"<Shuffle {self.name}: {size}, {self.bits} bits, {self.memory}>"


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


# ── making one ──────────────────────────────────────────────────────────────


def shuffle(
    order: Instruction | str,
    operand: str | None = None,
    *,
    shape: tuple[int, int],
    bits: int = 4,
    load_bytes: int | None = None,
    k_steps: int | None = None,
    n_steps: int | None = None,
    inner: Literal["k", "n"] | None = None,
    memory: str | None = None,
    nibbles: Nibbles | None = None,
) -> Shuffle:
    """The order of a weight in memory: that of a name, or that of an operand.

    Names are marlin, marlin_a8, sparse_marlin, tensorrt_llm, awq, gptq and plain.  They
    take the weight as K x N, which are input and output features; sparse_marlin takes
    its stored values, K/2 x N.

    For an operand of an instruction, the weight has the shape of the operand: K x N
    for B, N x K for A (N are the rows of A; of a sparse A, the stored values).  A lane
    loads ``load_bytes`` at once, 16 unless it is given.  They hold its registers for
    ``k_steps`` steps along k and ``n_steps`` tiles along n.  Blocks follow one another
    along ``inner`` first, which is k unless it is given.

    ``memory`` is a line for any other order; see
    :mod:`fragmenta.reference.weights.orders`. ``nibbles`` is the order of elements in a
    word: "fast", the default, in which registers are cut out with masks, "plain", or a
    list.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> fm.weights.shuffle(op, "B", shape=(256, 64), bits=4, load_bytes=16, k_steps=4)
    <Shuffle B: 256x64, 4 bits, offset = R0 Y0 E0 Y1 X0 L0 L1 L2 L3 L4 Y2 Y3 X1 X2>
    >>> fm.weights.shuffle(op, "B", shape=(256, 64), bits=4, k_steps=3)
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: a lane has 2 bytes of B in one step, so 16 bytes are \
k_steps x n_steps of 8 x 1, 4 x 2, 2 x 4 or 1 x 8; given k_steps=3
    """
    options = {
        "operand": operand,
        "load_bytes": load_bytes,
        "k_steps": k_steps,
        "n_steps": n_steps,
        "inner": inner,
        "memory": memory,
        "nibbles": nibbles,
    }
    given = [name for name, value in options.items() if value is not None]
    check_bits(bits)
    if isinstance(order, str) and not {".", " "} & {*order}:
        if given and order in KNOWN:
            raise BadCall(
                f"{order} has its own order; {one_of(given, 'and')} cannot be given"
            )
        return named(order, shape, bits)
    op = instruction(order)
    if operand is None:
        raise BadCall(f"which operand of {op} is the weight, A or B?")
    part = WeightOperand(op, check_operand(op, operand), bits)
    sizes = check_shape(shape, part.names)
    if memory is None:
        steps = part.steps(sizes, load_bytes, k_steps, n_steps)
        memory = part.line(steps, "k" if inner is None else inner)
    elif also := [name for name in given if name in _STEPS]:
        raise BadCall(
            f"memory is the whole order; {one_of(also, 'and')} cannot be given"
        )
    chosen = "fast" if nibbles is None else nibbles
    return _of_operand(part.letter, part, memory, sizes, chosen)


_STEPS = ("load_bytes", "k_steps", "n_steps", "inner")


def named(name: str, shape: tuple[int, int], bits: int) -> Shuffle:
    """The order of a library.

    >>> named("awq", (16, 32), 4).memory.sizes
    {'offset': 512}
    """
    if name not in KNOWN:
        raise BadCall(
            f"no order {shortened(name)}{nearest(name, KNOWN)}; there are "
            f"{one_of(KNOWN, 'and')}, and the operands of instructions, such as "
            "fm.weights.shuffle('mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32', "
            "'B', ...)"
        )
    known = KNOWN[name]
    if bits not in known.memory:
        raise ShapeError(f"{name} has {one_of(known.memory)} bits; given {bits}")
    line = known.memory[bits]
    if not known.op:
        sizes = check_shape(shape, ("k", "n"))
        return _without_instruction(name, line, sizes, bits, known.nibbles)
    part = WeightOperand(instruction(known.op), known.operand, bits, known.tiles)
    sizes = check_shape(shape, part.names)
    return _of_operand(name, part, line, sizes, known.nibbles, known)


def _without_instruction(
    name: str, line: str, sizes: Mapping[str, int], bits: int, nibbles: Nibbles
) -> Shuffle:
    first, second = sizes
    check_multiples(sizes, multiples(line), (first, second), name)
    places = Layout.parse(f"{first} = {first}*  {second} = {second}*", **sizes)
    digits = nibble_digits(nibbles, bits, max(16, bits))
    memory = memory_of(line, sizes)
    return Shuffle(name, None, "", bits, places, memory, tuple(digits))


def _of_operand(
    name: str,
    part: WeightOperand,
    line: str,
    sizes: Mapping[str, int],
    nibbles: Nibbles,
    known: LibraryOrder | None = None,
) -> Shuffle:
    counts = part.counts(line, sizes, name)
    memory = part.memory(line, counts)
    digits = nibble_digits(nibbles, part.bits, part.container)
    own = part.channel(known.channel, counts) if known and known.channel else None
    return Shuffle(
        name,
        part.op,
        part.letter,
        part.bits,
        part.places(counts),
        memory,
        tuple(digits),
        own,
        known is None or known.grouped,
    )
