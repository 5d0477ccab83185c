"""How do the arguments of a Triton kernel become those of its PTX?"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from triton.runtime.jit import TensorWrapper

from fragmenta.errors import Error, ValueRangeError
from fragmenta.shared.tensor_map import ALIGNMENT, Im2col, TensorMap, element_types
from fragmenta.simt.arguments import Pointer, Struct


class Given(NamedTuple):
    """An argument, and Triton's word for its type."""

    name: str
    type: str
    value: Any

    def bytes_or_pointer(self) -> Any:
        """The argument as the engine takes it."""
        if isinstance(self.value, Struct):
            return self.value
        if self.type.startswith("*"):
            return _pointer(self.value, self.name)
        return _number(self.value, self.type, self.name)


def flat(signature: Any, arguments: Sequence[Any], metadata: Any) -> Iterator[Given]:
    """What is left of the arguments: no constants, tuples one by one."""
    maps = iter(getattr(metadata, "tensordesc_meta", None) or ())
    return _flat(signature, arguments, maps, metadata.target.arch >= 90)


def _flat(
    signature: Any, arguments: Sequence[Any], maps: Iterator[Any], tma: bool
) -> Iterator[Given]:
    for (name, kind), value in zip(signature, arguments, strict=True):
        if isinstance(kind, tuple):
            inner = [(f"{name}[{i}]", each) for i, each in enumerate(kind)]
            yield from _flat(inner, value, maps, tma)
        elif kind.startswith("tensordesc"):
            about = next(maps, None)
            if about is not None:
                yield Given(name, kind, _tensor_map(name, value, about))
            else:
                yield from _parts(name, kind, value)
            for size in value.shape:
                yield Given(name, "i32", size)
            for step in value.strides:
                yield Given(name, "i64", step)
        elif kind != "constexpr":
            yield Given(str(name), kind, value)


def _parts(name: str, kind: str, value: Any) -> Iterator[Given]:
    """A tensor descriptor where TMA does not exist."""
    element = kind.partition("<")[2].partition("[")[0]
    yield Given(name, f"*{element}", value.base)
    for size in (*value.shape, *value.strides):
        yield Given(name, "i64", size)
    yield Given(name, "i1", value.padding == "nan")
    if hasattr(value, "round_f32_to_tf32"):  # since Triton 3.7
        yield Given(name, "i1", value.round_f32_to_tf32)


_CODES = {each.code: each.name for each in element_types() if not each.tf32}


def _tensor_map(name: str, value: Any, about: dict[str, Any]) -> Struct:
    """A tensor descriptor where TMA exists, as Triton's own launcher encodes it."""
    if about["fp4_padded"]:
        raise Error(
            f"{name} has elements of 4 bits, which a copy of sm_100 spreads over 16 "
            "bytes for each 8; such copies do not run here. Load the packed bytes with "
            "a descriptor of uint8"
        )
    dtype = _CODES[about["elem_type"]]
    if getattr(value, "round_f32_to_tf32", False):
        dtype = "tf32"
    made = TensorMap(
        dtype,
        tuple(reversed(value.shape)),
        tuple(reversed([step * about["elem_size"] for step in value.strides[:-1]])),
        swizzle=(0, 32, 64, 128)[about["swizzle"]],
        l2=128,
        fill="nan" if value.padding == "nan" else "zeros",
        **_box(value, about),
    )
    place = _pointer(value.base, name)
    return Struct(made.encode(), ((0, place),), ALIGNMENT)


def _box(value: Any, about: dict[str, Any]) -> dict[str, Any]:
    """What a copy takes: a box, or a column of pixels.  Triton names W last."""
    if not about.get("is_im2col"):
        return {"box": tuple(reversed(about["block_size"]))}
    pixels, channels = about["block_size"]
    lower, upper = (
        tuple(reversed(corner))
        for corner in (value.pixel_box_lower_corner, value.pixel_box_upper_corner)
    )
    return {
        "im2col": Im2col(lower, upper, channels, pixels),
        "element_strides": tuple(reversed(value.element_strides or ())),
    }


def _pointer(value: Any, name: str) -> Any:
    """A pointer to an array's memory."""
    if isinstance(value, TensorWrapper):
        value = value.base
    if value is None or (isinstance(value, int) and value == 0):
        return 0
    if not hasattr(value, "data_ptr"):
        raise Error(
            f"{name} is a pointer; give an array or a CPU tensor, not "
            f"{type(value).__name__} {value!r}"
        )
    where = str(getattr(value, "device", "cpu"))
    if not where.startswith("cpu"):
        raise Error(
            f"{name} is on {where}; here kernels run on the CPU: give {name}.cpu(), or "
            "leave on_cpu() to run on the GPU"
        )
    return _memory(value)


def _memory(value: Any) -> Pointer:
    """The bytes from the lowest to the highest element, in place, and the first one.

    A step may be negative: then the pointer is not where the memory starts.  An axis
    with the step 0 hides how far a tensor goes.  Libraries that gather and scatter, as
    FlagGems does, give their kernels such a view, and the true step as a number: the
    kernel goes along the axis itself, behind the last element of the view.  A view does
    not say what it was made from, so its memory ends where its storage does.
    """
    axes = list(zip(value.shape, value.stride(), strict=True))
    size = value.element_size()
    if not all(n for n, _ in axes):
        return Pointer(np.zeros(0, np.uint8), 0)
    below = size * sum((1 - n) * step for n, step in axes if step < 0)
    above = size * (1 + sum((n - 1) * step for n, step in axes if step > 0))
    start = value.data_ptr()
    if any(n > 1 and step == 0 for n, step in axes):
        above = max(above, _storage_end(value) - start)
    memory = (ctypes.c_uint8 * (below + above)).from_address(start - below)
    found: NDArray[Any] = np.ctypeslib.as_array(memory)
    if _in_order(axes):  # reports then name elements by their index
        found = found.view(f"V{size}").reshape([n for n, _ in axes])
    flags = getattr(value, "flags", None)
    found.flags.writeable = flags is None or bool(flags.writeable)
    return Pointer(found, below)


def _storage_end(value: Any) -> int:
    """The address behind a tensor's storage; 0 if that is not known."""
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


_FLOATS: dict[str, Any] = {
    "fp16": np.float16,
    "fp32": np.float32,
    "f32": np.float32,
    "fp64": np.float64,
}


def _number(value: Any, kind: str, name: str) -> bytes:
    """A number as the bytes of a Triton type."""
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
