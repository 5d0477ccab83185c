"""Values of Python as trees that can be sent: numbers, texts, arrays and tensors.

A tensor is sent as its elements in order; where it arrives, it gets the strides that a
layout asks for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import BadCall
from fragmenta.frontends.judge.wire import Tree

if TYPE_CHECKING:
    import torch

PLAIN, PITCHED, TURNED = "contiguous", "pitched", "transposed"
LAYOUTS = (PLAIN, PITCHED, TURNED)
"""How a tensor lies in memory: in order, with gaps between rows, or turned round."""
GAP = 3
"""Elements between two rows of a pitched tensor."""


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor of PyTorch, which is imported only if it is used."""
    found = sys.modules.get("torch")
    return found is not None and isinstance(value, found.Tensor)


def hold(value: object) -> Tree:
    """A value as a tree.

    >>> hold([1, np.ones(2, np.float32)])[1]["type"]
    'float32'
    """
    if is_tensor(value):
        return _held_tensor(cast("torch.Tensor", value))
    if isinstance(value, np.ndarray):
        made = np.ascontiguousarray(value)
        data = made.reshape(-1).view(np.uint8)
        shape = [*value.shape]
        return {"held": "numpy", "type": value.dtype.name, "shape": shape, "data": data}
    if isinstance(value, list | tuple):
        return [hold(each) for each in value]
    if isinstance(value, dict):
        return {"held": "dict", "of": {str(k): hold(v) for k, v in value.items()}}
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return value
    raise BadCall(
        "inputs and outputs are numbers, texts, arrays, tensors, or lists of them; "
        f"given {type(value).__name__}"
    )


def _held_tensor(tensor: torch.Tensor) -> Tree:
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    name = str(tensor.dtype).removeprefix("torch.")
    data = flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
    shape = [*tensor.shape]
    return {"held": "torch", "type": name, "shape": shape, "data": data.copy()}


def free(tree: Tree, layout: str = PLAIN) -> object:
    """The value of a tree; its arrays lie in memory as the layout says.

    >>> free(hold(np.eye(2)), "transposed").strides
    (8, 16)
    """
    if isinstance(tree, list):
        return [free(each, layout) for each in tree]
    if not isinstance(tree, dict):
        return tree
    if tree["held"] == "dict":
        return {k: free(v, layout) for k, v in tree["of"].items()}
    if tree["held"] == "torch":
        return _free_tensor(tree, layout)
    found = elements(tree)
    if layout == TURNED and found.ndim > 1:
        return np.ascontiguousarray(found.T).T
    if layout == PITCHED and found.ndim:
        *outer, last = found.shape
        wide = np.zeros((*outer, last + GAP), found.dtype)
        wide[..., :last] = found
        return wide[..., :last]
    return found


def image(tree: Tree, layout: str) -> Array:
    """The memory of an array in a layout, from its first element on.

    >>> image(hold(np.float32([[1, 2], [3, 4]])), "transposed").view(np.float32)
    array([1., 3., 2., 4.], dtype=float32)
    """
    found = elements(tree)
    if layout == TURNED:
        found = found.T
    elif layout == PITCHED and found.ndim:
        gaps = [(0, 0)] * (found.ndim - 1) + [(0, GAP)]
        found = np.pad(found, gaps)
    return np.ascontiguousarray(found).reshape(-1).view(np.uint8)


def _free_tensor(tree: dict[str, Tree], layout: str) -> object:
    import torch

    data = torch.from_numpy(cast("Array", tree["data"]).copy())
    dtype = getattr(torch, str(tree["type"]))
    shape = cast("list[int]", tree["shape"])
    made = data.view(dtype) if data.numel() else torch.empty(0, dtype=dtype)
    made = made.reshape(shape)
    if layout == TURNED and made.dim() > 1:
        axes = [*range(made.dim())][::-1]
        return made.permute(axes).contiguous().permute(axes)
    if layout == PITCHED and made.dim():
        wide = torch.zeros([*shape[:-1], shape[-1] + GAP], dtype=dtype)
        wide[..., : shape[-1]] = made
        return wide[..., : shape[-1]]
    return made


def dtype_of(name: str) -> np.dtype[np.generic]:
    """NumPy's type of a name, which may be one of ``ml_dtypes``."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        kind = getattr(ml_dtypes, name, None)
        if kind is None:
            raise BadCall(f"arrays of {name} cannot be judged") from None
        made: np.dtype[np.generic] = np.dtype(kind)
        return made


def elements(tree: Tree) -> Array:
    """The elements of a held array or tensor, as an array of NumPy."""
    assert isinstance(tree, dict)
    data = cast("Array", tree["data"]).copy()
    dtype = dtype_of(str(tree["type"]))
    shape = cast("list[int]", tree["shape"])
    if data.size != dtype.itemsize * int(np.prod(shape, dtype=object)):
        raise ValueError("an array has another size than its shape")
    return data.view(dtype).reshape(shape)


def form(tree: Tree) -> str:
    """What holds the arrays of a tree, in words; a list counts as a tuple.

    >>> form(hold([np.ones(2), {"a": np.ones(3)}]))
    '(array, {a: array})'
    """
    if isinstance(tree, list):
        return f"({', '.join(map(form, tree))})"
    if not isinstance(tree, dict):
        return "number"
    if tree["held"] == "dict":
        inside = cast("dict[str, Tree]", tree["of"]).items()
        return "{" + ", ".join(f"{k}: {form(v)}" for k, v in inside) + "}"
    return "array"


def leaves(tree: Tree) -> list[dict[str, Tree]]:
    """The held arrays in a tree, in order."""
    if isinstance(tree, list):
        return [found for each in tree for found in leaves(each)]
    if not isinstance(tree, dict):
        return []
    if tree["held"] == "dict":
        return leaves([*cast("dict[str, Tree]", tree["of"]).values()])
    return [tree]
