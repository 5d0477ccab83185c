"""Cut Cross-Entropy: the loss of a large vocabulary without its logits in memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from cut_cross_entropy import linear_cross_entropy

from corpus.bounds import BF16
from corpus.registry import case
from corpus.trial import Trial

ROWS, WORDS = 40, 200
DROPPED = torch.finfo(torch.bfloat16).eps / 32
"""A block of gradients of logits that are all below this is left out."""


def bounds(e, c, labels, weight):  # type: ignore[no-untyped-def]
    """How far the loss and the gradients may be.

    The products of a row and of its label's are rounded to bf16 one by one.  So is the
    gradient of each logit, before it is multiplied.
    """
    e, c = e.detach(), c.detach()
    of_loss = BF16 * (e * c[labels]).abs().sum(-1).mean()
    slopes = (e @ c.T).softmax(-1) - F.one_hot(labels, WORDS)
    of_slopes = BF16 * slopes.abs() + slopes.abs().clamp(max=DROPPED)
    of_slopes = of_slopes * weight.abs() / ROWS
    return [of_loss, of_slopes @ c.abs(), of_slopes.T @ e.abs()]


@case(small=True)
def loss(trial: Trial) -> None:
    half = torch.bfloat16
    labels = trial.whole(ROWS, high=WORDS)
    trial.compare(
        lambda e, c: linear_cross_entropy(e, c, labels),
        lambda e, c: F.cross_entropy(e @ c.T, labels),
        trial.floats(ROWS, 64, dtype=half),
        trial.floats(WORDS, 64, dtype=half, scale=0.2),
        bounds=lambda given, weights: bounds(*given, labels, *weights),
    )
