"""Doors: packages that hand out the public names of other rooms.

A door is a package whose ``__init__`` has a table of names and of the modules that they
stand in, and nothing else.  A module is loaded when one of its names is first used, so
a door may stand below the rooms that it opens, and importing it costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def homes(table: Mapping[str, str]) -> dict[str, str]:
    """The module of each name, from a table of modules and their names.

    >>> homes({"launch.kernel": "load parse"})
    {'load': 'fragmenta.launch.kernel', 'parse': 'fragmenta.launch.kernel'}
    """
    return {
        name: f"fragmenta.{module}"
        for module, names in table.items()
        for name in names.split()
    }


def opener(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a door: it loads a name when it is first used.

    >>> find = opener("fragmenta.ptx", homes({"errors": "Error"}))
    >>> find("Error").__name__
    'Error'
    >>> find("Eror")
    Traceback (most recent call last):
    AttributeError: module 'fragmenta.ptx' has no attribute 'Eror'
    """

    def __getattr__(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(where[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return __getattr__
