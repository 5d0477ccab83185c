"""The programs, the suite and the workflow of docs/triton.md do what the page says."""

import os
import re
import shlex
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

pytestmark = pytest.mark.triton

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "triton.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?ms)^```text\n(.*?)^```$", TEXT)
FILES = {b.split("\n")[0][2:]: b for b in BLOCKS if b.startswith("# ")}
RUNS = [b[2:].partition("\n")[::2] for b in BLOCKS if b.startswith("$ ")]
PLUGIN = [
    "-p",
    "no:fragmenta",
    "-p",
    "fragmenta.inspect.evidence.plugin",
    "-W",
    "ignore",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page")
    for name, block in FILES.items():
        if name.endswith(".py"):
            (made / name).write_text(block, encoding="utf-8")
    return made


def output(command: str, folder: Path) -> str:
    program, *words = shlex.split(command)
    if program == "pytest":
        words = ["-m", "pytest", *PLUGIN, *words]
    places = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, places)),
            # A cache keeps the paths of the files that kernels were first in.
            "TRITON_CACHE_DIR": str(folder / "cache"),
        },
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(("command", "shown"), RUNS)
def test_a_command(command: str, shown: str, folder: Path) -> None:
    got = output(command, folder)
    lines = got.splitlines()
    for wanted in shown.splitlines():
        assert any(fnmatch(each, wanted.replace("[", "[[]")) for each in lines), got


def test_the_steps_of_the_workflow(folder: Path) -> None:
    steps = re.findall(r"(?m)^ +- run: (.*)$", FILES[".github/workflows/kernels.yml"])
    assert all(step.startswith(("pip install ", "pytest ")) for step in steps)
    (command,) = (step for step in steps if step.startswith("pytest "))
    assert "1 error" in output(command, folder)
    named = re.search(r"sarif_file: (\S+)", TEXT)
    assert named
    made = (folder / named[1]).read_text(encoding="utf-8")
    assert '"global-race"' in made
    assert '"uri": "test_sums.py"' in made


def test_every_file_is_run() -> None:
    programs = {name for name in FILES if name.endswith(".py")}
    assert programs == {shlex.split(command)[-1] for command, _ in RUNS}
