"""``doctor`` says what there is, what is missing, and nothing about the user."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fragmenta
from fragmenta.commands import doctor
from fragmenta.errors import MissingPackage, NoDevice
from tests.asking import answer


@pytest.fixture(autouse=True)
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are the same with a GPU and without."""

    def present() -> None:
        raise NoDevice("no usable GPU")

    monkeypatch.setattr(doctor.device, "present", present)


def test_versions_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "one.kept").write_bytes(bytes(2**20))
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    said = json.loads(answer("doctor", "--json"))
    assert said["fragmenta"] == fragmenta.__version__
    assert said["numpy"] == np.__version__
    assert said["cache"] == f"{tmp_path}, 1 entries, 1.0 MiB"
    assert said["GPU"] is None
    assert said["missing"]["GPU"].startswith("verify, record, throughput")


def test_what_is_missing_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> str:
        raise MissingPackage("none")

    monkeypatch.setattr(doctor, "find_compiler", absent)
    monkeypatch.setattr(doctor.assembler, "assemblers", list)
    monkeypatch.setattr(doctor.assembler, "tool", absent)
    monkeypatch.setenv("FRAGMENTA_CACHE", "")
    said = " ".join(answer("doctor").split())
    for each in (
        "C++ compiler fragmenta run; apt install g++",
        "pip install nvidia-cuda-nvcc",
    ):
        assert each in said
    assert "see FRAGMENTA_CACHE" in said


def test_an_assembler_that_does_not_run_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "ptxas"
    monkeypatch.setattr(doctor.assembler, "assemblers", lambda: [broken])
    assert "does not run" in answer("doctor")


def test_the_home_folder_is_not_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path / "kept"))
    said = answer("doctor")
    assert str(tmp_path) not in said
    assert "~/kept, empty" in said
