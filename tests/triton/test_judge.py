"""The judge with PyTorch and Triton: a few honest candidates, and a few cheats.

``python -m judging`` judges all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fragmenta.frontends.judge.evaluating import SizedTask
from fragmenta.frontends.judge.expected import _format_of
from fragmenta.frontends.judge.held import elements, hold, leaves
from fragmenta.frontends.judge.loading import PLAIN, ReferenceTask
from fragmenta.frontends.judge.reference import cases
from fragmenta.frontends.judge.values import EXTREME, STATE
from fragmenta.judge import Batch, Settings
from judging.cheats import CHEATS
from judging.honest import candidates
from judging.tasks import TASKS
from tests.clock import HANG

HONEST = {each.name: each for each in candidates()}
WRONG = {each.name: each for each in CHEATS}
FEWER = Settings(
    seconds=HANG, values=("plain", "nan"), elements=1 << 12, products=1 << 14
)


@pytest.fixture(scope="module")
def whole() -> Iterator[Batch]:
    """All that is tried; with less, an honest candidate is incomplete."""
    with Batch(1, settings=Settings(seconds=HANG)) as made:
        yield made


@pytest.fixture(scope="module")
def batch() -> Iterator[Batch]:
    with Batch(1, settings=FEWER) as made:
        yield made


@pytest.mark.parametrize("name", ["relu in Triton", "layer_norm in Triton"])
def test_honest_candidates_are_clean(whole: Batch, name: str) -> None:
    each = HONEST[name]
    verdict = whole.submit(TASKS[each.task], each.text).result()
    assert verdict.word == "clean", verdict
    assert not verdict.estimated


@pytest.mark.parametrize(
    "name",
    [
        "zeros",
        "PyTorch's own operator",
        "NumPy on the host, copied by a kernel",
        "results kept by address",
        "another stream that nobody waits for",
        "launches that are not carried out",
        "tf32 inside",
    ],
)
def test_cheats_are_called_by_their_name(batch: Batch, name: str) -> None:
    each = WRONG[name]
    verdict = batch.submit(TASKS[each.task], each.text).result()
    assert each.finding in verdict.names, verdict
    assert verdict.word != "clean"


def test_the_suite_is_as_large_as_the_page_says() -> None:
    assert len(HONEST) >= 60
    assert len(WRONG) >= 40
    assert {each.task for each in (*HONEST.values(), *WRONG.values())} <= {*TASKS}


def test_elements_that_only_large_sizes_leave_out_are_found(tmp_path: Path) -> None:
    """Four of 4,096 random numbers are less than any order of the sum may be off."""
    order = {"text": TASKS["sum_rows"], "seeds": 1, "folder": str(tmp_path)}
    order |= {"elements": 1 << 13, "products": 64, "values": ["plain"]}
    order |= {"shapes": False, "strides": False}
    made = cast("list[dict[str, Any]]", cases(order))
    [given] = [each for each in made if each["set"] == "given"]
    [row], [inputs] = given["expected"], leaves(given["inputs"])
    x = elements(inputs).astype(np.float64)
    lost = np.abs(x[:, :-4].sum(1) - row["value"]) > row["most"]
    assert lost.mean() > 0.7
    assert (np.abs(x.astype(np.float32).cumsum(1)[:, -1] - row["value"]) == 0).all()


def test_the_format_is_that_of_what_the_reference_computes() -> None:
    text = """import torch
def get_inputs():
    return [torch.ones(8, 8).half(), torch.ones(8, 8)]
def reference(x, y):
    return {}
"""
    for result, name in {
        "x * y": "float32",
        "x.float() @ y": "float32",
        "(x @ x) * y": "float16",
        "(x + y).half()": "float16",
    }.items():
        names: dict[str, Any] = {}
        exec(text.format(result), names)
        task = ReferenceTask(PLAIN, names["reference"], names["get_inputs"], list)
        inputs = hold(names["get_inputs"]())
        plain = leaves(hold(names["reference"](*names["get_inputs"]())))
        assert _format_of(SizedTask({}, "", task, "main"), inputs, plain) == name


BATCH_NORM = """import torch
B, C = 4, 6
class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(B, C)]
def get_init_inputs():
    return [C]
"""


def test_weights_that_begin_at_zero_do_not_stay_there(tmp_path: Path) -> None:
    """A kernel that leaves out a bias is right as long as the bias is zero."""
    order = {"text": BATCH_NORM, "seeds": 1, "folder": str(tmp_path)}
    order |= {"elements": 1 << 13, "products": 1 << 10, "values": ["plain", EXTREME]}
    order |= {"shapes": False, "strides": False}
    made = cast("list[dict[str, Any]]", cases(order))
    states = [each["state"]["of"] for each in made if each["values"] == STATE]
    assert len(states) == 3
    for state in states:
        for name in ("norm.bias", "norm.running_mean"):
            assert elements(state[name]).any(), name
