"""A 1-bit and a 4-bit matrix multiplication, written like CUDA kernels.

The kernels below follow CUDA C++ line by line.  Every warp of the grid computes one
8x8 tile of D and steps along k.  Here all warps take each step together, so the index
of a warp is an array, and the pointers computed from it are arrays too.  Pointers
count as in C++: ``A + 1`` on a pointer to words of 32 bits is one word further.

    python examples/wmma_subbyte.py
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from fragmenta import wmma
from fragmenta.reference.registers.words import encode_words

b1 = wmma.experimental.precision.b1
s4 = wmma.experimental.precision.s4

Matrix = NDArray[np.int8]


def bits_kernel(
    D: wmma.pointer, A: wmma.pointer, B: wmma.pointer, M: int, N: int, K: int
) -> None:
    """D[i, j] = the number of k where A[i, k] and B[k, j] are both one.

    ``int* D``, ``const unsigned* A`` (row-major) and ``const unsigned* B``
    (column-major), 32 elements in a word.
    """
    warp = np.arange(M // 8 * (N // 8))
    row, col = warp // (N // 8) * 8, warp % (N // 8) * 8
    warps = warp.size

    a = wmma.fragment(wmma.matrix_a, 8, 8, 128, b1, wmma.row_major, warps=warps)
    b = wmma.fragment(wmma.matrix_b, 8, 8, 128, b1, wmma.col_major, warps=warps)
    c = wmma.fragment(wmma.accumulator, 8, 8, 128, int, warps=warps)

    wmma.fill_fragment(c, 0)
    for k in range(0, K, 128):
        wmma.load_matrix_sync(a, A + (row * K + k) // 32, K)
        wmma.load_matrix_sync(b, B + (col * K + k) // 32, K)
        wmma.bmma_sync(c, a, b, c, wmma.experimental.bmmaBitOpAND)
    wmma.store_matrix_sync(D + row * N + col, c, N, wmma.mem_row_major)


def nibbles_kernel(
    D: wmma.pointer, A: wmma.pointer, B: wmma.pointer, M: int, N: int, K: int
) -> None:
    """D = A B for 4-bit signed integers, 8 in a word."""
    warp = np.arange(M // 8 * (N // 8))
    row, col = warp // (N // 8) * 8, warp % (N // 8) * 8
    warps = warp.size

    a = wmma.fragment(wmma.matrix_a, 8, 8, 32, s4, wmma.row_major, warps=warps)
    b = wmma.fragment(wmma.matrix_b, 8, 8, 32, s4, wmma.col_major, warps=warps)
    c = wmma.fragment(wmma.accumulator, 8, 8, 32, int, warps=warps)

    wmma.fill_fragment(c, 0)
    for k in range(0, K, 32):
        wmma.load_matrix_sync(a, A + (row * K + k) // 8, K)
        wmma.load_matrix_sync(b, B + (col * K + k) // 8, K)
        wmma.mma_sync(c, a, b, c)
    wmma.store_matrix_sync(D + row * N + col, c, N, wmma.mem_row_major)


def words(vectors: Matrix, of: str) -> wmma.pointer:
    """``const unsigned*``: packed rows, one after the other."""
    return wmma.pointer(np.asarray(encode_words(np.ascontiguousarray(vectors), of)))


def multiply_bits(rng: np.random.Generator, M: int, N: int, K: int) -> None:
    """One-bit matrices: the kernel's D is the product of zeros and ones."""
    A = rng.integers(0, 2, (M, K), np.int8)
    B = rng.integers(0, 2, (K, N), np.int8)
    D = np.zeros((M, N), np.int32)
    start = perf_counter()
    bits_kernel(wmma.pointer(D), words(A, "b1"), words(B.T, "b1"), M, N, K)
    report("b1", D, A, B, perf_counter() - start)


def multiply_nibbles(rng: np.random.Generator, M: int, N: int, K: int) -> None:
    """Four-bit matrices, from -8 to 7."""
    A = rng.integers(-8, 8, (M, K), np.int8)
    B = rng.integers(-8, 8, (K, N), np.int8)
    D = np.zeros((M, N), np.int32)
    start = perf_counter()
    nibbles_kernel(wmma.pointer(D), words(A, "s4"), words(B.T, "s4"), M, N, K)
    report("s4", D, A, B, perf_counter() - start)


def report(of: str, D: NDArray[np.int32], A: Matrix, B: Matrix, seconds: float) -> None:
    """Compare with NumPy, and print the result."""
    expected = A.astype(np.int64) @ B.astype(np.int64)
    assert np.array_equal(D, expected)
    (M, K), N = A.shape, B.shape[1]
    warps = M // 8 * (N // 8)
    print(f"{of}: {M} x {N} x {K} by {warps} warps in {seconds:.2f} s, equal to NumPy")


def main() -> None:
    """Both multiplications, a few hundred rows each."""
    rng = np.random.default_rng(7)
    multiply_bits(rng, 256, 320, 1024)
    multiply_nibbles(rng, 320, 256, 512)


if __name__ == "__main__":
    main()
