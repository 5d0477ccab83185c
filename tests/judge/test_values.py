"""Values that kernels lose: NaN, infinity, signs of zeros, ties, and small numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fragmenta.judge.comparing import Call, Case, compared, diagnose
from fragmenta.judge.held import free, hold
from fragmenta.judge.reference import cases
from fragmenta.judge.sources import suspicions
from fragmenta.judge.values import ELEMENTWISE, ROWS, STATE, VALUES, changed

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


def said(task: list[Case], function: Function) -> list[str]:
    """What is found if a function computes the results."""
    calls = []
    with np.errstate(all="ignore"):
        for case in task:
            outputs = hold(function(free(case["inputs"])[0]))
            found = compared({**case, "form": "array"}, outputs)
            assert isinstance(found, list), found
            calls.append(Call(case, found))
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
    assert [each["values"] for each in late] == [*ROWS]
    wrong = [each.split(": ")[1] for each in said(late, function)]
    assert wrong or kind == "special rows"
    with np.errstate(all="ignore"):
        found = compared(
            {**late[[*ROWS].index(kind)], "form": "array"},
            hold(function(free(late[[*ROWS].index(kind)]["inputs"])[0])),
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
    [case] = [each for each in task if each["values"] == STATE]
    assert free(case["inputs"])[1] == 1.875  # type: ignore[index]


def test_sizes_just_above_blocks_and_small_ones_are_tried(tmp_path: Path) -> None:
    task = made("x.sum(1)", tmp_path, "rand(n, n + 1)", shapes=True, elements=1 << 17)
    sizes = {free(each["inputs"])[0].shape[0] for each in task}  # type: ignore[index]
    assert {257, 7} <= sizes


def test_a_sum_may_be_made_one_by_one(tmp_path: Path) -> None:
    task = made("x.mean(1)", tmp_path, "rand(7, n)", n=399)
    one_by_one: Function = lambda x: x.cumsum(1)[:, -1] / np.float32(x.shape[1])  # noqa: E731
    assert said(task, one_by_one) == []
