"""Sparse weights in PyTorch; its names are in :mod:`fragmenta.torch`.

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
