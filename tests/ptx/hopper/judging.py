"""Which mistakes of a kernel are seen when it runs?

    python -m tests.ptx.hopper.judging "bf16 f16 dense" --schedules eager lazy 1
    python -m tests.ptx.hopper.judging --all --corpus --jobs 15 --output mutants.json

Each mutant is launched in each schedule.  It is caught if a launch reports a problem
that the original does not have, ends with a fault, or leaves other bits.  Of a silent
one it is said whether its instruction runs at all.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fragmenta import ptx
from fragmenta.errors import KernelFault
from tests.ptx.hopper.equivalence import excused
from tests.ptx.hopper.mutants import Mutant
from tests.ptx.hopper.pool import answers
from tests.ptx.hopper.subjects import (
    KERNELS,
    RINGS,
    Subject,
    corpus,
    of_kernel,
    subject,
)

Schedule = str | int
SCHEDULES: tuple[Schedule, ...] = ("eager", "lazy", 1)
LIMIT = 20_000_000
"""Warp instructions after which a mutant hangs."""
SECONDS = 60.0
"""After so long, too."""
WAYS = ("rule", "deadlock", "fault", "bits", "equivalent", "never runs", "silent")
"""What can come of a mutant; the first that holds in any schedule counts."""
CAUGHT = WAYS[:4]

Found = frozenset[tuple[str, int]]
"""Rules that are broken, and in which lines."""


@dataclass(frozen=True)
class Outcome:
    """What one launch shows."""

    found: Found = frozenset()
    fault: str = ""
    """The first line of the fault that ended it, if that is no problem by its rule."""
    bits: str = ""
    """A hash of what it left in memory; nothing if it did not end."""


def run(subject: Subject, kernel: ptx.Kernel, schedule: Schedule) -> Outcome:
    """Launch the kernel of a subject, or a mutant of it."""
    try:
        result, bits = subject.launch(
            kernel, schedule=schedule, problems="report", limit=LIMIT
        )
    except KernelFault as fault:
        return Outcome(fault=str(fault).partition("\n")[0])
    serious = [each for each in result.problems if each.severity != "info"]
    return Outcome(frozenset((x.rule, x.line) for x in serious), "", bits)


def run_all(
    subject: Subject, text: str, schedules: Iterable[Schedule]
) -> dict[Schedule, Outcome]:
    """Launch a text in each schedule."""
    kernel = ptx.parse(text).kernels[subject.entry]
    return {each: run(subject, kernel, each) for each in schedules}


def original(
    subject: Subject, schedules: Iterable[Schedule]
) -> dict[Schedule, Outcome]:
    """The launches of the kernel itself, which must be right.

    What has nothing asynchronous is the same in all schedules.
    """
    chosen = list(schedules) if subject.asynchronous else list(schedules)[:1]
    made, wanted = run_all(subject, subject.text, chosen), subject.expected()
    for schedule, each in made.items():
        if each.fault or each.bits != wanted:
            raise AssertionError(f"{subject.name}, {schedule}: {each.fault or 'bits'}")
    return made


# ── verdicts ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Verdict:
    """What came of one mutant."""

    mutant: Mutant
    rules: dict[Schedule, tuple[str, ...]]
    """In each schedule, the rules of the problems that only the mutant has.

    Faults that are no rule are called ``fault``, other results ``bits``.
    """
    reached: bool = True
    """Whether the instruction runs at all."""

    @property
    def way(self) -> str:
        """One of the first four :data:`WAYS`, or ``never runs`` or ``silent``."""
        every = {rule for rules in self.rules.values() for rule in rules}
        if every - set(CAUGHT):
            return "rule"
        others = [each for each in CAUGHT if each in every]
        return (others or ["silent" if self.reached else "never runs"])[0]

    @property
    def caught(self) -> bool:
        return self.way in CAUGHT

    @property
    def how(self) -> str:
        """The rules in all schedules, and which schedules show nothing."""
        every = sorted({rule for rules in self.rules.values() for rule in rules})
        blind = [str(each) for each, rules in self.rules.items() if not rules]
        if not every:
            return self.way
        return " ".join(every) + (f" (not {', '.join(blind)})" if blind else "")


def new_rules(its: Outcome, before: Outcome) -> tuple[str, ...]:
    """What only a mutant shows."""
    rules = {rule for rule, _ in its.found - before.found}
    if its.fault:
        rules.add("deadlock" if "deadlock" in its.fault else "fault")
    elif its.bits != before.bits and not rules & {"deadlock", "fault"}:
        rules.add("bits")
    return tuple(sorted(rules))


def judge(
    subject: Subject, mutant: Mutant, originals: dict[Schedule, Outcome]
) -> Verdict:
    """What one mutant does, schedule by schedule."""
    made = run_all(subject, mutant.text, originals)
    rules = {each: new_rules(made[each], originals[each]) for each in made}
    verdict = Verdict(mutant, rules)
    if verdict.caught:
        return verdict
    # Whether any thread meets the change: a trap in its place says so.
    schedule = next(iter(originals))
    trapped = run_all(subject, mutant.trapped, [schedule])[schedule]
    return replace(verdict, reached=bool(new_rules(trapped, originals[schedule])))


def run_mutants(
    subject: Subject,
    schedules: Sequence[Schedule] = SCHEDULES,
    chosen: Iterable[Mutant] | None = None,
) -> list[Verdict]:
    """The verdicts on all mutants of a subject, or on some."""
    before = original(subject, schedules)
    listed = subject.mutants() if chosen is None else chosen
    return [judge(subject, mutant, before) for mutant in listed]


def one_of_each(listed: Iterable[Mutant]) -> list[Mutant]:
    """One mutant for each change at each statement of the source: the last copy."""
    return list({(each.change, each.source_line): each for each in listed}.values())


def judge_everything(
    subjects: Sequence[Subject],
    schedules: Sequence[Schedule],
    jobs: int,
    choose: Callable[[list[Mutant]], list[Mutant]],
) -> Iterator[tuple[int, Verdict]]:
    """The verdicts on all mutants, each with the number of its subject.

    First the originals run, then the mutants of those that are right.
    """
    before: dict[int, dict[Schedule, Outcome]] = {}
    numbers = range(len(subjects))

    def first(number: int) -> dict[Schedule, Outcome] | str:
        try:
            return original(subjects[number], schedules)
        except Exception as why:
            return f"{type(why).__name__}: {why}"

    for number, made in answers(first, numbers, jobs, 2 * SECONDS):
        if isinstance(made, dict):
            before[number] = made
        else:
            print(f"LEFT OUT {subjects[number].name}: {made or 'no answer'}")
    mutants = {each: choose(subjects[each].mutants()) for each in before}
    tasks = [(each, x) for each in sorted(before) for x in range(len(mutants[each]))]

    def second(task: tuple[int, int]) -> tuple[dict[Schedule, tuple[str, ...]], bool]:
        number, index = task
        try:
            made = judge(subjects[number], mutants[number][index], before[number])
        except Exception as why:  # a mistake of ours, not of the mutant
            return {each: (f"{type(why).__name__}: {why}",) for each in schedules}, True
        return made.rules, made.reached

    for (number, index), found in answers(second, tasks, jobs, SECONDS):
        rules, reached = found or (dict.fromkeys(schedules, ("fault",)), True)
        yield number, Verdict(mutants[number][index], rules, reached)


# ── the command ─────────────────────────────────────────────────────────────


def way(name: str, verdict: Verdict) -> str:
    """One of :data:`WAYS`."""
    silent = verdict.way == "silent" and excused(name, verdict.mutant)
    return "equivalent" if silent else verdict.way


def summary(name: str, table: Sequence[Verdict]) -> str:
    """The verdicts, the same ones together."""
    rows = Counter(
        (
            v.mutant.change,
            "equivalent" if way(name, v) == "equivalent" else v.how,
            v.mutant.where,
            v.mutant.source_line or v.mutant.line,
        )
        for v in table
    )
    lines = [
        f"  {count:3} {change:52} {how:42} {line}: {where[:60]}"
        for (change, how, where, line), count in sorted(rows.items())
    ]
    caught = sum(each.caught for each in table)
    return "\n".join([f"{name}: {caught} of {len(table)} caught", *lines])


def as_json(name: str, verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain values."""
    mutant = verdict.mutant
    return {
        "change": mutant.change,
        "line": mutant.line,
        "source": mutant.source_line,
        "where": mutant.where,
        "way": way(name, verdict),
        "rules": {str(each): list(rules) for each, rules in verdict.rules.items()},
    }


def kernel_subjects(rings: Iterable[int], texts: dict[str, str]) -> list[Subject]:
    """The launches of the project's own kernels, without compiling if texts are known.

    What is compiled is added to the texts.
    """
    made = []
    for ring in rings:
        for kernel in KERNELS:
            key = f"{kernel}, {ring} stages"
            made.append(of_kernel(kernel, ring, texts.get(key, "")))
            texts[key] = made[-1].text
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="every kind of kernel")
    parser.add_argument("--rings", type=int, nargs="+", default=list(RINGS))
    parser.add_argument("--corpus", action="store_true", help="the recorded kernels")
    parser.add_argument("--each", action="store_true", help="one copy of each mutant")
    parser.add_argument("--schedules", nargs="+", default=list(map(str, SCHEDULES)))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--texts", type=Path, help="the PTX; written if it is missing")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    options = parser.parse_args()
    schedules = [int(x) if x.isdecimal() else x for x in options.schedules]
    texts: dict[str, str] = {}
    if options.texts and options.texts.exists():
        texts = json.loads(options.texts.read_text())
    subjects = [subject(each, ring) for each in options.names for ring in options.rings]
    if options.all:
        subjects += kernel_subjects(options.rings[:1], texts)
    subjects += corpus() if options.corpus else []
    if options.all:
        subjects += kernel_subjects(options.rings[1:], texts)
    if options.texts and not options.texts.exists():
        options.texts.write_text(json.dumps(texts))
    choose = one_of_each if options.each else list
    verdicts = judge_everything(subjects, schedules, options.jobs, choose)
    tell(subjects, until(verdicts, options.seconds), options.output)


def until(
    verdicts: Iterator[tuple[int, Verdict]], seconds: float | None
) -> Iterator[tuple[int, Verdict]]:
    """The verdicts that come in time."""
    begun = time.monotonic()
    for each in verdicts:
        yield each
        if seconds is not None and time.monotonic() - begun > seconds:
            print("NOT ALL: there was no more time")
            break


def tell(
    subjects: Sequence[Subject],
    verdicts: Iterable[tuple[int, Verdict]],
    output: Path | None,
) -> None:
    """Print the verdicts and write them."""
    begun = time.monotonic()
    tables: dict[int, list[Verdict]] = {}
    for number, verdict in verdicts:
        tables.setdefault(number, []).append(verdict)
    report = {}
    for number, table in sorted(tables.items()):
        table.sort(key=lambda each: (each.mutant.line, each.mutant.change))
        name = subjects[number].name
        print(summary(name, table))
        report[name] = [as_json(name, each) for each in table]
    counts = Counter(x["way"] for table in report.values() for x in table)
    print(dict(counts), f"{time.monotonic() - begun:.0f} s", flush=True)
    if output:
        output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
