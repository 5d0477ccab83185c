"""``fragmenta launch --isolated`` answers as without it, and survives its child."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fragmenta.frontends.pool.pool import Pool
from tests.asking import ask
from tests.ptx.test_linear import HEAD
from tests.thinning import some

TEXT = f"""{HEAD}
.visible .entry good(.param .u64 x)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r2, [%rd3]; add.s32 %r2, %r2, %r2;
    st.global.u32 [%rd3], %r2; ret;
}}
.visible .entry race(.param .u64 x)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .shared .align 4 .b8 s[256];
    ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x;
    st.shared.u32 [s], %r1; ld.shared.u32 %r2, [s+4];
    st.shared.u32 [s+4], %r1; st.global.u32 [%rd1], %r2; ret;
}}
.visible .entry outside(.param .u64 x)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; ld.global.u32 %r2, [%rd1+4096]; ret;
}}
.visible .entry endless(.param .u64 x)
{{
    .reg .u64 %n; mov.u64 %n, 0;
L:  add.u64 %n, %n, 1; bra L;
}}
.visible .entry large(.param .u64 x)
{{
    .reg .b32 %r<4>; .local .b8 b[600000]; st.local.u8 [b], 1; ret;
}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "k.ptx"
    path.write_text(TEXT)
    return str(path)


def without_time(text: str) -> Any:
    found = json.loads(text)
    found.pop("seconds", None)
    return found


def said(text: str) -> list[str]:
    """What was said, but for what is told if something takes long."""
    return [line for line in text.splitlines() if not line.startswith("fragmenta: ")]


@pytest.mark.long
@pytest.mark.parametrize(
    "kernel, problems",
    some(
        [
            ("good", "raise"),
            ("race", "raise"),
            ("race", "report"),
            ("outside", "raise"),
            ("large", "raise"),
        ],
        2,
    ),
)
def test_the_answer_is_the_same(file: str, tmp_path: Path, kernel: str, problems: str):
    answers, files = [], []
    for number, more in enumerate(([], ["--isolated"])):
        array, log = tmp_path / f"x{number}.npy", tmp_path / f"{number}.sarif"
        words = ["launch", file, kernel, "--block", "64", "--arg", "arange:i32:64"]
        words += ["--save", f"0={array}", "--sarif", str(log), "--problems", problems]
        found = ask(*words, "--json", *more)
        told = without_time(found.stdout) if found.stdout else said(found.stderr)
        answers.append((found.exit_code, told))
        files.append([path.exists() and path.read_bytes() for path in (array, log)])
    assert answers[0] == answers[1]
    assert files[0] == files[1]


@pytest.mark.long
def test_an_endless_loop_is_ended(file: str) -> None:
    words = ("launch", file, "endless", "--block", "32", "--arg", "zeros:i32:1")
    found = ask(*words, "--isolated", "--seconds", "0.5")
    assert found.exit_code == 1
    # On a busy machine the process is ended from outside before it says so itself.
    assert re.search("longer than 0.5 s|the 0.5 s that it may take", found.stderr)


@pytest.mark.long
def test_a_picture_is_drawn_there(file: str, tmp_path: Path) -> None:
    drawn = []
    for number, more in enumerate(([], ["--isolated"])):
        picture = tmp_path / f"{number}.svg"
        words = ["launch", file, "race", "--block", "64", "--arg", "arange:i32:64"]
        found = ask(*words, "--timeline", picture, *more)
        assert found.exit_code == 1
        drawn.append(picture.read_text("utf-8"))
    assert drawn[0] == drawn[1]


def test_a_process_that_dies_is_an_error_in_words(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = "forkserver.main(lambda pool, _: (pool.sendall(b'h'), os.abort()))"
    program = f"import os; from fragmenta.frontends.pool import forkserver; {crash}"
    monkeypatch.setattr(Pool, "_program", program)
    words = ("launch", file, "good", "--block", "32", "--arg", "zeros:i32:32")
    found = ask(*words, "--isolated")
    assert found.exit_code == 1
    assert "crashed with SIGABRT" in found.stderr
