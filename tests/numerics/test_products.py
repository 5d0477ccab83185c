"""What the Tensor Cores lose: as ``op.explain`` and exact fractions have it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.engine.planes.products import (
    Matrices,
    ProductSite,
    on_matrices,
    product_model,
)
from fragmenta.reference import arithmetic
from fragmenta.reference.arithmetic.trace import explain_steps
from fragmenta.reference.execution.losses import losses
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.values.numerics.code import layout as sites
from fragmenta.values.numerics.code import product_layout as at
from fragmenta.values.numerics.code.products import NumericProducts
from fragmenta.values.numerics.engine import NumericsAlgebra
from fragmenta.values.numerics.product_text import product_lines
from fragmenta.values.numerics.products import (
    Chain,
    ProductStatistics,
    ProductTable,
    joined_curve,
    promotion,
    statistics,
)
from tests.thinning import some

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STORED = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
CASES = {
    "bf16": (fm.mma("m16n8k16", a="bf16", d="f32"), "sm_90a", 4),
    "half": (fm.mma("m16n8k16", a="f16", d="f16"), "sm_80", 4),
    "tf32": (fm.mma("m16n8k8", a="tf32"), "sm_80", 4),
    "fp8": (fm.wgmma("m64n8k32", a="e4m3", d="f32"), "sm_90a", 8),
    "expanded": (fm.mma("m16n8k32", a="e4m3", d="f32"), "sm_90a", 8),
    "sparse": (fm.mma("m16n8k32", a="bf16", d="f32", sp=True), "sm_80", 4),
    "nvfp4": (
        fm.mma(
            "m16n8k64",
            a="e2m1",
            d="f32",
            kind="mxf4nvf4",
            scale_vec="4X",
            stype="ue4m3",
        ),
        "sm_120a",
        8,
    ),
}


def bits(of: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random elements as raw bits."""
    numbers = np.random.default_rng(seed).normal(size=shape)
    if of in ("tf32", "f32"):
        cut = 0xFFFFE000 if of == "tf32" else 0xFFFFFFFF
        return numbers.astype(np.float32).view(np.uint32) & np.uint32(cut)
    made = numbers.astype(STORED[of])
    return made.view({1: np.uint8, 2: np.uint16}[made.dtype.itemsize])


class Case:
    """An instruction on random operands, with C in the middle of a sum."""

    def __init__(self, op: Instruction, target: str, planes: int) -> None:
        self.op, self.target, self.planes = op, target, planes
        self.model = model = product_model(op, target)
        m, n, k = op.shape
        self.a, self.b = bits(model.a, (m, model.stored), 1), bits(model.b, (k, n), 2)
        self.c = bits(model.c, (m, n), 3)
        self.more: dict[str, np.ndarray] = {}
        numbers = np.random.default_rng(4)
        if model.scale:
            self.more["scale_a"] = numbers.integers(40, 80, (m, 4)).astype(np.uint8)
            self.more["scale_b"] = numbers.integers(40, 80, (4, n)).astype(np.uint8)
        if model.sparse:
            pairs = [
                np.sort(numbers.choice(4, 2, replace=False)) + 4 * chunk
                for _ in range(m)
                for chunk in range(model.stored // 2)
            ]
            self.more["index"] = np.stack(pairs).reshape(m, -1).astype(np.uint8)
        self.d = arithmetic.multiply(self.a, self.b, self.c, model, **self.more)

    def run(self) -> tuple[np.ndarray, ProductStatistics]:
        """The second values of D, and the record."""
        table = ProductTable([2], 3, 1, every=1)
        table.ops[2] = self.op, self.target
        outer = np.zeros((sites.HEAD + 4 * sites.RECORD) // 8, np.int64)
        outer[at.POINTER // 8] = table.address
        given = Matrices(self.a, self.b, self.c, self.d, **self.more)
        where = ProductSite(outer.ctypes.data, 2, 0, 7, 3)
        algebra = NumericProducts(self.planes)
        made = on_matrices(self.op, self.target, algebra, given, where=where)
        assert made is not None
        (found,) = statistics([table])
        return made, found

    def explained(self, row: int, col: int) -> arithmetic.trace.Explanation:
        """The same element, step by step."""
        more = {
            "index": self.more["index"][row] if self.model.sparse else None,
            "scale_a": self.more["scale_a"][row] if self.model.scale else None,
            "scale_b": self.more["scale_b"][:, col] if self.model.scale else None,
        }
        return explain_steps(
            self.a[row], self.b[:, col], self.c[row, col], self.model, **more
        )


@pytest.mark.long
@pytest.mark.parametrize("name", some(CASES, 2))
def test_the_split_is_that_of_explain(name: str) -> None:
    case = Case(*CASES[name])
    made, found = case.run()
    m, n, _ = case.op.shape
    errors, aligned, rounded, vanished = [], [], [], 0
    for row, col in np.ndindex(m, n):
        story = case.explained(row, col)
        lost = losses(story, case.op.types["d"])
        assert lost is not None
        errors.append(float(story.difference))
        aligned.append(float(lost.alignment.total))
        rounded.append(float(lost.rounding.total))
        for step in story.steps:
            gone = [e for e in step.terms if e.k and e.value and e.aligned == 0]
            vanished += sum(len(each.k) for each in gone)
        words = made[:, row, col]
        exact = sum(Fraction(float(each)) for each in words.view(np.float64))
        room = Fraction(1, 2**88 if len(words) > 1 else 2**37)
        if words.any():
            assert abs(exact - story.exact) <= abs(story.exact) * room
        else:
            assert story.value == story.exact
    assert found.split.differing == 0
    assert found.added == pytest.approx(sum(errors), rel=1e-9, abs=1e-12)
    assert found.size == pytest.approx(sum(map(abs, errors)))
    assert found.split.alignment_size == pytest.approx(sum(map(abs, aligned)))
    both = found.split.keep + found.split.rounding
    assert both == pytest.approx(sum(rounded), rel=1e-9, abs=1e-12)
    assert found.vanished == vanished
    assert found.worst is not None
    assert abs(found.worst.explain().explanation.difference) == found.worst_added


def test_second_values_of_operands_count() -> None:
    """A stands for numbers that are 2**-20 larger: so D does, too."""
    case = Case(*CASES["bf16"])
    larger = case.a.view(ml_dtypes.bfloat16).astype(np.float64) * (1 + 2.0**-20)
    given = Matrices(case.a, case.b, case.c, case.d, a2=larger.view(np.uint64)[None])
    table = ProductTable([0], 1, 1)
    outer = np.zeros((sites.HEAD + 4 * sites.RECORD) // 8, np.int64)
    outer[at.POINTER // 8] = table.address
    where = ProductSite(outer.ctypes.data)
    made = on_matrices(case.op, "sm_90a", NumericProducts(4), given, where=where)
    assert made is not None
    exact = larger @ case.b.view(ml_dtypes.bfloat16).astype(np.float64)
    exact += case.c.view(np.float32)
    assert np.allclose(made[0].view(np.float64), exact, rtol=1e-14)


def test_a_chain_of_fp8_is_better_if_it_is_promoted() -> None:
    """As hardware sums it, and as it would with promotions."""
    op = fm.wgmma("m64n8k32", a="e4m3", d="f32")
    numbers = np.random.default_rng(0)
    a = numbers.uniform(0.5, 1, 2048).astype(STORED["e4m3"])
    b = numbers.uniform(0.5, 1, (2048, 8)).astype(STORED["e4m3"])
    chain = Chain(op, "sm_90a", a.view(np.uint8), b.view(np.uint8))
    whole = np.tile(a, (64, 1))
    assert (chain.sums() == fm.matmul(op, whole, b)[0]).all()
    advice = promotion(chain)
    assert advice is not None
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.allclose(chain.exact, exact, rtol=1e-12)
    parts = [
        fm.matmul(op, whole[:, f : f + 128], b[f : f + 128])[0]
        for f in range(0, 2048, 128)
    ]
    total = np.zeros(8, np.float32)
    for each in parts:
        total += each
    assert (chain.sums(128) == total).all()
    assert advice.lost > 9 > advice.promoted
    assert "promoting every" in str(advice)


SIZE = 128


def launched(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, NumericsAlgebra]:
    """A Triton kernel that multiplies matrices by ``mma.sync``."""
    (kernel,) = ptx.load(BENCHMARKS / "matmul_f16_sm80.ptx").kernels.values()
    c, algebra = np.zeros((SIZE, SIZE), np.float32), NumericsAlgebra(4)
    given = [a, b, c, *[np.int32(SIZE)] * 3, 0, 0]
    options = {"shared": 32768, "target": "sm_90a", "watch": False}
    kernel.launch((1, 1), 256, given, algebra=algebra, **options)
    return c, algebra


@pytest.mark.long
def test_a_kernel() -> None:
    """The exact product, the curve over k, and births."""
    numbers = np.random.default_rng(0)
    a, b = (numbers.normal(size=(SIZE, SIZE)).astype(np.float16) for _ in "ab")
    c, algebra = launched(a, b)
    op = fm.mma("m16n8k16", a="f16", d="f32")
    assert (c == fm.matmul(op, a, b, target="sm_90a")).all()
    seconds = next(e.seconds for e in algebra.found.arrays if e.seconds is not None)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    both = (seconds.exact + seconds.lower).reshape(c.shape)
    assert (both == exact).all()
    found = algebra.found.products
    assert {each.longest for each in found} <= {SIZE - 16, SIZE}
    assert sum(each.split.differing for each in found) == 0
    assert [each.k for each in found[0].curve] == [0, 32, 64, 96]
    errors = [each.error for each in found[0].curve]
    assert errors == sorted(errors)
    whole = joined_curve(found)
    assert {each.k for each in whole} == {e.k for of in found for e in of.curve}
    assert sum(each.elements for each in whole) == sum(each.elements for each in found)
    size = sum(each.added * each.elements for each in whole)
    assert size == pytest.approx(sum(each.size for each in found))
    said = list(product_lines(found))
    assert "column" in said[0]
    assert said[-1].startswith("bits of an f32 that are lost: ")
    assert f"at k = {whole[-1].k}" in said[-1]
    assert algebra.found.chain is not None
    assert algebra.found.chain.k == SIZE
    a[3, 37], b[37, 5] = 0, np.inf
    _, algebra = launched(a, b)
    born = [
        each for each in algebra.found.nodes.values() if each.kind.name == "INVALID"
    ]
    assert [(each.operand, each.values[:2]) for each in born] == [(37, (0.0, np.inf))]
