"""Loads the weights of a model from a checkpoint.

Sparse entries become SparseLinear; all other tensors are copied into the model as they
are.  Everything is read and checked before the model changes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fragmenta.errors import BadFile, ShapeError, nearest, one_of, shortened
from fragmenta.hopper.torch.calibration import check_replaceable, original
from fragmenta.hopper.torch.checkpoint import MARLIN, Checkpoint, about_layer, dotted
from fragmenta.hopper.torch.formats import (
    FORMS,
    QUANTIZED,
    Weight,
    read_bitmask,
    read_marlin,
)
from fragmenta.hopper.torch.mixture import SparseExperts
from fragmenta.hopper.torch.modules import SparseLinear
from fragmenta.hopper.torch.pruning import Skip, without_skipped
from fragmenta.hopper.torch.storing import (
    BLOCK,
    EXPERTS_OF_INTEGERS,
    WEIGHTS,
    ModuleTensors,
    read_block,
    read_experts,
    stored_modules,
)

Module: TypeAlias = torch.nn.Module
Layer: TypeAlias = torch.nn.Linear | SparseLinear

_NOT_DENSE = "it is quantised, so that skip= cannot leave it dense"


class CheckpointWarning(UserWarning):
    """A checkpoint and a model do not have the same tensors, and that was allowed."""


def load_sparse(
    model: Module,
    path: str | os.PathLike[str],
    *,
    skip: Skip = (),
    strict: bool = True,
) -> Module:
    """Load a checkpoint with 2:4 weights into a model of ``torch.nn.Linear``.

    ``path`` is a safetensors file, or a folder with one or several and config.json.
    The layers whose weights are stored in the format sparse-24-bitmask or marlin-24
    become SparseLinear, on their device; parameters on ``meta`` become tensors on the
    CPU.  Layers that are trained stay trained: their places and values become those of
    the checkpoint, in the same tensors.  Experts and feed-forward blocks that
    :func:`save_sparse` has written become SparseExperts and SparseFeedForward.  All
    other tensors are copied as they are, so that the model must have their types.

    ``skip`` names layers that get the dense weight instead, as in :func:`linears`.
    With ``strict=False`` the checkpoint and the model need not have the same tensors;
    a CheckpointWarning says what differs.  The model is changed in place and returned;
    a model that is itself a Linear is not changed, so use what is returned.

    >>> import tempfile
    >>> from fragmenta.torch import linears, save_sparse
    >>> sparse = linears(torch.nn.Sequential(torch.nn.Linear(8, 4).half()), prune=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_sparse(sparse, folder)
    ...     load_sparse(torch.nn.Sequential(torch.nn.Linear(8, 4).half()), folder)
    Sequential(
      (0): SparseLinear(in_features=8, out_features=4, bias=True, weight=f16 2:4)
    )
    """
    check_replaceable(model, "load_sparse")
    checkpoint = Checkpoint(path)
    checkpoint.check_config()
    named = original(model)
    forms = _forms(named, checkpoint)
    layers = [(name, layer) for name, layer in _layers(named) if name in forms]
    modules = list(stored_modules(named, set(checkpoint)))
    listed = [*layers, *((at, module) for at, module, _ in modules)]
    kept = {name for name, _ in without_skipped(listed, skip)}
    chosen = {name: layer for name, layer in layers if name in kept}
    whole = _Whole.of(modules, checkpoint, kept)
    state = whole.without(_state(named, chosen))
    stored = whole.stored | {
        f"{dotted(at)}{each}" for at, form in forms.items() for each in _names(form)
    }
    skipped = {f"{dotted(name)}weight" for name in forms.keys() - chosen}
    skipped |= whole.skipped
    differences = _differences((set(checkpoint) - stored) | skipped, state)
    if differences and strict:
        raise BadFile(f"{checkpoint.path} does not fit the model: {differences}")
    made, rest = _read(checkpoint, layers, forms, chosen)
    whole.read(checkpoint, made, rest)
    own = {f"{dotted(name)}bias" for name in chosen}
    for name in (set(state) & set(checkpoint)) - stored - own:
        rest[name] = checkpoint[name]
    for name, tensor in rest.items():
        _check_same(name, state[name], tensor)
    _fill(named, state, rest)
    _keep_trained(made)
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                setattr(parent, name, made[child])
    if differences:
        warnings.warn(
            f"{checkpoint.path}: {differences}", CheckpointWarning, stacklevel=2
        )
    replaced: Module = made.get(model, model)
    return replaced


class _Whole(NamedTuple):
    """What the checkpoint has of experts and of feed-forward blocks."""

    modules: dict[str, tuple[Module, ModuleTensors]]
    stored: set[str]
    """The names of their tensors in the checkpoint."""
    dense: set[str]
    """The names of those that stay dense, because they are skipped."""

    @classmethod
    def of(
        cls,
        modules: list[tuple[str, Module, ModuleTensors]],
        checkpoint: Checkpoint,
        kept: set[str],
    ) -> _Whole:
        stored = {
            f"{dotted(at)}{each}"
            for at, _, form in modules
            for each in (*form.needed, *form.allowed)
        }
        found = {at: (module, form) for at, module, form in modules}
        for at, (_, form) in found.items():
            if form is BLOCK and at not in kept:
                with about_layer(at):
                    raise BadFile(_NOT_DENSE)
        return cls(found, stored & set(checkpoint), set(found) - kept)

    @property
    def skipped(self) -> set[str]:
        """The names of dense tensors that the checkpoint has in another form."""
        return {f"{dotted(at)}{each}" for at in self.dense for each in WEIGHTS}

    def without(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a model without those of the modules that are replaced."""
        prefixes = tuple(dotted(at) for at in self.modules if at not in self.dense)
        return {x: y for x, y in state.items() if not x.startswith(prefixes)}

    def read(
        self,
        checkpoint: Checkpoint,
        made: dict[Module, Module],
        rest: dict[str, Tensor],
    ) -> None:
        """Add the modules, and the dense weights of experts that are skipped."""
        for at, (module, form) in self.modules.items():
            names = [*form.needed, *form.allowed]
            given = {x: checkpoint.get(f"{dotted(at)}{x}") for x in names}
            parts = {name: x for name, x in given.items() if x is not None}
            with about_layer(at):
                if form is BLOCK:
                    found: Module = read_block(module, parts)
                else:
                    experts = read_experts(module, parts, _multiplied(checkpoint))
                    if form is EXPERTS_OF_INTEGERS and experts.gate_up_scale is None:
                        checkpoint.check_groups()
                    found = experts
                if at not in self.dense:
                    made[module] = found
                    continue
                if not isinstance(found, SparseExperts) or found.quantize is not None:
                    raise BadFile(
                        "it is quantised, so that skip= cannot leave it dense"
                    )
            for name, stack in zip(WEIGHTS, (found.gate_up, found.down), strict=True):
                rest[f"{dotted(at)}{name}"] = stack.to_dense()


def _keep_trained(made: dict[Module, Module]) -> None:
    """Layers that are trained stay, with new values: optimisers know their tensors."""
    for old, new in list(made.items()):
        if isinstance(old, SparseLinear) and old.trained:
            old.load_state_dict(new.state_dict())
            del made[old]


def _names(form: str) -> tuple[str, ...]:
    return FORMS[form].needed + FORMS[form].allowed


def _forms(model: Module, checkpoint: Checkpoint) -> dict[str, str]:
    """The format of each layer whose weight is stored sparse."""
    owned: dict[str, set[str]] = {}
    for name in checkpoint:
        owner, _, leaf = name.rpartition(".")
        owned.setdefault(owner, set()).add(leaf)
    found: dict[str, str] = {}
    for name, _ in _layers(model):
        with about_layer(name):
            if form := _form(owned.get(name, set())):
                found[name] = form
    return found


def _layers(model: Module) -> Iterator[tuple[str, Layer]]:
    """The layers that a stored weight may belong to."""
    for name, layer in model.named_modules():
        if isinstance(layer, SparseLinear) or type(layer) is torch.nn.Linear:
            yield name, layer


def _form(leaves: set[str]) -> str:
    """The format that a layer with these tensors has; empty if it is dense.

    What is stored for a sparse weight beside it, such as an order of its columns, would
    change its meaning; so nothing is left out, strict or not.
    """
    for form, parts in FORMS.items():
        if parts.needed[0] not in leaves:
            continue
        if lacking := [each for each in parts.needed if each not in leaves]:
            raise BadFile(
                f"{form} has {one_of(parts.needed, 'and')}; {lacking[0]} is missing"
            )
        if more := sorted(leaves - {*parts.needed, *parts.allowed, "bias"}):
            raise BadFile(f"its weight is {form}, but it has {shortened(more[0])}, too")
        return form
    return ""


def _state(model: Module, chosen: dict[str, Layer]) -> dict[str, Tensor]:
    """The tensors of a model by name, without the weights that are stored sparse.

    Tied tensors are the same object.
    """
    gone, sparse = set(), set(chosen.values())
    for name, layer in model.named_modules(remove_duplicate=False):
        if layer in sparse:
            gone.add(f"{dotted(name)}weight")
        if isinstance(layer, SparseLinear):
            gone |= {f"{dotted(name)}{each}" for each in layer.state_dict()}
            gone -= {f"{dotted(name)}bias"}
    return {
        name: tensor
        for name, tensor in model.state_dict(keep_vars=True).items()
        if isinstance(tensor, Tensor) and name not in gone
    }


def _differences(given: set[str], state: dict[str, Tensor]) -> str:
    """The tensors that only one of the two has, in words; empty if there are none."""
    tied = {id(state[name]) for name in given & set(state)}
    missing = [n for n in state if n not in given and id(state[n]) not in tied]
    extra = sorted(given - set(state))
    lines = []
    if extra:
        hint = nearest(extra[0], missing)
        lines.append(
            f"{len(extra)} of its tensors have no place in the model, such as "
            f"{shortened(extra[0])}{hint}"
        )
    if missing:
        lines.append(
            f"{len(missing)} tensors of the model are missing, such as "
            f"{shortened(missing[0])}"
        )
    return "; ".join(lines)


def _read(
    checkpoint: Checkpoint,
    layers: list[tuple[str, Layer]],
    forms: dict[str, str],
    chosen: dict[str, Layer],
) -> tuple[dict[Module, Module], dict[str, Tensor]]:
    """The sparse layers, and the dense weights of those that are skipped."""
    made: dict[Module, Module] = {}
    rest: dict[str, Tensor] = {}
    for name, layer in layers:
        with about_layer(name):
            weight = _weight(checkpoint, name, forms[name], layer)
            if name in chosen:
                bias = checkpoint.get(f"{dotted(name)}bias")
                made[layer] = _made(layer, weight, bias)
            else:
                rest[f"{dotted(name)}weight"] = _dense(weight, _type(layer))
    return made, rest


# ── a layer ─────────────────────────────────────────────────────────────────


def _weight(checkpoint: Checkpoint, name: str, form: str, layer: Layer) -> Weight:
    """The stored weight of a layer, in the type in which the layer will have it."""
    parts = {
        each: checkpoint[f"{dotted(name)}{each}"]
        for each in _names(form)
        if f"{dotted(name)}{each}" in checkpoint
    }
    wide = _type(layer)
    if form == MARLIN:
        found, groups = read_marlin(parts, wide, _multiplied(checkpoint))
        if groups > 1:
            checkpoint.check_groups()
    else:
        how = checkpoint.activations
        found = read_bitmask(parts, wide if how == "none" else None)
        static = "static" if found.input_scale is not None else "row"
        if found.scale is not None and how not in ("", static):
            raise BadFile(
                f"activations are quantised with scales that are {how}, but "
                f"input_scale is {'given' if static == 'static' else 'missing'}"
            )
    shape = (layer.out_features, layer.in_features)
    if found.matrix.shape != shape:
        raise ShapeError(
            f"the model has {shape[0]}x{shape[1]} weights, and the checkpoint "
            f"{found.matrix.shape[0]}x{found.matrix.shape[1]}"
        )
    kind = found.matrix.dtype
    if found.matrix.integers:
        return found
    if found.scale is None and kind != layer.weight.dtype:
        why = (
            f"use model.to({kind})" if kind.itemsize > 1 else "weight_scale is missing"
        )
        raise BadFile(
            f"the model has weights of {wide}, and the checkpoint of {kind}; {why}"
        )
    return found


def _multiplied(checkpoint: Checkpoint) -> str:
    """What 4-bit integers are multiplied with."""
    return "e4m3" if checkpoint.activations == "row" else "bf16"


def _type(layer: Layer) -> torch.dtype:
    """The type of the activations of a layer; bfloat16 if nothing says it."""
    kind: torch.dtype = layer.weight.dtype
    integers = isinstance(layer, SparseLinear) and layer.weight.integers
    if kind.itemsize > 1 and not integers:
        return kind
    out = layer.out_dtype if isinstance(layer, SparseLinear) else None
    return out or torch.bfloat16


def _made(layer: Layer, weight: Weight, bias: Tensor | None) -> SparseLinear:
    """A sparse layer in the place of a layer, on its device."""
    old = layer.weight.data if isinstance(layer, SparseLinear) else layer.weight
    scaled = weight.scale is not None
    integers = weight.matrix.integers
    trained = isinstance(layer, SparseLinear) and layer.trained
    if trained and (scaled or integers):
        raise BadFile(
            "it is quantised, and the layer is trained; load it into a model that was "
            "not converted with train=True"
        )
    quantize = QUANTIZED[weight.matrix.dtype] if scaled and not integers else None
    if integers:
        quantize = "int4-fp8" if integers.b == "e4m3" else "int4"
    made = SparseLinear(
        layer.in_features,
        layer.out_features,
        layer.bias is not None,
        dtype=None if quantize else weight.matrix.dtype,
        device=torch.device("cpu") if old.is_meta else old.device,
        quantize=quantize,
        static=scaled and weight.input_scale is not None,
        group=integers.group if integers else None,
        fallback=_fallback(layer) if integers else "made",
        **_as_before(layer, integers is not None),
    )
    for name, scale in (
        ("weight_scale", weight.scale),
        ("input_scale", weight.input_scale),
    ):
        if scale is not None:
            getattr(made, name).copy_(scale)
    if trained:
        made.keep_as_stored(weight.matrix)
    else:
        assert made.weight_packed is not None
        made.weight_packed.copy_(weight.matrix.data.flatten(1))
        made._make_wide()
    if made.bias is not None:
        given = bias
        if given is None:
            assert layer.bias is not None
            given = layer.bias.detach()
        if given.shape != made.bias.shape or given.is_meta or given.itemsize > 4:
            raise ShapeError(
                f"the bias must have {len(made.bias)} numbers of at most 32 bits; "
                f"given {given.dtype} of shape {tuple(given.shape)} on {given.device}"
            )
        with torch.no_grad():
            made.bias.copy_(given)
    made.train(layer.training)
    return made


def _as_before(layer: Layer, integers: bool) -> dict[str, Any]:
    """Options of a layer that do not come from the stored weight."""
    if integers:
        return {"model_dtype": _type(layer)}
    if not isinstance(layer, SparseLinear) or not layer.trained:
        return {}
    assert layer.weight_values is not None
    return {
        "train": True,
        "transposable": layer.transposable,
        "model_dtype": layer.weight_values.dtype,
        "out_dtype": layer.out_dtype,
    }


def _fallback(layer: Layer) -> str | None:
    """What a layer of 4-bit integers did for many rows of x; else the default."""
    integers = isinstance(layer, SparseLinear) and layer.weight.integers
    return layer.fallback if integers else "made"


def _dense(weight: Weight, kind: torch.dtype) -> Tensor:
    if weight.matrix.integers:
        dense = weight.matrix.to_dense()
        scale = weight.scale
        return (dense if scale is None else dense * scale[:, None]).to(kind)
    if weight.scale is not None:
        raise BadFile(_NOT_DENSE)
    return weight.matrix.to_dense()


# ── all other tensors ───────────────────────────────────────────────────────


def _check_same(name: str, old: Tensor, new: Tensor) -> None:
    if old.shape != new.shape:
        raise ShapeError(
            f"tensor {shortened(name)} has shape {tuple(old.shape)} in the model, and "
            f"{tuple(new.shape)} in the checkpoint"
        )
    if old.dtype != new.dtype:
        raise BadFile(
            f"tensor {shortened(name)} is {old.dtype} in the model, and {new.dtype} in "
            f"the checkpoint; use model.to({new.dtype})"
        )


def _fill(model: Module, state: dict[str, Tensor], given: dict[str, Tensor]) -> None:
    """Copy tensors into a model; those on meta are replaced, tied ones by the same."""
    fresh: dict[int, Tensor] = {}
    for name, new in given.items():
        old = state[name]
        if not old.is_meta:
            with torch.no_grad():
                old.copy_(new)
        elif isinstance(old, torch.nn.Parameter):
            kept = torch.nn.Parameter(new.clone(), requires_grad=old.requires_grad)
            fresh[id(old)] = kept
        else:
            fresh[id(old)] = new.clone()
    for name, old in state.items():
        if id(old) in fresh:
            owner, _, leaf = name.rpartition(".")
            module, new = model.get_submodule(owner), fresh[id(old)]
            if isinstance(new, torch.nn.Parameter):
                module._parameters[leaf] = new
            else:
                module._buffers[leaf] = new
