"""The tables of the page about performance, from what ``make bench-peers`` wrote."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from making.markdown import DOCS, counted, table

FILE = DOCS / "benchmarks" / "peers.json"
CORES = DOCS / "benchmarks" / "cores.json"
THREADS = DOCS / "benchmarks" / "threads.json"
OURS, WATCHED, PLAIN = "fragmenta", "fragmenta, watched", "NumPy in f32"
PACKAGES = {
    "numpy": "NumPy",
    "torch": "PyTorch",
    "triton": "Triton",
    "mmasim": "MMA-Sim",
    "numba": "numba",
    "numba-cuda": "numba-cuda",
}

Row = dict[str, Any]


@cache
def _read() -> Row:
    found: Row = json.loads(FILE.read_text("utf-8"))
    return found


@cache
def cases() -> dict[str, dict[str, Row]]:
    """The rows by case and by tool."""
    found: dict[str, dict[str, Row]] = {}
    for each in _read()["rows"]:
        found.setdefault(each["case"], {})[each["tool"]] = each
    return found


def machine() -> str:
    """What was measured when, where, and with which versions."""
    about = _read()["about"]
    versions = [f"{name} {about[key]}" for key, name in PACKAGES.items() if about[key]]
    return (
        f"Measured on {about['date']} on {counted(about['cores'], 'core')} "
        f"({about['machine']}), with Python {about['python']}, {', '.join(versions)}."
    )


def cores() -> str:
    """On which machine the cores are."""
    read = json.loads(CORES.read_text("utf-8")) if CORES.exists() else _read()
    about = read["about"]
    if not any(each["axis"] == "cores" for each in read["growth"]):
        return (
            "There is no picture of cores: other programs used those of this machine. "
            "`python -m peers --growth cores` measures it on an idle one."
        )
    return (
        f"The picture of cores is from {counted(about['cores'], 'core')} "
        f"({about['machine']}), {about['date']}."
    )


def threads() -> str:
    """How many times as fast several cores are as one."""
    read = json.loads(THREADS.read_text("utf-8"))
    about = read["about"]
    numbers = sorted({n for each in read["rows"] for n in each["times"]}, key=int)
    rows = [
        [
            each["case"],
            *[f"{each['times'][n]:.1f}" if n in each["times"] else "" for n in numbers],
        ]
        for each in read["rows"]
    ]
    head = ["", *[f"{each} core{'s' * (each != '1')}" for each in numbers]]
    return (
        f"Measured on {about['date']} on {about['cores']} cores ({about['machine']}), "
        f"Python {about['python']}, with grids of {about['blocks']} blocks.\n\n"
        + table(head, rows)
    )


def tools() -> str:
    """What each tool does and does not do."""
    rows = [[name, text] for name, text in _read()["tools"].items()]
    return table(["tool", "what it does"], rows)


def compared() -> str:
    """The CPU time of every problem and tool."""
    head = ["problem", "fragmenta", "watched", "instead", "NumPy in f32"]
    rows = []
    for found in cases().values():
        ours = found[OURS]
        others = [
            f"{name}: {_cell(each, ours)}"
            for name, each in found.items()
            if name not in (OURS, WATCHED, PLAIN)
        ]
        rows.append(
            [
                ours["what"],
                _time(ours["cpu"]),
                _cell(found[WATCHED], ours) if WATCHED in found else "",
                "<br>".join(others),
                _cell(found[PLAIN], ours) if PLAIN in found else "",
            ]
        )
    return table(head, rows)


def _cell(row: Row, ours: Row) -> str:
    """The time of a tool, in times of ours, and how many of its bits are others."""
    ratio = row["cpu"] / ours["cpu"]
    words = f"{_time(row['cpu'])}, {_number(ratio)} times"
    if row["tool"] == WATCHED:
        return words
    share = 100 * row["different"]
    bits = "the same bits" if share == 0 else f"{share:.1f}% other numbers"
    return f"{words}, {bits}"


def _time(seconds: float) -> str:
    """A time with two or three digits.

    >>> _time(0.01234), _time(3.31)
    ('12.3 ms', '3310 ms')
    """
    return f"{_number(1e3 * seconds)} ms"


def _number(value: float) -> str:
    """A number with three digits, and without an exponent.

    >>> _number(0.1234), _number(647.2), _number(3314.2)
    ('0.123', '647', '3310')
    """
    return f"{float(f'{value:.3g}'):.10g}"


def summary() -> str:
    """How fragmenta compares with each tool, from the least to the most."""
    ratios: dict[str, list[tuple[float, float]]] = {}
    for found in cases().values():
        ours, watched = found[OURS]["cpu"], found.get(WATCHED, found[OURS])["cpu"]
        for name, each in found.items():
            if name not in (OURS, WATCHED):
                pair = each["cpu"] / ours, each["cpu"] / watched
                ratios.setdefault(name, []).append(pair)
    lines = []
    for name, pairs in ratios.items():
        plain, watched = zip(*pairs, strict=True)
        line = f"- **{name}** takes {_range(plain)} times the CPU time of fragmenta"
        if plain != watched:
            line += f", {_range(watched)} times that of a watched launch"
        lines.append(f"{line} ({counted(len(pairs), 'problem')}).")
    return "\n".join(lines)


def _range(numbers: tuple[float, ...]) -> str:
    low, high = _number(min(numbers)), _number(max(numbers))
    return low if low == high else f"{low} to {high}"
