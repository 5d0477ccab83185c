"""Execution: registers and matrices, all families, bad input refused."""

import re

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import catalogue, instruction
from fragmenta.reference.execution.mma import call, execute
from fragmenta.reference.isa.target import chosen_target

RNG = np.random.default_rng(7)
S8 = instruction("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
F16 = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
SP = instruction("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")


def small(of, shape):
    """Small whole numbers: every target multiplies and adds them exactly."""
    if of.name == "b1":
        return RNG.integers(0, 2, shape).astype(np.uint8)
    low = 0 if of.kind in ("unsigned", "scale") else -2
    values = RNG.integers(low, 3, shape)
    return values.astype(of.storage)


def exact(values):
    return values.astype(np.float64)


def multiplying():
    for family in ("mma", "mma.sp", "wmma.mma"):
        yield from catalogue(family)


@pytest.mark.parametrize("family", ["mma", "mma.sp"])
def test_small_integers_are_exact_for_every_entry(family):
    """On the first and the last target that has each instruction."""
    for op in catalogue(family):
        m, n, k = op.shape
        if op.fragments["A"].layout.data[0] == "matrix":
            continue  # four matrices at once: see below
        A = small(op.types["a"], (m, k))
        B, C = small(op.types["b"], (k, n)), small(op.types["c"], (m, n))
        if op.sparse:
            A = fm.sparse.prune(op, A)
        scales = {}
        if op.scale_vec:
            one = op.scale_a.dtype.encode(np.ones(1, np.float32))
            one = op.scale_a.dtype.decode(one)[0]
            scales["scale_a"] = np.full(op.scale_a.shape, one)
            scales["scale_b"] = np.full(op.scale_b.shape, one)
        expected = expected_product(op, A, B, C)
        for target in {op.requires.targets[0], op.requires.targets[-1]}:
            D = call(op, A, B, C, target=target, **scales)
            assert (exact(D) == expected).all(), (op, target)


def expected_product(op, A, B, C):
    if op.types["a"].name != "b1":
        return exact(A) @ exact(B) + exact(C)
    both = exact(A) @ exact(B)
    if op.values["bitop"] == "xor.popc":
        both = exact(A).sum(1)[:, None] + exact(B).sum(0) - 2 * both
    return both + exact(C)


def test_registers_and_matrices_agree():
    A, B = small(S8.types["a"], (3, 16, 32)), small(S8.types["b"], (3, 32, 8))
    C = small(S8.types["c"], (3, 16, 8))
    d = S8.execute(S8.a.pack(A), S8.b.pack(B), S8.c.pack(C))
    assert (S8.d.unpack(d) == S8(A, B, C)).all()
    assert (S8(A, B) == A.astype(int) @ B.astype(int)).all()


def test_batch_axes_broadcast():
    A = small(F16.types["a"], (2, 1, 16, 16))
    B = small(F16.types["b"], (3, 16, 8))
    d = F16.execute(F16.a.pack(A), F16.b.pack(B), F16.c.pack(np.zeros((16, 8), "f4")))
    assert d.shape == (2, 3, 32, 4)
    assert (F16.d.unpack(d) == exact(A) @ exact(B)).all()


@pytest.mark.parametrize("selector", SP.selectors)
def test_sparse_equals_dense_on_a_pruned_matrix(selector):
    A = fm.sparse.prune(SP, RNG.integers(-8, 8, (16, 64), dtype=np.int8))
    B = RNG.integers(-8, 8, (64, 8), dtype=np.int8)
    C = RNG.integers(-9, 9, (16, 8), dtype=np.int32)
    sp = fm.sparse.compress(SP, A)
    words = SP.metadata.pack(sp.indices, selector=selector)
    d = SP.execute(
        SP.a.pack(sp.values),
        SP.b.pack(B),
        SP.c.pack(C),
        metadata=words,
        selector=selector,
    )
    dense = instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    assert (SP.d.unpack(d) == dense(A, B, C)).all()
    assert (SP(A, B, C) == SP(sp, B, C)).all()


def test_rows_permuted_in_are_rows_permuted_out():
    A = RNG.standard_normal((16, 16)).astype(np.float16)
    B = RNG.standard_normal((16, 8)).astype(np.float16)
    C = RNG.standard_normal((16, 8)).astype(np.float32)
    order = RNG.permutation(16)
    assert (F16(A, B, C)[order] == F16(A[order], B, C[order])).all()


def test_four_multiplications_at_once():
    op = instruction("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f16")
    A = small(op.types["a"], (4, 8, 4))
    B, C = small(op.types["b"], (4, 4, 8)), small(op.types["c"], (4, 8, 8))
    for target in ("sm_70", "sm_90"):
        d = op.execute(op.a.pack(A), op.b.pack(B), op.c.pack(C), target=target)
        assert (op.d.unpack(d) == exact(A) @ exact(B) + exact(C)).all()


def test_saturation_and_wrapping():
    A, B = np.full((16, 32), 127, np.int8), np.full((32, 8), 127, np.int8)
    C = np.full((16, 8), 2**31 - 5, np.int32)
    clamped = fm.mma("m16n8k32", a="s8", satfinite="satfinite")
    assert (clamped(A, B, C) == 2**31 - 1).all()
    assert (S8(A, B, C) == np.int32(2**31 - 5 + 127 * 127 * 32 - 2**32)).all()


def test_targets_differ_and_the_default_is_the_measured_one():
    A = np.zeros((16, 16), np.float16)
    A[:, 0], A[:, 1] = 1, 2.0**-14
    B = np.zeros((16, 8), np.float16)
    B[0], B[1] = 2.0**11, 1
    on = {
        target: float(F16(A, B, target=target)[0, 0]) for target in ("sm_80", "sm_90")
    }
    # 2^11 + 2^-14 needs 25 fraction bits: Hopper aligns with 25, Ampere with 24,
    # and both then keep 23
    assert on == {"sm_80": 2048.0, "sm_90": 2048.0}
    assert chosen_target(F16, None) == "sm_90a"
    assert float(F16(A, B)[0, 0]) == on["sm_90"]


def test_fp8_on_hopper_warpgroups_keeps_13_bits():
    op = fm.mma("m16n8k32", a="e4m3", d="f32")
    A = np.zeros((16, 32), ml_dtypes.float8_e4m3fn)
    B = np.zeros((32, 8), ml_dtypes.float8_e4m3fn)
    A[:, 0], B[0] = 1, 1
    C = np.full((16, 8), 2.0**-15, np.float32)
    assert float(op(A, B, C, target="sm_89")[0, 0]) == 1.0
    assert float(op(A, B, C, target="sm_90")[0, 0]) == 1 + 2.0**-15


def regs(part, count=None):
    return np.zeros((part.lanes, count or part.registers), np.uint32)


def sparse_call(**changes):
    sp = fm.sparse.compress(SP, np.zeros((16, 64), np.int8))
    given = {"metadata": SP.metadata.pack(sp.indices), "selector": 0, **changes}
    return SP.execute(regs(SP.a), regs(SP.b), regs(SP.c), **given)


BAD = {
    "lanes": (
        lambda: S8.execute(regs(S8.a)[:31], regs(S8.b), regs(S8.c)),
        fm.errors.ShapeError,
        "32 lanes",
    ),
    "registers": (
        lambda: S8.execute(regs(S8.a, 3), regs(S8.b), regs(S8.c)),
        fm.errors.ShapeError,
        "A is in registers",
    ),
    "selector": (lambda: sparse_call(selector=2), fm.errors.ShapeError, "selector 2"),
    "metadata missing": (
        lambda: sparse_call(metadata=None),
        fm.errors.BadMetadata,
        "needs",
    ),
    "metadata twice": (
        lambda: sparse_call(metadata=np.full((32, 1), 0x55555555, "u4")),
        fm.errors.BadMetadata,
        "twice",
    ),
    "metadata unordered": (
        lambda: sparse_call(metadata=np.full((32, 1), 0x11111111, "u4")),
        fm.errors.BadMetadata,
        "ordered metadata",
    ),
    "metadata for dense": (
        lambda: S8.execute(regs(S8.a), regs(S8.b), regs(S8.c), metadata=regs(S8.a)),
        fm.Error,
        "dense",
    ),
    "register type": (
        lambda: S8.execute(regs(S8.a).astype(float), regs(S8.b), regs(S8.c)),
        fm.errors.ShapeError,
        "registers are uint32",
    ),
    "matrix type": (
        lambda: S8(np.full((16, 32), 0.5), np.zeros((32, 8))),
        fm.errors.ValueRangeError,
        "0.5",
    ),
    "matrix shape": (
        lambda: S8(np.zeros((16, 31), np.int8), np.zeros((32, 8))),
        fm.errors.ShapeError,
        "16x32",
    ),
    "target": (
        lambda: S8(np.zeros((16, 32)), np.zeros((32, 8)), target="sm_75"),
        fm.errors.UnsupportedTarget,
        r"needs PTX 7\.0, sm_80\+",
    ),
    "no such target": (
        lambda: S8(np.zeros((16, 32)), np.zeros((32, 8)), target="sm_91"),
        fm.errors.UnsupportedTarget,
        "did you mean",
    ),
    "not sparse": (
        lambda: SP(np.ones((16, 64), np.int8), np.zeros((64, 8), np.int8)),
        fm.errors.NotSparse,
        "row 0",
    ),
    "scales": (
        lambda: S8(np.zeros((16, 32)), np.zeros((32, 8)), scale_a=1),
        fm.Error,
        "takes no scales",
    ),
    "family": (
        lambda: execute(fm.find("movmatrix"), 0, 0, 0),
        fm.Error,
        "other operands",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_computes_nothing(name):
    work, error, words = BAD[name]
    with pytest.raises(error, match=words):
        work()


# ── what must not yield a number ────────────────────────────────────────────


ORDERED = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
TWICE = fm.sparse.Compressed(
    np.ones((16, 32), int), np.full((16, 8), 0b0001), ORDERED.granularity
)
WIDER = fm.sparse.Compressed(
    np.ones((16, 32), int), np.full((16, 8), 0b1110), ORDERED.granularity, 60
)
B = np.ones((64, 8), int)


@pytest.mark.parametrize(
    "compute",
    [
        lambda a: ORDERED(a, B),
        lambda a: fm.matmul(ORDERED, a, B),
        lambda a: ORDERED.explain(a, B, row=0, col=0),
        lambda a: fm.sparse.decompress(ORDERED, a),
    ],
)
def test_codes_and_widths_are_checked_wherever_they_are_used(compute):
    with pytest.raises(fm.errors.BadMetadata, match="names pair 1 before 0"):
        compute(TWICE)
    with pytest.raises(fm.errors.ShapeError, match="60 columns, but row 0 stores"):
        compute(WIDER)
    unordered = fm.mma("m16n8k64", a="s4", sp="sp")
    assert unordered(TWICE, B)[0, 0] == 32


def test_selectors_need_something_to_select():
    op = fm.mma("m16n8k64", a="s4")
    one = [part.pack(np.ones(part.shape, int)) for part in (op.a, op.b, op.c)]
    with pytest.raises(fm.Error, match="takes no metadata and no selector"):
        op.execute(*one, selector=1)
    with pytest.raises(fm.Error, match=r"byte_a, .* select scales; .* takes no scales"):
        op.execute(*one, byte_a=1)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: fm.wgmma("m64n8k64", a="s8", sp="foo"), "or 'sp'; given 'foo'"),
        (lambda: fm.wgmma("m64n8k64", a="s8", sp=1), "sp is True or 'sp'; given 1"),
        (lambda: fm.mma("m16n8k64", a="s4", sp="foo"), "'sp::ordered_metadata'; given"),
        (lambda: fm.catalogue("wgmmo"), "no family wgmmo"),
        (lambda: fm.find(None), "named by text; given None"),
        (lambda: fm.search(3), "named by text; given 3"),
        (lambda: ORDERED.fragment(3), "has no operand 3"),
        (lambda: ORDERED.supported_on("sm_80", "x"), "written as 8.5; given 'x'"),
        (lambda: ORDERED.a.holds("3"), "lane must be a whole number; given '3'"),
        (lambda: ORDERED.a.holds(0, register=1.0), "register must be a whole number"),
        (
            lambda: ORDERED.a.where(3, 40),
            "stored without its zeros, in columns 0 to 31",
        ),
        (lambda: ORDERED.a.pack(np.zeros((16, 64), int)), "its zeros: see compress"),
        (lambda: ORDERED.a.pack(WIDER), "its .values with op.a, its .indices"),
        (
            lambda: fm.sparse.Compressed([[1]], [[4]], "2:4"),
            "op.granularity; given '2:4'",
        ),
        (
            lambda: fm.sparse.decompress(ORDERED, B),
            "as compress returns it; given ndarray",
        ),
        (lambda: fm.Layout.parse(None), "read from one line; given None"),
    ],
)
def test_wrong_arguments_are_named(ask, said):
    with pytest.raises(fm.Error, match=re.escape(said)):
        ask()
