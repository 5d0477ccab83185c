"""FlashAttention 2: its kernels for heads of 64 channels, from the source archive.

``programs/flash.cu`` has the parameters that its host code gives them; nvcc compiles it
with the headers of the archive.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from corpus import host
from corpus.registry import case
from corpus.trial import Trial
from fragmenta import ptx

Sizes = tuple[int, int, int, int, int]
"""Sequences, queries and keys of each, heads of queries, heads of keys."""
SIZE = 64


def launch(name: str, kind: int, sizes: Sizes, *arrays: Any) -> None:
    """Launch a kernel, under a name of its own."""
    text = host.text("flash", kind).replace("flash_kernel", name)
    made = host.prepared("flash", kind, *sizes)
    ptx.parse(text, name).kernels[name].launch(
        made.grid,
        made.block,
        [made.parameter(list(arrays))],
        shared=made.shared,
        target="sm_90a",
    )


class _Attention(torch.autograd.Function):
    """Attention; the axes are the sequence, the time, the head and the channel."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, name: str, kind: int, q: Any, k: Any, v: Any
    ) -> torch.Tensor:
        batch, queries, heads, _ = q.shape
        sizes = batch, queries, k.shape[1], heads, k.shape[2]
        out, logs = torch.zeros_like(q), torch.zeros(batch, heads, queries)
        launch(name, kind, sizes, *(each.detach() for each in (q, k, v)), out, logs)
        ctx.save_for_backward(q, k, v, out, logs)
        ctx.sizes = sizes
        return out

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> Any:  # type: ignore[override]
        q, k, v, out, logs = ctx.saved_tensors
        batch, queries, _, heads, _ = ctx.sizes
        rows = -(-queries // 128) * 128
        gradients = [torch.zeros_like(each) for each in (q, k, v)]
        total = torch.zeros(batch, rows, heads, SIZE)
        sums = torch.zeros(batch, heads, rows)
        arrays = [each.detach() for each in (q, k, v, out, logs, given.contiguous())]
        for name, kind in BACKWARD.items():
            launch(name, kind, ctx.sizes, *arrays, *gradients, total, sums)
        return (None, None, *gradients)


BACKWARD = {
    "flash_bwd_dot_do_o": 2,
    "flash_bwd_dq_dk_dv_causal": 3,
    "flash_bwd_convert_dq": 4,
}
"""The kernels of the gradients, in order."""


def _compare(
    trial: Trial,
    name: str,
    kind: int,
    sizes: Sizes,
    gradients: bool = False,
) -> None:
    batch, queries, keys, heads, heads_k = sizes
    causal = kind == 1

    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        # The last query sees all keys.
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=seen if causal else None, enable_gqa=True
        ).transpose(1, 2)

    trial.compare(
        lambda *given: _Attention.apply(name, kind, *given),
        reference,
        trial.floats(batch, queries, heads, SIZE, dtype=torch.float16),
        trial.floats(batch, keys, heads_k, SIZE, dtype=torch.float16),
        trial.floats(batch, keys, heads_k, SIZE, dtype=torch.float16),
        gradients=gradients,
    )


@case(programs=[("flash", 0)])
def attention(trial: Trial) -> None:
    _compare(trial, "flash_fwd_hdim64_fp16", 0, (1, 128, 256, 2, 1))


@case(programs=[("flash", 1)])
def attention_causal(trial: Trial) -> None:
    _compare(trial, "flash_fwd_hdim64_fp16_causal", 1, (1, 150, 200, 2, 1))


@case(programs=[("flash", kind) for kind in (1, *BACKWARD.values())])
def attention_gradients(trial: Trial) -> None:
    name, sizes = "flash_fwd_hdim64_fp16_causal", (2, 150, 150, 1, 1)
    _compare(trial, name, 1, sizes, gradients=True)
