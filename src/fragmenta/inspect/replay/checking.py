"""Checks what a file says about a run, so that a damaged or hostile one is refused.

Whoever reads a record then needs no care: all numbers that name something are within
bounds, and all rows have their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fragmenta.engine.simt.layout import LANES
from fragmenta.errors import BadFile
from fragmenta.inspect.replay.parts import (
    COLUMNS,
    ERRORS,
    MOMENTS,
    MOST_NAME,
    NOBODY,
    Array,
    Columns,
    Head,
    Register,
    Row,
    Value,
    moments_of,
)

Check = Callable[[Value], bool]
_MOST = 1 << 62
_BITS = (1, 8, 16, 32, 64, 128)


def _text(value: Value) -> bool:
    return isinstance(value, str)


def _flag(value: Value) -> bool:
    return isinstance(value, bool)


def _number(value: Value) -> bool:
    return type(value) in (int, float) and 0 <= value < 1 << 16


def _from(least: int, end: int = _MOST) -> Check:
    """Whole numbers from a least one up to an end, which is not among them."""
    return lambda value: type(value) is int and least <= value < end


_WHOLE, _COUNT = _from(-_MOST), _from(0)


def _several(of: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _tuple(*kinds: Check) -> Check:
    """A list with one value of each kind."""
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(kinds)
        and all(kind(each) for kind, each in zip(kinds, value, strict=True))
    )


def checked(head: Head, columns: Columns, path: object) -> None:
    """Refuse a record that is not whole."""
    try:
        _head(head, len(columns["site"]))
        _columns(head, columns)
    except _Wrong as why:
        raise BadFile(f"{path} is no record of a launch: {why}") from None


def checked_beside(head: Head, first: Head, path: object) -> None:
    """Refuse what a run beside another one says of it, if that is not right."""
    try:
        _fields("a run", head, {"name": lambda each: _text(each) and len(each) > 0})
        if len(head["name"]) > MOST_NAME:
            raise _Wrong("the name of a run is too long")
        block = _tuple(_from(1), _from(1), _from(1))
        kinds = {"name": _text, "first": _text, "blocks": _several(block)}
        for row in _rows(head, "lines", kinds):
            for of, which in ((head, "name"), (first, "first")):
                if row[which] not in [each["name"] for each in of["files"]]:
                    raise _Wrong("lines of a file that is not there are compared")
    except _Wrong as why:
        raise BadFile(f"{path} is no record of a launch: {why}") from None


class _Wrong(Exception):
    """What is wrong with a record."""


def _fields(what: str, row: Value, kinds: Mapping[str, Check]) -> None:
    if not isinstance(row, dict):
        raise _Wrong(f"{what} is no table of names and values")
    for name, kind in kinds.items():
        if name not in row or not kind(row[name]):
            raise _Wrong(f"{what} has no valid {name}")


def _rows(head: Head, name: str, kinds: Mapping[str, Check]) -> list[Row]:
    rows = head.get(name)
    if not isinstance(rows, list):
        raise _Wrong(f"it has no list of {name}")
    for number, each in enumerate(rows):
        _fields(f"{name}[{number}]", each, kinds)
    return rows


# ── what is small ───────────────────────────────────────────────────────────


def _head(head: Head, steps: int) -> None:
    texts = ("kernel", "target", "schedule", "left_out", "others")
    three = _tuple(*3 * (_from(1),))
    kinds: dict[str, Check] = dict.fromkeys(texts, _text)
    kinds |= {"first": _COUNT, "total": _COUNT, "cut": _flag}
    kinds |= dict.fromkeys(("grid", "block", "cluster"), three)
    _fields("its head", head, kinds)
    if not _rows(head, "files", {"name": _text, "text": _text}):
        raise _Wrong("it has no text of the kernel")
    _program(head)
    _memories(head)
    _units(head, steps)
    _problems(head, steps)
    if "numerics" in head:
        _numerics(head)


def _program(head: Head) -> None:
    kinds: dict[str, Check] = dict.fromkeys(("name", "type", "function"), _text)
    known = _rows(head, "registers", {**kinds, "bits": _BITS.__contains__})
    if not all(each["type"] for each in known):
        raise _Wrong("a register has no type")
    some = _several(_from(0, len(known)))
    kinds = dict.fromkeys(("function", "opcode", "text", "file"), _text)
    kinds |= dict.fromkeys(("index", "ptx_line", "line"), _COUNT)
    _rows(head, "sites", {**kinds, "writes": some, "reads": some})
    few = _from(1, LANES + 1)
    _rows(head, "warps", {"block": _COUNT, "warp": _COUNT, "threads": few})


def _memories(head: Head) -> None:
    variable = _tuple(_text, _COUNT, _COUNT, _text)
    kinds: dict[str, Check] = {"name": _text, "kind": _text, "block": _from(-1)}
    kinds |= {"size": _COUNT, "start": _COUNT, "variables": _several(variable)}
    _rows(head, "memories", kinds)


def _units(head: Head, steps: int) -> None:
    step, memory = _from(-1, steps + 1), _from(0, len(head["memories"]))
    place = _tuple(memory, _COUNT, _COUNT)
    kinds: dict[str, Check] = {"kind": _text, "name": _text}
    kinds |= dict.fromkeys(("issued", "done", "waited"), step)
    kinds |= {"site": _from(-1, len(head["sites"])), "bytes": _COUNT}
    kinds |= {"warp": _from(-1, len(head["warps"])), "lanes": _COUNT, "group": _WHOLE}
    kinds |= {"writes": _several(place), "signals": _several(place)}
    if not all(step(each.get("read", -1)) for each in _rows(head, "units", kinds)):
        raise _Wrong("a unit has no valid read")
    barriers = _rows(head, "barriers", {"kind": _text, "name": _text})
    used = _several(_tuple(step, _several(_WHOLE)))
    several = {"uses": used}
    mbarrier: dict[str, Check] = {"memory": memory, "offset": _COUNT}
    # Records of earlier versions do not have the arrivals of a phase.
    phase = (step, _WHOLE, _WHOLE, _WHOLE)
    old, now = _tuple(*phase), _tuple(*phase, _WHOLE)
    mbarrier["phases"] = _several(lambda value: old(value) or now(value))
    mbarrier["waits"] = _several(_tuple(step, _WHOLE, _WHOLE))
    for each in barriers:
        _fields("a barrier", each, mbarrier if each["kind"] == "mbarrier" else several)


def _problems(head: Head, steps: int) -> None:
    texts = ("code", "severity", "words", "hint", "file", "missing")
    kinds: dict[str, Check] = dict.fromkeys(texts, _text)
    kinds |= {"number": _COUNT, "ptx_line": _COUNT, "line": _COUNT, "size": _COUNT}
    kinds |= {"memory": _from(-1, len(head["memories"])), "offset": _WHOLE}
    step, unit = _from(-1, steps + 1), _from(-1, len(head["units"]))
    kinds |= {"steps": _tuple(step, step), "units": _tuple(unit, unit)}
    _rows(head, "problems", kinds)


def _numerics(head: Head) -> None:
    of = head["numerics"]
    _fields("numerics", of, {})
    counts: dict[str, Check] = dict.fromkeys(("count", "at"), _COUNT)
    counts |= {"each": _from(1, 9), "most": _from(1, 64)}
    memory, site = _from(0, len(head["memories"])), _from(0, len(head["sites"]))
    for each in _rows(of, "outputs", {**counts, "memory": memory}):
        if each["each"] * each["count"] > head["memories"][each["memory"]]["size"]:
            raise _Wrong("an array has more errors than elements")
        if not all(_COUNT(each.get(name, 0)) for name in ("from", "moments")):
            raise _Wrong("an array has no valid errors over time")
    _rows(of, "sites", {"site": site, "bits": _number, "words": _text})


# ── what is large ───────────────────────────────────────────────────────────


def _columns(head: Head, columns: Columns) -> None:
    for name, kind in COLUMNS.items():
        if columns[name].dtype != np.dtype(kind) or columns[name].ndim != 1:
            raise _Wrong(f"the column {name} has another type")
    groups = [[each for each in COLUMNS if each[:2] == begin] for begin in _BEGINS]
    for names in (["site", "warp", "lanes", "at"], *groups):
        if len({len(columns[each]) for each in names}) > 1:
            raise _Wrong(f"the columns {', '.join(names)} have different lengths")
    _below(columns, len(head["sites"]), "site")
    _below(columns, len(head["warps"]), "warp", "i_warp", "u_warp")
    _below(columns, len(head["registers"]), "i_register", "u_register")
    _below(columns, len(columns["site"]) + 1, "w_step", "r_step", "u_step")
    memories = "w_memory", "r_memory", "c_memory", "c_from"
    _below(columns, len(head["memories"]), *memories)
    _below(columns, len(head["units"]), "w_unit", "r_unit", "u_unit", "c_unit")
    if (np.diff(columns["c_unit"]) < 0).any():
        raise _Wrong("the column c_unit is not sorted")
    for begin in "wru":
        lane = columns[f"{begin}_lane"] if begin != "u" else np.empty(0, np.uint16)
        _below({"lanes of accesses": lane[lane != NOBODY]}, LANES, "lanes of accesses")
        if (np.diff(columns[f"{begin}_step"].astype(np.int64)) < 0).any():
            raise _Wrong(f"the column {begin}_step is not sorted")
    _contents(head, columns)


_BEGINS = ("w_", "r_", "i_", "u_", "c_")


def _below(columns: Columns, end: int, *names: str) -> None:
    for name in names:
        if len(columns[name]) and int(columns[name].max()) >= end:
            raise _Wrong(f"the column {name} has numbers that name nothing")


def _contents(head: Head, columns: Columns) -> None:
    """Values of registers and bytes must be there."""
    known = [Register(*map(each.get, Register._fields)) for each in head["registers"]]
    words = np.array([each.words for each in known] or [0], np.int64)
    sites = [int(words[each["writes"]].sum()) for each in head["sites"]]
    of_sites = np.array(sites or [0], np.int64)
    _there("at", columns, of_sites[columns["site"]], "words")
    _there("i_at", columns, words[columns["i_register"]], "words")
    _there("u_at", columns, words[columns["u_register"]], "words")
    _there("w_at", columns, columns["w_size"].astype(np.int64), "bytes")
    outputs = head.get("numerics", {}).get("outputs", [])
    errors = max((each["at"] + each["count"] for each in outputs), default=0)
    for name in ERRORS:
        if len(columns[name]) < errors * (2 if name == "e_exact" else 1):
            raise _Wrong(f"the column {name} is cut off")
    _moments(outputs, columns)
    total = sum(each["size"] for each in head["memories"])
    if len(columns["initial"]) != total or len(columns["defined"]) * 8 < total:
        raise _Wrong("the bytes of memory before the first step are not whole")


def _moments(outputs: list[Row], columns: Columns) -> None:
    """Errors over time must be there, in the order of elements and of steps."""
    most = max((e.get("from", 0) + e.get("moments", 0) for e in outputs), default=0)
    for name in MOMENTS:
        if len(columns[name]) < most * (2 if name == "h_exact" else 1):
            raise _Wrong(f"the column {name} is cut off")
    _below(columns, len(columns["site"]) + 1, "h_step")
    for each in outputs:
        found = moments_of(columns, each)
        element = found["h_element"].astype(np.int64)
        key = element * (len(columns["site"]) + 3) + found["h_step"]
        if (element >= each["count"]).any() or (np.diff(key) <= 0).any():
            raise _Wrong("errors over time are not sorted, or are of no element")


def _there(name: str, columns: Columns, sizes: Array, of: str) -> None:
    ends = columns[name].astype(np.int64) + sizes
    if (ends[sizes > 0] > len(columns[of])).any():
        raise _Wrong(f"the column {name} reaches past the end of {of}")
