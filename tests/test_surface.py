"""The public surface is complete, documented, and loads nothing before it is used."""

from __future__ import annotations

import ast
import inspect
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fragmenta as fm
from tests.clock import HANG

SOURCE = Path(inspect.getfile(fm)).parents[1]
NAMES = [name for name in fm.__all__ if name != "__version__"]


def loaded(code: str) -> set[str]:
    """The top-level modules in a fresh interpreter after some code."""
    ending = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{ending}"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG,
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_import_loads_nothing() -> None:
    heavy = {"numpy", "ml_dtypes", "llvmlite", "rich", "typer", "pydantic", "torch"}
    assert not loaded("import fragmenta") & heavy


def test_looking_up_and_packing_stay_light() -> None:
    code = (
        "import fragmenta as fm, numpy as np\n"
        "op = fm.find('mma.m16n8k64.s4.s4')\n"
        "op.a.where(3, 17); op.a.pack(np.zeros((16, 64), np.int8)); op.c.table()"
    )
    assert not loaded(code) & {"llvmlite", "rich", "typer", "pydantic", "torch"}


def test_where_on_the_command_line_stays_light() -> None:
    code = (
        "from typer.testing import CliRunner\n"
        "from fragmenta.commands import app\n"
        "where = ['where', 'mma.m16n8k64.s4.s4', 'A', '3', '17']\n"
        "assert CliRunner().invoke(app, where).exit_code == 0"
    )
    assert not loaded(code) & {"llvmlite", "rich", "pydantic"}


def test_help_needs_no_numpy() -> None:
    code = (
        "from typer.testing import CliRunner\n"
        "from fragmenta.commands import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0"
    )
    assert "numpy" not in loaded(code)


@pytest.mark.parametrize(
    "first", ["fragmenta.registers.dtype", "fragmenta.isa.reading"]
)
def test_a_function_wins_over_the_module_of_its_name(first: str) -> None:
    code = f"import {first}\nimport fragmenta as fm\nassert fm.dtype('s4').bits == 4"
    assert "fragmenta" in loaded(code)


def test_type_checkers_see_the_same_names() -> None:
    source = Path(inspect.getfile(fm)).read_text(encoding="utf-8")
    imports = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom)]
    typed = {
        alias.asname: node.module
        for node in imports
        for alias in node.names
        if alias.asname is not None
    }
    rooms = dict.fromkeys(fm._ROOMS, "fragmenta")
    assert typed == {**fm._HOME, **rooms}


def test_dir_and_star() -> None:
    assert set(dir(fm)) == set(fm.__all__)
    assert {"instruction", "Fragment", "__version__"} <= set(fm.__all__)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'instrution'"):
        _ = fm.instrution


def test_version_is_a_release() -> None:
    assert all(part.isdigit() for part in fm.__version__.split(".")[:2])


def documented(thing: Any) -> str:
    """A docstring, with those of the methods a class itself has."""
    texts = [thing.__doc__ or ""]
    if inspect.isclass(thing):
        inside = [getattr(m, "__func__", m) for m in vars(thing).values()]
        texts += [each.__doc__ or "" for each in inside if not isinstance(each, str)]
    return "\n".join(texts)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_docstring(name: str) -> None:
    assert (getattr(fm, name).__doc__ or "").strip()


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_an_example(name: str) -> None:
    thing = getattr(fm, name)
    # The base shows how every error is caught; what is only ever handed out is
    # shown where it is handed out.
    if inspect.isclass(thing) and issubclass(thing, fm.Error):
        thing = fm.Error
    thing = {"Place": fm.Fragment, "Requirement": fm.Instruction}.get(name, thing)
    assert ">>> " in documented(thing)


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("Error")])
def test_errors_are_errors(name: str) -> None:
    assert issubclass(getattr(fm, name), fm.Error)


def test_dtypes_survive_pickling() -> None:
    """The module is found by its name although the function hides it."""
    assert pickle.loads(pickle.dumps(fm.Shape(16, 8, 64))) == fm.Shape(16, 8, 64)
    assert pickle.loads(pickle.dumps(fm.DType)) is fm.DType
