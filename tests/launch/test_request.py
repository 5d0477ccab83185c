"""Launches as values: requests, their JSON, and instruments with their refusals."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.planes.algebra import Algebra
from fragmenta.errors import BadCall
from fragmenta.launch.instruments import Instruments
from fragmenta.launch.request import SHORT_FORMS
from tests.launch.test_stacked import RIGHT, WRONG

ALL: list[Any] = [
    ptx.Watch("report", strict=True),
    ptx.AllOrders(500),
    ptx.Counting(),
    ptx.ExactValues(),
    ptx.Window(blocks=(0,), most=50),
]


def launched(text: str, **options: Any) -> tuple[Any, np.ndarray]:
    x = np.arange(64, dtype=np.float32)
    kernel = ptx.parse(text).kernels["sums"]
    return kernel.launch(1, 64, [x], **options), x


def test_options_and_fields_are_the_same() -> None:
    names = [each.name for each in fields(ptx.LaunchRequest)]
    assert names[:3] == ["grid", "block", "arguments"]
    assert {*names[3:]} == {*ptx.LaunchOptions.__annotations__} - SHORT_FORMS


def test_json_is_the_request() -> None:
    made = ptx.LaunchRequest(
        np.int32(4),
        (32, 2),
        cluster=[2, 1],
        cooperative=True,
        shared=1024,
        target="sm_90a",
        contract=False,
        schedule=("eager", "lazy+oldest-waits", 7),
        instruments=ALL,
        limits=ptx.Limits(seconds=3, instructions=1000),
    )
    text = json.dumps(made.to_json())
    again = ptx.LaunchRequest.from_json(json.loads(text))
    assert json.dumps(again.to_json()) == text
    assert Instruments.of(again.instruments) == Instruments.of(ALL)
    assert again.limits == made.limits


def test_json_has_short_forms() -> None:
    given = {"grid": 1, "block": 64, "watch": {"strict": True}, "numerics": True}
    made = ptx.LaunchRequest.from_json({**given, "nan": "raise"})
    assert made.instruments == (ptx.Watch(strict=True), ptx.ExactValues("raise"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"block": 32}, "launch needs grid"),
        ({"grid": 1, "block": 1, "watch": {"stict": 1}}, "did you mean strict"),
        ({"grid": 1, "block": 1, "instruments": [{"kind": "Algebra"}]}, "a kind"),
        ({"grid": 1, "block": 1, "instruments": [3]}, "object with a kind"),
        ({"grid": 1, "block": 1, "orders": "al"}, "did you mean all"),
    ],
)
def test_wrong_json_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadCall, match=said):
        ptx.LaunchRequest.from_json(given)


def test_an_algebra_is_not_json() -> None:
    with pytest.raises(BadCall, match="one process only; given Algebra"):
        ptx.LaunchRequest(1, 1, instruments=[Algebra()]).to_json()


def test_instruments_and_short_forms_do_the_same() -> None:
    window = ptx.Window(most=1000)
    short: dict[str, Any] = {"watch": "report", "orders": 500, "counters": True}
    short |= {"numerics": True, "replay": window}
    long = [ptx.Watch("report"), *ALL[1:4], window]
    for text in (RIGHT, WRONG):
        one, x = launched(text, **short)
        two, y = launched(text, instruments=long)
        assert x.tobytes() == y.tobytes()
        assert [e.text for e in one.problems] == [e.text for e in two.problems]
        assert str(one.numerics.to_dict()) == str(two.numerics.to_dict())
        assert one.counters == two.counters
        assert one.orders.to_dict() == two.orders.to_dict()
        assert len(one.replay()) == len(two.replay())


def test_none_does_nothing() -> None:
    result, x = launched(WRONG, instruments=[])
    assert not result.watched
    assert not result.problems
    assert x.tobytes() == launched(WRONG, watch=False)[1].tobytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"instruments": [ptx.Counting()] * 2}, "given two of Counting"),
        ({"instruments": [ptx.AllOrders()]}, "orders need the launch to be watched"),
        ({"instruments": [Algebra(), ptx.ExactValues()]}, "numerics is one"),
        ({"instruments": ["Watch"]}, "an instrument is one of Watch"),
        ({"instruments": [], "watch": True}, "watch would say it again"),
        ({"instruments": [ptx.Window(blocks=(3,))]}, "are 0 to 0; given 3"),
        ({"instruments": [ptx.Counting()], "shred": 4}, "did you mean shared"),
        ({"counters": "no"}, "counters must be True or False"),
        ({"orders": 0}, "a whole number from 1; given 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: Any, said: str) -> None:
    with pytest.raises(BadCall, match=re.escape(said)):
        launched(RIGHT, **options)


@pytest.mark.parametrize(
    "given",
    [ALL[1], ALL[3], ALL[4], Algebra()],
    ids=["orders", "exact values", "recording", "algebra"],
)
def test_workers_of_a_cluster_cannot(given: Any) -> None:
    how = {"instruments": [ptx.Watch(), given], "client": object()}
    with pytest.raises(BadCall, match="Dask cluster"):
        launched(RIGHT, **how)
