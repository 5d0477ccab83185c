"""Tables about results: their models, comparisons and certainty."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import fragmenta as fm
from fragmenta.errors import Error
from fragmenta.inspect.evidence import record
from fragmenta.reference.arithmetic import models
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.certainty import TABLE, WORDS
from fragmenta.reference.isa.table import read
from making.markdown import DOCS, ROOT, table

GOLDEN = ROOT / "tests" / "golden" / "h200"
PUBLISHED = DOCS / "published" / "mma-sim.json"
FUZZ = DOCS / "verification" / "fuzz.json"
SAMENESS = DOCS / "verification" / "sameness.json"
BOUNDS = DOCS / "verification" / "bounds.json"
THOROUGH = DOCS / "verification" / "thorough.json"


@cache
def recording(kind: str) -> record.CaseRecording:
    """What was recorded of a family."""
    return record.load(GOLDEN / f"{kind}.npz")


@cache
def recorded() -> frozenset[tuple[str, ...]]:
    """Each family, types and k that were recorded on an H200."""
    found = set()
    for kind in record.KINDS:
        for case in recording(kind).cases:
            try:
                found.add(_numbers(fm.instruction(case.instruction)))
            except Error:  # a C++ fragment without an instruction of its own
                continue
    return frozenset(found)


def _numbers(op: fm.Instruction) -> tuple[str, ...]:
    """What the results depend on; the width of a ``wgmma`` is not part of it."""
    types = [op.values.get(key, "") for key in ("a", "b", "c", "d", "type", "num")]
    return (op.family, *types, str(op.shape.k), op.kind or "")


@cache
def status(op: fm.Instruction) -> str:
    """How the results of an instruction are known."""
    if op.tensor_memory:
        return "by its descriptor"
    if op.family.startswith("tcgen05"):
        return "by the manual" if op.fragments else "has none"
    if not op.fragments:
        return "has none"
    if op.supported_on("sm_90a") and _numbers(op) in recorded():
        return "exact on H200"
    if op.family.split(".")[-1] in ("load", "store") or not op.shape.k:
        return "by the manual"
    source = numeric_model(op, op.requires.targets[0]).source
    return "published parameters" if source == "published" else source


def _cells(text: str) -> list[tuple[str, ...]]:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return [tuple(re.split(r"\s{2,}", line.strip())) for line in lines]


def model_table() -> str:
    """The parameters of the fused steps, from the package's own table."""
    head, *rows = _cells(models._FUSED)
    _, *grouped = _cells(models._GROUPED)
    return table(head, [*rows, *grouped])


def expansion_table() -> str:
    """What the assembler writes where a target lacks an instruction."""
    head, *rows = _cells(models._EXPANDED)
    return table(head, rows)


def published_tables() -> str:
    """What was compared with MMA-Sim, the results, and what was not compared."""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    made = published["made"]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in published["rows"]:
        unit = "tcgen05.mma" if row["unit"].startswith("TCGen05") else "mma"
        unit = "wgmma" if row["unit"] == "WGMMA" else unit
        kind = re.search(r"kind::\w+", row["name"])
        what = f"`{unit}`" + (f" `.{kind[0]}`" if kind else "")
        groups.setdefault((row["target"], row["architecture"], what), []).append(row)
    compared = [(*key, *_totals(rows)) for key, rows in groups.items()]
    compared.append(("all", "", "", *_totals(published["rows"])))
    left_out = [
        (line["reason"], f"{line['instructions']:,}", ", ".join(line["targets"]))
        for line in published["excluded"]
    ]
    head = ("target", "in MMA-Sim", "unit", "types", "rows", "elements", "different")
    return "\n\n".join(
        [
            f"MMA-Sim {made['mmasim']}, on {made['date']}, by `{made['script']}`:",
            table(head, compared),
            "Not compared (an instruction counts once for each target):",
            table(("reason", "instructions", "targets"), left_out),
        ]
    )


def _totals(rows: list[dict[str, Any]]) -> tuple[str, str, str, str]:
    """Types, number of rows, elements compared, elements that differed."""
    words = dict.fromkeys(word for row in rows for word in row["name"].split("."))
    types = [word for word in words if re.fullmatch(r"[bt]?f\d+|u?e\dm\d", word)]
    counts = [sum(row[key] for row in rows) for key in ("elements", "different")]
    return ", ".join(types), f"{len(rows)}", f"{counts[0]:,}", f"{counts[1]:,}"


def recording_table() -> str:
    """What was recorded, one row for each family."""
    rows = []
    for kind in record.KINDS:
        found = recording(kind)
        names = {case.instruction for case in found.cases}
        made = found.made
        rows.append(
            (
                kind,
                f"{len(names)}",
                f"{len(found.cases)}",
                f"{found.words.size:,}",
                f"{made['gpu']}, driver {made['cuda_driver']}, ptxas {made['ptxas']}",
            )
        )
    head = ("recording", "instructions", "cases", "32-bit words", "made on")
    return table(head, rows)


def fuzz_table() -> str:
    """The last run of the fuzzers."""
    report = json.loads(FUZZ.read_text(encoding="utf-8"))
    rows = [
        (
            each["surface"],
            f"{each['calls']:,}",
            f"{each['refusals']:,}",
            f"{each['found']}",
        )
        for each in report["surfaces"]
    ]
    said = (
        f"The last run was on {report['date']}, with seed {report['seed']}. It made "
        f"{report['calls']:,} calls and had {report['findings']} findings."
    )
    head = ("surface", "calls", "refused", "findings")
    return f"{said}\n\n{table(head, rows)}"


def sameness_words() -> str:
    """The last run of the fuzzer of expressions."""
    report = json.loads(SAMENESS.read_text(encoding="utf-8"))
    first, last = (report["portions"][n]["seed"] for n in (0, -1))
    return (
        f"The last run was on {report['date']}, with the seeds {first} to {last}. It "
        f"compared {report['pairs']:,} pairs. The oracle calls {report['equal']:,} of "
        f"them equal. Wrongly called equal: {report['wrong_same']}; wrongly called "
        f"different: {report['wrong_different']}."
    )


def bounds_table() -> str:
    """The last run of hostile accesses, and the mutants that it caught."""
    report = json.loads(BOUNDS.read_text(encoding="utf-8"))
    said = (
        f"The last run was on {report['date']}, with seed {report['seed']}, Python "
        f"{report['python']}, NumPy {report['numpy']} and llvmlite "
        f"{report['llvmlite']}. {report['instructions']:,} instructions made "
        f"{report['accesses']:,} accesses, {report['faults']:,} of which were refused. "
        f"{report['refused']:,} of {report['texts']:,} hostile texts were refused, "
        f"before anything was compiled. There were {len(report['findings'])} findings. "
        f"{len(report['mutants']) - len(report['missed'])} of {len(report['mutants'])} "
        "mutants were caught:"
    )
    rows = [(each["name"], each["how"]) for each in report["mutants"]]
    return f"{said}\n\n{table(('what was not bounded', 'seen as'), rows)}"


def thorough_tables() -> str:
    """The last run of the tests that ``make test`` leaves out, and what it found."""
    report = json.loads(THOROUGH.read_text(encoding="utf-8"))
    failed = report["failures"]
    said = (
        f"The last run began on {report['date']} at commit `{report['commit']}`, with "
        f"Python {report['python']}, in portions. Of {report['thorough']:,} tests, "
        f"`make test` leaves {report['cases']:,} out, or makes them shorter. "
        f"{report['passed'] + report['failed']:,} of these ran, in "
        f"{report['seconds'] / 3600:.1f} hours of one core that others used, too; "
        f"{report['skipped']:,} had not what they need, {report['left']:,} were not "
        f"reached. {report['note']} Of those that ran, {len(failed)} fail now. "
        "What had failed:"
    )
    keys = ("cases", "passed", "failed", "skipped", "left", "seconds")
    rows = [
        (f"`{each['folder']}`", *(f"{each[key]:,}" for key in keys))
        for each in report["folders"]
    ]
    found = [(each["what"], each["mended"]) for each in report["found"]]
    head = ("folder", "left out", *keys[1:4], "not reached", "seconds")
    return "\n\n".join(
        [said, table(("what failed", "mended by"), found), table(head, rows)]
    )


# ── how sure it is ──────────────────────────────────────────────────────────


def certainty_words() -> str:
    """What each word about certainty means."""
    return table(("word", "means"), list(WORDS.items()))


def certainty_table() -> str:
    """How sure each statement about tcgen05 is; numbers from their own table."""
    columns = ("what", "of", "how sure", "because")
    return table(columns, [[line[each] for each in columns] for line in read(TABLE)])
