"""Files of quantised matrices, which ``quantize`` writes and ``run`` reads.

A ``.npz`` or ``.safetensors`` file has what :class:`Quantized` has: ``values`` and
``scales``, perhaps ``tensor_scale``, and ``dtype``, ``scale_dtype``, ``block``,
``axis``, ``rule`` and ``format``: in a ``.npz`` each as one item, in a ``.safetensors``
as texts of its metadata.

In a packed file, ``packed`` is ``cublas``.  Then ``values`` are the bytes that cuBLAS
and PyTorch's ``scaled_mm`` take, with k contiguous and two e2m1 in a byte, and block
scales are bytes in blocks of 128 x 4:
:mod:`fragmenta.reference.tensor_memory.scaled_mm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.safetensors import NAMES, SafeArrays
from fragmenta.commands.files import as_elements
from fragmenta.errors import BadFile, Error, ShapeError, one_of
from fragmenta.reference.quant.quantization import Quantized
from fragmenta.reference.registers.dtype import DType, dtype
from fragmenta.reference.tensor_memory.scaled_mm import from_scaled_mm, to_scaled_mm

CUBLAS = "cublas"
_NEEDED = ("values", "scales", "dtype", "scale_dtype", "block", "axis")
_TEXTS = ("dtype", "scale_dtype", "rule", "format")
_NUMBERS = ("block", "axis")


# ── writing ─────────────────────────────────────────────────────────────────


def to_arrays(q: Quantized, packed: bool = False) -> dict[str, Array]:
    """The arrays of a file."""
    found = {"values": q.values, "scales": q.scales}
    if packed:
        stored = to_scaled_mm(q)
        found = {"values": stored.values, "scales": stored.scales}
    if q.tensor_scale is not None:
        found["tensor_scale"] = q.tensor_scale
    return found


def to_texts(q: Quantized, packed: bool = False) -> dict[str, str]:
    """What describes the arrays, as the metadata of a ``.safetensors`` file."""
    found = {name: str(getattr(q, name)) for name in (*_TEXTS, *_NUMBERS)}
    return {**found, "packed": CUBLAS} if packed else found


def to_items(q: Quantized, packed: bool = False) -> dict[str, Array]:
    """What describes the arrays, as items of a ``.npz`` file."""
    numbers = {name: np.array(getattr(q, name)) for name in _NUMBERS}
    texts = to_texts(q, packed).items()
    return {n: np.array(text) for n, text in texts if n not in numbers} | numbers


def as_stored(array: Array) -> Array:
    """An array in a type that safetensors files have: of others, the raw bytes."""
    return array if array.dtype in NAMES else array.view(np.uint8)


# ── reading ─────────────────────────────────────────────────────────────────


def is_quantized(found: object) -> bool:
    """Whether an archive has a quantised matrix."""
    return isinstance(found, Mapping) and {"values", "scales"} <= set(found)


def from_archive(found: Mapping[str, Array], path: str) -> Quantized:
    """The quantised matrix of a file."""
    texts = found.metadata if isinstance(found, SafeArrays) else {}
    missing = [name for name in _NEEDED if name not in found and name not in texts]
    if missing:
        raise BadFile(
            f"{path} has no {one_of(missing, 'and')}; a file of fragmenta quantize has "
            f"{one_of(_NEEDED, 'and')}"
        )
    words = dict(texts) or {
        name: _text(found, name, path) for name in (*_TEXTS, "packed") if name in found
    }
    numbers = {
        name: _whole(words[name], name, path)
        if name in words
        else _number(found, name, path)
        for name in _NUMBERS
    }
    try:
        if "packed" in words:
            return _unpacked(found, words, numbers["axis"], path)
        of, scale = dtype(words["dtype"]), dtype(words["scale_dtype"])
        return Quantized(
            values=_elements(found, "values", of, path),
            scales=_elements(found, "scales", scale, path),
            dtype=of,
            scale_dtype=scale,
            block=numbers["block"],
            axis=numbers["axis"],
            tensor_scale=_tensor_scale(found),
            rule=words.get("rule", ""),
            format=words.get("format", ""),
        )
    except Error as error:
        raise type(error)(f"{path}: {error}") from None


def _elements(found: Mapping[str, Array], name: str, of: DType, path: str) -> Array:
    """An array in its type; safetensors files have bytes where they have no type."""
    array = found[name]
    raw = isinstance(found, SafeArrays) and array.dtype == np.uint8
    if raw and array.dtype != of.storage and of.storage.itemsize == 1:
        array = array.view("V1")
    return as_elements(array, of, path)


def _tensor_scale(found: Mapping[str, Array]) -> Array | None:
    return found["tensor_scale"] if "tensor_scale" in found else None  # noqa: SIM401


def _unpacked(
    found: Mapping[str, Array], words: Mapping[str, str], axis: int, path: str
) -> Quantized:
    if words["packed"] != CUBLAS:
        raise BadFile(f"packed is {CUBLAS}; given {words['packed']!r}")
    if axis not in (-1, -2):
        raise ShapeError(f"axis is -1 or -2; given {axis}")
    made = from_scaled_mm(
        found["values"],
        found["scales"],
        words.get("format", "") or words["dtype"],
        operand="A" if axis == -1 else "B",
        tensor_scale=_tensor_scale(found),
    )
    return replace(made, rule=words.get("rule", ""))


def _text(found: Mapping[str, Array], name: str, path: str) -> str:
    given = found[name]
    if given.shape != () or given.dtype.kind != "U":
        raise ShapeError(
            f"{name} in {path} must be one word; given {_described(given)}"
        )
    return str(given)


def _number(found: Mapping[str, Array], name: str, path: str) -> int:
    given = found[name]
    if given.shape != () or given.dtype.kind not in "iu":
        raise ShapeError(
            f"{name} in {path} must be one number; given {_described(given)}"
        )
    return int(given)


def _whole(text: str, name: str, path: str) -> int:
    if not text.removeprefix("-").isdecimal() or len(text) > 19:
        raise ShapeError(f"{name} in {path} must be a whole number; given {text!r:.40}")
    return int(text)


def _described(given: Array) -> str:
    return f"{given.dtype} of shape {given.shape}"
