"""Planted numeric bugs show in what kernels leave, and are located; their twins are clean.

``planted/cases.py`` is the table.  What a kernel is meant to leave is computed there with
fractions and long decimals, so nothing here depends on the engine that is judged.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.launch import grid
from fragmenta.reference.isa.target import number as target_number
from fragmenta.values.numerics import engine
from tests.numerics.planted import reading, running
from tests.numerics.planted.cases import CASES, QUIET, Case, Quiet
from tests.thinning import some

CHOSEN = some(CASES, 10)
"""Cases that always run; ``make thorough``: all."""
TEXTS = running.texts(CHOSEN)
EACH = pytest.mark.parametrize("case", CHOSEN, ids=[case.name for case in CHOSEN])


@cache
def meant_by(name: str) -> Any:
    """What a kernel and its twin are meant to leave."""
    case = running.named(name)
    return case.meant(case.arguments(True))


@cache
def plainly(name: str, wrong: bool) -> Any:
    """What a launch without numerics returns, and its arguments before and after it."""
    return running.launched(running.named(name), wrong)


def mask_of(case: Case, before: list[Any], shape: tuple[int, ...]) -> Any:
    """Which elements the bug makes infinite or NaN."""
    mask = np.zeros(shape, bool)
    if case.bad is not None:
        mask[case.bad(before) if callable(case.bad) else case.bad] = True
    return mask


# ── without the engine: the bug is there ────────────────────────────────────


@EACH
def test_the_bug_shows(case: Case) -> None:
    """Exactly the elements that the row names are not finite, or the error is large."""
    _, before, after = plainly(case.name, True)
    meant = meant_by(case.name)
    left = case.left(after).reshape(meant.shape)
    assert np.array_equal(~np.isfinite(left), mask_of(case, before, meant.shape))
    if case.bad is None:
        assert (np.abs(left - meant) / case.unit(meant)).max() >= case.lost > case.kept


@EACH
def test_the_twin_is_right(case: Case) -> None:
    _, _, after = plainly(case.name, False)
    meant = meant_by(case.name)
    left = case.left(after).reshape(meant.shape)
    assert (np.abs(left - meant) / case.unit(meant)).max() <= case.kept


@pytest.mark.parametrize("case", QUIET, ids=[case.name for case in QUIET])
def test_a_quiet_kernel_leaves_numbers(case: Quiet) -> None:
    _, _, after = running.launched(case)
    arrays = [each for each in after if isinstance(each, np.ndarray)]
    assert np.isfinite(arrays[-1]).all()


@EACH
def test_every_quoted_line_is_in_the_line_table(case: Case) -> None:
    """Each place at which a bug may be found is one line, and instructions come from it."""
    known = running.in_table(case)
    for found in case.found:
        places = [running.lines(case, quoted) for quoted in found.lines]
        assert all(len(each) == 1 for each in places), found
        assert known & {each[0] for each in places}, found


@pytest.mark.parametrize("text", TEXTS, ids=TEXTS.index)
def test_the_assembler_takes_every_kernel(text: Any) -> None:
    target = max(text.target, "sm_90a", key=target_number)
    assert assembler.assemble(running.text(*text), target, "-O0")


def test_the_table_is_long_enough() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 20
    assert sum(bool(case.report) for case in CASES) >= 6


# ── with it: the bug is found ───────────────────────────────────────────────


@pytest.mark.long
@EACH
def test_the_bug_is_located(case: Case) -> None:
    result, _, after = running.launched(case, True, numerics=True)
    assert running.located(case, reading.findings(result)), reading.findings(result)
    _compare_bits(case, True, after)
    if case.formula:
        _compare_errors(case, result, after)


@pytest.mark.long
@EACH
def test_nothing_is_found_in_the_twin(case: Case) -> None:
    result, _, after = running.launched(case, False, numerics=True)
    kinds = {kind for kind, _ in running.wanted(case)} - {"error"} | {"nan", "inf"}
    found = reading.findings(result, notes=False)
    assert not [each for each in found if each[0] in kinds]
    _compare_bits(case, False, after)
    _compare_errors(case, result, after)


@pytest.mark.parametrize("case", QUIET, ids=[case.name for case in QUIET])
def test_nothing_is_found_in_a_quiet_kernel(case: Quiet) -> None:
    result, _, _ = running.launched(case, numerics=True)
    assert not {"nan", "inf"} & {kind for kind, _ in reading.findings(result)}


def test_threads_of_the_host_have_tables_of_their_own(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Also if they make them at the same time: a birth is then found where it was."""
    made = engine.NumericsAlgebra.context_table

    def slowly(self: Any, *given: Any) -> Any:
        numbers.append(len(self._tables))
        for _ in range(100_000):  # the others come, if they can
            pass
        return made(self, *given)

    numbers: list[int] = []
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    request.addfinalizer(lambda: sys.setswitchinterval(often))
    monkeypatch.setattr(engine.NumericsAlgebra, "context_table", slowly)
    monkeypatch.setattr(grid, "cores", lambda: 4)
    case = running.named("zero_row")
    result, _, _ = running.launched(case, True, numerics=True)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 1
    assert running.located(case, reading.findings(result))


def _compare_bits(case: Case, wrong: bool, after: list[Any]) -> None:
    _, _, plain = plainly(case.name, wrong)
    for one, other in zip(after, plain, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def _compare_errors(case: Case, result: Any, after: list[Any]) -> None:
    """The reported errors are those of the exact computation, to 1%."""
    if not case.output:
        return
    meant = meant_by(case.name)
    left = case.left(after).reshape(meant.shape)
    finite = np.isfinite(left)
    expected = np.abs(left - meant)[finite]
    place = [each for each in after if isinstance(each, np.ndarray)][-1]
    reported = np.abs(reading.error_map(result, place).reshape(meant.shape)[finite])
    if expected.size:
        assert np.isclose(reported.max(), expected.max(), rtol=0.01, atol=0)
        assert np.abs(reported - expected).max() <= 0.01 * expected.max()
