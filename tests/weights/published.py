"""The orders of libraries, element by element, as their own code says them.

Everything here is written with loops over lanes, words and slots, and knows nothing of
layouts.  Each function returns words from a matrix of codes.

- Marlin: IST-DASLab/marlin, ``_get_perms`` and ``Layer.pack``; for int8 and for 8-bit
  activations, vLLM's ``get_weight_perm``
- Sparse-Marlin: IST-DASLab/Sparse-Marlin, vLLM's ``get_weight_perm_24``
- AWQ: AutoAWQ's ``order_map``;  GPTQ: AutoGPTQ's ``pack``
- TensorRT-LLM: ``cutlass_preprocessors.cpp``
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[Any]

FOUR, EIGHT = (0, 2, 4, 6, 1, 3, 5, 7), (0, 2, 1, 3)


def words_of(codes: list[int], bits: int) -> list[int]:
    """Codes in the order of memory as words, the first in the lowest bits."""
    per = 32 // bits
    return [
        sum(
            code << (bits * slot)
            for slot, code in enumerate(codes[first : first + per])
        )
        for first in range(0, len(codes), per)
    ]


def interleaved(codes: list[int], order: tuple[int, ...]) -> list[int]:
    found = []
    for first in range(0, len(codes), len(order)):
        found += [codes[first + each] for each in order]
    return found


def marlin(W: Matrix, bits: int) -> Matrix:
    """Tiles of 16 x 64: lane, then four blocks of 16 x 16, then two halves of 8."""
    K, N = W.shape
    rows = []
    for k in range(0, K, 16):
        codes: list[int] = []
        for n in range(0, N, 64):
            for lane in range(32):
                first, column = 2 * (lane % 4), lane // 4
                for block in range(4):
                    for half in (0, 8):
                        for row in (first, first + 1, first + 8, first + 9):
                            at = n + 16 * block + half + column
                            codes.append(int(W[k + row, at]))
        rows.append(words_of(interleaved(codes, FOUR if bits == 4 else EIGHT), bits))
    return np.array(rows, np.uint32)


def marlin_a8(W: Matrix, bits: int) -> Matrix:
    """Tiles of 32 x 32: lane, then two blocks of 32 x 16, then two halves of 8."""
    K, N = W.shape
    codes: list[int] = []
    for k in range(0, K, 32):
        for n in range(0, N, 32):
            for lane in range(32):
                first, column = 4 * (lane % 4), lane // 4
                for block in range(2):
                    for half in (0, 8):
                        for part in (0, 16):
                            for row in range(4):
                                at = n + 16 * block + half + column
                                codes.append(int(W[k + first + part + row, at]))
    order = (0, 4, 1, 5, 2, 6, 3, 7) if bits == 4 else (0, 1, 2, 3)
    return np.array(words_of(interleaved(codes, order), bits), np.uint32)


def sparse_marlin(W: Matrix, bits: int) -> Matrix:
    """Of the stored values; a lane has columns 8 apart from those of the next group."""
    K, N = W.shape
    rows = []
    for k in range(0, K, 16):
        codes: list[int] = []
        for n in range(0, N, 64):
            for lane in range(32):
                first, group = 2 * (lane % 4), lane // 4
                for j in range(4):
                    for half in (0, 4):
                        for row in (first, first + 1, first + 8, first + 9):
                            at = n + 16 * (group // 2) + 8 * (group % 2) + half + j
                            codes.append(int(W[k + row, at]))
        rows.append(words_of(interleaved(codes, FOUR if bits == 4 else EIGHT), bits))
    return np.array(rows, np.uint32)


ROWS_OF_32 = [
    0,
    1,
    8,
    9,
    16,
    17,
    24,
    25,
    2,
    3,
    10,
    11,
    18,
    19,
    26,
    27,
    4,
    5,
    12,
    13,
    20,
    21,
    28,
    29,
    6,
    7,
    14,
    15,
    22,
    23,
    30,
    31,
]
ROWS_OF_16 = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]


def tensorrt_llm(W: Matrix, bits: int) -> Matrix:
    """Rows permuted, transposed, tiles of 64 rows of 4 or 2 columns side by side."""
    K, N = W.shape
    rows = ROWS_OF_32 if bits == 4 else ROWS_OF_16
    each = len(rows)
    permuted = np.stack([W[k // each * each + rows[k % each]] for k in range(K)])
    columns = permuted.T  # N x K
    beside = 4 if bits == 4 else 2
    out = np.zeros(K * N, W.dtype)
    for n in range(N):
        for k in range(K):
            tile = k // 64 * 64
            at = n // beside * K * beside + beside * tile + 64 * (n % beside) + k % 64
            out[at] = columns[n, k]
    order = FOUR if bits == 4 else EIGHT
    return np.array(words_of(interleaved(out.tolist(), order), bits), np.uint32)


def awq(W: Matrix, bits: int) -> Matrix:
    K, N = W.shape
    out = np.zeros((K, N // 8), np.uint32)
    for column in range(N // 8):
        for i, each in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            out[:, column] |= W[:, 8 * column + each].astype(np.uint32) << (bits * i)
    return out


def gptq(W: Matrix, bits: int) -> Matrix:
    K, N = W.shape
    per = 32 // bits
    out = np.zeros((K // per, N), np.uint32)
    for k in range(K):
        out[k // per] |= W[k].astype(np.uint32) << (bits * (k % per))
    return out


def plain(W: Matrix, bits: int) -> Matrix:
    return np.array([words_of(row, bits) for row in W.tolist()], np.uint32)


ORDERS = {
    "marlin": marlin,
    "marlin_a8": marlin_a8,
    "sparse_marlin": sparse_marlin,
    "tensorrt_llm": tensorrt_llm,
    "awq": awq,
    "gptq": gptq,
    "plain": plain,
}

# For each of 64 (or 32) columns in a row, which scale is stored there.
MARLIN_SCALES = [i + 8 * j for i in range(8) for j in range(8)]
MARLIN_CHANNEL = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]
SPARSE_SCALES = [8 * i + j for i in range(8) for j in (0, 4, 1, 5, 2, 6, 3, 7)]


def scales(s: Matrix, order: list[int]) -> Matrix:
    return s.reshape(-1, len(order))[:, order].reshape(s.shape)


def marlin_zeros(zeros: Matrix, bits: int) -> Matrix:
    """The order of group scales, then that in a word, then columns into words."""
    moved = scales(zeros, MARLIN_SCALES)
    order = FOUR if bits == 4 else EIGHT
    rows = [words_of(interleaved(row, order), bits) for row in moved.tolist()]
    return np.array(rows, np.uint32)
