"""Every pair of instruments, with every schedule and in every host: one run, one truth."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.planes.algebra import Algebra
from fragmenta.errors import BadCall
from tests.launch import test_stacked
from tests.launch.loopback import Loopback

OWN = "ld.param.u64 %rd1, [x];\n    mov.u32 %r1, %ctaid.x;\n"
OWN += "    mad.wide.u32 %rd1, %r1, 256, %rd1;"
"""Each block has numbers of its own."""
RIGHT, WRONG = (
    text.replace("ld.param.u64 %rd1, [x];", OWN)
    for text in (test_stacked.RIGHT, test_stacked.WRONG)
)
BLOCKS = 3
MADE: dict[str, Any] = {
    "Watch": lambda: ptx.Watch("report"),
    "Counting": ptx.Counting,
    "ExactValues": ptx.ExactValues,
    "Algebra": Algebra,
    "Window": ptx.Window,
    "AllOrders": lambda: ptx.AllOrders(1000),
}
SCHEDULES: list[Any] = ["eager", "lazy", 3, "lazy+oldest-waits", ["eager", "lazy"]]
PAIRS = [
    pair
    for pair in combinations(MADE, 2)
    if pair != ("ExactValues", "Algebra")  # two second values of one register
]


def asked(names: tuple[str, ...]) -> list[Any]:
    """The instruments; orders need a launch that is watched."""
    if "AllOrders" in names and "Watch" not in names:
        names = ("Watch", *names)
    return [MADE[name]() for name in names]


def launched(text: str, names: tuple[str, ...], **options: Any) -> tuple[Any, bytes]:
    x = np.arange(64 * BLOCKS, dtype=np.float32)
    kernel = ptx.parse(text).kernels["sums"]
    made = kernel.launch(BLOCKS, 64, [x], instruments=asked(names), **options)
    return made, x.tobytes()


def answers(result: Any) -> dict[str, object]:
    """What each instrument found."""
    exact = None
    if result.numerics is not None:  # sums over threads have orders of their own
        errors = [each["x"].error.tolist() for each in result.followed]
        exact = errors, [(e.rule, e.line) for e in result.numerics.problems]
    return {
        "Watch": [(each.rule, each.line, each.count) for each in result.problems],
        "Counting": result.counters,
        "ExactValues": exact,
        "Window": [len(result.replay(each.schedule)) for each in result.steps],
        "AllOrders": None if result.orders is None else result.orders.to_dict(),
    }


def check(text: str, names: tuple[str, ...], **options: Any) -> None:
    """Together they find what each finds alone."""
    result, bits = launched(text, names, **options)
    found = answers(result)
    for name in names:
        alone, left = launched(text, (name,), **options)
        assert left == bits, name
        assert found.get(name) == answers(alone).get(name), name


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_all_go_together(schedule: Any) -> None:
    every = tuple(name for name in MADE if name != "Algebra")
    for text in (RIGHT, WRONG):
        check(text, every, schedule=schedule)


@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_each_pair_goes_together(pair: tuple[str, ...], schedule: Any) -> None:
    check(WRONG, pair, schedule=schedule)


@pytest.mark.parametrize("name", MADE)
def test_workers_of_a_cluster(name: str) -> None:
    if name in ("Watch", "Counting"):
        here, bits = launched(WRONG, (name,))
        there, left = launched(WRONG, (name,), client=Loopback())
        assert left == bits
        assert answers(there)[name] == answers(here)[name]
    else:
        with pytest.raises(BadCall, match="Dask cluster"):
            launched(WRONG, (name,), client=Loopback())


@pytest.mark.parametrize("name", MADE)
def test_processes_of_a_pool(name: str) -> None:
    x = np.arange(64 * BLOCKS, dtype=np.float32)
    with ptx.Pool(1, warm=False) as pool:
        if name not in ("Watch", "Counting", "ExactValues"):
            with pytest.raises(BadCall, match="in a pool has the instruments"):
                pool.submit(WRONG, BLOCKS, 64, [x], instruments=asked((name,)))
            return
        job = pool.submit(WRONG, BLOCKS, 64, [x], instruments=asked((name,)))
        here, bits = launched(WRONG, (name,))
        assert answers(job.result())[name] == answers(here)[name]
        assert np.asarray(job.arguments[0]).tobytes() == bits
