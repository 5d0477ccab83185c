"""Tensor maps: what they say, and the 128 bytes that they are.

A tensor map describes a tensor in global memory and the box that one
``cp.async.bulk.tensor`` copies.  A kernel gets it as 128 bytes, which the driver writes
(``cuTensorMapEncodeTiled``, ``cuTensorMapEncodeIm2col``) or ``tensormap.replace``
changes.  NVIDIA does not document the bytes.  :data:`FIELDS` was recovered on an H200
from thousands of maps that the driver encoded.

The order of dimensions is the driver's: the innermost comes first.
:meth:`TensorMap.of` makes a map of a NumPy array, and takes everything in the array's
own order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import as_array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import (
    AddressError,
    BadCall,
    ShapeError,
    UnknownType,
    one_of,
)
from fragmenta.reference.isa.table import read
from fragmenta.reference.registers.dtype import nearest_type
from fragmenta.reference.shared.swizzles import (
    WGMMA_SWIZZLES,
    Swizzle,
    map_span,
    pattern,
)
from fragmenta.reference.shared.tensor_map_rules import (
    CORNER_BITS,
    FILLS,
    INTERLEAVES,
    PROMOTIONS,
    SWIZZLES,
    check,
    driver_bytes,
)

Fill: TypeAlias = Literal["zeros", "nan"]
Numbers: TypeAlias = tuple[int, ...]
_Value = TypeVar("_Value")

BYTES = 128
"""The size of a tensor map."""
ALIGNMENT = 64
"""The bytes that the address of a tensor map is a multiple of."""
MOST_RANK = 5

#: The fields of the 1,024 bits.  A field of several numbers has ``step`` bits between
#: them.  ``stored`` says how a number is stored.
FIELDS = """
field           | low | bits | many  | step | stored
address         | 0   | 64   | 1     | 0    | as is
im2col          | 64  | 1    | 1     | 0    | as is
rank            | 68  | 3    | 1     | 0    | less 1
code            | 71  | 4    | 1     | 0    | as is
interleave      | 75  | 2    | 1     | 0    | as is
swizzle         | 77  | 2    | 1     | 0    | as is
atom            | 83  | 2    | 1     | 0    | as is
fill            | 79  | 1    | 1     | 0    | as is
tf32            | 80  | 1    | 1     | 0    | as is
l2              | 81  | 2    | 1     | 0    | as is
stride_low      | 96  | 32   | 4     | 32   | as is
stride_high     | 224 | 4    | 4     | 4    | as is
sizes           | 256 | 32   | 5     | 32   | less 1
element_strides | 416 | 3    | 5     | 3    | less 1
box             | 440 | 8    | 5     | 8    | less 1
lower           | 448 | 16   | 1     | 0    | as is
upper           | 464 | 16   | 1     | 0    | as is
pixels          | 480 | 10   | 1     | 0    | less 1
bytes           | 512 | 32   | 1     | 0    | as is
pattern         | 576 | 32   | 1     | 0    | as is
"""

#: The element types: bytes, the number and the name in the driver's interface, the code
#: in the map, and whether the bit for tf32 is set.
TYPES = """
type     | bytes | driver | code | tf32 | constant
u8       | 1     | 0      | 0    | 0    | UINT8
u16      | 2     | 1      | 1    | 0    | UINT16
u32      | 4     | 2      | 2    | 0    | UINT32
s32      | 4     | 3      | 3    | 0    | INT32
u64      | 8     | 4      | 4    | 0    | UINT64
s64      | 8     | 5      | 5    | 0    | INT64
f16      | 2     | 6      | 6    | 0    | FLOAT16
f32      | 4     | 7      | 7    | 0    | FLOAT32
f64      | 8     | 8      | 9    | 0    | FLOAT64
bf16     | 2     | 9      | 10   | 0    | BFLOAT16
f32.ftz  | 4     | 10     | 8    | 0    | FLOAT32_FTZ
tf32     | 4     | 11     | 7    | 1    | TFLOAT32
tf32.ftz | 4     | 12     | 8    | 1    | TFLOAT32_FTZ
"""
#: Types with elements of 4 or 6 bits: their bits, the driver's number, the code in the
#: map, and how many of each 16 bytes in shared memory are data; the others are a gap.
PACKED_TYPES = """
type      | bits | driver | code | data | constant
b4x16     | 4    | 13     | 11   | 16   | 16U4_ALIGN8B
b4x16_p64 | 4    | 14     | 12   | 8    | 16U4_ALIGN16B
b6x16_p32 | 6    | 15     | 13   | 12   | 16U6_ALIGN16B
"""
CONSTANT = "CU_TENSOR_MAP_"
"""How the names of all constants of the driver's interface begin."""


class ElementType(NamedTuple):
    """A type of elements that a tensor map can have."""

    name: str
    bytes: int
    driver: int
    """Its number in the driver's interface."""
    code: int
    """Its number in the map."""
    tf32: int
    constant: str
    """Its name in the driver's interface, after ``CU_TENSOR_MAP_DATA_TYPE_``."""
    small: int = 0
    """Bits of an element, if it has less than a byte."""
    data: int = 16
    """Bytes of each 16 in shared memory that are data."""

    @property
    def bits(self) -> int:
        """Bits of an element.

        >>> element_type("b6x16_p32").bits, element_type("f16").bits
        (6, 16)
        """
        return self.small or 8 * self.bytes

    @property
    def padded(self) -> bool:
        """Whether there are gaps between the elements in shared memory."""
        return self.data < 16

    @property
    def is_float(self) -> bool:
        """Whether NaN can fill what is outside the tensor."""
        return "f" in self.name


class Field(NamedTuple):
    """Where numbers are in the 1,024 bits."""

    low: int
    bits: int
    many: int
    step: int
    less: int
    """What is subtracted before a number is stored."""

    def put(self, *numbers: int) -> int:
        """The bits of these numbers at their places."""
        mask = (1 << self.bits) - 1
        return sum(
            ((number - self.less) & mask) << (self.low + index * self.step)
            for index, number in enumerate(numbers)
        )

    def get(self, word: int) -> Numbers:
        """The numbers."""
        mask = (1 << self.bits) - 1
        places = range(
            self.low, self.low + max(1, self.many * self.step), self.step or 1
        )
        return tuple((word >> place & mask) + self.less for place in places)


def _field(line: dict[str, str]) -> Field:
    low, bits, many, step = (int(line[key]) for key in ("low", "bits", "many", "step"))
    return Field(low, bits, many, step, less=int(line["stored"] == "less 1"))


FIELD = {line["field"]: _field(line) for line in read(FIELDS)}

PATTERNS = (*(pattern(swizzle).repeat for swizzle in WGMMA_SWIZZLES), 512, 512, 256)
"""For each swizzle, the bytes after which its pattern repeats."""
_SPANS = len(WGMMA_SWIZZLES) - 1
"""The number of the span of 128 bytes; the swizzles after it differ in their atom."""


def _put(name: str, *numbers: int) -> int:
    return FIELD[name].put(*numbers)


_TYPES = {
    line["type"]: ElementType(
        line["type"],
        int(line["bytes"]),
        int(line["driver"]),
        int(line["code"]),
        int(line["tf32"]),
        line["constant"],
    )
    for line in read(TYPES)
} | {
    line["type"]: ElementType(
        line["type"],
        0,
        int(line["driver"]),
        int(line["code"]),
        0,
        line["constant"],
        int(line["bits"]),
        int(line["data"]),
    )
    for line in read(PACKED_TYPES)
}
_BY_CODE = {(of.code, of.tf32): of for of in _TYPES.values()}


def element_types(*, packed: bool = False) -> tuple[ElementType, ...]:
    """All types of whole bytes that a tensor map can have; ``packed``: all types.

    >>> len(element_types()), len(element_types(packed=True))
    (13, 16)
    """
    return tuple(each for each in _TYPES.values() if packed or each.bytes)


def element_type(name: str) -> ElementType:
    """A type by its name.

    >>> element_type("bf16")
    ElementType(name='bf16', bytes=2, driver=9, code=10, tf32=0, \
constant='BFLOAT16', small=0, data=16)
    """
    if not isinstance(name, str) or name not in _TYPES:
        raise UnknownType(
            f"a tensor map has elements of {one_of(_TYPES)}; given {name!r}"
            + nearest_type(str(name), _TYPES)
        )
    return _TYPES[name]


class Im2col(NamedTuple):
    """What one copy in the im2col mode takes: a column of pixels with their channels.

    ``lower`` and ``upper`` are the corners of the bounding box of pixels, W first:
    ``lower`` is added to 0, ``upper`` to the size of the dimension.
    """

    lower: Numbers
    upper: Numbers
    channels: int
    """Elements of each pixel (``channelsPerPixel``)."""
    pixels: int
    """Pixels of a copy (``pixelsPerColumn``)."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and the box that a copy moves; the innermost first.

    ``strides`` are the bytes from one element to the next in every dimension but the
    innermost, whose elements are adjacent.  ``box`` counts elements; with
    ``element_strides`` only each such element of the box is copied.  A map for im2col
    has ``im2col`` and no box.

    >>> map = TensorMap("f16", (256, 100), (512,), box=(64, 32), swizzle=128)
    >>> map.rank, map.box_bytes
    (2, 4096)
    >>> TensorMap.decode(map.encode()) == map
    True
    """

    dtype: str
    sizes: Numbers
    strides: Numbers = ()
    box: Numbers = ()
    element_strides: Numbers = ()
    address: int = 0
    interleave: int = 0
    """Bytes of the slices of channels: 0, 16 or 32."""
    swizzle: Swizzle = 0
    """Bytes of a span: 0, 32, 64 or 128; from sm_100 on also ``"128/32"``, which has
    atoms of 32 bytes, ``"128/32/8"`` and ``"128/64"``."""
    l2: int | str = "none"
    """How much the L2 cache fetches at once: ``"none"``, 64, 128 or 256 bytes."""
    fill: Fill = "zeros"
    """What a copy writes for elements outside the tensor."""
    im2col: Im2col | None = None

    def __post_init__(self) -> None:
        element_type(self.dtype)
        for name in ("sizes", "strides", "box", "element_strides"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * self.rank)
        check(self)

    @classmethod
    def of(
        cls,
        array: object,
        box: Sequence[int] = (),
        strides: Sequence[int] | None = None,
        swizzle: Swizzle = 0,
        interleave: int = 0,
        fill: Fill = "zeros",
        element_strides: Sequence[int] | None = None,
        l2: int | str = "none",
        dtype: str | None = None,
        address: int = 0,
        im2col: Im2col | None = None,
    ) -> TensorMap:
        """The map of an array, for boxes of this shape.

        Everything is in the order of the array's axes: the last one is the innermost.
        ``strides`` are in bytes, one for each axis but the last; by default they are
        the array's.  ``dtype`` is a name of :data:`TYPES`; by default it is the array's
        type, and u8 for 8-bit types.  ``address`` is where the array is for the kernel.
        A map for im2col has ``im2col``, in the driver's order, and no box.

        >>> import numpy as np
        >>> array = np.zeros((100, 256), np.float16)
        >>> map = TensorMap.of(array, box=(32, 64), swizzle=128)
        >>> map.sizes, map.strides, map.box
        ((256, 100), (512,), (64, 32))
        """
        given = as_array(array)
        _check_lists(box=box, strides=strides, element_strides=element_strides)
        if box is None or (dtype is not None and not isinstance(dtype, str)):
            raise BadCall(
                f"box is a list and dtype a name; given {box!r} and {dtype!r}"
            )
        name = _type_of(given, dtype, interleave)
        steps = given.strides[:-1] if strides is None else tuple(strides)
        return cls(
            name,
            tuple(given.shape[::-1]),
            tuple(steps[::-1]),
            tuple(box)[::-1],
            tuple(element_strides or ())[::-1],
            address=address,
            interleave=interleave,
            swizzle=swizzle,
            l2=l2,
            fill=fill,
            im2col=im2col,
        )

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)

    @property
    def element(self) -> ElementType:
        """The type of the elements."""
        return _TYPES[self.dtype]

    @property
    def span(self) -> int:
        """Bytes of shared memory that the swizzle exchanges; 0 without one."""
        return map_span(self.swizzle)

    @property
    def flat(self) -> TensorMap:
        """The same map, of bytes if its elements have less.

        >>> TensorMap("b4x16", (256, 8), (128,), box=(64, 8)).flat
        TensorMap(dtype='u8', sizes=(128, 8), strides=(128,), box=(32, 8), \
element_strides=(1, 1), address=0, interleave=0, swizzle=0, l2='none', fill='zeros', \
im2col=None)
        """
        if self.element.bytes:
            return self
        if self.interleave:  # dimension 0 counts slices
            return replace(self, dtype="u8")
        column = self.im2col
        if column is not None:
            column = column._replace(channels=self.flat_count(column.channels))
        return replace(
            self,
            dtype="u8",
            sizes=(self.flat_count(self.sizes[0]), *self.sizes[1:]),
            box=tuple(self.flat_count(n) for n in self.box[:1]) + self.box[1:],
            im2col=column,
        )

    def flat_count(self, count: int) -> int:
        """How many elements of :attr:`flat` some elements are."""
        if self.element.bytes or self.interleave:
            return count
        return count * self.element.bits // 8

    @property
    def first_pixel(self) -> int:
        """The first dimension that counts pixels in the im2col mode: that of W.

        With an interleave it is 0: the channels are the dimension before the last.
        """
        return 0 if self.interleave else 1

    @property
    def counts(self) -> Numbers:
        """How many elements a tiled copy visits along each dimension.

        With an interleave, dimension 0 counts slices, and one slice of channels is
        copied.  Without one, dimension 0 has no element stride.

        >>> TensorMap("u8", (64, 64), (64,), (32, 9), element_strides=(1, 2)).counts
        (32, 5)
        """
        steps = list(self.element_strides)
        if self.interleave:
            steps[-2] = max(self.box)  # one slice of channels
        else:
            steps[0] = 1
        return tuple(-(-n // step) for n, step in zip(self.box, steps, strict=True))

    @property
    def box_bytes(self) -> int:
        """The bytes of a box, which ``complete_tx`` counts; outside the tensor, too.

        >>> TensorMap("u8", (64, 64), (64,), (32, 9), element_strides=(1, 2)).box_bytes
        160
        """
        if not self.element.bytes:
            return self.flat.box_bytes
        column = self.im2col
        if column is None:
            return prod(self.counts) * (self.interleave or self.element.bytes)
        row = self.interleave or column.channels * self.element.bytes
        return column.pixels * row

    def at(self, address: int) -> TensorMap:
        """The same map of a tensor at another address.

        >>> TensorMap("u8", (64,), box=(16,)).at(4096).address
        4096
        """
        return replace(self, address=address)

    # ── the 128 bytes ───────────────────────────────────────────────────────

    def encode(self) -> bytes:
        """The 128 bytes that the driver writes.

        >>> TensorMap("u8", (64,), box=(16,), address=0x1000).encode()[:9].hex()
        '001000000000000000'
        """
        of = self.element
        units = [stride // 16 for stride in self.strides]
        swizzle = SWIZZLES.index(self.swizzle)
        word = (
            _put("address", self.address)
            | _put("im2col", self.im2col is not None)
            | _put("rank", self.rank)
            | _put("code", of.code)
            | _put("interleave", INTERLEAVES.index(self.interleave))
            | _put("swizzle", min(swizzle, _SPANS))
            | _put("atom", max(0, swizzle - _SPANS))
            | _put("fill", FILLS.index(self.fill))
            | _put("tf32", of.tf32)
            | _put("l2", PROMOTIONS.index(self.l2))
            | _put("stride_low", *units)
            | _put("stride_high", *(unit >> 32 for unit in units))
            | _put("sizes", *self.sizes)
            | _put("element_strides", *self.element_strides)
            | _put("bytes", driver_bytes(self))
            | _put("pattern", PATTERNS[swizzle])
            | self._box_bits()
        )
        return word.to_bytes(BYTES, "little")

    def _box_bits(self) -> int:
        column = self.im2col
        if column is None:
            return _put("box", *self.box)
        width = CORNER_BITS[self.rank]
        lower, upper = (
            sum((x & (1 << width) - 1) << width * i for i, x in enumerate(corner))
            for corner in (column.lower, column.upper)
        )
        return (
            _put("box", column.channels)
            | _put("lower", lower)
            | _put("upper", upper)
            | _put("pixels", column.pixels)
        )

    @classmethod
    def decode(cls, data: bytes) -> TensorMap:
        """The map in 128 bytes.

        Fields that are derived from others are not read: a map may be made by
        ``tensormap.replace``, which leaves them alone.

        >>> map = TensorMap("f32", (8, 9, 4), (32, 288), (4, 2, 1), fill="nan", l2=128)
        >>> TensorMap.decode(map.encode()) == map
        True
        """
        if len(data) != BYTES:
            raise ShapeError(f"a tensor map has {BYTES} bytes; given {len(data)}")
        word = int.from_bytes(data, "little")
        got = {name: field.get(word) for name, field in FIELD.items()}
        (rank,), (code,), (tf32,) = got["rank"], got["code"], got["tf32"]
        if rank > MOST_RANK:
            raise ShapeError(
                f"these bytes are no tensor map: it has 1 to {MOST_RANK} dimensions; "
                f"given {rank}"
            )
        of = _BY_CODE.get((code, tf32))
        if of is None:
            raise UnknownType(
                f"these bytes are not a tensor map: element type {code} with tf32 "
                f"{tf32}; allowed are the codes 0 to 13, and tf32 with 7 and 8"
            )
        strides = zip(got["stride_low"], got["stride_high"], strict=True)
        tiled = not got["im2col"][0]
        return cls(
            dtype=of.name,
            sizes=got["sizes"][:rank],
            strides=tuple((low | high << 32) * 16 for low, high in strides)[: rank - 1],
            box=got["box"][:rank] if tiled else (),
            element_strides=got["element_strides"][:rank],
            address=got["address"][0],
            interleave=_choice("interleave", INTERLEAVES, got["interleave"][0]),
            swizzle=_swizzle(got["swizzle"][0], got["atom"][0]),
            l2=PROMOTIONS[got["l2"][0]],
            fill="nan" if got["fill"][0] else "zeros",
            im2col=None if tiled else _column(got, rank),
        )


def _swizzle(span: int, atom: int) -> Swizzle:
    """The swizzle of the numbers of its span and its atom."""
    if atom and span != _SPANS:
        raise AddressError(
            f"these bytes are not a tensor map: only a swizzle of 128 bytes has atoms "
            f"of more than 16 bytes; given the atom {atom} with the swizzle {span}"
        )
    return SWIZZLES[span + atom]


def _choice(name: str, allowed: Sequence[_Value], number: int) -> _Value:
    if number >= len(allowed):
        raise AddressError(
            f"these bytes are not a tensor map: {name} must be 0 to "
            f"{len(allowed) - 1}; given {number}"
        )
    return allowed[number]


def _column(got: dict[str, Numbers], rank: int) -> Im2col:
    """The column of an im2col map in the fields of its bytes."""
    width = CORNER_BITS.get(rank, 16)
    half, mask = 1 << width >> 1, (1 << width) - 1
    lower, upper = (
        tuple(
            ((got[name][0] >> width * place & mask) ^ half) - half
            for place in range(rank - 2)
        )
        for name in ("lower", "upper")
    )
    return Im2col(lower, upper, got["box"][0], got["pixels"][0])


# ── a map of an array ───────────────────────────────────────────────────────

_NAMES = {
    "uint8": "u8",
    "int8": "u8",
    "bool": "u8",
    "uint16": "u16",
    "int16": "u16",
    "uint32": "u32",
    "int32": "s32",
    "uint64": "u64",
    "int64": "s64",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "bfloat16": "bf16",
    "float8_e4m3fn": "u8",
    "float8_e5m2": "u8",
}


def _check_lists(**given: object) -> None:
    for what, numbers in given.items():
        if numbers is not None and not isinstance(numbers, list | tuple):
            kind = type(numbers).__name__
            raise BadCall(f"{what} is a list of whole numbers; given {kind}")


def _type_of(given: NDArray[np.generic], dtype: str | None, interleave: int) -> str:
    """The element type of the map of an array."""
    name = dtype or _NAMES.get(given.dtype.name)
    if name is None:
        raise UnknownType(
            f"a tensor map has no elements of {given.dtype}; name a type of the same "
            f"size as dtype: {one_of(_TYPES)}"
        )
    of = element_type(name)
    if not of.bytes:
        raise ShapeError(
            f"an array has no elements of {of.bits} bits; give sizes and box of {name} "
            f"in elements: TensorMap({name!r}, sizes, strides, box)"
        )
    if of.bytes != given.dtype.itemsize and not interleave:
        raise ShapeError(
            f"dtype {name} has {of.bytes} bytes, but an element of the array has "
            f"{given.dtype.itemsize} ({given.dtype})"
        )
    if given.ndim and given.strides[-1] != given.dtype.itemsize:
        raise ShapeError(
            "elements along the last axis must be adjacent; their distance is "
            f"{given.strides[-1]} bytes, and an element has {given.dtype.itemsize}"
        )
    return name
