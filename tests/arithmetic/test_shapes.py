"""Any size, any batch, any number of instructions; and what is refused."""

import os
import subprocess
import sys

import numpy as np
import pytest

from fragmenta.base.arrays import threads
from fragmenta.errors import Error, ShapeError, ValueRangeError
from fragmenta.reference.arithmetic import model, multiply
from fragmenta.reference.arithmetic.operands import Operands
from tests.clock import HANG
from tests.thinning import repeats, some

from .inputs import operands

HALF = model("sm_90", "f16", "f16", "f32", "f32", 16)
SPARSE = model("sm_90", "f16", "f16", "f32", "f32", 32, sparse=True)
FP8 = model("sm_90", "e4m3", "e5m2", "f32", "f32", 32)
MODELS = {
    "f16": HALF,
    "f16 accumulator": model("sm_80", "f16", "f16", "f16", "f16", 16),
    "bf16": model("sm_90", "bf16", "bf16", "f32", "f32", 8),
    "sparse": SPARSE,
    "expanded": FP8,
    "expanded sparse": model("sm_90", "e4m3", "e5m2", "f32", "f32", 64, sparse=True),
    "wgmma": model("sm_90", "e4m3", "e4m3", "f32", "f32", 32, unit="wgmma"),
    "f64": model("sm_90", "f64", "f64", "f64", "f64", 8),
    "k4": model("sm_90", "f16", "f16", "f16", "f16", 4),
    "s8": model("sm_90", "s8", "u8", "s32", "s32", 32),
    "s8 satfinite": model("sm_90", "s8", "u8", "s32", "s32", 32, satfinite=True),
    "s4 sparse": model("sm_90", "s4", "s4", "s32", "s32", 64, sparse=True),
    "b1": model("sm_90", "b1", "b1", "s32", "s32", 128, bitop="xor"),
    "mxf8": model("sm_120a", "e4m3", "e3m2", "f32", "f32", 32, kind="mxf8f6f4"),
    "mxf4": model("sm_120a", "e2m1", "e2m1", "f32", "f32", 64, kind="mxf4"),
}


def one_by_one(a, b, c, how, more):
    """Instruction by instruction, each result the accumulator of the next."""
    stored, k, v = how.stored, how.k, how.scale_vec
    for i in range(a.shape[-1] // stored):
        some = {
            "index": lambda x, i=i: x[..., i * stored : (i + 1) * stored],
            "scale_a": lambda x, i=i: x[..., i * v : (i + 1) * v],
            "scale_b": lambda x, i=i: x[..., i * v : (i + 1) * v, :],
        }
        c = multiply(
            a[..., i * stored : (i + 1) * stored],
            b[..., i * k : (i + 1) * k, :],
            c,
            how,
            **{name: some[name](array) for name, array in more.items()},
        )
    return c


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "rows, columns", some([(130, 9), (16, 8), (5, 140), (1, 1)], 2)
)
def test_a_chain_is_its_links(name, rows, columns):
    how = MODELS[name]
    rng = np.random.default_rng(rows)
    chained = max(3, 300 // how.stored) if rows == 16 else 3
    a, b, c, more = operands(rng, how, "near", 2, rows, columns, chained)
    whole = multiply(a, b, c, how, **more)
    assert (whole == one_by_one(a, b, c, how, more)).all()


@pytest.mark.parametrize("name", MODELS)
def test_tiles_are_independent(name):
    how = MODELS[name]
    rng = np.random.default_rng(2)
    a, b, c, more = operands(rng, how, "bits", 1, 40, 24, 2)
    whole = multiply(a, b, c, how, **more)
    rows, columns = slice(17, 33), slice(8, 19)
    cut = {
        "index": lambda x: x[:, rows],
        "scale_a": lambda x: x[:, rows],
        "scale_b": lambda x: x[:, :, columns],
    }
    some = {key: cut[key](array) for key, array in more.items()}
    part = multiply(a[:, rows], b[:, :, columns], c[:, rows, columns], how, **some)
    assert (part == whole[:, rows, columns]).all()


# Every operand that is shared, and every model.
@repeats(together=1)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shared", ["a", "b", "c", "index", "scale_a", "scale_b"])
def test_a_batch_may_share_an_operand(name, shared):
    how = MODELS[name]
    rng = np.random.default_rng(3)
    a, b, c, more = operands(rng, how, "near", 3, 4, 8, 2)
    given = {"a": a, "b": b, "c": c, **more}
    if shared not in given:
        return
    given[shared] = given[shared][1:2]
    found = multiply(model=how, **given)
    full = {key: np.broadcast_to(x, (3, *x.shape[1:])) for key, x in given.items()}
    assert (found == multiply(model=how, **full)).all()


def test_many_batch_axes():
    rng = np.random.default_rng(4)
    a, b, c, more = operands(rng, HALF, "near", 6, 16, 8)
    a, b, c = (x.reshape(2, 3, *x.shape[1:]) for x in (a, b, c))
    d = multiply(a, b[:, :1], c[0], HALF, **more)
    assert d.shape == (2, 3, 16, 8)
    alone = multiply(a[1, 2], b[1, 0], c[0, 2], HALF)
    assert alone.shape == (16, 8)
    assert (d[1, 2] == alone).all()


@pytest.mark.parametrize("shape", [(0, 16, 8), (3, 0, 8), (3, 16, 0)])
def test_nothing_gives_nothing(shape):
    batch, rows, columns = shape
    for how in MODELS.values():
        rng = np.random.default_rng(5)
        a, b, c, more = operands(rng, how, "near", batch, rows, columns)
        assert multiply(a, b, c, how, **more).shape == shape


def test_threads_change_nothing(monkeypatch):
    rng = np.random.default_rng(6)
    a, b, c, _ = operands(rng, HALF, "bits", 300, 16, 8)
    together = multiply(a, b, c, HALF)
    monkeypatch.setattr(threads, "cores", lambda: 1)
    assert (together == multiply(a, b, c, HALF)).all()


def test_any_order_of_memory():
    rng = np.random.default_rng(7)
    a, b, c, _ = operands(rng, HALF, "near", 2, 16, 8)
    straight = multiply(a, b, c, HALF)
    turned = [np.asfortranarray(x) for x in (a, b, c)]
    for x in turned:
        x.flags.writeable = False
    assert (straight == multiply(*turned, HALF)).all()


def test_operands_are_left_alone():
    rng = np.random.default_rng(8)
    for how in MODELS.values():
        a, b, c, more = operands(rng, how, "near", 2, 16, 8)
        before = [x.copy() for x in (a, b, c)]
        multiply(a, b, c, how, **more)
        assert all((x == y).all() for x, y in zip((a, b, c), before, strict=True))
        assert a.flags.writeable


@pytest.mark.parametrize("name", ["s8", "s8 satfinite", "s4 sparse"])
def test_blas_adds_up_to_the_same(name):
    from fragmenta.reference.arithmetic import integers

    how = MODELS[name]
    rng = np.random.default_rng(9)
    a, b, c, more = operands(rng, how, "bits", 2, 80, 70, 2100 // how.k + 2)
    c %= np.uint32(1 << 20)
    given = Operands.check(how, a, b, c, **more)
    assert integers.suits_blas(given)
    x, y = integers._integers(given.a, how.a), integers._integers(given.b, how.b)
    plain = integers._plain(given, x, y)
    assert (integers._blas(given, x, y) == plain).all()
    assert (multiply(a, b, c, how, **more) == plain).all()


def test_clamping_on_the_way_needs_the_plain_loops():
    how = MODELS["s8 satfinite"]
    a = np.full((64, 64), 127, np.uint8)
    b = np.full((64, 64), 255, np.uint8)
    b[32:] = 0
    c = np.full((64, 64), 0x7FFFFFFF, np.uint32)
    a[:, 32:] = 0x80
    b[32:] = 1
    d = multiply(a, b, c, how).view(np.int32)
    assert (d == 2**31 - 1 - 32 * 128).all()


def test_packed_bits_are_bits():
    rng = np.random.default_rng(10)
    how = MODELS["b1"]
    a, b, c, _ = operands(rng, how, "bits", 2, 16, 8, 3)
    packed_a = np.packbits(a, axis=-1, bitorder="little").view(np.uint32)
    packed_b = np.packbits(b.swapaxes(1, 2), axis=-1, bitorder="little")
    packed_b = packed_b.view(np.uint32).swapaxes(1, 2)
    expected = multiply(a, b, c, how)
    assert (multiply(packed_a, packed_b, c, how) == expected).all()


def _refused(error, message, how=HALF, **changed):
    rng = np.random.default_rng(0)
    a, b, c, more = operands(rng, how, "near", 2, 16, 8)
    given = {"a": a, "b": b, "c": c, **more, **changed}
    given = {name: x for name, x in given.items() if x is not None}
    with pytest.raises(error, match=message):
        multiply(model=how, **given)


def test_bad_operands_are_refused():
    zeros = np.zeros
    _refused(Error, "a is float16; raw bits of f16 are uint16", a=zeros((16, 16), "f2"))
    _refused(Error, "c is uint16; raw bits of f32", c=zeros((16, 8), np.uint16))
    _refused(ShapeError, "a has shape", a=zeros(16, np.uint16))
    _refused(ShapeError, "a has 12 columns", a=zeros((2, 16, 12), np.uint16))
    _refused(ShapeError, "a has 0 columns", a=zeros((2, 16, 0), np.uint16))
    _refused(ShapeError, "b is 8 x 8; .* 16 x 8", b=zeros((2, 8, 8), np.uint16))
    _refused(ShapeError, "c is 8 x 16; .* 16 x 8", c=zeros((2, 8, 16), np.uint32))
    _refused(ShapeError, "do not broadcast together", c=zeros((3, 16, 8), np.uint32))
    _refused(Error, "takes no index", index=zeros((2, 16, 16), np.uint8))
    _refused(Error, "takes no scale_a", scale_a=zeros((2, 16, 1), np.uint8))
    _refused(Error, "needs index", SPARSE, index=None)
    _refused(Error, "needs scale_b", MODELS["mxf8"], scale_b=None)
    _refused(Error, "positions are integers", SPARSE, index=zeros((2, 16, 16)))
    high, low = zeros((2, 16, 16), np.uint8), zeros((2, 16, 16), np.int8)
    high[0, 0, 0], low[0, 0, 0] = 32, -1
    _refused(ValueRangeError, "index holds 32", SPARSE, index=high)
    _refused(ValueRangeError, "index holds -1", SPARSE, index=low)
    wide = np.full((2, 16, 64), 16, np.uint8)
    _refused(ValueRangeError, "a holds 0x10; e2m1 has 4 bits", MODELS["mxf4"], a=wide)
    mixed = model("sm_90", "f16", "f16", "f32", "f16", 16, unit="wmma")
    _refused(
        ShapeError,
        "cannot use the f16 result",
        mixed,
        a=zeros((2, 16, 32), np.uint16),
        b=zeros((2, 32, 8), np.uint16),
    )


def test_llvm_is_imported_only_to_execute():
    code = "import sys, fragmenta.reference.arithmetic; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=_environment())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_gets_its_own_threads():
    code = """
import os, warnings
import numpy as np
from fragmenta.reference.arithmetic import model, multiply
warnings.simplefilter("ignore")
a = np.full((400, 16, 16), 0x3C00, np.uint16)
c = np.zeros((400, 16, 8), np.uint32)
how = model("sm_90", "f16", "f16", "f32", "f32", 16)
multiply(a, a[:, :, :8], c, how)
child = os.fork()
if not child:
    d = multiply(a, a[:, :, :8], c, how)
    os._exit(int((d.view(np.float32) != 16).any()))
assert os.waitpid(child, 0)[1] == 0
"""
    run = subprocess.run
    run([sys.executable, "-c", code], check=True, env=_environment(), timeout=HANG)


def _environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
