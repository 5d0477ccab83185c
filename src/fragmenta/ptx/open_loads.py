"""Loads of Triton that leave elements open: ``tl.load`` with a mask and no ``other``.

The documentation says that such elements are undefined.  The compiler writes a zero
before each load, so a kernel that adds them up is right today.  Here the zero is
replaced by a register that nobody writes, which holds zero, too: what becomes of it is
found as of every such register.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import PurePath

_REGISTER = "%no_other_at_"
_LOAD = re.compile(r"tt\.load (%[\w#]+, %[\w#]+)(?: [^,]*)? : .* loc\((.*)\)$")
_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LINE = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_ZERO = re.compile(r"(\s*mov\.[ub](16|32|64)\s+%\w+, )0x0;\s*$")
Place = tuple[str, int, int]
"""The name of a file, a line and a column."""


def open_loads(code: str) -> set[Place]:
    """Where loads have a mask and no ``other``, in Triton's intermediate code.

    >>> text = '''%row = tt.load %at, %mask : tensor<8x!tt.ptr<f32>> loc(#loc1)
    ... %all = tt.load %at, %mask, %zero : tensor<8x!tt.ptr<f32>> loc(#loc2)
    ... #loc1 = loc("row"(#loc3))
    ... #loc2 = loc("k.py":6:4)
    ... #loc3 = loc("/home/k.py":5:11)'''
    >>> open_loads(text)
    {('k.py', 5, 11)}
    """
    known = dict(_LOCATION.findall(code))
    found = set()
    for line in code.splitlines():
        loaded = _LOAD.search(line.strip())
        place = _PLACE.search(_resolved(loaded[2], known)) if loaded else None
        if place:
            found.add((PurePath(place[1]).name, int(place[2]), int(place[3])))
    return found


def _resolved(location: str, known: dict[str, str]) -> str:
    """A location without names; of a call, that of the function that is called."""
    while names := re.findall(r"#loc\d*", location.partition(" at ")[0]):
        location = known.get(names[0], "")
    return location


def left_open(text: str, places: Collection[Place]) -> str:
    """PTX in which such loads at some places leave their elements unwritten."""
    files = {n: PurePath(name).name for n, name in _FILE.findall(text)}
    return "\n".join(_changed(text, files, frozenset(places))) + "\n"


def _changed(
    text: str, files: dict[str, str], places: frozenset[Place]
) -> Iterator[str]:
    here: Place = ("", 0, 0)
    declared: set[str] = set()
    for line in text.splitlines():
        if line.startswith("}"):
            declared.clear()
        if place := _LINE.match(line):
            here = (files.get(place[1], ""), int(place[2]), int(place[3]))
        zero = _ZERO.match(line) if here in places else None
        if zero is None:
            yield line
            continue
        name = f"{_REGISTER}{here[1]}_b{zero[2]}"
        if name not in declared:
            declared.add(name)
            yield f"\t.reg .b{zero[2]} {name};"
        yield f"{zero[1]}{name};"


def lines_of(registers: Collection[str]) -> list[int]:
    """The lines of the loads that some registers stand for; none if one does not.

    >>> lines_of(["%no_other_at_5_b32", "%no_other_at_5_b16"]), lines_of(["%r1"])
    ([5], [])
    """
    if not all(each.startswith(_REGISTER) for each in registers):
        return []
    return sorted({int(e[len(_REGISTER) :].partition("_")[0]) for e in registers})
