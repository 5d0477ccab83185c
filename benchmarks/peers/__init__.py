"""Compares fragmenta with what people use instead, on the same problems.

``make bench-peers`` runs it: Triton's interpreter, MMA-Sim, the CUDA simulator of
numba-cuda, and NumPy in f32.  Each tool runs in a process of its own.
"""
