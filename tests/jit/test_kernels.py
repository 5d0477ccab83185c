"""What a traced function means, and how it is compiled and called."""

import ctypes
from functools import partial

import numpy as np
import pytest

from fragmenta.base import progress
from fragmenta.base.jit import compiler
from fragmenta.base.jit.compiler import (
    Traced,
    address_of_call,
    digest_of,
    kernel,
    pointer,
)
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I8,
    I32,
    I64,
    LANES,
    any_lane,
    call_address,
    compare_unsigned,
    convert,
    fma,
    is_nan,
    larger,
    ones,
    select,
    smaller,
    truncate,
)
from tests.clock import ByHand


def unary(of, work, x):
    """What an operation makes of every element of an array."""
    out = np.empty_like(x)

    @kernel(x=pointer(of), out=pointer(of), count=I64)
    def each(code, x, out, count):
        with code.loop(count) as i:
            out[i] = work(x[i])

    each(x, out, len(x))
    return out


INTEGERS = np.array([-(2**31), -7, -1, 0, 1, 5, 2**31 - 1], np.int32)


@pytest.mark.parametrize(
    "traced, plain",
    [
        (lambda x: x + 3, lambda x: x + np.int32(3)),
        (lambda x: 3 - x, lambda x: np.int32(3) - x),
        (lambda x: x * 5, lambda x: x * np.int32(5)),
        (lambda x: x >> 3, lambda x: x >> 3),
        (lambda x: x << 2, lambda x: x << 2),
        (lambda x: x & 12 | 1, lambda x: x & 12 | 1),
        (lambda x: ~x ^ 5, lambda x: ~x ^ 5),
        (lambda x: larger(x, 2), lambda x: np.maximum(x, 2)),
        (lambda x: smaller(x, 2), lambda x: np.minimum(x, 2)),
        (lambda x: select(x >= 0, x, -1), lambda x: np.where(x >= 0, x, -1)),
        (
            lambda x: select(compare_unsigned(">", x, 9), 1, x),
            lambda x: np.where(x.view("u4") > 9, 1, x),
        ),
        (ones, lambda x: np.bitwise_count(x.view("u4")).astype("i4")),
        (lambda x: convert(convert(x, I8), I32), lambda x: x.astype("i1").astype("i4")),
        (
            lambda x: convert(convert(x, I8), I32, signed=False),
            lambda x: x.astype("u1").astype("i4"),
        ),
    ],
)
def test_integers(traced, plain):
    with np.errstate(over="ignore"):
        assert unary(I32, traced, INTEGERS).tolist() == plain(INTEGERS).tolist()


def test_division_is_that_of_c():
    x = np.array([-7, 7, -8, 8], np.int32)
    assert unary(I32, lambda x: x // 2, x).tolist() == [-3, 3, -4, 4]
    assert unary(I32, lambda x: x % 2, x).tolist() == [-1, 1, 0, 0]


FLOATS = np.array([-np.inf, -2.75, -0.0, 0.0, 0.5, 1e300, np.inf, np.nan])


@pytest.mark.parametrize(
    "traced, plain",
    [
        (lambda x: x - x, lambda x: x - x),
        (truncate, np.trunc),
        (abs, np.abs),
        (lambda x: select(x == x * 1, x, 7.0), lambda x: np.where(x == x * 1, x, 7.0)),
        (lambda x: select(x != x * 1, 7.0, x), lambda x: np.where(x != x * 1, 7.0, x)),
        (lambda x: select(is_nan(x), 1.0, x), lambda x: np.where(np.isnan(x), 1.0, x)),
        (
            lambda x: convert(convert(x, F32), F64),
            lambda x: x.astype("f4").astype("f8"),
        ),
    ],
)
def test_floats(traced, plain):
    with np.errstate(all="ignore"):
        expected = plain(FLOATS)
    found = unary(F64, traced, FLOATS)
    assert np.array_equal(found, expected, equal_nan=True)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()


def test_a_fused_multiply_add_rounds_once():
    x = np.array([1 + 2.0**-30])
    assert unary(F64, lambda x: fma(x, x, x * 0.0 - 1.0), x)[0] == 2.0**-29 + 2.0**-60


def test_vectors_take_scalars_and_numbers():
    x, out = np.arange(16.0), np.zeros(16)

    @kernel(x=pointer(F64), out=pointer(F64), factor=F64)
    def scale(code, x, out, factor):
        with code.loop(16, step=LANES) as i:
            out[i] = x.lanes(i) * factor + 1.0

    scale(x, out, 2.5)
    assert (out == x * 2.5 + 1).all()


def test_a_loop_may_not_run_at_all():
    x = np.ones(4)

    @kernel(x=pointer(F64), start=I64, stop=I64)
    def clear(code, x, start, stop):
        with code.loop(stop, start=start) as i:
            x[i] = x[i] * 0.0

    clear(x, 2, 2)
    clear(x, 3, 1)
    assert x.tolist() == [1, 1, 1, 1]
    clear(x, 1, 3)
    assert x.tolist() == [1, 0, 0, 1]


def test_arrays_of_another_type_or_with_gaps_are_refused():
    with pytest.raises(TypeError, match="array of float64; given float32"):
        unary(F64, lambda x: x, np.ones(4, np.float32))
    with pytest.raises(TypeError, match="contiguous: False"):
        unary(F64, lambda x: x, np.ones(8)[::2])


def test_types_that_do_not_mix_are_refused_while_tracing():
    with pytest.raises(TypeError, match="i32 and i64 do not mix"):
        unary(I32, lambda x: x + convert(x, I64), np.ones(1, np.int32))
    with pytest.raises(TypeError, match="not true or false before"):
        unary(I32, lambda x: x if x > 1 else x + 1, np.ones(1, np.int32))


def test_a_slow_compilation_is_announced(monkeypatch, capfd):
    monkeypatch.setenv("FRAGMENTA_CACHE", "")
    monkeypatch.delenv(progress.VARIABLE)
    clock = ByHand()
    monkeypatch.setattr(progress, "clock", clock)
    real = compiler._optimized
    for seconds, said in ((0.9, ""), (1, "fragmenta: compiling each, once\n")):

        def slow(text, *level, seconds=seconds):
            clock.move(seconds)
            return real(text, *level)

        monkeypatch.setattr(compiler, "_optimized", slow)
        unary(I32, lambda x, seconds=seconds: x + int(seconds), np.ones(1, np.int32))
        assert capfd.readouterr().err == said


def test_gathered_and_scattered_numbers_and_tables():
    order = np.array([3, 1, 0, 2, 7, 6, 5, 4])

    @kernel(x=pointer(I32), out=pointer(I32))
    def reorder(code, x, out):
        table = code.table(order.tolist(), I64)
        places = [table[i] for i in range(LANES)]
        out.scatter(places, x.after(2).gather(places))

    x, out = np.arange(10, dtype=np.int32), np.zeros(8, np.int32)
    reorder(x, out)
    assert (out == x[2:]).all()


def test_a_view_has_the_same_bytes():
    @kernel(x=pointer(I32), out=pointer(I8))
    def bytes_of(code, x, out):
        with code.loop(8) as i:
            out[i] = x.view(I8)[i]

    x, out = np.array([0x04030201, -1], np.int32), np.zeros(8, np.uint8)
    bytes_of(x, out)
    assert (out == x.view(np.uint8)).all()


def twice_and_once_more(traced):
    """A kernel that doubles a number, and one that calls it and adds 1."""

    def double(code, x):
        traced.append("double")
        x[0] = x[0] * 2

    def more(code, x):
        traced.append("more")
        call_address(address_of_call(code, "double"), [x])
        x[0] = x[0] + 1

    inner = Traced("double", {"x": pointer(I32)}, double)
    return inner, Traced("more", {"x": pointer(I32)}, more, calls={"double": inner})


def test_a_function_calls_another_by_name(monkeypatch, tmp_path):
    """Also when its machine code was made in another process."""
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    for _ in range(2):
        _, outer = twice_and_once_more([])
        x = np.array([5], np.int32)
        outer(x)
        assert x.tolist() == [11]


def test_a_kept_function_is_not_traced_again(monkeypatch, tmp_path):
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    traced = []
    for key, expected in (
        (1, ["double", "more"]),
        (1, ["more"]),
        (2, ["double", "more"]),
    ):
        inner, outer = twice_and_once_more(traced)
        inner.kept((), key)
        x = np.array([5], np.int32)
        outer(x)
        assert x.tolist() == [11]
        assert traced == expected
        traced.clear()


def test_what_is_kept_depends_on_the_text_of_modules():
    digests = {digest_of(), digest_of("reference/arithmetic"), digest_of("base/arrays")}
    assert len(digests) == 3
    assert digest_of("reference/arithmetic") in digests


def test_a_function_returns_a_number_and_has_an_address():
    @partial(Traced, "negative", {"x": pointer(I32)}, returns=I32)
    def negative(code, x):
        return select(any_lane(x.lanes(0) < 0), code.constant(1, I32), 0)

    x = np.arange(8, dtype=np.int32)
    assert negative(x) == 0
    x[5] = -1
    assert negative(x) == 1
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(negative.address)
    assert call(x.ctypes.data) == 1
