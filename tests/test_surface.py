"""The public surface is complete, documented, and loads nothing before it is used."""

from __future__ import annotations

import ast
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import fragmenta as fm
from tests.clock import HANG

SOURCE = Path(inspect.getfile(fm)).parents[1]
DOORS = {"": fm, **{room: getattr(fm, room) for room in fm._ROOMS if room != "errors"}}
NAMES = [
    f"{room}.{name}".lstrip(".")
    for room, door in [*DOORS.items(), ("errors", fm.errors)]
    for name in door.__all__
    if not name.startswith("__")
]


def public(name: str) -> Any:
    """The object of a public name, such as ``sparse.compress``."""
    return attrgetter(name)(fm)


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
    "first", ["fragmenta.reference.registers.dtype", "fragmenta.reference.isa.reading"]
)
def test_a_function_wins_over_the_module_of_its_name(first: str) -> None:
    code = f"import {first}\nimport fragmenta as fm\nassert fm.dtype('s4').bits == 4"
    assert "fragmenta" in loaded(code)


@pytest.mark.parametrize("room", DOORS)
def test_type_checkers_see_the_same_names(room: str) -> None:
    door = DOORS[room]
    source = Path(inspect.getfile(door)).read_text(encoding="utf-8")
    imports = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom)]
    typed = {
        alias.asname: node.module
        for node in imports
        for alias in node.names
        if alias.asname is not None
    }
    rooms = dict.fromkeys(() if room else fm._ROOMS, "fragmenta")
    assert typed == {**door._HOME, **rooms}


@pytest.mark.parametrize("room", [*DOORS, "errors"])
def test_dir_and_star(room: str) -> None:
    door = public(room) if room else fm
    assert dir(door) == sorted(door.__all__)
    assert all(getattr(door, name) is not None for name in door.__all__)


def test_the_top_is_small() -> None:
    assert {"instruction", "Fragment", "sparse", "__version__"} <= set(fm.__all__)
    assert len(fm.__all__) <= 36


def test_no_name_of_a_room_is_the_name_of_a_module_in_it() -> None:
    """Importing the module would hide it."""
    for room, door in DOORS.items():
        modules = {each.name for each in iter_modules(vars(door).get("__path__", []))}
        assert not modules & (set(door.__all__) - set(fm._ROOMS)), room


def test_unknown_names() -> None:
    with pytest.raises(
        AttributeError, match=r"'instrution' \(did you mean instruction"
    ):
        _ = fm.instrution
    with pytest.raises(AttributeError, match="'fragmenta' has no attribute '_x'"):
        _ = fm._x


@pytest.mark.parametrize("room", list(DOORS)[1:])
def test_a_name_of_the_top_says_so_in_a_room(room: str) -> None:
    with pytest.raises(AttributeError, match=rf"^fm\.{room}\.matmul is fm\.matmul$"):
        _ = DOORS[room].matmul


@pytest.mark.parametrize("name", [name for name in NAMES if "." in name])
def test_a_name_in_another_room_says_where_it_is(name: str) -> None:
    word = name.rpartition(".")[2]
    if word not in fm.__all__:
        homes = {each for each in NAMES if each.endswith(f".{word}")}
        with pytest.raises(AttributeError) as why:
            getattr(fm, word)
        assert str(why.value) in {f"fm.{word} is fm.{each}" for each in homes}


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
    assert (public(name).__doc__ or "").strip()


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_an_example(name: str) -> None:
    thing = public(name)
    # The base shows how every error is caught; what is only ever handed out is
    # shown where it is handed out.
    if thing is fm.errors or (inspect.isclass(thing) and issubclass(thing, fm.Error)):
        thing = fm.Error
    thing = {"Place": fm.Fragment, "Requirement": fm.Instruction}.get(name, thing)
    if name.startswith("wmma.") and not inspect.isroutine(thing):
        thing = fm.wmma  # the words of C++: its first page shows them
    assert ">>> " in documented(thing)


@pytest.mark.parametrize("name", fm.errors.__all__)
def test_errors_are_errors(name: str) -> None:
    assert issubclass(getattr(fm.errors, name), fm.Error)


def test_dtypes_survive_pickling() -> None:
    """The module is found by its name although the function hides it."""
    assert pickle.loads(pickle.dumps(fm.Shape(16, 8, 64))) == fm.Shape(16, 8, 64)
    assert pickle.loads(pickle.dumps(fm.DType)) is fm.DType


# ── what has moved ──────────────────────────────────────────────────────────

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
CALL = re.compile(r"fm\.([\w.]+)(?:\((.*)\))?")


def moved() -> dict[str, str]:
    """The table of the changelog: what was written before, and what is now."""
    text = CHANGELOG.read_text("utf-8").partition("### Names, old and new\n")[2]
    return dict(re.findall(r"(?m)^\| `(fm\..+?)` \| `(fm\..+?)` \|$", text))


def test_the_changelog_has_what_moved() -> None:
    assert len(moved()) > 75


@pytest.mark.parametrize("before, now", moved().items(), ids=moved())
def test_what_moved_is_where_the_changelog_says(before: str, now: str) -> None:
    old, new = CALL.fullmatch(before), CALL.fullmatch(now)
    assert old is not None
    assert new is not None
    thing = public(new[1])
    if old[1] != new[1]:
        with pytest.raises(AttributeError) as why:
            public(old[1])
        assert str(why.value) == f"fm.{old[1]} is fm.{new[1]}"
    if new[2]:
        call = ast.parse(f"f({new[2]})", mode="eval").body
        assert isinstance(call, ast.Call)
        taken = [each for each in inspect.signature(thing).parameters if each != "self"]
        positional = [ast.unparse(each) for each in call.args]
        assert {each.arg for each in call.keywords} <= set(taken)
        assert taken[: len(positional)] == positional
