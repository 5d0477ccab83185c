"""Runs instructions and kernels on a GPU, records its answers and compares them."""
