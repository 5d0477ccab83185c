"""A few seconds of every fuzzer, and whether a fuzzer would see anything."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.registers.fragment import Fragment
from tests.clock import work
from tests.fuzz import engine, files, packing, sparsity, wrong_types
from tests.fuzz.surfaces import SURFACES
from tests.thinning import some

COUNTS = {
    "packing": 750,
    "descriptors": 1500,
    "commands": 80,
    "parser": 750,
    "ptx_texts": 40,
}


@pytest.mark.long
@pytest.mark.parametrize("name", SURFACES)
def test_nothing_is_found(name):
    result = engine.run(SURFACES[name], COUNTS.get(name, 300), seed=2026)
    told = [f"{each.what}\n{each.call}" for each in result.findings]
    assert not told, "\n\n".join(told)
    assert result.calls >= COUNTS.get(name, 300)
    assert result.refusals > result.calls // 20


def test_every_public_function_is_called_with_wrong_types():
    assert wrong_types.public() <= set(wrong_types.right())


# To know their names, kernels must be compiled, so that no test is made for each.
@pytest.mark.parametrize("part", range(4))
def test_a_right_call_is_right(part):
    names, refused = sorted(wrong_types.right())[part::4], {}
    for name in names:
        try:
            wrong_types.made(wrong_types.right()[name])
        except fm.Error as why:
            refused[name] = str(why)
    # Nobody knows what it does.
    assert set(refused) == {"reference.tensor_memory.moves.shift"}.intersection(
        names
    ), refused
    assert all("only a GPU" in why for why in refused.values())


@cache
def wrong_calls():
    """Where each wrong value is given; ``make test``: at every other place."""
    found = {}
    for name, place, number in some(wrong_types.every(), 2):
        found.setdefault(number, []).append((name, place))
    return found


def test_every_place_is_given_something_wrong():
    """Wrong values are an odd number, so those that are left out alternate."""
    given = {place for places in wrong_calls().values() for place in places}
    assert given == {(name, place) for name, place, _ in wrong_types.every()}


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(wrong_types.WRONG)))
def test_a_wrong_argument_is_refused_in_words(number):
    value, escaped = wrong_types.WRONG[number], []
    for name, place in wrong_calls()[number]:
        call = wrong_types.changed(wrong_types.right()[name], place, value)
        try:
            wrong_types.made(call)
        except fm.Error:
            pass
        except Exception as why:
            escaped.append(f"{name}({place}={value!r}): {type(why).__name__}: {why}")
    assert not escaped, "\n".join(escaped)


def test_the_shares_make_one():
    assert sum(each.share for each in SURFACES.values()) == pytest.approx(1)


# ── a fuzzer that finds nothing must be able to ─────────────────────────────


def only(name, game):
    return dataclasses.replace(SURFACES[name], games={game: 1})


def test_a_wrong_bit_is_found(monkeypatch):
    real = Fragment.pack

    def spoiled(self, matrix, **selected):
        words = real(self, matrix, **selected)
        words[..., 3, 0] ^= 1
        return words

    monkeypatch.setattr(Fragment, "pack", spoiled)
    assert engine.run(only("packing", packing.packed), 300, seed=1).found


def test_a_wrong_choice_is_found(monkeypatch):
    monkeypatch.setattr(sparsity, "prune", lambda A, op: A)
    assert engine.run(only("sparsity", sparsity.pruned), 50, seed=1).found


def test_what_escapes_and_what_waits_is_found():
    def escapes(ask):
        ask({}.pop, "absent")

    def waits(ask):
        def slow():
            until = work() + 0.25
            while work() < until:
                pass
            raise fm.Error("no")

        ask(slow)

    def accepts(ask):
        ask.refused(lambda: 3)

    def refuses(ask):
        ask.accepted(fm.instruction, "nothing")

    for game, words in (
        (escapes, "KeyError escaped"),
        (waits, "s to refuse"),
        (accepts, "accepted, but it is wrong: 3"),
        (refuses, "refused, but it is right"),
    ):
        result = engine.run(only("parser", game), 1, seed=1)
        assert words in result.findings[0].what
        again = engine.play(only("parser", game), 1, result.findings[0].number)[1]
        assert words in again.what


def test_a_game_is_played_again_with_the_same_arguments():
    surface = SURFACES["descriptors"]
    asked = [engine.play(surface, 3, 17)[0].last for _ in range(2)]
    assert repr(asked[0][1:]) == repr(asked[1][1:])


def test_files_of_the_fuzzer_are_not_left(tmp_path):
    assert files.folder().is_dir()
    assert np.load(files.put(files.saved(np.ones(3)))).tolist() == [1, 1, 1]


def test_the_report_says_what_was_run():
    path = Path(__file__).parents[2] / "docs" / "verification" / "fuzz.json"
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["calls"] == sum(each["calls"] for each in report["surfaces"])
    assert report["findings"] == sum(each["found"] for each in report["surfaces"])
    assert {each["surface"] for each in report["surfaces"]} == set(SURFACES)
