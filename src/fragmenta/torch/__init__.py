"""How does a PyTorch program use a sparse weight?

    compress        a weight -> SparseMatrix: pruned, compressed, packed
    sparse_mm       D = A B, with a sparse A
    sparse_linear   y = x W^T + bias, with a sparse W
    dense_mm        the same kernels with a dense A
    binary_mm       how many bits two rows share, or differ in
    autotune        measure the tiles of a call's products, keep the fastest
    SparseLinear    torch.nn.Linear with a sparse weight
    linears         every torch.nn.Linear of a model -> SparseLinear

On a Hopper GPU these are one kernel each, on the caller's stream; anywhere else
the same bits are computed by emulation, slowly.  All are ``torch.library``
operators, so that ``torch.compile`` and CUDA graphs take them.

    matrix      what is a sparse matrix here?
    running     how does a product of tensors run?
    request     which product is asked for, and is there a kernel for it?
    operators   how does PyTorch know the products?
    products    what can be called?
    modules     what can stand in a model?
    tuning      which tiles are the fastest here, for these calls?
"""

from fragmenta.torch.matrix import OUTPUTS, TYPES, SparseMatrix
from fragmenta.torch.modules import SparseLinear, linears
from fragmenta.torch.products import (
    binary_mm,
    compress,
    dense_mm,
    sparse_linear,
    sparse_mm,
)
from fragmenta.torch.running import run
from fragmenta.torch.tuning import autotune

__all__ = [
    "OUTPUTS",
    "TYPES",
    "SparseLinear",
    "SparseMatrix",
    "autotune",
    "binary_mm",
    "compress",
    "dense_mm",
    "linears",
    "run",
    "sparse_linear",
    "sparse_mm",
]
