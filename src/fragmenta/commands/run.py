"""The command ``run``: runs a program that uses CUDA, and reports about its kernels."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from textwrap import fill
from typing import Annotated, NamedTuple

import typer

from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.files import Force, SarifFile, check_output, save_text
from fragmenta.commands.launch_options import (
    Flags,
    ScheduleTexts,
    Tolerance,
    schedules_of,
    split_flags,
    tolerances,
)
from fragmenta.commands.options import AsJson, Limit, Seconds
from fragmenta.commands.output import complain, emit_json, width
from fragmenta.commands.problems import check_sarif, problem_text, write_sarif
from fragmenta.commands.recorded_programs import (
    LaunchFilter,
    ReplayFolder,
    check_regex,
    recorded_lines,
    wanted,
)
from fragmenta.commands.targets import complete_target, target_of
from fragmenta.errors import BadCall, one_of, shortened
from fragmenta.frontends.programs.asked import Explored, ProgramOptions
from fragmenta.frontends.programs.cards import USUAL, card, cards
from fragmenta.frontends.programs.running import Outcome
from fragmenta.frontends.programs.running import run as run_program
from fragmenta.launch.limits import SECONDS, Limits
from fragmenta.launch.options import check_schedules
from fragmenta.ptx.checking.problem import Problem, counts
from fragmenta.ptx.rules import ERROR
from fragmenta.reference.isa.searching import search

MOST_SHOWN = 20
"""Problems that are printed; JSON and SARIF have all of them."""
STATES = 20_000
"""States of a launch that are looked at, unless another number is given."""


@command(
    "run",
    "fragmenta run ./program --size 64",
    "fragmenta run kernel.cu",
    "fragmenta run --card a100 --flags '-std=c++17 -Iinclude' kernel.cu",
    "fragmenta run -- python script.py",
    "fragmenta run --sarif found.sarif -- pytest tests",
    "fragmenta run --orders --kernels gemm --states 5000 ./program",
)
def run(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM [ARGUMENTS]...",
            help="A program, or a .cu file; then its own arguments.",
            show_default=False,
        ),
    ],
    card_name: Annotated[
        str,
        typer.Option(
            "--card",
            metavar="CARD",
            help=f"The card that the program sees: {one_of(cards())}.",
        ),
    ] = USUAL,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="The GPU whose bits are wanted; by default that of the card.",
            autocompletion=complete_target,
            show_default=False,
        ),
    ] = None,
    kernels: Annotated[
        str,
        typer.Option(
            "--kernels",
            metavar="REGEX",
            help="Watch only kernels whose names have a match.",
            show_default=False,
        ),
    ] = "",
    schedules: ScheduleTexts = None,
    no_watch: Annotated[
        bool, typer.Option("--no-watch", help="Do not look for problems; faster.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Also report what only some sources demand."),
    ] = False,
    limit: Limit = None,
    seconds: Seconds = SECONDS,
    flags: Flags = None,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Write the report to a file, not to the error stream.",
            show_default=False,
        ),
    ] = None,
    numerics: Annotated[
        bool,
        typer.Option(
            "--numerics", help="Find out where bits are lost, and where NaN is born."
        ),
    ] = False,
    tolerance: Tolerance = None,
    orders: Annotated[
        bool,
        typer.Option(
            "--orders",
            help="Explore all orders of watched launches; see fragmenta orders.",
        ),
    ] = False,
    states: Annotated[
        int,
        typer.Option(
            "--states", metavar="N", help="The most states of a launch with --orders."
        ),
    ] = STATES,
    launches: Annotated[
        int | None,
        typer.Option(
            "--launches",
            help="Explore only the first launches of each kernel with --orders.",
            show_default=False,
        ),
    ] = None,
    replay: ReplayFolder = None,
    sarif_file: SarifFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """The program is not changed.  It gets a CUDA runtime and a driver that run its
    kernels here, with the bits of a GPU.  It must have PTX in it and use the shared
    runtime: nvcc -gencode arch=compute_90a,code=compute_90a -cudart shared.  A .cu
    file is compiled so.

    Launches are watched.  What is wrong with them is printed after the program has
    ended, with the lines of the source.  The exit status is 1 if there is an error,
    else that of the program.  With --json, the program's own output goes to the error
    stream.
    """
    _check_program(program[0])
    if numerics and no_watch:
        raise BadCall("--numerics cannot be combined with --no-watch")
    explored = _explored(orders, states, launches, no_watch, numerics)
    check_regex(kernels)
    check_sarif(sarif_file, force, as_json)
    if report is not None:
        check_output(report, force, option="--report")
    chosen = schedules_of(None, schedules)
    options = ProgramOptions(
        card(card_name),
        target_of(target) or "",
        not no_watch,
        strict,
        tuple(check_schedules(chosen)),
        kernels,
        Limits(seconds, instructions=limit),
        None if replay is None else wanted(replay, LaunchFilter(kernels, 1)),
        numerics,
        explored,
        tolerances(tolerance, numerics),
    )
    quiet = as_json or sarif_file == "-"
    sys.stdout.flush()
    outcome = run_program(
        program,
        options,
        flags=split_flags(flags),
        output=sys.stderr.fileno() if quiet else None,
        progress=_progress,
    )
    made = _Report(program[0], options, outcome)
    write_sarif(sarif_file, made.located(), force)
    if as_json:
        emit_json(made.to_json())
    if report is not None:
        save_text(report, made.to_text() + "\n", force)
    elif not quiet:
        complain(made.to_text())
    if made.status:
        raise typer.Exit(made.status)


def _explored(
    orders: bool, states: int, launches: int | None, no_watch: bool, numerics: bool
) -> Explored | None:
    """How launches are explored, if they are."""
    if not orders:
        if launches is not None or states != STATES:
            raise BadCall(
                "--states and --launches are for --orders, which is not given"
            )
        return None
    for name, given in (("--no-watch", no_watch), ("--numerics", numerics)):
        if given:
            raise BadCall(f"--orders cannot be combined with {name}")
    for name, number in (("--states", states), ("--launches", launches)):
        if number is not None and number < 1:
            raise BadCall(f"{name} is 1 or more; given {number}")
    return Explored(states, launches)


def _progress(share: float) -> None:
    """Show how far a long launch is, in a terminal; without a thread, unlike a bar."""
    if sys.stderr.isatty():
        print(f"\rfragmenta: {share:4.0%} of a launch\r", end="", file=sys.stderr)


def _check_program(word: str) -> None:
    """Point to ``matmul``, which had this name, if an instruction is given."""
    if os.path.exists(word) or "/" in word:
        return
    if word.split(".", maxsplit=1)[0] in _FAMILIES or (" " in word and search(word)):
        raise BadCall(
            f"{shortened(word)} is an instruction; fragmenta matmul multiplies "
            "matrices with it, and fragmenta run runs programs"
        )


_FAMILIES = ("mma", "wgmma", "tcgen05", "wmma")


class _Found(NamedTuple):
    """A problem, the kernel that has it, and how many launches showed it."""

    kernel: str
    """Or the source of a call, or the function of CUDA if that is not known."""
    problem: Problem
    launches: int
    of_call: bool = False


class _Report:
    """What is said about a program that has ended."""

    def __init__(self, program: str, options: ProgramOptions, outcome: Outcome) -> None:
        self.program, self.options, self.outcome = program, options, outcome
        self.found = list(_together(outcome))

    @property
    def errors(self) -> bool:
        """Whether a launch has an error, or could not be run."""
        wrong = any(each.problem.severity == ERROR for each in self.found)
        return wrong or any(each.fault for each in self.outcome.launches)

    @property
    def status(self) -> int:
        """The exit status: 1 for errors, else the program's, as shells tell it."""
        if self.errors or self.outcome.crashes:
            return NOTHING
        status = self.outcome.status
        return status if status >= 0 else 128 - status

    def located(self) -> Iterator[tuple[str | None, Problem]]:
        """The problems and their files, for SARIF; None for lines of the host."""
        for each in self.found:
            lined = each.of_call and each.problem.source
            yield None if lined else each.kernel, each.problem

    def to_text(self) -> str:
        """The report."""
        lines = [self._summary(), *recorded_lines(self.outcome.recorded)]
        if self.outcome.status < 0:
            name = signal.Signals(-self.outcome.status).name
            lines.append(f"the program was ended by {name}")
        lines += [f"the engine failed: {each}" for each in self.outcome.crashes]
        for why in dict.fromkeys(self.outcome.refused):
            lines.append(f"refused {why}")
        for fault in dict.fromkeys(
            f"{each.kernel} was not run to its end: {each.fault}"
            for each in self.outcome.launches
            if each.fault
        ):
            lines.append(fault)
        lines += self._orders()
        lines = [_fitted(each) for line in lines for each in line.split("\n")]
        for each in self.found[:MOST_SHOWN]:
            often = f" (in {each.launches:,} launches)" if each.launches > 1 else ""
            shown = problem_text(each.kernel, each.problem, with_rule=True)
            lines.append(f"\n{shown}{often}")
        if len(self.found) > MOST_SHOWN:
            lines.append(f"\nand {len(self.found) - MOST_SHOWN} more problems")
        return "\n".join(lines)

    def _orders(self) -> list[str]:
        """What all orders of launches show: a line for each kernel and answer."""
        told: dict[str, int] = {}
        for each in self.outcome.launches:
            if each.orders is not None:
                why = "; ".join(each.orders["reasons"])
                line = f"{each.kernel}: {each.orders['summary']}{why and f': {why}'}"
                told[line] = told.get(line, 0) + 1
        return [
            f"orders of {line}{f' (in {count:,} launches)' if count > 1 else ''}"
            for line, count in told.items()
        ]

    def _summary(self) -> str:
        launches = self.outcome.launches
        count = sum(each.instructions for each in launches)
        names = {each.kernel for each in launches}
        unwatched = sum(not each.watched for each in launches)
        cut = sum(bool(each.fault) for each in launches)
        said = [
            f"{unwatched:,} not watched" * bool(unwatched),
            f"{cut:,} not run to {'its end' if cut == 1 else 'their ends'}" * bool(cut),
            one_of(counts([each.problem for each in self.found]), "and"),
        ]
        plural = "es" if len(launches) != 1 else ""
        kernels = f"{len(names)} kernel{'s' if len(names) != 1 else ''}"
        return (
            f"fragmenta: {len(launches):,} launch{plural} of {kernels}, {count:,} warp "
            f"instructions with the arithmetic of {self.options.arithmetic}; "
            f"{', '.join(filter(None, said)) or 'no problems'}"
        )

    def to_json(self) -> dict[str, object]:
        """The report as JSON."""
        return {
            "program": self.program,
            "card": self.options.card.card,
            "target": self.options.arithmetic,
            "status": self.outcome.status,
            "launches": [
                {
                    **each._asdict(),
                    "grid": list(each.grid),
                    "block": list(each.block),
                    "problems": [one.to_dict() for one in each.problems],
                }
                for each in self.outcome.launches
            ],
            "calls": [each.problem.to_dict() for each in self.outcome.calls],
            "recorded": [each._asdict() for each in self.outcome.recorded],
            "refused": self.outcome.refused,
            "crashes": self.outcome.crashes,
        }


def _fitted(line: str) -> str:
    """A line of a report in lines that fit; those after the first are indented."""
    own = line[: len(line) - len(line.lstrip())]
    return fill(line, width(), subsequent_indent=f"{own}  ")


def _together(outcome: Outcome) -> Iterator[_Found]:
    """Each problem once, errors first."""
    found: dict[tuple[object, ...], _Found] = {}
    for launch in outcome.launches:
        seen: set[tuple[object, ...]] = set()  # a launch may show a line twice
        for each in launch.problems:
            key = launch.kernel, each.rule, each.severity, each.line, each.column
            known = found.get(key)
            times = known.launches if known else 0
            first = known.problem if known else each
            found[key] = _Found(launch.kernel, first, times + (key not in seen))
            seen.add(key)
    for call in outcome.calls:
        problem, source = call.problem, call.problem.source
        message = re.sub(r"(allocation|launch) \d+", "", problem.message)
        place = source.own.file if source else problem.function
        found.setdefault(
            (place, problem.line, message), _Found(place, problem, 1, True)
        )
    order = {"error": 0, "warning": 1, "info": 2}
    yield from sorted(found.values(), key=lambda each: order[each.problem.severity])
