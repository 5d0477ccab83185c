"""How far roundings inside of a kernel may move each of its results.

A reference says where the kernel rounds: :class:`Rounding` adds an error to a value, of
which only the greatest size is known.  All errors are 0, so the reference is exact; but
its results and gradients are differentiable with respect to them.  The sum of the
absolute derivatives, each times the size of its error, bounds what all of them together
do, to first order.  The errors of the kernels are small enough that the products of two
of them are covered by :data:`SECOND_ORDER`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

TF32 = 2.0**-10
"""A float that a Tensor Core takes as tf32: ten bits after the leading one are left."""
BF16 = 2.0**-9
"""A float that is rounded to the nearest bf16."""
SECOND_ORDER = 1.05
ROWS = 256
"""How many results are differentiated at once."""


class Rounding:
    """The places where a kernel rounds, as the reference names them."""

    def __init__(self) -> None:
        self._errors: list[Tensor] = []
        self._closed = False

    def value(self, exact: Tensor, size: Tensor | float) -> Tensor:
        """A value with an error of at most ``size``."""
        error = torch.zeros_like(exact).requires_grad_()
        self._errors.append(error)
        return exact + error * size

    def product(self, a: Tensor, b: Tensor, unit: float = TF32) -> Tensor:
        """``a @ b``, whose factors and whose gradient are rounded by a share."""
        near = (self.value(each, unit * each.detach().abs()) for each in (a, b))
        return self.gradient(torch.matmul(*near), unit)

    def gradient(self, exact: Tensor, unit: float) -> Tensor:
        """A value whose gradient is rounded by a share."""

        def hook(found: Tensor) -> Tensor | None:
            if self._closed:  # this is a derivative with respect to the errors
                return None
            return self.value(found, unit * found.detach().abs())

        if exact.requires_grad:
            exact.register_hook(hook)  # type: ignore[no-untyped-call]
        return exact

    def bounds(self, results: Sequence[Tensor]) -> list[Tensor]:
        """How far each element of the results may be from its exact value."""
        self._closed = True
        return [self._bound(each) * SECOND_ORDER for each in results]

    def _bound(self, result: Tensor) -> Tensor:
        flat, parts = result.reshape(-1), []
        for first in range(0, flat.numel(), ROWS):
            some = flat[first : first + ROWS]
            rows = torch.eye(len(some), dtype=some.dtype)
            found = torch.autograd.grad(
                some, self._errors, rows, True, is_grads_batched=True, allow_unused=True
            )
            sums = [each.abs().flatten(1).sum(1) for each in found if each is not None]
            parts.append(sum(sums, torch.zeros(len(some), dtype=some.dtype)))
        return torch.cat(parts).reshape(result.shape)


Bounds = Callable[[Sequence[Any], Sequence[Tensor]], list[Tensor | None]]
"""Given exact arguments and the weights of the results: a bound of each result, then of
the gradient of each argument; None where there is none."""


def first_order(reference: Callable[..., Any]) -> Bounds:
    """The bounds of a reference that takes a :class:`Rounding` first."""

    def bounds(inputs: Sequence[Any], weights: Sequence[Tensor]) -> list[Tensor | None]:
        rounding = Rounding()
        given = [each.detach().requires_grad_() for each in inputs]
        made = reference(rounding, *given)
        results = [made] if isinstance(made, Tensor) else [*made]
        slopes = torch.autograd.grad(results, given, [*weights], create_graph=True)
        return [*rounding.bounds([*results, *slopes])]

    return bounds


def of_softmax(shares: Tensor, errors: Tensor) -> Tensor:
    """How far the shares of a softmax may be, given bounds of its arguments."""
    most = errors.exp() / (shares * (-errors).exp()).sum(-1, keepdim=True)
    least = (-errors).exp() / (shares * errors.exp()).sum(-1, keepdim=True)
    return shares * torch.maximum(most - 1, 1 - least)
