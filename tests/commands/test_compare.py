"""``compare`` prints, writes and refuses as the library does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from tests.asking import complaint, page

F16 = "mma.m16n8k16.f32.f16"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((4, 8), np.float32))
    np.save("b.npy", np.ones((8, 4), np.float32))
    np.savez("both.npz", a=np.ones(2))
    np.save("raw.npy", np.ones((8, 4), "V2"))


def test_it_is_the_library() -> None:
    words = (
        "compare",
        F16,
        "--targets",
        "sm_80,sm_90",
        "--k",
        16,
        "--k",
        64,
        "--seed",
        3,
    )
    told = fm.compare(F16, "sm_80,sm_90", k=[16, 64], seed=3)
    assert page(*words) == f"{told}\n"
    assert json.loads(page(*words, "--json")) == told.to_dict()


def test_files_and_plots() -> None:
    words = ("compare", F16, "--input", "a.npy", "b.npy", "--plot", "p.svg")
    told = page(*words)
    assert "plot in p.svg" in told
    assert told.startswith(page("compare", F16, "--input", "a.npy,b.npy").rstrip())
    assert Path("p.svg").read_text().startswith("<svg")
    assert "already exists" in complaint(*words)
    about = json.loads(page(*words, "--force", "--json"))
    assert (about["plot"], about["shape"]) == ("p.svg", [4, 4])


@pytest.mark.parametrize(
    "words, said",
    [
        (("--input", "a.npy"), "--input is normal or uniform, or two files"),
        (("--input", "a.npy", "b.npy", "b.npy"), "given a.npy b.npy b.npy"),
        (("--input", "normal", "b.npy"), "given normal b.npy"),
        (("--input", "a.npy,none.npy"), "none.npy"),
        (("--input", "a.npy,both.npz"), "both.npz is an archive"),
        (("--input", "both.npz", "both.npz"), "both.npz is an archive"),
        (("--input", "a.npy,raw.npy"), "raw.npy holds"),
        (("--plot", "p.png"), "--plot must name a .svg file"),
        (("--k", "many"), "many is not a whole number"),
        (("--targets", "sm_91"), "no target sm_91 (did you mean sm_90?)"),
    ],
)
def test_refusals(words: tuple[str, ...], said: str) -> None:
    assert said in complaint("compare", F16, *words)
