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

    matrix      SparseMatrix: packed bytes, element type and shape
    stack       SparseStack: the sparse weights of experts
    running     runs a product: one launch, or the emulation
    quantizing  tensors -> 8-bit elements and scales
    activating  activations -> a sparse matrix and scales
    training    the kept values of weights that are trained
    widening    4-bit integers -> weights of 8 or 16 bits, for large products
    request     a call of an operator -> a record, and the kernel for it
    grouping    the same for a product of experts
    operators   the products as operators of PyTorch
    products    the functions that users call
    pruning     what pruning took from the layers of a model
    weights     elements and scales of a quantised weight
    calibration scales for the activations of a model
    options     which options of a layer go together
    forward     what a layer computes
    modules     SparseLinear
    converting  the linear layers of a model -> SparseLinear, and back
    mixture     SparseExperts, and the conversion of models
    feedforward SparseFeedForward, and the conversion of models
    reporting   time, speed and error of each layer
    tuning      measures tiles for the products of a call
    safetensors files of the safetensors format
    checkpoint  the tensors and the configuration of a checkpoint
    formats     stored weights -> layers, and back
    storing     experts and feed-forward blocks in a checkpoint
    loading     a checkpoint -> the weights of a model
    saving      a model with sparse layers -> a checkpoint
"""

from fragmenta.errors import MissingPackage, missing

try:
    import torch as _torch  # noqa: F401 - before what cannot do without it
except (ImportError, OSError) as why:  # OSError: a library of it does not load
    raise MissingPackage(
        f"fragmenta.torch needs PyTorch: {missing('torch', why)}"
    ) from None

from fragmenta.torch.calibration import calibrate
from fragmenta.torch.converting import freeze, linears, pruning_report
from fragmenta.torch.feedforward import SparseFeedForward, feed_forwards
from fragmenta.torch.formats import from_bitmask, to_bitmask
from fragmenta.torch.loading import CheckpointWarning, load_sparse
from fragmenta.torch.matrix import OUTPUTS, TYPES, SparseMatrix
from fragmenta.torch.mixture import SparseExperts, experts, sort_by_expert
from fragmenta.torch.modules import SparseLinear
from fragmenta.torch.products import (
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
from fragmenta.torch.pruning import LayerPruning, PruningReport, PruningWarning
from fragmenta.torch.reporting import (
    BlockReport,
    LayerReport,
    ModelReport,
    report,
)
from fragmenta.torch.running import run
from fragmenta.torch.saving import save_sparse
from fragmenta.torch.stack import SparseStack
from fragmenta.torch.tuning import autotune

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
