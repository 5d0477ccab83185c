"""Liger Kernel: layers and losses for training language models."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from liger_kernel import ops
from liger_kernel.ops import mhc

from corpus import bounds
from corpus.bounds import Rounding, first_order
from corpus.references import (
    cross_entropy,
    group_norm,
    jsd,
    layer_norm,
    rms_norm,
    rotated,
    sparsemax,
)
from corpus.registry import case
from corpus.trial import TF32, Trial

WIDE = 1.2e-2
"""For gradients of several products in tf32."""


@case(small=True)
def geglu(trial: Trial) -> None:
    trial.compare(
        ops.LigerGELUMulFunction.apply,
        lambda a, b: F.gelu(a, approximate="tanh") * b,
        trial.floats(6, 200),
        trial.floats(6, 200),
    )


@case(small=True)
def swiglu(trial: Trial) -> None:
    trial.compare(
        ops.LigerSiLUMulFunction.apply,
        lambda a, b: F.silu(a) * b,
        trial.floats(6, 200),
        trial.floats(6, 200),
    )


@case()
def swiglu_fused_gate_up(trial: Trial) -> None:
    def reference(y: torch.Tensor) -> torch.Tensor:
        gate, up = y.chunk(2, dim=-1)
        return F.silu(gate) * up

    trial.compare(
        ops.LigerFusedGateUpSiLUMulFunction.apply, reference, trial.floats(6, 256)
    )


@case()
def relu_squared(trial: Trial) -> None:
    trial.compare(
        ops.LigerReLUSquaredFunction.apply,
        lambda x: F.relu(x) ** 2,
        trial.floats(6, 200),
    )


@case()
def dyt(trial: Trial) -> None:
    trial.compare(
        ops.LigerDyTFunction.apply,
        lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
        trial.floats(2, 4, 96),
        trial.floats(1),
        trial.floats(96),
        trial.floats(96),
    )


@case(small=True)
def rms_norm_rows(trial: Trial) -> None:
    trial.compare(
        lambda x, w: ops.LigerRMSNormFunction.apply(
            x, w, 1e-6, 0.0, "llama", False, True
        ),
        lambda x, w: rms_norm(x, w, 1e-6),
        trial.floats(6, 200),
        trial.floats(200),
    )


@case()
def rms_norm_blocks(trial: Trial) -> None:
    trial.compare(
        lambda x, w: ops.LigerRMSNormFunction.apply(
            x, w, 1e-6, 1.0, "gemma", False, False
        ),
        lambda x, w: rms_norm(x, w + 1, 1e-6),
        trial.floats(40, 128),
        trial.floats(128),
    )


@case()
def fused_add_rms_norm(trial: Trial) -> None:
    trial.compare(
        lambda x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6),
        lambda x, r, w: (rms_norm(x + r, w, 1e-6), x + r),
        trial.floats(6, 200),
        trial.floats(6, 200),
        trial.floats(200),
    )


@case()
def modulated_rms_norm(trial: Trial) -> None:
    trial.compare(
        lambda x, w, a, b: ops.LigerModulatedRMSNormFunction.apply(
            x, w, a, b, 1e-6, 0.0, "llama", False
        ),
        lambda x, w, a, b: rms_norm(x, w, 1e-6) * (1 + a[:, None]) + b[:, None],
        trial.floats(2, 5, 96),
        trial.floats(96),
        trial.floats(2, 96),
        trial.floats(2, 96),
    )


@case(small=True)
def layer_norm_(trial: Trial) -> None:
    trial.compare(
        lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-5),
        lambda x, w, b: layer_norm(x, w, b, 1e-5),
        trial.floats(6, 200),
        trial.floats(200),
        trial.floats(200),
    )


@case()
def group_norm_(trial: Trial) -> None:
    trial.compare(
        lambda x, w, b: ops.LigerGroupNormFunction.apply(x, w, b, 6, 3, 1e-5),
        lambda x, w, b: group_norm(x, w, b, 3, 1e-5),
        trial.floats(2, 6, 100),
        trial.floats(6),
        trial.floats(6),
    )


@case()
def poly_norm(trial: Trial) -> None:
    def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        parts = [rms_norm(x**power, 1.0, 1e-6) for power in (3, 2, 1)]
        return sum((w[i] * part for i, part in enumerate(parts)), b)

    trial.compare(
        lambda x, w, b: ops.LigerPolyNormFunction.apply(x, w, b, 1e-6, False),
        reference,
        trial.floats(6, 100),
        trial.floats(3),
        trial.floats(),
    )


@case(small=True)
def softmax(trial: Trial) -> None:
    trial.compare(
        ops.LigerSoftmaxFunction.apply,
        lambda x: torch.softmax(x, dim=-1),
        trial.floats(6, 200),
    )


@case()
def sparsemax_(trial: Trial) -> None:
    trial.compare(
        lambda x: ops.LigerSparsemaxFunction.apply(x, -1),
        sparsemax,
        trial.floats(6, 60),
    )


@case(small=True)
def cross_entropy_(trial: Trial) -> None:
    labels = trial.whole(8, high=200)
    labels[2] = -100
    trial.compare(
        lambda x: ops.LigerCrossEntropyFunction.apply(
            x, labels, None, -100, 1e-4, 0.1, "mean", None
        )[0],
        lambda x: cross_entropy(x, labels, smoothing=0.1, square=1e-4),
        trial.floats(8, 200),
    )


@case()
def fused_linear_cross_entropy(trial: Trial) -> None:
    labels = trial.whole(12, high=90)
    trial.compare(
        lambda x, w: ops.LigerFusedLinearCrossEntropyFunction.apply(x, w, labels)[0],
        lambda x, w: cross_entropy(x @ w.T, labels),
        trial.floats(12, 40),
        trial.floats(90, 40),
    )


@case()
def kl_div(trial: Trial) -> None:
    trial.compare(
        lambda x, y: ops.LigerKLDivLossFunction.apply(
            x, y.detach(), "batchmean", False, 1e-10
        ),
        lambda x, y: F.kl_div(x, y.detach(), reduction="batchmean"),
        trial.floats(6, 100).log_softmax(-1),
        trial.floats(6, 100).softmax(-1),
    )


@case()
def jsd_(trial: Trial) -> None:
    trial.compare(
        lambda x, y: ops.LigerJSDFunction.apply(x, y.detach(), None, 0.3),
        lambda x, y: jsd(x, y.detach(), 0.3),
        trial.floats(6, 100).log_softmax(-1),
        trial.floats(6, 100).log_softmax(-1),
    )


@case()
def fused_linear_jsd(trial: Trial) -> None:
    teacher, weight = trial.floats(6, 24), trial.floats(50, 24)
    trial.compare(
        lambda x, w: ops.LigerFusedLinearJSDFunction.apply(
            x, w, teacher, weight, None, 0.5
        ),
        lambda x, w: jsd(
            (x @ w.T).log_softmax(-1),
            (teacher.double() @ weight.double().T).log_softmax(-1),
            0.5,
        ),
        trial.floats(6, 24),
        trial.floats(50, 24),
        tolerance=1e-4,
    )


@case()
def fused_linear_kl_div(trial: Trial) -> None:
    wanted = trial.floats(6, 50).softmax(-1)
    trial.compare(
        lambda x, w: ops.LigerFusedLinearKLDivFunction.apply(x, w, wanted),
        lambda x, w: F.kl_div(
            (x @ w.T).log_softmax(-1), wanted.double(), reduction="batchmean"
        ),
        trial.floats(6, 24),
        trial.floats(50, 24),
        tolerance=1e-4,
    )


@case()
def tvd(trial: Trial) -> None:
    trial.compare(
        lambda p, q: ops.LigerTVDLossFunction.apply(
            p, q.detach(), None, "batchmean", -100
        ),
        lambda p, q: 0.5 * (p - q.detach()).abs().sum() / p.shape[0],
        trial.floats(6, 100).softmax(-1),
        trial.floats(6, 100).softmax(-1),
    )


@case()
def fused_ce_tvd(trial: Trial) -> None:
    labels = trial.whole(6, high=100)

    def reference(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        p, q = x.softmax(-1), y.detach().softmax(-1)
        return (
            F.cross_entropy(x, labels, reduction="none"),
            0.5 * (p - q).abs().sum(-1),
        )

    trial.compare(
        lambda x, y: ops.LigerFusedCETVDFunction.apply(x, y.detach(), labels),
        reference,
        trial.floats(6, 100),
        trial.floats(6, 100),
    )


@case()
def grpo_loss(trial: Trial) -> None:
    from liger_kernel.ops.grpo_loss import fused_selective_log_softmax

    ids = trial.whole(2, 5, high=60)

    def reference(logits: torch.Tensor) -> torch.Tensor:
        logs = (logits[:, :-1] / 0.9).log_softmax(-1)
        return logs.gather(-1, ids[..., None])[..., 0]

    trial.compare(
        lambda x: fused_selective_log_softmax(x, ids, 0.9),
        reference,
        trial.floats(2, 6, 60),
        gradients=False,
    )


@case()
def grpo_loss_tokens(trial: Trial) -> None:
    from liger_kernel.ops.grpo_loss import GrpoLossFunction

    ids, old = trial.whole(2, 5, high=60), -4 + 0.1 * trial.floats(2, 5)
    ref, gains = -4 + 0.1 * trial.floats(2, 5), trial.floats(2)

    def reference(logits: torch.Tensor) -> torch.Tensor:
        logs = (logits[:, :-1] / 0.9).log_softmax(-1)
        logp = logs.gather(-1, ids[..., None])[..., 0]
        ratio = torch.exp(logp - old.double())
        cut = ratio.clamp(0.8, 1.2)
        gain = gains.double()[:, None]
        apart = ref.double() - logp
        kl = torch.exp(apart) - apart - 1
        loss = -torch.minimum(ratio * gain, cut * gain) + 0.04 * kl
        return loss.sum() / loss.numel()

    def function(logits: torch.Tensor) -> torch.Tensor:
        return GrpoLossFunction.apply(
            logits, old, ref, ids, gains, None, 0.9, 0.04, 0.2, 0.2, False
        )[0]

    trial.compare(function, reference, trial.floats(2, 6, 60), tolerance=1e-4)


@case(small=True)
def rope(trial: Trial) -> None:
    angle = trial.uniform(1, 7, 16, high=6.0).repeat(1, 1, 2)
    trial.compare(
        lambda q, k: ops.LigerRopeFunction.apply(q, k, angle.cos(), angle.sin()),
        lambda q, k: tuple(rotated(x, angle.double()[:, None]) for x in (q, k)),
        trial.floats(2, 4, 7, 32),
        trial.floats(2, 2, 7, 32),
    )


@case()
def llama4_rope(trial: Trial) -> None:
    angle = trial.uniform(7, 16, high=6.0)
    turn = torch.polar(torch.ones_like(angle), angle)

    def reference(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = torch.polar(torch.ones(7, 16).double(), angle.double())[None, :, None]
        pairs = [torch.view_as_complex(x.unflatten(-1, (-1, 2))) for x in (q, k)]
        return tuple(torch.view_as_real(each * wide).flatten(-2) for each in pairs)

    trial.compare(
        lambda q, k: ops.LigerLlama4RopeFunction.apply(q, k, turn),
        reference,
        trial.floats(2, 7, 4, 32),
        trial.floats(2, 7, 2, 32),
    )


@case()
def qwen2vl_mrope(trial: Trial) -> None:
    half = trial.uniform(3, 2, 7, 16, high=6.0)
    angle = half.repeat(1, 1, 1, 2)
    parts = [4, 6, 6]

    def reference(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chunks = half.double().split(parts, dim=-1)
        mixed = torch.cat([each[i % 3] for i, each in enumerate(chunks)], -1)
        mixed = mixed.repeat(1, 1, 2)[:, None]
        return tuple(rotated(x, mixed) for x in (q, k))

    trial.compare(
        lambda q, k: ops.LigerQwen2VLMRopeFunction.apply(
            q, k, angle.cos(), angle.sin(), parts
        ),
        reference,
        trial.floats(2, 4, 7, 32),
        trial.floats(2, 2, 7, 32),
    )


@case()
def embedding(trial: Trial) -> None:
    index = trial.whole(2, 9, high=30)
    trial.compare(
        lambda table: ops.LigerEmbeddingFunction.apply(table, index),
        lambda table: F.embedding(index, table),
        trial.floats(30, 40),
    )


@case()
def multi_token_attention(trial: Trial) -> None:
    def reference(
        scores: torch.Tensor, w: torch.Tensor, b: torch.Tensor
    ) -> torch.Tensor:
        later = torch.ones(12, 12, dtype=torch.bool).triu(1)
        shares = scores.masked_fill(later, -1e9).softmax(-1)
        return F.conv2d(shares, w, b, padding=1).masked_fill(later, 0)

    trial.compare(
        lambda s, w, b: ops.LigerMultiTokenAttentionFunction.apply(s, w, b, 1, 1),
        reference,
        trial.floats(2, 3, 12, 12),
        trial.floats(3, 3, 3, 3),
        trial.floats(3),
    )


@case()
def neighborhood_attention(trial: Trial) -> None:
    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        place = torch.arange(20)
        near = (place[:, None] - place).abs() <= 3
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return scores.masked_fill(~near, float("-inf")).softmax(-1) @ v

    shape = 1, 2, 20, 16
    trial.compare(
        lambda q, k, v: ops.LigerFusedNeighborhoodAttentionFunction.apply(
            q, k, v, 7, 1
        ),
        reference,
        trial.floats(*shape),
        trial.floats(*shape),
        trial.floats(*shape),
        tolerance=TF32,
    )


@case()
def attn_res(trial: Trial) -> None:
    def reference(v: torch.Tensor, w: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        shares = (rms_norm(v, norm, 1e-6) @ w).softmax(0)
        return (shares[..., None] * v).sum(0)

    trial.compare(
        lambda v, w, norm: ops.LigerAttnResFunction.apply(v, w, norm, 1e-6),
        reference,
        trial.floats(4, 2, 3, 60),
        trial.floats(60),
        trial.floats(60),
    )


def _routed(x, up, down, shares, chosen):  # type: ignore[no-untyped-def]
    """A mixture of experts: each token is a sum of two of them."""
    gate, value = torch.einsum("tehk,tk->teh", up[chosen], x).chunk(2, -1)
    made = torch.einsum("teoh,teh->teo", down[chosen], F.silu(gate) * value)
    return (shares[..., None] * made).sum(1)


def _routed_bounds(x, up, down, shares, chosen, w):  # type: ignore[no-untyped-def]
    """How far roundings to tf32 move the results and gradients of :func:`_routed`.

    Both factors of each product are rounded.  ``of_`` is the bound of a value so far;
    ``w`` is the gradient that the backward pass begins with.
    """
    x, up, down, shares, w = (each.detach() for each in (x, up, down, shares, w))
    big, small, both = up[chosen].abs(), down[chosen].abs(), 2 * bounds.TF32

    def through(matrix, vector, of):  # type: ignore[no-untyped-def]
        return torch.einsum("teoh,teh->teo", matrix, of + both * vector.abs())

    def add_up(left, of, right):  # type: ignore[no-untyped-def]
        """The gradient of a matrix: products of all tokens of each expert."""
        parts = torch.einsum("teo,teh->teoh", of + both * left.abs(), right.abs())
        made = torch.zeros(4, *parts.shape[2:], dtype=parts.dtype)
        return made.index_add(0, chosen.flatten(), parts.flatten(0, 1))

    wide = x[:, None].expand(-1, 2, -1)
    gate, value = torch.einsum("tehk,tek->teh", up[chosen], wide).chunk(2, -1)
    of_gate, of_value = through(big, wide, torch.zeros_like(wide)).chunk(2, -1)
    share = torch.sigmoid(gate)
    slope = share * (1 + gate * (1 - share))
    bend = share * (1 - share) * (2 + gate * (1 - 2 * share))
    act = F.silu(gate) * value
    of_act = (slope * value).abs() * of_gate + F.silu(gate).abs() * of_value
    of_made = through(small, act, of_act)
    dy = shares[..., None] * w[:, None]
    none = torch.zeros_like(dy)
    back = torch.einsum("teoh,teo->teh", down[chosen], dy)
    of_back = through(small.mT, dy, none)
    of_gates = of_back * (slope * value).abs() + back.abs() * (
        of_value * slope.abs() + of_gate * (bend * value).abs()
    )
    of_values = of_back * F.silu(gate).abs() + back.abs() * slope.abs() * of_gate
    dh = torch.cat([back * value * slope, back * F.silu(gate)], -1)
    of_dh = torch.cat([of_gates, of_values], -1)
    return [
        (shares[..., None].abs() * of_made).sum(1),
        through(big.mT, dh, of_dh).sum(1),
        add_up(dh, of_dh, wide),
        add_up(act, of_act, dy).mT,
        (w[:, None].abs() * of_made).sum(-1),
    ]


@case()
def fused_moe(trial: Trial) -> None:
    chosen = torch.stack([trial.permutation(4)[:2] for _ in range(20)]).int()
    trial.compare(
        lambda x, up, down, s: ops.LigerFusedMoEFunction.apply(x, up, down, chosen, s),
        lambda *given: _routed(*given, chosen),
        trial.floats(20, 64),
        trial.floats(4, 64, 64, scale=0.2),
        trial.floats(4, 64, 32, scale=0.2),
        trial.uniform(20, 2),
        bounds=lambda given, w: _routed_bounds(*given, chosen, *w),
    )


def _sinkhorn(logits: torch.Tensor, times: int, epsilon: float) -> torch.Tensor:
    made = logits.softmax(-1) + epsilon
    made = made / (made.sum(-2, keepdim=True) + epsilon)
    for _ in range(times - 1):
        made = made / (made.sum(-1, keepdim=True) + epsilon)
        made = made / (made.sum(-2, keepdim=True) + epsilon)
    return made


@case()
def mhc_coefficients(trial: Trial) -> None:
    streams, width = 4, 32

    def reference(rounding, x, phi, b, pre, post, res):  # type: ignore[no-untyped-def]
        flat = x.flatten(-2)
        mix = rounding.product(flat, phi) * torch.rsqrt(
            flat.square().mean(-1, keepdim=True) + 1e-6
        )
        first, second, rest = mix.split([4, 4, 16], dim=-1)
        shift = b.split([4, 4, 16])
        last = (rest * res + shift[2]).unflatten(-1, (4, 4))
        return (
            torch.sigmoid(first * pre + shift[0]) + 1e-6,
            2 * torch.sigmoid(second * post + shift[1]),
            _sinkhorn(last, 3, 1e-6),
        )

    trial.compare(
        lambda *given: mhc.LigerMHCCoeffsFunction.apply(
            *given, True, 3, 1e-6, 1e-6, 1e-6, 2.0
        ),
        lambda *given: reference(Rounding(), *given),
        trial.floats(6, streams, width),
        trial.floats(128, 24, scale=0.2),
        trial.floats(24),
        *(trial.floats() for _ in range(3)),
        bounds=first_order(reference),
    )


@case()
def mhc_streams(trial: Trial) -> None:
    def function(x, f, pre, post, res):  # type: ignore[no-untyped-def]
        return mhc.LigerMHCPreFunction.apply(x, pre), mhc.LigerMHCPostResFunction.apply(
            x, f, post, res
        )

    def reference(x, f, pre, post, res):  # type: ignore[no-untyped-def]
        mixed = torch.einsum("noi,nic->noc", res, x)
        return (
            torch.einsum("nh,nhc->nc", pre, x),
            mixed + post[..., None] * f[:, None],
        )

    trial.compare(
        function,
        reference,
        trial.floats(6, 4, 32),
        trial.floats(6, 32),
        trial.floats(6, 4),
        trial.floats(6, 4),
        trial.floats(6, 4, 4),
    )


@case()
def mlp(trial: Trial) -> None:
    half = torch.bfloat16

    def reference(x, gate, up, down):  # type: ignore[no-untyped-def]
        return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T

    trial.compare(
        ops.LigerMLPFunction.apply,
        reference,
        trial.floats(2, 64, 64, dtype=half),
        trial.floats(128, 64, dtype=half, scale=0.1),
        trial.floats(128, 64, dtype=half, scale=0.1),
        trial.floats(64, 128, dtype=half, scale=0.1),
    )


@case()
def vocab_parallel_cross_entropy(trial: Trial) -> None:
    labels = trial.whole(4, 2, high=200)
    trial.compare(
        lambda x: ops.LigerVocabParallelCEFunction.apply(
            x, labels, None, -100, 0.0, "megatron", "global"
        ),
        lambda x: F.cross_entropy(x.permute(0, 2, 1), labels, reduction="none"),
        trial.floats(4, 2, 200),
    )
