"""Kernels that prune, compress and decompress millions of chunks.

The kernels (:mod:`fragmenta.base.jit`) take flat arrays of unsigned integers.
A *place* is what a code chooses: one element, or a pair of adjacent elements as one
integer of twice the width.  The kernels have a variable for every place of a chunk
and do not branch, so the compiler can use vector instructions.

Matrices are split into blocks of rows, which threads process in parallel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.once import once
from fragmenta.reference.registers.granularity import Codes, Granularity

if TYPE_CHECKING:  # LLVM is loaded when something is compiled
    from fragmenta.base.jit.compiler import Traced
    from fragmenta.base.jit.trace import Code, Memory, Value

Places = Array

ONE_OF_TWO = Granularity(1, 2)

Lifted = Callable[[int], "Value"]
"""What makes a traced value of a number."""
Chosen = tuple[list["Value"], "Value"]
"""The places that are stored, and their code."""


def prune_chunks(picks: int, keys: Array, places: Places, out: Places) -> None:
    """Keep the places of each chunk with the greatest keys, and clear the others.

    Two of four places are kept, or one of two; of equal keys, the lower place is.

    >>> import numpy as np
    >>> out = np.zeros(4, np.uint8)
    >>> prune_chunks(2, np.uint8([5, 9, 5, 1]), np.uint8([5, 9, 5, 1]), out)
    >>> out
    array([5, 9, 0, 0], dtype=uint8)
    """
    kernel = _prune(picks, keys.dtype, places.dtype)
    kernel(keys, places, out, len(places) // (2 * picks))


def compress_chunks(
    picks: int,
    places: Places,
    value_bits: int | np.generic,
    stored: Places,
    codes: Codes,
) -> None:
    """Store the values of each chunk, and the code of their places.

    A place with none of the ``value_bits`` set is a zero.  Of four places, two are
    stored; if fewer are values, the zero of place 2 is stored too, and then that of
    place 3.  Of two places, the first is stored if it is a value, else the second.
    A chunk with too many values gets the code 0, which is not a legal code.

    >>> import numpy as np
    >>> stored, codes = np.zeros(2, np.uint8), np.zeros(1, np.uint8)
    >>> compress_chunks(2, np.uint8([0, 7, 0, 9]), 255, stored, codes)
    >>> stored, f"{codes[0]:04b}"
    (array([7, 9], dtype=uint8), '1101')
    """
    signed = np.array(value_bits, places.dtype).view(f"i{places.itemsize}")
    _compress(picks, places.dtype)(places, stored, codes, int(signed), len(codes))


def decompress_chunks(picks: int, stored: Places, codes: Codes, out: Places) -> None:
    """Write the stored places of each chunk to their positions, and zeros elsewhere."""
    _decompress(picks, stored.dtype)(stored, codes, out, len(codes))


# ── the kernels ─────────────────────────────────────────────────────────────


@once
def _prune(
    picks: int, keys: np.dtype[np.generic], places: np.dtype[np.generic]
) -> Traced:
    from fragmenta.base.jit.compiler import kernel, pointer, type_of
    from fragmenta.base.jit.trace import I64, compare_unsigned, select

    def beats(one: Value, other: Value) -> Value:
        return compare_unsigned(">", one, other) if keys.kind == "u" else one > other

    @kernel(
        keys=pointer(type_of(keys)),
        places=pointer(type_of(places)),
        out=pointer(type_of(places)),
        chunks=I64,
    )
    def prune_kernel(
        code: Code, keys: Memory, places: Memory, out: Memory, chunks: Value
    ) -> None:
        with code.loop(chunks) as chunk:
            size = 2 * picks
            first = chunk * size
            k = [keys[first + i] for i in range(size)]
            p = [places[first + i] for i in range(size)]
            for i in range(size):
                rivals = [
                    beats(k[j], k[i]) if j > i else ~beats(k[i], k[j])
                    for j in range(size)
                    if j != i
                ]
                out[first + i] = select(_stays(rivals), p[i], 0)

    def _stays(rivals: list[Value]) -> Value:
        """Whether the place is kept: fewer than ``picks`` others have greater keys."""
        if picks == 1:
            return ~rivals[0]
        one, two, three = rivals
        return ~((one & two) | (one & three) | (two & three))

    return prune_kernel


@once
def _compress(picks: int, places: np.dtype[np.generic]) -> Traced:
    from fragmenta.base.jit.compiler import kernel, pointer, type_of
    from fragmenta.base.jit.trace import I8, I64, convert, select

    of = type_of(places)

    def one_of_two(p: list[Value], has: list[Value], code: Lifted) -> Chosen:
        chosen = select(has[0], code(ONE_OF_TWO.code(0)), code(ONE_OF_TWO.code(1)))
        full = has[0] & has[1]
        return [select(has[0], p[0], p[1])], select(full, code(0), chosen)

    def two_of_four(p: list[Value], has: list[Value], code: Lifted) -> Chosen:
        either, both = has[0] | has[1], has[0] & has[1]
        last = has[3] | ~either
        first = select(has[0], p[0], select(has[1], p[1], p[2]))
        second = select(both, p[1], select(last, p[3], p[2]))
        low = select(has[0], code(0), select(has[1], code(1), code(2)))
        high = select(both, code(1), select(last, code(3), code(2)))
        full = (both & (has[2] | has[3])) | (either & has[2] & has[3])
        return [first, second], select(full, code(0), low | high << 2)

    choose = one_of_two if picks == 1 else two_of_four

    @kernel(
        places=pointer(of),
        stored=pointer(of),
        codes=pointer(I8),
        value_bits=I64,
        chunks=I64,
    )
    def compress_kernel(
        code: Code,
        places: Memory,
        stored: Memory,
        codes: Memory,
        value_bits: Value,
        chunks: Value,
    ) -> None:
        bits = convert(value_bits, of)
        with code.loop(chunks) as chunk:
            p = [places[chunk * (2 * picks) + i] for i in range(2 * picks)]
            has = [place & bits != 0 for place in p]
            values, word = choose(p, has, code.constant(0, I8).lift)
            for i, value in enumerate(values):
                stored[chunk * picks + i] = value
            codes[chunk] = word

    return compress_kernel


@once
def _decompress(picks: int, places: np.dtype[np.generic]) -> Traced:
    from fragmenta.base.jit.compiler import kernel, pointer, type_of
    from fragmenta.base.jit.trace import I8, I64, select

    of = type_of(places)

    def one_of_two(s: list[Value], word: Value) -> list[Value]:
        second = word == ONE_OF_TWO.code(1)
        return [select(~second, s[0], 0), select(second, s[0], 0)]

    def two_of_four(s: list[Value], word: Value) -> list[Value]:
        low, high = word & 3, (word >> 2) & 3
        return [
            select(low == i, s[0], 0) | select(high == i, s[1], 0) for i in range(4)
        ]

    place = one_of_two if picks == 1 else two_of_four

    @kernel(stored=pointer(of), codes=pointer(I8), out=pointer(of), chunks=I64)
    def decompress_kernel(
        code: Code, stored: Memory, codes: Memory, out: Memory, chunks: Value
    ) -> None:
        with code.loop(chunks) as chunk:
            values = [stored[chunk * picks + i] for i in range(picks)]
            for i, value in enumerate(place(values, codes[chunk])):
                out[chunk * (2 * picks) + i] = value

    return decompress_kernel


# ── blocks of rows ──────────────────────────────────────────────────────────


def rows_of(matrix: Array) -> Array:
    """The rows of all matrices of a batch, as one matrix.

    >>> rows_of(np.zeros((2, 3, 4))).shape
    (6, 4)
    """
    rows = int(np.prod(matrix.shape[:-1]))
    return matrix.reshape(rows, matrix.shape[-1])


def places_of(rows: Array, group: int) -> Places:
    """Contiguous rows as one flat array of places.

    >>> places_of(np.uint8([[1, 2, 3, 4]]), 2)
    array([ 513, 1027], dtype=uint16)
    """
    return rows.reshape(-1).view(np.dtype(f"u{group * rows.itemsize}"))
