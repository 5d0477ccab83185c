"""Launches are recorded whole and replayed; a changed file is refused."""

from __future__ import annotations

import json
import lzma
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.cuda.tools import device
from fragmenta.inspect.evidence import arguments, launches
from fragmenta.inspect.evidence.arguments import Into
from tests.asking import answer, ask, complaint
from tests.evidence.fake import TEXT, Fake, install

RECORD = (
    "record",
    "--launch",
    "add.ptx",
    "add",
    "--block",
    "32",
    "--arg",
    "x.npy",
    "--arg",
    "zeros:f32:2x4",
    "--arg",
    "i32:8",
    "--arg",
    "f32:0.5",
    "-o",
    "rec.npz",
)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine with a GPU, and files to record from."""
    monkeypatch.chdir(tmp_path)
    Path("add.ptx").write_text(TEXT)
    np.save("x.npy", np.arange(8, dtype=np.float32))
    monkeypatch.setattr(device, "present", Fake)
    return install(monkeypatch)


@pytest.fixture
def parts(gpu: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a recording."""
    answer(*RECORD)
    with np.load("rec.npz") as stored:
        return dict(stored)


def written(parts: dict[str, Any], index: Any = None, **more: Any) -> Path:
    """A recording whose index or other parts are changed."""
    if index is not None:
        text = index if isinstance(index, bytes) else json.dumps(index).encode()
        parts = {**parts, "index": np.frombuffer(text, np.uint8)}
    np.savez("changed.npz", **{**parts, **more})
    return Path("changed.npz")


def index_of(parts: dict[str, Any]) -> dict[str, Any]:
    return json.loads(parts["index"].tobytes())


def packed(content: bytes) -> np.ndarray:
    return np.frombuffer(lzma.compress(content), np.uint8)


# ── record and replay ───────────────────────────────────────────────────────


def test_a_launch_is_recorded_and_replayed(gpu: dict[str, Any]) -> None:
    assert "rec.npz  1 launch, " in answer(*RECORD)
    assert len(gpu["programs"]) == 2  # over memory filled with different patterns
    found = launches.load(Path("rec.npz"))
    (launch,) = found.launches
    assert found.made["gpu"] == "a fake"
    assert [each["kind"] for each in launch.arguments] == [
        "stored",
        "full",
        "scalar",
        "scalar",
    ]
    assert [each.argument for each in launch.changes] == [1]
    assert found.arguments(launch)[0].tolist() == list(range(8))
    assert found.expected(launch)[1].tolist() == [
        [0.5, 1.5, 2.5, 3.5],
        [4.5, 5.5, 6.5, 7.5],
    ]
    text = answer("replay", "rec.npz")
    assert "1 launches  no byte differs  rec.npz  (a fake, " in text
    assert "64 bytes  same" in text
    (told,) = json.loads(answer("replay", "rec.npz", "--json"))
    assert told["launches"][0]["same"]


def test_a_recording_is_not_overwritten(gpu: dict[str, Any]) -> None:
    Path("rec.npz").write_bytes(b"precious")
    assert "already exists" in complaint(*RECORD)
    assert not gpu["programs"]
    answer(*RECORD, "--force")
    assert launches.load(Path("rec.npz"))


def test_pointers_are_recorded(gpu: dict[str, Any]) -> None:
    words = ("--arg", "pointer:1+16", "--arg", "arange:f32:12", "--arg", "i32:4")
    options = ("--block", "8", *words, "--arg", "f32:1", "-o", "rec.npz")
    answer("record", "--launch", "add.ptx", *options)
    found = launches.load(Path("rec.npz"))
    assert found.arguments(found.launches[0])[0] == Into(1, 16)
    assert found.expected(found.launches[0])[1].tolist()[:5] == [5, 6, 7, 8, 4]
    assert "48 bytes  same" in answer("replay", "rec.npz")


def test_chance_is_not_recorded(
    gpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launches.programs.launch

    def other(chip: Any, program: Any, buffers: Any, pattern: int) -> Any:
        gpu["spoil"] = (1, pattern & 7)
        return launch(chip, program, buffers, pattern)

    monkeypatch.setattr(launches.programs, "launch", other)
    told = complaint(*RECORD)
    assert "two launches of add on a fake gave different answers" in told
    assert not Path("rec.npz").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a folder to write to"),
        (("mine", "--arg", "i32:1"), "are for --launch FILE"),
        (("--launch", "add.ptx", "--block", "1"), "--output is missing"),
        (("--launch", "add.ptx", "-o", "rec.npy"), "must name a .npz file"),
        (("--launch", "add.ptx", "-o", "rec.npz"), "--block is missing"),
        (("--launch", "add.ptx", "sub", "-o", "rec.npz"), "no kernel sub"),
        (("--launch", "none.ptx", "-o", "rec.npz"), "none.ptx"),
        (("--launch", "add.ptx", "--family", "mma"), "--family is for instructions"),
    ],
)
def test_records_that_cannot_be(
    gpu: dict[str, Any], words: tuple[str, ...], said: str
) -> None:
    assert said in complaint("record", *words)


def test_a_wrong_byte_is_told(parts: dict[str, Any]) -> None:
    changes = bytearray(lzma.decompress(parts["changes"].tobytes()))
    changes[-1] ^= 0x80
    path = written(parts, changes=packed(bytes(changes)))
    result = ask("replay", path)
    assert result.exit_code == 1
    assert "1 differ" in result.stdout
    assert "argument 1 (y): 1 of 8 elements differ; first at [1, 3]" in result.stdout
    (told,) = json.loads(ask("replay", path, "--json").stdout)
    assert told["launches"][0]["differing_bytes"] == 1


def test_a_fault_here_is_a_difference(parts: dict[str, Any]) -> None:
    index = index_of(parts)
    index["launches"][0]["arguments"][2]["value"] = 9
    made = launches.make_arguments(
        index["launches"][0]["arguments"], 0, lzma.decompress(parts["data"].tobytes())
    )
    index["launches"][0]["digest"] = launches.digest(made)
    result = ask("replay", written(parts, index))
    assert result.exit_code == 1
    assert "out of bounds" in result.stdout


# ── files that somebody changed ─────────────────────────────────────────────


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("text", 1, "text 1 is named, and there are 1"),
        ("text", -1, "text is the number of a text; given -1"),
        ("grid", [1, 1], "grid is three whole numbers"),
        ("block", "wide", "block is three whole numbers"),
        ("shared", None, "shared is a whole number"),
        ("digest", "xyz", "16 hexadecimal digits"),
        ("seed", 1.5, "seed is a whole number"),
        ("changes", [[1, 0, 31]], "argument 1 has 32 bytes, and its change 31"),
        ("changes", [[1, 1, 32]], "ends past the 32 bytes of changes"),
        ("changes", [[2, 0, 32]], "argument 2 is changed, which is no array"),
        ("changes", [[9, 0, 32]], "argument 9 is changed, which is no array"),
        ("changes", [[1, 0]], "a list of argument, start and length"),
        ("arguments", "none", "arguments is a list"),
        ("arguments", [3], "argument 0: an argument has names and values"),
        ("printed", 3, "printed is text"),
        ("more", 1, "not 'more'"),
    ],
)
def test_a_field_that_is_wrong_is_named(
    parts: dict[str, Any], field: str, value: Any, said: str
) -> None:
    index = index_of(parts)
    index["launches"][0][field] = value
    with pytest.raises(
        fm.errors.BadFile, match="is not a recording of launches: launch 0: "
    ) as why:
        launches.load(written(parts, index))
    assert said in str(why.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"kind": "norml"}, "no kind of argument norml (did you mean normal?)"),
        ({"kind": ["a"]}, "no kind of argument"),
        ({"kind": "full", "type": "f33", "shape": [8], "value": 0}, "type is i8"),
        ({"kind": "full", "type": "f32", "shape": [8]}, "value is missing"),
        ({"kind": "full", "type": "f32", "shape": [-8], "value": 0}, "shape is a list"),
        ({"kind": "bits", "type": "f32", "shape": [2**40]}, "at most 4,294,967,296"),
        ({"kind": "values", "type": "f32", "shape": [8], "data": [1]}, "8 elements"),
        ({"kind": "stored", "type": "f32", "shape": [8], "start": 8}, "past the 32"),
        (
            {"kind": "wide", "type": "f32", "shape": [8], "low": 1, "high": 2**50},
            "1100",
        ),
        (
            {
                "kind": "integers",
                "type": "i32",
                "shape": [8],
                "low": 2,
                "high": 2,
                "ordered": False,
            },
            "low is below high",
        ),
        ({"kind": "pointer", "argument": 2, "offset": 0}, "into 2, which is no array"),
        ({"kind": "pointer", "argument": 7, "offset": 0}, "into 7, which is no array"),
        ({"kind": "struct", "bytes": "0g"}, "hexadecimal digits"),
        ({"kind": "scalar", "type": "i32", "value": "1"}, "value is a number"),
        ({"kind": "normal", "type": "f32", "shape": [8], "scale": 10**400}, "finite"),
    ],
)
def test_an_argument_that_is_wrong_is_named(
    parts: dict[str, Any], spec: Any, said: str
) -> None:
    index = index_of(parts)
    index["launches"][0]["arguments"][0] = spec
    with pytest.raises(
        fm.errors.BadFile, match="is not a recording of launches: launch 0: "
    ) as why:
        launches.load(written(parts, index))
    assert said in str(why.value)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (b"", "index is not JSON"),
        (b"1", "index has names and values"),
        (b"{}", "made says what made it"),
        (b'{"made": {"target": "sm_1"}}', "sm_1"),
        (b'{"made": {"target": "sm_90a"}}', "it has no texts"),
        (b'{"made": {"target": "sm_90a"}, "texts": [{}]}', "name is missing"),
        (
            b'{"made": {"target": "sm_90a"}, "texts": [{"name": "a", "bytes": 1}]}',
            "other sizes are named",
        ),
    ],
)
def test_an_index_that_says_nothing_is_refused(
    parts: dict[str, Any], index: bytes, said: str
) -> None:
    told = complaint("replay", written(parts, index))
    assert "changed.npz is not a recording of launches" in told
    assert said in told


def test_parts_that_are_damaged_are_named(parts: dict[str, Any]) -> None:
    for name in ("texts", "changes", "data"):
        short = written(parts, **{name: parts[name][:-9]})
        assert f"{name} " in complaint("replay", short)
        bad = written(parts, **{name: np.zeros(99, np.uint8)})
        assert f"{name} are damaged" in complaint("replay", bad)
        wide = written(parts, **{name: np.zeros(9)})
        assert f"{name} are bytes" in complaint("replay", wide)
    del parts["texts"]
    assert "it is an archive of index, texts" in complaint("replay", written(parts))


def test_other_inputs_are_refused(parts: dict[str, Any]) -> None:
    told = complaint("replay", written(parts, data=packed(bytes(32))))
    assert "are not those that were recorded" in told


def test_a_text_that_has_no_such_kernel(parts: dict[str, Any]) -> None:
    index = index_of(parts)
    index["launches"][0]["entry"] = "\x1b[2Jsub"
    told = complaint("replay", written(parts, index))
    assert "launch 0, add: no kernel" in told
    assert "\x1b" not in told


def test_whatever_is_changed_is_refused_or_compared(parts: dict[str, Any]) -> None:
    rng = random.Random(7)
    anything = [
        None,
        True,
        -1,
        0,
        1,
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
        [1, 1, 1],
        "0123456789abcdef",
    ]
    for _ in range(200):
        index = index_of(parts)
        launch = index["launches"][0]
        spec = rng.choice(launch["arguments"])
        where = rng.choice([launch, launch, spec, spec, index, index["made"]])
        where[rng.choice(list(where))] = rng.choice(anything)
        with suppress(fm.Error):  # anything else fails the test
            list(launches.replay(launches.load(written(parts, index))))


# ── descriptions ────────────────────────────────────────────────────────────


def test_arrays_of_ml_dtypes_are_stored_by_their_names() -> None:
    import ml_dtypes

    array = np.arange(4).astype(ml_dtypes.bfloat16)
    spec = arguments.stored(array)
    assert spec == {"kind": "stored", "type": "bf16", "shape": [4]}
    again = arguments.make({**spec, "start": 0}, 0, array.tobytes())
    assert arguments.elements(again, "bf16").tolist() == [0, 1, 2, 3]


def test_bool_bits_are_truth_values() -> None:
    made = arguments.make(arguments.bits("bool", 100), 3)
    assert set(made.view(np.uint8).tolist()) == {0, 1}
