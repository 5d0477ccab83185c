"""Sparse weights in PyTorch: products, layers, checkpoints.

    compress        a weight -> SparseMatrix: pruned, compressed, packed
    sparse_mm       D = A B, with a sparse A
    sparse_linear   y = x W^T + bias, with a sparse W
    dense_mm        the same with a dense A
    grouped_linear  the same for experts: a W for each, and its own rows of x
    binary_mm       how many bits two rows have in common, or differ in
    autotune        measure the tiles for every product in a call, keep the fastest
    SparseLinear    torch.nn.Linear with a sparse weight
    linears         every torch.nn.Linear of a model -> SparseLinear
    SparseExperts   the gated feed-forward blocks of experts, with sparse weights
    experts         the stacked experts of a model -> SparseExperts
    SparseFeedForward  two layers with sparse activations between them
    feed_forwards   the feed-forward blocks of a model -> SparseFeedForward
    freeze          layers that were trained -> layers for inference
    pruning_report  what pruning took, or would take, from each layer of a model
    quantize_rows   x -> 8-bit elements, and a scale for each row
    sparse_activations  x -> relu(x)^2, two of each four, and a scale for each row
    calibrate       some batches -> a scale for the activations of each layer
    report          tile, time, speed and error of each sparse layer of a model
    load_sparse     a checkpoint with 2:4 weights -> a model with SparseLinear
    save_sparse     a model with SparseLinear -> such a checkpoint

On a Hopper GPU each product is one kernel on the caller's stream.  On the CPU an
emulation computes the same bits, slowly.  All are ``torch.library`` operators, so
they work with ``torch.compile`` and in CUDA graphs.
"""

from fragmenta.hopper.torch.calibration import calibrate
from fragmenta.hopper.torch.converting import freeze, linears, pruning_report
from fragmenta.hopper.torch.feedforward import SparseFeedForward, feed_forwards
from fragmenta.hopper.torch.formats import from_bitmask, to_bitmask
from fragmenta.hopper.torch.loading import CheckpointWarning, load_sparse
from fragmenta.hopper.torch.matrix import OUTPUTS, TYPES, SparseMatrix
from fragmenta.hopper.torch.mixture import SparseExperts, experts, sort_by_expert
from fragmenta.hopper.torch.modules import SparseLinear
from fragmenta.hopper.torch.products import (
    binary_mm,
    compress,
    compress_experts,
    dense_mm,
    grouped_linear,
    quantize_rows,
    sparse_activations,
    sparse_linear,
    sparse_mm,
)
from fragmenta.hopper.torch.pruning import LayerPruning, PruningReport, PruningWarning
from fragmenta.hopper.torch.reporting import (
    BlockReport,
    LayerReport,
    ModelReport,
    report,
)
from fragmenta.hopper.torch.running import run
from fragmenta.hopper.torch.saving import save_sparse
from fragmenta.hopper.torch.stack import SparseStack
from fragmenta.hopper.torch.tuning import autotune

__all__ = [
    "OUTPUTS",
    "TYPES",
    "BlockReport",
    "CheckpointWarning",
    "LayerPruning",
    "LayerReport",
    "ModelReport",
    "PruningReport",
    "PruningWarning",
    "SparseExperts",
    "SparseFeedForward",
    "SparseLinear",
    "SparseMatrix",
    "SparseStack",
    "autotune",
    "binary_mm",
    "calibrate",
    "compress",
    "compress_experts",
    "dense_mm",
    "experts",
    "feed_forwards",
    "freeze",
    "from_bitmask",
    "grouped_linear",
    "linears",
    "load_sparse",
    "pruning_report",
    "quantize_rows",
    "report",
    "run",
    "save_sparse",
    "sort_by_expert",
    "sparse_activations",
    "sparse_linear",
    "sparse_mm",
    "to_bitmask",
]
