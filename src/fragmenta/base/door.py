"""Doors: packages that hand out the public names of other rooms.

A door is a package whose ``__init__`` has a table of names and of the modules that they
stand in, and nothing else.  A module is loaded when one of its names is first used, so
a door may stand below the rooms that it opens, and importing it costs nothing.

A name that stands in another room is an error that says where it is.  That is found in
the tables themselves: ``fm.compress`` is the ``compress`` of ``fm.sparse``, and
``fm.shared_tile`` the ``tile`` of ``fm.shared``, whose name says the other word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec

from fragmenta.errors import nearest

TOP = "fragmenta"


def homes(table: Mapping[str, str]) -> dict[str, str]:
    """The module of each name, from a table of modules and their names.

    >>> homes({"launch.kernel": "load parse"})
    {'load': 'fragmenta.launch.kernel', 'parse': 'fragmenta.launch.kernel'}
    """
    return {
        name: f"{TOP}.{module}"
        for module, names in table.items()
        for name in names.split()
    }


def opener(
    package: str, where: Mapping[str, str], rooms: tuple[str, ...] = ()
) -> Callable[[str], object]:
    """The ``__getattr__`` of a door: it loads a name, or a room, when it is first used.

    >>> find = opener("fragmenta.sparse", homes({"errors": "Error"}))
    >>> find("Error").__name__
    'Error'
    >>> find("Eror")
    Traceback (most recent call last):
    AttributeError: module 'fragmenta.sparse' has no attribute 'Eror' (did you mean \
Error?)
    >>> find("matmul")
    Traceback (most recent call last):
    AttributeError: fm.sparse.matmul is fm.matmul
    """

    def __getattr__(name: str) -> object:
        if name in rooms:
            return import_module(f"{package}.{name}")
        if name not in where:
            raise AttributeError(_refusal(package, name, [*where, *rooms]))
        found = getattr(import_module(where[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return __getattr__


def _refusal(package: str, name: str, have: list[str]) -> str:
    # "from package import module" asks for the name before it loads the module.
    plain = f"module {package!r} has no attribute {name!r}"
    if name.startswith("_") or _is_module(package, name):
        return plain
    there = elsewhere(name)
    if there:
        return f"{_shown(package, name)} is {there}"
    return plain + nearest(name, have)


def _is_module(package: str, name: str) -> bool:
    folder = hasattr(sys.modules[package], "__path__")
    return folder and find_spec(f"{package}.{name}") is not None


def _shown(package: str, name: str) -> str:
    return f"fm{package.removeprefix(TOP)}.{name}"


def elsewhere(name: str) -> str:
    """Where a public name of this kind is; empty if there is none.

    >>> elsewhere("compress"), elsewhere("shared_tile"), elsewhere("QuantizationReport")
    ('fm.sparse.compress', 'fm.shared.tile', 'fm.quant.Report')
    """
    doors = [(TOP, "")] + [(f"{TOP}.{room}", room) for room in _rooms()]
    for package, room in doors:
        names = import_module(package).__all__
        for word in (name, *_without(name, room)):
            if word in names:
                return _shown(package, word)
    return ""


def _rooms() -> tuple[str, ...]:
    rooms: tuple[str, ...] = import_module(TOP)._ROOMS
    return rooms


def _without(name: str, room: str) -> Iterator[str]:
    """The name without the word that its room already says: sparsity, quantization."""
    if not room:
        return
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)
    rest = [each for each in words if not each.lower().startswith(room[:5])]
    if rest and len(rest) < len(words):
        yield ("_" if "_" in name else "").join(rest)
