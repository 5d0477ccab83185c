"""unsloth: kernels for fine-tuning.

The package changes transformers and other packages when it is imported.  Its kernels
need none of them, so those are stand-ins here.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F
from packaging.version import Version

from corpus.references import cross_entropy, layer_norm, rms_norm, rotated
from corpus.registry import case
from corpus.trial import TF32, Trial


class _Anything(ModuleType):
    """A module that has every name."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return {"Version": Version, "LlamaRMSNorm": torch.nn.Module}.get(
            name, MagicMock()
        )


def _package(name: str) -> None:
    """A package whose ``__init__`` does not run."""
    places = importlib.util.find_spec(name).submodule_search_locations  # type: ignore[union-attr]
    made = ModuleType(name)
    made.__path__ = list(places)  # type: ignore[arg-type]
    sys.modules[name] = made


for _name in (
    "unsloth_zoo",
    "unsloth_zoo.utils",
    "unsloth_zoo.log",
    "unsloth_zoo.loss_utils",
    "unsloth_zoo.patching_utils",
    "unsloth_zoo.temporary_patches",
    "unsloth_zoo.temporary_patches.common",
    "unsloth_zoo.device_type",
    "transformers",
    "transformers.models",
    "transformers.models.llama",
    "transformers.models.llama.modeling_llama",
):
    sys.modules[_name] = _Anything(_name)
_package("unsloth")
_package("unsloth.kernels")

from unsloth.kernels import (
    cross_entropy_loss,
    fp8,
    geglu,
    large_head_attention,
    layernorm,
    nvfp4,
    qk_norm_rope,
    rms_layernorm,
    rope_embedding,
    swiglu,
)


class Norm:
    """A layer as the functions take it."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self.eps = self.variance_epsilon = 1e-5
        self.elementwise_affine = True


def _pair(trial: Trial) -> list[torch.Tensor]:
    return [trial.floats(2, 5, 96, dtype=torch.float16) for _ in range(2)]


@case(small=True)
def swiglu_(trial: Trial) -> None:
    trial.compare(
        swiglu.swiglu_fg_kernel,
        lambda e, g: F.silu(e) * g,
        *_pair(trial),
        gradients=False,
    )


def _gated(trial: Trial, function: Any, gate: Any) -> None:
    """Backward of a gated unit: three results in place of the three arguments."""

    def reference(dw, e, g):  # type: ignore[no-untyped-def]
        e = e.clone().requires_grad_()
        made = gate(e)
        (slope,) = torch.autograd.grad(made, e, dw * g)
        return (made * g).detach(), (dw * made).detach(), slope

    rows = [trial.floats(10, 96, dtype=torch.float16) for _ in range(3)]
    trial.compare(function, reference, *rows, gradients=False, tolerance=8e-3)


@case()
def swiglu_backward(trial: Trial) -> None:
    _gated(trial, swiglu.swiglu_DWf_DW_dfg_kernel, F.silu)


@case()
def geglu_exact(trial: Trial) -> None:
    trial.compare(
        geglu.geglu_exact_forward_kernel,
        lambda e, g: F.gelu(e) * g,
        *_pair(trial),
        gradients=False,
    )
    _gated(trial, geglu.geglu_exact_backward_kernel, F.gelu)


@case()
def geglu_approximate(trial: Trial) -> None:
    def near(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x, approximate="tanh")

    trial.compare(
        geglu.geglu_approx_forward_kernel,
        lambda e, g: near(e) * g,
        *_pair(trial),
        gradients=False,
    )
    _gated(trial, geglu.geglu_approx_backward_kernel, near)


@case()
def rms_norm_(trial: Trial) -> None:
    weight = trial.floats(96)
    trial.compare(
        lambda x: rms_layernorm.fast_rms_layernorm(Norm(weight), x),
        lambda x: rms_norm(x, weight.double(), 1e-5),
        trial.floats(2, 5, 96),
    )


@case()
def rms_norm_gemma(trial: Trial) -> None:
    weight = trial.floats(96)
    trial.compare(
        lambda x: rms_layernorm.fast_rms_layernorm(Norm(weight), x, gemma=True),
        lambda x: rms_norm(x, weight.double() + 1, 1e-5),
        trial.floats(2, 5, 96),
    )


@case()
def layer_norm_(trial: Trial) -> None:
    weight, bias = trial.floats(96), trial.floats(96)
    trial.compare(
        lambda x: layernorm.fast_layernorm(Norm(weight, bias), x),
        lambda x: layer_norm(x, weight.double(), bias.double(), 1e-5),
        trial.floats(2, 5, 96),
    )


@case()
def rope(trial: Trial) -> None:
    angle = trial.uniform(9, 16, high=6.0).repeat(1, 2)
    trial.compare(
        lambda q, k: rope_embedding.fast_rope_embedding(q, k, angle.cos(), angle.sin()),
        lambda q, k: tuple(rotated(x, angle.double()) for x in (q, k)),
        trial.floats(2, 4, 9, 32),
        trial.floats(2, 2, 9, 32),
    )


@case()
def cross_entropy_(trial: Trial) -> None:
    labels = trial.whole(2, 6, high=200)
    trial.compare(
        lambda x: cross_entropy_loss.fast_cross_entropy_loss(x, labels),
        lambda x: cross_entropy(x.flatten(0, 1), labels.flatten()),
        trial.floats(2, 6, 200),
    )


@case()
def cross_entropy_chunked(trial: Trial) -> None:
    labels = trial.whole(1, 2, high=66000)
    trial.compare(
        lambda x: cross_entropy_loss.fast_cross_entropy_loss(x, labels),
        lambda x: cross_entropy(x.flatten(0, 1), labels.flatten()),
        trial.floats(1, 2, 66000),
        tolerance=1e-4,
    )


@case()
def query_key_norm_rope(trial: Trial) -> None:
    wq, wk = trial.floats(32), trial.floats(32)
    angle = trial.uniform(9, 16, high=6.0).repeat(1, 2)
    trial.compare(
        lambda q, k: qk_norm_rope.Fast_QK_Norm_RoPE.apply(
            q, k, wq, wk, angle.cos(), angle.sin(), None, 1e-5, 1e-5, False
        ),
        lambda q, k: tuple(
            rotated(rms_norm(x, w.double(), 1e-5), angle.double()[:, None])
            for x, w in ((q, wq), (k, wk))
        ),
        trial.floats(2, 9, 4, 32),
        trial.floats(2, 9, 2, 32),
        tolerance=1e-4,
    )


@case()
def fp8_weights(trial: Trial) -> None:
    weight, scales = trial.floats(256, 256), trial.uniform(2, 2)
    small = weight.to(torch.float8_e4m3fn)
    made = trial.call(
        lambda: fp8.weight_dequant_block(small, scales, 128, torch.float32)
    )
    wide = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    trial.judge(made, small.double() * wide.double())


@case()
def fp8_activations(trial: Trial) -> None:
    given = trial.floats(6, 256)
    values, scales = trial.call(lambda: fp8.act_quant(given, 128))
    parts = given.double().unflatten(-1, (-1, 128))
    trial.judge(scales, parts.abs().amax(-1) / 448, 1e-5)
    made = values.double().unflatten(-1, (-1, 128)) * scales.double()[..., None]
    trial.judge(made, parts, 0.07)


@case()
def fp8_product(trial: Trial) -> None:
    e4m3 = torch.float8_e4m3fn
    a, b = trial.floats(64, 256).to(e4m3), trial.floats(128, 256).to(e4m3)
    one, two = trial.uniform(64, 2), trial.uniform(1, 2)
    made = trial.call(
        lambda: fp8.w8a8_block_fp8_matmul_triton(
            a, b, one, two, [128, 128], torch.float32
        )
    )
    left = a.double() * one.double().repeat_interleave(128, 1)
    right = b.double() * two.double().repeat_interleave(128, 1)
    trial.judge(made, left @ right.T, TF32)


@case()
def nvfp4_weights(trial: Trial) -> None:
    packed = trial.whole(32, 64, high=256).to(torch.uint8)
    scales = trial.uniform(32, 8, low=0.5, high=2.0).to(torch.float8_e4m3fn)
    whole = torch.tensor(0.7)
    made = trial.call(
        lambda: nvfp4._nvfp4_dequantize_triton(packed, scales, whole, torch.float32)
    )
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6]).double()
    table = torch.cat([table, -table])
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(1).long()
    wide = scales.double().repeat_interleave(16, 1)
    trial.judge(made, table[codes] * wide / whole.double())


@case()
def large_heads(trial: Trial) -> None:
    half, place = torch.bfloat16, torch.arange(64).expand(1, 64)
    trial.compare(
        lambda q, k, v: large_head_attention.large_head_attention(
            q, k, v, torch.zeros_like(place), place
        ),
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=True
        ).transpose(1, 2),
        *(trial.floats(1, 2, 64, 512, dtype=half) for _ in range(3)),
    )
