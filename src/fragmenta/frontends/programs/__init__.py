"""Runs whole programs: the CUDA runtime and driver that a program sees."""
