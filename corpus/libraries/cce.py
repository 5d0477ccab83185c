"""Cut Cross-Entropy: the loss of a large vocabulary without its logits in memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from cut_cross_entropy import linear_cross_entropy

from corpus.registry import case
from corpus.trial import Trial


@case()
def loss(trial: Trial) -> None:
    half = torch.bfloat16
    labels = trial.whole(40, high=200)
    trial.compare(
        lambda e, c: linear_cross_entropy(e, c, labels),
        lambda e, c: F.cross_entropy(e @ c.T, labels),
        trial.floats(40, 64, dtype=half),
        trial.floats(200, 64, dtype=half, scale=0.2),
        tolerance=3e-2,
    )
