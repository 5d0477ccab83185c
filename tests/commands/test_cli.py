"""Every command answers, refuses and pipes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import fragmenta
from fragmenta import catalogue, find
from fragmenta.commands.app import examples, own_files
from fragmenta.commands.command_table import COMMANDS
from fragmenta.commands.gpu import NEED_A_GPU
from fragmenta.cuda.tools.device import present
from fragmenta.errors import NoDevice
from fragmenta.reference.isa.families import FAMILIES
from tests.asking import WIDTH, answer, ask, refusal
from tests.clock import HANG
from tests.commands.names import S4
from tests.thinning import THOROUGH

# The same package in a process of its own, whether it is installed or not.
PYTHON = {**os.environ, "PYTHONPATH": str(Path(fragmenta.__file__).parents[1])}


def shell(words: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Ask in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fragmenta.commands.cli", *words],
        capture_output=True,
        text=True,
        env={**PYTHON, **variables},
        timeout=HANG,
        check=False,
    )


KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x)
{
    .reg .b32 %r<4>;
    .reg .f32 %f1;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r1, %r2, %r3, %r1;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.f32 %f1, [%rd1];
    add.f32 %f1, %f1, %f1;
    st.global.f32 [%rd1], %f1;
    ret;
}
"""
"""The file that examples check and launch."""


PROGRAM = """
import numpy as np
from fragmenta import ptx
ptx.load("kernel.ptx").kernels["twice"].launch(1, 32, [np.ones(32, np.float32)])
"""
ROWS = """
import numpy as np
from fragmenta import ptx
kernel, x = ptx.load("kernel.ptx").kernels["twice"], np.ones(64, np.float32)
def make(n):
    return ptx.Call(kernel, 1, n, [x[:n]])
"""


# ── every command, every family ─────────────────────────────────────────────


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_fit_80_columns(family: str) -> None:
    """Only a mnemonic may be longer: it is one word."""
    ops = list(catalogue(family))
    few = 5 if THOROUGH else 2  # of each family
    for op in ops[:: max(1, len(ops) // few)]:
        asked = [("show",), ("formula",)] if op.fragments else [("show",)]
        if {"A", "C", "D"} <= set(op.fragments):
            asked.append(("which", *["1"] * len(op.d.shape)))
        for command, *rest in asked:
            lines = answer(command, op, *rest).splitlines()
            assert max(len(line) for line in lines if line != str(op)) <= WIDTH
        for name, part in op.fragments.items():
            for words in (
                ("where", op, name, *[0] * len(part.shape)),
                ("holds", op, name, 31),
            ):
                lines = answer(*words).splitlines()
                assert max(len(line) for line in lines if line != str(op)) <= WIDTH


TRIED_ELSEWHERE = "serve", "run", "judge"
"""One does not end, one needs programs, one PyTorch; they have tests of their own."""


@pytest.fixture
def matrices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that examples read, in a folder for those that they write."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    shapes = {"a": (40, 48), "b": (48, 24), "w": (32, 64), "sparse": (32, 64)}
    files = {n: random.standard_normal(s).astype("f2") for n, s in shapes.items()}
    files["c"] = np.ones((40, 24), np.float32)
    files["sparse"][:, ::2] = 0
    files["tile"] = np.eye(16, dtype="f2")
    files["codes"] = random.integers(0, 16, (64, 128), np.uint8)
    for name, matrix in files.items():
        np.save(f"{name}.npy", matrix)
    for name in "ab":
        words = (f"{name}.npy", "nvfp4", "--operand", name.upper())
        answer("quantize", *words, "-o", f"q{name}.npz")
    for name in ("kernel", "other"):
        Path(f"{name}.ptx").write_text(KERNEL)
        Path(f"{name}.py").write_text(PROGRAM)
    Path("rows.py").write_text(ROWS)
    Path("commands.txt").write_text("break st.global\ncontinue\nprint %f1\n")
    root = Path(__file__).parents[2]
    for name in ("tests", "examples"):  # what a checkout has
        Path(name).symlink_to(root / name)
    Path("tile-1.npz").symlink_to("tests/golden/programs/tile-1.npz")
    monkeypatch.setattr(webbrowser, "open", lambda *_args, **_options: True)


@pytest.mark.long
@pytest.mark.usefixtures("matrices")
@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_run(command: str) -> None:
    text = answer(command, "--help")
    assert max(map(len, text.splitlines())) <= WIDTH
    assert r"\b" not in text  # it is for the help itself
    assert examples(command)
    mine = own_files(examples(command))
    assert ("stands for a file of yours" in text) == bool(mine)
    for example in examples(command):
        for file in re.findall(r"(?:examples|tests)/[\w./-]+", example):
            assert Path(file).exists()
        assert example in text
        program, *words = shlex.split(example.partition(" > ")[0])
        assert program == "fragmenta"
        if command in NEED_A_GPU and not gpu_is_there():
            result = ask(*words)
            assert result.exit_code == 2
            assert re.search("GPU|No such file|no such program", result.output)
        elif command not in TRIED_ELSEWHERE:
            assert answer(*words)


def gpu_is_there() -> bool:
    try:
        present()
    except NoDevice:
        return False
    return True


def test_every_command_is_in_the_help() -> None:
    text = answer("--help")
    assert set(COMMANDS) == set(re.findall(r"(?m)^  ([a-z]+)  +[A-Z]", text))
    assert answer("-h") == text


def test_version() -> None:
    assert answer("--version") == f"fragmenta {fragmenta.__version__}\n"


# ── refusals ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("wher",), "Did you mean 'where'"),
        (("find", "fp8", "hopper"), "did you mean: fragmenta list fp8 hopper"),
        (("mma", "m16n8k16"), "no command mma; did you mean: fragmenta show mma m16n8"),
        (("HMMA.16816.F32",), "did you mean: fragmenta show HMMA.16816.F32"),
        (("nothing",), "No such command 'nothing'"),
        (("show", ""), ""),
    ],
)
def test_refusals(words: tuple[object, ...], message: str) -> None:
    text = " ".join(refusal(*words).split())
    assert message in text


def test_messages_are_wrapped() -> None:
    text = refusal("list", "--target", "sm_91")
    assert max(map(len, text.splitlines())) <= WIDTH


# ── as a process ────────────────────────────────────────────────────────────


def test_plain_text_in_a_pipe() -> None:
    done = shell(["table", S4, "C"])
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= WIDTH


def test_errors_go_to_stderr() -> None:
    done = shell(["where", S4, "A", "-1", "0"])
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr == "Error: row -1 is out of range; row is 0 to 15\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_closed_pipe_is_no_event() -> None:
    """As under ``| head``, but closed before the first byte, so it is certain."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fragmenta.commands.cli", "list"],
            stdout=write,
            stderr=subprocess.PIPE,
            env=PYTHON,
            timeout=HANG,
            check=False,
        )
    finally:
        os.close(write)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fragmenta.commands.cli", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=PYTHON,
            text=True,
            timeout=HANG,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "Error: No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupting_is_silent() -> None:
    """Ctrl-C anywhere, imports included: status 130 and no traceback."""
    code = (
        "import signal, sys, fragmenta.commands.cli, fragmenta.commands.catalogue as c\n"
        # A background job starts its children with SIGINT ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def stop(*words): signal.raise_signal(signal.SIGINT)\n"
        "c._chosen = stop\n"
        "sys.argv = ['fragmenta', 'list']\n"
        "fragmenta.commands.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=PYTHON,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")


def terminal(words: Sequence[str], status: int = 0, **variables: str) -> str:
    """What a question prints on a terminal."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "fragmenta.commands.cli", *words],
        stdout=follower,
        stderr=follower,
        env={**PYTHON, "TERM": "xterm-256color", **variables},
    )
    os.close(follower)
    output = b""
    while True:
        try:
            more = os.read(leader, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            break
        if not more:
            break
        output += more
    os.close(leader)
    assert child.wait(timeout=HANG) == status
    return output.decode()


@pytest.mark.long
def test_colour_on_terminals_only_if_wanted() -> None:
    asked = ["where", S4, "A", "3", "17"]
    plain = answer(*asked)
    assert "\x1b[" in terminal(asked, NO_COLOR="")
    assert terminal(asked, NO_COLOR="1").replace("\r", "") == plain
    assert terminal(asked, TERM="dumb").replace("\r", "") == plain


# ── completion ──────────────────────────────────────────────────────────────


def complete(line: str) -> list[str]:
    """What bash would offer for the last word of a line."""
    done = shell(
        [],
        _FRAGMENTA_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(line.split(" ")) - 1),
    )
    return done.stdout.split()


@pytest.mark.long
def test_completion() -> None:
    assert complete("fragmenta wh") == ["where", "which"]
    assert complete("fragmenta where movmatrix") == [str(find("movmatrix"))]
    assert complete("fragmenta where x scale") == ["scale_A", "scale_B"]
    assert complete("fragmenta list --target sm_90") == ["sm_90", "sm_90a"]
    assert complete("fragmenta list --family mma") == ["mma", "mma.sp"]
    assert complete("fragmenta table x A --by ") == ["matrix", "lane"]


def test_completion_script() -> None:
    # Otherwise Typer looks for a shell among the parents of the process, where none is
    # if the tests were started without one.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = shell(["--show-completion", "bash"], **named)
    assert "_FRAGMENTA_COMPLETE" in done.stdout


def test_a_module_that_runs() -> None:
    words = [sys.executable, "-m", "fragmenta", "--version"]
    done = subprocess.run(
        words, env=PYTHON, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("fragmenta ")
