"""The table of other people's kernels is complete, and every finding is explained."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from corpus import recording, table
from tests.test_docs import generator

ROOT = Path(__file__).resolve().parent.parent
PINNED = dict(
    pin
    for file in ("packages.txt", "archives.txt")
    for pin in re.findall(
        r"(?m)^([\w-]+)==(\S+)$", (ROOT / "corpus" / file).read_text()
    )
)


def page() -> Any:
    """What writes docs/corpus.md."""
    return generator().corpus


@cache
def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.load()["cases"]
    return found


def test_there_are_enough_kernels() -> None:
    assert len(page().rows()) >= 150


@pytest.mark.parametrize("name", table.LIBRARIES)
def test_every_library_is_pinned_and_was_run(name: str) -> None:
    about = table.load()["libraries"][name]
    assert about["version"] == PINNED[table.LIBRARIES[name].package]
    assert any(each["library"] == name for each in cases())


def test_every_case_still_exists() -> None:
    texts = {
        name: (ROOT / f"corpus/libraries/{name}.py").read_text()
        for name in table.LIBRARIES
    }
    for each in cases():
        # A name may be made in a loop.
        words = re.match(r"block_(reduce|scan|histogram)_", each["case"])
        name = words[0] if words else rf"\b{each['case']}\b"
        assert re.search(name, texts[each["library"]]), each["case"]


def test_every_state_has_words() -> None:
    assert {each["state"] for each in cases()} <= set(page().STATES)


def test_nothing_that_is_reported_is_left_unexplained() -> None:
    assert page().unexplained() == []


def test_every_case_that_does_not_end_well_is_explained() -> None:
    known = {
        (each["library"], case)
        for each in page()._findings()
        for case in each.get("cases", ())
    }
    ends = {(each["library"], each["case"]): each["state"] for each in cases()}
    assert {name for name, state in ends.items() if state != "right"} == known


def test_every_finding_is_still_reported() -> None:
    reported = {
        (row["library"], source)
        for row in page().rows()
        for _, _, source in row["problems"]
    }
    for each in page()._findings():
        for place in each["at"]:
            assert (each["library"], place) in reported, place


def test_what_has_changed_is_told() -> None:
    right = next(each for each in cases() if each["state"] == "right")
    assert table.differences([right]) == []
    wrong = copy.deepcopy(right)
    wrong["state"] = "wrong"
    wrong["kernels"][0]["problems"].append(
        {"rule": "shared-race", "severity": "error", "source": "a.py:1", "message": ""}
    )
    state, verdicts = table.differences([wrong])
    assert "the state was right, now it is wrong" in state
    assert "shared-race at a.py:1" in verdicts
    unknown = {**right, "case": "another"}
    assert table.differences([unknown]) == [
        f"{right['library']} another is not in corpus.json"
    ]


def test_times_of_a_busy_machine_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verdicts are renewed; seconds stay, those of the interpreter, too."""
    file = tmp_path / "corpus.json"
    file.write_bytes(table.FILE.read_bytes())
    monkeypatch.setattr(table, "FILE", file)
    old = next(each for each in cases() if "interpreter" in each["kernels"][0])
    new = copy.deepcopy(old)
    new["seconds"], new["reason"] = 1000, "another"
    new["kernels"][0]["seconds"] = 1000
    new["kernels"][0].pop("interpreter")
    table.keep([new], times=False)
    before = json.loads((ROOT / "docs" / "corpus.json").read_text("utf-8"))
    after = table.load()
    assert {**old, "reason": "another"} in after["cases"]
    assert len(after["cases"]) == len(before["cases"])
    assert after["made"]["machine"] == before["made"]["machine"]
    table.keep([new])
    assert new in table.load()["cases"]


def test_no_path_of_this_machine_is_kept() -> None:
    assert not re.search(r"/(home|root|tmp|work)/", table.FILE.read_text("utf-8"))


@pytest.mark.parametrize(
    ("size", "three"), [(7, [7, 1, 1]), ((2, 3), [2, 3, 1]), ((1, 2, 3), [1, 2, 3])]
)
def test_sizes_of_launches(size: Any, three: list[int]) -> None:
    assert recording._three(size) == three


def test_what_a_gpu_said_before_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results.json"
    monkeypatch.setattr(recording, "RESULTS", file)
    recording.write({"gpu": "A"}, {"b": {"bits": "differs"}, "c": {"bits": "same"}})
    recording.write({"gpu": "A"}, {"a": {"bits": "same"}, "b": {"bits": "same"}})
    kernels = json.loads(file.read_text())["kernels"]
    assert list(kernels.items()) == [(name, {"bits": "same"}) for name in "abc"]
