"""How is a quantised matrix kept in a file?

A ``.npz`` file has what :class:`Quantized` has: ``values`` and ``scales``, perhaps
``tensor_scale``, and ``dtype``, ``scale_dtype``, ``block``, ``axis``, ``rule`` and
``format``, each as one item.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fragmenta.arrays.checks import Array
from fragmenta.arrays.npy import Archive
from fragmenta.commands.files import as_elements
from fragmenta.errors import Error, one_of
from fragmenta.quant.quantization import Quantized
from fragmenta.registers.dtype import dtype

_NEEDED = ("values", "scales", "dtype", "scale_dtype", "block", "axis")
_WORDS = ("dtype", "scale_dtype", "rule", "format")


def to_arrays(q: Quantized) -> dict[str, Array]:
    """What goes into the file."""
    found = {"values": q.values, "scales": q.scales}
    if q.tensor_scale is not None:
        found["tensor_scale"] = q.tensor_scale
    words = {name: np.array(str(getattr(q, name))) for name in _WORDS}
    return {**found, **words, "block": np.array(q.block), "axis": np.array(q.axis)}


def is_quantized(found: object) -> bool:
    """Whether an archive has a quantised matrix."""
    return isinstance(found, Mapping) and {"values", "scales"} <= set(found)


def from_archive(found: Archive, path: str) -> Quantized:
    """The quantised matrix of a file."""
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise Error(
            f"{path} has no {one_of(missing, 'and')}; a file of fragmenta quantize has "
            f"{one_of(_NEEDED, 'and')}"
        )
    words: dict[str, Any] = {
        name: _word(found, name, path) for name in _WORDS if name in found
    }
    of, scale = dtype(words.pop("dtype")), dtype(words.pop("scale_dtype"))
    parts: dict[str, Any] = {
        "values": as_elements(found["values"], of, path),
        "scales": as_elements(found["scales"], scale, path),
    }
    if "tensor_scale" in found:
        parts["tensor_scale"] = found["tensor_scale"]
    parts |= {name: _number(found, name, path) for name in ("block", "axis")}
    try:
        return Quantized(dtype=of, scale_dtype=scale, **parts, **words)
    except Error as error:
        raise type(error)(f"{path}: {error}") from None


def _word(found: Archive, name: str, path: str) -> str:
    given = found[name]
    if given.shape != () or given.dtype.kind != "U":
        raise Error(f"{name} in {path} must be one word; given {_told(given)}")
    return str(given)


def _number(found: Archive, name: str, path: str) -> int:
    given = found[name]
    if given.shape != () or given.dtype.kind not in "iu":
        raise Error(f"{name} in {path} must be one number; given {_told(given)}")
    return int(given)


def _told(given: Array) -> str:
    return f"{given.dtype} of shape {given.shape}"
