"""Helion: kernels of ours in its language, which it writes in Triton's."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from corpus.registry import case
from corpus.trial import TF32, Trial

# Without a search, and without looking for the GPU's own settings.
once = helion.kernel(autotune_effort="none", static_shapes=True)


@once
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


@once
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.nn.functional.softmax(x[tile, :], dim=1)
    return out


@once
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    _, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            total = torch.addmm(total, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = total
    return out


@once
def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        scale = torch.rsqrt((row * row).mean(dim=-1, keepdim=True) + 1e-6)
        out[tile, :] = row * scale * w[:]
    return out


@once
def sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].sum(-1)
    return out


@case(small=True)
def adding(trial: Trial) -> None:
    trial.compare(
        add, torch.add, trial.floats(60, 70), trial.floats(60, 70), gradients=False
    )


@case()
def softmax_of_rows(trial: Trial) -> None:
    trial.compare(
        softmax, lambda x: x.softmax(-1), trial.floats(9, 100), gradients=False
    )


@case()
def matrix_product(trial: Trial) -> None:
    trial.compare(
        product,
        torch.matmul,
        trial.floats(64, 48),
        trial.floats(48, 80),
        gradients=False,
        tolerance=TF32,
    )


@case()
def norm_of_rows(trial: Trial) -> None:
    trial.compare(
        norm,
        lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
        trial.floats(9, 100),
        trial.floats(100),
        gradients=False,
    )


@case()
def sums_of_rows(trial: Trial) -> None:
    trial.compare(sums, lambda x: x.sum(-1), trial.floats(9, 100), gradients=False)
