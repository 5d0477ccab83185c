"""Launches that CUDA refuses, and of which the program does not ask."""

import json

import pytest

from tests.programs.test_programs import HERE, run


@pytest.mark.long
@pytest.mark.xdist_group("programs")
@pytest.mark.parametrize("word", ["asks", "goes on"])
def test_a_launch_that_is_refused(source, word):
    """It is an error if the program does not look at CUDA's; else the program's own."""
    quiet = word == "asks"
    done = run("--json", HERE / "refused.cu", word, status=0 if quiet else 1)
    calls = json.loads(done.stdout[done.stdout.index("{") :])["calls"]
    if quiet:
        assert not calls
        return
    (found,) = calls
    assert (found["rule"], found["severity"]) == ("refused-launch", "error")
    assert found["message"].startswith("one is not launched: cudaErrorInvalid")
    most = "a block of (2048, 1, 1), where the most is (1024, 1024, 64)"
    assert most in found["message"]
    lines = (HERE / "refused.cu").read_text().splitlines()
    assert lines[found["line"] - 1].strip() == "one<<<1, 2048>>>(y);"
