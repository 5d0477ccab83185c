"""Which kind of file has kernels, by its suffix or by what is in it."""

from __future__ import annotations

from pathlib import Path

SOURCES = frozenset({".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".inl"})
"""The suffixes of CUDA C++."""


def is_source(path: str | Path, data: bytes = b"") -> bool:
    """Whether a file is CUDA C++, by its suffix or by what is in it.

    >>> is_source("scale.cu"), is_source("scale.ptx")
    (True, False)
    """
    return Path(path).suffix.lower() in SOURCES or (
        b"__global__" in data and b".version" not in data
    )


NO_KERNEL = (
    "CUDA C++ marks one with __global__, PTX with .entry, and of a template those "
    "instances are compiled that are launched or named, such as 'scale<float>'"
)
