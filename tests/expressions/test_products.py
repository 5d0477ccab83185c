"""Hashes of Tensor Core instructions: the steps of the target."""

import itertools

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.engine.planes.products import Matrices, on_matrices
from fragmenta.reference.arithmetic.equality import equal_models
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.values.expressions.code import hashing as h
from fragmenta.values.expressions.code.products import ProductHashes

K = 32


def leaves(name, shape, bits):
    numbers = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
    found = h.leaf(name, numbers)
    return np.stack(found) if bits == 32 else h.short(found)[None]


def multiplied(op, target, a, b, one):
    """The hashes of D after as many instructions as K needs."""
    k, state = op.shape[2], None
    c = np.zeros((op.shape[0], op.shape[1]), np.uint32)
    for first in range(0, a.shape[2], k):
        left, right = a[:, :, first : first + k], b[:, first : first + k]
        bits = [np.where(each.any(0), one, 0) for each in (left, right)]
        given = Matrices(*bits, c, c, a2=left, b2=right, c2=state)
        state = on_matrices(op, target, ProductHashes(), given)
    return state


def f16(k):
    return fm.mma(f"m16n8k{k}", a="f16", d="f32")


A, B = leaves("A", (16, K), 16), leaves("B", (K, 8), 16)
ONE = 0x3C00
CASES = [(f16(8), "sm_80"), (f16(16), "sm_80"), (f16(8), "sm_90"), (f16(16), "sm_90")]
CASES += [(f16(16), "sm_120a")]


@pytest.mark.parametrize("one, two", list(itertools.combinations(CASES, 2)), ids=str)
def test_hashes_are_equal_exactly_where_models_are(one, two):
    found = [multiplied(*each, A, B, ONE) for each in (one, two)]
    models = [numeric_model(*each) for each in (one, two)]
    assert (found[0] == found[1]).all() == equal_models(*models)
    if not equal_models(*models):
        assert (found[0] != found[1]).any(0).all()


def test_products_of_one_step_commute_and_others_do_not():
    order = np.concatenate(
        [np.random.default_rng(0).permutation(16), np.arange(16, 32)]
    )
    for target, same in (("sm_90", True), ("sm_80", False)):
        plain = multiplied(f16(16), target, A, B, ONE)
        other = multiplied(f16(16), target, A[:, :, order], B[:, order], ONE)
        assert (plain == other).all() == same


def test_zeros_at_the_end_change_nothing():
    short = multiplied(f16(16), "sm_90", A[:, :, :16], B[:, :16], ONE)
    zeros = A.copy()
    zeros[:, :, 16:] = 0
    assert (multiplied(f16(16), "sm_90", zeros, B, ONE) == short).all()


def test_zeros_inside_a_step_change_nothing():
    """Eight products in a step of sixteen, at other places."""
    op = f16(16)
    left, right = (np.zeros((1, 16, 16), np.uint64), np.zeros((1, 16, 8), np.uint64))
    left[:, :, :8], right[:, :8] = A[:, :, :8], B[:, :8]
    moved = [np.roll(left, 5, 2), np.roll(right, 5, 1)]
    found = [multiplied(op, "sm_90", *each, ONE) for each in ((left, right), moved)]
    assert (found[0] == found[1]).all()


def test_a_and_b_may_change_places():
    plain = multiplied(f16(16), "sm_90", A, B, ONE)
    swapped = multiplied(
        f16(16),
        "sm_90",
        np.tile(B.swapaxes(1, 2), (1, 2, 1)),
        A.swapaxes(1, 2)[:, :, :8],
        ONE,
    )
    assert (plain[:, :8] == swapped[:, :8].swapaxes(1, 2)).all()


def test_no_second_value_without_operands():
    c = np.zeros((16, 8), np.uint32)
    given = Matrices(np.ones((16, 16)), np.ones((16, 8)), c, c)
    assert on_matrices(f16(16), "sm_90", ProductHashes(), given) is None
