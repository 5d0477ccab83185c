"""What does not go together is refused in words, and nothing at all is an answer."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import wmma
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.shared import moves
from fragmenta.reference.shared.descriptor import Descriptor, extent
from fragmenta.reference.shared.tiles import read_tile
from fragmenta.reference.shared.tiles import tile as shared_tile
from fragmenta.reference.sparse import exchange

WG = fm.wgmma("m64n8k16", a="f16", d="f32")
BITS = fm.wgmma("m64n8k256", a="b1", d="s32")
LOAD, STORE = fm.find("ldmatrix.m8n8.x1.b16"), fm.find("stmatrix.m8n8.x1.b16")
DENSE = fm.mma("m16n8k32", a="s8")
SPARSE = fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")


@pytest.fixture(scope="module")
def filled():
    image, a = shared_tile(WG, "A", np.ones((64, 16)))
    image, b = shared_tile(WG, "B", np.ones((16, 8)), image=image)
    return image, a, b


def test_batches_that_do_not_go_together(filled):
    image, a, b = filled
    images, rows = np.stack([image] * 3), np.arange(32) * 16 % 128
    words = np.full(2, a.encode(), np.uint64)
    registers = np.zeros((2, 32, 1), np.uint32)
    d = np.zeros((3, 128, 4), np.uint32)
    calls = [
        (lambda: shared_tile(WG, "B", np.ones((2, 16, 8)), image=images), "matrix"),
        (lambda: read_tile(WG, "A", images, words), "descriptors"),
        (lambda: moves.ldmatrix(LOAD, images, np.stack([rows] * 2)), "addresses"),
        (lambda: moves.stmatrix(STORE, images, rows, registers), "registers"),
        (lambda: WG.execute(d, a, b, smem=image, scale_d=[0, 1]), "scale_d"),
        (lambda: a.address([0, 1], [0, 1, 2], "f16"), "k"),
        (lambda: a.bit_address(np.zeros((2, 3), int), [0, 1], "f16"), "k"),
    ]
    for call, name in calls:
        with pytest.raises(
            fm.errors.ShapeError, match=f"do not broadcast together.*{name} \\("
        ):
            call()


def test_no_descriptors_read_no_tiles(filled):
    image, _, b = filled
    none = np.zeros(0, np.uint64)
    assert read_tile(WG, "A", image, none).shape == (0, 64, 16)
    assert read_tile(WG, "B", image, none).dtype == np.uint16
    assert read_tile(WG, "B", image, np.zeros((2, 0), np.uint64)).shape == (2, 0, 16, 8)
    packed = read_tile(BITS, "B", image, none, packed=True)
    assert (packed.shape, packed.dtype) == ((0, 8, 8), np.dtype(np.uint32))
    assert read_tile(BITS, "A", image, none).shape == (0, 64, 256)
    d = WG.execute(np.zeros((128, 4), np.uint32), none, b, smem=image)
    assert d.shape == (0, 128, 4)
    for wrong in ([], [-1], -1, 1.5, None):
        with pytest.raises(fm.Error, match="a descriptor must be"):
            read_tile(WG, "A", image, wrong)


def test_no_images_move_nothing():
    images, rows = np.zeros((0, 128), np.uint8), np.arange(32) * 16 % 128
    assert moves.ldmatrix(LOAD, images, rows).shape == (0, 32, 1)
    registers = np.zeros((32, 1), np.uint32)
    assert moves.stmatrix(STORE, images, rows, registers).shape == (0, 128)
    packed = fm.find("ldmatrix.m16n16.x1.trans.b8x16.b4x16_p64")
    assert moves.ldmatrix(packed, np.zeros((0, 512), np.uint8), rows).shape[0] == 0


def test_addresses_far_away_are_named_as_given():
    far = np.full(32, 2**63, np.uint64)
    with pytest.raises(fm.Error, match="at address 9223372036854775808, which is out"):
        moves.ldmatrix(LOAD, np.zeros(128, np.uint8), far)


@pytest.mark.parametrize(
    ("shape", "tiles"),
    [((16, 0), (1, 0)), ((0, 32), (0, 1)), ((0, 0), (0, 0)), ((2, 16, 0), (2, 1, 0))],
)
def test_no_tiles_are_packed_as_none(shape, tiles):
    packed = DENSE.a.pack_tiles(np.ones(shape, np.int8))
    assert (packed.shape, packed.dtype) == ((*tiles, 32, 4), np.dtype(np.uint32))
    assert DENSE.a.unpack_tiles(packed).shape == shape
    with pytest.raises(fm.Error, match="real numbers"):
        DENSE.a.pack_tiles(np.full(shape, "x"))
    wide = fm.find("mma.m8n8k4.f64").c.pack_tiles(np.ones((8, 0)))
    assert (wide.shape, wide.dtype) == ((1, 0, 32, 2), np.dtype(np.uint64))


def test_exchange_of_nothing():
    none = fm.sparse.compress(SPARSE, np.zeros((0, 64, 128)))
    image = exchange.to_cutlass_sm90(SPARSE, none)
    assert image.shape == (0, 1024)
    found = exchange.from_cutlass_sm90(SPARSE, none.values, image)
    assert found.shape == (0, 64, 128)
    for wrong in (1.5, "128", None, True):
        with pytest.raises(fm.errors.ShapeError, match="tile_k must be a whole number"):
            exchange.to_cutlass_sm90(SPARSE, none, tile_k=wrong)
    with pytest.raises(fm.Error, match="A must be Compressed"):
        exchange.to_nibbles(np.ones((2, 2)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"swizzle": 128.0}, "swizzle must be"),
        ({"swizzle": False}, "swizzle must be"),
        ({"swizzle": np.zeros(2)}, "swizzle must be"),
        ({"start": "x"}, "given 'x'"),
        ({"start": 0.0}, "given 0.0"),
        ({"order": np.zeros(3)}, "order must be 'k' or 'mn'"),
        ({"major": ["k"]}, 'major must be "k" or "mn"'),
    ],
)
def test_options_of_the_wrong_kind(options, words):
    with pytest.raises(fm.Error, match=words):
        shared_tile(WG, "A", np.ones((64, 16)), **options)


def test_immediates_are_whole_numbers(filled):
    image, a, b = filled
    d = np.zeros((128, 4), np.uint32)
    for wrong in (1.0, np.ones(2, int), "1", True, None):
        with pytest.raises(
            fm.errors.ShapeError, match=r"imm_scale_a .* is not allowed"
        ):
            WG.execute(d, a, b, smem=image, imm_scale_a=wrong)
    for wrong in (1.0, "1", None, 2, [0.0]):
        with pytest.raises(fm.errors.ShapeError, match="scale_d is 0 or 1"):
            WG.execute(d, a, b, smem=image, scale_d=wrong)
    with pytest.raises(fm.Error, match="operand must be 'A' or 'B'"):
        extent(WG, ["A"])
    with pytest.raises(fm.Error, match="rows must be a positive multiple of 8"):
        Descriptor.for_tile("8", 16, "f16")
    with pytest.raises(fm.Error, match="a number of bytes; given True"):
        Descriptor(True, 16, 16, 0)


def test_dask_arrays_of_unknown_size_are_refused():
    da = pytest.importorskip("dask.array")
    A = da.ones((32, 32), chunks=16, dtype=np.int8)
    unknown = A[A[:, 0] > 0]
    with pytest.raises(fm.errors.ShapeError, match="compute_chunk_sizes"):
        fm.matmul(DENSE, unknown, A)
    with pytest.raises(fm.errors.ShapeError, match="compute_chunk_sizes"):
        fm.matmul(DENSE, A, unknown)


def test_names_in_pictures_are_escaped():
    layout = Layout(
        tuple((f"<{name}>", digits) for name, digits in DENSE.a.layout.coordinates),
        DENSE.a.layout.axes,
    )
    for part in (
        replace(DENSE.a, name='<script>"&'),
        replace(DENSE.a, name="<b>A<"),
        replace(DENSE.a, layout=layout),
    ):
        picture = part.to_svg()
        assert "<script" not in picture
        ElementTree.fromstring(picture)


@pytest.mark.parametrize("ldm", [2**62, 2**70, 2**33])
def test_a_leading_dimension_may_be_any_number_that_fits(ldm):
    memory = np.ones((16, 16), np.float16)
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
    with pytest.raises(fm.Error, match="would access elements 0 to"):
        wmma.load_matrix_sync(a, memory, ldm)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.half)
    wmma.fill_fragment(c, 0)
    with pytest.raises(fm.Error, match="would access elements 0 to"):
        wmma.store_matrix_sync(memory, c, ldm, wmma.mem_row_major)


@pytest.mark.parametrize(
    "error",
    [getattr(fm.errors, name) for name in fm.errors.__all__],
    ids=lambda each: each.__name__,
)
def test_errors_are_also_the_ones_python_programs_catch(error):
    """What does not exist is a LookupError, a wrong value a ValueError.

    A wrong call is a TypeError, a package that is not installed an ImportError.
    """
    assert error.__module__ == "fragmenta.errors"
    others = {fm.errors.BadCall: TypeError, fm.errors.MissingPackage: ImportError}
    if error in others:
        assert issubclass(error, others[error])
        return
    plain = (
        fm.Error,
        fm.errors.KernelError,
        fm.errors.KernelFault,
        fm.errors.KernelHazard,
        fm.errors.NoDevice,
        fm.errors.CompileError,
    )
    if error in (*plain, fm.errors.LimitReached):
        assert not issubclass(error, (LookupError, ValueError))
    else:
        assert issubclass(error, (LookupError, ValueError))


def test_a_hazard_is_no_fault():
    """A fault stopped the kernel; a kernel with a hazard may have run to its end."""
    errors = fm.errors
    assert not issubclass(errors.KernelHazard, errors.KernelFault)
    assert issubclass(errors.KernelHazard, errors.KernelError)
    assert issubclass(errors.LimitReached, errors.KernelFault)
    assert issubclass(errors.KernelFault, errors.KernelError)
