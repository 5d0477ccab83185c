"""Values that kernels lose: NaN, infinity, signs of zeros, ties, and small numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from fragmenta.frontends.judge.comparing import (
    Case,
    ComparedOutput,
    CompletedCall,
    compared,
    diagnose,
)
from fragmenta.frontends.judge.comparing import _same as same_results
from fragmenta.frontends.judge.expected import _out_of_range
from fragmenta.frontends.judge.held import elements, free, hold, leaves
from fragmenta.frontends.judge.proving import _made_different
from fragmenta.frontends.judge.reference import cases
from fragmenta.frontends.judge.sources import suspicions
from fragmenta.frontends.judge.values import (
    ELEMENTWISE,
    ROWS,
    SIGNS,
    STATE,
    VALUES,
    changed,
)

TASK = """
import numpy as np

n = {n}

def get_inputs():
    return [np.random.{inputs}.astype(np.float32)]

def reference(x):
    return {result}
"""
Function = Callable[[np.ndarray], np.ndarray]


def made(
    result: str, folder: Path, inputs: str = "randn(n)", n: int = 90, **other: object
) -> list[Case]:
    order = {"text": TASK.format(result=result, inputs=inputs, n=n), "seeds": 2}
    order |= {"folder": str(folder), "elements": 1 << 12, "products": 1 << 12}
    order |= {"values": [*VALUES], "shapes": False, "strides": False}
    return cases({**order, **other})  # type: ignore[return-value, dict-item]


def test_a_limit_in_place_of_a_new_nan_is_no_reproach(tmp_path: Path) -> None:
    """Infinity times zero may be zero; NaN of an input may not be lost."""
    task = made("x * np.clip(x + 3, 0, 6)", tmp_path)

    def limits(x: np.ndarray) -> np.ndarray:
        return np.where(x <= -3, 0, x * np.clip(x + 3, 0, 6)).astype(np.float32)

    kinds = {each.split(": ")[0] for each in said(task, limits)}
    assert "special-values" not in kinds
    lost = said(task, lambda x: np.nan_to_num(limits(x), nan=0.0, posinf=np.inf))
    assert "special-values" in {each.split(": ")[0] for each in lost}


def said(task: list[Case], function: Function) -> list[str]:
    """What is found if a function computes the results."""
    calls = []
    with np.errstate(all="ignore"):
        for case in task:
            outputs = hold(function(free(case["inputs"])[0]))
            found = compared({**case, "form": "array"}, outputs)
            assert isinstance(found, list), found
            calls.append(CompletedCall(case, found))
    return [f"{each.name}: {each.case}" for each in diagnose(calls)]


def test_honest_functions_are_right(tmp_path: Path) -> None:
    three = np.float32(3)
    assert said(made("x * 3", tmp_path), lambda x: x * three) == []
    assert said(made("np.maximum(x, 0)", tmp_path), lambda x: np.maximum(x, 0)) == []
    flushed = made("x * 3", tmp_path)
    tiny = np.finfo(np.float32).tiny
    flush: Function = lambda x: np.where(abs(x) < tiny, x * 0, x * three)  # noqa: E731
    assert said(flushed, flush) == []


@pytest.mark.parametrize(
    ("result", "function", "kind"),
    [
        ("np.maximum(x, 0)", lambda x: np.fmax(x, np.float32(0)), "nan"),
        ("x * x + 1", lambda x: x * x + 1 + (x - x), "infinity"),
        ("-x", lambda x: np.float32(0) - x, "zeros"),
        (
            "np.rint(x).astype(np.int8)",
            lambda x: np.floor(x + np.float32(0.5)).astype(np.int8),
            "halves",
        ),
        ("x * 3", lambda x: np.where(abs(x) > 9e3, x, x * 3), "spread"),
        (
            "x * 3",
            lambda x: np.where(abs(x) < 1e-38, x * np.float32(1e38), x * 3),
            "subnormal",
        ),
    ],
)
def test_what_is_lost_is_found(
    result: str, function: Function, kind: str, tmp_path: Path
) -> None:
    kinds = ["plain", kind]
    (found,) = said(made(result, tmp_path, values=kinds)[:-1], function)
    assert f"{kind} values" in found
    names = ("special-values", "values-specific")
    assert found.startswith(names[kind in ELEMENTWISE]), found


def test_a_maximum_of_many_may_lose_nan(tmp_path: Path) -> None:
    task = made("x.max(axis=1)", tmp_path, "randn(n, 40)")
    assert not any(str(each["values"]) in ELEMENTWISE for each in task)
    assert said(task, lambda x: np.fmax.reduce(x, axis=1)) == []
    sums = made("x.sum(axis=1)", tmp_path, "randn(n, 40)", values=["plain", "nan"])
    (found,) = said(sums, lambda x: np.nansum(x, axis=1))
    assert "special-values: given sizes, nan values" in found


def test_very_few_and_many_elements_are_tried(tmp_path: Path) -> None:
    task = made("x * 3", tmp_path, values=["plain"], shapes=True)
    sizes = [free(each["inputs"])[0].size for each in task]
    assert {7, 2, 1} < {*sizes}
    assert max(sizes) > 1 << 17
    limited = said(task, lambda x: np.where(np.arange(x.size) < 99999, x * 3, 0))
    assert limited
    sums = made("np.cumsum(x)", tmp_path, values=["plain"], shapes=True)
    assert min(free(each["inputs"])[0].size for each in sums) == 7


def test_nobody_knows_the_constant() -> None:
    given = hold([np.ones(9, np.float32)])
    one, other = (free(changed(given, "equal", 0))[0] for _ in range(2))
    assert (one == one[0]).all()
    assert one[0] != other[0]


@pytest.mark.parametrize(
    "text",
    [
        "np.datetime64('today')",
        "import uuid\nuuid.uuid1().time",
        "from uuid import uuid1\nuuid1()",
        "import os\nos.stat('.').st_mtime",
    ],
)
def test_other_clocks_are_seen(text: str) -> None:
    assert "uses-the-clock" in [name for name, _ in suspicions(text)]


LATER = {
    "a least number that is finite": (
        "x.max(1)",
        lambda x: np.where(np.isnan(x).any(1), x.sum(1), np.maximum(x.max(1), -1e30)),
        "special rows",
    ),
    "a place in the low bits": (
        "x.argmax(1)",
        lambda x: ((2 * x).astype(np.float16)).argmax(1),
        "close rows",
    ),
    "the last element is left out": (
        "x.sum(1)",
        lambda x: x[:, :-1].sum(1),
        "ends of rows",
    ),
}


@pytest.mark.parametrize("name", LATER)
def test_rows_of_several_situations_show_it(name: str, tmp_path: Path) -> None:
    result, function, kind = LATER[name]
    inputs = "randn(28, n)"
    with np.errstate(all="ignore"):
        task = made(result, tmp_path, inputs, n=64, values=["plain", "extreme"])
    late = [each for each in task if each["values"] in ROWS]
    kinds = [each for each in ROWS if each != SIGNS]  # of positive inputs only
    assert [each["values"] for each in late] == kinds
    wrong = [each.split(": ")[1] for each in said(late, function)]
    assert wrong or kind == "special rows"
    with np.errstate(all="ignore"):
        found = compared(
            {**late[kinds.index(kind)], "form": "array"},
            hold(function(free(late[kinds.index(kind)]["inputs"])[0])),
        )
    assert isinstance(found, list)
    assert found[0].bad.any()
    three = made("x * 3", tmp_path, inputs, n=64, values=["plain", "extreme"])
    assert said(three, lambda x: x * np.float32(3)) == []


def test_scalars_are_others_in_one_case(tmp_path: Path) -> None:
    text = TASK.format(result="x * a", inputs="randn(n)", n=40)
    text = text.replace("float32)]", "float32), 2.5]").replace("(x)", "(x, a)")
    order = {"text": text, "seeds": 1, "folder": str(tmp_path), "elements": 64}
    order |= {"products": 64, "values": ["extreme"], "shapes": False, "strides": False}
    task: list[Case] = cases(order)  # type: ignore[assignment, arg-type]
    made = [each for each in task if each["values"] == STATE]
    assert [free(e["inputs"])[1] for e in made] == [1.875, -3.75, 0]  # type: ignore[index]


def test_sizes_just_above_blocks_and_small_ones_are_tried(tmp_path: Path) -> None:
    task = made("x.sum(1)", tmp_path, "rand(n, n + 1)", shapes=True, elements=1 << 17)
    sizes = {free(each["inputs"])[0].shape[0] for each in task}  # type: ignore[index]
    assert {257, 7} <= sizes


@pytest.mark.parametrize(("size", "block"), [(443, 128), (443, 256), (512, 128)])
def test_each_thread_has_a_larger_number_than_those_before_it(
    size: int, block: int
) -> None:
    x = np.random.default_rng(0).normal(size=(8, size)).astype(np.float32)
    [made] = cast("list[np.ndarray]", free(changed(hold([x]), "close rows", 0)))
    most = [made[4, thread::block].max() for thread in range(block)]
    assert (np.diff(most[:-2]) > 0).all()


def test_what_the_reference_has_in_its_own_format_is_right() -> None:
    [own] = leaves(hold([np.array([np.inf, 0, 1], np.float32)]))
    row = {"value": np.array([1e36, 3.0, 1.0]), "most": np.full(3, 1e-6)}
    found = _out_of_range(row, own)
    exact, most = row.values()
    case: Case = {"values": "plain"}
    for made, bad in (([np.inf, 0, 1], 0), ([5, 5, 1], 2), ([1e36, 3, np.inf], 1)):
        held = np.array(made, np.float32)
        off = ComparedOutput(
            case, 0, held, exact, most + 1e30 * (exact > 9), most, found
        )
        assert off.bad.sum() == bad, made


def test_nan_of_ordinary_values_is_demanded() -> None:
    exact, none = np.array([np.nan, 1.0]), np.array([np.inf, 1e-6])
    made = np.array([0.9, 1.0], np.float32)
    plain: Case = {"values": "plain"}
    assert ComparedOutput(plain, 0, made, exact, none, none).bad.tolist() == [
        True,
        False,
    ]
    other: Case = {"values": "infinity"}
    assert not ComparedOutput(other, 0, made, exact, none, none).bad.any()


def test_lost_nan_is_no_earlier_result() -> None:
    one, two = np.array([np.nan, 1.0]), np.array([0.0, 1.0])
    assert same_results(one, two)
    assert same_results(two, one)
    assert not same_results(two, two + 1)


def test_elements_are_made_different_so_that_copies_are_found() -> None:
    x = np.random.default_rng(0).integers(0, 50, 4000).astype(np.float32)
    held = leaves(hold([x, x[::-1].copy()]))
    _made_different(held)
    made = np.concatenate([elements(each) for each in held])
    usual = made[made != 0]
    assert len(np.unique(usual)) == usual.size
    assert (made == 0).sum() == 2 * (x == 0).sum()
    np.testing.assert_allclose(elements(held[0]), x, rtol=1e-3)


def test_a_sum_may_be_made_one_by_one(tmp_path: Path) -> None:
    task = made("x.mean(1)", tmp_path, "rand(7, n)", n=399)
    one_by_one: Function = lambda x: x.cumsum(1)[:, -1] / np.float32(x.shape[1])  # noqa: E731
    assert said(task, one_by_one) == []
