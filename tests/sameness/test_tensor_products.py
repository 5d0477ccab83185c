"""Products of ``tcgen05`` and with block scales: two orders, two targets."""

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.planes.products import product_model
from fragmenta.inspect.sameness.capturing import captured
from fragmenta.reference.arithmetic.equality import equal_models
from tests.numerics import product_kernels as kernels

B_TILE = 512 // 16
"""How far a second tile of B is behind the first one, in the words of descriptors."""
FIRST = "[%d], %l6, %l7, %r6,"
TURNED = {
    "one": (FIRST, FIRST),
    "two": (FIRST, FIRST.replace("%l7", "%l9")),
    "turned": (FIRST.replace("%l7", "%l9"), FIRST),
}
"""The operands of two products: with B twice, with two tiles, and in the other order."""


@pytest.fixture(scope="module", params=kernels.TENSOR_OPS)
def calls(request):
    """Launches of one kind by the order of their products."""
    op = kernels.TENSOR_OPS[request.param]
    m, n, k = op.shape
    random = np.random.default_rng(0)
    a, b = random.normal(size=(m, k)), random.normal(size=(n, k)).T
    scales = [np.ones((rows, 4), np.float32) for rows in (m, n)]
    given = scales if "mx" in request.param or "fp4" in request.param else []
    with captured(stop=True) as found:
        kernels.tensor_multiplied(request.param, a, b, *given, watch=False)
    (call,) = found
    return op, {name: ordered(call, *both) for name, both in TURNED.items()}


def ordered(call, first, second):
    """A launch with other operands of its two products; all numbers are random."""
    text = call.kernel.loaded.module.text
    parts = text.split(FIRST)
    assert len(parts) == 3
    start = parts[0].replace(
        "mov.b32 %r6,", f"add.u64 %l9, %l7, {B_TILE}; mov.b32 %r6,"
    )
    made = start + first + parts[1] + second + parts[2]
    numbers, *others = call.arguments
    filled = np.random.default_rng(1).normal(size=numbers.shape).astype(np.float32)
    kernel = ptx.parse(made).kernels["k"]
    return ptx.Call(kernel, 1, 128, [filled, *others], **call.options)


@pytest.mark.long
def test_two_orders_of_products_are_never_the_same(calls):
    """Elements of 4 bits have no expressions: that is said, and nothing is proved."""
    op, every = calls
    proved = op.types["a"].bits >= 8
    found = ptx.same(every["two"], every["two"], tries=0)
    assert found.verdict == ("same" if proved else "unknown")
    assert proved or {each.kind for each in found.open} == {"lost"}
    assert ptx.same(every["one"], every["two"]).verdict == "different"
    found = ptx.same(every["two"], every["turned"], tries=5)
    assert found.verdict == ("different" if proved else "unknown")
    assert not proved or found.witness.count
    assert not proved or "products at line" in found.cause


def test_targets_are_the_same_where_their_models_are_equal(calls):
    op, every = calls
    targets = ["sm_100a", "sm_103a"]
    assert equal_models(*(product_model(op, each) for each in targets))
    found = ptx.targets(every["two"], targets)
    assert found.members == (tuple(targets),)
    assert found.invariant == (op.types["a"].bits >= 8)
