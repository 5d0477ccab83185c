"""The comparison with other tools: its cases, its clock, and its judge."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
MEASURED = json.loads((ROOT / "docs" / "benchmarks" / "peers.json").read_text("utf-8"))


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, which is beside the benchmarks."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import peers.__main__
    import peers.on_matrices

    return peers


def test_the_committed_results_are_of_these_cases(peers: Any) -> None:
    cases = peers.cases
    wanted = [
        (each.name, each.what, tool) for each in cases.CASES for tool in each.tools
    ]
    rows = [(each["case"], each["what"], each["tool"]) for each in MEASURED["rows"]]
    assert rows == wanted
    assert MEASURED["tools"] == cases.TOOLS
    lines = {(e.axis, e.case.name, tool) for e in cases.GROWTH for tool in e.tools}
    found = {(each["axis"], each["case"], each["tool"]) for each in MEASURED["growth"]}
    assert found <= lines
    assert {each[0] for each in lines - found} <= {"cores"}  # needs an idle machine


def test_tools_with_the_bits_of_a_gpu_agree() -> None:
    """Watched or not, and MMA-Sim: not one number differs."""
    exact = ("fragmenta", "fragmenta, watched", "MMA-Sim", "MMA-Sim, one by one")
    for row in MEASURED["rows"]:
        if row["tool"] in exact:
            assert row["different"] == 0


def test_a_call_is_warm_when_it_is_measured(
    peers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call takes 5 seconds of CPU time here, later ones 1."""
    from peers import measuring

    clock, calls = [0.0], count()

    def call() -> None:
        clock[0] += 1.0 if next(calls) else 5.0

    monkeypatch.setattr(measuring.time, "process_time", lambda: clock[0])
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: 2 * clock[0])
    found = measuring.measure(call)
    assert (found.first, found.cpu, found.wall) == (5.0, 1.0, 2.0)
    assert 2 <= found.rounds <= measuring.ROUNDS


def test_a_tool_that_was_fed_wrongly_is_found(peers: Any) -> None:
    case = peers.cases.BY_NAME["matrices_f16"].sized(n=32)
    results = {}
    for name in ("drawn", "known"):
        whole = name == "known"
        _, result = peers.on_matrices.prepare(case, peers.cases.OURS, whole=whole)
        results[name] = result()
        results[f"exact-{name}"] = peers.on_matrices.exact(case, whole=whole)
    judge = peers.__main__.judge
    judge(case, "a tool", results)
    with pytest.raises(SystemExit, match="from the known answer"):
        judge(case, "a tool", {**results, "known": results["known"].T.copy()})
    wrong = results["drawn"] * np.float32(1.001)
    with pytest.raises(SystemExit, match="from the result in f64"):
        judge(case, "a tool", {**results, "drawn": wrong})
