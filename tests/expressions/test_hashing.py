"""The algebra of hashes: equal exactly where expressions are equal."""

import numpy as np
import pytest

from fragmenta.values.expressions.code import hashing as h
from tests.thinning import THOROUGH

COUNT = 350_000 if THOROUGH else 60_000
LEAVES = 6


def chosen(ids, hashes, random):
    pick = random.integers(0, len(ids), COUNT)
    return ids[pick], h.Hash(hashes.u[pick], hashes.v[pick])


def ordered(x, y):
    return np.minimum(x, y), np.maximum(x, y)


class Expressions:
    """Random expressions: their hashes, and numbers that no hash has made."""

    def __init__(self):
        numbers = np.arange(LEAVES, dtype=np.uint64)
        self.ids, self.hashes = numbers.astype(np.int64), h.leaf("x", numbers)
        self.rows = np.zeros((0, 4), np.int64)  # operation and operands of each
        self.row_ids = np.zeros(0, np.int64)

    def grow(self, random):
        """Add random operations on random expressions."""
        some = [chosen(self.ids, self.hashes, random) for _ in range(3)]
        (x, hx), (y, hy), (z, hz) = some
        low, high = ordered(x, y)
        none = np.full(COUNT, -1)
        made = [
            ((low, high, none), h.operation("add.rn.f32", [hx, hy], 2)),
            ((low, high, none), h.operation("add.rz.f32", [hx, hy], 2)),
            ((x, y, none), h.operation("div.rn.f32", [hx, hy])),
            ((low, high, z), h.operation("fma.rn.f32", [hx, hy, hz], 2)),
        ]
        kinds = random.integers(0, len(made), COUNT)
        which = [kinds == n for n in range(len(made))]
        operands = [np.select(which, [e[0][n] for e in made]) for n in range(3)]
        u, v = (np.select(which, [e[1][word] for e in made]) for word in (0, 1))
        self._number(np.stack([kinds, *operands], 1))
        both = zip(self.hashes, (u, v), strict=True)
        self.hashes = h.Hash(*(np.concatenate(each) for each in both))

    def _number(self, rows):
        """An expression that was there before keeps its number."""
        every = np.concatenate([self.rows, rows])
        unique, first, place = np.unique(
            every, axis=0, return_index=True, return_inverse=True
        )
        fresh = first >= len(self.rows)
        numbers = np.empty(len(unique), np.int64)
        numbers[~fresh] = self.row_ids[first[~fresh]]
        numbers[fresh] = self.ids.max() + 1 + np.arange(fresh.sum())
        found = numbers[place.reshape(-1)]
        self.rows, self.row_ids = every, found
        self.ids = np.concatenate([self.ids, found[-len(rows) :]])


def one_to_one(ids, values):
    pairs = len(np.unique(np.stack([ids.astype(np.uint64), values]), axis=1)[0])
    return pairs == len(np.unique(ids)) == len(np.unique(values))


@pytest.mark.long
def test_hashes_are_equal_exactly_where_expressions_are():
    """Every pair among them is compared: about COUNT squared."""
    random = np.random.default_rng(7)
    made = Expressions()
    for _ in range(3):
        made.grow(random)
    ids, hashes = made.ids, made.hashes
    assert len(np.unique(ids)) < len(ids)  # some are equal
    assert one_to_one(ids, hashes.u)
    assert one_to_one(ids, hashes.v)
    assert one_to_one(ids, h.short(hashes))


def test_no_hash_is_zero():
    found = h.leaf("x", np.arange(1000, dtype=np.uint64))
    assert (found.u != 0).all()
    assert (found.v != 0).all()
    assert (h.short(found) != 0).all()
    assert (h.constant(np.arange(1 << 16, dtype=np.uint64)) != 0).all()


def test_the_negative_of_the_negative_is_the_number():
    x = h.operation(
        "add.rn.f32", [h.leaf("x", np.arange(9, dtype=np.uint64))] * 2, 2, clean=True
    )
    y = h.negated(h.negated(x))
    assert (y.u == x.u).all()
    assert (y.v == x.v).all()
    assert (h.negated(x).u != x.u).all()


def test_a_number_that_is_not_clean_is_not_its_double_negative():
    """A NaN with other bits becomes the one NaN."""
    x = h.leaf("x", np.arange(9, dtype=np.uint64))
    assert (h.negated(h.negated(x)).u != x.u).all()


def test_factors_have_signs():
    x = h.leaf("x", np.arange(99, dtype=np.uint64))
    plus, minus = h.factor(x), h.factor(h.negative(x))
    zero = np.uint64(0)
    assert (plus.u + minus.u == zero).all()
    assert (plus.v + minus.v == zero).all()


@pytest.mark.parametrize("name", ["x", "y"])
def test_names_count(name):
    index = np.arange(4, dtype=np.uint64)
    assert ((h.leaf("x", index).u == h.leaf(name, index).u).all()) == (name == "x")
