"""The fragments of ``wmma``, and what they hold."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import wmma
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.tables import wmma as table
from fragmenta.reference.registers.dtype import DTYPES
from tests.wmma.fragments import BY_CUDA, FRAGMENTS, ROWS, SUB_BYTE, layouts, part_of

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
        (float, "f32"),
        (int, "s32"),
        (np.float32, "f32"),
        (np.int32, "s32"),
        (np.dtype(np.float16), "f16"),
        (wmma.half, "f16"),
    ):
        frag = wmma.fragment(wmma.accumulator, 16, 16, 16, given)
        assert frag.element_type.name == of
    for given, of in (
        (ml_dtypes.bfloat16, "bf16"),
        (np.int8, "s8"),
        (np.uint8, "u8"),
        (wmma.nv_bfloat16, "bf16"),
        (wmma.signed_char, "s8"),
        (wmma.unsigned_char, "u8"),
    ):
        frag = wmma.fragment(wmma.matrix_a, 16, 16, 16, given, wmma.row_major)
        assert frag.element_type.name == of
    assert wmma.fragment(wmma.accumulator, 8, 8, 4, wmma.double).num_elements == 2


@pytest.mark.parametrize("given", [None, "char", "e4m3", bool, "float8", 3.5, [1]])
def test_other_types_are_refused(given):
    with pytest.raises(fm.errors.UnknownType, match="no fragment has elements of"):
        wmma.fragment(wmma.accumulator, 16, 16, 16, given)


def test_the_words_of_the_guide():
    bits = wmma.experimental
    assert (bits.bmmaBitOpXOR, bits.bmmaBitOpAND, bits.bmmaAccumulateOpPOPC) == (
        1,
        2,
        1,
    )
    assert [bits.precision.u4.bits, bits.precision.s4.bits, bits.precision.b1.bits] == [
        4,
        4,
        1,
    ]
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
    with pytest.raises(fm.errors.UnknownInstruction, match=says):
        wmma.fragment(use, *shape, of, layout)


@pytest.mark.parametrize("of", SUB_BYTE)
def test_sub_byte_layouts(of):
    k = 128 if of == "b1" else 32
    with pytest.raises(fm.Error, match=r"matrix_a of .* must be row_major"):
        wmma.fragment(wmma.matrix_a, 8, 8, k, of, wmma.col_major)
    with pytest.raises(fm.Error, match=r"matrix_b of .* must be col_major"):
        wmma.fragment(wmma.matrix_b, 8, 8, k, of, wmma.row_major)


def test_layouts_belong_to_multiplicands():
    with pytest.raises(fm.Error, match="needs a layout"):
        wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16")
    with pytest.raises(fm.Error, match="an accumulator has no layout"):
        wmma.fragment(wmma.accumulator, 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(
        fm.Error, match="layout of a multiplicand must be row_major or col_major"
    ):
        wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.mem_row_major)
    with pytest.raises(fm.Error, match="use must be matrix_a, matrix_b or"):
        wmma.fragment("matrix_c", 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(fm.errors.ShapeError, match="warps"):
        wmma.fragment(wmma.accumulator, 16, 16, 16, "f16", warps=0)
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    with pytest.raises(fm.Error, match="has its own layout"):
        wmma.load_matrix_sync(a, np.zeros(256, np.float16), 16, wmma.mem_row_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, "f16")
    with pytest.raises(fm.Error, match="needs mem_row_major or mem_col_major"):
        wmma.load_matrix_sync(c, np.zeros(256, np.float16), 16)
    with pytest.raises(fm.Error, match=r"layout in memory must be .* given row_major"):
        wmma.load_matrix_sync(c, np.zeros(256, np.float16), 16, wmma.row_major)


# ── filling, and x ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_filling(frag):
    wmma.fill_fragment(frag, 1)
    matrix = part_of(frag).unpack(frag.registers)
    assert (matrix.astype(np.float64) == 1).all()


@pytest.mark.parametrize(
    ("of", "value", "word"),
    [
        ("u4", 0x123, 0x33333333),
        ("s4", -1, 0xFFFFFFFF),
        ("s4", 23, 0x77777777),
        ("b1", 2, 0),
        ("b1", 3, 0xFFFFFFFF),
        ("b1", -1, 0xFFFFFFFF),
    ],
)
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
        (300, 44),
        (-129, 127),
        (True, 1),
        (2.9, 2),
        (-128.9, -128),
        (2**70 + 5, 5),
        (np.longdouble(3.5), 3),
        (ml_dtypes.int4(-3), -3),
    ):
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
        with pytest.raises(fm.errors.ValueRangeError, match="undefined in C"):
            wmma.fill_fragment(a, value)
    for value in ("3", None, 1j, [1, 2]):
        with pytest.raises(fm.errors.ValueRangeError, match="one real number"):
            wmma.fill_fragment(a, value)


@pytest.mark.parametrize("warps", ["2", 1.5, (1.5,), [2], 0, True])
def test_warps_are_whole_numbers(warps):
    with pytest.raises(fm.errors.ShapeError, match="warps must be 1 or more"):
        wmma.fragment(wmma.accumulator, 16, 16, 16, float, warps=warps)


@pytest.mark.parametrize("value", ["x", None, [1j]])
def test_tf32_takes_real_numbers(value):
    with pytest.raises(fm.errors.ValueRangeError, match="real numbers"):
        wmma.float_to_tf32(value)


def test_shapes_are_numbers():
    with pytest.raises(
        fm.errors.ShapeError, match="m must be a whole number; given '16'"
    ):
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
    with pytest.raises(fm.errors.ShapeError, match=r"float32 of shape \(32, 8\)"):
        c.x = np.zeros((32, 9), np.float32)
    with pytest.raises(fm.errors.ShapeError, match="float32"):
        c.x = "text"
    i = wmma.fragment(wmma.accumulator, 16, 16, 16, int)
    with pytest.raises(fm.errors.ShapeError, match="int32"):
        i.x = 0.5


def test_copies_must_agree():
    """f16 multiplicands hold elements twice or four times."""
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 16, "f16", wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    for each in (a, b, c):
        wmma.fill_fragment(each, 1)
    a.x[3, 0] = 2
    with pytest.raises(fm.Error, match="change every copy in the same way"):
        wmma.mma_sync(c, a, b, c)
    a.x[3, 8] = 2
    wmma.mma_sync(c, a, b, c)


def test_what_was_never_set_cannot_be_used():
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, "f16", wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 16, "f16", wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    d = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    with pytest.raises(fm.Error, match="was not loaded or filled before"):
        wmma.store_matrix_sync(np.zeros(256, np.float32), c, 16, wmma.mem_row_major)
    wmma.fill_fragment(a, 1)
    wmma.fill_fragment(c, 1)
    with pytest.raises(
        fm.Error, match=r"^b, fragment.* was not loaded or filled before"
    ):
        wmma.mma_sync(d, a, b, c)
    wmma.fill_fragment(b, 1)
    wmma.mma_sync(d, a, b, c)
    assert (d.copy().x == 17).all()


# ── observed layouts ────────────────────────────────────────────────────────


@pytest.mark.parametrize("frag", FRAGMENTS, ids=str)
def test_layouts_are_those_of_the_table_and_marked(frag):
    seen = frag.layout(target="sm_90")
    assert seen == part_of(frag).layout
    assert part_of(frag).layout == seen
    assert hash(seen) == hash(frag.layout("sm_90a"))
    assert seen.observed == table.OBSERVED
    assert "does not specify" in seen.warning
    assert "memory" in seen.warning
    assert f"observed={table.OBSERVED!r}" in repr(seen)
    assert seen != "a layout"
    with (
        wmma.target("sm_89"),
        pytest.raises(fm.errors.UnsupportedTarget, match="was not measured"),
    ):
        frag.layout()


def test_x_is_in_the_order_of_the_layout():
    b = wmma.fragment(wmma.matrix_b, 8, 32, 16, "bf16", wmma.row_major)
    B = np.arange(16 * 32, dtype=np.uint16)
    wmma.load_matrix_sync(b, B, 32)
    seen = b.layout()
    for lane, t in ((0, 0), (5, 3), (31, 15)):
        place = seen.element(L=lane, R=t // 2, E=t % 2)
        assert int(b.x.view(np.uint16)[lane, t]) == 32 * place["row"] + place["col"]
