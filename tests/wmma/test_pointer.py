"""Pointers that count as C++ does, and what the default takes of both manuals."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta import wmma
from fragmenta.reference.registers.words import encode_words, pack_words

SUB_BYTE = {"u4": 32, "s4": 32, "b1": 128}


def a_of(of, **options):
    k = SUB_BYTE.get(of, 16)
    m = 8 if of in SUB_BYTE else 16
    return wmma.fragment(wmma.matrix_a, m, m, k, of, wmma.row_major, **options)


def counting(dtype, size=4096):
    """Memory in which each byte differs from its neighbours."""
    return np.random.default_rng(0).integers(0, 256, size, np.uint8).view(dtype)


@pytest.mark.parametrize("of", SUB_BYTE)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int32, np.uint64])
def test_a_pointer_counts_items_and_an_offset_elements(of, dtype):
    """`A + n` on const unsigned* is n words further, whatever is packed in them."""
    A = counting(dtype)
    a, b, c = a_of(of), a_of(of), a_of(of)
    ldm = SUB_BYTE[of] * 4
    bits = fm.dtype(of).bits
    for words in (0, 1, 3, 8, 64):
        items = words * 4 // A.itemsize
        if words * 4 % A.itemsize:
            continue
        wmma.load_matrix_sync(a, wmma.pointer(A) + items, ldm)
        wmma.load_matrix_sync(b, A, ldm, offset=items * A.itemsize * 8 // bits)
        wmma.load_matrix_sync(c, A.view(np.uint8)[4 * words :], ldm)
        assert (a.x == b.x).all()
        assert (a.x == c.x).all()
    wmma.load_matrix_sync(b, A, ldm, offset=64 // bits * 4)
    wmma.load_matrix_sync(a, wmma.pointer(A), ldm)
    assert (a.x != b.x).any()


@pytest.mark.parametrize(
    ("of", "dtype"),
    [("half", np.float16), ("signed char", np.int8), ("bf16", np.uint16)],
)
def test_from_a_byte_on_the_two_agree(of, dtype):
    A = np.arange(2048).astype(dtype)
    a, b = a_of(of), a_of(of)
    wmma.load_matrix_sync(a, wmma.pointer(A) + 256, 16)
    wmma.load_matrix_sync(b, A, 16, offset=256)
    assert (a.x == b.x).all()


def test_raw_bytes_are_counted_as_bytes():
    A = np.arange(2048, dtype=np.float16)
    a, b = a_of("half"), a_of("half")
    wmma.load_matrix_sync(a, wmma.pointer(A.view(np.uint8)) + 512, 16)
    wmma.load_matrix_sync(b, wmma.pointer(A.tobytes()) + 512, 16)
    assert (a.x == b.x).all()
    assert a.x[0, 0] == 256


def test_pointer_arithmetic():
    A = np.zeros(64, np.uint32)
    p = wmma.pointer(A)
    warp = np.arange(4)
    for each in (p + 8 * warp, 8 * warp + p, p + 8 + (8 * warp - 8), p - -8 * warp):
        assert each.memory is A
        assert each.index.tolist() == [0, 8, 16, 24]
    assert repr(p + 8) == "<pointer to uint32 + 8>"
    assert (p + np.uint8(200) + np.uint8(200)).index == 400
    for wrong in (1.0, "1", None, True, p, 1 << 60, np.uint64(1 << 63)):
        with pytest.raises(fm.Error):
            p + wrong
    with pytest.raises(fm.Error, match="two pointers cannot be subtracted"):
        p - p
    with pytest.raises(fm.Error, match="into an array or bytes; given list"):
        wmma.pointer([1, 2])


def test_the_place_is_said_once():
    A = np.zeros(1024, np.uint32)
    a = a_of("s4")
    with pytest.raises(fm.Error, match="give only one"):
        wmma.load_matrix_sync(a, wmma.pointer(A) + 8, 32, offset=64)
    wmma.load_matrix_sync(a, wmma.pointer(A) + 8, 32, offset=0)


def test_a_pointer_that_is_wrong_is_named_as_it_was_written():
    A = np.zeros(64, np.uint32)
    a = a_of("s4")
    with pytest.raises(wmma.OutOfBounds, match="elements 264 to 519 of memory"):
        wmma.load_matrix_sync(a, wmma.pointer(A) + 33, 32)
    with pytest.raises(wmma.OutOfBounds, match="elements -8 to 247"):
        wmma.load_matrix_sync(a, wmma.pointer(A) - 1, 32)
    with pytest.raises(wmma.AlignmentError, match=r"pointer \+ 2 \(uint8\) is 2 bytes"):
        wmma.load_matrix_sync(a, wmma.pointer(A.view(np.uint8)) + 2, 32)
    with pytest.raises(
        fm.errors.ShapeError, match=r"pointer must have the shape .* given \(3,\)"
    ):
        wmma.load_matrix_sync(
            a_of("s4", warps=4), wmma.pointer(A) + 8 * np.arange(3), 32
        )
    with pytest.raises(wmma.OutOfBounds, match="offset must be within memory"):
        wmma.load_matrix_sync(a, A, 32, offset=1 << 61)
    with pytest.raises(wmma.OutOfBounds):
        wmma.load_matrix_sync(a, A, 1 << 62)


def test_stores_take_pointers_too():
    c = wmma.fragment(wmma.accumulator, 8, 8, 32, int, warps=2)
    wmma.fill_fragment(c, 5)
    D = np.zeros((8, 16), np.int32)
    there = wmma.pointer(D) + 8 * np.arange(2)
    wmma.store_matrix_sync(there, c, 16, wmma.mem_row_major)
    assert (D == 5).all()


@hypothesis.given(st.data())
def test_a_view_may_begin_between_two_words(data):
    """Against plain slicing of bytes; the first byte of the owner is aligned."""
    of = data.draw(st.sampled_from([*SUB_BYTE, "half", "signed char"]))
    k, bits = (
        SUB_BYTE.get(of, 16),
        fm.dtype({"half": "f16", "signed char": "s8"}.get(of, of)).bits,
    )
    rows = 8 if of in SUB_BYTE else 16
    owner = np.random.default_rng(1).integers(0, 256, 2048, np.uint8)
    step = 1 if of in SUB_BYTE or bits == 16 else 2
    first = data.draw(st.integers(0, 40))
    view = owner[first : data.draw(st.integers(first, 2048))]
    start = data.draw(st.integers(0, 128).map(lambda n: n * step))
    a = a_of(of)
    memory = view if of != "signed char" else view.view(np.int8)
    row = k * bits // 8
    ldm = data.draw(st.sampled_from([1, 2])) * 32 * 8 // bits
    end = start + (rows - 1) * ldm * bits // 8 + row
    size = a.registers.shape[-1] * 4
    legal = (first + start) % size == 0 and end <= view.size
    if not legal:
        with pytest.raises(fm.errors.ShapeError):
            wmma.load_matrix_sync(a, wmma.pointer(memory) + start, ldm)
        return
    wmma.load_matrix_sync(a, wmma.pointer(memory) + start, ldm)
    lines = [owner[first + start + r * ldm * bits // 8 :][:row] for r in range(rows)]
    whole = np.ascontiguousarray(lines)
    b = a_of(of)
    wmma.load_matrix_sync(b, whole if of != "signed char" else whole.view(np.int8), k)
    assert (a.registers == b.registers).all()


def test_an_offset_into_a_view_counts_from_its_first_byte():
    """Two bytes before the next word of the owner, and four elements from there."""
    owner = np.arange(256, dtype=np.uint8)
    a = a_of("s4")
    wmma.load_matrix_sync(a, owner[2:], 32, offset=4)
    assert a.x[0, 0] == 0x07060504


# ── a program as the guide's readers write it ───────────────────────────────


@pytest.mark.parametrize("of", SUB_BYTE)
@pytest.mark.parametrize("rules", [None, "either", "ptx"])
def test_a_plain_row_major_program_runs_as_it_is_written(of, rules):
    """Every second step along k begins at an odd multiple of 16 bytes."""
    M = N = 16
    k = SUB_BYTE[of]
    K = 4 * k
    low, high = {"u4": (0, 16), "s4": (-8, 8), "b1": (0, 2)}[of]
    rng = np.random.default_rng(4)
    left, right = rng.integers(low, high, (M, K)), rng.integers(low, high, (K, N))
    A = wmma.pointer(encode_words(left, of))  # const unsigned* A
    B = wmma.pointer(encode_words(right.T, of))
    D = np.zeros((M, N), np.int32)
    per_word = 32 // fm.dtype(of).bits

    warp = np.arange(4)
    row, col = warp // 2 * 8, warp % 2 * 8
    a = wmma.fragment(wmma.matrix_a, 8, 8, k, of, wmma.row_major, warps=4)
    b = wmma.fragment(wmma.matrix_b, 8, 8, k, of, wmma.col_major, warps=4)
    c = wmma.fragment(wmma.accumulator, 8, 8, k, int, warps=4)
    wmma.fill_fragment(c, 0)
    with wmma.target("sm_80", **({"rules": rules} if rules else {})):
        for i in range(0, K, k):
            wmma.load_matrix_sync(a, A + row * K // per_word + i // per_word, K)
            wmma.load_matrix_sync(b, B + col * K // per_word + i // per_word, K)
            if of == "b1":
                AND = wmma.experimental.bmmaBitOpAND
                wmma.bmma_sync(c, a, b, c, AND)
            else:
                wmma.mma_sync(c, a, b, c)
        there = wmma.pointer(D) + row * N + col
        wmma.store_matrix_sync(there, c, N, wmma.mem_row_major)
    assert (left @ right == D).all()
    with (
        wmma.target("sm_80", rules="guide"),
        pytest.raises(wmma.AlignmentError, match="16 bytes into memory"),
    ):
        wmma.load_matrix_sync(a, A + k // per_word, K)


def test_the_default_takes_what_either_manual_takes():
    """Of half the guide asks for less, of 4 bits the PTX manual."""
    a = a_of("half")
    A = np.zeros(1024, np.float16)
    wmma.load_matrix_sync(a, A, 24)
    with wmma.target("sm_90", rules="ptx"), pytest.raises(wmma.AlignmentError):
        wmma.load_matrix_sync(a, A, 24)
    s4 = a_of("s4")
    words = pack_words(np.zeros((8, 256), np.uint8), 4, 32)
    wmma.load_matrix_sync(s4, words, 40, offset=8)
    with wmma.target("sm_90", rules="guide"), pytest.raises(wmma.AlignmentError):
        wmma.load_matrix_sync(s4, words, 40)
