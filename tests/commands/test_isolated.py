"""``fragmenta launch --isolated`` answers as without it, and survives its child."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.commands import isolated
from fragmenta.launch.kernel import parse
from tests.asking import ask
from tests.clock import HANG
from tests.ptx.test_linear import HEAD

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
.visible .entry endless(.param .u64 x) {{ L: bra L; }}
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


@pytest.mark.parametrize(
    "kernel, problems",
    [
        ("good", "raise"),
        ("race", "raise"),
        ("race", "report"),
        ("outside", "raise"),
        ("large", "raise"),
    ],
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


def test_an_endless_loop_is_ended(file: str) -> None:
    words = ("launch", file, "endless", "--block", "32", "--arg", "zeros:i32:1")
    found = ask(*words, "--isolated", "--seconds", "0.5")
    assert found.exit_code == 1
    assert "longer than 0.5 s" in found.stderr


def launched(monkeypatch: pytest.MonkeyPatch, child: str) -> None:
    """Launch with another child."""
    monkeypatch.setattr(isolated, "CHILD", child)
    kernel = parse(TEXT).kernels["good"]
    isolated.launch(
        kernel,
        (1, 1),
        [np.zeros(1, np.int32)],
        {"limits": fm.ptx.Limits(seconds=60)},
        False,
    )


START = "import os, sys; sys.stdin.buffer.read(); "


@pytest.mark.parametrize(
    "child, said",
    [
        ("os.kill(os.getpid(), 11)", "crashed with SIGSEGV"),
        ("os.abort()", "crashed with SIGABRT"),
        ("os.kill(os.getpid(), 9)", "the system ended the process"),
        (f"os.kill(os.getpid(), {int(signal.SIGXCPU)})", "used up its processor time"),
        ("sys.exit(3)", "status 3 and no answer"),
        ("pass", "no answer that can be read"),
        ("os.write(1, b'x' * 100)", "no answer that can be read"),
        ("os.write(1, bytes([255]) * 8)", "no answer that can be read"),
        (
            "os.write(1, (13).to_bytes(8, 'little') + b'{\"arrays\":[9]}'[:13])",
            "no answer that can be read",
        ),
        (
            "os.write(1, (14).to_bytes(8, 'little') + b'{\"arrays\":[9]}')",
            "other arrays",
        ),
    ],
)
def test_a_child_that_dies_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, child: str, said: str
) -> None:
    with pytest.raises(fm.errors.KernelFault, match=said):
        launched(monkeypatch, START + child)


def test_a_child_that_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "GRACE", -59.9)
    with pytest.raises(fm.errors.LimitReached, match="--seconds allows more"):
        launched(monkeypatch, START + "import signal; signal.pause()")


@pytest.mark.parametrize(
    "deed, said",
    [
        ("os.write(os.open(path, os.O_CREAT | os.O_WRONLY), b'x')", "OSError"),
        ("bytearray(64 << 30)", "MemoryError"),
        ("print(resource.getrlimit(resource.RLIMIT_CORE))", "(0, 0)"),
    ],
)
def test_a_child_may_not_do_much(tmp_path: Path, deed: str, said: str) -> None:
    code = (
        "import os, resource; from fragmenta.commands.isolated import confine\n"
        f"path = {str(tmp_path / 'made')!r}\nconfine(60, 1 << 30)\n"
        f"try:\n    {deed}\nexcept Exception as why:\n    print(type(why).__name__)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG,
    )
    assert found.stdout.strip() == said
