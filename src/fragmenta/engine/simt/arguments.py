"""The arguments of a launch: they become parameters and memory of a kernel.

An array is a segment of global memory of its own: no access reaches past its ends.  A
number is converted to the declared type of the parameter, and refused if it does not
fit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array, is_whole, refuse_masks
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import aligned
from fragmenta.errors import BadCall, ShapeError, ValueRangeError, one_of
from fragmenta.ptx.module import Function, Variable, demangled, type_bytes

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@dataclass(frozen=True, eq=False)
class Pointer:
    """A place inside an array; see :func:`pointer`."""

    array: Array
    offset: int
    slot: int | None = None
    """The slot of the array's addresses, if it has addresses of its own."""


def pointer(array: object, offset: int = 0) -> Pointer:
    """A pointer into an array, so many bytes after its start.

    >>> pointer(np.zeros(4, np.float32), 8).offset
    8
    """
    if not is_whole(offset):
        raise BadCall(f"offset counts bytes, a whole number; given {offset!r}")
    return Pointer(memory_of(array, "the array of a pointer"), int(offset))


@dataclass(frozen=True, eq=False)
class Struct:
    """The bytes of a parameter that has pointers in it.

    See :func:`fragmenta.launch.structs.struct`.
    """

    data: bytes
    pointers: tuple[tuple[int, Pointer], ...]
    """The pointers, each with its offset in the bytes."""
    align: int = 8
    """The bytes that its address is a multiple of, inside of another struct."""
    reaches: tuple[Pointer, ...] = ()
    """Arrays with addresses of their own, which are stored where it points to."""


class Elements(NamedTuple):
    """The elements of an array, without the array."""

    size: int
    """Bytes of one."""
    shape: tuple[int, ...]
    order: Literal["C", "F"] = "C"
    type: str = ""
    """The name of their type in NumPy, if it is known."""

    @classmethod
    def of(cls, array: Array) -> Elements:
        """The elements of a contiguous array."""
        order: Literal["C", "F"] = "C" if array.flags.c_contiguous else "F"
        return cls(array.itemsize, array.shape, order, array.dtype.name)

    def at(self, offset: int) -> tuple[tuple[int, ...], int]:
        """The index of the element at a byte, and which of its bytes that is.

        >>> Elements(4, (2, 3)).at(17)
        ((1, 1), 1)
        """
        number, byte = divmod(offset, self.size)
        index = np.unravel_index(number, self.shape, self.order)
        return tuple(map(int, index)), byte


@dataclass(eq=False)
class Segment:
    """Memory that a kernel can reach."""

    name: str
    data: NDArray[np.uint8]
    writable: bool
    slot: int
    elements: Elements | None = None
    """Which element is where, if it is the memory of one array."""

    @property
    def address(self) -> int:
        """Its first virtual address."""
        return self.slot << layout.SLOT_BITS


@dataclass(frozen=True)
class Filled:
    """The bytes of a struct, and its pointers: each with its place in the bytes."""

    data: bytes
    pointers: tuple[tuple[int, tuple[int, int]], ...]


Passed = bytes | tuple[int, int] | Filled
"""A parameter: its bytes, or a pointer as the number of a segment and an offset."""


def passed_bytes(passed: Passed, addresses: Sequence[int]) -> bytes:
    r"""The bytes of a parameter, where segments begin at these addresses.

    >>> passed_bytes(Filled(bytes(12), ((4, (0, 8)),)), [256])
    b'\x00\x00\x00\x00\x08\x01\x00\x00\x00\x00\x00\x00'
    """
    if isinstance(passed, bytes):
        return passed
    if isinstance(passed, tuple):
        number, offset = passed
        return ((addresses[number] + offset) % 2**64).to_bytes(8, "little")
    found = bytearray(passed.data)
    for at, pointer in passed.pointers:
        found[at : at + 8] = passed_bytes(pointer, addresses)
    return bytes(found)


def segments_of(passed: Passed) -> list[int]:
    """The numbers of the segments that a parameter points to.

    >>> segments_of((3, 8)), segments_of(b"1234")
    ([3], [])
    """
    if isinstance(passed, bytes):
        return []
    if isinstance(passed, tuple):
        return [passed[0]]
    return [number for _, (number, _) in passed.pointers]


FARTHEST = 1 << (layout.SLOT_BITS - 1)
"""How far from its array a pointer may be; farther, it is in another segment."""


class ArrayAddress(NamedTuple):
    """A place in an array, for the parameter with this name."""

    array: Array
    offset: int
    what: str
    pointer: bool
    """Whether it was given as a pointer."""
    slot: int | None = None
    """The slot that its memory must have."""

    @property
    def start(self) -> int:
        """Where the array begins on this machine."""
        return int(self.array.__array_interface__["data"][0])


class _StructBytes(NamedTuple):
    """The bytes of a struct, and the places that its pointers point to."""

    data: bytes
    at: tuple[int, ...]
    places: tuple[ArrayAddress, ...]
    """Those of the pointers, then others whose addresses are stored in them."""


class Arguments:
    """The parameters of a kernel as bytes, and the memory that they point to."""

    def __init__(
        self, kernel: Function, given: object, names: Sequence[str] = ()
    ) -> None:
        """``names`` are those of the parameters in the program that was compiled."""
        values = as_list(given)
        rest = kernel.parameters[len(names) :]
        known = [
            name or demangled(each.name)
            for name, each in zip(
                [*names, *[""] * len(rest)], kernel.parameters, strict=False
            )
        ]
        if len(values) != len(kernel.parameters):
            pairs = zip(known, kernel.parameters, strict=True)
            listed = one_of((f"{name} ({_kind(each)})" for name, each in pairs), "and")
            raise BadCall(
                f"{kernel.shown} has {len(kernel.parameters)} parameters"
                f"{': ' + listed if listed else ''}; given {len(values)} arguments"
            )
        parts = [
            _converted(f"argument {i} ({name})", parameter, value)
            for i, (name, parameter, value) in enumerate(
                zip(known, kernel.parameters, values, strict=True)
            )
        ]
        self._groups = grouped([place for part in parts for place in _places(part)])
        if len(self._groups) > layout.FIRST_VARIABLE - layout.FIRST_ARGUMENT:
            raise ValueRangeError("a launch takes at most 1,008 arrays")
        for each in self._groups:
            if each.stop - each.start > layout.FIRST_SLOT:
                raise ValueRangeError(
                    f"{each.places[0].what} is an array of {each.stop - each.start:,} "
                    f"bytes; the most is {layout.FIRST_SLOT:,}"
                )
        self.segments = _segments(self._groups)
        self.passed: list[Passed] = [self._passed(part) for part in parts]
        self.arrays: dict[int, Array] = {
            i: part.array
            for i, (part, passed) in enumerate(zip(parts, self.passed, strict=True))
            if isinstance(part, ArrayAddress)
            and part.array.nbytes == self.segments[segments_of(passed)[0]].data.size
            and not part.pointer
        }
        """The arguments that are arrays with a segment of their own, by number."""
        # It reads whole programs; a kernel that is not launched does not need it.
        from fragmenta.engine.simt.program import parameter_offsets

        self.parameters = self._memory(list(parameter_offsets(kernel).values()))

    def _passed(self, part: bytes | ArrayAddress | _StructBytes) -> Passed:
        if isinstance(part, _StructBytes):
            targets = map(self._target, part.places)
            return Filled(part.data, tuple(zip(part.at, targets, strict=False)))
        return self._target(part) if isinstance(part, ArrayAddress) else part

    def _target(self, place: ArrayAddress) -> tuple[int, int]:
        """The segment of a pointer, and how far from its start it is."""
        for number, group in enumerate(self._groups):
            if any(each is place for each in group.places):
                return number, place.start - group.start + place.offset
        raise AssertionError(place.what)

    def _memory(self, offsets: list[int]) -> NDArray[np.uint8]:
        memory = bytearray(8)
        addresses = [each.address for each in self.segments]
        for offset, part in zip(offsets, self.passed, strict=True):
            data = passed_bytes(part, addresses)
            memory += bytes(max(0, offset + len(data) - len(memory)))
            memory[offset : offset + len(data)] = data
        made = aligned(len(memory))
        made[:] = np.frombuffer(bytes(memory), np.uint8)
        return made

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where the memory of each segment begins and ends on this machine."""
        return [(each.start, each.stop) for each in self._groups]

    def write_back(self) -> None:
        """Copy what was written in copies back into the arrays."""
        for group, segment in zip(self._groups, self.segments, strict=True):
            if not group.in_place and segment.writable:
                group.memory()[:] = segment.data


class Received:
    """The parameters and the memory of a launch that was made in another process."""

    def __init__(self, segments: list[Segment], parameters: bytes) -> None:
        self.segments = segments
        self.parameters = aligned(len(parameters))
        self.parameters[:] = np.frombuffer(parameters, np.uint8)

    def check(self, kernel: Function) -> None:
        """Refuse parameters that end before those of the kernel, which reads all."""
        from fragmenta.engine.simt.program import parameter_offsets

        last = kernel.parameters[-1:]
        needed = sum(parameter_offsets(kernel)[each.name] + each.size for each in last)
        if self.parameters.size < needed:
            raise ShapeError(
                f"{kernel.shown} has {needed:,} bytes of parameters; given "
                f"{self.parameters.size:,}"
            )

    def write_back(self) -> None:
        """Nothing is a copy here: what was written is sent back."""


@dataclass(eq=False)
class SegmentArrays:
    """Arrays that share memory, and so are one segment."""

    start: int
    stop: int
    writable: bool
    places: list[ArrayAddress]

    @property
    def in_place(self) -> bool:
        """Whether the kernel can work on this memory: it is aligned for atomics."""
        return self.start % 8 == 0

    def memory(self) -> NDArray[np.uint8]:
        """The bytes of all arrays."""
        size = self.stop - self.start
        if not size:
            return np.zeros(0, np.uint8)
        for each in self.places:
            if each.array.nbytes == size:
                flat: NDArray[np.uint8] = each.array.ravel(order="K").view(np.uint8)
                return flat
        shared = (ctypes.c_uint8 * size).from_address(self.start)
        return np.ctypeslib.as_array(shared)

    @property
    def slot(self) -> int | None:
        """The slot that its addresses must have."""
        return next((e.slot for e in self.places if e.slot is not None), None)

    def segment(self, slot: int) -> Segment:
        """The memory that the kernel reaches."""
        names = one_of(dict.fromkeys(each.what for each in self.places), "and")
        data = self.memory() if self.in_place else self.memory().copy()
        size = self.stop - self.start
        whole = (e.array for e in self.places if e.array.nbytes == size > 0)
        elements = next(map(Elements.of, whole), None)
        return Segment(names, data, self.writable, slot, elements)


def _segments(groups: list[SegmentArrays]) -> list[Segment]:
    """The memory of groups, each in its slot, or in one that is free."""
    taken = {group.slot for group in groups}
    every = range(layout.FIRST_ARGUMENT, layout.FIRST_VARIABLE)
    free = (slot for slot in every if slot not in taken)
    return [
        group.segment(next(free) if group.slot is None else group.slot)
        for group in groups
    ]


def grouped(places: list[ArrayAddress]) -> list[SegmentArrays]:
    """Group arrays that overlap, so that they keep their distances."""
    groups: list[SegmentArrays] = []
    for place in places:
        array, start = place.array, place.start
        made = SegmentArrays(
            start, start + array.nbytes, array.flags.writeable, [place]
        )
        touching = [each for each in groups if _overlap(made, each)]
        for each in touching:
            groups.remove(each)
            made = SegmentArrays(
                min(made.start, each.start),
                max(made.stop, each.stop),
                made.writable,
                [*each.places, *made.places],
            )
        groups.append(made)
    return groups


def _overlap(one: SegmentArrays, other: SegmentArrays) -> bool:
    if one.writable != other.writable:
        return False
    if one.slot is not None and other.slot is not None:
        return one.slot == other.slot
    if one.slot is not None or other.slot is not None:  # it must begin where it does
        outer, inner = (one, other) if other.slot is None else (other, one)
        return outer.start <= inner.start and inner.stop <= outer.stop
    same = (one.start, one.stop) == (other.start, other.stop)
    return same or (one.start < other.stop and other.start < one.stop)


def _places(part: bytes | ArrayAddress | _StructBytes) -> tuple[ArrayAddress, ...]:
    """All places in arrays that a parameter names."""
    if isinstance(part, _StructBytes):
        return part.places
    return (part,) if isinstance(part, ArrayAddress) else ()


def _converted(
    what: str, parameter: Variable, value: object
) -> bytes | ArrayAddress | _StructBytes:
    size = parameter.size
    if isinstance(value, Struct):
        at = tuple(at for at, _ in value.pointers)
        places = tuple(_place(each, what) for _, each in value.pointers)
        stored = f"memory that {what} points to"
        places += tuple(_place(each, stored) for each in value.reaches)
        return _StructBytes(_raw(value.data, size, what), at, places)
    if isinstance(value, RAW):
        return _raw(value, size, what)
    if _is_struct_array(value, parameter):
        return _raw(value.reshape(-1)[0], size, what)
    pointer = value if isinstance(value, Pointer) else None
    if pointer is None and (isinstance(value, np.generic) or not is_memory(value)):
        return _number(value, parameter, what)
    if size != 8 or (pointer is None and type_bytes(parameter.type) != 8):
        raise BadCall(
            f"{what} is {_kind(parameter)}; given an array, which is passed as a "
            f"pointer of 8 bytes{_instead(value, parameter)}"
        )
    if pointer is not None:
        return _place(pointer, what)
    return ArrayAddress(memory_of(value, what), 0, what, pointer=False)


def _is_struct_array(value: object, parameter: Variable) -> TypeGuard[NDArray[np.void]]:
    """Whether an array with one structured element is given for a struct by value."""
    if not isinstance(value, np.ndarray) or value.dtype.names is None:
        return False
    return value.size == 1 and parameter.size != type_bytes(parameter.type)


def _place(value: Pointer, what: str) -> ArrayAddress:
    if abs(value.offset) >= FARTHEST:
        raise ValueRangeError(
            f"{what} points {value.offset} bytes from the start of its array; the most "
            f"is {FARTHEST - 1}"
        )
    return ArrayAddress(value.array, value.offset, what, pointer=True, slot=value.slot)


def _kind(parameter: Variable) -> str:
    """The type of a parameter, in words."""
    if parameter.size != type_bytes(parameter.type):
        return f"a struct of {parameter.size} bytes"
    return f"a {parameter.type}"


def _instead(given: object, parameter: Variable) -> str:
    """What to give for a parameter that is not a pointer, instead of an array."""
    if isinstance(given, Pointer):
        return ""
    if parameter.size != type_bytes(parameter.type):
        return "; array.tobytes() are its bytes, ptx.pointer(array) is a pointer"
    return "; array.item() is its number" if _size(given) == 1 else ""


def _size(array: object) -> int:
    """How many elements an array of any library has."""
    return prod(getattr(array, "shape", ()))


def as_list(arguments: object) -> list[object]:
    """The arguments of a launch, one for each parameter.

    >>> as_list(np.zeros(3))
    Traceback (most recent call last):
    fragmenta.errors.BadCall: arguments is a list with one item for each parameter; \
given ndarray
    """
    wrong = isinstance(arguments, str | bytes | dict) or is_memory(arguments)
    if wrong or not isinstance(arguments, Iterable):
        raise BadCall(
            "arguments is a list with one item for each parameter; given "
            f"{type(arguments).__name__}"
        )
    return list(arguments)


RAW = (
    bytes,
    bytearray,
    memoryview,
    np.void,
    ctypes.Structure,
    ctypes.Union,
    ctypes.Array,
    ctypes._SimpleCData,
)
"""Types whose own bytes become those of the parameter."""


def _raw(value: ReadableBuffer | np.void, size: int, what: str) -> bytes:
    if isinstance(value, np.void):
        if not value.dtype.isnative:
            raise BadCall(f"{what} is not in native byte order: {value.dtype}")
        if value.dtype.hasobject:
            raise BadCall(f"{what} holds Python objects; a kernel needs numbers")
    data = bytes(value.tobytes() if isinstance(value, np.void) else value)
    if len(data) != size:
        raise ShapeError(
            f"{what} has {size} bytes; given {type(value).__name__} of {len(data)} "
            "bytes" + _other_size(value, size)
        )
    return data


def _other_size(value: object, size: int) -> str:
    """What to do about a struct that has another size than the parameter."""
    if size == 8:
        return "; memory is given as an array"
    if not isinstance(value, np.void) or value.dtype.names is None:
        return ""
    fields = {name: kind for name, (kind, *_) in (value.dtype.fields or {}).items()}
    aligned = np.dtype([*fields.items()], align=True).itemsize
    return "; numpy.dtype(…, align=True) has it" if aligned == size else ""


def is_memory(value: object) -> bool:
    """Whether it is an array, of NumPy or of another library."""
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")


def memory_of(value: object, what: str) -> Array:
    """An array that shares its memory with what was given."""
    refuse_masks(value)
    copied = "numpy.ascontiguousarray"
    if not isinstance(value, np.ndarray):
        copied = ".contiguous()" if hasattr(value, "contiguous") else copied
        if not hasattr(value, "__dlpack__"):
            raise BadCall(f"{what} must be an array; given {type(value).__name__}")
        value = _shared(value, what)
    if not _is_dense(value):
        raise ShapeError(
            f"{what} is not contiguous (shape {value.shape}, strides "
            f"{value.strides}); {copied} makes a copy that is"
        )
    if value.dtype.hasobject:
        raise BadCall(f"{what} holds Python objects; a kernel needs numbers")
    if not value.dtype.isnative:
        raise BadCall(
            f"{what} is not in native byte order: {value.dtype}; "
            "array.astype(array.dtype.newbyteorder('=')) makes a copy that is"
        )
    return np.asarray(value)


def _is_dense(array: Array) -> bool:
    """Whether the elements are side by side, whatever the order of the axes.

    >>> _is_dense(np.zeros((2, 3, 4)).T), _is_dense(np.zeros((4, 4))[:, ::2])
    (True, False)
    """
    flat = array.ravel(order="K")
    start, first = (each.__array_interface__["data"][0] for each in (array, flat))
    return not array.size or (flat.flags.c_contiguous and start == first)


def _shared(value: Any, what: str) -> Array:
    """The memory of a tensor of another library."""
    try:
        return np.asarray(np.from_dlpack(value))
    except (BufferError, RuntimeError, TypeError) as error:
        # NumPy has no bfloat16 and float8: take the bytes.
        view = getattr(value, "view", None)
        if view is not None:
            try:
                import torch

                dense = _by_strides(value).view(torch.uint8)
                return np.asarray(np.from_dlpack(dense))
            except (ImportError, BufferError, RuntimeError, TypeError):
                pass
        raise BadCall(f"{what} cannot be used in place: {error}") from error


def _by_strides(value: Any) -> Any:
    """A tensor with its axes as they are in memory: of a transposed one, the rows."""
    steps = value.stride()
    return value.permute(sorted(range(len(steps)), key=lambda axis: -steps[axis]))


_FLOATS: dict[str, type[np.float16 | np.float32 | np.float64]] = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}


def _number(value: object, parameter: Variable, what: str) -> bytes:
    """A number as the bytes of a parameter."""
    kind, size = parameter.type, type_bytes(parameter.type)
    if isinstance(value, np.generic) and kind.startswith("b"):
        data = value.tobytes()
        if len(data) == parameter.size:
            return data
    if parameter.size != size:
        raise BadCall(
            f"{what} is {_kind(parameter)}; give its bytes, or a NumPy scalar that has "
            f"so many; given {given_text(value)}"
        )
    if kind in _FLOATS:
        return _float(value, kind, what)
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    if not isinstance(value, int | np.integer):
        hint = ""
        if size == 8:
            hint = "; a null pointer is 0" if value is None else _MEMORY
        raise BadCall(f"{what} is {_kind(parameter)}; given {given_text(value)}{hint}")
    number, bits = int(value), 8 * size
    # Also .u32 may be below 0: a C compiler declares signed numbers so.
    signed = kind[0] in "sb" or not isinstance(value, np.unsignedinteger)
    low = -(1 << (bits - 1)) if signed else 0
    high = (1 << (bits - (kind[0] == "s"))) - 1
    if not low <= number <= high:
        raise ValueRangeError(
            f"{what} is {_kind(parameter)}, from {low} to {high}; given {number}"
        )
    return (number & ((1 << bits) - 1)).to_bytes(size, "little")


_MEMORY = "; memory is given as an array, such as numpy.array(…, numpy.float32)"


def given_text(value: object) -> str:
    """A value and its type, for a message."""
    text = " ".join(repr(value).split())
    text = text if len(text) <= 60 else f"{text[:60]} …"
    return f"{text} of {type(value).__name__}"


def _float(value: Any, kind: str, what: str) -> bytes:
    if isinstance(value, (str, np.complexfloating)):  # float() would accept them
        raise BadCall(f"{what} is a {kind}; given {given_text(value)}")
    number: np.float16 | np.float32 | np.float64 = np.float64("inf")
    try:
        wide = float(value)
        with np.errstate(over="ignore"):
            number = _FLOATS[kind](value)
    except (TypeError, ValueError) as error:
        raise BadCall(f"{what} is a {kind}; given {given_text(value)}") from error
    except OverflowError:
        wide = 0.0
    if np.isinf(number) and not np.isinf(wide):
        raise ValueRangeError(
            f"{what} is a {kind}; {given_text(value)} is too large for it"
        )
    return bytes(number.tobytes())
