"""Converts whole models: every linear layer becomes a SparseLinear, and back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real

import torch

from fragmenta.errors import BadCall, Error
from fragmenta.hopper.torch.calibration import (
    check_model,
    check_replaceable,
    checked_scales,
    original,
)
from fragmenta.hopper.torch.matrix import TYPES
from fragmenta.hopper.torch.modules import SparseLinear
from fragmenta.hopper.torch.options import check_quantization, check_training
from fragmenta.hopper.torch.products import compress
from fragmenta.hopper.torch.pruning import (
    LayerPruning,
    PruningReport,
    Skip,
    taken,
    warn_pruned,
    without_skipped,
)


def linears(
    model: torch.nn.Module,
    *,
    prune: bool | None = None,
    skip: Skip = (),
    least: int = 1,
    dtype: torch.dtype | None = None,
    train: bool = False,
    transposable: bool = False,
    out_dtype: torch.dtype | None = None,
    promote: bool = False,
    quantize: str | None = None,
    scales: str = "row",
    activation_scales: Mapping[str, float] | None = None,
    group: int | None = None,
    fallback: str | None = "made",
) -> torch.nn.Module:
    """Replace every ``torch.nn.Linear`` of a model by a SparseLinear.

    The model is changed in place and returned; a model that is itself a Linear is
    not changed, so use what is returned.  Hooks of a layer are lost.

    A weight that is sparse already keeps every value, bit for bit.  Others are
    pruned, with a warning; :func:`pruning_report` says what each layer lost.
    ``prune=True`` says that pruning is meant, without a warning; ``prune=False``
    refuses it.

    Left as they are: layers that ``skip`` names, layers with fewer than ``least``
    weights, and subclasses of Linear, such as parametrised ones.  ``skip`` is a name,
    several, or patterns such as ``"*.head"``; a name of a module stands for all in it.
    Or it is a function of the name and the layer.  A model in which there is nothing to
    replace gets a warning.

    ``dtype`` is the type of the weights, ``torch.bfloat16`` or ``torch.float16`` (2:4)
    or ``torch.float32`` (tf32, 1:2); without it, each layer keeps its own.  A layer
    that changes its type rounds x to it and returns the type that x had.

    ``train=True`` makes layers that are trained: which weights are kept is fixed now,
    and ``weight_values``, a parameter with half the elements, has their values.  The
    product by W of the backward pass is sparse with ``transposable=True``; it chooses
    masks that are sparse along rows and along columns, and lose more.  Layers that are
    SparseLinear already become trained, too.  :func:`freeze` ends the training.

    ``quantize="fp8"`` (e4m3) or ``"int8"`` also rounds what pruning left to 8 bits.
    With ``scales="row"`` each output has a scale; with ``"tensor"`` all have the same.
    The layers quantise x, too.  Each of its rows gets its own scale, but in layers that
    ``activation_scales`` names all rows have the one given there; :func:`calibrate`
    finds such scales.

    ``quantize="int4"`` rounds what pruning left to 4-bit integers: three bits for each
    weight.  ``group`` columns share a scale: 32, 64, 128 (the default), or 0 for a
    whole row.  x stays bfloat16 or float16; ``"int4-fp8"`` quantises it to fp8.

    4-bit weights are the fastest for few rows of x.  For more, weights of the type of x
    are made from them: with ``fallback="made"`` in each call with more than 1280 rows
    (fp8: 1024), which takes 9 bits of memory for each weight of one layer (fp8: 5)
    while it runs; with ``"kept"`` once, for more than 144 rows (fp8: 96), and so many
    bits stay for each weight of the model.  ``None`` always multiplies the 4-bit
    weights.  Both round scaled weights once more, so that results differ.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    >>> print(linears(model.bfloat16(), prune=True, skip="1"))
    Sequential(
      (0): SparseLinear(in_features=8, out_features=4, bias=True, weight=bf16 2:4)
      (1): Linear(in_features=4, out_features=2, bias=True)
    )
    """
    check_replaceable(model, "linears")
    check_quantization(quantize, scales, activation_scales, group, fallback)
    check_training("bf16", train, transposable, quantize)
    if isinstance(least, bool) or not isinstance(least, Real) or not least >= 0:
        raise BadCall(f"least must be a number of weights, 0 or more; given {least!r}")
    named = original(model).named_modules()
    every = [each for each in named if _replaceable(each[1], train)]
    if not every:
        _warn_without_linears(model)
    listed = [
        (name, module)
        for name, module in without_skipped(every, skip)
        if module.in_features * module.out_features >= least
    ]
    known = checked_scales(
        {} if activation_scales is None else activation_scales,
        [name for name, _ in every],
    )
    made: dict[torch.nn.Module, SparseLinear] = {}
    for name, layer in listed:  # make all before changing any
        try:
            made[layer] = SparseLinear._made(
                layer,
                prune,
                name,
                dtype=dtype,
                train=train,
                transposable=transposable,
                out_dtype=out_dtype,
                promote=promote,
                quantize=quantize,
                scales=scales,
                activation_scale=known.get(name),
                group=group,
                fallback=fallback,
            )
        except Error as why:
            raise type(why)(f"layer {name or 'itself'}: {why}") from None
    if prune is None:
        found = [each.pruning for each in made.values() if each.pruning is not None]
        warn_pruned(PruningReport(tuple(found)), 2)
    return _replaced(model, made)


def _replaceable(module: torch.nn.Module, train: bool) -> bool:
    """Whether it is a Linear, or a sparse layer that is now to be trained."""
    if train and isinstance(module, SparseLinear):
        return not module.trained
    return type(module) is torch.nn.Linear


def _replaced(
    model: torch.nn.Module, made: Mapping[torch.nn.Module, SparseLinear]
) -> torch.nn.Module:
    """The model with other layers in the place of some."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                setattr(parent, name, made[child])
    replaced: torch.nn.Module = made.get(model, model)
    return replaced


def freeze(model: torch.nn.Module) -> torch.nn.Module:
    """Replace every layer that is trained by one for inference, with the same weights.

    The model is changed in place and returned; a model that is itself such a layer is
    not changed, so use what is returned.  ``model.eval()`` does not do this: a layer
    that is trained packs its values in every call, and a frozen one has them packed.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4).bfloat16())
    >>> trained = linears(model, prune=True, train=True)
    >>> [tuple(each.shape) for each in trained.parameters()]
    [(4, 4), (4,)]
    >>> freeze(trained)
    Sequential(
      (0): SparseLinear(in_features=8, out_features=4, bias=True, weight=bf16 2:4)
    )
    """
    check_replaceable(model, "freeze")
    modules = original(model).modules()
    layers = [x for x in modules if isinstance(x, SparseLinear) and x.trained]
    return _replaced(model, {each: each._frozen() for each in layers})


def _warn_without_linears(model: torch.nn.Module) -> None:
    """Warn if there is nothing to replace, and nothing was replaced before."""
    modules = list(original(model).named_modules())
    if any(isinstance(module, SparseLinear) for _, module in modules):
        return
    kinds = (torch.nn.Linear, torch.nn.MultiheadAttention)
    left = [
        f"{name or 'itself'} ({type(module).__name__})"
        for name, module in modules
        if isinstance(module, kinds)
    ]
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    kept = f"; left as they are: {', '.join(left[:3])}{more}" if left else ""
    warnings.warn(
        f"the model has no torch.nn.Linear, so nothing was replaced{kept}",
        stacklevel=3,
    )


def pruning_report(model: torch.nn.Module) -> PruningReport:
    """What pruning took from each SparseLinear of a model, and would from each Linear.

    Ask it before :func:`linears` to see what would be lost, and after it to see what
    was.  What a layer lost is not in its state dict.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4).bfloat16())
    >>> pruning_report(model).layers[0].state
    'dense'
    >>> pruning_report(linears(model, prune=True)).layers[0].state
    'pruned'
    """
    check_model(model, "pruning_report")
    found = []
    for name, module in original(model).named_modules():
        if isinstance(module, SparseLinear):
            found.append(_known(module, name))
        elif type(module) is torch.nn.Linear:
            found.append(_expected(module, name))
        elif isinstance(lost := getattr(module, "pruning", None), tuple):  # of experts
            found += [replace(each, name=f"{name}.{each.name}") for each in lost]
    return PruningReport(tuple(found))


def _known(layer: SparseLinear, name: str) -> LayerPruning:
    if layer.pruning is not None:
        return replace(layer.pruning, name=name)
    shape, granularity = layer.weight.shape, str(layer.weight.granularity)
    return LayerPruning(name, shape, layer.weight_type, granularity, "loaded")


def _expected(layer: torch.nn.Linear, name: str) -> LayerPruning:
    weight = layer.weight.detach()
    if weight.dtype not in TYPES or weight.is_meta:
        shape = (layer.out_features, layer.in_features)
        return LayerPruning(name, shape, "", "", "dense")
    return replace(taken(weight, compress(weight), name), state="dense")
