"""Runs Triton kernels without a GPU; its names are in :mod:`fragmenta.triton`."""
