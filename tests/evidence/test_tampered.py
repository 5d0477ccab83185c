"""Recordings that somebody changed: refused in words, never a traceback or a wait."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.inspect.evidence import record
from tests.asking import ask

GOLDEN = Path(__file__).parents[1] / "golden" / "h200"
KINDS = {"mma": 20, "mma.sp": 60, "moves": 9, "wgmma": 90, "wmma": 300}
"""One case in so many of each file is enough here."""
STORE = "wmma.store.d.sync.aligned.row.m16n16k16.global.f32"
"""An instruction that exists, and that no recording is of."""


@pytest.fixture(scope="module", params=KINDS)
def few(request):
    """A small recording of each kind: what it says, and its words."""
    found = record.load(GOLDEN / f"{request.param}.npz")
    cases, words, start = [], [], 0
    for case in found.cases[:: KINDS[request.param]]:
        answer = np.ascontiguousarray(found.result(case)).reshape(-1).view(np.uint32)
        cases.append({**vars(case), "shape": list(case.shape), "start": start})
        words.append(answer)
        start += answer.size
    return {"made": found.made, "cases": cases}, np.concatenate(words)


def write(path, about, words, **more):
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    np.savez(path, about=np.frombuffer(text, np.uint8), words=words, **more)
    return path


def copied(about):
    return json.loads(json.dumps(about))


@pytest.mark.long
def test_what_is_whole_is_loaded(few, tmp_path):
    about, words = few
    found = record.load(write(tmp_path / "x.npz", about, words))
    assert len(found.cases) == len(about["cases"])
    assert not [d for _, d in record.replay_any(found) if d]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("tiles", 2**70, "tiles is a whole number, 1 or more"),
        ("tiles", 2**40, "tiles, and"),
        ("tiles", 0, "1 or more; given 0"),
        ("tiles", True, "given True"),
        ("tiles", 10, "tiles have answers of shape|has one tile"),
        ("shape", [2**40, 32, 4], "have answers of shape"),
        ("shape", "wide", "a list of whole numbers; given 'wide'"),
        ("start", -1, "0 or more; given -1"),
        ("start", 2**40, "there are"),
        ("seed", 1.5, "seed is a whole number; given 1.5"),
        ("selector", 7, "selector 7|no selectors|its selector is 7"),
        ("digest", "x" * 16, "16 hexadecimal digits"),
        ("instruction", "mma.sync", "mma.sync"),
        ("instruction", ["mma"], "instruction is text"),
        ("instruction", STORE, "wmma.store"),
        ("variant", {"turn": 1}, "variant"),
        ("variant", 99, "variant"),
        ("more", 1, "not 'more'"),
    ],
)
def test_a_field_that_is_wrong_is_named(few, field, value, said, tmp_path):
    about, words = few
    if field == "variant" and "variant" not in about["cases"][0]:
        said = "not 'variant'"
    changed = copied(about)
    changed["cases"][-1][field] = value
    path = write(tmp_path / "x.npz", changed, words)
    with pytest.raises(fm.errors.BadFile, match=f"is not a recording: case .*({said})"):
        record.load(path)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (b"", "about is not JSON"),
        (b"[" * 100_000, "about is not JSON"),
        (b"\xff\xfe", "about is not JSON"),
        (b"1", "about has names"),
        (b"{}", "made says"),
        (b'{"made": {"gpu": 1}, "cases": []}', "made says"),
        (b'{"made": {}, "cases": []}', "has no cases"),
        (b'{"made": {}, "cases": [3]}', "a case has names and values"),
        (b'{"made": {}, "cases": [{}]}', "target"),
        (b'{"made": {"target": "sm_1"}, "cases": [{}]}', "target sm_1"),
        (b'{"made": {"target": "sm_90a"}, "cases": [{}]}', "instruction is missing"),
    ],
)
def test_what_says_nothing_is_refused(about, said, tmp_path):
    path = write(tmp_path / "x.npz", about, np.zeros(3, np.uint32))
    with pytest.raises(fm.errors.BadFile, match=f"is not a recording.*{said}"):
        record.load(path)


def test_words_are_words(few, tmp_path):
    about, words = few
    for wrong in (words.astype(float), words.reshape(-1, 2), words[:-1]):
        with pytest.raises(fm.errors.BadFile, match="is not a recording"):
            record.load(write(tmp_path / "x.npz", about, wrong))


@pytest.mark.long
def test_whatever_is_changed_is_refused_or_compared(few, tmp_path):
    """Fields exchanged for anything: an error, or bits that are counted."""
    about, words = few
    rng = random.Random(5)
    anything = [
        None,
        True,
        -1,
        0,
        1,
        3,
        2**31,
        2**64,
        1e9,
        float("nan"),
        "",
        "sm_90a",
        [],
        [1],
        {},
        {"a": 1},
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
        [5, 32, 4],
        "0123456789abcdef",
    ]
    for _ in range(150):
        changed = copied(about)
        case = rng.choice(changed["cases"])
        where = rng.choice([case, case, changed["made"], changed])
        if isinstance(case.get("variant"), dict) and rng.random() < 0.3:
            where = case["variant"]
        if not where:
            continue
        where[rng.choice(list(where))] = rng.choice(anything)
        path = write(tmp_path / "x.npz", changed, words)
        said = ""
        try:
            next(record.replay_any(record.load(path)))
        except fm.Error as error:
            said = str(error)
        told = ("x.npz is not a recording", "not those that were recorded")
        assert not said or any(words in said for words in told)


def test_escapes_do_not_reach_the_terminal(few, tmp_path):
    about, words = few
    changed = copied(about)
    changed["made"]["gpu"] = "\x1b]0;owned\x07 H200\r"
    changed["cases"] = changed["cases"][:1]
    result = ask("replay", write(tmp_path / "x.npz", changed, words))
    assert result.exit_code == 0, result.output
    assert "\\x1b]0;owned\\x07 H200\\r" in result.stdout
    assert not set("\x1b\x07\r") & set(result.stdout)
    changed["cases"][0]["instruction"] = "\x1b[2J"
    result = ask("replay", write(tmp_path / "x.npz", changed, words))
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
