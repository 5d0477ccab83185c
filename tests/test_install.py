"""The wheel works without the rest of this project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.clock import HANG

ROOT = Path(__file__).resolve().parent.parent
Run = Callable[..., str]

# One worker runs these, so that the environment is made once.
pytestmark = pytest.mark.xdist_group("install")


def run(*command: object, cwd: Path) -> str:
    """Run a command away from the source tree; its output, or a failure."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=outside,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree."""
    out = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out)
    run(*build, "--wheel", ROOT, cwd=out)
    (built,) = out.glob("fragmenta-*.whl")
    return built


def needed(name: str, listed: Iterable[str]) -> dict[str, Distribution]:
    """What a distribution says that it needs, and what that needs; as installed here."""
    found: dict[str, Distribution] = {}
    waiting = [(name, each) for each in listed]
    while waiting:
        by, text = waiting.pop()
        need = Requirement(text)
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        if need.name not in found:
            there = found[need.name] = distribution(need.name)
            waiting += [(need.name, each) for each in there.requires or ()]
        version = found[need.name].version
        assert need.specifier.contains(version, prereleases=True), f"{by}: {text}"
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The command line of an environment that holds the wheel and its needs.

    The wheel is installed.  What it declares to need is linked from the environment of
    the tests, and nothing else: a need that it does not declare is missed.
    """
    place = tmp_path_factory.mktemp("environment")
    venv.create(place)
    scripts = place / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    quick = ("--quiet", "--no-deps", "--no-compile", "--no-index")
    run(*pip, "--python", scripts / "python", "install", *quick, wheel, cwd=place)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(scripts / "python", "-c", ask, cwd=place).strip())
    (about,) = site.glob("fragmenta-*.dist-info")
    needs = needed("fragmenta", Distribution.at(about).requires or ())
    assert {"numpy", "llvmlite", "typer"} <= set(needs)
    for each in needs.values():
        for part in {file.parts[0] for file in each.files or ()} - {
            "..",
            "__pycache__",
        }:
            if not (site / part).exists():
                (site / part).symlink_to(each.locate_file(part))

    def command(name: str, *words: object) -> str:
        return run(scripts / name, *words, cwd=place)

    return command


def test_wheel_holds_the_package_and_its_licence(wheel: Path) -> None:
    names = run(sys.executable, "-m", "zipfile", "-l", wheel, cwd=wheel.parent)
    for name in ("fragmenta/__init__.py", "fragmenta/py.typed", "licenses/LICENSE"):
        assert name in names
    assert "tests/" not in names


@pytest.mark.long
def test_version(wheel: Path, installed: Run) -> None:
    version = wheel.name.split("-")[1]
    assert version in installed("fragmenta", "--version")
    query = "import fragmenta; print(fragmenta.__version__)"
    assert installed("python", "-c", query).strip() == version


def test_pytest_finds_the_plugin(installed: Run) -> None:
    query = (
        "from importlib.metadata import entry_points\n"
        "print(entry_points(group='pytest11')['fragmenta'].value)"
    )
    assert (
        installed("python", "-c", query).strip() == "fragmenta.inspect.evidence.plugin"
    )


def test_command_line_answers(installed: Run) -> None:
    """Row 3 is groupID 3; column 17 is element 1 of thread 2, so lane 4 * 3 + 2."""
    instruction = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
    answer = installed("fragmenta", "where", instruction, "A", 3, 17)
    assert re.search(r"\b14\b", answer)


def test_import_is_light(installed: Run) -> None:
    query = (
        "import sys, fragmenta; "
        "print({'llvmlite', 'rich', 'typer', 'torch'} & set(sys.modules))"
    )
    assert installed("python", "-c", query).strip() == "set()"
