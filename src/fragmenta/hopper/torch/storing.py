"""Stores modules that are more than one layer: experts, and feed-forward blocks.

Experts are stored as sparse-24-bitmask, all of them in one tensor::

    gate_up_proj.compressed    experts x outputs x inputs / 2
    gate_up_proj.bitmask       experts x outputs x inputs / 8
    gate_up_proj.shape         experts, outputs, inputs
    gate_up_proj.weight_scale  experts x outputs, if they are quantised
    down_proj. ...             the same

or, if they are 4-bit integers, as marlin-24, with the tensors of all experts in turn::

    gate_up_proj.weight_packed, gate_up_proj.scale_packed, gate_up_proj.meta
    down_proj. ...             the same

Feed-forward blocks have the tensors of their state dict, and ``activation``, the number
of their activation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fragmenta.errors import BadFile, ShapeError, one_of
from fragmenta.hopper.kernels.config import ACTIVATIONS
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.torch.checkpoint import dotted
from fragmenta.hopper.torch.feedforward import SparseFeedForward
from fragmenta.hopper.torch.formats import (
    QUANTIZED,
    Weight,
    read_bitmask,
    read_marlin,
    to_bitmask,
    to_marlin,
)
from fragmenta.hopper.torch.matrix import DTYPES
from fragmenta.hopper.torch.mixture import SparseExperts, holds_experts
from fragmenta.hopper.torch.stack import SparseStack, stacked

Parts = dict[str, Tensor]
WEIGHTS = ("gate_up_proj", "down_proj")
_BITMASK = ("compressed", "bitmask", "shape")
_MARLIN = ("weight_packed", "scale_packed", "meta")
_BLOCK = ("activation", "up_weight", "up_scale", "down_weight", "down_scale")
_OPTIONAL = ("up_bias", "down_bias", "hidden_scale")


class ModuleTensors(NamedTuple):
    """How a module is stored: the names of its tensors."""

    needed: tuple[str, ...]
    allowed: tuple[str, ...]

    def lacking(self, prefix: str, names: set[str]) -> str:
        """A tensor that is missing behind a prefix; empty if there is none."""
        missing = (each for each in self.needed if f"{prefix}{each}" not in names)
        return next(missing, "")


EXPERTS = ModuleTensors(
    tuple(f"{weight}.{part}" for weight in WEIGHTS for part in _BITMASK),
    tuple(f"{weight}.weight_scale" for weight in WEIGHTS),
)
EXPERTS_OF_INTEGERS = ModuleTensors(
    tuple(f"{weight}.{part}" for weight in WEIGHTS for part in _MARLIN), ()
)
BLOCK = ModuleTensors(_BLOCK, _OPTIONAL)


# ── writing ─────────────────────────────────────────────────────────────────


def stored_module(module: SparseExperts | SparseFeedForward) -> Parts:
    """The tensors of experts or of a block by name.

    >>> sorted(stored_module(SparseFeedForward(16, 64)))
    ['activation', 'down_scale', 'down_weight', 'up_scale', 'up_weight']
    """
    if isinstance(module, SparseExperts):
        return {
            f"{name}.{part}": tensor
            for name, stack, scale in zip(
                WEIGHTS,
                (module.gate_up, module.down),
                (module.gate_up_scale, module.down_scale),
                strict=True,
            )
            for part, tensor in _stored_stack(stack, scale).items()
        }
    number = torch.tensor([ACTIVATIONS[module.activation]], dtype=torch.uint8)
    return {**module.state_dict(), "activation": number}


def _stored_stack(stack: SparseStack, scale: Tensor | None) -> Parts:
    if Integers.named(stack.element_type):
        rows = [None] * len(stack) if scale is None else list(scale)
        return _together(to_marlin(stack[x], rows[x]) for x in range(len(stack)))
    parts = _together(to_bitmask(stack[x]) for x in range(len(stack)))
    parts["shape"] = torch.tensor(stack.shape).reshape(-1, 1)
    return parts if scale is None else {**parts, "weight_scale": scale}


def _together(experts: Iterable[Parts]) -> Parts:
    """The tensors of all experts, each as one."""
    each = list(experts)
    return {name: torch.stack([x[name] for x in each]) for name in each[0]}


def experts_scheme(module: SparseExperts) -> str:
    """The type of experts with scales, as for layers; empty if they have none."""
    if Integers.named(module.weight_type):
        return module.weight_type
    return "" if module.quantize is None else f"{module.weight_type} weight_scale"


# ── reading ─────────────────────────────────────────────────────────────────


def stored_modules(
    model: torch.nn.Module, names: set[str]
) -> Iterator[tuple[str, torch.nn.Module, ModuleTensors]]:
    """The modules of a model that a checkpoint with these tensors has as one."""
    for at, module in model.named_modules():
        prefix = dotted(at)
        if holds_experts(module) or isinstance(module, SparseExperts):
            for form in (EXPERTS, EXPERTS_OF_INTEGERS):
                if f"{prefix}{form.needed[0]}" in names:
                    yield at, module, _complete(form, prefix, names)
        elif {f"{prefix}up_weight", f"{prefix}up_scale"} <= names:
            yield at, module, _complete(BLOCK, prefix, names)


def _complete(form: ModuleTensors, prefix: str, names: set[str]) -> ModuleTensors:
    if lacking := form.lacking(prefix, names):
        raise BadFile(
            f"it is stored with {one_of(form.needed, 'and')}; {lacking} is missing"
        )
    return form


def read_experts(
    module: Any, parts: Mapping[str, Tensor], b: str = "bf16"
) -> SparseExperts:
    """Experts in the place of others, on their device.

    ``b`` is what 4-bit integers are multiplied with: 16 bits, or e4m3.
    """
    sparse = isinstance(module, SparseExperts)
    integers = f"{WEIGHTS[0]}.{_MARLIN[0]}" in parts
    old: Tensor = module.gate_up_packed if sparse else module.gate_up_proj
    read = (
        _read_integers(parts, name, _wide(module), b)
        if integers
        else _read_stack(parts, name)
        for name in WEIGHTS
    )
    stacks, scales = zip(*read, strict=True)
    if (scales[0] is None) != (scales[1] is None):
        raise BadFile("only one of gate_up_proj and down_proj has a weight_scale")
    if stacks[0].element_type != stacks[1].element_type:
        raise BadFile("gate_up_proj and down_proj must have one type")
    if integers:
        quantize: str | None = "int4-fp8" if b == "e4m3" else "int4"
    else:
        quantize = _quantized(module, stacks[0], scales[0])
    target = torch.device("cpu") if old.is_meta else old.device
    made = SparseExperts(
        *(each.to(target) for each in stacks),
        act=module.act if sparse else module.act_fn,
        gate_up_scale=None if scales[0] is None else scales[0].to(target),
        down_scale=None if scales[1] is None else scales[1].to(target),
        quantize=quantize,
        promote=bool(getattr(module, "promote", False)),
    )
    wanted = _sizes(module)
    if (made.num_experts, made.hidden, made.intermediate) != wanted:
        given = (made.num_experts, made.hidden, made.intermediate)
        raise ShapeError(
            f"the model has experts x hidden x intermediate {wanted}, and the "
            f"checkpoint {given}"
        )
    made.train(module.training)
    return made


def _quantized(module: Any, stack: SparseStack, scale: Tensor | None) -> str | None:
    """How experts that are stored as bitmasks are quantised; None if they are not."""
    stored = DTYPES[stack.element_type]
    if scale is not None:
        return QUANTIZED[stored]
    four = isinstance(module, SparseExperts) and Integers.named(module.weight_type)
    if not four and stored != (kind := _kind(module)):
        raise BadFile(
            f"the experts of the model are {kind}, and those of the checkpoint "
            f"{stored}; use model.to({stored})"
        )
    return None


def _kind(module: Any) -> torch.dtype:
    """The type of the weights of experts that are not 4-bit integers."""
    if isinstance(module, SparseExperts):
        return DTYPES[module.weight_type]
    kind: torch.dtype = module.gate_up_proj.dtype
    return kind


def _wide(module: Any) -> torch.dtype:
    """The type of the activations of experts; bfloat16 if nothing says it."""
    if isinstance(module, SparseExperts) and module.quantize is not None:
        return torch.bfloat16
    return _kind(module)


def _read_integers(
    parts: Mapping[str, Tensor], name: str, wide: torch.dtype, b: str
) -> tuple[SparseStack, Tensor | None]:
    """The 4-bit weights of all experts, and the scales of rows if they have any."""
    given = {part: parts[f"{name}.{part}"] for part in _MARLIN}
    counts = {len(tensor) if tensor.ndim == 3 else 0 for tensor in given.values()}
    if len(counts) > 1 or 0 in counts:
        shapes = {part: tuple(tensor.shape) for part, tensor in given.items()}
        raise ShapeError(
            f"{name} must be stored with the experts as its first axis; given {shapes}"
        )
    found = [
        read_marlin({part: x[number] for part, x in given.items()}, wide, b)[0]
        for number in range(counts.pop())
    ]
    if any(each.matrix.integers is None for each in found):
        raise BadFile(f"{name} must have integers of 4 bits; given 8")
    return _stack_of(found)


def _sizes(module: Any) -> tuple[int, int, int]:
    if isinstance(module, SparseExperts):
        return module.num_experts, module.hidden, module.intermediate
    experts, hidden, intermediate = module.down_proj.shape
    return experts, hidden, intermediate


def _read_stack(
    parts: Mapping[str, Tensor], name: str
) -> tuple[SparseStack, Tensor | None]:
    """The weights of all experts, and their scales."""
    values, mask, shape = (parts[f"{name}.{part}"] for part in _BITMASK)
    sizes = shape.flatten().tolist() if shape.dtype == torch.int64 else []
    if len(sizes) != 3 or not all(
        x.ndim == 3 and len(x) == sizes[0] for x in (values, mask)
    ):
        raise ShapeError(
            f"{name} must be stored as experts x outputs x inputs; given shape "
            f"{sizes}, values {tuple(values.shape)} and bits {tuple(mask.shape)}"
        )
    scale = parts.get(f"{name}.weight_scale")
    if scale is not None and tuple(scale.shape) != tuple(sizes[:2]):
        raise ShapeError(
            f"weight_scale of {name} must be {sizes[0]}x{sizes[1]}; given "
            f"{tuple(scale.shape)}"
        )
    found: list[Weight] = []
    for number in range(sizes[0]):
        own = {
            "compressed": values[number],
            "bitmask": mask[number],
            "shape": torch.tensor(sizes[1:]),
        }
        if scale is not None:
            own["weight_scale"] = scale[number]
        found.append(read_bitmask(own, None))
    return _stack_of(found)


def _stack_of(found: list[Weight]) -> tuple[SparseStack, Tensor | None]:
    factors = [each.scale for each in found if each.scale is not None]
    stack = stacked([each.matrix for each in found])
    return stack, torch.stack(factors) if factors else None


def read_block(
    module: torch.nn.Module, parts: Mapping[str, Tensor]
) -> SparseFeedForward:
    """A block in the place of two layers or of another block, on its device."""
    up, down, number = parts["up_weight"], parts["down_weight"], parts["activation"]
    kind, names = torch.float8_e4m3fn, {y: x for x, y in ACTIVATIONS.items()}
    fits = up.ndim == down.ndim == 2 and up.dtype == down.dtype == kind
    if not fits or up.shape[0] != down.shape[1]:
        raise ShapeError(
            f"up_weight and down_weight must be matrices of {kind}, wide x in and out "
            f"x wide; given {tuple(up.shape)} and {tuple(down.shape)} of {up.dtype} "
            f"and {down.dtype}"
        )
    activation = names.get(int(number)) if number.numel() == 1 else None
    if activation is None:
        raise BadFile(f"activation must be one of {one_of(map(str, names))}")
    _check_block(module, up, down)
    tensors = [*module.parameters(), *module.buffers()]
    device = tensors[0].device if tensors else torch.device("cpu")
    made = SparseFeedForward(
        up.shape[1],
        up.shape[0],
        down.shape[0],
        activation=activation,
        up_bias="up_bias" in parts,
        down_bias="down_bias" in parts,
        device=torch.device("cpu") if device.type == "meta" else device,
    )
    state = {name: x for name, x in parts.items() if name != "activation"}
    for name, x in made.state_dict().items():
        if x.shape != state[name].shape or x.dtype != state[name].dtype:
            raise ShapeError(
                f"{name} must be {x.dtype} of shape {tuple(x.shape)}; given "
                f"{state[name].dtype} of shape {tuple(state[name].shape)}"
            )
    made.load_state_dict(state)
    made.train(module.training)
    return made


def _check_block(module: torch.nn.Module, up: Tensor, down: Tensor) -> None:
    """Refuse a module whose layers do not have these shapes."""
    if isinstance(module, SparseFeedForward):
        known = [tuple(module.up_weight.shape), tuple(module.down_weight.shape)]
    else:
        layers = [x for x in module.modules() if isinstance(x, torch.nn.Linear)]
        known = [tuple(layer.weight.shape) for layer in layers]
    wanted = [tuple(up.shape), tuple(down.shape)]
    if sorted(known) != sorted(wanted):
        raise ShapeError(
            f"the block of the checkpoint has weights of {wanted[0]} and {wanted[1]}; "
            f"the model has {known}"
        )
