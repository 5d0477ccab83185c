"""Turns the arguments of a Triton kernel into those of its PTX.

The protocols name what is used of objects of Triton and of libraries of tensors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from typing import (
    NamedTuple,
    NotRequired,
    Protocol,
    SupportsFloat,
    SupportsInt,
    TypeAlias,
    TypedDict,
    runtime_checkable,
)

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from triton.runtime.jit import TensorWrapper

from fragmenta.engine.simt.arguments import Pointer, Struct
from fragmenta.errors import BadCall, ValueRangeError
from fragmenta.frontends.triton.storages import ADDRESSES, EMPTIES, HOST, MARKS
from fragmenta.reference.shared.tensor_map import (
    ALIGNMENT,
    Im2col,
    TensorMap,
    element_types,
)

# ── what is used of others' objects ─────────────────────────────────────────

Kind: TypeAlias = "str | tuple[Kind, ...]"
"""The type of a parameter in Triton's words; a tuple has one for each item."""


@runtime_checkable
class Tensor(Protocol):
    """An array: PyTorch's, NumPy's after :func:`arrays.as_tensor`, or another."""

    @property
    def shape(self) -> Sequence[int]:
        """Its sizes."""

    def stride(self) -> Sequence[int]:
        """The distance of neighbours along each axis, in elements."""

    def element_size(self) -> int:
        """Bytes of an element."""

    def data_ptr(self) -> int:
        """The address of its first element."""


@runtime_checkable
class Descriptor(Protocol):
    """A tensor descriptor of Triton."""

    base: object
    shape: Sequence[int]
    strides: Sequence[int]
    padding: str


@runtime_checkable
class Im2colDescriptor(Descriptor, Protocol):
    """A tensor descriptor whose copies take columns of pixels."""

    pixel_box_lower_corner: Sequence[int]
    pixel_box_upper_corner: Sequence[int]
    element_strides: Sequence[int] | None


class MapFields(TypedDict):
    """What Triton's compiler says about the tensor map of a descriptor."""

    fp4_padded: bool
    elem_type: int
    elem_size: int
    swizzle: int
    block_size: Sequence[int]
    is_im2col: NotRequired[bool]


@runtime_checkable
class Number(SupportsInt, SupportsFloat, Protocol):
    """A number, of Python or of NumPy."""


class Target(Protocol):
    """What a kernel was compiled for."""

    arch: int


class Metadata(Protocol):
    """What Triton's compiler says about a kernel."""

    target: Target
    name: str
    hash: str
    num_ctas: int
    num_warps: int
    shared: int
    global_scratch_size: int


# ── arguments ───────────────────────────────────────────────────────────────


class TypedArgument(NamedTuple):
    """An argument, and Triton's word for its type."""

    name: str
    type: str
    value: object

    def passed(self) -> bytes | Pointer | Struct | int:
        """The argument as a launch takes it, with the memory whose addresses it has."""
        found = self._bytes_or_pointer()
        if isinstance(found, Pointer):
            EMPTIES.forget()
            reached = ADDRESSES.reached([found.array])
            if reached:
                return Struct(bytes(8), ((0, found),), reaches=reached)
        if isinstance(found, bytes) and len(found) == 8:
            reached = ADDRESSES.reached([np.frombuffer(found, np.uint8)])
            if reached:
                return Struct(found, (), reaches=reached)
        return found

    def _bytes_or_pointer(self) -> bytes | Pointer | Struct | int:
        if isinstance(self.value, Struct):
            return self.value
        if self.type.startswith("*"):
            return _pointer(self.value, self.name, self.type[1:])
        return _number(self.value, self.type, self.name)


def flat(
    signature: Iterable[tuple[object, Kind]],
    arguments: Sequence[object],
    metadata: Metadata,
) -> Iterator[TypedArgument]:
    """The arguments without constants, and with the items of tuples one by one."""
    maps = iter(getattr(metadata, "tensordesc_meta", None) or ())
    return _flat(signature, arguments, maps)


def _flat(
    signature: Iterable[tuple[object, Kind]],
    arguments: Sequence[object],
    maps: Iterator[MapFields | None],
) -> Iterator[TypedArgument]:
    for (key, kind), value in zip(signature, arguments, strict=True):
        name = str(key)
        if isinstance(kind, tuple):
            assert isinstance(value, Sequence), name
            inner = [(f"{name}[{i}]", each) for i, each in enumerate(kind)]
            yield from _flat(inner, value, maps)
        elif kind.startswith("tensordesc"):
            assert isinstance(value, Descriptor), name
            fields = next(maps, None)
            if fields is not None:
                yield TypedArgument(name, kind, _tensor_map(name, kind, value, fields))
            else:
                yield from _parts(name, kind, value)
            for size in value.shape:
                yield TypedArgument(name, "i32", size)
            for step in value.strides:
                yield TypedArgument(name, "i64", step)
        elif kind != "constexpr":
            yield TypedArgument(name, kind, value)


def _element(kind: str) -> str:
    """The type of the elements of a tensor descriptor."""
    return kind.partition("<")[2].partition("[")[0]


def _parts(name: str, kind: str, value: Descriptor) -> Iterator[TypedArgument]:
    """A tensor descriptor where TMA does not exist."""
    yield TypedArgument(name, f"*{_element(kind)}", value.base)
    for size in (*value.shape, *value.strides):
        yield TypedArgument(name, "i64", size)
    yield TypedArgument(name, "i1", value.padding == "nan")
    if hasattr(value, "round_f32_to_tf32"):  # since Triton 3.7
        yield TypedArgument(name, "i1", value.round_f32_to_tf32)


_CODES = {each.code: each.name for each in element_types() if not each.tf32}


def _tensor_map(name: str, kind: str, value: Descriptor, fields: MapFields) -> Struct:
    """A tensor descriptor where TMA exists, as Triton's own launcher encodes it."""
    if fields["fp4_padded"]:
        raise BadCall(
            f"{name} has elements of 4 bits, which a copy of sm_100 spreads over 16 "
            "bytes for each 8; such copies do not run here. Load the packed bytes with "
            "a descriptor of uint8"
        )
    dtype = _CODES[fields["elem_type"]]
    if getattr(value, "round_f32_to_tf32", False):
        dtype = "tf32"
    made = TensorMap(
        dtype,
        tuple(reversed(value.shape)),
        tuple(reversed([step * fields["elem_size"] for step in value.strides[:-1]])),
        swizzle=(0, 32, 64, 128)[fields["swizzle"]],
        l2=128,
        fill="nan" if value.padding == "nan" else "zeros",
        **_box(value, fields),
    )
    place = _pointer(value.base, name, _element(kind))
    assert isinstance(place, Pointer), name
    return Struct(made.encode(), ((0, place),), ALIGNMENT)


class _MapFields(TypedDict, total=False):
    box: tuple[int, ...]
    im2col: Im2col
    element_strides: tuple[int, ...]


def _box(value: Descriptor, fields: MapFields) -> _MapFields:
    """What a copy moves: a box, or a column of pixels.  Triton names W last."""
    if not fields.get("is_im2col"):
        return {"box": tuple(reversed(fields["block_size"]))}
    assert isinstance(value, Im2colDescriptor)
    pixels, channels = fields["block_size"]
    lower, upper = (
        tuple(reversed(corner))
        for corner in (value.pixel_box_lower_corner, value.pixel_box_upper_corner)
    )
    return {
        "im2col": Im2col(lower, upper, channels, pixels),
        "element_strides": tuple(reversed(value.element_strides or ())),
    }


def _pointer(value: object, name: str, kind: str) -> Pointer | int:
    """A pointer to an array's memory; ``kind`` is the type of its elements."""
    if isinstance(value, TensorWrapper):
        value = value.base
    if value is None or (isinstance(value, int) and value == 0):
        return 0
    if not isinstance(value, Tensor):
        raise BadCall(
            f"{name} is a pointer; give an array or a CPU tensor, not "
            f"{type(value).__name__} {value!r}"
        )
    if MARKS.of(value) == HOST:
        raise BadCall(
            f"{name} is on the CPU, where a kernel of a GPU cannot reach it: give "
            f'{name}.to("cuda")'
        )
    where = str(_true_device(value))
    if not where.startswith("cpu"):
        raise BadCall(
            f"{name} is on {where}; here kernels run on the CPU: give {name}.cpu(), or "
            "leave on_cpu() to run on the GPU"
        )
    return _memory(value, kind)


def _true_device(value: Tensor) -> object:
    """Where a tensor's memory is, whatever the tensor says."""
    stored = getattr(value, "untyped_storage", None)
    return getattr(value if stored is None else stored(), "device", "cpu")


def _memory(value: Tensor, kind: str) -> Pointer:
    """The bytes from the lowest to the highest element, in place, and the first one.

    A step may be negative: then the pointer is not where the memory starts.  An axis
    with the step 0 hides how far a tensor goes.  Libraries that gather and scatter, as
    FlagGems does, give their kernels such a view, and the true step as a number: the
    kernel goes along the axis itself, past the last element of the view.  A view does
    not say what it was made from, so its memory ends where its storage does.
    """
    axes = list(zip(value.shape, value.stride(), strict=True))
    size = value.element_size()
    if not all(n for n, _ in axes):
        return Pointer(np.zeros(0, np.uint8), 0)
    below = size * sum((1 - n) * step for n, step in axes if step < 0)
    above = size * (1 + sum((n - 1) * step for n, step in axes if step > 0))
    # A class of a library may have kept what data_ptr() of its tensor was.
    start = ADDRESSES.true(value.data_ptr())
    if any(n > 1 and step == 0 for n, step in axes):
        above = max(above, _storage_end(value) - start)
    memory = (ctypes.c_uint8 * (below + above)).from_address(start - below)
    found: NDArray[np.generic] = np.ctypeslib.as_array(memory)
    if _in_order(axes):  # reports then name elements by their index
        typed = np.dtype(_FLOATS.get(kind, f"V{size}"))
        typed = typed if typed.itemsize == size else np.dtype(f"V{size}")
        found = found.view(typed).reshape([n for n, _ in axes])
    flags = getattr(value, "flags", None)
    found.flags.writeable = flags is None or bool(flags.writeable)
    return Pointer(found, below)


def _storage_end(value: Tensor) -> int:
    """The address past the end of a tensor's storage; 0 if it is not known."""
    if not hasattr(value, "untyped_storage"):
        return 0
    storage = value.untyped_storage()
    return int(storage.data_ptr()) + int(storage.nbytes())


def _in_order(axes: list[tuple[int, int]]) -> bool:
    """Whether elements are in memory as their indices count, the last the fastest."""
    wanted = 1
    for length, step in reversed(axes):
        if length > 1 and step != wanted:
            return False
        wanted *= length
    return True


_FLOATS: dict[str, type[np.generic]] = {
    "fp16": np.float16,
    "fp32": np.float32,
    "f32": np.float32,
    "fp64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
}
"""Triton's floats, as NumPy and ml_dtypes have them."""


def _number(value: object, kind: str, name: str) -> bytes:
    """A number as the bytes of a Triton type."""
    if not isinstance(value, Number):
        raise BadCall(f"{name} is an {kind}; given {value!r} of {type(value).__name__}")
    if kind == "bf16":  # Triton's own launcher cuts it off
        return np.float32(value).tobytes()[2:]
    if kind in _FLOATS:
        with np.errstate(over="ignore"):
            return bytes(_FLOATS[kind](value).tobytes())
    bits = int(kind[1:])
    given = int(value)
    low, high = (0, 1 << bits) if kind[0] == "u" else (-(1 << bits - 1), 1 << bits - 1)
    if bits == 1:
        low, high = 0, 2
    if not low <= given < high:
        raise ValueRangeError(
            f"{name} is an {kind}, from {low} to {high - 1}; given {given}"
        )
    size = max(8, bits) // 8
    return given.to_bytes(size, "little", signed=low < 0)
