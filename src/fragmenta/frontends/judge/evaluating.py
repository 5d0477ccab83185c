"""A task with its sizes: its inputs, and what its reference returns for them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from fragmenta.frontends.judge import loading
from fragmenta.frontends.judge.held import elements, free, hold, leaves
from fragmenta.frontends.judge.sizes import Sizes
from fragmenta.frontends.judge.values import is_float, moved
from fragmenta.frontends.judge.wire import Tree

if TYPE_CHECKING:
    import torch

Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
LARGER = 64
"""How many times larger the inputs of one call are, up to the given sizes."""
MANIFOLD = 128
"""The same of the products of matrices."""


class SizedTask(NamedTuple):
    """A task with its numbers."""

    sizes: Sizes
    label: str
    task: loading.ReferenceTask
    key: str


class Budget:
    """How large inputs may be, and how much work a call."""

    def __init__(self, elements: int, products: int) -> None:
        self._elements, self._products = elements, products

    @property
    def larger(self) -> Budget:
        """For one call that is not watched."""
        return Budget(LARGER * self._elements, MANIFOLD * self._products)

    def holds(self, task: loading.ReferenceTask) -> bool:
        """Whether the sizes of a task are small enough; no memory is needed for it."""
        if "torch" not in sys.modules:
            return self._fits(inputs_of(task, 0))
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        try:
            with torch.device("meta"):
                inputs = inputs_of(task, 0)
                if not self._fits(inputs):
                    return False
                with FlopCounterMode(display=False) as counter:
                    outputs = function_of(task)(*inputs)
        except (RuntimeError, NotImplementedError, TypeError):  # not without memory
            return self._fits(inputs_of(task, 0))
        few = counter.get_total_flops() // 2 <= self._products
        return few and self._fits(outputs)

    def _fits(self, inputs: object) -> bool:
        return element_count(inputs) <= self._elements


def element_count(value: object) -> int:
    """The elements of all arrays."""
    if isinstance(value, list | tuple):
        return sum(map(element_count, value))
    if isinstance(value, dict):
        return element_count([*value.values()])
    return math.prod(getattr(value, "shape", (1,)))


def seed_everything(number: int) -> None:
    """Random numbers of NumPy and PyTorch begin anew."""
    np.random.seed(number)  # noqa: NPY002 - tasks use it
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(number)


def inputs_of(task: loading.ReferenceTask, seed: int) -> list[object]:
    """The inputs that a task makes for a seed."""
    seed_everything(1000 + seed)
    return as_list(task.inputs())


def function_of(task: loading.ReferenceTask) -> Callable[..., object]:
    """The reference: a model with its weights, or the function."""
    if task.convention == loading.PLAIN:
        return task.make
    seed_everything(0)
    return cast(
        "Callable[..., object]", task.make(*cast("Sequence[object]", task.init()))
    )


def plain_results(of: SizedTask, inputs: Sequence[object]) -> object:
    """What the reference returns in its own precision."""
    function = function_of(of.task)
    if "torch" not in sys.modules:
        return function(*inputs)
    import torch

    with torch.no_grad():
        return function(*inputs)


def inputs_written(of: SizedTask) -> list[int]:
    """The inputs that the reference changes in place: they are results, too.

    Ordinary values show it; zeros may stay what they are.
    """
    inputs = hold(inputs_of(of.task, 0))
    given = as_list(free(inputs))
    plain_results(of, given)
    after = leaves(hold(given))
    pairs = zip(leaves(inputs), after, strict=True)
    return [
        number
        for number, (old, new) in enumerate(pairs)
        if elements(old).tobytes() != elements(new).tobytes()
    ]


def with_written(
    written: Sequence[int], results: object, given: Sequence[object]
) -> object:
    """Results with those inputs that were changed; the child sends them so, too."""
    if not written:
        return results
    found = flattened([*given])
    return [results, *(found[each] for each in written)]


def seeded_inputs(of: SizedTask, seed: int) -> Tree:
    """The inputs of a seed; they are made others if the task does not ask for any."""
    inputs = hold(inputs_of(of.task, seed))
    if seed:
        first = leaves(hold(inputs_of(of.task, 0)))
        for leaf, other in zip(leaves(inputs), first, strict=False):
            same = elements(leaf).tobytes() == elements(other).tobytes()
            if is_float(leaf) and same:
                leaf["data"] = moved(leaf, seed)
    return inputs


def as_list(value: object) -> list[object]:
    """Several values as they are, one as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def weights_of(task: loading.ReferenceTask) -> dict[str, object]:
    """The weights of a model."""
    if task.convention == loading.PLAIN:
        return {}
    model = cast("torch.nn.Module", function_of(task))
    return {name: each.clone() for name, each in model.state_dict().items()}


def flattened(value: object) -> list[object]:
    """All arrays and tensors of a value, one behind the other."""
    if isinstance(value, list | tuple):
        return [found for each in value for found in flattened(each)]
    if isinstance(value, dict):
        return flattened([*value.values()])
    return [value] if hasattr(value, "shape") else []
