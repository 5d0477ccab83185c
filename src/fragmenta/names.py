"""Names of a package that are loaded when they are first used.

``fragmenta`` itself and the packages that users import by name (``fragmenta.ptx``,
``fragmenta.wmma``, ``fragmenta.tensor_memory``) have tables of their public names.
Such a name may come from :mod:`fragmenta.api`, above the room whose package it is in:
it is for users.  A module of the house imports what it needs from where it is written;
``tests/test_house.py`` reads that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def homes(modules: Mapping[str, str]) -> dict[str, str]:
    """The module of each name, from the names of each module.

    >>> homes({"errors": "Error BadCall"})["BadCall"]
    'fragmenta.errors'
    """
    return {
        name: f"{__package__}.{module}"
        for module, names in modules.items()
        for name in names.split()
    }


def loader(package: dict[str, Any], home: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package, given by its ``globals()``.

    >>> package = {"__name__": "shop"}
    >>> loader(package, homes({"errors": "BadCall"}))("BadCall").__name__
    'BadCall'
    >>> sorted(package)
    ['BadCall', '__name__']
    """

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(
                f"module {package['__name__']!r} has no attribute {name!r}"
            )
        found = package[name] = getattr(import_module(home[name]), name)
        return found

    return find
