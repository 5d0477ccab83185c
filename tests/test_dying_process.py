"""A test whose process dies has failed; all others still run."""

import os
import sys
from pathlib import Path

import pytest

from tests.clock import HANG

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"
# The first files are done when the process dies; the last has one test alone.
FILES = {
    "test_a": "def test_one(): pass",
    "test_b": "def test_one(): pass",
    "test_c": """
        import os, pytest
        @pytest.mark.parametrize("number", range(5))
        def test_dies(number):
            if number == 1:
                os.abort()
    """,
    "test_d": "def test_one(): pass",
}
OPTIONS = [
    "-v",
    "-n",
    "2",
    "-p",
    "no:cacheprovider",
    "--dist",
    "loadgroup",
    "--no-loadscope-reorder",
]


@pytest.mark.long
def test_a_dying_process_ends_one_test(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(CONFTEST.parent), prepend=os.pathsep)
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(**FILES)
    ran = pytester.run(sys.executable, "-m", "pytest", *OPTIONS, timeout=HANG)
    ran.assert_outcomes(passed=7, failed=1)
    ran.stdout.fnmatch_lines(["*crashed while running 'test_c.py::test_dies?1?'"])
    ran.stderr.fnmatch_lines(["Fatal Python error: Aborted", "*in test_dies"])
