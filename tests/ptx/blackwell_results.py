"""The results that Triton's kernels for Blackwell must leave in memory.

No Blackwell has run them.  A product is what :func:`fragmenta.matmul` gives with the
instruction that the kernel has, bit for bit.  Kernels that compute more are compared with
the same calculation in float64.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import fragmenta as fm

Array = NDArray[Any]
_TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "i8": np.int8,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
_OPS = {
    "f16": fm.tcgen05("m64n64k16", a="f16", d="f32"),
    "bf16": fm.tcgen05("m64n64k16", a="bf16", d="f32"),
    "f32": fm.tcgen05("m64n64k8", a="tf32", d="f32"),
    "e4m3": fm.tcgen05("m64n64k32", a="e4m3", d="f32"),
    "e5m2": fm.tcgen05("m64n64k32", a="e5m2", d="f32"),
    "i8": fm.tcgen05("m64n64k32", a="s8", d="s32"),
}
_SCALED = {
    "mxfp8": fm.tcgen05("m128n64k32", a="e4m3", kind="mxf8f6f4", scale_vec="block32"),
    "mxfp4": fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4", scale_vec="block32"),
    "nvfp4": fm.tcgen05(
        "m128n64k64", a="e2m1", kind="mxf4nvf4", scale_vec="block16", scale="ue4m3"
    ),
}
LOG2_E = 1.4426950408889634


def typed(spec: dict[str, Any], array: Array) -> Array:
    """An array with the type that its description names."""
    return array.view(_TYPES.get(spec["type"], array.dtype))


def check(
    name: str, specs: list[dict[str, Any]], before: list[Any], after: list[Any]
) -> None:
    """Compare the arguments of a launch with what they must be."""
    given = [
        typed(spec, array) if isinstance(array, np.ndarray) else array
        for spec, array in zip(specs, before, strict=True)
    ]
    kernel, _, tag = name.partition("-")
    place = 3 if kernel.startswith("attention") else 2
    found = typed(specs[place], after[place])
    if kernel.startswith("attention"):
        wanted = _attention(*given[:3], causal="causal" in tag, length=int(given[4]))
        np.testing.assert_allclose(found.astype(np.float64), wanted, 4e-3, 2e-3)
    elif kernel == "matmul_ragged":
        np.testing.assert_allclose(
            found.astype(np.float64), _ragged(*given), 2e-3, 2e-3
        )
    else:
        wanted = _product(kernel, tag, specs, given).astype(found.dtype)
        assert found.tobytes() == wanted.tobytes()


def _product(
    kernel: str, tag: str, specs: list[dict[str, Any]], given: list[Any]
) -> Array:
    a, b = given[:2]
    if kernel == "matmul_scaled":
        return _scaled(tag, a, b, given[3], given[4])
    by_rows = kernel in ("matmul_persistent", "pair_matmul") or tag.endswith(
        ("rows", "cluster")
    )
    total: Array = fm.matmul(_OPS[specs[0]["type"]], a, b if by_rows else b.T)
    return total + given[2] if kernel == "matmul_added" else total


def _scaled(tag: str, a: Array, b: Array, a_scale: Array, b_scale: Array) -> Array:
    if tag != "mxfp8":
        a, b = (_halves(each) for each in (a, b))
    kind = ml_dtypes.float8_e4m3fn if tag == "nvfp4" else ml_dtypes.float8_e8m0fnu
    scales = a_scale.view(kind), b_scale.view(kind).T
    return fm.matmul(_SCALED[tag], a, b.T, scale_a=scales[0], scale_b=scales[1])


def _halves(packed: Array) -> Array:
    """Two elements of 4 bits in each byte, the first one in the low half."""
    parts = np.stack([packed & 15, packed >> 4], axis=-1)
    return parts.reshape(packed.shape[0], -1).view(ml_dtypes.float4_e2m1fn)


def _ragged(a: Array, b: Array, out: Array, bias: Array, *_: Any) -> Array:
    total = a.astype(np.float64) @ b.astype(np.float64) + bias
    found: Array = total / (1 + np.exp(-1.702 * total))
    return found


def _attention(q: Array, k: Array, v: Array, *, causal: bool, length: int) -> Array:
    heads = [
        each.reshape(-1, length, q.shape[-1]).astype(np.float64) for each in (q, k, v)
    ]
    score = heads[0] @ heads[1].swapaxes(1, 2) / np.sqrt(q.shape[-1])
    if causal:
        score = np.where(np.tri(length, dtype=bool), score, -np.inf)
    weight = np.exp(score - score.max(-1, keepdims=True))
    found = weight / weight.sum(-1, keepdims=True) @ heads[2]
    return np.asarray(found.reshape(q.shape))
