"""The module of a command is loaded when the command runs, and only then."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fragmenta
from fragmenta.commands.app import _load
from fragmenta.commands.command_table import COMMANDS
from fragmenta.commands.parameters import read_plainly
from tests.asking import answer
from tests.clock import HANG
from tests.thinning import some

FOLDER = Path(fragmenta.__file__).parent / "commands"
MODULES = sorted({entry.module for entry in COMMANDS.values()})

RUN = """
import json, sys
from fragmenta.commands.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""


def loaded(*words: str, **variables: str) -> set[str]:
    """The modules of commands that a question loads, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1]), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    names = json.loads(done.stdout.splitlines()[-1])
    return {module for module in MODULES if f"fragmenta.commands.{module}" in names}


def test_help_loads_no_command() -> None:
    assert loaded("--help") == set()


def test_completing_a_name_loads_no_command() -> None:
    variables = {"COMP_WORDS": "fragmenta wh", "COMP_CWORD": "1"}
    assert loaded(_FRAGMENTA_COMPLETE="complete_bash", **variables) == set()


def test_a_command_loads_its_own_module() -> None:
    assert loaded("where", "mma.m16n8k64.s4.s4", "A", "3", "17") == {"lookup"}


FIRST_LINE = """
import sys
from fragmenta.commands.cli import main
write, seen = sys.stdout.write, []
def watch(text):
    if not seen:
        seen.extend(sys.modules)
    return write(text)
sys.stdout.write = watch
try:
    main()
finally:
    print(*seen)
"""
HEAVY = [
    "llvmlite",
    "fragmenta.reference.isa.families",
    "fragmenta.ptx.opcodes",
    "fragmenta.ptx.checking.checker",
    "fragmenta.engine.units.machine",
    "fragmenta.engine.units.registry",
    "fragmenta.watch.races.observer",
    "fragmenta.launch.launch",
    "fragmenta.inspect.view.svg",
    "fragmenta.cuda.tools.compiler",
]
KERNEL = ".version 8.0 .target sm_80 .address_size 64 .entry k() { ret; }"
NOT_YET = {
    ("launch", "k.ptx", "--block", "32"): HEAVY,
    ("launch", "k.ptx", "--list"): HEAVY,
    ("launch", "--help"): HEAVY,
    ("orders", "--help"): HEAVY,
    ("orders", "k.ptx", "--block", "32"): HEAVY,
    ("check", "k.ptx"): ["llvmlite.binding", "fragmenta.launch.kernel", *HEAVY[4:]],
    ("matmul", "mma.m16n8k16.f32.f16", "a.npy", "a.npy"): [
        "llvmlite.binding",
        "fragmenta.reference.arithmetic.dispatch",
    ],
    ("where", "mma.m16n8k64.s4.s4", "A", "3", "17"): [HEAVY[0], *HEAVY[2:]],
}
"""What is not loaded when a command prints its first line."""


@pytest.mark.long
@pytest.mark.parametrize("words", some(NOT_YET, 2))
def test_the_first_line_waits_for_nothing_else(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """A command says what it does before it imports what does it."""
    (tmp_path / "k.ptx").write_text(KERNEL)
    np.save(tmp_path / "a.npy", np.ones((16, 16), np.float16))
    done = subprocess.run(
        [sys.executable, "-c", FIRST_LINE, *words],
        env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    seen = done.stdout.splitlines()[-1].split()
    assert "fragmenta.commands.app" in seen
    assert [each for each in NOT_YET[words] if each in seen] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_no_parameter_needs_the_validation_library(name: str) -> None:
    """Its import takes longer than most commands."""
    command = _load(name)
    read_plainly(command.params)
    assert [each.name for each in command.params if each._runtime_param is None] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_opens_with_the_line_of_the_table(command: str) -> None:
    _, _, told = answer(command, "--help").partition("\n\n  ")
    assert " ".join(told.split()).startswith(COMMANDS[command].does)


def test_modules_import_at_the_top() -> None:
    """Some wait: rich, for terminals; the entry point, for Ctrl-C; what lists never need.

    Pictures and the words for targets, too: most launches have neither.  What
    compiles and loads kernels waits for a source, what compares for a GPU.  The
    debugger waits for the first answer to an editor.
    """
    found = set()
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        for node in (n for function in functions for n in ast.walk(function)):
            if isinstance(node, ast.ImportFrom):
                found.add((path.stem, node.module))
            assert not isinstance(node, ast.Import), path
    assert found == {
        ("check", "fragmenta.commands.launch_arguments"),
        ("cli", "fragmenta.commands"),
        ("counters", "fragmenta.cuda.tools.resources"),
        ("debug", "fragmenta.commands.debug_launches"),
        ("debug_streams", "fragmenta.inspect.debugging.debugger"),
        ("debug_streams", "fragmenta.inspect.debugging.terminal"),
        ("debug_streams", "readline"),
        ("files", "fragmenta.inspect.view.svg"),
        ("gpu", "fragmenta.inspect.evidence"),
        ("gpu", "fragmenta.inspect.evidence.verify"),
        ("launch", "fragmenta.commands.isolated"),
        ("launch", "fragmenta.commands.recorded_launches"),
        ("launch", "fragmenta.inspect.view.svg"),
        ("launch", "fragmenta.inspect.view.timeline"),
        ("orders", "fragmenta.commands.recorded_launches"),
        ("output", "rich.console"),
        ("output", "rich.text"),
        ("replays", "fragmenta.inspect.replay.files"),
        ("replays", "fragmenta.inspect.replay.making"),
        ("replays", "fragmenta.inspect.replay.recorded"),
        ("replays", "fragmenta.engine.tracing.trace"),
        ("replays", "fragmenta.inspect.view.replay_page"),
        ("targets", "fragmenta.reference.execution.mma"),
        ("targets", "fragmenta.reference.isa.synonyms"),
    }
