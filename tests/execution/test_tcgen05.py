"""op.execute of tcgen05.mma against memories written by hand and exact fractions."""

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.errors import AddressError, Error, ShapeError, UnsupportedTarget
from fragmenta.reference.execution.tcgen05 import undefined
from tests.thinning import some

from .tcgen05_memories import A_COLUMN, META_COLUMN, Case, Memories

MX8 = {"kind": "mxf8f6f4", "scale": "ue8m0", "vectors": 1}
MX4 = {"kind": "mxf4", "scale": "ue8m0", "vectors": 2}
NV4 = {"kind": "mxf4nvf4", "scale": "ue4m3", "vectors": 4}

DENSE = [
    Case("m128n64k16", "f16"),
    Case("m128n48k16", "f16", "f16", in_tensor=True, modes=(0, 6)),
    Case("m64n24k16", "bf16", modes=(6, 6)),
    Case("m64n40k16", "f16", in_tensor=True, base=16, modes=(0, 2)),
    Case("m128n256k16", "f16", majors="nn", modes=(2, 2)),
    Case("m128n64k16", "bf16", majors="nk", modes=(0, 4)),
    Case("m128n64k8", "tf32", modes=(6, 0)),
    Case("m64n64k8", "tf32", majors="nn", modes=(1, 1)),
    Case("m128n32k8", "tf32", in_tensor=True),
    Case("m128n32k32", "e4m3", b="e5m2", modes=(2, 4)),
    Case("m128n32k32", "e2m1", b="e3m2", modes=(6, 6)),
    Case("m128n32k32", "e2m3", "f16", b="e2m1", in_tensor=True),
    Case("m64n16k32", "e2m1", b="e4m3", in_tensor=True),
    Case("m128n64k32", "e5m2", majors="nn", modes=(4, 6)),
    Case("m128n16k32", "s8", "s32", b="u8"),
    Case("m64n64k32", "u8", "s32", b="s8", more=(("saturate", True),)),
    Case("m128n32k16", "f16", more=(("negate_a", True),)),
    Case("m128n32k32", "e4m3", b="e2m1", more=(("negate_b", True),)),
]
SCALED = [
    Case("m128n64k32", "e4m3", b="e2m3", **MX8, ids=(3, 1)),
    Case("m128n72k32", "e2m1", b="e5m2", **MX8, in_tensor=True),
    Case("m128n200k64", "e2m1", **MX4, ids=(2, 0), modes=(6, 2)),
    Case("m128n64k64", "e2m1", **NV4, in_tensor=True),
    Case("m128n64k64", "e2m1", **{**NV4, "scale": "ue8m0"}, modes=(6, 6)),
]
WS = [
    Case("m128n64k16", "f16", ws=True),
    Case("m64n128k16", "f16", ws=True, modes=(2, 2)),
    Case("m32n64k16", "bf16", ws=True, in_tensor=True),
    Case("m64n64k32", "e4m3", "f16", b="e2m1", ws=True, in_tensor=True),
    Case("m32n256k32", "s8", "s32", ws=True),
    Case("m32n128k8", "tf32", ws=True),
]
PAIRS = [
    Case("m256n64k16", "f16", group=2),
    Case("m256n96k16", "f16", group=2, in_tensor=True, modes=(0, 6)),
    Case("m128n64k16", "bf16", group=2, modes=(2, 2)),
    Case("m128n64k32", "e4m3", group=2, in_tensor=True),
    Case("m128n64k32", "u8", "s32", group=2, majors="nn"),
    Case("m256n128k32", "e4m3", group=2, **MX8, ids=(1, 2)),
    Case("m128n64k64", "e2m1", group=2, **MX4),
    Case("m128n256k64", "e2m1", group=2, **NV4),
    Case("m256n32k64", "e2m1", group=2, **NV4, in_tensor=True),
]
SPARSE = [
    Case("m128n64k32", "f16", sp=True, modes=(6, 4)),
    Case("m128n64k32", "bf16", sp=True, selector=1, in_tensor=True),
    Case("m128n32k16", "tf32", sp=True, modes=(0, 2)),
    Case("m128n64k64", "e4m3", "f16", b="e2m1", sp=True),
    Case("m128n64k64", "s8", "s32", sp=True, in_tensor=True),
    Case("m128n64k64", "e5m2", sp=True, **MX8, ids=(2, 2)),
    Case("m128n64k128", "e2m1", sp=True, **NV4),
    Case("m128n64k128", "e2m1", sp=True, **MX4, in_tensor=True),
    Case("m256n64k32", "f16", sp=True, group=2),
    Case("m256n64k64", "e4m3", sp=True, group=2, modes=(2, 2)),
    Case("m64n64k32", "f16", sp=True, ws=True),
    Case("m32n128k64", "e4m3", sp=True, ws=True, in_tensor=True),
    Case("m128n64k16", "tf32", sp=True, ws=True, selector=1),
]


@pytest.mark.parametrize("case", some(DENSE + SCALED + WS + PAIRS + SPARSE, 2), ids=str)
def test_memories_written_by_hand_give_the_exact_sums(case):
    memories = Memories(case)
    before, after = memories.images[0], memories.execute()
    assert case.op.layout_letter == case.letter
    assert after.dtype == np.uint32
    assert after.shape == before.shape
    rows, columns, bits = memories.expected()
    assert np.array_equal(memories.taken(after)[rows, columns], bits)
    assert unchanged(memories, before, after)


def unchanged(memories, before, after):
    """Whether all cells without an element of D are as they were."""
    other = np.ones((memories.case.group, 128, 512), bool)
    other[memories.cells] = False
    return np.array_equal(
        before.reshape(other.shape)[other], after.reshape(other.shape)[other]
    )


# -- what depends on undefined elements ---------------------------------------

EVERY = slice(None)
OPERANDS = {
    "a": lambda m, n: ((m - 3, 1), (m - 3, EVERY)),
    "b": lambda m, n: ((2, n - 5), (EVERY, n - 5)),
    "d": lambda m, n: ((m - 7, n - 2), (m - 7, n - 2)),
    "scale_a": lambda m, n: ((m - 1, 0), (m - 1, EVERY)),
    "scale_b": lambda m, n: ((0, n - 1), (EVERY, n - 1)),
}
"""For each operand: an element of it, and the elements of D that depend on it."""


@pytest.mark.parametrize(
    "case", some(DENSE + SCALED + WS + PAIRS + SPARSE, 2, 1), ids=str
)
def test_an_undefined_element_makes_those_undefined_that_depend_on_it(case):
    memories = Memories(case)
    a, b = memories.words
    for name, places in OPERANDS.items():
        if name.startswith("scale") and not case.scale:
            continue
        element, depending = places(memories.m, memories.n)
        other = memories.changed(name, element)
        images = zip(memories.images, other.images, strict=True)
        tensor, shared = (one ^ two for one, two in images)
        assert tensor.any() or shared.any()
        after = undefined(case.op, tensor, a, b, smem=shared, **memories.options)
        wanted = np.zeros((memories.m, memories.n), bool)
        wanted[depending] = True
        assert np.array_equal(memories.taken(after) != 0, wanted), name


def test_undefined_metadata_makes_all_elements_undefined():
    memories = Memories(SPARSE[0])
    tensor, shared = (np.zeros_like(each) for each in memories.images)
    tensor[5, META_COLUMN] = 1
    a, b = memories.words
    after = undefined(SPARSE[0].op, tensor, a, b, smem=shared, **memories.options)
    assert memories.taken(after).all()


def test_what_is_not_read_or_written_stays_as_it_is():
    memories = Memories(DENSE[0])
    tensor, shared = (np.zeros_like(each) for each in memories.images)
    tensor[:, :64] = 0xFFFFFFFF
    a, b = memories.words
    lanes = {"disable_output_lane": [0, 1 << 7, 0, 0], "enable_input_d": 0}
    after = undefined(DENSE[0].op, tensor, a, b, smem=shared, **lanes)
    assert np.flatnonzero(after.any(axis=1)).tolist() == [39]


# -- what the other operands do -----------------------------------------------


def test_d_may_begin_at_any_column():
    memories = Memories(DENSE[0])
    before, shared = memories.images
    moved = np.roll(before, 32, axis=-1)
    a, b = memories.words
    after = DENSE[0].op.execute(
        moved, a, b, smem=shared, d=fm.tensor_memory.TensorAddress(0, 32)
    )
    assert np.array_equal(np.roll(after, -32, axis=-1), memories.execute())


@pytest.mark.parametrize("case", [DENSE[0], PAIRS[2], WS[2]], ids=str)
def test_without_input_d_the_sum_begins_at_zero(case):
    memories = Memories(case)
    after = memories.execute(enable_input_d=0)
    memories.d[:] = 0
    rows, columns, bits = memories.expected()
    assert np.array_equal(memories.taken(after)[rows, columns], bits)


def test_the_upper_half_of_an_f16_cell_becomes_zero():
    memories = Memories(DENSE[1])
    assert (memories.taken(memories.images[0]) >> 16).any()
    assert not (memories.taken(memories.execute()) >> 16).any()


@pytest.mark.parametrize("scale", [0, 1, 15])
@pytest.mark.parametrize("case", [DENSE[0], DENSE[8]], ids=str)
def test_scale_input_d_divides_the_old_d(case, scale):
    memories = Memories(case)
    after = memories.execute(scale_input_d=scale)
    memories.d[:] = np.ldexp(memories.d.view("f4"), -scale).view("u4")
    rows, columns, bits = memories.expected()
    assert np.array_equal(memories.taken(after)[rows, columns], bits)


@pytest.mark.parametrize(
    "bits, fine",
    [
        (0, True),
        (0x80000000, True),
        (0x7F800000, True),
        (0x7FC00000, True),
        (0x01000000, True),
        (0x00FFFFFF, False),
        (0x00000001, False),
        (0x80400000, False),
    ],
)
def test_a_subnormal_d_is_not_scaled(bits, fine):
    """A scale of 1 makes 2**-125 the least normal number; below it nobody knows."""
    op = fm.tcgen05("m128n16k16", a="f16", d="f32")
    image = np.zeros((128, 512), np.uint32)
    image[5, 3] = bits
    given = (image, Memories(DENSE[0]).words[0], Memories(DENSE[0]).words[1])
    smem = np.zeros(1 << 17, np.uint8)
    assert op.execute(*given, smem=smem, scale_input_d=0).shape == image.shape
    if fine:
        d = op.execute(*given, smem=smem, scale_input_d=1)[5, 3]
        assert d == {0x80000000: 0, 0x7FC00000: 0x7FFFFFFF, 0x01000000: 0x00800000}.get(
            bits, bits
        )
    else:
        with pytest.raises(Error, match=r"1 elements of D subnormal.*without a GPU"):
            op.execute(*given, smem=smem, scale_input_d=1)


@pytest.mark.parametrize("case", [DENSE[0], DENSE[2], PAIRS[0], PAIRS[2]], ids=str)
def test_disabled_lanes_keep_what_they_have(case):
    memories = Memories(case)
    words = np.zeros(4 * case.group, np.uint32)
    words[1], words[-1] = 0x80000001, 0x00000300
    off = np.zeros(128 * case.group, bool)
    last = 128 * case.group - 32
    off[[32, 63, last + 8, last + 9]] = True
    off = off.reshape(case.group, 128)
    before = memories.images[0].reshape(-1, 128, 512)
    plain = memories.execute().reshape(-1, 128, 512)
    after = memories.execute(disable_output_lane=words).reshape(-1, 128, 512)
    assert np.array_equal(after[off], before[off])
    assert np.array_equal(after[~off], plain[~off])
    assert case.letter == "F" or not np.array_equal(plain[off], before[off])


@pytest.mark.parametrize(
    "m, mask",
    [
        (128, fm.tensor_memory.ZeroColumnMask(3, 5, first_zero=(1, 0, 0, 0))),
        (64, fm.tensor_memory.ZeroColumnMask(4, 4, start_count=(0, 2, 0, 0))),
        (32, fm.tensor_memory.ZeroColumnMask(1, 7, first_zero=(0, 1, 1, 0))),
    ],
)
def test_columns_of_the_mask_are_zero(m, mask):
    memories = Memories(Case(f"m{m}n64k16", "f16", ws=True))
    after = memories.execute(zero_column_mask=mask)
    assert np.array_equal(after, memories.execute(zero_column_mask=mask.encode()))
    zero = mask.columns(64, m)
    assert 0 < zero.sum() < 64
    memories.b[:, zero] = 0
    rows, columns, bits = memories.expected(100)
    assert np.array_equal(memories.taken(after)[rows, columns], bits)


# -- batches ------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [DENSE[3], SCALED[2], PAIRS[6], SPARSE[1], SPARSE[9]], ids=str
)
def test_a_batch_is_its_parts(case):
    some = [Memories(case, seed) for seed in range(3)]
    tensor, shared = (
        np.stack(each) for each in zip(*(m.images for m in some), strict=True)
    )
    a, b = some[0].words
    after = case.op.execute(tensor, a, b, smem=shared, **some[0].options)
    assert np.array_equal(after, [each.execute() for each in some])
    # One shared memory for all, and a descriptor and a flag for each.
    words = np.full(3, b, np.uint64)
    flags = np.array([0, 1, 0])
    if not case.in_tensor:
        a = np.full(3, a, np.uint64)
    after = case.op.execute(
        tensor, a, words, smem=shared[0], enable_input_d=flags, **some[0].options
    )
    for one, image, flag in zip(after, tensor, flags, strict=True):
        alone = case.op.execute(
            image,
            some[0].words[0],
            b,
            smem=shared[0],
            enable_input_d=flag,
            **some[0].options,
        )
        assert np.array_equal(one, alone)


def test_two_ctas_are_one_large_product():
    """The D of a pair is what one product of all rows and all columns gives."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((256, 16)).astype(np.float16)
    B = rng.standard_normal((16, 64)).astype(np.float16)
    one = fm.tcgen05("m128n64k16", a="f16", d="f32")
    D = np.concatenate([one(half, B) for half in (A[:128], A[128:])])
    pair = fm.tcgen05("m256n64k16", a="f16", d="f32", cta_group=2)
    assert np.array_equal(pair(A, B).view("u4"), D.view("u4"))
    tiles = [fm.shared.tile(pair, "A", A[half]) for half in np.split(np.arange(256), 2)]
    a = tiles[0][1]
    both = [
        fm.shared.tile(pair, "B", B[:, half], image=tile[0])
        for tile, half in zip(tiles, np.split(np.arange(64), 2), strict=True)
    ]
    shared = np.stack([image for image, _ in both])
    tensor = np.zeros((2, 128, 512), np.uint32)
    after = pair.execute(tensor, a, both[0][1], smem=shared)
    assert np.array_equal(pair.d.unpack(after).view("u4"), D.view("u4"))


# -- matrices -----------------------------------------------------------------


@pytest.mark.parametrize("case", [*DENSE[::3], *SCALED, *WS[2:4], *PAIRS[5:8]], ids=str)
def test_matrices_give_the_same_bits_as_memories(case):
    memories, op = Memories(case), case.op
    scales = {}
    if case.scale:
        of = op.scale_a.dtype
        scales["scale_a"] = of.decode(memories.scale_a)
        scales["scale_b"] = of.decode(memories.scale_b)
    given = zip("abd", (memories.a, memories.b, memories.d), strict=True)
    A, B, D = (op.types[name].decode(bits) for name, bits in given)
    found = op.types["d"].encode(op(A, B, D, **scales))
    assert np.array_equal(found, memories.taken(memories.execute()))
    assert np.array_equal(op.types["d"].encode(fm.matmul(op, A, B, D, **scales)), found)
    told = op.explain(A, B, D, row=3, col=5, **scales)
    assert told.explanation.bits == found[3, 5]
    assert told.target == "sm_100a"


@pytest.mark.parametrize("case", [c for c in SPARSE if not c.scale], ids=str)
def test_a_compressed_a_gives_the_same_bits_as_memories(case):
    memories, op = Memories(case), case.op
    A = np.zeros((memories.m, memories.k), memories.a.dtype)
    np.put_along_axis(A, memories.index, memories.a, axis=1)
    given = zip("abd", (A, memories.b, memories.d), strict=True)
    A, B, D = (op.types[name].decode(bits) for name, bits in given)
    found = op.types["d"].encode(op(fm.sparse.compress(op, A), B, D))
    assert np.array_equal(found, memories.taken(memories.execute()))


@pytest.mark.parametrize("case", [each for each in SPARSE if each.group == 1], ids=str)
def test_dense_equals_sparse_where_sums_are_exact(case):
    """Small whole numbers: nothing is lost, whatever is added first."""
    op, rng = case.op, np.random.default_rng(1)
    k = op.shape.k
    dense = fm.tcgen05(
        f"m{op.shape.m}n{op.shape.n}k{k // 2}",
        a=case.a,
        b=case.b or case.a,
        d=case.d,
        kind=case.kind or None,
        ws=case.ws,
        scale=case.scale or None,
        scale_vec=case.vectors or None,
    )
    A = fm.sparse.prune(
        op, rng.integers(0, 4, (op.shape.m, k)).astype(op.types["a"].storage)
    )
    B = rng.integers(0, 4, (k, op.shape.n)).astype(op.types["b"].storage)
    one, two = {}, {}
    if case.scale:
        ones = np.ones((256, 256), op.scale_a.dtype.storage)
        for scales, count in ((one, case.vectors), (two, 2 * case.vectors)):
            scales["scale_a"] = ones[: op.shape.m, :count]
            scales["scale_b"] = ones[:count, : op.shape.n]
    assert np.array_equal(fm.matmul(op, A, B, **one), fm.matmul(dense, A, B, **two))


def test_dask_gives_the_same_bits():
    da = pytest.importorskip("dask.array")
    op, rng = fm.tcgen05("m128n64k32", a="e4m3", d="f32"), np.random.default_rng(0)
    A, B = (
        rng.standard_normal(s).astype(op.types["a"].storage)
        for s in ((70, 160), (160, 50))
    )
    lazy = fm.matmul(op, da.from_array(A, (32, 64)), da.from_array(B, (64, 25)))
    found = lazy.compute(scheduler="synchronous")
    assert np.array_equal(found.view("u4"), fm.matmul(op, A, B).view("u4"))


# -- refusals -----------------------------------------------------------------

F16 = DENSE[0].op


@pytest.mark.parametrize(
    "case, more, error, message",
    [
        (DENSE[0], {"enable_input_d": 2}, ShapeError, "enable_input_d is 0 or 1"),
        (DENSE[0], {"enable_input_d": 0.5}, ShapeError, "enable_input_d is 0 or 1"),
        (DENSE[0], {"scale_input_d": 16}, ShapeError, "scale_input_d is 0 to 15"),
        (DENSE[0], {"scale_input_d": -1}, ShapeError, "scale_input_d is 0 to 15"),
        (DENSE[9], {"scale_input_d": 1}, Error, "kinds f16 and tf32 do"),
        (WS[0], {"scale_input_d": 1}, Error, "takes no scale_input_d"),
        (
            DENSE[0],
            {"scale_input_d": 1, "target": "sm_110a"},
            UnsupportedTarget,
            "sm_110",
        ),
        (DENSE[0], {"disable_output_lane": [0] * 8}, ShapeError, "4 words of 32 bits"),
        (PAIRS[0], {"disable_output_lane": [0] * 4}, ShapeError, "8 words of 32 bits"),
        (DENSE[0], {"disable_output_lane": [1 << 32] * 4}, ShapeError, "given more"),
        (WS[0], {"disable_output_lane": [0] * 4}, Error, "no disable_output_lane"),
        (SCALED[0], {"disable_output_lane": [0] * 4}, Error, "no disable_output_lane"),
        (DENSE[0], {"zero_column_mask": 0}, Error, "only .ws does"),
        (WS[0], {"zero_column_mask": 1 << 56}, Error, "column shift of 1 is not known"),
        (DENSE[0], {"scale_a": 0}, Error, "takes no scale_a"),
        (SCALED[0], {"scale_b": None}, Error, "needs scale_b"),
        (DENSE[0], {"metadata": 0}, Error, "takes no metadata"),
        (SPARSE[0], {"metadata": None}, Error, "needs metadata"),
        (DENSE[0], {"d": 449}, AddressError, "do not fit in 512"),
        (DENSE[0], {"d": 16 << 16}, AddressError, "lane 16"),
        (DENSE[3], {"d": 0}, AddressError, "begin at the same lane, 0 or 16"),
        (
            SCALED[0],
            {"d": 0, "scale_a": 63},
            AddressError,
            "scale_A and D of .*column 63 ",
        ),
        (SCALED[0], {"d": 0, "scale_b": 1}, AddressError, "scale_B and D .*umns 1 to "),
        (SPARSE[0], {"d": 8, "metadata": 8}, AddressError, "metadata and D .*: column"),
        (DENSE[0], {"target": "sm_90a"}, UnsupportedTarget, "given sm_90a"),
        (DENSE[0], {"target": "sm_120a"}, UnsupportedTarget, "given sm_120a"),
    ],
)
def test_wrong_operands_are_refused(case, more, error, message):
    with pytest.raises(error, match=message):
        Memories(case).execute(**more)


@pytest.mark.parametrize("case", [DENSE[1], WS[2], PAIRS[1], PAIRS[8]])
def test_a_in_the_cells_of_d_is_refused(case):
    with pytest.raises(AddressError, match=r"A and D of .* overlap: columns "):
        Memories(case).execute(d=A_COLUMN - 2)


def test_two_d_share_columns_in_different_lanes():
    """With 64 rows, D has 16 of every 32 lanes: from lane 0 or 16 on."""
    op = fm.tcgen05("m64n32k16", a="f16")
    smem, a = fm.shared.tile(op, "A", np.ones((64, 16), np.float16))
    smem, b = fm.shared.tile(op, "B", np.ones((16, 32), np.float16), image=smem)
    tmem = np.zeros((128, 512), np.uint32)
    for lane in (0, 16):
        at = fm.tensor_memory.TensorAddress(lane, 0)
        tmem = op.execute(tmem, a, b, smem=smem, d=at, enable_input_d=0)
    assert (op.d.unpack(tmem, address=0) == 16).all()
    assert (op.d.unpack(tmem, address=16 << 16) == 16).all()


@pytest.mark.parametrize(
    "case, column, what",
    [
        (SCALED[2], 416, "scale_A has 4 copies.*differ"),
        (PAIRS[5], 448, "scale_B has 8 copies.*differ"),
        (WS[2], 384, "A has 4 copies.*differ"),
        (PAIRS[3], 384, "A has 2 copies.*differ"),
        (SPARSE[10], 400, "metadata has 2 copies.*differ"),
    ],
)
def test_copies_that_differ_are_refused(case, column, what):
    memories = Memories(case)
    before, shared = memories.images
    before[..., 70, column] ^= 0xFFFFFFFF
    a, b = memories.words
    with pytest.raises(Error, match=f"{what}.*not known without a GPU"):
        case.op.execute(before, a, b, smem=shared, **memories.options)


def test_metadata_of_64_rows_is_refused():
    op = fm.tcgen05("m64n64k32", a="f16", d="f32", sp=True)
    tensor, shared = Memories(SPARSE[0]).images
    with pytest.raises(Error, match="no source but figures says where the metadata"):
        op.execute(tensor, 1 << 46, 1 << 46, smem=shared, metadata=0)


@pytest.mark.parametrize(
    "op, message",
    [
        (fm.tcgen05("m128n64k96", a="e2m1", kind="mxf4"), "nobody has published how"),
        (fm.tcgen05("m128n64k16", a="f16", ashift=True), r"\.ashift .* not known"),
        (fm.instruction("tcgen05.mma.cta_group::1.kind::f16"), "give idesc="),
    ],
)
def test_what_nobody_knows_is_refused(op, message):
    tensor, shared = Memories(DENSE[0]).images
    scales = {"scale_a": 64, "scale_b": 96} if op.scale_vec else {}
    a = fm.tensor_memory.TensorAddress(0, 256) if op.values.get("ashift") else 1 << 46
    with pytest.raises(Error, match=message):
        op.execute(tensor, a, 1 << 46, smem=shared, **scales)


def test_b_is_never_in_tensor_memory():
    memories = Memories(DENSE[0])
    tensor, shared = memories.images
    with pytest.raises(Error, match="B is in shared memory, never in tensor memory"):
        F16.execute(
            tensor, memories.words[0], fm.tensor_memory.TensorAddress(0, 0), smem=shared
        )


def test_a_pair_needs_both_memories():
    memories = Memories(PAIRS[0])
    tensor, shared = memories.images
    a, b = memories.words
    with pytest.raises(ShapeError, match=r"two CTAs: \(…, 2, bytes\)"):
        PAIRS[0].op.execute(tensor, a, b, smem=shared[0])
    with pytest.raises(ShapeError, match="two CTAs"):
        PAIRS[0].op.execute(tensor[0], a, b, smem=shared)


def test_a_negated_operand_is_part_of_the_instruction():
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal(s).astype(np.float16) for s in ((128, 40), (40, 64)))
    plain = fm.tcgen05("m128n64k16", a="f16", d="f32")
    for name, X, Y in (("negate_a", -A, B), ("negate_b", A, -B)):
        op = fm.tcgen05("m128n64k16", a="f16", d="f32", **{name: True})
        assert np.array_equal(fm.matmul(op, A, B), fm.matmul(plain, X, Y))
        told = op.explain(A, B, row=1, col=2)
        assert told.explanation.bits == fm.matmul(op, A, B).view("u4")[1, 2]
