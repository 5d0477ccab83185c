"""Work answers for itself: who observes it asks for its fields, not for its class."""

from __future__ import annotations

import ast
from pathlib import Path

import fragmenta
from fragmenta.engine.units import (
    cluster_launch_control,
    copy_groups,
    task_copies,
    tcgen05,
    tma_copies,
    tmem_copies,
    warpgroups,
)
from fragmenta.engine.units.work import Work

HERE = Path(fragmenta.__file__).parent
LOADED = (
    cluster_launch_control,
    copy_groups,
    task_copies,
    tcgen05,
    tma_copies,
    tmem_copies,
    warpgroups,
)
#: Where tiles of a product are gathered, from registers or from tensor memory.
GATHERING = {
    "values/expressions/multiplying.py",
    "values/numerics/multiplying.py",
    "watch/races/definedness_watch.py",
}


def kinds(of: type[Work]) -> set[str]:
    """The names of all classes of work."""
    found = {of.__name__}
    for each in of.__subclasses__():
        if each.__module__.startswith("fragmenta.engine.units."):
            found |= kinds(each)
    return found


def asked(tree: ast.AST, names: set[str]) -> set[str]:
    """The classes of work that code asks for, by ``isinstance`` or ``case``."""
    found: set[str] = set()
    for node in ast.walk(tree):
        part: ast.AST | None = None
        if isinstance(node, ast.MatchClass):
            part = node.cls
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            part = node.args[1]
        if part is not None:
            every = (each for each in ast.walk(part) if isinstance(each, ast.Name))
            found |= {each.id for each in every} & names
    return found


def imported(tree: ast.AST) -> set[str]:
    """What a module takes from units: others have classes of the same names."""
    return {
        each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("fragmenta.engine.units.")
        for each in node.names
    }


def test_no_observer_asks_which_class_a_piece_of_work_is():
    names = kinds(Work)
    assert {"Wgmma", "QueuedMma", "TaskCopy", "Commit", "WarpCopy"} <= names, LOADED
    asking = set()
    for path in HERE.rglob("*.py"):
        name = str(path.relative_to(HERE))
        if not name.startswith("engine/units/"):
            tree = ast.parse(path.read_text("utf-8"))
            if asked(tree, names & imported(tree)):
                asking.add(name)
    assert asking == GATHERING


def test_a_class_that_is_asked_for_is_seen():
    code = "match x:\n    case Wgmma(): pass\nisinstance(x, Copy | Load)"
    assert asked(ast.parse(code), {"Wgmma", "Copy", "Store"}) == {"Wgmma", "Copy"}
