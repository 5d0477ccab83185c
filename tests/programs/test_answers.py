"""CUDA's answers to sizes, captures and handles that are wrong, as a GPU gave them."""

from pathlib import Path

import pytest

from tests.programs.test_programs import HERE, run

RECORDED = Path(__file__).parents[1] / "golden/answers/h200.txt"


@pytest.mark.long
@pytest.mark.xdist_group("programs")
def test_answers_are_those_of_a_gpu(source):
    head, *lines = RECORDED.read_text().splitlines()
    assert head.startswith("# NVIDIA H200")
    done = run("--card", "h200", HERE / "answers.cu")
    assert done.stdout.splitlines() == lines
    assert "copied-past-end" in done.stderr
