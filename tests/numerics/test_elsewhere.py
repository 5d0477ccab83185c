"""Numerics of launches in other processes, and of recordings: the same answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.commands.serve_requests import Folders, read, reply, submit
from fragmenta.errors import BadCall, KernelFault
from fragmenta.inspect.evidence.launches import replay_one
from fragmenta.values.numerics.report import Numerics
from fragmenta.values.numerics.wire import numerics_json, numerics_of
from tests.asking import ask, refusal
from tests.numerics.test_numerics import HEAD, ONE, kernel
from tests.ptx.recordings import FOLDER, every_launch

BORN = "mul.f32 %f4, %f3, 0f7F000000; sub.f32 %f5, %f4, %f4; add.f32 %f1, %f5, %f3;"


def given() -> list[Any]:
    """One number that becomes NaN, among others that have errors."""
    x = np.linspace(0, 1, 32, dtype=np.float32) ** 3
    x[7] = 1e9
    return [x, np.zeros(32, np.float32), 1]


def here(body: str = BORN) -> Numerics:
    found = kernel(ONE, body).launch(1, 32, given(), numerics=True).numerics
    assert found is not None
    return found


def same(one: Numerics, other: Numerics) -> None:
    """All that users see is the same."""
    assert str(one) == str(other)
    assert one.to_json() == other.to_json()
    problems = [[each.to_dict() for each in of.problems] for of in (one, other)]
    assert problems[0] == problems[1]
    for name, output in one.outputs.items():
        for a, b in zip(output.seconds, other.outputs[name].seconds, strict=True):
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()


@pytest.mark.long
def test_a_pool_answers_as_this_process() -> None:
    made, x = kernel(ONE, BORN), given()
    with ptx.Pool(1, warm=False) as pool:
        job = pool.submit(made, 1, 32, x, numerics=True)
        stopped = pool.submit(made, 1, 32, x, numerics=True, nan="raise")
        line = {"op": "launch", "id": 1, "ptx": HEAD + ONE.format(body=BORN)}
        line |= {"grid": 1, "block": 32, "numerics": True, "arrays": False}
        line |= {"arguments": ["full:f32:32:1e9", "zeros:f32:32", 1]}
        request = read(json.dumps(line).encode())
        asked = submit(request, pool, Folders(()), 1 << 20)
        there = job.result().numerics
        with pytest.raises(KernelFault, match="infinite"):
            stopped.result()
        with pytest.raises(BadCall, match="nan is"):
            pool.submit(made, 1, 32, x, numerics=True, nan="rise")
        asked.job.exception()
        told = json.loads(json.dumps(reply(asked)))
    assert there is not None
    same(here(), there)
    with pytest.raises(BadCall, match="another process"):
        there.blame()
    assert told["numerics"]["births"][0]["way"][0]["kind"] == "overflow"
    assert [each["rule"] for each in told["numerics"]["problems"]] == ["nan"]


def test_products_are_sent_whole() -> None:
    launch = next(each for each in every_launch() if "mma" in each.identity)
    found = replay_one(launch.file, launch.row, watch=False, numerics=True).numerics
    assert found is not None
    assert found.products
    sent = json.loads(json.dumps(numerics_json(found)))
    back = numerics_of(sent, found.text)
    same(found, back)
    for one, other in zip(found.products, back.products, strict=True):
        assert one.to_dict() == other.to_dict()
        assert one.op == other.op
        if one.worst is not None:
            assert other.worst is not None
            assert str(one.worst.explain()) == str(other.worst.explain())
    assert str(found.promotion) == str(back.promotion)


def test_an_answer_that_is_none_is_refused() -> None:
    """Whatever part of it is replaced by something else."""
    sent, wrong = json.dumps(numerics_json(here())), 0
    places = list(_places(json.loads(sent)))
    for place in places[:: max(1, len(places) // 60)]:
        for other in (None, "?", [], {}, [[1, 2], 3]):
            tree = json.loads(sent)
            inside = tree
            for key in place[:-1]:
                inside = inside[key]
            if type(inside[place[-1]]) is type(other):
                continue
            inside[place[-1]] = other
            try:
                made = numerics_of(tree, "")
            except (KeyError, TypeError, ValueError, BadCall):
                wrong += 1
            else:  # a place where nothing may stand
                assert str(made)
    assert wrong > 200


def _places(tree: Any, where: tuple[Any, ...] = ()) -> Any:
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, each in pairs:
        yield (*where, key)
        if isinstance(each, dict | list):
            yield from _places(each, (*where, key))


@pytest.mark.long
def test_a_process_of_its_own_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(HEAD + ONE.format(body=BORN))
    words = ["launch", file, "--block", "32", "--arg", "full:f32:32:1e9"]
    words += ["--arg", "zeros:f32:32", "--arg", "u32:1", "--numerics", "--json"]
    answers = [ask(*words, *more) for more in ([], ["--isolated"])]
    assert [each.exit_code for each in answers] == [1, 1]
    one, other = (json.loads(each.stdout)["numerics"] for each in answers)
    assert one == other
    assert one["births"][0]["nan"] is True


def test_a_recording_takes_it() -> None:
    file = FOLDER / "printing.npz"
    found = ask("launch", file, "--numerics", "--json", "--no-check")
    told = json.loads(found.stdout)["launches"]
    assert all(each["same"] for each in told)
    assert all(each["numerics"]["outputs"] is not None for each in told)
    text = ask("launch", file, "--numerics", "--no-check").stdout
    assert text.count("numerics of ") == len(told)
    assert "no byte differs" in text
    assert "--counters" in refusal("launch", file, "--counters")
