"""What sparse layers compute: the product of a layer, and what x becomes before."""

from __future__ import annotations

import torch
from torch import Tensor

from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.torch.matrix import DTYPES, OUTPUTS, TYPES
from fragmenta.hopper.torch.operators import call, call_pair
from fragmenta.hopper.torch.products import check_input, linear
from fragmenta.hopper.torch.widening import Wide


def layer(
    x: Tensor,
    packed: Tensor,
    element_type: str,
    shape: tuple[int, int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    promote: bool,
    weight_scale: Tensor | None = None,
    input_scale: Tensor | None = None,
    rounds: bool = False,
    wide: Wide | None = None,
) -> Tensor:
    """The result of a layer; with ``weight_scale``, x is quantised first.

    ``wide`` is what a weight of 4-bit integers has for many rows of x.

    >>> from fragmenta.torch import SparseLinear
    >>> made = SparseLinear(8, 4)
    >>> x = torch.ones(1, 8, dtype=torch.bfloat16)
    >>> layer(x, made.weight_packed, "bf16", (4, 8), made.bias, None, False)
    tensor([[0., 0., 0., 0.]], dtype=torch.bfloat16)
    """
    if integers := Integers.named(element_type):
        return _integer_layer(
            x,
            packed,
            integers,
            shape,
            bias,
            out_dtype or _autocast_type(x),
            promote,
            weight_scale,
            input_scale,
            wide,
        )
    if weight_scale is not None:
        check_input(x, shape)
        kind = out_dtype or _autocast_type(x)
        flat = x.reshape(-1, shape[1])
        values, scales = call("quantize_rows", flat, element_type, input_scale)
        y = linear(
            values,
            packed,
            element_type,
            shape,
            bias,
            out_dtype=kind,
            scale_x=scales,
            scale_weight=weight_scale,
            promote=promote,
        )
        return y.reshape(*x.shape[:-1], shape[0])
    x, kind = _rounded(x, element_type, out_dtype, rounds)
    return linear(x, packed, element_type, shape, bias, out_dtype=kind, promote=promote)


def _integer_layer(
    x: Tensor,
    packed: Tensor,
    integers: Integers,
    shape: tuple[int, int],
    bias: Tensor | None,
    out: torch.dtype,
    promote: bool,
    weight_scale: Tensor | None,
    input_scale: Tensor | None,
    wide: Wide | None,
) -> Tensor:
    """The result of a layer of 4-bit integers; many rows are multiplied by wide ones.

    Then products of fp8 may be promoted.  Those of integers always are, by groups.
    """
    check_input(x, shape)
    values, scales = x.reshape(-1, shape[1]), None
    if integers.b == "e4m3":
        values, scales = call_pair("quantize_rows", values, integers.b, input_scale)
    elif values.dtype not in _HALVES:
        values = values.to(torch.bfloat16)
    name, promoted = integers.name, False
    if wide is not None and values.shape[0] > wide.limit:
        name, promoted = TYPES[values.dtype], promote
        if wide.packed is not None and wide.kept == name:
            packed = wide.packed
        else:
            packed = call("widen", packed, integers.name, *shape, name, wide.powers)
        weight_scale = weight_scale if wide.powers is None else wide.powers
    y = linear(
        values,
        packed,
        name,
        shape,
        bias,
        out_dtype=out,
        scale_x=scales,
        scale_weight=weight_scale,
        promote=promoted,
    )
    return y.reshape(*x.shape[:-1], shape[0])


def trained_layer(
    x: Tensor,
    values: Tensor,
    codes: Tensor,
    element_type: str,
    shape: tuple[int, int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    transposable: bool,
    rounds: bool,
) -> Tensor:
    """The result of a layer whose kept values are trained.

    >>> from fragmenta.torch import SparseLinear
    >>> made = SparseLinear(8, 4, train=True)
    >>> x = torch.ones(1, 8, dtype=torch.bfloat16)
    >>> y = made(x)
    >>> y.requires_grad, y.shape
    (True, torch.Size([1, 4]))
    """
    check_input(x, shape)
    x, kind = _rounded(x, element_type, out_dtype, rounds)
    if bias is not None and bias.dtype != torch.float32:
        bias = bias.float()
    out = kind or x.dtype
    return call(
        "kept_linear", x, values, codes, bias, element_type, out, transposable, ()
    )


def _rounded(
    x: Tensor, element_type: str, out_dtype: torch.dtype | None, rounds: bool
) -> tuple[Tensor, torch.dtype | None]:
    """x in the type of the weight if it is to be rounded, and the type of the result.

    Autocast does so, and layers that were made with ``dtype``; these return the type
    that x had.
    """
    kind = DTYPES[element_type]
    # Rounding to 8 bits needs scales, which the caller must choose.
    wide = kind.itemsize > 1 and isinstance(x, Tensor) and x.is_floating_point()
    if not wide or x.dtype == kind:
        return x, out_dtype
    if _autocasts(x.device.type):
        return x.to(kind), out_dtype
    if rounds and x.dtype in OUTPUTS:
        return x.to(kind), out_dtype or x.dtype
    return x, out_dtype


_HALVES = (torch.bfloat16, torch.float16)


def _autocasts(device: str) -> bool:
    """Whether autocast is on; PyTorch cannot say it for some devices, such as meta.

    ``torch.compile`` of PyTorch 2.11 cannot list the devices, so they are named here.
    """
    return device in ("cpu", "cuda") and bool(torch.is_autocast_enabled(device))


def _autocast_type(x: Tensor) -> torch.dtype:
    """The default type of a result."""
    device = x.device.type
    if _autocasts(device):
        found: torch.dtype = torch.get_autocast_dtype(device)
        return found
    return x.dtype
