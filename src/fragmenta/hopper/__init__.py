"""Kernels for Hopper GPUs, the only ones that this package brings.

kernels  matrix multiplication with a sparse or a dense A, in CUDA C++
torch    the same in PyTorch: products, layers, checkpoints

No other storey imports them.
"""
