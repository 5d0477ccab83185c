"""The tables of the corpus: other people's kernels, and their results."""

from __future__ import annotations

import json
import textwrap
import tomllib
from functools import cache
from typing import Any

from making.markdown import DOCS, ROOT, counted, table

FILE = DOCS / "corpus.json"
H200 = DOCS / "corpus-h200.json"
FINDINGS = ROOT / "corpus" / "findings.toml"
TRITON = "https://github.com/triton-lang/triton/blob/v3.9.0/python/"
STATES = {
    "right": "yes",
    "wrong": "**no**",
    "fault": "stopped",
    "refused": "refused",
    "library": "fails itself",
    "time": "too long",
    "crash": "crash",
    "unjudged": "not judged",
}
"""How the state of a case is shown."""

Row = dict[str, Any]


@cache
def _table() -> Row:
    found: Row = json.loads(FILE.read_text("utf-8"))
    return found


@cache
def _recorded() -> Row:
    if not H200.exists():
        return {"made": {}, "kernels": {}}
    found: Row = json.loads(H200.read_text("utf-8"))
    return found


@cache
def _findings() -> list[Row]:
    found: list[Row] = tomllib.loads(FINDINGS.read_text("utf-8"))["finding"]
    return found


@cache
def rows() -> list[Row]:
    """Every kernel once: of the first case that launched it, of a right one if any."""
    found: dict[tuple[str, str, str], Row] = {}
    for case in sorted(_table()["cases"], key=lambda each: each["state"] != "right"):
        for each in case["kernels"]:
            key = case["library"], each["file"], each["kernel"]
            problems = {
                (p["rule"], p["severity"], p["source"]): p for p in each["problems"]
            }
            if key in found:
                found[key]["problems"] |= problems
                continue
            bits = _recorded()["kernels"].get(
                f"{case['library']}.{case['case']}:{each['kernel']}", {}
            )
            found[key] = {
                **each,
                "library": case["library"],
                "case": case["case"],
                "state": case["state"],
                "problems": problems,
                "bits": bits.get("bits", ""),
            }
    return [found[key] for key in sorted(found)]


def title(library: str) -> str:
    """The name of a library, as it writes it."""
    return str(_table()["libraries"][library]["title"])


# ── in words ────────────────────────────────────────────────────────────────


def _share(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}"


def summary() -> str:
    """One paragraph of numbers."""
    every = rows()
    right = sum(each["state"] == "right" for each in every)
    silent = sum(not each["problems"] for each in every)
    not_run = ("refused", "time", "crash")
    refused = [each for each in _table()["cases"] if each["state"] in not_run]
    told = _recorded()["kernels"].values()
    steady = [each for each in told if each["bits"] in ("same", "differs")]
    same = sum(each["bits"] == "same" for each in steady)
    parts = []
    parts.append(
        f"{len(every)} kernels of {len(_table()['libraries'])} libraries that others "
        f"wrote run without a GPU. {right} of them are right against references of our "
        f"own; the race detector reports nothing about {silent}."
    )
    if steady:
        parts.append(
            f"{len(steady)} were also launched on an H200, which gave the same bytes "
            f"twice: {_share(same, len(steady))} have the same bytes here."
        )
    pairs = _timed(every)
    if pairs:
        faster = sum(each["seconds"] < each["interpreter"] for each in pairs)
        parts.append(
            f"{faster} of the {len(pairs)} that Triton's interpreter also runs are "
            "faster here, with race detection on."
        )
    if refused:
        parts.append(f"{counted(len(refused), 'case')} could not be run here.")
    return " ".join(parts)


def _timed(every: list[Row]) -> list[Row]:
    return [each for each in every if "interpreter" in each]


def sentence() -> str:
    """The same for the README."""
    told = summary() + " [The table](docs/corpus.md) says which."
    return textwrap.fill(told, 95, break_long_words=False, break_on_hyphens=False)


def libraries() -> str:
    """A line for each library."""
    head = ("library", "package", "kernels", "right", "silent", "same bytes on an H200")
    lines = []
    for name, about in _table()["libraries"].items():
        mine = [each for each in rows() if each["library"] == name]
        steady = [each for each in mine if each["bits"] in ("same", "differs")]
        same = sum(each["bits"] == "same" for each in steady)
        lines.append(
            (
                about["title"],
                f"{about['package']} {about['version']}",
                str(len(mine)),
                str(sum(each["state"] == "right" for each in mine)),
                str(sum(not each["problems"] for each in mine)),
                f"{same} of {len(steady)}" if steady else "",
            )
        )
    return table(head, lines)


def kernels() -> str:
    """Every kernel, by library."""
    parts = []
    head = (
        "kernel",
        "case",
        "right",
        "bits",
        "verdict",
        "Tensor Cores",
        "s",
        "interpreter, s",
    )
    for name, about in _table()["libraries"].items():
        mine = [each for each in rows() if each["library"] == name]
        lines = [
            (
                _named(each, about),
                each["case"].rstrip("_"),
                STATES[each["state"]],
                each["bits"].partition(":")[0],
                _verdict(each),
                _tensor(each),
                f"{each['seconds']:.2f}",
                f"{each['interpreter']:.2f}" if "interpreter" in each else "",
            )
            for each in mine
        ]
        parts.append(f"### {about['title']}\n\n{table(head, lines)}")
    return "\n\n".join(parts)


def _named(each: Row, about: Row) -> str:
    name = f"`{each['kernel']}`"
    if not each["line"] or each["file"].startswith("pointwise_dynamic"):
        return name
    return f"[{name}]({about['source']}{each['file']}#L{each['line']})"


def _verdict(each: Row) -> str:
    found = sorted({rule for rule, _, _ in each["problems"]})
    return ", ".join(f"[{rule}](#findings)" for rule in found) or "silent"


def _tensor(each: Row) -> str:
    kinds = sorted({name.partition(".")[0] for name in each["tensor"]})
    return " ".join(f"`{kind}`" for kind in kinds)


# ── what was found ──────────────────────────────────────────────────────────


def findings() -> str:
    """The reported problems, and whether they are real."""
    known = _table()["libraries"]
    return "\n\n".join(_told(each, known[each["library"]]) for each in _findings())


def _told(finding: Row, about: Row) -> str:
    files: dict[str, list[str]] = {}
    for place in (*finding["at"], *finding.get("see", ())):
        file, _, line = place.rpartition(":")
        files.setdefault(file, []).append(f"[{line}]({_link(place, about)})")
    places = "; ".join(
        f"`{file.rpartition('/')[2]}` {', '.join(lines)}"
        for file, lines in files.items()
    )
    return (
        f"**{about['title']}: {finding['title']}** ({finding['judged']}). "
        f"{' '.join(finding['words'].split())} Lines: {places}."
    )


def _link(place: str, about: Row) -> str:
    file, _, line = place.rpartition(":")
    source = TRITON if file.startswith("triton/") else about["source"]
    return f"{source}{file}#L{line}"


def unexplained() -> list[str]:
    """The places that are reported, but are not in any finding."""
    known = {(each["library"], place) for each in _findings() for place in each["at"]}
    found = {
        f"{row['library']} {source} ({rule})"
        for row in rows()
        for rule, _, source in row["problems"]
        if (row["library"], source) not in known
    }
    return sorted(found)


def others() -> str:
    """The cases that failed, and why."""
    head = ("library", "case", "state", "reason")
    lines = []
    for each in _table()["cases"]:
        if each["state"] != "right":
            title = _table()["libraries"][each["library"]]["title"]
            reason = " ".join(each["reason"].split())[:300]
            lines.append((title, each["case"], STATES[each["state"]], reason))
    return table(head, lines) if lines else "Every case ended well."
