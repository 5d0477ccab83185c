r"""Fine-tunes a pruned classifier with sparse layers: only the kept weights exist.

A small classifier is trained dense and pruned to 2:4.  Then its kept weights are
trained further: the forward pass runs on the sparse product, and with masks that are
sparse in both directions the backward pass does, too.  At the end the layers are frozen
for inference.  On a Hopper GPU the products are kernels; without one they are emulated,
with the same bits, in a minute or two.

    python examples/finetune_sparse.py --steps 40
"""

from __future__ import annotations

import argparse
import copy

import torch
from prune_model import CLASSES, HIDDEN, accuracy, classifier, patterns, train
from torch import nn

import fragmenta.torch as ft


def sparse_copy(model: nn.Module, *, transposable: bool) -> nn.Module:
    """The model with trained layers of 2:4 bf16; the last layer stays dense."""
    made: nn.Module = ft.linears(
        copy.deepcopy(model),
        prune=True,
        dtype=torch.bfloat16,
        train=True,
        transposable=transposable,
        least=CLASSES * HIDDEN + 1,
    )
    return made


def fine_tune(model: nn.Module, steps: int, batch: int) -> float:
    """Train the kept weights and biases; the loss of the last step."""
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-4)
    device = next(model.parameters()).device
    x, labels = (each.to(device) for each in patterns(batch * steps, seed=3))
    last = 0.0
    for part, wanted in zip(x.split(batch), labels.split(batch), strict=True):
        loss = nn.functional.cross_entropy(model(part), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        last = loss.item()
    held = sum(state["exp_avg"].numel() for state in optimiser.state.values())
    print(f"Adam has {held:,} pairs of moments for {count(model):,} weights")
    return last


def count(model: nn.Module) -> int:
    """How many weights and biases the dense model would have."""
    return sum(
        each.out_features * (each.in_features + 1)
        for each in model.modules()
        if isinstance(each, ft.SparseLinear | nn.Linear)
    )


def experiment(dense_steps: int, steps: int, batch: int) -> dict[str, float]:
    """Accuracies: dense, pruned, fine-tuned, frozen."""
    model = classifier()
    train(model, dense_steps, 1e-3)
    scores = {"dense": accuracy(model)}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for transposable in (False, True):
        name = "both directions" if transposable else "rows"
        made = sparse_copy(model, transposable=transposable).to(device)
        scores[f"2:4 along {name}"] = accuracy(made)
        fine_tune(made, steps, batch)
        scores[f"2:4 along {name}, fine-tuned"] = accuracy(made)
        frozen = ft.freeze(made)
        scores[f"2:4 along {name}, frozen"] = accuracy(frozen)
    return scores


def main() -> None:
    """Run the experiment and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dense-steps", type=int, default=400)
    parser.add_argument("--steps", type=int, default=40, help="steps of fine-tuning")
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    scores = experiment(options.dense_steps, options.steps, options.batch)
    for name, score in scores.items():
        print(f"{name:40} {100 * score:6.2f} %")


if __name__ == "__main__":
    main()
