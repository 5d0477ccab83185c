"""A case in action: its inputs, its calls, and how its results are judged.

Each function is called twice: the first call compiles, the second one is timed.  Its
results and gradients are compared with those of a reference in double precision.  A
number is right if it differs from the reference by at most ``tolerance`` times its own
size plus the root mean square of all.  Where a kernel rounds inside, to 8 bits or to
tf32, and goes on with the result, ``bounds.py`` computes how far that may move each
number; this is allowed, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from corpus.bounds import Bounds

TOLERANCES = {
    torch.float64: 1e-10,
    torch.float32: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
    torch.float8_e4m3fn: 0.13,
    torch.float8_e5m2: 0.26,
}
"""How far a result of each type may be from the reference."""
TF32 = 4e-3
"""The same for products of float32, which Triton takes in tf32."""


class Wrong(Exception):
    """A result is not the reference's."""


class Trial:
    """What a case is given."""

    def __init__(self, between: Callable[[], None] = lambda: None) -> None:
        self._between = between
        self._made = torch.Generator().manual_seed(31)
        self.error = 0.0
        """The greatest error, as a share of what was tolerated."""
        self.compared = 0
        """How many elements were compared."""

    # ── inputs ──────────────────────────────────────────────────────────────

    def floats(
        self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0
    ) -> torch.Tensor:
        """Normally distributed numbers."""
        return (torch.randn(shape, generator=self._made) * scale).to(dtype)

    def uniform(
        self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: Any = None
    ) -> torch.Tensor:
        """Evenly distributed numbers."""
        made = torch.rand(shape, generator=self._made) * (high - low) + low
        return made.to(dtype or torch.float32)

    def whole(
        self, *shape: int, low: int = 0, high: int = 100, dtype: Any = torch.int64
    ) -> torch.Tensor:
        """Whole numbers from ``low`` to ``high - 1``."""
        return torch.randint(low, high, shape, generator=self._made).to(dtype)

    def permutation(self, size: int) -> torch.Tensor:
        """The numbers below ``size`` in some order."""
        return torch.randperm(size, generator=self._made)

    # ── judging ─────────────────────────────────────────────────────────────

    def compare(
        self,
        function: Callable[..., Any],
        reference: Callable[..., Any],
        *inputs: Any,
        tolerance: float | None = None,
        gradients: bool = True,
        bounds: Bounds | None = None,
    ) -> None:
        """Call a function twice; its results and gradients must be the reference's.

        ``bounds`` says how far roundings inside of the function may move them.
        """
        for again in (False, True):
            if again:
                self._between()
            given = [_leaf(each, gradients) for each in inputs]
            got = _tensors(function(*given))
            weights = [self._weights(each) for each in got]
            # Some functions write their gradients over those that they are given.
            _backward(got, [each.clone() for each in weights])
        exact = [_leaf(_double(each), gradients) for each in inputs]
        want = _tensors(reference(*exact))
        if len(want) != len(got):
            raise Wrong(f"{len(got)} results, and the reference has {len(want)}")
        wide = [_double(each) for each in weights]
        _backward(want, wide)
        moved = bounds(exact, wide) if bounds else [None] * (len(want) + len(exact))
        for i, (one, other) in enumerate(zip(got, want, strict=True)):
            self.judge(one, other, tolerance, f"result {i}", moved[i])
        for i, (one, other) in enumerate(zip(given, exact, strict=True)):
            if isinstance(one, torch.Tensor) and one.requires_grad:
                self._judge_gradient(one, other, tolerance, i, moved[len(want) + i])

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function twice, for cases that judge by themselves."""
        function()
        self._between()
        return function()

    def judge(
        self,
        got: Any,
        want: Any,
        tolerance: float | None = None,
        what: str = "result",
        bound: torch.Tensor | None = None,
    ) -> None:
        """A result must be the reference's; a ``bound`` is allowed, too."""
        got, want = torch.as_tensor(got).detach(), torch.as_tensor(want).detach()
        if got.shape != want.shape:
            raise Wrong(f"{what} has the shape {[*got.shape]}, not {[*want.shape]}")
        self.compared += got.numel()
        if not got.is_floating_point() and not got.is_complex():
            wrong = int((got != want.to(got.dtype)).sum())
            if wrong:
                raise Wrong(f"{what}: {wrong} of {got.numel()} numbers differ")
            return
        allowed = TOLERANCES[got.dtype] if tolerance is None else tolerance
        self._near(got.double(), want.double(), allowed, what, bound)

    def _near(self, got: Any, want: Any, allowed: float, what: str, bound: Any) -> None:
        finite = want.isfinite()
        same = torch.where(want.isnan(), got.isnan(), got == want)
        if not bool((same | finite).all()):
            raise Wrong(f"{what}: an infinity or NaN is not where it ought to be")
        if not finite.any():
            return
        got, want = got[finite], want[finite]
        limit = allowed * (want.abs() + want.square().mean().sqrt())
        if bound is not None:
            limit = limit + bound.detach()[finite]
        error = torch.where(got == want, 0.0, (got - want).abs() / limit)
        worst = float(error.nan_to_num(nan=float("inf")).max())
        self.error = max(self.error, worst)
        if not worst <= 1:
            at = int(error.nan_to_num(nan=float("inf")).argmax())
            raise Wrong(
                f"{what}: {int((~(error <= 1)).sum())} of {got.numel()} numbers are "
                f"wrong; the worst is {got[at]:.6g}, the reference {want[at]:.6g}"
            )

    def _judge_gradient(
        self, one: Any, other: Any, tolerance: Any, i: int, bound: Any
    ) -> None:
        if other.grad is None:
            return
        if one.grad is None:
            raise Wrong(f"argument {i} has no gradient")
        self.judge(one.grad, other.grad, tolerance, f"gradient {i}", bound)

    def _weights(self, result: torch.Tensor) -> torch.Tensor:
        made = torch.Generator().manual_seed(result.numel())
        return torch.randn(result.shape, generator=made).to(result.dtype)


def _leaf(value: Any, gradients: bool) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    copied = value.detach().clone(memory_format=torch.preserve_format)
    small = value.is_floating_point() and value.element_size() > 1
    return copied.requires_grad_(gradients and small)


def _double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def _tensors(found: Any) -> list[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        return [found]
    if isinstance(found, Sequence):
        return [each for part in found for each in _tensors(part)]
    return []


def _backward(results: list[torch.Tensor], weights: list[torch.Tensor]) -> None:
    pairs = [
        pair for pair in zip(results, weights, strict=True) if pair[0].requires_grad
    ]
    if pairs:
        torch.autograd.backward(*map(list, zip(*pairs, strict=True)))
