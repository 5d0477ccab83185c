"""Judges a run of a kernel with a mistake: reported, wrong result, or neither.

    python -m tests.ptx.hopper.judging "bf16 f16 dense" --schedules eager lazy 1
    python -m tests.ptx.hopper.judging --all --corpus --jobs 16 --output mutants.jsonl

Each mutant is launched in each schedule.  It is caught if a launch reports a problem
that the original does not have, ends with a fault, or leaves other bits.  Of a silent
one it is said whether its instruction runs at all.  If it does, it is launched in other
orders of the warps, too, and all orders of its synchronisation are explored.

The output has a line for each verdict, written as it comes; of two about one mutant the
later one holds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fragmenta import ptx
from fragmenta.engine.units.schedule import ADVERSARIAL
from fragmenta.errors import KernelFault
from tests.ptx.hopper.descriptors import of_descriptor
from tests.ptx.hopper.equivalence import explained, understood
from tests.ptx.hopper.mutants import Mutant
from tests.ptx.hopper.others import OTHERS
from tests.ptx.hopper.pool import answers
from tests.ptx.hopper.subjects import (
    JUDGED,
    RINGS,
    Launch,
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
"""After so many seconds of the processor, too."""
CAUGHT = ("rule", "deadlock", "fault", "bits")
WAYS = (*CAUGHT, "equivalent", "missed", "never runs", "silent")
"""What can come of a mutant; the first that holds in any schedule counts.

``equivalent`` and ``missed`` are silent, and it is known why."""
LATER: Schedule = "lazy"
"""The schedule of all launches but the first."""

ORDERS = "orders"
"""Not a schedule: all orders of the synchronisation are explored."""
AGAIN: tuple[Schedule, ...] = (*ADVERSARIAL, ORDERS)
"""The schedules of mutants that are silent so far."""
STATES = 500
"""So many are explored."""

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


Runs = dict[Schedule, Outcome]


def run(launch: Launch, kernel: ptx.Kernel, schedule: Schedule) -> Outcome:
    """Launch a kernel, or a mutant of it."""
    explored = schedule == ORDERS
    how = {"orders": STATES} if explored else {"schedule": schedule}
    try:
        result, bits = launch.run(
            kernel,
            **how,
            watch="report",
            limits=ptx.Limits(instructions=LIMIT),
        )
    except KernelFault as fault:
        return Outcome(fault=str(fault).partition("\n")[0])
    serious = [each for each in result.problems if each.severity != "info"]
    return Outcome(frozenset((x.rule, x.line) for x in serious), "", bits)


def run_all(
    subject: Subject, text: str, number: int, schedules: Iterable[Schedule]
) -> Runs:
    """One of the launches with another text, in each schedule."""
    launch = subject.launches[number]
    parsed = ptx.parse(text).kernels[subject.entry]

    def kernel() -> ptx.Kernel:
        return ptx.parse(text).kernels[subject.entry] if subject.keeps else parsed

    return {each: run(launch, kernel(), each) for each in schedules}


def originals(subject: Subject, schedules: Sequence[Schedule]) -> list[Runs]:
    """All launches of the kernel itself, which must be right.

    What has nothing asynchronous is the same in all schedules.
    """
    made: list[Runs] = []
    for number, launch in enumerate(subject.launches):
        chosen = [LATER if LATER in schedules else schedules[0]]
        if number == 0:
            chosen = list(schedules) if subject.asynchronous else chosen
        made.append(run_all(subject, subject.text, number, chosen))
        wanted = launch.expected()
        for schedule, each in made[-1].items():
            if each.fault or each.bits != wanted:
                where = f"{subject.name}, {launch.name}, {schedule}"
                raise AssertionError(f"{where}: {each.fault or 'bits'}")
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
    launch: str
    """The launch that showed it, or the last one."""
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


def judge(subject: Subject, mutant: Mutant, before: Sequence[Runs]) -> Verdict:
    """What one mutant does, schedule by schedule, in the first launch that shows it.

    A wrong descriptor is wrong in all products and all schedules: one run shows it.
    """
    if of_descriptor(mutant.change):
        before = [{LATER: before[0].get(LATER) or next(iter(before[0].values()))}]
    for number, runs in enumerate(before):
        made = run_all(subject, mutant.text, number, runs)
        rules = {each: new_rules(made[each], runs[each]) for each in runs}
        verdict = Verdict(mutant, rules, subject.launches[number].name)
        if verdict.caught:
            return verdict
    if of_descriptor(mutant.change):
        return verdict
    return replace(verdict, reached=reached(subject, mutant, before))


def reached(subject: Subject, mutant: Mutant, before: Sequence[Runs]) -> bool:
    """Whether any thread meets the change: a trap in its place says so."""
    for number, runs in enumerate(before):
        schedule = next(iter(runs))
        made = run_all(subject, mutant.trapped, number, [schedule])
        if new_rules(made[schedule], runs[schedule]):
            return True
    return False


def judge_again(subject: Subject, mutant: Mutant) -> Verdict:
    """What other orders show of a mutant that is silent, until one shows anything.

    What another order of the warps changes in the original is no mistake.
    """
    rules: dict[Schedule, tuple[str, ...]] = {}
    wanted = subject.launches[0].expected()
    for each in AGAIN:
        ours = run_all(subject, mutant.text, 0, [each])[each]
        rules[each] = ()
        if ours != Outcome(bits=wanted):
            its = run_all(subject, subject.text, 0, [each])[each]
            rules[each] = new_rules(ours, its)
        if rules[each]:
            break
    return Verdict(mutant, rules, subject.launches[0].name)


def run_mutants(
    subject: Subject,
    schedules: Sequence[Schedule] = SCHEDULES,
    chosen: Iterable[Mutant] | None = None,
) -> list[Verdict]:
    """The verdicts on all mutants of a subject, or on some."""
    before = originals(subject, schedules)
    listed = subject.mistakes() if chosen is None else chosen
    return [judge(subject, mutant, before) for mutant in listed]


def one_of_each(listed: Iterable[Mutant]) -> list[Mutant]:
    """One mutant for each change at each statement of the source: the last copy."""
    return list({(each.change, each.source_line): each for each in listed}.values())


def judge_everything(
    subjects: Sequence[Subject],
    schedules: Sequence[Schedule],
    jobs: int,
    choose: Callable[[Subject], list[Mutant]],
    again: Callable[[Subject, Mutant], bool] = lambda *_: False,
    explained_too: bool = True,
) -> Iterator[tuple[int, Verdict]]:
    """The verdicts on all mutants, each with the number of its subject.

    ``again`` says of a mutant whether it is known to be silent.  Without
    ``explained_too``, those whose reason is known are not tried in other orders.

    First the originals run, then the mutants of those that are right, then those that
    are silent once more in other orders.
    """
    before: dict[int, list[Runs]] = {}
    numbers = range(len(subjects))

    def first(number: int) -> list[Runs] | str:
        try:
            return originals(subjects[number], schedules)
        except Exception as why:
            return f"{type(why).__name__}: {why}"

    for number, made in answers(first, numbers, jobs, 2 * SECONDS):
        if isinstance(made, list):
            before[number] = made
            found = {x for runs in made for each in runs.values() for x in each.found}
            if found:
                print(f"{subjects[number].name} itself: {sorted(found)}")
        else:
            print(f"LEFT OUT {subjects[number].name}: {made or 'no answer'}")
    mutants = {each: choose(subjects[each]) for each in before}
    every = [(each, x) for each in sorted(before) for x in range(len(mutants[each]))]
    silent = [(n, x) for n, x in every if again(subjects[n], mutants[n][x])]
    tasks = [each for each in every if each not in set(silent)]

    def second(task: tuple[int, int]) -> Verdict:
        number, index = task
        mutant = mutants[number][index]
        try:
            return judge(subjects[number], mutant, before[number])
        except Exception as why:  # a mistake of ours, not of the mutant
            rules = dict.fromkeys(schedules, (f"{type(why).__name__}: {why}",))
            return Verdict(mutant, rules, "none")

    for (number, index), found in answers(second, tasks, jobs, SECONDS):
        endless = dict.fromkeys(schedules, ("fault",))
        yield number, found or Verdict(mutants[number][index], endless, "no time")
        if not found or found.way != "silent" or of_descriptor(found.mutant.change):
            continue
        if explained_too or not explained(subjects[number].name, found.mutant):
            silent.append((number, index))

    def third(task: tuple[int, int]) -> Verdict | str:
        number, index = task
        try:
            return judge_again(subjects[number], mutants[number][index])
        except Exception as why:  # a mistake of ours
            return f"{type(why).__name__}: {why}"

    for (number, index), made in answers(third, silent, jobs, SECONDS):
        if isinstance(made, Verdict):
            yield number, made
        else:  # the verdict stays
            name = mutants[number][index].name
            print(f"NOT AGAIN {subjects[number].name}, {name}: {made or 'no time'}")


# ── the command ─────────────────────────────────────────────────────────────


def way(name: str, verdict: Verdict) -> str:
    """One of :data:`WAYS`."""
    return understood(name, verdict.mutant, verdict.way)


def summary(name: str, table: Sequence[Verdict]) -> str:
    """The verdicts, the same ones together."""
    rows = Counter(
        (
            v.mutant.change,
            v.how if v.caught else way(name, v),
            v.mutant.where or str(v.mutant.line),
        )
        for v in table
    )
    lines = [
        f"  {count:3} {change:52} {how:42} {where[-200:]}"
        for (change, how, where), count in sorted(rows.items())
    ]
    caught = sum(each.caught for each in table)
    return "\n".join([f"{name}: {caught} of {len(table)} caught", *lines])


IDENTITY = ("change", "line", "copy")
"""These keys together are one mutant of a kernel."""


def judged(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The verdicts that a run wrote, kernel by kernel; the last on each mutant."""
    found: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        rows = found.setdefault(each.pop("kernel"), {})
        rows[tuple(each[key] for key in IDENTITY)] = each
    return {
        name: sorted(rows.values(), key=lambda row: (row["line"], row["change"]))
        for name, rows in found.items()
    }


def as_json(name: str, verdict: Verdict) -> dict[str, Any]:
    """A verdict of a kernel's mutant as plain values."""
    mutant = verdict.mutant
    return {
        "kernel": name,
        "change": mutant.change,
        "line": mutant.line,
        "copy": mutant.copy,
        "where": [list(each) for each in mutant.calls],
        "launch": verdict.launch,
        "way": way(name, verdict),
        "rules": {str(each): list(rules) for each, rules in verdict.rules.items()},
    }


def kernel_subjects(texts: dict[str, str]) -> list[Subject]:
    """The launches of the project's own kernels, without compiling if texts are known.

    What is compiled is added to the texts.
    """
    made = []
    for kernel, ring in JUDGED:
        key = f"{kernel}, {ring} stages"
        made.append(of_kernel(kernel, ring, texts.get(key, "")))
        texts[key] = made[-1].text
    return [*made, *(make() for make in OTHERS.values())]


def named(name: str, ring: int) -> Subject:
    """The subject whose name begins so."""
    found = next((make for x, make in OTHERS.items() if x.startswith(name)), None)
    return found() if found else subject(name, ring)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="every kind of kernel")
    parser.add_argument("--ring", type=int, default=RINGS[0], help="of those named")
    parser.add_argument("--corpus", action="store_true", help="the recorded kernels")
    parser.add_argument("--each", action="store_true", help="one copy of each mutant")
    parser.add_argument("--changes", help="only those whose name begins like this")
    parser.add_argument("--schedules", nargs="+", default=list(map(str, SCHEDULES)))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--texts", type=Path, help="the PTX; written if it is missing")
    parser.add_argument("--known", type=Path, help="leave out what this file has")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument(
        "--unexplained",
        action="store_true",
        help="try other orders only for mutants without a reason",
    )
    options = parser.parse_args()
    schedules = [int(x) if x.isdecimal() else x for x in options.schedules]
    texts: dict[str, str] = {}
    if options.texts and options.texts.exists():
        texts = json.loads(options.texts.read_text())
    subjects = [named(each, options.ring) for each in options.names]
    if options.all:
        subjects += kernel_subjects(texts)
    subjects += corpus() if options.corpus else []
    if options.texts and not options.texts.exists():
        options.texts.write_text(json.dumps(texts))
    every = one_of_each if options.each else list
    begins = tuple((options.changes or "").split(","))
    known = {
        (name, *(row[key] for key in IDENTITY)): row
        for name, rows in (judged(options.known) if options.known else {}).items()
        for row in rows
    }

    def of(subject: Subject, mutant: Mutant) -> dict[str, Any] | None:
        return known.get((subject.name, mutant.change, mutant.line, mutant.copy))

    def open_still(subject: Subject, mutant: Mutant) -> bool:
        row = of(subject, mutant)
        ended = row is not None and row["way"] in (*CAUGHT, "never runs")
        tried = row is not None and not set(row["rules"]).isdisjoint(AGAIN)
        return not (ended or tried or (row and of_descriptor(mutant.change)))

    def choose(subject: Subject) -> list[Mutant]:
        return every(
            each
            for each in subject.mistakes()
            if each.change.startswith(begins) and open_still(subject, each)
        )

    def silent(subject: Subject, mutant: Mutant) -> bool:
        return of(subject, mutant) is not None

    verdicts = judge_everything(
        subjects, schedules, options.jobs, choose, silent, not options.unexplained
    )
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
    """Write the verdicts as they come, then print them."""
    begun = time.monotonic()
    tables: dict[int, dict[str, Verdict]] = {}
    with open(output or os.devnull, "w", encoding="utf-8", buffering=1) as file:
        for number, verdict in verdicts:
            tables.setdefault(number, {})[verdict.mutant.name] = verdict
            file.write(json.dumps(as_json(subjects[number].name, verdict)) + "\n")
    counts: Counter[str] = Counter()
    for number, judged in sorted(tables.items()):
        name = subjects[number].name
        table = sorted(
            judged.values(), key=lambda each: (each.mutant.line, each.mutant.change)
        )
        print(summary(name, table))
        counts.update(way(name, each) for each in table)
    print(dict(counts), f"{time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
