"""FlagGems: PyTorch's operators in Triton."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F

os.environ["GEMS_VENDOR"] = "nvidia"

import flag_gems
from flag_gems import fused, ops
from flag_gems.utils import codegen_config_utils

from corpus.references import layer_norm, rms_norm, rotated
from corpus.registry import case
from corpus.trial import TF32, Trial

# Triton 3.9 has no block pointers any more; FlagGems can do without them.
codegen_config_utils.get_codegen_config().prefer_block_pointer = False
# It launches for Triton up to 3.6; later versions want the same arguments.
vars(import_module("flag_gems.utils.libentry"))["minor_version"] = 6

Inputs = Callable[[Trial], list[Any]]


def listed(name: str, inputs: Inputs, reference: Any, **how: Any) -> None:
    """Register an operator that has no gradient of its own."""
    function = how.pop("function", None) or getattr(ops, name)
    small = how.pop("small", False)

    @case(name=name, small=small)
    def run(trial: Trial) -> None:
        trial.compare(function, reference, *inputs(trial), gradients=False, **how)


# ── one element at a time ───────────────────────────────────────────────────


def one(trial: Trial) -> list[Any]:
    return [trial.floats(5, 60)]


def positive(trial: Trial) -> list[Any]:
    return [trial.uniform(5, 60, low=0.1, high=4.0)]


def inside(trial: Trial) -> list[Any]:
    return [trial.uniform(5, 60, low=-0.9, high=0.9)]


def two(trial: Trial) -> list[Any]:
    return [trial.floats(5, 60), trial.floats(60)]


def bits(trial: Trial) -> list[Any]:
    return [trial.whole(5, 60, low=-99, dtype=torch.int32) for _ in range(2)]


def truths(trial: Trial) -> list[Any]:
    return [trial.whole(5, 60, high=2).bool() for _ in range(2)]


for _name in (
    "abs",
    "neg",
    "ceil",
    "sin",
    "cos",
    "exp",
    "exp2",
    "expm1",
    "erf",
    "tanh",
    "sigmoid",
    "relu",
    "reciprocal",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
    "angle",
    "square",
    "atan",
    "arcsinh",
):
    listed(_name, one, getattr(torch, _name), small=_name == "exp")
for _name in ("log", "log10", "sqrt", "rsqrt"):
    listed(_name, positive, getattr(torch, _name))
listed("acos", inside, torch.acos)
listed("gelu", one, F.gelu)
listed("silu", one, F.silu)
listed("elu", one, F.elu)
listed("celu", one, F.celu)
listed("softplus", one, F.softplus)
listed("log_sigmoid", one, F.logsigmoid)
listed("hardsigmoid", one, F.hardsigmoid)
for _name in ("fmin", "atan2", "copysign", "hypot", "logaddexp", "gt", "eq"):
    listed(_name, two, getattr(torch, _name))
listed("add", two, torch.add)
listed("mul", two, torch.mul)
listed("true_divide", two, torch.true_divide)
listed("pow_tensor_tensor", lambda t: [*positive(t), t.floats(60)], torch.pow)
listed(
    "remainder",
    lambda t: [t.whole(5, 60, low=-99), t.whole(60, low=1)],
    torch.remainder,
)
listed("bitwise_and_tensor", bits, torch.bitwise_and)
listed(
    "bitwise_left_shift",
    lambda t: [bits(t)[0], t.whole(60, high=8, dtype=torch.int32)],
    torch.bitwise_left_shift,
)
listed("logical_xor", truths, torch.logical_xor)
listed("addcmul", lambda t: [*two(t), t.floats(5, 60)], torch.addcmul)
listed("lerp_tensor", lambda t: [*two(t), t.uniform(5, 60)], torch.lerp)
listed("clamp", lambda t: [*one(t), -0.5, 0.5], torch.clamp)
listed(
    "nan_to_num",
    lambda t: [torch.tensor([1.0, torch.nan, torch.inf, -torch.inf])],
    lambda x: torch.nan_to_num(
        x, posinf=torch.finfo(torch.float32).max, neginf=torch.finfo(torch.float32).min
    ),
)

# ── reductions and scans ────────────────────────────────────────────────────


def rows(trial: Trial) -> list[Any]:
    return [trial.floats(7, 300)]


listed("sum", rows, torch.sum, small=True)
listed("sum_dim", lambda t: [*rows(t), [1]], torch.sum)
listed("mean", rows, torch.mean)
listed("prod", lambda t: [t.uniform(300, low=0.97, high=1.03)], torch.prod)
listed("amax", lambda t: [*rows(t), [1]], torch.amax)
listed("max", rows, torch.max)
listed("max_dim", lambda t: [*rows(t), 1], lambda x, d: tuple(torch.max(x, d)))
listed("argmax", lambda t: [*rows(t), 1], torch.argmax, small=True)
listed("argmin", lambda t: [t.floats(8, 256), 1], torch.argmin)
listed("argmin_ragged", lambda t: [*rows(t), 1], torch.argmin, function=ops.argmin)
listed("all", truths_one := (lambda t: [truths(t)[0]]), torch.all)
listed("any_dim", lambda t: [truths(t)[0], 1], torch.any)
listed(
    "var_mean",
    lambda t: [*rows(t), [1]],
    lambda x, d: torch.var_mean(x, d),
    function=lambda x, d: ops.var_mean(x, d),
)
listed("vector_norm", lambda t: [*rows(t), 2, [1]], torch.linalg.vector_norm)
listed("count_nonzero", truths_one, torch.count_nonzero)
listed("cumsum", lambda t: [*rows(t), 1], torch.cumsum, small=True)
listed("cummax", lambda t: [*rows(t), 1], lambda x, d: tuple(torch.cummax(x, d)))
listed("cummin", lambda t: [*rows(t), 1], lambda x, d: tuple(torch.cummin(x, d)))
listed("dot", lambda t: [t.floats(3000), t.floats(3000)], torch.dot, tolerance=1e-4)
listed("trace", lambda t: [t.floats(70, 70)], torch.trace)
listed("softmax", lambda t: [*rows(t), 1], torch.softmax, small=True)
listed("softmax_columns", lambda t: [*rows(t), 0], torch.softmax, function=ops.softmax)
listed("log_softmax", lambda t: [*rows(t), 1], torch.log_softmax)
listed(
    "isclose",
    lambda t: [t.whole(60, high=3).float(), t.whole(60, high=3).float()],
    torch.isclose,
)

# ── sorting and searching ───────────────────────────────────────────────────

listed("sort", lambda t: [*rows(t), 1], lambda x, d: tuple(torch.sort(x, d)))
listed("topk", lambda t: [*rows(t), 5], lambda x, k: tuple(torch.topk(x, k)))
listed("isin", lambda t: [t.whole(80, high=40), t.whole(9, high=40)], torch.isin)
listed(
    "unique",
    lambda t: [t.whole(200, high=40)],
    lambda x: torch.unique(x),
    function=lambda x: ops._unique2(x, True)[0],
)
listed("nonzero", truths_one, torch.nonzero)
listed("masked_select", lambda t: [t.floats(5, 60), truths(t)[0]], torch.masked_select)

# ── moving ──────────────────────────────────────────────────────────────────

listed("gather", lambda t: [*rows(t), 1, t.whole(7, 40, high=300)], torch.gather)
listed(
    "scatter",
    lambda t: [
        t.floats(7, 300),
        1,
        torch.stack([t.permutation(300)[:40] for _ in range(7)]),
        t.floats(7, 40),
    ],
    torch.scatter,
)
listed(
    "index_select", lambda t: [*rows(t), 1, t.whole(40, high=300)], torch.index_select
)
listed(
    "index_add",
    lambda t: [*rows(t), 1, t.whole(40, high=300), t.floats(7, 40)],
    torch.index_add,
)
listed("masked_fill", lambda t: [t.floats(5, 60), truths(t)[0], 3.0], torch.masked_fill)
listed(
    "embedding",
    lambda t: [t.floats(30, 40), t.whole(2, 9, high=30)],
    lambda w, i: F.embedding(i, w),
)
listed(
    "cat",
    lambda t: [t.floats(3, 40), t.floats(5, 40)],
    lambda a, b: torch.cat([a, b]),
    function=lambda a, b: ops.cat([a, b]),
)
listed("flip", lambda t: [*rows(t), [1]], torch.flip)
listed("roll", lambda t: [*rows(t), [17], [1]], torch.roll)
listed("repeat", lambda t: [t.floats(3, 40), [2, 3]], lambda x, n: x.repeat(n))
listed("tril", lambda t: [t.floats(60, 60)], torch.tril)
listed("triu", lambda t: [t.floats(60, 60)], torch.triu)
listed("diag", lambda t: [t.floats(60)], torch.diag)
listed("kron", lambda t: [t.floats(4, 5), t.floats(6, 7)], torch.kron)
listed("pad", lambda t: [t.floats(3, 40), [2, 5]], F.pad, function=ops.constant_pad_nd)
listed(
    "reflection_pad1d",
    lambda t: [t.floats(2, 3, 40), [2, 5]],
    lambda x, p: F.pad(x, p, mode="reflect"),
)
listed("one_hot", lambda t: [t.whole(20, high=9), 9], F.one_hot)
listed("pixel_unshuffle", lambda t: [t.floats(2, 3, 8, 8), 2], F.pixel_unshuffle)

# ── products ────────────────────────────────────────────────────────────────

half = {"dtype": torch.float16}
listed(
    "mm",
    lambda t: [t.floats(70, 96, **half), t.floats(96, 40, **half)],
    torch.mm,
)
listed(
    "mm_float32",
    lambda t: [t.floats(40, 70), t.floats(70, 40)],
    torch.mm,
    function=ops.mm,
    tolerance=TF32,
)
listed(
    "bmm",
    lambda t: [t.floats(2, 70, 96, **half), t.floats(2, 96, 40, **half)],
    torch.bmm,
)
listed(
    "addmm",
    lambda t: [
        t.floats(40, **half),
        t.floats(70, 96, **half),
        t.floats(96, 40, **half),
    ],
    torch.addmm,
)
listed("mv", lambda t: [t.floats(70, 96), t.floats(96)], torch.mv, tolerance=1e-4)
listed(
    "outer", lambda t: [t.floats(40), t.floats(60)], torch.outer, function=fused.outer
)
listed(
    "conv2d",
    lambda t: [t.floats(2, 4, 9, 9), t.floats(8, 4, 3, 3), t.floats(8)],
    F.conv2d,
    tolerance=TF32,
)
listed(
    "conv1d",
    lambda t: [t.floats(2, 4, 30), t.floats(8, 4, 3), t.floats(8)],
    F.conv1d,
    tolerance=TF32,
)

# ── layers ──────────────────────────────────────────────────────────────────

listed(
    "layer_norm",
    lambda t: [*rows(t), [300], t.floats(300), t.floats(300)],
    lambda x, s, w, b: layer_norm(x, w, b, 1e-5),
    function=lambda *given: ops.layer_norm(*given)[0],
)
listed(
    "rms_norm",
    lambda t: [*rows(t), [300], t.floats(300)],
    lambda x, s, w: rms_norm(x, w, 1e-5),
)
listed(
    "group_norm",
    lambda t: [t.floats(2, 6, 50), t.floats(6), t.floats(6), 2, 6, 50, 3],
    lambda x, w, b, *_: F.group_norm(x, 3, w, b),
    function=lambda *given: ops.group_norm(*given)[0],
)
listed(
    "batch_norm",
    lambda t: [t.floats(4, 6, 50), t.floats(6), t.floats(6)],
    lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    function=lambda x, w, b: ops.batch_norm(
        x, w, b, torch.zeros(6), torch.ones(6), True
    )[0],
)
listed(
    "batch_norm_without_statistics",
    lambda t: [t.floats(4, 6, 50), t.floats(6), t.floats(6)],
    lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    function=lambda x, w, b: ops.batch_norm(x, w, b, None, None, True)[0],
)
listed(
    "weight_norm",
    lambda t: [t.floats(40, 60), t.floats(40, 1)],
    lambda v, g: g * v / v.norm(dim=1, keepdim=True),
    function=lambda v, g: ops.weight_norm_interface(v, g, 0)[0],
)
listed("mse_loss", lambda t: [t.floats(5, 60), t.floats(5, 60)], F.mse_loss)
listed(
    "nll_loss_forward",
    lambda t: [t.floats(8, 30).log_softmax(-1), t.whole(8, high=30)],
    F.nll_loss,
    function=lambda *given: ops.nll_loss_forward(*given)[0],
)
listed(
    "max_pool2d",
    lambda t: [t.floats(2, 3, 12, 12)],
    lambda x: F.max_pool2d(x, 3),
    function=lambda x: ops.max_pool2d_with_indices(x, [3, 3])[0],
)
listed("avg_pool2d", lambda t: [t.floats(2, 3, 12, 12), [3, 3]], F.avg_pool2d)
listed(
    "upsample_bicubic2d",
    lambda t: [t.floats(1, 2, 6, 6), [12, 12], False],
    lambda x, s, a: F.interpolate(x, s, mode="bicubic"),
    tolerance=1e-4,
)
listed(
    "silu_and_mul",
    lambda t: [t.floats(5, 60), t.floats(5, 60)],
    lambda a, b: F.silu(a) * b,
    function=fused.silu_and_mul,
)
listed(
    "gelu_and_mul",
    lambda t: [t.floats(5, 60), t.floats(5, 60)],
    lambda a, b: F.gelu(a) * b,
    function=fused.gelu_and_mul,
)
listed(
    "skip_layer_norm",
    lambda t: [*rows(t), *rows(t), [300], t.floats(300), t.floats(300)],
    lambda x, r, s, w, b: layer_norm(x + r, w, b, 1e-5),
    function=lambda x, r, s, w, b: fused.skip_layer_norm(x, r, s, w, b),
)
listed(
    "bincount",
    lambda t: [t.whole(200, high=30)],
    torch.bincount,
    function=fused.bincount,
)


@case()
def cross_entropy_loss(trial: Trial) -> None:
    labels = trial.whole(8, high=100)
    trial.compare(
        lambda x: fused.cross_entropy_loss(x, labels),
        lambda x: F.cross_entropy(x, labels),
        trial.floats(8, 100),
    )


@case()
def per_token_group_quant_fp8(trial: Trial) -> None:
    given = trial.floats(6, 256)
    values, scales = trial.call(lambda: ops.per_token_group_quant_fp8(given, 128))
    parts = given.double().unflatten(-1, (-1, 128))
    trial.judge(scales, parts.abs().amax(-1) / 448, 1e-5)
    made = values.double().unflatten(-1, (-1, 128)) * scales.double()[..., None]
    trial.judge(made, parts, 0.07)


@case()
def hadamard_transform(trial: Trial) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        matrix = torch.ones(1, 1, dtype=x.dtype)
        while matrix.shape[0] < x.shape[1]:
            matrix = torch.kron(torch.tensor([[1, 1], [1, -1]], dtype=x.dtype), matrix)
        return x @ matrix

    trial.compare(
        ops.hadamard_transform, reference, trial.floats(6, 64), gradients=False
    )


@case()
def apply_rotary_pos_emb(trial: Trial) -> None:
    angle = trial.uniform(20, 16, high=6.0)
    trial.compare(
        lambda q, k: fused.apply_rotary_pos_emb(q, k, angle.cos(), angle.sin()),
        lambda q, k: tuple(
            rotated(x, angle.double().repeat(1, 2)[None, :, None]) for x in (q, k)
        ),
        trial.floats(2, 20, 4, 32),
        trial.floats(2, 20, 2, 32),
        gradients=False,
    )


assert flag_gems.vendor_name == "nvidia"
