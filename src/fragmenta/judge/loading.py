"""Loads a reference or a candidate, and finds what is called.

There are two conventions.  In KernelBench's, a reference has ``Model``,
``get_inputs`` and ``get_init_inputs``, and a candidate has ``ModelNew``.  In the plain
one, a reference has ``reference`` and ``get_inputs``, and a candidate ``candidate``.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

from fragmenta.errors import BadCall, nearest, one_of

PLAIN, BENCH = "plain functions", "KernelBench"


class Task(NamedTuple):
    """What a reference file gives."""

    convention: str
    make: Callable[..., object]
    """Makes the model, or is the function itself."""
    inputs: Callable[[], object]
    init: Callable[[], object]


def constants(text: str) -> dict[str, int]:
    r"""The whole numbers that a file gives names to, at its top level.

    >>> constants("M = 64\nN = 2 * 8\nname = 'x'\nK = -1")
    {'M': 64}
    """
    found: dict[str, int] = {}
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        whole = isinstance(value, ast.Constant) and type(value.value) is int
        if isinstance(target, ast.Name) and whole:
            found[target.id] = cast("int", cast("ast.Constant", value).value)
    return found


def with_constants(text: str, new: Mapping[str, int]) -> ast.Module:
    """The file with other numbers."""
    tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in new and name in constants(text):
                node.value = ast.copy_location(ast.Constant(new[name]), node.value)
    return tree


def execute(
    text: str, path: Path, name: str, new: Mapping[str, int] | None = None
) -> types.ModuleType:
    """Run a file as a module of this name."""
    module = types.ModuleType(name)
    module.__file__ = str(path)
    code = compile(with_constants(text, new or {}), str(path), "exec")
    exec(code, module.__dict__)
    return module


def task_of(module: types.ModuleType) -> Task:
    """What a reference file defines."""
    names = vars(module)

    def nothing() -> object:
        return []

    if "get_inputs" not in names:
        raise BadCall(
            "the reference has no get_inputs(), which returns a list of inputs"
            + nearest("get_inputs", names)
        )
    inputs = names["get_inputs"]
    if "Model" in names:
        init = names.get("get_init_inputs", nothing)
        return Task(BENCH, names["Model"], inputs, init)
    if "reference" in names:
        return Task(PLAIN, names["reference"], inputs, nothing)
    raise BadCall(
        "the reference defines Model, as in KernelBench, or a function reference(...); "
        f"it has {_has(names)}"
    )


def candidate_of(module: types.ModuleType, convention: str) -> Callable[..., object]:
    """What a candidate file defines: ``ModelNew`` or ``candidate``."""
    names = vars(module)
    wanted = "ModelNew" if convention == BENCH else "candidate"
    if wanted not in names or not callable(names[wanted]):
        raise BadCall(
            f"the reference follows the convention of {convention}, so the candidate "
            f"defines {wanted}; it has {_has(names)}"
        )
    return cast("Callable[..., object]", names[wanted])


def _has(names: Mapping[str, object]) -> str:
    own = [each for each in names if not each.startswith("_")]
    return one_of(own, "and") or "nothing"
