"""Loads a reference or a candidate, and finds what is called.

There are two conventions.  In KernelBench's, a reference has ``Model``,
``get_inputs`` and ``get_init_inputs``, and a candidate has ``ModelNew``.  In the plain
one, a reference has ``reference`` and ``get_inputs``, and a candidate ``candidate``.
"""

from __future__ import annotations

import ast
import operator
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.frontends.judge.marking import marked

PLAIN, BENCH = "plain functions", "KernelBench"


class ReferenceTask(NamedTuple):
    """What a reference file gives."""

    convention: str
    make: Callable[..., object]
    """Makes the model, or is the function itself."""
    inputs: Callable[[], object]
    init: Callable[[], object]


def constants(text: str) -> dict[str, int]:
    r"""The whole numbers that a file gives names to, at its top level.

    >>> constants("M = 64\nN = 1 << 20\nK: int = 3 * 8\nname = 'x'\nL = -1\nP = 2 * M")
    {'M': 64, 'N': 1048576, 'K': 24}
    """
    found: dict[str, int] = {}
    for node in ast.parse(text).body:
        target = _target(node)
        value = _whole(getattr(node, "value", None)) if target else None
        if value is not None and value >= 0:
            found[target] = value
    return found


def _target(node: ast.stmt) -> str:
    """The one name that a statement gives a value to."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        given: ast.expr = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        given = node.target
    else:
        return ""
    return given.id if isinstance(given, ast.Name) else ""


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.LShift: lambda a, b: a << min(b, 62),
    ast.Pow: lambda a, b: a ** min(max(b, 0), 62) if abs(a) < 1 << 16 else 0,
    ast.FloorDiv: lambda a, b: a // b if b else 0,
}


def _whole(node: ast.AST | None) -> int | None:
    """The value of an expression of whole numbers; None if it has anything else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _whole(node.left), _whole(node.right)
        if left is not None and right is not None and right >= 0:
            return _OPERATORS[type(node.op)](left, right)
    return None


def with_constants(text: str, new: Mapping[str, int]) -> ast.Module:
    """The file with other numbers."""
    tree = ast.parse(text)
    known = constants(text)
    for node in tree.body:
        name = _target(node)
        if name in new and name in known:
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            node.value = ast.copy_location(ast.Constant(new[name]), node.value)
    return tree


def execute(
    text: str, path: Path, name: str, new: Mapping[str, int] | None = None
) -> types.ModuleType:
    """Run a file as a module of this name."""
    module = module_of(path, name)
    exec(compiled(text, path, new), module.__dict__)
    return module


def module_of(path: Path, name: str) -> types.ModuleType:
    """A new module for a file."""
    module = types.ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    module.__file__ = str(path)
    return module


def compiled(
    text: str, path: Path, new: Mapping[str, int] | None = None
) -> types.CodeType:
    """The code of a file, perhaps with other numbers."""
    tree = with_constants(text, new) if new else ast.parse(text, str(path))
    # Not with the __future__ of this file.
    return compile(tree, str(path), "exec", dont_inherit=True)


def candidate_code(text: str, path: Path) -> types.CodeType:
    """The code of a candidate, in which steps and choices report what they give."""
    tree = ast.parse(text, str(path))
    marked(tree)
    return compile(tree, str(path), "exec", dont_inherit=True)


def task_of(module: types.ModuleType) -> ReferenceTask:
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
        return ReferenceTask(BENCH, names["Model"], inputs, init)
    if "reference" in names:
        return ReferenceTask(PLAIN, names["reference"], inputs, nothing)
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
