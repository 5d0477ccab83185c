"""The recordings are whole, small, and those of the present corpus."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from fragmenta.errors import Error
from fragmenta.inspect.evidence import arguments as inputs
from fragmenta.inspect.evidence.launches import apply, difference, digest
from tests.ptx import launches, record, recordings

MOST_BYTES = 12 << 20


@pytest.mark.parametrize("source", recordings.sources())
def test_arguments_are_those_that_the_gpu_had(source: str) -> None:
    for launch in recordings.of_source(source):
        assert digest(launch.make_arguments()) == launch.row.digest
        assert launch.row.changes, launch.identity


def test_every_kernel_of_the_corpus_is_recorded() -> None:
    recorded = {(each.source, each.row.entry) for each in recordings.every_launch()}
    for path in (*record.CORPUS.glob("*.cu"), *record.CORPUS.glob("*.ptx")):
        text = re.sub(r"(?m)^\.visible \.entry", "KERNEL", path.read_text())
        macros = re.findall(r"^GEMM\((\w+)", text, re.MULTILINE)
        named = re.findall(
            r"^KERNEL\s+(?:__launch_bounds__\(\d+\)\s+)?(\w+)\(", text, re.MULTILINE
        )
        for entry in {*macros, *named}:
            assert (path.stem, entry) in recorded


def test_rows_have_not_changed_since_they_were_recorded() -> None:
    rows = {(row.source, row.name): row for row in launches.ROWS}
    for launch in recordings.every_launch():
        if launch.source == "triton":
            continue
        kept = launch.row
        row = rows[launch.source, kept.name]
        assert json.loads(json.dumps(row.arguments)) == kept.arguments
        assert (row.grid, row.block, row.shared) == (kept.grid, kept.block, kept.shared)


def test_names_are_unique() -> None:
    names = [each.identity for each in recordings.every_launch()]
    assert len(set(names)) == len(names) >= 200


def test_recordings_are_small() -> None:
    assert sum(path.stat().st_size for path in recordings.FOLDER.iterdir()) < MOST_BYTES


def test_the_makers_are_named() -> None:
    for source in recordings.sources():
        made = recordings.load(source).made
        assert {"date", "gpu", "target", "driver", "nvcc", "ptxas"} <= set(made)


def test_a_change_is_put_back() -> None:
    before = inputs.make(inputs.normal("f32", 5, 3), 1)
    after = inputs.make(inputs.special("f32", 5, 3), 2)
    again = apply(before, difference(before, after))
    assert again.tobytes() == after.tobytes()
    assert again.shape == (5, 3)


def test_other_arguments_are_refused() -> None:
    launch = recordings.every_launch()[0]
    other = launch._replace(row=replace(launch.row, seed=0))
    with pytest.raises(Error, match="not those that were recorded"):
        other.make_arguments()


def test_the_same_seed_makes_the_same_bytes_everywhere() -> None:
    words = inputs.random_words(5, 3)
    assert [int(word) for word in words] == [
        int(word) for word in inputs.random_words(5, 9)[:3]
    ]
    made = [
        inputs.make(spec, 7)
        for spec in (inputs.bits("u32", 2), inputs.normal("bf16", 2))
    ]
    assert [np.asarray(each).tolist() for each in made] == SEVEN


SEVEN = [[3750270439, 39798609], [16259, 48526]]
