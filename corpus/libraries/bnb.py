"""bitsandbytes: weights and optimisers of 4 and 8 bits."""

from __future__ import annotations

from typing import Any

import torch
from bitsandbytes.backends.triton import ops
from bitsandbytes.functional import create_dynamic_map, get_4bit_type

from corpus.registry import case
from corpus.trial import Trial


def nearest(values: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
    """How far each value is from the nearest entry of a code."""
    return (values[..., None] - code).abs().min(-1).values


def _four_bits(trial: Trial, kind: str) -> None:
    given = trial.floats(8, 128)
    packed, scales = trial.call(lambda: ops.quantize_4bit(given, 64, kind, torch.uint8))
    parts = given.double().view(-1, 64)
    trial.judge(scales, parts.abs().amax(1))
    made = trial.call(
        lambda: ops.dequantize_4bit(packed, scales, 64, kind, [8, 128], torch.float32)
    )
    code = get_4bit_type(kind, device="cpu").double()
    unit = parts / scales.double()[:, None]
    apart = (made.double().view(-1, 64) / scales.double()[:, None] - unit).abs()
    trial.judge(apart, nearest(unit, code), 1e-3)


@case()
def nf4(trial: Trial) -> None:
    _four_bits(trial, "nf4")


@case()
def fp4(trial: Trial) -> None:
    _four_bits(trial, "fp4")


@case()
def blockwise(trial: Trial) -> None:
    given, code = trial.floats(8, 512), create_dynamic_map()
    codes, scales = trial.call(lambda: ops.quantize_blockwise(given, code, 256))
    made = trial.call(
        lambda: ops.dequantize_blockwise(codes, scales, code, 256, torch.float32)
    )
    parts = given.double().view(-1, 256)
    trial.judge(scales, parts.abs().amax(1))
    trial.judge(
        made.view(-1, 256), code.double()[codes.long()].view(-1, 256) * scales[:, None]
    )
    unit = parts / scales.double()[:, None]
    apart = (made.double().view(-1, 256) / scales.double()[:, None] - unit).abs()
    trial.judge(apart, nearest(unit, code.double()), 2e-2)


@case(small=True)
def gemv(trial: Trial) -> None:
    weight, x = trial.floats(40, 128), trial.floats(1, 128)
    code = get_4bit_type("nf4", device="cuda")
    packed, scales = ops.quantize_4bit(weight, 64, "nf4", torch.uint8)
    made = trial.call(lambda: ops.gemv_4bit(x, packed, (40, 128), scales, code, 64))
    high, low = packed.flatten() >> 4, packed.flatten() & 15
    codes = torch.stack([high, low], 1).flatten().long()
    full = code.double()[codes].view(-1, 64) * scales.double()[:, None]
    trial.judge(made, x.double() @ full.view(40, 128).T, 1e-4)


def _step(trial: Trial, name: str, two: bool) -> None:
    g, p, m = (trial.floats(3000) for _ in range(3))
    v = trial.uniform(3000)
    made: list[Any] = []

    def update() -> None:
        made[:] = [each.clone() for each in (p, m, v)]
        ops.optimizer_update_32bit(
            name,
            g,
            made[0],
            made[1],
            made[2] if two else None,
            None,
            0.0,
            0.0,
            0.9,
            0.99,
            0.0,
            0.0,
            1e-6,
            0.01,
            3,
            0.1,
            1.0,
        )

    trial.call(update)
    first = 0.9 * m.double() + (0.1 if name == "adam" else 1.0) * g.double()
    if name == "adam":
        second = 0.99 * v.double() + 0.01 * g.double() ** 2
        one, other = 1 - 0.9**3, (1 - 0.99**3) ** 0.5
        move = 0.1 * other / one * first / (second.sqrt() + 1e-6 * other)
        want = p.double() * (1 - 0.1 * 0.01) - move
        trial.judge(made[2], second)
    else:
        first = 0.9 * m.double() + g.double() + 0.01 * p.double()
        want = p.double() - 0.1 * first
    trial.judge(made[1], first)
    trial.judge(made[0], want, 1e-4)


@case()
def adam(trial: Trial) -> None:
    _step(trial, "adam", True)


@case()
def momentum(trial: Trial) -> None:
    _step(trial, "momentum", False)
