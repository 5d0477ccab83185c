"""The corpus detects a wrong result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from corpus.trial import Trial, Wrong
from corpus.watching import Watch, watched
from fragmenta import ptx

STORE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 x) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %ctaid.x;
    st.global.u32 [%rd1], %r1;
    ret;
}"""


def judged(got: list[float], want: list[float]) -> float:
    trial = Trial()
    trial.judge(torch.tensor(got), torch.tensor(want, dtype=torch.float64))
    return trial.error


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ([1.0, 2.001], [1.0, 2.0]),
        ([1.0, float("nan")], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, float("inf")]),
        ([1.0, float("nan")], [1.0, float("inf")]),
        ([0.0, 1000.0], [0.01, 1000.0]),
        ([1.0], [1.0, 2.0]),
    ],
)
def test_wrong_numbers_are_noticed(got: list[float], want: list[float]) -> None:
    if len(got) == len(want) and got[0] == 0.0:  # far smaller than the others
        assert 0 < judged(got, want) < 1
    else:
        with pytest.raises(Wrong):
            judged(got, want)


def test_whole_numbers_must_be_equal() -> None:
    with pytest.raises(Wrong, match="1 of 2 numbers differ"):
        Trial().judge(torch.tensor([1, 2]), torch.tensor([1, 3]))


@pytest.mark.parametrize(
    "wrong",
    [lambda x: x * 1.001, lambda x: x + 0 * x.detach() + (x - x.detach()) * 0.01],
    ids=["value", "gradient"],
)
def test_values_and_gradients_are_compared(
    wrong: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    trial = Trial()
    given = trial.floats(4, 5)
    trial.compare(lambda x: x * 2, lambda x: x + x, given)
    with pytest.raises(Wrong):
        trial.compare(wrong, lambda x: x, given)


def test_launches_are_seen() -> None:
    kernel = ptx.parse(STORE).kernels["store"]
    watch = Watch()
    with watched(watch):
        kernel.launch(2, 1, [np.zeros(1, np.int32)])  # does not raise
    (seen,) = watch.kernels.values()
    assert (seen.name, seen.launches) == ("store", 1)
    assert {rule for rule, _, _ in seen.problems} == {"global-race"}
