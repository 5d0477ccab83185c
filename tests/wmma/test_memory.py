"""Loads and stores reach the right elements, and no others."""

from __future__ import annotations

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta import wmma
from fragmenta.reference.registers.words import encode_words, pack_words
from tests.thinning import repeats
from tests.wmma.fragments import (
    ACCUMULATORS,
    EXTENDED,
    FRAGMENTS,
    GUIDE,
    image,
    memory_layouts,
    part_of,
    random_bits,
    raw,
    shortest,
)

# ── loads and stores ────────────────────────────────────────────────────────


# Every fragment; how it lies in memory takes turns.
@repeats(together=1)
@pytest.mark.parametrize("longer", [0, 1, 2, 5])
@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_loading_puts_each_element_where_the_layout_says(frag, longer):
    part, of = part_of(frag), frag.element_type
    bits = random_bits(of, part.shape, longer)
    for major, told in memory_layouts(frag):
        least, step = shortest(frag, major)
        before = 256 // of.bits * longer
        ldm = least + longer * step
        memory = raw(image(bits, major, ldm, of, before), of)
        wmma.load_matrix_sync(frag, memory, ldm, told, offset=before)
        assert (frag.registers == part.pack(of.decode(bits))).all()
        assert (part.unpack_bits(frag.registers) == bits).all()


@pytest.mark.parametrize("longer", [0, 1, 3])
@pytest.mark.parametrize("frag", ACCUMULATORS, ids=str)
def test_what_is_stored_is_what_was_loaded(frag, longer):
    """Through every pair of layouts, with other leading dimensions, gaps kept."""
    part, of = part_of(frag), frag.element_type
    bits = random_bits(of, part.shape, 7)
    for major, told in memory_layouts(frag):
        least, step = shortest(frag, major)
        memory = raw(image(bits, major, least + step, of), of)
        wmma.load_matrix_sync(frag, memory, least + step, told)
        for other, mem in memory_layouts(frag):
            least, step = shortest(frag, other)
            ldm = least + longer * step
            expected = image(bits, other, ldm, of, 256 // of.bits, 3)
            stored = np.full_like(expected, of.mask)
            wmma.store_matrix_sync(
                raw(stored, of), frag, ldm, mem, offset=256 // of.bits
            )
            assert (stored == expected).all()


def test_memory_of_two_dimensions_in_either_order():
    C = np.arange(256, dtype=np.float32).reshape(16, 16)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    wmma.load_matrix_sync(c, C, 16, wmma.mem_row_major)
    fortran = np.zeros((16, 16), np.float32, order="F")
    wmma.store_matrix_sync(fortran, c, 16, wmma.mem_col_major)
    assert (fortran == C).all()
    wmma.load_matrix_sync(c, C.T, 16, wmma.mem_col_major)
    back = np.zeros((16, 16), np.float32)
    wmma.store_matrix_sync(back, c, 16, wmma.mem_row_major)
    assert (back == C.T).all()


@pytest.mark.parametrize("of", ["f16", "bf16", "tf32", "f64", "f32", "s32"])
def test_raw_bits_and_bytes_are_memory_too(of):
    use = wmma.accumulator if of in ("f32", "s32") else wmma.matrix_a
    frag = next(f for f in FRAGMENTS if f.element_type.name == of and f.use is use)
    part, dt = part_of(frag), frag.element_type
    bits = random_bits(dt, part.shape)
    major, told = memory_layouts(frag)[0]
    ldm, _ = shortest(frag, major)
    memory = image(bits, major, ldm, dt)
    views = (
        memory,
        memory.view(np.uint8),
        memory.tobytes(),
        memoryview(memory.tobytes()),
    )
    for each in views:
        wmma.load_matrix_sync(frag, each, ldm, told)
        assert (part.unpack_bits(frag.registers) == bits).all()


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int32])
def test_packed_memory_in_words_of_any_size(kind):
    A = np.random.default_rng(3).integers(-8, 8, (8, 32))
    a = wmma.fragment(wmma.matrix_a, 8, 8, 32, "s4", wmma.row_major)
    wmma.load_matrix_sync(a, encode_words(A, "s4").view(kind), 32)
    assert (part_of(a).unpack(a.registers).astype(int) == A).all()


@pytest.mark.parametrize(
    ("of", "memory", "says"),
    [
        ("f16", np.zeros(256, np.float32), "float16, or raw bits as uint16 or uint8"),
        ("f16", np.zeros(256, np.int16), "does not hold half"),
        ("s8", np.zeros(256, np.uint8), "signed char; it takes int8"),
        ("u8", np.zeros(256, np.int8), "unsigned char; it takes uint8"),
        ("bf16", np.zeros(256, np.float16), "does not hold __nv_bfloat16"),
        ("bf16", np.zeros(256, ">u2"), "does not hold __nv_bfloat16"),
    ],
)
def test_memory_of_another_type_is_refused(of, memory, says):
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, of, wmma.row_major)
    with pytest.raises(fm.errors.UnknownType, match=says):
        wmma.load_matrix_sync(a, memory, 16)


@pytest.mark.parametrize("kind", [np.int8, ml_dtypes.int4, np.int64, np.float32, bool])
def test_unpacked_memory_is_refused_for_packed_types(kind):
    a = wmma.fragment(wmma.matrix_a, 8, 8, 32, "s4", wmma.row_major)
    with pytest.raises(fm.errors.UnknownType, match="encode_words"):
        wmma.load_matrix_sync(a, np.zeros((8, 32), kind), 32)


def test_what_is_no_memory():
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(
        fm.Error, match="memory must be a NumPy array or bytes; given list"
    ):
        wmma.load_matrix_sync(a, [0.0] * 256, 16)
    with pytest.raises(fm.errors.ShapeError, match="must be contiguous"):
        wmma.load_matrix_sync(a, np.zeros((16, 32), np.float16)[:, :16], 32)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    wmma.fill_fragment(c, 0)
    fixed = np.zeros(256, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(fm.Error, match="read-only"):
        wmma.store_matrix_sync(fixed, c, 16, wmma.mem_row_major)
    with pytest.raises(fm.Error, match="read-only"):
        wmma.store_matrix_sync(bytes(1024), c, 16, wmma.mem_row_major)
    with pytest.raises(fm.Error, match="only an accumulator can be stored"):
        wmma.store_matrix_sync(fixed, a, 16, wmma.mem_row_major)
    buffer = bytearray(1024)
    wmma.fill_fragment(c, 1.0)
    wmma.store_matrix_sync(buffer, c, 16, wmma.mem_row_major)
    assert (np.frombuffer(buffer, np.float32) == 1).all()


# ── alignment ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_leading_dimensions_of_the_guide(frag):
    of = frag.element_type
    step = (GUIDE | EXTENDED)[of.name]
    assert step * of.bits == 128
    memory = raw(np.zeros(40 * 256 * 8 * max(8, of.bits) // 64, of.bits_dtype), of)
    for major, told in memory_layouts(frag):
        rows, cols = part_of(frag).shape
        inner = cols if major == "row" else rows
        with wmma.target("sm_90", rules="guide"):
            for ldm in range(inner, inner + 2 * step + 1):
                if ldm % step:
                    wanted = f"multiple of 16 bytes, {step} elements"
                    with pytest.raises(wmma.AlignmentError, match=wanted):
                        wmma.load_matrix_sync(frag, memory, ldm, told)
                else:
                    wmma.load_matrix_sync(frag, memory, ldm, told)
        with pytest.raises(fm.errors.ShapeError, match="ldm must be at least"):
            wmma.load_matrix_sync(frag, memory, inner - 1, told)


@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_pointers_of_the_guide_are_256_bit_aligned(frag):
    of = frag.element_type
    memory = raw(np.zeros(16 << 10, of.bits_dtype), of)
    major, told = memory_layouts(frag)[0]
    ldm, _ = shortest(frag, major)
    with wmma.target("sm_90", rules="guide"):
        for offset in range(0, 2 * 256 // of.bits + 1, max(1, 32 // of.bits)):
            if offset * of.bits % 256:
                with pytest.raises(wmma.AlignmentError, match=r"32 bytes \(256 bits"):
                    wmma.load_matrix_sync(frag, memory, ldm, told, offset=offset)
            else:
                wmma.load_matrix_sync(frag, memory, ldm, told, offset=offset)


@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_the_rules_of_ptx_go_by_the_size_of_the_fragment(frag):
    of, part = frag.element_type, part_of(frag)
    size = part.registers * part.register_bits // 8
    step = size * 8 // of.bits
    memory = raw(np.zeros(64 << 10, of.bits_dtype), of)
    major, told = memory_layouts(frag)[0]
    inner = part.shape[1] if major == "row" else part.shape[0]
    least = -(-inner // step) * step
    with wmma.target("sm_90a", rules="ptx"):
        wmma.load_matrix_sync(frag, memory, least, told, offset=step)
        wmma.load_matrix_sync(frag, memory, least + step, told)
        if step > 1:
            with pytest.raises(wmma.AlignmentError, match=f"multiple of {size} bytes"):
                wmma.load_matrix_sync(frag, memory, least + 1, told)
            with pytest.raises(wmma.AlignmentError, match=f"multiple of {size} bytes"):
                wmma.load_matrix_sync(frag, memory, least, told, offset=1)


def test_a_view_is_a_pointer_into_the_array_that_owns_it():
    A = np.arange(1024, dtype=np.float16)
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    wmma.load_matrix_sync(a, A[64:], 16)
    b = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    wmma.load_matrix_sync(b, A, 16, offset=64)
    assert (a.x == b.x).all()
    with pytest.raises(wmma.AlignmentError, match="16 bytes into memory"):
        wmma.load_matrix_sync(a, A[8:], 16)
    wmma.load_matrix_sync(a, A[8:], 16, offset=8)
    with pytest.raises(wmma.OutOfBounds):  # the view ends, though its owner goes on
        wmma.load_matrix_sync(a, A[:255], 16)


@pytest.mark.parametrize("ldm", [16.0, True, "16", None, np.float32(16)])
def test_a_leading_dimension_is_a_whole_number(ldm):
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(fm.errors.ShapeError, match="whole number"):
        wmma.load_matrix_sync(a, np.zeros(512, np.float16), ldm)


@pytest.mark.parametrize("offset", [1.5, "0", [0, 16]])
def test_offsets_are_whole_numbers_one_for_each_warp(offset):
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(fm.errors.ShapeError, match="offset"):
        wmma.load_matrix_sync(a, np.zeros(512, np.float16), 16, offset=offset)


# ── bounds ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_the_last_element_may_be_the_end_of_memory(frag):
    """Exactly enough memory is enough; one byte less is not."""
    of, part = frag.element_type, part_of(frag)
    for major, told in memory_layouts(frag):
        least, step = shortest(frag, major)
        ldm = least + step
        rows, inner = part.shape if major == "row" else part.shape[::-1]
        needed = ((rows - 1) * ldm + inner) * of.bits // 8
        memory = np.zeros(needed, np.uint8)
        view = memory if of.bits != 8 else memory.view(of.storage)
        wmma.load_matrix_sync(frag, view, ldm, told)
        before = frag.x.copy()
        short = view[:-1]
        short[...] = 1
        with pytest.raises(wmma.OutOfBounds, match="load_matrix_sync would access"):
            wmma.load_matrix_sync(frag, short, ldm, told)
        assert (frag.x == before).all()


@pytest.mark.parametrize("frag", ACCUMULATORS, ids=str)
def test_a_store_outside_memory_writes_nothing(frag):
    of = frag.element_type
    wmma.fill_fragment(frag, 1)
    for major, told in memory_layouts(frag):
        ldm, step = shortest(frag, major)
        rows, cols = part_of(frag).shape
        count = (rows if major == "row" else cols) * ldm
        memory = np.zeros(count, of.storage)
        aligned = 256 // of.bits
        for offset in (aligned, -aligned, 1 << 40):
            with pytest.raises(
                wmma.OutOfBounds, match="store_matrix_sync would access"
            ):
                wmma.store_matrix_sync(memory, frag, ldm, told, offset=offset)
        with pytest.raises(wmma.OutOfBounds):
            wmma.store_matrix_sync(memory, frag, ldm + 64 * step, told)
        assert not memory.any()


def test_one_warp_outside_stops_all():
    c = wmma.fragment(wmma.accumulator, 8, 8, 32, int, warps=3)
    wmma.fill_fragment(c, 1)
    memory = np.zeros(128, np.int32)
    with pytest.raises(wmma.OutOfBounds, match="elements 128 to 191"):
        wmma.store_matrix_sync(memory, c, 8, wmma.mem_row_major, offset=[0, 64, 128])
    assert not memory.any()


def test_warps_may_not_write_the_same_element():
    c = wmma.fragment(wmma.accumulator, 8, 8, 32, int, warps=2)
    wmma.fill_fragment(c, 1)
    memory = np.zeros(256, np.int32)
    with pytest.raises(fm.Error, match="several warps would write element 8"):
        wmma.store_matrix_sync(memory, c, 8, wmma.mem_row_major, offset=[0, 8])
    assert not memory.any()
    # side by side, rows interleaved: no element twice
    wmma.store_matrix_sync(memory, c, 16, wmma.mem_row_major, offset=[0, 8])
    assert memory.sum() == 128


@settings(max_examples=150, deadline=None)
@hypothesis.given(st.data())
def test_any_pointer_is_right_or_refused(data):
    """Against plain slicing: the same elements, or an error and no change."""
    frag = data.draw(st.sampled_from(FRAGMENTS))
    of, part = frag.element_type, part_of(frag)
    major, told = data.draw(st.sampled_from(memory_layouts(frag)))
    rows, inner = part.shape if major == "row" else part.shape[::-1]
    ldm = data.draw(st.integers(0, 3 * inner))
    offset = data.draw(st.integers(-64, 2048))
    bits = random_bits(of, 4096, 5)
    memory = raw(np.ascontiguousarray(pack_words(bits, of.bits, max(8, of.bits))), of)
    rules = data.draw(st.sampled_from(["guide", "ptx", "either", None]))
    size = part.registers * part.register_bits
    manuals = {"guide": (256, 128), "ptx": (size, size)}
    legal = (
        ldm >= inner
        and any(
            ldm * of.bits % step == 0 and offset * of.bits % pointer == 0
            for manual, (pointer, step) in manuals.items()
            if rules in (manual, "either", None)
        )
        and 0 <= offset <= 4096 - ((rows - 1) * ldm + inner)
    )
    before = frag.x.copy()
    with wmma.target("sm_90", **({"rules": rules} if rules else {})):
        if not legal:
            with pytest.raises(fm.errors.ShapeError):
                wmma.load_matrix_sync(frag, memory, ldm, told, offset=offset)
            assert frag.x.tobytes() == before.tobytes()
            return
        wmma.load_matrix_sync(frag, memory, ldm, told, offset=offset)
    index = offset + np.arange(rows)[:, None] * ldm + np.arange(inner)
    expected = bits[index] if major == "row" else bits[index].T
    assert (part.unpack_bits(frag.registers) == expected).all()
