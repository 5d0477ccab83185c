"""What people find first agrees with what is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import fragmenta

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_code_host_runs_every_part_of_continuous_integration() -> None:
    found = re.search(r"PARTS=\(([^)]*)\)", text(".ci/run"))
    matrix = re.search(r"part: \[([^\]]*)\]", text(".github/workflows/ci.yml"))
    assert found is not None
    assert matrix is not None
    assert matrix[1].split(", ") == found[1].split()
    assert "run: .ci/run ${{ matrix.part }}" in text(".github/workflows/ci.yml")


def test_an_unknown_part_is_refused() -> None:
    done = subprocess.run(
        [ROOT / ".ci/run", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "the parts are test long looks docs" in done.stderr


def test_the_citation_names_this_version() -> None:
    assert f"version: {fragmenta.__version__}\n" in text("CITATION.cff")


def test_reports_begin_with_the_doctor() -> None:
    folder = ROOT / ".github/ISSUE_TEMPLATE"
    pages = [each for each in folder.glob("*.yml") if each.name != "config.yml"]
    assert len(pages) == 3
    for page in pages:
        assert "label: fragmenta doctor" in page.read_text(encoding="utf-8")
