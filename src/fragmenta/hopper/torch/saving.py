"""Writes a model with sparse layers as a checkpoint.

Its format is sparse-24-bitmask: the stored values and a bit for each column, so that
reading it gives the same bits.  Layers with 4-bit integers are written as marlin-24.
A file that exists stays as it is until the new one is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from fragmenta.errors import BadCall, BadFile, shortened
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.torch.calibration import check_model, original
from fragmenta.hopper.torch.checkpoint import (
    BITMASK,
    CONFIG,
    INDEX,
    MARLIN,
    MODEL,
    ORDERED_SCALES,
    SUFFIX,
    about_layer,
    dotted,
    read_json,
)
from fragmenta.hopper.torch.feedforward import SparseFeedForward
from fragmenta.hopper.torch.formats import to_bitmask, to_marlin
from fragmenta.hopper.torch.mixture import SparseExperts
from fragmenta.hopper.torch.modules import SparseLinear
from fragmenta.hopper.torch.safetensors import check_free, write, write_whole
from fragmenta.hopper.torch.storing import experts_scheme, stored_module

Stored = SparseLinear | SparseExperts | SparseFeedForward
STORED = (SparseLinear, SparseExperts, SparseFeedForward)
"""The modules that are written in formats of their own."""
BLOCKS_ALONE = "feed-forward blocks"
"""In the place of a type, if there are neither layers nor experts."""
LARGEST = 5 * 10**9
"""The default for the most bytes of tensors in one file of a checkpoint."""
_SCALES = {"weight_scale": (-1, 1), "input_scale": (1,)}  # and their shapes


def save_sparse(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    largest: int = LARGEST,
) -> None:
    """Write a model as a checkpoint in which SparseLinear is sparse-24-bitmask.

    Layers and experts with 4-bit weights are marlin-24, which has groups of 128
    columns, or rows.
    The weights of SparseExperts are sparse-24-bitmask with one axis more, and
    SparseFeedForward has its own tensors; :func:`load_sparse` reads both.  Layers that
    are trained are stored as the forward pass reads them.

    ``path`` is a file ``….safetensors``, or a folder.  A folder gets
    ``model.safetensors``, or several files of at most ``largest`` bytes and their
    index, and the entry ``quantization_config`` of ``config.json``; its other entries
    stay.  Files that exist are refused unless ``overwrite``.

    >>> import tempfile
    >>> from fragmenta.torch import linears
    >>> from fragmenta.hopper.torch.safetensors import SafeTensors
    >>> sparse = linears(torch.nn.Sequential(torch.nn.Linear(8, 4).half()), prune=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_sparse(sparse, folder)
    ...     sorted(SafeTensors(Path(folder, "model.safetensors")))
    ['0.bias', '0.bitmask', '0.compressed', '0.shape']
    """
    check_model(model, "save_sparse")
    target = Path(path)
    tensors, scaled, plain = _tensors(original(model))
    if target.suffix == SUFFIX and not target.is_dir():
        write(target, tensors, metadata={"format": "pt"}, overwrite=overwrite)
        return
    files = _parted(tensors, largest)
    config = _config(target, scaled, plain, overwrite)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise BadFile(f"{target} cannot be written: {why.strerror or why}") from None
    index = {
        "metadata": {"total_size": sum(map(_size, tensors.values()))},
        "weight_map": {name: file for file, names in files.items() for name in names},
    }
    listed = [target / file for file in files]
    several = len(files) > 1
    check_free([*listed, target / INDEX] if several else listed, overwrite)
    _check_alone(target, {*files, INDEX} if several else set(files))
    if several:  # until the new one is complete, the folder is no checkpoint
        (target / INDEX).unlink(missing_ok=True)
    for file, part in files.items():
        write(target / file, part, metadata={"format": "pt"}, overwrite=overwrite)
    if several:
        write_whole(target / INDEX, _json(index), overwrite)
    write_whole(target / CONFIG, _json(config), overwrite=True)


def _tensors(model: torch.nn.Module) -> tuple[dict[str, Tensor], str, list[str]]:
    """All tensors by their names in the file; the type of scaled ones; dense layers."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    shared: set[torch.nn.Module] = set()
    kinds, plain, own = set(), [], set()
    for name, layer in model.named_modules(remove_duplicate=False):
        if isinstance(layer, torch.nn.Linear):
            plain.append(name)
        if not isinstance(layer, STORED):
            continue
        own |= {f"{dotted(name)}{each}" for each in layer.state_dict()}
        if layer in shared:
            continue
        shared.add(layer)
        with about_layer(name):
            parts = _stored(layer)
        found |= {f"{dotted(name)}{each}": part for each, part in parts.items()}
        if not isinstance(layer, SparseFeedForward):  # it is not described
            kinds.add(_scheme(layer))
    if not shared:
        raise BadCall(
            "the model has no SparseLinear, SparseExperts or SparseFeedForward; "
            "linears, experts and feed_forwards make them"
        )
    if len(kinds) > 1:
        raise BadCall(
            "layers with and without scales, or with different ones, do not fit into "
            f"one checkpoint; given {', '.join(sorted(map(repr, kinds)))}"
        )
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name in own:
            continue
        if not isinstance(tensor, Tensor):
            raise BadCall(
                f"{shortened(name)} of the state dict is a {type(tensor).__name__}; a "
                "checkpoint has tensors only"
            )
        if id(tensor) not in seen:  # a tied tensor is stored once
            found[name] = tensor.detach()
        seen.add(id(tensor))
    return found, kinds.pop() if kinds else BLOCKS_ALONE, plain


def _stored(layer: Stored) -> dict[str, Tensor]:
    """The tensors of a sparse layer, as the format names them."""
    if not isinstance(layer, SparseLinear):
        return stored_module(layer)
    if layer.weight.integers:
        if layer.input_scale is not None:
            raise BadCall(
                "marlin-24 has no place for the scale of all activations; save the "
                "state_dict, or make the layer without activation_scales"
            )
        parts = to_marlin(layer.weight, layer.weight_scale)
        return parts | _bias(layer, [torch.bfloat16, torch.float16])
    parts = to_bitmask(layer.weight)
    kinds = [parts["compressed"].dtype]
    for name, shape in _SCALES.items():
        if (scale := getattr(layer, name, None)) is not None:
            parts[name] = scale.reshape(shape)
            kinds = [torch.bfloat16, torch.float16]
    return parts | _bias(layer, kinds)


def _bias(layer: SparseLinear, kinds: list[torch.dtype]) -> dict[str, Tensor]:
    """The bias, float32 in a layer; 16 bits are enough if they hold it exactly."""
    if layer.bias is None:
        return {}
    bias = layer.bias.detach()
    narrow = [bias.to(kind) for kind in kinds if kind.itemsize == 2]
    kept = (each for each in narrow if torch.equal(each.float(), bias))
    return {"bias": next(kept, bias)}


def _scheme(layer: Stored) -> str:
    """The type of a layer with scales, and whether its activations have a given one."""
    if isinstance(layer, SparseExperts):
        return experts_scheme(layer)
    assert isinstance(layer, SparseLinear)
    if layer.weight.integers:
        return layer.weight_type
    given = [name for name in _SCALES if getattr(layer, name, None) is not None]
    return " ".join([layer.weight_type, *given]) if given else ""


def _size(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.itemsize)


def _parted(tensors: dict[str, Tensor], largest: int) -> dict[str, dict[str, Tensor]]:
    """The files of a checkpoint, and the tensors of each."""
    if isinstance(largest, bool) or not isinstance(largest, int) or largest < 1:
        raise BadCall(f"largest must be a whole number of bytes; given {largest!r}")
    parts: list[dict[str, Tensor]] = [{}]
    room = largest
    for name, tensor in tensors.items():
        if _size(tensor) > room and parts[-1]:
            parts.append({})
            room = largest
        parts[-1][name] = tensor
        room -= _size(tensor)
    if len(parts) == 1:
        return {MODEL: parts[0]}
    return {
        f"model-{at:05}-of-{len(parts):05}{SUFFIX}": part
        for at, part in enumerate(parts, 1)
    }


def _check_alone(folder: Path, files: set[str]) -> None:
    """Refuse a folder with another checkpoint, because both would be read as one."""
    others = {each.name for each in folder.glob(f"*{SUFFIX}")} - files
    others |= {INDEX} - files if (folder / INDEX).exists() else set()
    if others:
        raise BadFile(
            f"{folder} has another checkpoint, {min(others)}; give another folder, or "
            "move it away"
        )


def _config(
    folder: Path, scaled: str, plain: list[str], overwrite: bool
) -> dict[str, object]:
    """config.json with what the weights are; all other entries stay."""
    path = folder / CONFIG
    found = read_json(path) if path.exists() else {}
    stored = _described(scaled, plain)
    name = "quantization_config"
    if found.get(name, stored) != stored and not overwrite:
        raise BadFile(
            f"{path} has another {name} already; overwrite=True replaces that entry"
        )
    return found | {name: stored}


def _described(scaled: str, plain: list[str]) -> dict[str, object]:
    ignore = sorted(plain)
    if scaled == BLOCKS_ALONE:  # no other library has a name for them
        return {"quant_method": "fragmenta", "format": "dense", "ignore": ignore}
    if integers := Integers.named(scaled):
        return _marlin(integers, ignore)
    config: dict[str, object] = {
        "quant_method": "compressed-tensors",
        "format": "dense",
        "sparsity_config": {
            "format": BITMASK,
            "sparsity_structure": "2:4",
            "targets": ["Linear"],
            "ignore": ignore,
        },
    }
    if scaled:
        kind = "int" if scaled.startswith("s8") else "float"
        each = {"num_bits": 8, "type": kind, "symmetric": True}
        static = "input_scale" in scaled
        config["format"] = f"{kind}-quantized"
        config["ignore"] = ignore
        config["config_groups"] = {
            "group_0": {
                "targets": ["Linear"],
                "weights": each | {"strategy": "channel", "dynamic": False},
                "input_activations": each
                | {"strategy": "tensor" if static else "token", "dynamic": not static},
            }
        }
    return config


def _marlin(integers: Integers, ignore: list[str]) -> dict[str, object]:
    """What weights of 4-bit integers are."""
    group = integers.group
    weights = {
        "num_bits": 4,
        "type": "int",
        "symmetric": True,
        "strategy": "group" if group else "channel",
        "group_size": group or None,
        "dynamic": False,
    }
    token = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token"}
    activations = token | {"dynamic": True} if integers.b == "e4m3" else None
    return {
        "quant_method": "compressed-tensors",
        "format": MARLIN,
        "version": ORDERED_SCALES,
        "ignore": ignore,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": activations,
            }
        },
    }


def _json(content: dict[str, object]) -> Iterator[bytes]:
    yield (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
