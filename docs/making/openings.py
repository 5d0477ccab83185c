"""The pictures at the top of pages that show results: charts of what is committed."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

from fragmenta.inspect.evidence import record
from fragmenta.inspect.view.svg import Drawing
from making import corpus, counters, judge, numbers, performance, programs
from making.markdown import DOCS
from making.strokes import (
    LETTER,
    WIDTH,
    Parts,
    bars,
    block,
    decades,
    dot,
    key,
    picture,
    steps,
    text,
)

Row = dict[str, Any]


# ── kernels of others ───────────────────────────────────────────────────────


def libraries() -> str:
    """The kernels of each library: right and silent, with a report, or wrong."""
    found: dict[str, list[Row]] = {}
    for each in corpus.rows():
        found.setdefault(each["library"], []).append(each)
    rows = []
    for name, mine in sorted(found.items(), key=lambda each: -len(each[1])):
        wrong = sum(each["state"] != "right" for each in mine)
        told = sum(bool(each["problems"]) for each in mine if each["state"] == "right")
        steady = [each for each in mine if each["bits"] in ("same", "differs")]
        same = sum(each["bits"] == "same" for each in steady)
        parts = [("good", len(mine) - wrong - told), ("sand", told), ("bad", wrong)]
        said = f"{len(mine)}" + (f", bytes {same}/{len(steady)}" if steady else "")
        rows.append((corpus.title(name), parts, said))
    meanings = {
        "good": "right, nothing reported",
        "sand": "right, with a report",
        "bad": "not right",
    }
    chart = bars(rows, 170, max(map(len, found.values())))
    foot = "bytes: launches whose bytes are those of an H200"
    return picture(
        f"{len(corpus.rows())} kernels of {len(found)} libraries, run without a GPU",
        [key(meanings), chart, Drawing(WIDTH, 14, text(0, 11, foot, "k s"))],
    )


def interpreted() -> str:
    """Seconds here and in Triton's interpreter, a point for each kernel."""
    pairs = [
        (each["interpreter"], each["seconds"])
        for each in corpus.rows()
        if "interpreter" in each
    ]
    every = [value for pair in pairs for value in pair]
    marks = decades(min(every), max(every))
    left, foot, side = 60, 330, 320
    wide = WIDTH - left - 20

    def at(value: float, length: float) -> float:
        return length * (math.log10(value) - marks[0]) / (marks[-1] - marks[0])

    body = []
    for power in marks:
        x, y = left + at(10**power, wide), foot - at(10**power, side)
        body.append(f'<path class="h" d="M{left} {y:.1f}H{left + wide}"/>')
        body.append(f'<path class="h" d="M{x:.1f} {foot}v{-side}"/>')
        body.append(text(left - 6, y + 4, f"{10.0**power:g} s", "y s"))
        body.append(text(x, foot + 16, f"{10.0**power:g} s", "c s"))
    body.append(f'<path class="cut" d="M{left} {foot}L{left + wide} {foot - side}"/>')
    for slow, fast in pairs:
        style = "good" if fast < slow else "bad"
        body.append(dot(left + at(slow, wide), foot - at(fast, side), style))
    body.append(text(left + wide / 2, foot + 34, "in Triton's interpreter", "c t"))
    body.append(text(left + 8, foot - side + 18, "here", "k t"))
    same = foot - at(10.0 ** (marks[-1] - 1), side)
    body.append(text(left + wide - 290, same + 26, "the same time", "k t"))
    meanings = {"good": "faster here", "bad": "slower here"}
    return picture(
        f"{len(pairs)} Triton kernels: time here, watched, and in Triton's interpreter",
        [key(meanings), Drawing(WIDTH, foot + 40, "".join(body))],
    )


# ── counts and verdicts ─────────────────────────────────────────────────────


def predicted() -> str:
    """Which counts were predicted rightly before a GPU counted them."""
    rows = []
    for name, equal in counters.groups().items():
        share = sum(equal) / len(equal)
        said = f"{sum(equal)} of {len(equal)}"
        parts = [("good", share), ("bad", 1 - share)]
        rows.append((name.replace("`", ""), parts, said))
    meanings = {"good": "equal to the count of an H200", "bad": "not equal"}
    return picture(
        "Counts of launches, predicted before Nsight Compute counted them",
        [key(meanings), bars(rows, 370, 1, 100)],
    )


VERDICTS = {
    "clean": "good",
    "wrong": "bad",
    "suspicious": "blue",
    "hazard": "pink",
    "incomplete": "sand",
    "error": "grey",
}


def verdicts() -> str:
    """What the judge said about honest candidates and about cheats."""
    rows = []
    for name, group in judge.groups().items():
        counts = Counter(row["verdict"] for row in group)
        parts = [(style, counts[word]) for word, style in VERDICTS.items()]
        rows.append((f"{name} ({len(group)})", parts, f"{counts['clean']} clean"))
    most = max(map(len, judge.groups().values()))
    meanings = {style: word for word, style in VERDICTS.items()}
    return picture(
        "Verdicts about candidates whose truth is known",
        [key(meanings), bars(rows, 270, most, 80)],
    )


def programs_run() -> str:
    """The way of a program's calls, and what came of programs of others."""
    found = json.loads(programs.RESULTS.read_text("utf-8"))["programs"]
    counts = Counter(each["result"] for each in found)
    colours = dict(zip(counts, ("good", "sand", "blue", "grey", "pink"), strict=False))
    way = steps(
        [
            ["./program", "as it was built", "PTX in it"],
            ["CUDA's libraries", "fragmenta's own:", "memory, streams"],
            ["its kernels", "run with the", "bits of a GPU"],
            ["are watched", "races, missing", "waits and fences"],
            ["a report", "lines of source,", "exit status"],
        ]
    )
    parts = [(colours[word], number) for word, number in counts.items()]
    row = (f"{len(found)} programs of others", parts, "")
    said = {colours[word]: f"{number} {word}" for word, number in counts.items()}
    return picture(
        "fragmenta run: what a call of CUDA goes through",
        [way, bars([row], 170, len(found), 10), key(said)],
        14,
    )


# ── times ───────────────────────────────────────────────────────────────────

TOOLS = {
    performance.WATCHED: "bad",
    "Triton's interpreter": "sand",
    "numba's simulator": "pink",
    "MMA-Sim": "blue",
    "MMA-Sim, one by one": "grey",
}


def speeds() -> str:
    """CPU time of other tools in times of fragmenta's, a line for each problem."""
    ratios = {
        found[performance.OURS]["what"]: {
            name: found[name]["cpu"] / found[performance.OURS]["cpu"]
            for name in TOOLS
            if name in found
        }
        for found in performance.cases().values()
    }
    shown = {what: found for what, found in ratios.items() if found}
    marks = decades(1, max(max(found.values()) for found in shown.values()))
    left = 14 + LETTER * max(map(len, shown))
    space = (WIDTH - left - 30) / (marks[-1] - marks[0])
    high = 22 * len(shown)
    body = []
    for power in marks:
        x = left + space * power
        body.append(f'<path class="h" d="M{x:.1f} 0v{high}"/>')
        body.append(text(x, high + 14, f"{10**power}x", "c s"))
    for number, (what, found) in enumerate(shown.items()):
        y = 22 * number + 11
        body.append(text(left - 10, y + 4, what.replace("`", ""), "y t"))
        longest = left + space * math.log10(max(found.values()))
        body.append(block(left, y - 0.5, longest - left, 1, "grey"))
        for name, ratio in found.items():
            body.append(dot(left + space * math.log10(ratio), y, TOOLS[name], 5))
    chart = Drawing(WIDTH, high + 18, "".join(body))
    names = {style: name for name, style in TOOLS.items()}
    return picture(
        "CPU time of simulators, in times of fragmenta's", [key(names), chart]
    )


# ── what is compared ────────────────────────────────────────────────────────


def compared() -> str:
    """How many results each reference has, and how many of them differ here."""
    low = 4  # the scale begins at 10^4
    lines: list[tuple[str, Parts, str]] = []

    def add(name: str, style: str, size: int, said: str) -> None:
        parts = [(style, math.log10(size) - low)]
        lines.append((name, parts, f"{size:,}, {said}"))

    for kind in record.KINDS:
        add(kind, "good", numbers.recording(kind).words.size, "in make test")
    special = json.loads((DOCS / "verification" / "special.json").read_text("utf-8"))
    size, apart = _summed(special["outcomes"], "compared", "differing")
    add("special functions", "good", size, f"{apart or 'none'} differ")
    published = json.loads(numbers.PUBLISHED.read_text("utf-8"))["rows"]
    for target in sorted({row["target"] for row in published}, key=_number):
        rows = [row for row in published if row["target"] == target]
        size, apart = _summed(rows, "elements", "different")
        add(f"{target}, floats", "blue", size, f"{apart or 'none'} differ")
    most = max(parts[0][1] for _, parts, _ in lines)
    meanings = {"good": "results of an H200", "blue": "results of MMA-Sim"}
    foot = "each step of the scale is ten times as many; bars begin at 10,000"
    return picture(
        "Results that are compared bit by bit",
        [
            key(meanings),
            bars(lines, 150, most, 230),
            Drawing(WIDTH, 14, text(0, 11, foot, "k s")),
        ],
    )


def _summed(rows: list[Row], *names: str) -> list[int]:
    return [sum(row[name] for row in rows) for name in names]


def _number(target: str) -> tuple[int, str]:
    """By which targets are sorted: sm_90a comes after sm_90, before sm_100."""
    return int(re.sub(r"\D", "", target)), target


DRAWN = {
    "opening-corpus": libraries,
    "opening-triton": interpreted,
    "opening-counters": predicted,
    "opening-judge": verdicts,
    "opening-programs": programs_run,
    "opening-performance": speeds,
    "opening-verification": compared,
}
"""The picture of each name."""
