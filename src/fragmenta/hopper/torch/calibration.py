"""Finds scales for the activations of a model, from batches of data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from fragmenta.errors import BadCall, ValueRangeError, nearest
from fragmenta.hopper.torch.quantizing import activation_type, checked_scale, scale_for

Hook = Callable[[torch.nn.Module, tuple[Tensor, ...], dict[str, Tensor]], None]
Answer = TypeVar("Answer")


def call_with(model: Callable[..., Answer], batch: object) -> Answer:
    """Call a model with one tensor, with a tuple or list of arguments, or by name.

    >>> call_with(lambda x, y: x + y, (1, 2)), call_with(lambda x: -x, {"x": 3})
    (3, -3)
    """
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, tuple | list):
        return model(*batch)
    return model(batch)


def original(model: torch.nn.Module) -> torch.nn.Module:
    """The model that was given to ``torch.compile``; its layers can have hooks.

    >>> layer = torch.nn.Linear(4, 4)
    >>> original(layer) is layer
    True
    """
    return getattr(model, "_orig_mod", model)


def check_model(model: object, name: str) -> None:
    """Refuse what is not a model; ``name`` is the function that it was given to.

    >>> check_model(3, "linears")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: linears takes a model; given a int
    """
    if not isinstance(model, torch.nn.Module):
        raise BadCall(f"{name} takes a model; given a {type(model).__name__}")


def check_replaceable(model: torch.nn.Module, name: str) -> None:
    """Refuse what is not a model, and a compiled Linear.

    It would show the layer that replaces the Linear, but go on calling the Linear.

    >>> compiled = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    >>> check_replaceable(compiled, "linears")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: linears cannot replace a Linear that is compiled; give \
the Linear, and compile what is returned
    """
    check_model(model, name)
    layer = original(model)
    if layer is not model and type(layer) is torch.nn.Linear:
        raise BadCall(
            f"{name} cannot replace a Linear that is compiled; give the Linear, and "
            "compile what is returned"
        )


def calibrate(
    model: torch.nn.Module,
    batches: Iterable[object],
    *,
    quantize: str = "fp8",
) -> dict[str, float]:
    """The scale of the activations of every layer, from its inputs in some batches.

    Each batch is a tensor, a tuple of arguments, or a dict of named ones.  The scale of
    a layer is the largest magnitude of all its inputs / 448 (int8: 127).  Give the
    result to ``linears(model, activation_scales=...)``.  A layer that no batch reaches
    has no scale, so its rows will each get their own.  The model runs as it is: call
    ``model.eval()`` before.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    >>> calibrate(model, [torch.full((2, 4), 7.0), -torch.ones(1, 4)])
    {'0': 0.015625}
    """
    check_model(model, "calibrate")
    element_type = activation_type(quantize)
    single = isinstance(batches, Tensor | Mapping | str)
    # A dataset of PyTorch has no __iter__, but can be iterated over.
    if single or not hasattr(batches, "__iter__") | hasattr(batches, "__getitem__"):
        raise BadCall(
            f"batches must be a list or another iterable of batches; given a "
            f"{type(batches).__name__}: put it in a list"
        )
    found: dict[str, Tensor] = {}
    watched = original(model)
    handles = [
        module.register_forward_pre_hook(_noting(found, name), with_kwargs=True)
        for name, module in watched.named_modules()
        if type(module) is torch.nn.Linear
    ]
    if not handles:
        raise BadCall(
            "the model has no layers to calibrate: no torch.nn.Linear is in it"
        )
    count = 0
    try:
        with torch.no_grad():
            for batch in batches:
                call_with(watched, batch)
                count += 1
    finally:
        for handle in handles:
            handle.remove()
    if not count:
        raise BadCall("calibrate needs at least one batch; given none")
    return {name: _scale(name, amax, element_type) for name, amax in found.items()}


def _noting(found: dict[str, Tensor], name: str) -> Hook:
    """A hook that keeps the largest magnitude that a layer has seen, on its device."""

    def note(
        _: torch.nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor]
    ) -> None:
        x = inputs[0] if inputs else named["input"]
        if not x.numel():
            return
        amax = x.detach().abs().max().float()
        found[name] = torch.maximum(found[name], amax) if name in found else amax

    return note


def _scale(name: str, amax: Tensor, element_type: str) -> float:
    most = float(amax)
    if not math.isfinite(most):
        raise ValueRangeError(
            f"layer {name or 'itself'} has an input with NaN or infinity; no scale "
            "fits it"
        )
    return scale_for(most, element_type)


def checked_scales(given: object, names: list[str]) -> dict[str, float]:
    """Scales by layer, checked; each must belong to a layer.

    >>> checked_scales({"heed": 0.5}, ["head"])
    Traceback (most recent call last):
    fragmenta.errors.BadCall: activation_scales: there is no Linear heed in the model \
(did you mean head?)
    """
    if not isinstance(given, Mapping):
        raise BadCall(
            f"activation_scales must be a dict of scales by layer; given a "
            f"{type(given).__name__}"
        )
    for name in given:
        if name not in names:
            raise BadCall(
                f"activation_scales: there is no Linear {name} in the model"
                f"{nearest(str(name), names)}"
            )
    return {
        name: checked_scale(scale, f"the activation scale of {name or 'the layer'}")
        for name, scale in given.items()
    }
