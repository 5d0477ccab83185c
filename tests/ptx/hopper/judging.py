"""Which mistakes of a kernel are seen when it runs?

    python -m tests.ptx.hopper.judging "bf16 f16 dense" --schedules eager lazy 1
    python -m tests.ptx.hopper.judging --all --output mutants.json

Each mutant is launched in each schedule until one shows it.  A mutant is caught if the
launch reports a problem that the original does not have, or ends with a fault.  Whether
a silent one gives wrong bits, and whether its instruction runs at all, is said, too.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fragmenta import ptx
from fragmenta.errors import KernelFault
from fragmenta.evidence.launches import for_kernel
from fragmenta.kernels import Kernel, Tile
from tests.ptx import recordings
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import SCALES, Gemm
from tests.ptx.hopper.mutants import Mutant, mutants

Schedule = str | int
SCHEDULES: tuple[Schedule, ...] = ("lazy", "eager", 1)
LIMIT = 20_000_000
"""Warp instructions after which a mutant hangs."""
KERNELS = (
    Kernel("e4m3", tile=Tile(64, 16), promote=True),
    Kernel("u8", tile=Tile(64, 8), sparse=False),
    Kernel("s8", "u8", tile=Tile(128, 16, 2)),
    Kernel("bf16", tile=Tile(64, 64, turns=True), sparse=False),
    Kernel(
        "bf16", out="f16", tile=Tile(64, 16, 2, True), sparse=False, transposed=True
    ),
    Kernel("b1", tile=Tile(64, 16, 2), sparse=False, xor=True),
    Kernel("f16", out="bf16", tile=Tile(64, 8), scaled=True),
    Kernel("e5m2", tile=Tile(64, 64), sparse=False, promote=True),
)
"""Every kind of kernel, with small tiles: all their mutants are judged."""
RINGS = (3, 8)
"""Stages of their rings.

In a small ring, every barrier has many phases.  In one that has room for a whole tile,
the warps of a consumer can be far apart.
"""


@dataclass(frozen=True)
class Subject:
    """A launch whose mutants are judged."""

    name: str
    text: str
    entry: str
    launch: Callable[..., tuple[ptx.Result, bool]]
    """Launches a kernel with options; whether the bits are right."""
    ring: int | None = None
    source: str = ""

    def mutants(self) -> list[Mutant]:
        """Every mutant."""
        return list(mutants(self.text, self.entry, self.ring, self.source))


def of_kernel(kernel: Kernel, ring: int = RINGS[0]) -> Subject:
    """A launch of one cluster, with a ring of so many stages, or fewer.

    The compiler makes four copies of the loop over k, and three for the rest: all of
    them run.  Five tiles, because with turns one consumer has to have the last.
    """
    tile, stages = kernel.tile, min(ring, kernel.stages)
    slabs = 7 if kernel.slabs == 1 else 3 * kernel.slabs - 1
    gemm = Gemm(
        kernel,
        tile.m * tile.cluster - 5,
        5 * tile.n - 3,
        slabs * kernel.slab_k,
        tile.cluster,
        parts=SCALES if kernel.scaled else (),
        stages=stages,
    )

    def launch(kernel: ptx.Kernel, **options: Any) -> tuple[ptx.Result, bool]:
        found = launching.launch(gemm, kernel, **options)
        return found.result, found.right(gemm)

    name = f"{gemm.name} ring {stages}"
    return Subject(name, gemm.text, launching.ENTRY, launch, stages, gemm.source)


def of_recording(recorded: recordings.Launch) -> Subject:
    """A recorded launch of the corpus."""
    row = recorded.row

    def launch(kernel: ptx.Kernel, **options: Any) -> tuple[ptx.Result, bool]:
        made = recorded.make_arguments()
        given, target = for_kernel(made), recorded.file.made["target"]
        result = kernel.launch(
            row.grid, row.block, given, shared=row.shared, target=target, **options
        )
        pairs = zip(made, recorded.expected(), strict=True)
        return result, all(mine.tobytes() == its.tobytes() for mine, its in pairs)

    text = recorded.file.texts[row.text][1]
    return Subject(recorded.identity, text, row.entry, launch)


def subject(name: str, ring: int = RINGS[0]) -> Subject:
    """The first launch whose name begins so."""
    for kernel in KERNELS:
        if str(kernel).startswith(name):
            return of_kernel(kernel, ring)
    for recorded in recordings.every_launch():
        if recorded.identity.startswith(name):
            return of_recording(recorded)
    raise ValueError(f"no launch is called {name}")


def corpus() -> list[Subject]:
    """One launch of each kernel of the corpus that synchronises."""
    found: dict[str, Subject] = {}
    for each in recordings.every_launch():
        made = of_recording(each)
        found.setdefault(each.file.texts[each.row.text][0] + made.entry, made)
    return [each for each in found.values() if each.mutants()]


# ── verdicts ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Verdict:
    """What came of one mutant."""

    mutant: Mutant
    rules: tuple[str, ...]
    """The rules of the problems that only the mutant has."""
    fault: str
    """The first line of the fault it ended with."""
    schedule: Schedule
    """The schedule that showed it; the last one if none did."""
    right: bool
    """Whether the bits were right in every schedule."""
    reached: bool = True
    """Whether the instruction runs at all."""

    @property
    def caught(self) -> bool:
        return bool(self.rules or self.fault)

    @property
    def how(self) -> str:
        """In a few words."""
        if self.caught:
            return " ".join(self.rules) or self.fault.partition(":")[0]
        if not self.reached:
            return "never runs"
        return "silent" if self.right else "SILENT, WRONG BITS"


Found = set[tuple[str, int]]


def problems(result: ptx.Result) -> Found:
    """The rules that a launch breaks, and where; not what is only worth knowing."""
    return {(x.rule, x.line) for x in result.problems if x.severity != "info"}


def run(subject: Subject, text: str, schedule: Schedule) -> tuple[Found, str, bool]:
    """The problems of a text, its fault, and whether its bits are right."""
    kernel = ptx.parse(text).kernels[subject.entry]
    try:
        result, right = subject.launch(
            kernel, schedule=schedule, problems="report", limit=LIMIT
        )
    except KernelFault as fault:
        return set(), str(fault).partition("\n")[0], True
    return problems(result), "", right


def judge(
    subject: Subject,
    mutant: Mutant,
    schedules: Sequence[Schedule],
    original: dict[Schedule, Found],
) -> Verdict:
    """What one mutant does, schedule by schedule."""
    all_right, text = True, mutant.text
    for schedule in schedules:
        found, fault, right = run(subject, text, schedule)
        rules = tuple(sorted({rule for rule, _ in found - original[schedule]}))
        all_right &= right
        verdict = Verdict(mutant, rules, fault, schedule, all_right)
        if verdict.caught:
            return verdict
    return replace(verdict, reached=reached(subject, mutant, original[schedules[0]]))


def reached(subject: Subject, mutant: Mutant, known: Found) -> bool:
    """Whether any thread meets the change: a trap in its place says so."""
    found, fault, _ = run(subject, mutant.trapped, "eager")
    return bool(fault or found - known)


def run_mutants(
    subject: Subject,
    schedules: Sequence[Schedule] = SCHEDULES,
    chosen: Iterable[Mutant] | None = None,
    tell: Callable[[Verdict], None] = lambda verdict: None,
) -> list[Verdict]:
    """The table of verdicts: of all mutants, or of some."""
    original: dict[Schedule, Found] = {}
    for schedule in schedules:
        found, fault, right = run(subject, subject.text, schedule)
        if fault or not right:
            raise AssertionError(
                f"{subject.name} itself, {schedule}: {fault or 'bits'}"
            )
        original[schedule] = found
    table = []
    for mutant in subject.mutants() if chosen is None else chosen:
        table.append(judge(subject, mutant, schedules, original))
        tell(table[-1])
    return table


def one_of_each(listed: Iterable[Mutant]) -> list[Mutant]:
    """One mutant for each change at each statement of the source: the last copy."""
    return list({(each.change, each.source_line): each for each in listed}.values())


# ── mutants that are no mistakes ────────────────────────────────────────────


@dataclass(frozen=True)
class Equivalent:
    """Mutants that behave as the original, and why."""

    change: str
    where: str
    """A part of the statement in the source."""
    reason: str
    only: tuple[str, ...] = ("",)
    """Parts of the names of the launches for which this holds."""
    line: int = 0
    """The line of a recorded PTX text; 0 for any."""

    def covers(self, name: str, mutant: Mutant) -> bool:
        """Whether a mutant of a launch is one of these."""
        return (
            mutant.change == self.change
            and self.where in mutant.where
            and self.line in (0, mutant.line)
            and any(part in name for part in self.only)
        )


@cache
def equivalents() -> list[Equivalent]:
    """Those of ``equivalent.toml``."""
    read = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text())
    return [
        Equivalent(**{**each, "only": tuple(each.get("only", [""]))})
        for each in read.get("equivalent", [])
    ]


def excused(name: str, mutant: Mutant) -> bool:
    """Whether a mutant is known to be as good as the original."""
    return any(each.covers(name, mutant) for each in equivalents())


# ── the command ─────────────────────────────────────────────────────────────


def summary(name: str, table: Sequence[Verdict]) -> str:
    """The verdicts, the same ones together."""
    rows = Counter(
        (v.mutant.change, v.how, v.mutant.where, v.mutant.source_line) for v in table
    )
    lines = [
        f"  {count:3} {change:52} {how:42} {line}: {where[:60]}"
        for (change, how, where, line), count in sorted(rows.items())
    ]
    caught = sum(each.caught for each in table)
    return "\n".join([f"{name}: {caught} of {len(table)} caught", *lines])


def as_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain values."""
    mutant = verdict.mutant
    return {
        "change": mutant.change, "line": mutant.line, "where": mutant.where,
        "source_line": mutant.source_line,
        "how": verdict.how, "caught": verdict.caught, "fault": verdict.fault,
        "schedule": verdict.schedule, "right": verdict.right,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="every kind of kernel")
    parser.add_argument("--ring", type=int, default=RINGS[0])
    parser.add_argument("--corpus", action="store_true", help="the recorded kernels")
    parser.add_argument("--each", action="store_true", help="one copy of each mutant")
    parser.add_argument("--schedules", nargs="+", default=list(map(str, SCHEDULES)))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    schedules = [int(x) if x.isdecimal() else x for x in options.schedules]
    report = {}
    kernels = [subject(name, options.ring) for name in options.names]
    if options.all:
        kernels += [of_kernel(each, options.ring) for each in KERNELS]
    for chosen in [*kernels, *(corpus() if options.corpus else ())]:
        begun = time.monotonic()
        listed = chosen.mutants()
        listed = one_of_each(listed) if options.each else listed

        def tell(verdict: Verdict) -> None:
            if options.verbose:
                print(f"{verdict.how:40} {verdict.mutant.name}", flush=True)

        table = run_mutants(chosen, schedules, listed, tell)
        print(summary(chosen.name, table))
        print(f"  {time.monotonic() - begun:.1f} s", flush=True)
        report[chosen.name] = [as_json(each) for each in table]
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
