"""Machine code records what units do as Python does, and Python does no more for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fragmenta import ptx
from fragmenta.engine.tracing.recorder import StepRecorder
from fragmenta.engine.units.clusters import Cluster
from tests.ptx.hazards.cases import cases
from tests.ptx.test_triton_blackwell import kept
from tests.ptx.test_triton_hopper import arrays_of, parameters
from tests.ptx.test_triton_hopper import recorded as hopper
from tests.replay.ending import differences, endings
from tests.replay.kernels import copied
from tests.replay.test_truth import issues, recorded
from tests.thinning import THOROUGH

Run = Callable[..., ptx.Result]


def _kept(row: dict[str, Any], target: str) -> Run:
    """A launch of Triton with new arrays."""
    kernel = ptx.parse(row["text"], row["name"]).kernels[row["entry"]]
    sizes = {"cluster": row["cluster"], "shared": row["shared"], "target": target}

    def run(**more: Any) -> ptx.Result:
        given = parameters(row, arrays_of(row))
        return kernel.launch(row["grid"], row["block"], given, **sizes, **more)

    return run


LAUNCHES: dict[str, Callable[[], Run]] = {
    "wgmma, bulk copies, a cluster": lambda: _kept(
        hopper("3.9.0")["matmul_persistent-cluster"], "sm_90a"
    ),
    "wgmma, cp.async": lambda: _kept(hopper("3.9.0")["matmul-bf16"], "sm_90a"),
    "tcgen05, a pair": lambda: _kept(kept()["pair_matmul"], "sm_100a"),
    "tcgen05, stores of cells": lambda: _kept(kept()["matmul_scaled-nvfp4"], "sm_100a"),
}
QUICK = ("wgmma, cp.async", "tcgen05, a pair")
NAMES = [*LAUNCHES] if THOROUGH else QUICK


@pytest.fixture
def attended(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let Python carry out every event of what is recorded from now on."""
    begin = StepRecorder.__init__

    def attend() -> None:
        def made(self: StepRecorder, *given: Any) -> None:
            begin(self, *given)
            self._attends = True

        monkeypatch.setattr(StepRecorder, "__init__", made)

    return attend


def same(one: ptx.Replay, other: ptx.Replay) -> None:
    """Both have the same units and barriers, and the same memory at some steps."""
    assert one.units == other.units
    assert one.barriers == other.barriers
    assert len(one) == len(other)
    for step in range(0, len(one), max(1, len(one) // 7)):
        for number in range(len(one.memories)):
            both = [each.memory_at(step, number) for each in (one, other)]
            assert all((a == b).all() for a, b in zip(*both, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("name", NAMES)
def test_notes_are_what_python_hears(
    name: str, schedule: str, attended: Callable[[], None]
) -> None:
    run = LAUNCHES[name]()
    how: dict[str, Any] = {"watch": False, "replay": True, "schedule": schedule}
    with endings() as found:
        result = run(**how)
    (stepped,) = result.steps
    (ending,) = [each for each in found if each.told is stepped.told]
    noted = result.replay()
    assert not differences(noted, ending, stepped)
    for unit in noted.units:
        if unit["kind"] == "wgmma.mma_async":
            assert max(issues(noted, unit)) == unit["issued"] <= unit["done"]
    attended()
    same(noted, run(**how).replay())


HAZARDS = ("barriers-forgotten_load-1", "products-forgotten_product-1")


@pytest.mark.parametrize("name", HAZARDS)
def test_a_problem_has_the_same_steps(name: str, attended: Callable[[], None]) -> None:
    (case,) = [each for each in cases() if each.name == name]
    noted = recorded(case, "lazy")[0].replay()
    attended()
    heard = recorded(case, "lazy")[0].replay()
    assert noted.problems
    assert noted.problems == heard.problems


@pytest.mark.parametrize("name", NAMES)
def test_recording_needs_python_for_no_event_more(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, counts, event = LAUNCHES[name](), [], Cluster.event

    def counted(self: Cluster, *given: Any) -> int:
        counts[-1] += 1
        return event(self, *given)

    monkeypatch.setattr(Cluster, "event", counted)
    for more in ({}, {"replay": True}):
        for _ in range(2):  # Python learns of a kernel in its first launch
            counts.append(0)
            run(watch=False, **more)
    _, plain, _, with_record = counts
    assert with_record <= plain


def test_a_record_is_gathered_when_it_is_asked_for() -> None:
    result = copied(True, "lazy")
    (stepped,) = result.steps
    assert stepped.told.raw is not None
    assert not stepped.told.units
    units = result.replay().units
    assert stepped.told.raw is None
    assert [each["kind"] for each in units] == ["cp.async.bulk"]
    assert result.replay().units == units
