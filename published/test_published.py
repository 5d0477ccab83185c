"""Every row against MMA-Sim: ``make published`` runs this, ``make test`` does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import judge
import numpy as np
import pytest
from answers import Answers
from compare import DAILY, compare, surveyed, unequal
from survey import Row, survey, unclaimed

from fragmenta.reference.arithmetic import multiply
from fragmenta.reference.registers.dtype import dtype

ROWS, EXCLUDED = surveyed()
every_row = pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])

# Numbers that every type has, e2m1 and its like too.
FACTORS = np.array([0.5, 1, 1.5, 2, 3, 4])


def test_the_version_is_the_one_that_was_read() -> None:
    """How to feed it was read in this version; another may differ."""
    assert judge.VERSION == "2.1.1"


def test_mma_sim_has_nothing_that_no_row_claims() -> None:
    assert unclaimed(judge.every_name(), ROWS) == []
    assert {row.architecture for row in ROWS} == set(judge.NAMES["MMA"])


def test_a_lost_row_is_noticed() -> None:
    """A row that MMA-Sim did not have would be missed."""

    def without(unit: str, architecture: str, name: str) -> bool:
        lost = ("Ampere", "m16n8k8.f32.bf16.bf16.f32")
        return judge.known(unit, architecture, name) and (architecture, name) != lost

    with pytest.raises(AssertionError, match=r"m16n8k8.*bf16.* on sm_80: MMA-Sim"):
        survey(without)


@every_row
def test_it_is_fed_as_meant(row: Row) -> None:
    """One element of A is not zero: at every k the answer is known by hand.

    D is C but for one row, and that row is C plus a multiple of a row of B.
    """
    how = row.model
    m, n, k = 16, 8, how.k
    A, C = np.zeros((k, m, k)), np.zeros((k, m, n))
    B = FACTORS[(np.arange(k)[:, None] * 5 + np.arange(n) * 7 + 1) % 6]
    C[:] = FACTORS[(np.arange(m)[:, None] * 3 + np.arange(n)) % 6]
    at = np.arange(k)
    A[at, at % m, at] = 1.5
    scale_a, scale_b = _block_scales(how, k, m, n)
    D = C.copy()
    factor = np.ones((k, n))
    if how.scale:
        block = at * how.scale_vec // k
        factor = scale_a[at, at % m, block][:, None] * scale_b[at, block]
    D[at, at % m] += 1.5 * B * factor
    a, b = _bits(A, how.a), np.broadcast_to(_bits(B, how.b), (k, k, n))
    c, d = _bits(C, how.c), _bits(D, how.d)
    scales: tuple[Any, ...] = ()
    if how.scale:
        scales = (_bits(scale_a, how.scale), _bits(scale_b, how.scale))
    asked = judge.Judge(row)
    assert np.array_equal(asked.batch(a, b, c, scales), d)
    named = dict(zip(("scale_a", "scale_b"), scales, strict=False))
    assert np.array_equal(multiply(a, b, c, how, **named), d)
    for i in (0, k - 1):
        single = (each[i] for each in scales)
        assert np.array_equal(asked.matrix(a[i], b[i], c[i], tuple(single)), d[i])


def test_fp4_fed_one_to_a_byte_is_noticed() -> None:
    """A single element does not show it: the zeros between change nothing."""
    for row in ROWS:
        asked = judge.Judge(row)
        if asked.packed:
            with pytest.raises(AssertionError, match="fed 128 values along k, not 64"):
                asked.whole(judge.torch.zeros((16, 64), dtype=judge.torch.uint8))


def _block_scales(how: Any, k: int, m: int, n: int) -> tuple[Any, Any]:
    """Powers of two, another for every row or column, block by block."""
    block = np.arange(how.scale_vec)
    a = 2.0 ** ((np.arange(m)[:, None] + block) % 4)
    b = 2.0 ** ((np.arange(n) + block[:, None] * 3) % 4 - 2)
    every = (k, m, block.size), (k, block.size, n)
    return np.broadcast_to(a, every[0]), np.broadcast_to(b, every[1])


def _bits(values: Any, name: str) -> Any:
    of = dtype(name)
    stored = values.astype(of.storage)
    assert np.array_equal(stored.astype(float), values)
    return of.encode(stored)


@every_row
def test_all_bits_are_equal(row: Row) -> None:
    found = compare(row, DAILY)
    assert found.elements >= DAILY
    assert not found.different, found


def test_a_wrong_model_is_noticed() -> None:
    """The mistake that this comparison exists for: fp4 in two steps of 32."""
    row = next(row for row in ROWS if ".kind::mxf4." in row.name)
    a, b, c, *scales = Answers.load().of(row.model).values()
    named = dict(zip(("scale_a", "scale_b"), scales, strict=True))
    theirs = judge.Judge(row).batch(a, b, c, tuple(scales))
    assert not unequal(multiply(a, b, c, row.model, **named), theirs, row.model).any()
    halved = replace(row.model, products=32)
    assert unequal(multiply(a, b, c, halved, **named), theirs, halved).any()


@every_row
def test_the_committed_answers_are_mma_sims(row: Row) -> None:
    kept = Answers.load()
    a, b, c, *scales = kept.of(row.model).values()
    theirs = judge.Judge(row).batch(a, b, c, tuple(scales))
    assert not unequal(kept.results[row.id], theirs, row.model).any()


def test_there_are_committed_answers_of_every_row() -> None:
    assert set(Answers.load().results) == {row.id for row in ROWS}
