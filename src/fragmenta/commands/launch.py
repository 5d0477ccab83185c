"""The command ``launch``: runs a kernel of a file on the CPU."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import typer

from fragmenta.base.arrays.checks import Array
from fragmenta.base.progress import Progress, bar, ignore_progress, lines
from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.counters import counter_fields, counter_lines
from fragmenta.commands.files import (
    Force,
    SarifFile,
    check_output,
    picture_format,
    save_array,
    save_bytes,
    size_text,
)
from fragmenta.commands.launch_arguments import (
    KernelSelection,
    LaunchArgument,
    block_of,
    check_parameters,
    read_arguments,
    read_files,
)
from fragmenta.commands.launch_options import (
    Args,
    Block,
    Cluster,
    Cooperative,
    Flags,
    Grid,
    KernelFiles,
    NoContract,
    ScheduleText,
    ScheduleTexts,
    Shared,
    Target,
    Tolerance,
    schedules_of,
    sides,
    split_flags,
)
from fragmenta.commands.numerics import (
    born,
    emit_numerics,
    every_problem,
    judge,
    numerics_fields,
)
from fragmenta.commands.options import AsJson, Limit, Memory, Printed, Seconds
from fragmenta.commands.output import (
    complain,
    emit,
    emit_json,
    is_terminal,
    printable,
    show_problems,
    width,
)
from fragmenta.commands.problems import (
    check_sarif,
    fault_fields,
    fault_hint,
    fault_place,
    numbered,
    of_fault,
    result_fields,
    write_sarif,
)
from fragmenta.commands.replays import (
    Beside,
    Blocks,
    ReplayBeside,
    ReplayFile,
    ReplayFrom,
    emit_replay,
    replay_fields,
    replay_option,
    write_fault,
    write_replay,
)
from fragmenta.commands.targets import target_of
from fragmenta.engine.simt.arguments import Arguments
from fragmenta.engine.tracing.trace import Window
from fragmenta.errors import BadCall, KernelError, KernelHazard, one_of, shortened
from fragmenta.inspect.evidence.arguments import for_kernel
from fragmenta.launch.instruments import Watch
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.limits import OUTPUT, SECONDS, Limits
from fragmenta.launch.options import check_shared
from fragmenta.launch.request import LaunchOptions
from fragmenta.launch.result import FIDELITY, Result
from fragmenta.ptx.checking.memory import shared_bytes
from fragmenta.ptx.checking.problem import Problem, counts, problems_of
from fragmenta.ptx.demangling import signature
from fragmenta.ptx.module import Variable
from fragmenta.ptx.rules import ERROR
from fragmenta.reference.cards import DEFAULT
from fragmenta.reference.cards import card as check_card

if TYPE_CHECKING:
    from fragmenta.commands.recorded_launches import How
    from fragmenta.inspect.replay.recorded import Replay
    from fragmenta.inspect.view.timeline import Relaunch

MOST_OPCODES = 6
"""Opcodes in the table; JSON has all of them."""


@command(
    "launch",
    "fragmenta launch kernel.ptx --list",
    "fragmenta launch examples/scale.cu --block 32 --arg ones:f32:32 --arg f32:2",
    "fragmenta launch kernel.ptx --block 32 --arg ones:f32:32 --save 0=x.npy",
    "fragmenta launch kernel.ptx --block 32 --arg ones:f32:32 --schedules lazy,1",
    "fragmenta launch kernel.ptx --block 32 --arg ones:f32:32 --timeline k.svg",
    "fragmenta launch kernel.ptx --block 32 --arg ones:f32:32 --replay k.html",
    "fragmenta launch kernel.ptx --block 32 --arg ones:f32:32 --sarif k.sarif",
    "fragmenta launch kernel.ptx --block 32 --arg ones:f32:32 --orders",
    "fragmenta launch kernel.ptx --block 32 --arg ones:f32:32 --counters",
    "fragmenta launch kernel.ptx --block 32 --arg ones:f32:32 --numerics",
    "fragmenta launch tile-1.npz --schedules adversarial",
)
def launch(
    words: KernelFiles,
    grid: Grid = "1",
    block: Block = None,
    cluster: Cluster = None,
    cooperative: Cooperative = False,
    shared: Shared = 0,
    arg: Args = None,
    save: Annotated[
        list[str] | None,
        typer.Option(
            "--save",
            metavar="INDEX=FILE",
            help="Write the array of an argument to a .npy file; may be repeated.",
            show_default=False,
        ),
    ] = None,
    target: Target = None,
    flags: Flags = None,
    limit: Limit = None,
    seconds: Seconds = SECONDS,
    memory: Memory = None,
    printed: Printed = OUTPUT,
    isolated: Annotated[
        bool,
        typer.Option(
            "--isolated",
            help="Launch in a process of its own, with limits of the system.",
        ),
    ] = False,
    no_contract: NoContract = False,
    schedule: ScheduleText = None,
    schedules: ScheduleTexts = None,
    save_schedule: Annotated[
        str | None,
        typer.Option(
            "--save-schedule",
            metavar="FILE",
            help="Write the turns of the run to a .json file; --schedule repeats it.",
            show_default=False,
        ),
    ] = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not look for problems; faster.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Also report what only some sources demand."),
    ] = False,
    problems: Annotated[
        str,
        typer.Option(
            "--problems",
            metavar="raise|report",
            help="With report, the arrays are shown and saved in spite of errors.",
        ),
    ] = "raise",
    orders: Annotated[
        bool,
        typer.Option(
            "--orders",
            help="Also explore all orders of synchronisation; see fragmenta orders.",
        ),
    ] = False,
    counters: Annotated[
        bool,
        typer.Option(
            "--counters",
            help="Count memory traffic, by the names of Nsight Compute.",
        ),
    ] = False,
    numerics: Annotated[
        bool,
        typer.Option(
            "--numerics",
            help="Find out where bits are lost, and where NaN is born.",
        ),
    ] = False,
    tolerance: Tolerance = None,
    card: Annotated[
        str,
        typer.Option(
            "--card",
            metavar="CARD",
            help="The card of --counters: its occupancy, and a bound of the time.",
        ),
    ] = DEFAULT,
    sarif_file: SarifFile = None,
    timeline: Annotated[
        str | None,
        typer.Option(
            "--timeline",
            metavar="FILE",
            help="Draw what a cluster did: SVG, PNG or PDF. Implies --problems report.",
            show_default=False,
        ),
    ] = None,
    replay: ReplayFile = None,
    replay_from: ReplayFrom = None,
    replay_beside: ReplayBeside = None,
    blocks: Blocks = None,
    list_kernels: Annotated[
        bool, typer.Option("--list", help="List the kernels and their parameters.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    r"""An ARGUMENT is one of these, where TYPE is f16, bf16, f32, f64, e4m3, e5m2,
    i8 to i64, u8 to u64 or bool, and SHAPE such as 128x64:

    \b
      FILE.npy                   the array of a file
      FILE.npz:NAME              one of an archive, such as a witness of same
      zeros:TYPE:SHAPE           also ones, and arange for 0, 1, 2 …
      full:TYPE:SHAPE:VALUE      one value everywhere
      random:TYPE:SHAPE[:SEED]   the same on every machine
      TYPE:VALUE                 a number, such as i32:64
      bytes:HEX                  a struct
      pointer:INDEX[+OFFSET]     into the array of another argument, in bytes

    The kernel is checked, and the launch is watched: races, reads that come too early
    and other mistakes are reported.  The exit status is 1 if there is an error: what
    fragmenta check calls one, or what the kernel must not do.

    A recording of launches, a .npz file, is launched as it was recorded, and compared.
    """
    target = target_of(target)
    if is_recorded(words):
        _launch_recorded(
            words,
            {
                "--arg": arg,
                "--block": block,
                "--cluster": cluster,
                "--save": save,
                "--shared": shared,
                "--cooperative": cooperative,
                "--counters": counters,
                "--timeline": timeline,
                "--replay": replay,
                "--replay-from": replay_from,
                "--blocks": blocks,
                "--replay-beside": replay_beside,
                "--isolated": isolated,
                "--sarif": sarif_file,
                "--save-schedule": save_schedule,
            },
            {
                "watch": False if no_check else Watch(problems, strict),
                "limits": Limits(seconds, memory, printed, limit),
                "target": target,
                "numerics": numerics,
                "orders": "all" if orders else None,
                "schedule": schedules_of(schedule, schedules),
            },
            as_json,
        )
        return
    named = read_files(words, target, split_flags(flags))
    if list_kernels:
        _list(named, target, as_json)
        return
    (file, found), given = named.one(target), read_arguments(arg or ())
    check_parameters(found, given)
    places = _places(save or (), given, force)
    check_sarif(sarif_file, force, as_json)
    _check_files(timeline, save_schedule, no_check, force)
    _check_isolated(isolated, {"--orders": orders, "--replay": replay is not None})
    check_card(card)
    window, beside = replay_option(replay, blocks, replay_from, replay_beside, force)
    sizes, judged = (
        (sides(grid, "--grid"), block_of(found, block)),
        judge(tolerance, numerics),
    )
    options: LaunchOptions = {
        "target": target,
        "shared": shared,
        "contract": not no_contract,
        "watch": not no_check
        and Watch("report" if timeline or replay else problems, strict),
        "cooperative": cooperative,
        "cluster": None if cluster is None else sides(cluster, "--cluster"),
        "limits": Limits(seconds, memory, printed, limit),
        "orders": "all" if orders else None,
        "counters": counters,
        "numerics": numerics,
        "schedule": schedules_of(schedule, schedules),
    }
    before, picture = [each.value.tobytes() for each in given], ""
    values = for_kernel([each.value for each in given])
    where = target or found.loaded.module.target
    head = LaunchHeader(found, where, *sizes, wanted=not as_json and sarif_file != "-")
    check = partial(check_launch, found, values, shared, where)
    try:
        with patience(f"launching {found.function.shown}") as progress:
            if isolated:
                from fragmenta.commands.isolated import launch as ask

                result, picture = ask(found, sizes, values, options, bool(timeline))
            else:
                options |= {"replay": window, "progress": head.after(check, progress)}
                result = found.launch(*sizes, values, **options)
    except KernelError as fault:
        _keep_fault(save_schedule, replay, fault, force)
        report_fault(file, fault, sarif_file, force, as_json)
        raise typer.Exit(NOTHING) from None
    _save_schedule(save_schedule, result := judged(result), force)
    changes = _changes(found, given, before)
    for index, path in places.items():
        save_array(path, given[index].elements, force, ignore_progress)  # type: ignore[arg-type]
    write_sarif(sarif_file, ((file, each) for each in every_problem(result)), force)
    recorded = _write(
        timeline,
        picture,
        replay,
        result,
        beside,
        partial(_once_more, found, sizes, arg or (), options),
        force,
    )
    done = _Done(file, found, *sizes, where, result, changes)
    if as_json:
        emit_json(
            {
                **done.to_json(),
                **counter_fields(found, result, card),
                **numerics_fields(result),
                **replay_fields(recorded),
            }
        )
    elif sarif_file != "-":
        head.show()
        emit("\n".join([done.to_text(), *counter_lines(found, result, card)]))
        for each in numbered(file, result.problems, done.shown, bool(timeline)):
            show_problems(f"\n{each}", err=False)
        emit_numerics(result)
        emit_replay(replay, recorded)
    if any(each.severity == ERROR for each in (*done.shown, *born(result))):
        raise typer.Exit(NOTHING)


def is_recorded(words: Sequence[str]) -> bool:
    """Whether a recording is given; a kernel's file loads nothing for it."""
    if not words or not words[0].endswith(".npz"):
        return False
    from fragmenta.commands.recorded_launches import is_recording

    return is_recording(words[0])


def _launch_recorded(
    words: Sequence[str], refused: Mapping[str, object], how: How, as_json: bool
) -> None:
    from fragmenta.commands.recorded_launches import launch_recorded

    launch_recorded(words, refused, how, as_json)


def _check_isolated(isolated: bool, alone: dict[str, bool]) -> None:
    """Refuse what a process of its own does not do."""
    for name, given in alone.items():
        if isolated and given:
            raise BadCall(f"{name} cannot be combined with --isolated")


def _check_files(
    timeline: str | None, schedule: str | None, no_check: bool, force: bool
) -> None:
    """Refuse files that cannot be written, before anything is computed."""
    if schedule is not None:
        check_output(schedule, force, ".json", option="--save-schedule")
    if timeline is not None:
        if no_check:
            raise BadCall(
                "--timeline needs the launch to be watched, without --no-check"
            )
        picture_format(timeline)
        check_output(timeline, force, option="--timeline")


def _write(
    timeline: str | None,
    picture: str,
    replay: str | None,
    result: Result,
    beside: Beside,
    again: Relaunch,
    force: bool,
) -> Replay | None:
    """Write what shows the launch; the record of its steps."""
    if timeline is not None:
        _draw(timeline, picture, result, again, force)
    return write_replay(replay, result, force, beside)


def _once_more(
    kernel: Kernel,
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    texts: Sequence[str],
    options: LaunchOptions,
    schedule: str | int | None,
    blocks: tuple[int, ...] = (),
) -> Result | None:
    """The same launch on new arrays, for its picture; some blocks keep their events."""
    values = for_kernel([each.value for each in read_arguments(texts)])
    more: LaunchOptions = {**options, "counters": False, "numerics": False}
    more |= {"orders": None, "progress": ignore_progress}
    if schedule is not None:
        more["schedule"] = schedule
    more["replay"] = Window(blocks, most=1) if blocks else False
    try:
        return kernel.launch(*sizes, values, **more)
    except KernelError:
        return None


def _draw(
    path: str,
    picture: str,
    result: Result,
    again: Relaunch,
    force: bool,
) -> None:
    """Write the picture of a launch; one that was isolated has drawn it."""
    from fragmenta.inspect.view.svg import convert
    from fragmenta.inspect.view.timeline import timeline

    drawn = picture or str(timeline(result, again=again))
    save_bytes(path, convert(drawn, picture_format(path)), force)


def _keep_fault(
    schedule: str | None, replay: str | None, fault: KernelError, force: bool
) -> None:
    """Write what shows a launch that was stopped."""
    _save_schedule(schedule, fault, force)
    write_fault(replay, fault, force)


def _save_schedule(path: str | None, of: Result | KernelError, force: bool) -> None:
    """Write the schedule of a run, also of one that failed."""
    if path is not None:
        save_bytes(path, json.dumps(of.schedule).encode(), force)


@contextmanager
def patience(title: str) -> Iterator[Progress]:
    """Show progress after a second: a bar in a terminal, else lines."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    with (bar if terminal else lines)(title) as progress:
        yield progress


def _places(
    texts: Sequence[str], given: Sequence[LaunchArgument], force: bool
) -> dict[int, str]:
    """The file of each array of ``--save``, checked."""
    found: dict[int, str] = {}
    arrays = [i for i, each in enumerate(given) if each.elements is not None]
    for text in texts:
        index, _, path = text.partition("=")
        if not path or not index.strip().isdecimal():
            raise BadCall(
                f"--save takes INDEX=FILE.npy, such as 2=c.npy; given {shortened(text)}"
            )
        number = int(index[:9])
        if number not in arrays:
            have = f"arrays are {one_of(arrays, 'and')}" if arrays else "none is"
            raise BadCall(f"--save {text}: argument {index} is no array; {have}")
        check_output(path, force, ".npy", option="--save")
        if number in found or path in found.values():
            raise BadCall(f"--save {text}: an array has one file, and a file one array")
        found[number] = path
    return found


# ── what happened ───────────────────────────────────────────────────────────


class _Change(NamedTuple):
    """The changes of an array by a launch."""

    argument: int
    name: str
    type: str
    shape: tuple[int, ...]
    changed: int
    size: int
    least: float | None
    most: float | None
    nan: int | None


def _changes(
    kernel: Kernel, given: Sequence[LaunchArgument], before: Sequence[bytes]
) -> list[_Change]:
    found = []
    for index, (each, old) in enumerate(zip(given, before, strict=True)):
        array = each.elements
        if array is None:
            continue
        new = np.frombuffer(array.tobytes(), np.uint8)
        items = (new != np.frombuffer(old, np.uint8)).reshape(-1, array.itemsize)
        name = kernel.parameter_name(index)
        changed = int(items.any(axis=1).sum())
        kind = each.spec["type"]
        found.append(
            _Change(index, name, kind, array.shape, changed, array.size, *_range(array))
        )
    return found


def _range(array: Array) -> tuple[float | None, float | None, int | None]:
    """The least and the largest value, and how many are NaN."""
    if array.dtype.kind in "iub" and array.size:
        return int(array.min()), int(array.max()), None
    wide = array.astype(np.float64)
    numbers = wide[~np.isnan(wide)]
    ends = (float(numbers.min()), float(numbers.max())) if numbers.size else (None,) * 2
    return *ends, int(wide.size - numbers.size)


def check_launch(
    kernel: Kernel, values: Sequence[object], shared: int, target: str
) -> None:
    """Refuse arguments and shared memory as a launch does, but before it compiles."""
    Arguments(kernel.function, values, kernel.names)
    if shared:
        static = shared_bytes(kernel.loaded.module, kernel.function)
        check_shared(static, shared, target)


class LaunchHeader:
    """The first lines, which are printed before the launch: what is being done."""

    def __init__(
        self,
        kernel: Kernel,
        target: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        wanted: bool,
    ) -> None:
        self._wanted = wanted
        self._rows = [
            ("kernel", [signature(kernel.name)]),
            ("target", [target]),
            ("grid", [size_text(grid)]),
            ("block", [size_text(block)]),
        ]

    def show(self) -> None:
        """Print them, unless they are printed."""
        if self._wanted:
            self._wanted = False
            emit("\n".join(_lines_of(self._rows)))

    def after(self, check: Callable[[], object], progress: Progress) -> Progress:
        """Progress that prints them when the launch begins, its options checked."""

        def shown(done: float) -> None:
            if self._wanted:
                check()
            self.show()
            progress(done)

        return shown


def _lines_of(rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Rows of a title and its lines."""
    return [
        f"{title if not number else '':<14}{text}"
        for title, texts in rows
        for number, text in enumerate(texts)
    ]


class _Done(NamedTuple):
    """A launch that ended without a fault."""

    file: str
    kernel: Kernel
    grid: tuple[int, ...]
    block: tuple[int, ...]
    target: str
    result: Result
    changes: list[_Change]

    def to_json(self) -> dict[str, object]:
        """The launch as JSON."""
        result = self.result
        return {
            "kernel": self.kernel.name,
            "target": self.target,
            "grid": list(self.grid),
            "block": list(self.block),
            **result_fields(result),
            "arrays": [
                {**each._asdict(), "shape": list(each.shape)} for each in self.changes
            ],
        }

    @property
    def shown(self) -> list[Problem]:
        """Problems to print: errors, and hazards of this launch."""
        hazards = {id(each) for each in self.result.hazards}
        return [
            each
            for each in self.result.problems
            if each.severity == ERROR or id(each) in hazards
        ]

    def _problems(self) -> list[str]:
        """How many problems there are, and which command prints the others."""
        said, result = counts(self.result.problems), self.result
        if not said:
            return []
        others = len(result.problems) > len(self.shown)
        return [one_of(said, "and") + (f"; see fragmenta check {self.file}" * others)]

    def _orders(self) -> list[str]:
        """What all orders show, if they were explored."""
        if self.result.orders is None:
            return []
        return textwrap.wrap(self.result.orders.summary, width() - 14)

    def to_text(self) -> str:
        """A short table without its head, and what the kernel printed."""
        result = self.result
        sure = [
            f"{_share(count, result.instructions)} {FIDELITY.get(kind, kind)}"
            for kind, count in result.fidelity.items()
        ]
        often = [f"{name} {count:,}" for name, count in result.counts.items()]
        rows = [
            ("instructions", [f"{result.instructions:,} of warps"]),
            ("seconds", [f"{result.seconds:.3g}"]),
            ("fidelity", sure),
            ("opcodes", often[:MOST_OPCODES]),
            ("problems", self._problems()),
            ("orders", self._orders()),
        ]
        lines = _lines_of(rows)
        lines += ["", *_table(self.changes)] if self.changes else []
        if result.output:
            lines += ["", "printed", result.output.rstrip("\n")]
        return "\n".join(lines)


def _share(count: int, whole: int) -> str:
    return f"{100 * count / max(1, whole):5.1f} %"


def _table(changes: Sequence[_Change]) -> list[str]:
    """The arrays, one in a line; long names are cut to fit the width."""
    head = ("array", "type", "shape", "changed", "min", "max", "NaN")
    rows = [head] + [
        (
            f"{each.argument} {each.name}",
            each.type,
            "x".join(map(str, each.shape)) or "1",
            f"{each.changed:,}" if each.changed else "none",
            *("" if end is None else f"{end:.5g}" for end in (each.least, each.most)),
            "" if each.nan is None else str(each.nan),
        )
        for each in changes
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    over = sum(widths) + 2 * (len(head) - 1) - width()
    widths[0] = max(5, widths[0] - max(0, over))
    return [
        "  ".join(
            (_cut(text, size).ljust if i < 3 else text.rjust)(size)
            for i, (text, size) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def report_fault(
    file: str, fault: KernelError, sarif_file: str | None, force: bool, as_json: bool
) -> None:
    """Write a fault to the SARIF file, and print it unless that is the output."""
    write_sarif(sarif_file, ((file, each) for each in of_fault(fault)), force)
    if sarif_file != "-":
        _print_fault(file, fault, as_json)


def _print_fault(file: str, fault: KernelError, as_json: bool) -> None:
    """Print a fault as compilers print errors, or as JSON."""
    if as_json:
        emit_json({"file": file, **fault_fields(fault)})
        return
    if fault.output:
        emit(fault.output.rstrip("\n"))
    if isinstance(fault, KernelHazard):
        found = problems_of(fault)
        texts = numbered(file, found, found, is_terminal(err=True))
        said = "\n\n".join([*texts, ", ".join(counts(found))])
        show_problems(said, err=True)
        return
    hint = fault_hint(fault)
    said = f"{fault}\n  hint: {hint}" if hint else str(fault)
    complain(f"{fault_place(file, fault)}: error: {printable(said)}")


# ── the list ────────────────────────────────────────────────────────────────


def _list(named: KernelSelection, target: str | None, as_json: bool) -> None:
    chosen = [kernel for _, kernel in named.all(target)]
    if not chosen and named.name is not None:
        chosen = [named.one(target)[1]]
    if not chosen:
        files = one_of([each.path for each in named.files], "and")
        complain(f"{files} has no kernels")
        raise typer.Exit(NOTHING)
    if as_json:
        emit_json([_described(each) for each in chosen])
    else:
        emit("\n".join(line for each in chosen for line in _lines(each)))


def _described(kernel: Kernel) -> dict[str, object]:
    return {
        "kernel": kernel.name,
        "target": kernel.loaded.module.target,
        "parameters": [
            {**each._asdict(), "pointer": _points(variable)}
            for each, variable in zip(
                kernel.parameters, kernel.function.parameters, strict=True
            )
        ],
        "directives": {k: list(v) for k, v in kernel.function.directives.items()},
    }


def _points(variable: Variable) -> bool:
    """Whether a parameter is declared as a pointer."""
    return "ptr" in variable.attributes


def _lines(kernel: Kernel) -> list[str]:
    lines = [f"{signature(kernel.name)}  {kernel.loaded.module.target}"]
    for title, numbers in kernel.function.directives.items():
        lines.append(f"  .{title} {' '.join(map(str, numbers))}".rstrip())
    for index, variable in enumerate(kernel.function.parameters):
        kind = f".{variable.type}"
        if variable.elements != 1:
            kind += f"[{variable.elements}]"
        more = " ".join(variable.attributes)
        name = kernel.parameter_name(index)
        lines.append(f"  {index:>2}  {kind:<8} {name}  {more}".rstrip())
    return lines
