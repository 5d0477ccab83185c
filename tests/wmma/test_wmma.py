"""The wmma API: its rules, its memory, its storage, and its numbers."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta import wmma
from fragmenta.isa.families import catalogue
from fragmenta.isa.tables import wmma as table
from fragmenta.registers.dtype import DTYPES
from fragmenta.registers.words import encode_words, pack_words

ROOT = Path(__file__).resolve().parents[2]

BY_CUDA = {
    "half": "f16", "__half": "f16", "__nv_bfloat16": "bf16", "float": "f32",
    "double": "f64", "signed char": "s8", "unsigned char": "u8", "int": "s32",
    "precision::tf32": "tf32", "experimental::precision::u4": "u4",
    "experimental::precision::s4": "s4", "experimental::precision::b1": "b1",
}  # fmt: skip

# Elements per lane of a, b and accumulator, as the guide's header declares them.
ELEMENTS = """
f16  | 16 16 16 | 16 16 8 | f16 f32
f16  | 32 8 16  | 16 16 8 | f16 f32
f16  | 8 32 16  | 16 16 8 | f16 f32
bf16 | 16 16 16 | 8 8 8   | f32
bf16 | 32 8 16  | 16 4 8  | f32
bf16 | 8 32 16  | 4 16 8  | f32
s8   | 16 16 16 | 8 8 8   | s32
s8   | 32 8 16  | 16 4 8  | s32
s8   | 8 32 16  | 4 16 8  | s32
u8   | 16 16 16 | 8 8 8   | s32
u8   | 32 8 16  | 16 4 8  | s32
u8   | 8 32 16  | 4 16 8  | s32
tf32 | 16 16 8  | 4 4 8   | f32
f64  | 8 8 4    | 1 1 2   | f64
u4   | 8 8 32   | 8 8 2   | s32
s4   | 8 8 32   | 8 8 2   | s32
b1   | 8 8 128  | 32 32 2 | s32
"""
ROWS = [
    (of, tuple(map(int, shape.split())), tuple(map(int, counts.split())), accs.split())
    for of, shape, counts, accs in (
        [cell.strip() for cell in line.split("|")]
        for line in ELEMENTS.strip().splitlines()
    )
]
SUB_BYTE = {"u4": (np.uint32, 8), "s4": (np.int32, 8), "b1": (np.uint32, 32)}


def layouts(of, use):
    """The layouts that a fragment of a multiplicand may have."""
    if of in SUB_BYTE:
        return [wmma.row_major if use is wmma.matrix_a else wmma.col_major]
    return [wmma.row_major, wmma.col_major]


def every_fragment(**options):
    """One of each: use, shape, type and layout."""
    for of, shape, _, accumulators in ROWS:
        for use in (wmma.matrix_a, wmma.matrix_b):
            for layout in layouts(of, use):
                yield wmma.fragment(use, *shape, of, layout, **options)
        for each in accumulators:
            yield wmma.fragment(wmma.accumulator, *shape, each, **options)


FRAGMENTS = list(every_fragment())
ACCUMULATORS = {
    str(frag): frag for frag in FRAGMENTS if frag.use is wmma.accumulator
}.values()


def memory_layouts(frag):
    """(row or col, what load_matrix_sync is told)."""
    if frag.memory_layout is None:
        return [("row", wmma.mem_row_major), ("col", wmma.mem_col_major)]
    return [(frag.memory_layout.value, None)]


def part_of(frag):
    """The fragment as the instruction table has it."""
    return table.fragment(frag.use.value, str(frag.shape), frag.element_type.name)


def random_bits(of, shape, seed=0):
    words = np.random.default_rng(seed).integers(0, 1 << 63, shape, np.uint64)
    return (words & np.uint64(of.mask)).astype(of.bits_dtype)


def shortest(frag, major):
    """The shortest leading dimension that the guide allows, and its step."""
    rows, cols = part_of(frag).shape
    step = 128 // frag.element_type.bits
    return -(-(cols if major == "row" else rows) // step) * step, step


def image(bits, major, ldm, of, before=0, after=0):
    """A memory image of one matrix, by slices; ones in every other place."""
    leading = bits if major == "row" else bits.T
    memory = np.full((len(leading), ldm), of.mask, of.bits_dtype)
    memory[:, : leading.shape[1]] = leading
    ends = [np.full(n, of.mask, of.bits_dtype) for n in (before, after)]
    flat = np.concatenate([ends[0], memory.ravel(), ends[1]])
    return np.ascontiguousarray(pack_words(flat, of.bits, max(8, of.bits)))


def raw(memory, of):
    """An image as NumPy memory that the fragment takes."""
    return memory if of.bits < 8 else memory.view(of.storage)


# ── storage ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_elements_per_lane(row):
    of, shape, (a, b, c), accumulators = row
    for layout in layouts(of, wmma.matrix_a):
        assert wmma.fragment(wmma.matrix_a, *shape, of, layout).num_elements == a
    for layout in layouts(of, wmma.matrix_b):
        assert wmma.fragment(wmma.matrix_b, *shape, of, layout).num_elements == b
    for each in accumulators:
        assert wmma.fragment(wmma.accumulator, *shape, each).num_elements == c


@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_storage_mapping(frag):
    of = frag.element_type.name
    kind, packed = SUB_BYTE.get(of, (DTYPES[of].storage, 1))
    assert frag.storage_element_type == kind
    assert frag.num_storage_elements * packed == frag.num_elements
    assert frag.x.shape == (32, frag.num_storage_elements)
    assert frag.x.dtype == kind
    part = part_of(frag)
    assert frag.registers.shape == (part.lanes, part.registers)
    assert np.shares_memory(frag.registers, frag.x)


def test_the_table_has_every_fragment_of_the_catalogue():
    known = {
        (f.use.value.lower(), str(f.shape), f.element_type.name) for f in FRAGMENTS
    }
    loads = {
        (op.values["operand"], op.values["shape"], op.values["type"])
        for op in catalogue("wmma.load")
    }
    assert known == loads


@pytest.mark.parametrize(("name", "of"), BY_CUDA.items())
def test_cuda_names(name, of):
    use = wmma.accumulator if of in ("f32", "s32") else wmma.matrix_a
    shape = next(
        s
        for t, s, _, accs in ROWS
        if of == t or (use is wmma.accumulator and of in accs)
    )
    layout = None if use is wmma.accumulator else wmma.row_major
    for spelled in (name, f"wmma::{name}", of, DTYPES[of]):
        assert wmma.fragment(use, *shape, spelled, layout).element_type.name == of


def test_types_as_python_and_numpy_objects():
    for given, of in (
        (float, "f32"), (int, "s32"), (np.float32, "f32"), (np.int32, "s32"),
        (np.dtype(np.float16), "f16"), (wmma.half, "f16"),
    ):  # fmt: skip
        frag = wmma.fragment(wmma.accumulator, 16, 16, 16, given)
        assert frag.element_type.name == of
    for given, of in (
        (ml_dtypes.bfloat16, "bf16"), (np.int8, "s8"), (np.uint8, "u8"),
        (wmma.nv_bfloat16, "bf16"), (wmma.signed_char, "s8"),
        (wmma.unsigned_char, "u8"),
    ):  # fmt: skip
        frag = wmma.fragment(wmma.matrix_a, 16, 16, 16, given, wmma.row_major)
        assert frag.element_type.name == of
    assert wmma.fragment(wmma.accumulator, 8, 8, 4, wmma.double).num_elements == 2


@pytest.mark.parametrize("given", [None, "char", "e4m3", bool, "float8", 3.5, [1]])
def test_other_types_are_refused(given):
    with pytest.raises(fm.UnknownType, match="no fragment has elements of"):
        wmma.fragment(wmma.accumulator, 16, 16, 16, given)


def test_the_words_of_the_guide():
    bits = wmma.experimental
    assert (bits.bmmaBitOpXOR, bits.bmmaBitOpAND, bits.bmmaAccumulateOpPOPC) == (
        1,
        2,
        1,
    )
    assert [bits.precision.u4.bits, bits.precision.s4.bits, bits.precision.b1.bits] == [
        4, 4, 1,
    ]  # fmt: skip
    a = wmma.fragment("matrix_a", 8, 8, 128, bits.precision.b1, "row_major")
    assert str(a) == (
        "fragment<matrix_a, 8, 8, 128, experimental::precision::b1, row_major>"
    )


# ── which fragments there are ───────────────────────────────────────────────


@pytest.mark.parametrize(
    ("use", "shape", "of", "says"),
    [
        (wmma.matrix_a, (16, 16, 32), "f16", "has 16x16x16, 8x32x16 and 32x8x16"),
        (wmma.matrix_a, (16, 16, 16), "tf32", "has 16x16x8"),
        (wmma.matrix_a, (16, 16, 16), "f32", "matrix_a has half, signed char"),
        (wmma.matrix_b, (8, 8, 32), "b1", "has 8x8x128"),
        (wmma.accumulator, (8, 8, 32), "f32", "of float has"),
        (wmma.accumulator, (16, 16, 16), "s8", "accumulator has half, float, int"),
    ],
)
def test_combinations_that_do_not_exist(use, shape, of, says):
    layout = None if use is wmma.accumulator else wmma.row_major
    with pytest.raises(fm.UnknownInstruction, match=says):
        wmma.fragment(use, *shape, of, layout)


@pytest.mark.parametrize("of", SUB_BYTE)
def test_sub_byte_layouts(of):
    k = 128 if of == "b1" else 32
    with pytest.raises(fm.Error, match=r"matrix_a of .* is always row_major"):
        wmma.fragment(wmma.matrix_a, 8, 8, k, of, wmma.col_major)
    with pytest.raises(fm.Error, match=r"matrix_b of .* is always col_major"):
        wmma.fragment(wmma.matrix_b, 8, 8, k, of, wmma.row_major)


def test_layouts_belong_to_multiplicands():
    with pytest.raises(fm.Error, match="needs a layout"):
        wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16")
    with pytest.raises(fm.Error, match="an accumulator has no layout"):
        wmma.fragment(wmma.accumulator, 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(fm.Error, match="mem_row_major is no layout of a multiplicand"):
        wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.mem_row_major)
    with pytest.raises(fm.Error, match="is no use; it is matrix_a, matrix_b or"):
        wmma.fragment("matrix_c", 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(fm.ShapeError, match="warps"):
        wmma.fragment(wmma.accumulator, 16, 16, 16, "f16", warps=0)
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(fm.Error, match="has its own layout"):
        wmma.load_matrix_sync(a, np.zeros(256, np.float16), 16, wmma.mem_row_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, "f16")
    with pytest.raises(fm.Error, match="needs mem_row_major or mem_col_major"):
        wmma.load_matrix_sync(c, np.zeros(256, np.float16), 16)
    with pytest.raises(fm.Error, match="row_major is no layout in memory"):
        wmma.load_matrix_sync(c, np.zeros(256, np.float16), 16, wmma.row_major)


# ── loads and stores ────────────────────────────────────────────────────────


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
    with pytest.raises(fm.UnknownType, match=says):
        wmma.load_matrix_sync(a, memory, 16)


@pytest.mark.parametrize("kind", [np.int8, ml_dtypes.int4, np.int64, np.float32, bool])
def test_unpacked_memory_is_refused_for_packed_types(kind):
    a = wmma.fragment(wmma.matrix_a, 8, 8, 32, "s4", wmma.row_major)
    with pytest.raises(fm.UnknownType, match="encode_words"):
        wmma.load_matrix_sync(a, np.zeros((8, 32), kind), 32)


def test_what_is_no_memory():
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(fm.Error, match="memory is a NumPy array or bytes, not list"):
        wmma.load_matrix_sync(a, [0.0] * 256, 16)
    with pytest.raises(fm.ShapeError, match="in one piece"):
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

GUIDE = {"f16": 8, "f32": 4, "u4": 32, "s4": 32, "b1": 128}
EXTENDED = {"bf16": 8, "s8": 16, "u8": 16, "tf32": 4, "f64": 2, "s32": 4}


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
        with pytest.raises(fm.ShapeError, match="too small"):
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
    with pytest.raises(fm.ShapeError, match="whole number"):
        wmma.load_matrix_sync(a, np.zeros(512, np.float16), ldm)


@pytest.mark.parametrize("offset", [1.5, "0", [0, 16]])
def test_offsets_are_whole_numbers_one_for_each_warp(offset):
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(fm.ShapeError, match="offset"):
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
        with pytest.raises(wmma.OutOfBounds, match="load_matrix_sync would touch"):
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
            with pytest.raises(wmma.OutOfBounds, match="store_matrix_sync would touch"):
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
            with pytest.raises(fm.ShapeError):
                wmma.load_matrix_sync(frag, memory, ldm, told, offset=offset)
            assert frag.x.tobytes() == before.tobytes()
            return
        wmma.load_matrix_sync(frag, memory, ldm, told, offset=offset)
    index = offset + np.arange(rows)[:, None] * ldm + np.arange(inner)
    expected = bits[index] if major == "row" else bits[index].T
    assert (part.unpack_bits(frag.registers) == expected).all()


# ── filling, and x ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_filling(frag):
    wmma.fill_fragment(frag, 1)
    matrix = part_of(frag).unpack(frag.registers)
    assert (matrix.astype(np.float64) == 1).all()


@pytest.mark.parametrize(
    ("of", "value", "word"),
    [
        ("u4", 0x123, 0x33333333), ("s4", -1, 0xFFFFFFFF), ("s4", 23, 0x77777777),
        ("b1", 2, 0), ("b1", 3, 0xFFFFFFFF), ("b1", -1, 0xFFFFFFFF),
    ],
)  # fmt: skip
def test_filling_takes_the_low_bits_of_sub_byte_types(of, value, word):
    k = 128 if of == "b1" else 32
    a = wmma.fragment(wmma.matrix_a, 8, 8, k, of, wmma.row_major)
    wmma.fill_fragment(a, value)
    assert (a.registers == word).all()


def test_filling_converts_as_cpp_does():
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    wmma.fill_fragment(a, 0.1)
    assert (a.x == np.float16(0.1)).all()
    wmma.fill_fragment(a, 1e9)
    assert np.isposinf(a.x).all()
    wmma.fill_fragment(a, float("nan"))
    assert np.isnan(a.x).all()
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    wmma.fill_fragment(c, 2**70)
    assert (c.x == 2.0**70).all()
    assert wmma.float_to_tf32(2**70) == 2.0**70
    s8 = wmma.fragment(wmma.matrix_a, 16, 16, 16, "s8", wmma.row_major)
    for value, held in (
        (300, 44), (-129, 127), (True, 1), (2.9, 2), (-128.9, -128), (2**70 + 5, 5),
        (np.longdouble(3.5), 3), (ml_dtypes.int4(-3), -3),
    ):  # fmt: skip
        wmma.fill_fragment(s8, value)
        assert (s8.x == held).all()


@pytest.mark.parametrize("of", ["s8", "s4"])
def test_filling_refuses_what_cpp_leaves_open(of):
    k = 32 if of == "s4" else 16
    m = 8 if of == "s4" else 16
    a = wmma.fragment(wmma.matrix_a, m, m, k, of, wmma.row_major)
    beyond = 2.0**31 if of == "s4" else 128.0
    wide = np.longdouble
    for value in (float("nan"), float("inf"), beyond, -beyond - 1, wide(1e12)):
        with pytest.raises(fm.ValueRangeError, match="leaves open"):
            wmma.fill_fragment(a, value)
    for value in ("3", None, 1j, [1, 2]):
        with pytest.raises(fm.ValueRangeError, match="one real number"):
            wmma.fill_fragment(a, value)


def test_flags_and_operations_are_what_they_are_called():
    frags, _ = operands(fm.find("wmma.mma.xor.popc.m8n8k128"))
    a, b, c = (frags[name] for name in "abc")
    for op in (wmma.experimental.bmmaAccumulateOpPOPC, True, 1, "xor"):
        with pytest.raises(fm.Error, match="is no bmmaBitOp; it is bmmaBitOpXOR or"):
            wmma.bmma_sync(c, a, b, c, op)
    frags, _ = operands(fm.find("wmma.mma.m8n8k32.u4"))
    a, b, c = (frags[name] for name in "abc")
    with pytest.raises(fm.Error, match="satf is True or False; given 'sm_80'"):
        wmma.mma_sync(c, a, b, c, "sm_80")


@pytest.mark.parametrize("warps", ["2", 1.5, (1.5,), [2], 0, True])
def test_warps_are_whole_numbers(warps):
    with pytest.raises(fm.ShapeError, match="counted from 1"):
        wmma.fragment(wmma.accumulator, 16, 16, 16, float, warps=warps)


@pytest.mark.parametrize("value", ["x", None, [1j]])
def test_tf32_takes_real_numbers(value):
    with pytest.raises(fm.ValueRangeError, match="real numbers"):
        wmma.float_to_tf32(value)


def test_shapes_are_numbers():
    with pytest.raises(fm.UnknownInstruction, match="'16'"):
        wmma.fragment(wmma.matrix_a, "16", 16, 16, wmma.half, wmma.row_major)


def test_element_wise_operations_are_legal():
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    C = np.arange(256, dtype=np.float32).reshape(16, 16)
    wmma.load_matrix_sync(c, C, 16, wmma.mem_row_major)
    for t in range(c.num_elements):
        c.x[:, t] *= 0.5
    c.x += 1
    c.x = np.maximum(c.x, 3)
    D = np.zeros_like(C)
    wmma.store_matrix_sync(D, c, 16, wmma.mem_row_major)
    assert np.array_equal(D, np.maximum(C * 0.5 + 1, 3))


def test_x_takes_what_fits():
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    c.x = 2.5
    assert (c.x == 2.5).all()
    with pytest.raises(fm.ShapeError, match=r"float32 of shape \(32, 8\)"):
        c.x = np.zeros((32, 9), np.float32)
    with pytest.raises(fm.ShapeError, match="float32"):
        c.x = "text"
    i = wmma.fragment(wmma.accumulator, 16, 16, 16, int)
    with pytest.raises(fm.ShapeError, match="int32"):
        i.x = 0.5


def test_copies_must_agree():
    """f16 multiplicands hold elements twice or four times."""
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 16, "f16", wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    for each in (a, b, c):
        wmma.fill_fragment(each, 1)
    a.x[3, 0] = 2
    with pytest.raises(fm.Error, match="change all of x alike"):
        wmma.mma_sync(c, a, b, c)
    a.x[3, 8] = 2
    wmma.mma_sync(c, a, b, c)


def test_what_was_never_set_cannot_be_used():
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 16, "f16", wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    d = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    with pytest.raises(fm.Error, match="was never loaded or filled"):
        wmma.store_matrix_sync(np.zeros(256, np.float32), c, 16, wmma.mem_row_major)
    wmma.fill_fragment(a, 1)
    wmma.fill_fragment(c, 1)
    with pytest.raises(fm.Error, match=r"^b, fragment.* was never loaded or filled"):
        wmma.mma_sync(d, a, b, c)
    wmma.fill_fragment(b, 1)
    wmma.mma_sync(d, a, b, c)
    assert (d.copy().x == 17).all()


# ── multiplication ──────────────────────────────────────────────────────────

PRODUCTS = [
    op for op in catalogue("wmma.mma") if not op.values.get("rounding")
]  # the C++ API rounds f64 to nearest only


def operands(op, warps=(), seed=0):
    """Fragments with random contents, and the matrices as raw bits."""
    rng = np.random.default_rng(seed)
    frags, bits = {}, {}
    for name in "abcd":
        part = op.fragments[name.upper()]
        use = {"a": wmma.matrix_a, "b": wmma.matrix_b}.get(name, wmma.accumulator)
        layout = op.values.get(f"{name}layout")
        frag = wmma.fragment(
            use, *op.shape, op.types[name], layout and f"{layout}_major", warps=warps
        )
        frags[name] = frag
        if name != "d":
            of = part.dtype
            if of.kind == "float":
                values = rng.normal(size=(*warps, *part.shape)).astype(of.storage)
            else:
                values = of.decode(random_bits(of, (*warps, *part.shape), rng))
            bits[name] = of.encode(values)
            frag.registers[...] = part.pack(values)
    return frags, bits


def multiply(op, frags, target=None):
    a, b, c, d = (frags[name] for name in "abcd")
    if "bitop" in op.values:
        xor = op.values["bitop"].startswith("xor")
        bits = wmma.experimental
        chosen = bits.bmmaBitOpXOR if xor else bits.bmmaBitOpAND
        wmma.bmma_sync(d, a, b, c, chosen, target=target)
    else:
        wmma.mma_sync(d, a, b, c, op.satfinite, target=target)
    return op.d.unpack(d.registers)


@pytest.mark.parametrize("op", PRODUCTS, ids=str)
def test_results_are_those_of_the_instruction(op):
    frags, _ = operands(op, warps=(2, 3))
    registers = [frags[name].registers.copy() for name in "abc"]
    multiply(op, frags)
    assert (frags["d"].registers == op.execute(*registers, target="sm_90")).all()


@pytest.mark.filterwarnings("ignore::fragmenta.wmma.DeprecatedVariant")
@pytest.mark.parametrize(
    "target", ["sm_70", "sm_72", "sm_75", "sm_80", "sm_89", "sm_120a"]
)
def test_results_follow_the_target(target):
    for op in PRODUCTS:
        frags, _ = operands(op)
        if not op.supported_on(target):
            with pytest.raises(fm.UnsupportedTarget, match=f"given {target}"):
                multiply(op, frags, target)
            continue
        registers = [frags[name].registers for name in "abc"]
        expected = op.execute(*registers, target=target)
        with wmma.target(target):
            multiply(op, frags)
        assert (frags["d"].registers == expected).all()


def exact(op, bits):
    """Integers by NumPy: products exact, then wrapped or clamped."""
    a, b, c = (op.types[n].decode(bits[n]).astype(np.int64) for n in "abc")
    if op.values.get("bitop", "").startswith("xor"):
        product = (a[..., :, :, None] ^ b[..., None, :, :]).sum(-2)
    else:
        product = a @ b
    if op.satfinite:
        return np.clip(c + product, -(2**31), 2**31 - 1).astype(np.int32)
    return (c + product).astype(np.int32)


@pytest.mark.parametrize(
    "op", [op for op in PRODUCTS if op.types["a"].is_integer], ids=str
)
def test_integers_are_those_of_numpy(op):
    for seed in range(3):
        frags, bits = operands(op, warps=(5,), seed=seed)
        assert (multiply(op, frags) == exact(op, bits)).all()


@pytest.mark.parametrize("satf", [False, True])
@pytest.mark.parametrize("of", ["s8", "u8", "s4", "u4"])
def test_saturation(of, satf):
    shape = (8, 8, 32) if of.endswith("4") else (16, 16, 16)
    low, high = DTYPES[of].limits
    a = wmma.fragment(wmma.matrix_a, *shape, of, wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, *shape, of, wmma.col_major)
    c = wmma.fragment(wmma.accumulator, *shape, int)
    for start, sign in ((2**31 - 1, 1), (-(2**31), -1)):
        wmma.fill_fragment(a, high)
        wmma.fill_fragment(b, high if sign > 0 else low)
        wmma.fill_fragment(c, start)
        wmma.mma_sync(c, a, b, c, satf)
        total = start + shape[2] * high * (high if sign > 0 else low)
        wrapped = (total + 2**31) % 2**32 - 2**31
        clamped = max(-(2**31), min(2**31 - 1, total))
        assert (c.x == (clamped if satf else wrapped)).all()


def test_d_may_be_c_and_operands_broadcast_over_warps():
    op = fm.instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    frags, _ = operands(op, warps=(4,))
    alone, _ = operands(op, seed=1)
    a, c = frags["a"], frags["c"]
    expected = op.execute(a.registers, alone["b"].registers, c.registers)
    wmma.mma_sync(c, a, alone["b"], c)
    assert (c.registers == expected).all()
    with pytest.raises(fm.ShapeError, match="do not fit those of d"):
        wmma.mma_sync(alone["d"], a, alone["b"], c)
    odd = wmma.fragment(wmma.matrix_b, 16, 16, 16, "f16", wmma.col_major, warps=3)
    with pytest.raises(fm.ShapeError, match="do not fit those of d"):
        wmma.mma_sync(c, a, odd, c)


def test_operands_must_belong_together():
    def of(use, shape, kind, layout=None):
        made = wmma.fragment(use, *shape, kind, layout)
        wmma.fill_fragment(made, 1)
        return made

    square, flat = (16, 16, 16), (32, 8, 16)
    row, col = wmma.row_major, wmma.col_major
    a = of(wmma.matrix_a, square, "f16", row)
    b = of(wmma.matrix_b, square, "f16", col)
    c = of(wmma.accumulator, square, "f32")
    with pytest.raises(fm.Error, match=r"a is .* it must be matrix_a"):
        wmma.mma_sync(c, b, b, c)
    with pytest.raises(fm.Error, match=r"c is .* it must be accumulator"):
        wmma.mma_sync(c, a, b, a)
    with pytest.raises(fm.ShapeError, match="the shapes must be the same"):
        wmma.mma_sync(c, a, of(wmma.matrix_b, flat, "f16", col), c)
    with pytest.raises(fm.ShapeError, match="the shapes must be the same"):
        wmma.mma_sync(of(wmma.accumulator, flat, "f32"), a, b, c)
    with pytest.raises(fm.UnknownInstruction, match="element types must be the same"):
        wmma.mma_sync(c, a, of(wmma.matrix_b, square, "bf16", col), c)
    with pytest.raises(
        fm.UnknownInstruction, match="half has no mma_sync with c of int"
    ):
        wmma.mma_sync(c, a, b, of(wmma.accumulator, square, "s32"))
    bf = [
        of(wmma.matrix_a, square, "bf16", row),
        of(wmma.matrix_b, square, "bf16", col),
    ]
    half = of(wmma.accumulator, square, "f16")
    with pytest.raises(fm.UnknownInstruction, match="__nv_bfloat16 has no mma_sync"):
        wmma.mma_sync(half, *bf, half)
    u8 = of(wmma.matrix_a, square, "u8", row)
    s8 = of(wmma.matrix_b, square, "s8", col)
    i = of(wmma.accumulator, square, "s32")
    with pytest.raises(fm.UnknownInstruction, match="element types must be the same"):
        wmma.mma_sync(i, u8, s8, i)
    with pytest.raises(fm.Error, match="satf is for integers"):
        wmma.mma_sync(c, a, b, c, True)


def test_arguments_in_the_wrong_order_are_named():
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    memory = np.zeros(256, np.float32)
    with pytest.raises(fm.Error, match="frag must be a fragment; given ndarray"):
        wmma.load_matrix_sync(memory, c, 16, wmma.mem_row_major)
    with pytest.raises(fm.Error, match="frag must be a fragment; given ndarray"):
        wmma.store_matrix_sync(c, memory, 16, wmma.mem_row_major)
    with pytest.raises(fm.Error, match="frag must be a fragment; given int"):
        wmma.fill_fragment(0, c)
    with pytest.raises(fm.Error, match="a must be a fragment; given ndarray"):
        wmma.mma_sync(c, memory, c, c)


def test_bits_and_numbers_have_their_own_functions():
    frags, _ = operands(fm.find("wmma.mma.xor.popc.m8n8k128"))
    a, b, c, d = (frags[name] for name in "abcd")
    with pytest.raises(fm.Error, match="is multiplied by bmma_sync"):
        wmma.mma_sync(d, a, b, c)
    with pytest.raises(fm.Error, match="is no bmmaBitOp; it is"):
        wmma.bmma_sync(d, a, b, c, 3)
    with pytest.raises(fm.Error, match="is no bmmaAccumulateOp; it is"):
        wmma.bmma_sync(d, a, b, c, accumulate=2)
    wmma.bmma_sync(d, a, b, c)  # XOR and POPC unless told otherwise
    xor = d.x.copy()
    wmma.bmma_sync(d, a, b, c, wmma.experimental.bmmaBitOpXOR)
    assert (d.x == xor).all()
    frags, _ = operands(fm.find("wmma.mma.m8n8k32.s4.s4"))
    a, b, c, d = (frags[name] for name in "abcd")
    with pytest.raises(fm.Error, match="bmma_sync is for single bits"):
        wmma.bmma_sync(d, a, b, c)


# ── targets ─────────────────────────────────────────────────────────────────


def quiet(call, *arguments, **options):
    """Nothing is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(*arguments, **options)


def test_bit_operations_and_their_targets():
    frags, _ = operands(fm.find("wmma.mma.xor.popc.m8n8k128"))
    d, a, b, c = (frags[name] for name in "dabc")
    bits = wmma.experimental
    quiet(wmma.bmma_sync, d, a, b, c, bits.bmmaBitOpXOR, target="sm_75")
    quiet(wmma.bmma_sync, d, a, b, c, bits.bmmaBitOpAND, target="sm_80")
    quiet(wmma.bmma_sync, d, a, b, c, bits.bmmaBitOpAND, target="sm_90")
    with pytest.raises(fm.UnsupportedTarget, match=r"bmmaBitOpAND needs sm_80\+"):
        wmma.bmma_sync(d, a, b, c, bits.bmmaBitOpAND, target="sm_75")
    with pytest.raises(fm.UnsupportedTarget, match=r"bmmaBitOpXOR needs sm_75\+"):
        wmma.bmma_sync(d, a, b, c, bits.bmmaBitOpXOR, target="sm_72")


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100", "sm_120a"])
def test_deprecation_is_said_when_the_target_is_named(target):
    bits = wmma.experimental
    frags, _ = operands(fm.find("wmma.mma.xor.popc.m8n8k128"))
    b1 = [frags[name] for name in "dabc"]
    with pytest.warns(wmma.DeprecatedVariant, match="b1 with bmmaBitOpXOR") as said:
        wmma.bmma_sync(*b1, bits.bmmaBitOpXOR, target=target)
    assert said[0].filename == __file__
    quiet(wmma.bmma_sync, *b1, bits.bmmaBitOpAND, target=target)
    quiet(wmma.bmma_sync, *b1, bits.bmmaBitOpXOR)  # nobody named sm_90
    for of in ("u4", "s4"):
        frags, _ = operands(fm.find(f"wmma.mma.m8n8k32.{of}.{of}"))
        four = [frags[name] for name in "dabc"]
        with pytest.warns(wmma.DeprecatedVariant, match=f"precision::{of}"):
            wmma.mma_sync(*four, target=target)
        with wmma.target(target), pytest.warns(wmma.DeprecatedVariant):
            wmma.mma_sync(*four)
        quiet(wmma.mma_sync, *four)
        quiet(wmma.mma_sync, *four, target="sm_80")
    assert issubclass(wmma.DeprecatedVariant, DeprecationWarning)


def test_the_surrounding_target():
    frags, _ = operands(fm.find("wmma.mma.row.col.m16n16k8.tf32"))
    d, a, b, c = (frags[name] for name in "dabc")
    with wmma.target("sm_75"):
        with pytest.raises(fm.UnsupportedTarget, match="given sm_75"):
            wmma.mma_sync(d, a, b, c)
        wmma.mma_sync(d, a, b, c, target="sm_80")
        with wmma.target("sm_80"):
            wmma.mma_sync(d, a, b, c)
        with pytest.raises(fm.UnsupportedTarget):
            wmma.load_matrix_sync(a, np.zeros(128, np.float32), 8)
    wmma.mma_sync(d, a, b, c)
    with pytest.raises(fm.UnsupportedTarget, match="did you mean sm_90"):
        wmma.target("sm_91")
    with pytest.raises(fm.UnsupportedTarget, match="no target"):
        wmma.mma_sync(d, a, b, c, target="hopper")
    with pytest.raises(fm.Error, match="rules are either, guide or ptx"):
        wmma.target("sm_90", rules="none")


def test_a_target_is_of_its_thread():
    seen = []

    def other():
        c = wmma.fragment(wmma.accumulator, 8, 8, 4, "f64")
        seen.append(c.layout().observed)

    with wmma.target("sm_80"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == ["sm_90 (H200)"]


# ── observed layouts ────────────────────────────────────────────────────────


@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_layouts_are_those_of_the_table_and_marked(frag):
    seen = frag.layout(target="sm_90")
    assert seen == part_of(frag).layout
    assert part_of(frag).layout == seen
    assert hash(seen) == hash(frag.layout("sm_90a"))
    assert seen.observed == table.OBSERVED
    assert "leaves open" in seen.warning
    assert "memory" in seen.warning
    assert f"observed={table.OBSERVED!r}" in repr(seen)
    assert seen != "a layout"
    with wmma.target("sm_89"), pytest.raises(fm.UnsupportedTarget, match="unmeasured"):
        frag.layout()


def test_x_is_in_the_order_of_the_layout():
    b = wmma.fragment(wmma.matrix_b, 8, 32, 16, "bf16", wmma.row_major)
    B = np.arange(16 * 32, dtype=np.uint16)
    wmma.load_matrix_sync(b, B, 32)
    seen = b.layout()
    for lane, t in ((0, 0), (5, 3), (31, 15)):
        place = seen.element(L=lane, R=t // 2, E=t % 2)
        assert int(b.x.view(np.uint16)[lane, t]) == 32 * place["row"] + place["col"]


# ── tf32 ────────────────────────────────────────────────────────────────────


def nearest_tf32(bits):
    """cvt.rna.tf32.f32 of a finite float, in whole numbers."""
    sign, rest = bits & 0x80000000, bits & 0x7FFFFFFF
    low = rest % 8192
    return sign | (rest - low + (8192 if low >= 4096 else 0))


def test_tf32_rounding_of_every_exponent_near_ties():
    upper = [0, 1, 2, 0x155, 0x1FF, 0x200, 0x3FE, 0x3FF]
    lower = [0, 1, 2, 0xFFE, 0xFFF, 0x1000, 0x1001, 0x1002, 0x1FFE, 0x1FFF]
    bits = [
        sign << 31 | exponent << 23 | high << 13 | low
        for sign in (0, 1)
        for exponent in range(255)
        for high in upper
        for low in lower
    ]
    given = np.array(bits, np.uint32).view(np.float32)
    rounded = wmma.__float_to_tf32(given).view(np.uint32)
    assert rounded.tolist() == [nearest_tf32(each) for each in bits]


def test_tf32_rounding_of_every_low_pattern():
    """All 2^14 patterns around one tf32 value, of both parities and signs."""
    for base in (0x3F800000, 0xBF802000, 0x00000000, 0x807FE000, 0x7F7FC000):
        bits = base + np.arange(1 << 13, dtype=np.uint32)
        rounded = wmma.__float_to_tf32(bits.view(np.float32)).view(np.uint32)
        assert rounded.tolist() == [nearest_tf32(int(each)) for each in bits]


def test_tf32_of_what_is_not_finite():
    for given, result in (
        (0x7F800000, 0x7F800000), (0xFF800000, 0xFF800000),  # infinities
        (0x7F7FFFFF, 0x7F800000), (0xFF7FF000, 0xFF800000),  # overflow
        (0x7F7FEFFF, 0x7F7FE000),  # just below it
        (0x7FFFFFFF, 0x7FFFE000), (0xFFC00000, 0xFFC00000),  # NaN
        (0x7F802000, 0x7F802000),
        (0x7F801FFF, 0x7F800000), (0xFF800001, 0xFF800000),  # payload cut off
    ):  # fmt: skip
        value = np.uint32(given).view(np.float32)
        assert int(wmma.__float_to_tf32(value).view(np.uint32)) == result


def test_tf32_takes_scalars_lists_and_doubles():
    assert wmma.float_to_tf32 is wmma.__float_to_tf32
    assert isinstance(wmma.float_to_tf32(1.0), np.float32)
    assert wmma.float_to_tf32([[1.0], [2.0]]).shape == (2, 1)
    assert np.isposinf(wmma.float_to_tf32(1e300))


def test_wmma_tf32_is_two_chained_steps_of_four():
    """Unlike mma.m16n8k8 on sm_90, which adds eight products at once."""
    op = fm.find("wmma.mma.row.col.m16n16k8.tf32")
    frags, bits = operands(op, warps=(50,))
    D = multiply(op, frags)
    A, B, C = (op.types[n].decode(bits[n]) for n in "abc")
    four = fm.mma("m16n8k4", a="tf32")
    eight = fm.mma("m16n8k8", a="tf32")
    for half in (slice(0, 8), slice(8, 16)):
        step = four(A[..., :4], B[:, :4, half], C[..., half])
        chained = four(A[..., 4:], B[:, 4:, half], step)
        assert (D[..., half].view(np.uint32) == chained.view(np.uint32)).all()
    at_once = eight(A, B[..., :8], C[..., :8])
    assert (D[..., :8] != at_once).any()


def test_wmma_tf32_ignores_the_low_bits():
    a = wmma.fragment(wmma.matrix_a, 16, 16, 8, wmma.precision.tf32, wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 8, wmma.precision.tf32, wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 8, float)
    wmma.fill_fragment(a, 1 + 2**-11)
    wmma.fill_fragment(b, 1.0)
    wmma.fill_fragment(c, 0.0)
    wmma.mma_sync(c, a, b, c)
    assert (c.x == 8).all()
    a.x = wmma.__float_to_tf32(a.x)
    wmma.fill_fragment(c, 0.0)
    wmma.mma_sync(c, a, b, c)
    assert (c.x == 8 * (1 + 2**-10)).all()


# ── the page, the example, the surface ──────────────────────────────────────


def page():
    return (ROOT / "docs" / "wmma.md").read_text(encoding="utf-8")


def test_the_page_runs():
    found = doctest.DocTestParser().get_doctest(page(), {}, "wmma.md", None, 0)
    assert len(found.examples) > 60
    report = []
    doctest.DocTestRunner().run(found, out=report.append)
    assert not report, "".join(report)


def test_the_page_states_the_leading_dimensions_that_hold():
    lines = re.findall(r"(?m)^\| (`.*`) \| (\d+) \| (.*) \| (.*) \|$", page())
    said = {}
    for names, step, whence, ptx in lines:
        for name in re.findall(r"`([^`]+)`", names):
            of = BY_CUDA.get(name, name)
            assert int(step) == (GUIDE | EXTENDED)[of]
            assert (whence == "the guide") == (of in GUIDE)
            said[of] = {int(n) for n in re.findall(r"\b(\d+)(?!x8)\b", ptx)}
    assert set(said) == set(GUIDE | EXTENDED)
    for of, steps in said.items():
        parts = [part_of(f) for f in FRAGMENTS if f.element_type.name == of]
        bits = DTYPES[of].bits
        assert steps == {p.registers * p.register_bits // bits for p in parts}


def test_the_example_runs():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "wmma_subbyte.py"],
        env={**os.environ, "PYTHONPATH": str(Path(fm.__file__).parents[1])},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal to NumPy") == 2


def test_loads_and_stores_need_no_compiler():
    code = (
        "import sys; from fragmenta import wmma; import numpy as np\n"
        "c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)\n"
        "wmma.load_matrix_sync(c, np.zeros(256, np.float32), 16, 'mem_row_major')\n"
        "assert 'llvmlite' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(fm.__file__).parents[1])}
    subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, timeout=60
    )


def test_every_public_name_is_there_and_explained():
    for name in wmma.__all__:
        assert (getattr(wmma, name).__doc__ or "").strip(), name
