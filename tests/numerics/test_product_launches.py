"""Launches with Tensor Cores: the split is that of ``op.explain``, errors are exact."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.engine.planes.products import product_model
from fragmenta.errors import KernelFault
from fragmenta.reference.arithmetic.trace import explain_steps
from fragmenta.reference.execution.losses import losses
from fragmenta.values.numerics.products import EVERY, ProductStatistics
from tests.numerics import product_kernels as kernels
from tests.numerics.planted import exact
from tests.thinning import some

STEPS = 4


class Steps:
    """The steps of an accumulator, as ``op.explain`` tells them."""

    def __init__(self, op: Any, target: str) -> None:
        self.op, self.model = op, product_model(op, target)
        self.alignment, self.rest, self.vanished = Fraction(), Fraction(), 0
        self.elements, self.executions = 0, 0

    def _bits(self, name: str, matrix: Any) -> Any:
        of = self.op.types.get(name, self.op.types["d"])
        return np.asarray(of.encode(matrix.astype(of.storage)))

    def add(self, a: Any, b: Any, c: Any, **scales: Any) -> None:
        """One instruction: some of its rows are split."""
        m, n = c.shape
        left, right, old = (
            self._bits(name, each) for name, each in zip("abc", (a, b, c), strict=True)
        )
        chosen = [row for row in range(m) if (row + self.executions) % EVERY == 0]
        self.executions += 1
        for row in chosen:
            for col in range(n):
                more = {}
                if scales:
                    more["scale_a"] = scales["scale_a"][row].view(np.uint8)
                    more["scale_b"] = scales["scale_b"][:, col].view(np.uint8)
                given = left[row], right[:, col], old[row, col]
                self._tell(explain_steps(*given, self.model, **more))

    def _tell(self, story: Any) -> None:
        lost = losses(story, self.op.types["d"])
        assert lost is not None
        self.alignment += lost.alignment.total
        self.rest += lost.rounding.total
        self.elements += 1
        for step in story.steps:
            gone = [e for e in step.terms if e.k and e.value and e.aligned == 0]
            self.vanished += sum(len(each.k) for each in gone)

    def compare(self, found: ProductStatistics) -> None:
        """The record of a launch has the same sums."""
        split = found.split
        assert found.executions == self.executions
        assert (split.elements, split.differing) == (self.elements, 0)
        assert split.alignment == pytest.approx(float(self.alignment), rel=1e-9)
        both = split.keep + split.rounding
        assert both == pytest.approx(float(self.rest), rel=1e-9, abs=1e-15)
        assert found.vanished == self.vanished
        if found.worst is not None:
            difference = found.worst.explain().explanation.difference
            assert abs(float(difference)) == found.worst_added


def check_errors(output: Any, left: Any, meant: Any) -> None:
    """The map of errors is that of fractions, to 1%."""
    expected = np.array(
        [
            float(Fraction(float(x)) - y)
            for x, y in zip(left.flat, meant.flat, strict=True)
        ]
    ).reshape(left.shape)
    reported = output if isinstance(output, np.ndarray) else output.error
    assert np.abs(expected).max() > 0
    assert np.abs(reported - expected).max() <= 0.01 * np.abs(expected).max()


def in_rows(op: Any, numbers: Any) -> Any:
    """Numbers of 64 bits beside the registers of D, as a matrix."""
    parts = np.ascontiguousarray(numbers.T).view(np.uint32).reshape(128, 4, 2)
    low, high = (op.d.unpack(parts[..., i].copy()).view(np.uint32) for i in (0, 1))
    words = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    return words.view(np.float64)


@pytest.mark.long
@pytest.mark.parametrize("kind", some(["e4m3", "bf16"], 2))
def test_steps_of_wgmma_are_those_of_explain(kind: str) -> None:
    op = kernels.OPS[kind]
    a, b = kernels.matrices(kind, STEPS)
    left, result = kernels.multiplied(kind, a, b, numerics=True)
    (found,) = result.numerics.products
    steps, k = Steps(op, "sm_90a"), op.shape[2]
    c = np.zeros((64, 8), np.float32)
    for step in range(STEPS):
        part = slice(step * k, (step + 1) * k)
        steps.add(a[:, part], b[part], c)
        c = fm.matmul(op, a[:, part], b[part], c, target="sm_90a")
    assert left.tobytes() == c.tobytes()
    steps.compare(found)
    output = result.numerics["goal"]
    errors = in_rows(op, output.error)
    check_errors(errors, left, exact.products(a, b.T))
    # fm.compare says the same about the whole sum.
    (row,) = fm.compare(op, "sm_90a", k=a.shape[1], input=(a, b)).rows
    relative = np.abs(errors) / np.abs(left - errors)
    assert row.max_relative == pytest.approx(relative.max(), rel=1e-6)
    assert row.mean_relative == pytest.approx(relative.mean(), rel=1e-6)


IN_FLIGHT = """wgmma.commit_group.sync.aligned; setp.eq.u32 q, r2, r2;
MNEMONIC {f0, f1, f2, f3}, x5, x6, q, 1, 1REST;
wgmma.commit_group.sync.aligned;"""
"""The product of a step once more, while the first one is in flight."""


def test_schedules_and_recordings_do_not_change_second_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D of the second product is there when the first one is done."""
    commit = "wgmma.commit_group.sync.aligned;"
    monkeypatch.setattr(kernels, "WGMMA", kernels.WGMMA.replace(commit, IN_FLIGHT))
    monkeypatch.setattr(kernels, "_kernel", kernels._kernel.__wrapped__)
    a, b = kernels.matrices("bf16", 3)

    def found(**options: Any) -> tuple[bytes, Any, list[Any]]:
        left, result = kernels.multiplied("bf16", a, b, numerics=True, **options)
        products = [
            {name: x for name, x in each.items() if name != "number"}
            for each in result.numerics.to_dict()["products"]
        ]
        return left.tobytes(), result.numerics["goal"].error, products

    left, errors, products = found()
    assert len(products) == 2
    twice = 2 * exact.products(a, b.T)
    in_order = np.frombuffer(left, np.float32).reshape(64, 8)
    check_errors(in_rows(kernels.OPS["bf16"], errors), in_order, twice)
    for schedule in ("lazy", 3, "lazy+oldest-waits", ["eager", "lazy"]):
        for replay in (False, True):
            other = found(schedule=schedule, replay=replay)
            assert other[0] == left
            assert other[1].tobytes() == errors.tobytes()
            assert str(other[2]) == str(products)


def test_promotions_are_seen() -> None:
    """With promotions every 128 products, each chain is short, and sums are f32."""
    op, every = kernels.OPS["e4m3"], 4
    a, b = kernels.matrices("e4m3", 2 * every)
    whole, _ = kernels.multiplied("e4m3", a, b)
    left, result = kernels.multiplied("e4m3", a, b, every, numerics=True)
    total = np.zeros((64, 8), np.float32)
    for first in range(0, a.shape[1], 128):
        some = slice(first, first + 128)
        total += fm.matmul(op, a[:, some], b[some], target="sm_90a")
    assert left.tobytes() == total.tobytes() != whole.tobytes()
    found = result.numerics
    check_errors(in_rows(op, found["goal"].error), left, exact.products(a, b.T))
    assert found.products[0].longest == 128
    assert [point.k for point in found.products[0].curve] == [0, 32, 64, 96]
    split = found.blame("goal")
    assert split.parts[0].name == "Tensor Core"
    assert split.rest < 1e-6


# ── tcgen05.mma, and mma with block scales ──────────────────────────────────


def quantised(kind: str, numbers: Any) -> Any:
    """Numbers as the kernel makes elements of A and B of them."""
    small = ml_dtypes.float4_e2m1fn if kind == "nvfp4" else ml_dtypes.float8_e4m3fn
    return numbers.astype(small)


def rounded_scales(kind: str, scales: Any) -> Any:
    """Scales as the kernel rounds them."""
    if kind == "mxf8":
        return np.exp2(np.ceil(np.log2(scales))).astype(ml_dtypes.float8_e8m0fnu)
    return scales.astype(ml_dtypes.float8_e4m3fn)


def drawn(op: Any, seed: int) -> tuple[Any, Any, Any, Any]:
    """A, B and their scales as f32; B and its scales are (n, ...)."""
    m, n, k = op.shape
    numbers = np.random.default_rng(seed)
    sizes = 0 if op.types["a"].bits == 4 else 7
    a, b = (
        numbers.normal(size=(each, k)) * np.exp2(numbers.integers(-sizes, sizes + 1, k))
        for each in (m, n)
    )
    count = op.scale_vec or 1
    of_a, of_b = (
        numbers.uniform(0.5, 2, (each, count)) * np.exp2(numbers.integers(-5, 6, count))
        for each in (m, n)
    )
    return tuple(each.astype(np.float32) for each in (a, b, of_a, of_b))  # type: ignore[return-value]


def meant(a: Any, b: Any, of_a: Any, of_b: Any) -> Any:
    """The exact product of rows with their scales, as fractions."""
    wide = [
        matrix.astype(np.float64)
        * np.repeat(of.astype(np.float64), matrix.shape[1] // of.shape[1], 1)
        for matrix, of in ((a, of_a), (b, of_b))
    ]
    return exact.products(*wide)


@pytest.mark.long
@pytest.mark.parametrize("kind", some(["mxf8", "f8f6f4", "nvfp4"], 2))
def test_tensor_products_are_followed(kind: str) -> None:
    """The kernel quantises f32 itself: exact values are those before."""
    op = kernels.TENSOR_OPS[kind]
    a, b, of_a, of_b = drawn(op, 0)
    scales: dict[str, Any] = {}
    if op.scale_vec:
        both = rounded_scales(kind, of_a), rounded_scales(kind, of_b).T
        scales = {"scale_a": both[0], "scale_b": np.ascontiguousarray(both[1])}
        given = a, b.T, of_a, of_b
        before = meant(a, b, of_a, of_b)
    else:
        given, before = (a, b.T), exact.products(a, b)
    left, result = kernels.tensor_multiplied(kind, *given, numerics=True)
    small = quantised(kind, a), quantised(kind, b).T
    c = np.zeros((128, op.shape[1]), np.float32)
    first, second = result.numerics.products
    for found in (first, second):
        own = Steps(op, "sm_100a")
        own.add(*small, c, **scales)
        own.compare(found)
        c = fm.matmul(op, *small, c, target="sm_100a", **scales)
    assert left.tobytes() == c.tobytes()
    assert (kind == "nvfp4") == (second.worst is None)  # its sums have bits enough
    check_errors(result.numerics["goal"], left, 2 * before)
    assert not result.numerics.restarts


def test_scales_and_elements_in_registers_are_followed() -> None:
    """The same of ``mma`` with block scales, for NVFP4."""
    op = kernels.SCALED
    a, b, of_a, of_b = drawn(op, 1)
    given = a, b.T, of_a, of_b.T
    left, result = kernels.scaled_multiplied(*given, numerics=True)
    both = rounded_scales("nvfp4", of_a), rounded_scales("nvfp4", of_b).T
    scales = {"scale_a": both[0], "scale_b": np.ascontiguousarray(both[1])}
    small = quantised("nvfp4", a), quantised("nvfp4", b).T
    assert left.tobytes() == fm.matmul(op, *small, target="sm_120a", **scales).tobytes()
    own = Steps(op, "sm_120a")
    own.add(*small, np.zeros((16, 8), np.float32), **scales)
    own.compare(result.numerics.products[0])
    errors = result.numerics["goal"].error.astype(np.float32)
    placed = op.d.unpack(np.ascontiguousarray(errors).view(np.uint32))
    check_errors(placed, left, meant(a, b, of_a, of_b))


# ── births ──────────────────────────────────────────────────────────────────


def test_a_birth_in_wgmma_stops_the_launch() -> None:
    a, b = kernels.matrices("bf16", 3)
    a[20, 37], b[37, 5] = 0, np.inf
    with pytest.raises(
        KernelFault, match=r"a NaN is born: 0 x inf = NaN at k = 37"
    ) as f:
        kernels.multiplied("bf16", a, b, numerics=True, nan="raise")
    assert "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0" in str(f.value)
    assert f.value.kind == "nan"
    a[20, 37] = 1
    b[38, 5] = -np.inf
    with pytest.raises(KernelFault, match=r"inf - inf: -?[\d.]+ x inf at k = 37"):
        kernels.multiplied("bf16", a, b, numerics=True, nan="raise")
    b[37:39, 5] = np.nan
    left, _ = kernels.multiplied("bf16", a, b, numerics=True, nan="raise")  # given
    assert np.isnan(left[:, 5]).all()


def test_a_birth_in_tcgen05_stops_the_launch() -> None:
    op = kernels.TENSOR_OPS["mxf8"]
    a, b, of_a, of_b = drawn(op, 2)
    of_a[:], of_b[:] = 2.0**100, 2.0**100  # the sum is too large
    with pytest.raises(KernelFault, match=r"C = 0 and the products are exactly") as f:
        kernels.tensor_multiplied(
            "mxf8", a, b.T, of_a, of_b, numerics=True, nan="raise"
        )
    assert f.value.kind == "infinity"
    assert "tcgen05.mma.cta_group::1.kind::mxf8f6f4" in str(f.value)


HALF = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 numbers, .param .u64 goal)
{
.reg .b32 %t, %r<4>, %a<4>, %b<2>, %c<2>; .reg .b64 %l<4>;
ld.param.u64 %l0, [numbers]; ld.param.u64 %l1, [goal]; mov.u32 %t, %tid.x;
mul.wide.u32 %l2, %t, 32; add.u64 %l0, %l0, %l2;
mul.wide.u32 %l2, %t, 8; add.u64 %l1, %l1, %l2;
ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%l0];
ld.global.v2.b32 {%b0, %b1}, [%l0+16]; ld.global.v2.b32 {%c0, %c1}, [%l0+24];
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%c0, %c1}, {%a0, %a1, %a2, %a3},
    {%b0, %b1}, {%c0, %c1};
st.global.v2.b32 [%l1], {%c0, %c1};
ret;
}
"""


def halves(a: Any, b: Any, c: Any, **options: Any) -> tuple[Any, Any]:
    """D of ``mma`` with sums of f16."""
    op: Any = fm.mma("m16n8k16", a="f16", d="f16")
    parts = [op.a.pack(a), op.b.pack(b), op.c.pack(c)]
    numbers = np.ascontiguousarray(np.concatenate(parts, 1).astype(np.uint32))
    d = np.zeros((32, 4), np.float16)
    made = ptx.parse(HALF).kernels["k"]
    result = made.launch(1, 32, [numbers, d], target="sm_80", **options)
    return op.d.unpack(d.view(np.uint32)), result


def test_births_in_mma() -> None:
    """An infinity in C less one of a product is born; a NaN in C is not."""
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    c = np.zeros((16, 8), np.float16)
    c[2, 3], a[2, 9] = np.inf, -np.inf
    left, result = halves(a, b, c, numerics=True)
    assert np.argwhere(np.isnan(left)).tolist() == [[2, 3]]
    words = {each.born.words for each in result.numerics.births if each.nan}
    assert words == {"no result: inf - inf: C = inf, -inf x 1 at k = 9"}
    with pytest.raises(KernelFault, match=r"C = inf, -inf x 1 at k = 9"):
        halves(a, b, c, numerics=True, nan="raise")
    a[2], c[2, 3], c[5, 5] = 4, 65504, np.nan
    with pytest.raises(KernelFault, match=r"infinite: C = 65504 and .* exactly 65568"):
        halves(a, b, c, numerics=True, nan="raise")
    c[2, 3] = 0
    left, result = halves(a, b, c, numerics=True, nan="raise")
    (way,) = result.numerics.births
    assert way.born.words == "NaN is given to mma"
    assert np.argwhere(np.isnan(left)).tolist() == [[5, 5]]
