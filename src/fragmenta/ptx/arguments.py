"""What is given to a kernel, and how does it become parameters and memory?

An array is global memory of its own: nothing around it can be reached.  A number is
converted to the declared type of the parameter, and refused if it does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.checks import is_whole
from fragmenta.errors import Error, ShapeError, ValueRangeError, one_of
from fragmenta.ptx.engine import layout
from fragmenta.ptx.engine.program import parameter_offsets
from fragmenta.ptx.module import Function, Variable, type_bytes


@dataclass(frozen=True, eq=False)
class Pointer:
    """A place inside an array; see :func:`pointer`."""

    array: NDArray[Any]
    offset: int


def pointer(array: Any, offset: int = 0) -> Pointer:
    """A pointer into an array, so many bytes behind its start.

    >>> pointer(np.zeros(4, np.float32), 8).offset
    8
    """
    if not is_whole(offset):
        raise Error(f"offset counts bytes, a whole number; given {offset!r}")
    return Pointer(_memory(array, "the array of a pointer"), int(offset))


@dataclass(eq=False)
class Segment:
    """Memory that a kernel can reach."""

    name: str
    data: NDArray[np.uint8]
    writable: bool
    slot: int

    @property
    def address(self) -> int:
        """Its first virtual address."""
        return self.slot << layout.SLOT_BITS


Passed = bytes | tuple[int, int]
"""A parameter: its bytes, or a pointer as the number of a segment and an offset."""


class Arguments:
    """The parameters of a kernel as bytes, and the memory behind its pointers."""

    def __init__(self, kernel: Function, given: Any) -> None:
        self.segments: list[Segment] = []
        self._known: dict[tuple[int, int], Segment] = {}
        self._kept: list[Any] = []
        self.arrays: dict[int, NDArray[Any]] = {}
        self._targets: dict[int, tuple[int, int]] = {}
        values = list(given)
        if len(values) != len(kernel.parameters):
            names = one_of((p.name for p in kernel.parameters), "and")
            raise Error(
                f"{kernel.name} has {len(kernel.parameters)} parameters"
                f"{': ' + names if names else ''}; given {len(values)} arguments"
            )
        offsets = parameter_offsets(kernel)
        parts = [
            (offsets[p.name], self._bytes(i, p, value))
            for i, (p, value) in enumerate(zip(kernel.parameters, values, strict=True))
        ]
        self.passed: list[Passed] = [
            self._targets.get(i, data) for i, (_, data) in enumerate(parts)
        ]
        size = max((offset + len(data) for offset, data in parts), default=0)
        memory = bytearray(max(size, 8))
        for offset, data in parts:
            memory[offset : offset + len(data)] = data
        self.parameters = np.frombuffer(bytes(memory), np.uint8).copy()

    def _bytes(self, index: int, parameter: Variable, value: Any) -> bytes:
        what = f"argument {index} ({parameter.name})"
        size = parameter.size
        if isinstance(value, (bytes, bytearray, memoryview, np.void)):
            data = bytes(value.tobytes() if isinstance(value, np.void) else value)
            if len(data) != size:
                raise ShapeError(f"{what} has {size} bytes; given {len(data)} bytes")
            return data
        if isinstance(value, Pointer):
            segment = self._segment(value.array, what)
            self._targets[index] = self.segments.index(segment), value.offset
            return _address_bytes(segment.address + value.offset, size, what)
        if isinstance(value, np.generic) or not _is_memory(value):
            return _number(value, parameter, what)
        if size != 8:
            raise Error(
                f"{what} is a {parameter.type} of {size} bytes; given an array, which "
                "is passed as a pointer of 8 bytes"
            )
        array = _memory(value, what)
        self.arrays[index] = array
        segment = self._segment(array, what)
        self._targets[index] = self.segments.index(segment), 0
        return _address_bytes(segment.address, size, what)

    def _segment(self, array: NDArray[Any], what: str) -> Segment:
        key = (int(array.__array_interface__["data"][0]), array.nbytes)
        if key not in self._known:
            flat = (
                array.reshape(-1).view(np.uint8)
                if array.size
                else np.zeros(0, np.uint8)
            )
            slot = layout.FIRST_ARGUMENT + len(self.segments)
            if slot >= layout.FIRST_VARIABLE:
                raise Error("a launch takes at most 1,000 arrays")
            made = Segment(what, flat, array.flags.writeable, slot)
            self._known[key] = made
            self.segments.append(made)
        return self._known[key]


def _is_memory(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")


def _memory(value: Any, what: str) -> NDArray[Any]:
    """An array that shares its memory with what was given."""
    if not isinstance(value, np.ndarray):
        if not hasattr(value, "__dlpack__"):
            raise Error(f"{what} must be an array; given {type(value).__name__}")
        value = _shared(value, what)
    if not value.flags.c_contiguous:
        raise ShapeError(
            f"{what} is not contiguous (shape {value.shape}, strides "
            f"{value.strides}); numpy.ascontiguousarray makes a copy that is"
        )
    if value.dtype.hasobject:
        raise Error(f"{what} holds Python objects; a kernel needs numbers")
    return np.asarray(value)


def _shared(value: Any, what: str) -> NDArray[Any]:
    """The memory of a tensor of another library."""
    try:
        return np.asarray(np.from_dlpack(value))
    except (BufferError, RuntimeError, TypeError) as error:
        # NumPy has no bfloat16 and float8: the bytes will do.
        view = getattr(value, "view", None)
        if view is not None:
            try:
                import torch

                return np.asarray(np.from_dlpack(value.view(torch.uint8)))
            except (ImportError, BufferError, RuntimeError, TypeError):
                pass
        raise Error(f"{what} cannot be used in place: {error}") from error


def _address_bytes(address: int, size: int, what: str) -> bytes:
    if size != 8:
        raise Error(f"{what} has {size} bytes; a pointer has 8")
    return address.to_bytes(8, "little")


_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def _number(value: Any, parameter: Variable, what: str) -> bytes:
    """A number as the bytes of a parameter."""
    kind, size = parameter.type, type_bytes(parameter.type)
    if parameter.size != size:
        raise Error(
            f"{what} is a struct of {parameter.size} bytes; give it as bytes, for "
            f"instance numpy.array(…).tobytes(); given {value!r}"
        )
    if isinstance(value, np.generic) and kind.startswith("b"):
        data = value.tobytes()
        if len(data) == size:
            return data
    if kind in _FLOATS:
        return _float(value, kind, what)
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    if not is_whole(value):
        raise Error(f"{what} is a {kind}; given {value!r} of {type(value).__name__}")
    number, bits = int(value), 8 * size
    low = -(1 << (bits - 1)) if kind[0] in "sb" else 0
    high = (1 << (bits - (kind[0] == "s"))) - 1
    if kind[0] == "u" and isinstance(value, np.signedinteger):
        low = -(1 << (bits - 1))  # a C compiler declares signed numbers as .u32
    if kind[0] == "u" and isinstance(value, int):
        low = -(1 << (bits - 1))
    if not low <= number <= high:
        raise ValueRangeError(
            f"{what} is a {kind}, from {low} to {high}; given {number}"
        )
    return (number & ((1 << bits) - 1)).to_bytes(size, "little")


def _float(value: Any, kind: str, what: str) -> bytes:
    try:
        wide = float(value)
    except (TypeError, ValueError) as error:
        raise Error(
            f"{what} is a {kind}; given {value!r} of {type(value).__name__}"
        ) from error
    with np.errstate(over="ignore"):
        number = _FLOATS[kind](value)
    if np.isinf(number) and not np.isinf(wide):
        raise ValueRangeError(f"{what} is a {kind}; {value!r} is too large for it")
    return bytes(number.tobytes())
