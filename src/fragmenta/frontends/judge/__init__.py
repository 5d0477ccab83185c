"""Judges kernels that machines write; its names are in :mod:`fragmenta.judge`."""
