"""Checks the options of sparse layers: which of them go together."""

from __future__ import annotations

import torch

from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.widening import FALLBACKS
from fragmenta.hopper.torch.matrix import DTYPES, OUTPUTS, type_name
from fragmenta.hopper.torch.products import check_options
from fragmenta.hopper.torch.quantizing import FOUR_BITS, LAYERS, layer_type
from fragmenta.hopper.torch.training import check_trained


def weight_type(
    dtype: torch.dtype | None, quantize: str | None, static: bool, group: int | None
) -> str:
    """The element type of a layer; refuses options that do not go together.

    >>> weight_type(None, None, False, None), weight_type(None, "int4", False, 64)
    ('bf16', 's4-64')
    """
    if quantize is None:
        if static or group is not None:
            name = "static" if static else "group"
            raise BadCall(
                f"{name} is for layers that are quantised; give quantize, too"
            )
        return type_name(torch.bfloat16 if dtype is None else dtype, "a weight")
    element_type = layer_type(quantize, group)
    if quantize == "int4" and static:
        raise BadCall(
            "quantize='int4' does not quantise x, so that nothing is static; "
            "quantize='int4-fp8' does"
        )
    own = DTYPES.get(element_type)
    if dtype not in (None, own):
        raise BadCall(
            f"quantize={quantize!r} has a weight of {own or element_type}; given "
            f"dtype={dtype}"
        )
    return element_type


def check_training(
    element_type: str, train: object, transposable: object, quantize: object
) -> None:
    """Refuse options of training that do not go together.

    >>> check_training("bf16", False, True, None)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: transposable is for layers that are trained; give \
train=True
    """
    for name, given in (("train", train), ("transposable", transposable)):
        if not isinstance(given, bool):
            raise BadCall(f"{name} must be True or False; given {given!r}")
    if not train and transposable:
        raise BadCall("transposable is for layers that are trained; give train=True")
    if train and quantize is not None:
        raise BadCall(
            f"a quantised layer cannot be trained; given quantize={quantize!r} and "
            "train=True; train first, then freeze the model and quantise it"
        )
    if train:
        check_trained(element_type)


def check_result(
    element_type: str, out_dtype: torch.dtype | None, promote: bool, scaled: bool
) -> None:
    """Refuse options with which every call of the layer would fail.

    >>> check_result("bf16", None, True, False)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: promotion is only for e4m3 and e5m2; given bf16
    """
    check_options(out_dtype, promote=promote)
    if integers := Integers.named(element_type):
        # Only the product of wide weights can be promoted.
        element_type, scaled = "e4m3" if integers.b == "e4m3" else "s4", True
    if out_dtype is None:
        Kernel(element_type, promote=promote)
    else:
        Kernel(element_type, out=OUTPUTS[out_dtype], promote=promote, scaled=scaled)


def check_quantization(
    quantize: object,
    scales: object,
    static: object,
    group: int | None,
    fallback: object = "made",
) -> None:
    """Refuse options of quantisation that do not go together.

    >>> check_quantization(None, "row", None, 64)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: scales, groups and activation scales are for quantised \
layers; give quantize='fp8', 'int8', 'int4' or 'int4-fp8', too
    """
    check_fallback(quantize, fallback)
    if quantize is not None:
        layer_type(quantize, group)
        if quantize in FOUR_BITS and scales != "row":
            raise BadCall(
                f"4-bit weights have scales for groups or rows: group=; given "
                f"scales={scales!r}"
            )
        if quantize == "int4" and static:
            raise BadCall(
                "quantize='int4' does not quantise x, so that it has no activation "
                "scales; quantize='int4-fp8' does"
            )
    elif scales != "row" or static is not None or group is not None:
        raise BadCall(
            "scales, groups and activation scales are for quantised layers; give "
            f"quantize={one_of(map(repr, LAYERS))}, too"
        )


def check_fallback(quantize: object, fallback: object) -> None:
    """Refuse what is no way to get wide weights from 4-bit integers.

    >>> check_fallback("fp8", "kept")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: fallback is for int4 or int4-fp8; given 'kept' with \
quantize='fp8'
    """
    if fallback is not None and fallback not in FALLBACKS:
        hint = nearest(str(fallback), FALLBACKS)
        raise BadCall(
            f"fallback must be {one_of(map(repr, FALLBACKS))}, or None; given "
            f"{fallback!r}{hint}"
        )
    if quantize not in FOUR_BITS and fallback != "made":  # the default
        raise BadCall(
            f"fallback is for {one_of(FOUR_BITS)}; given {fallback!r} with "
            f"quantize={quantize!r}"
        )
