"""The command ``orders``: explores all orders in which a launch can synchronise."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.files import Force, SarifFile
from fragmenta.commands.launch import (
    LaunchHeader,
    check_launch,
    is_recorded,
    patience,
    report_fault,
)
from fragmenta.commands.launch_arguments import (
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
    Shared,
    Target,
    sides,
    split_flags,
)
from fragmenta.commands.options import AsJson, Seconds
from fragmenta.commands.output import emit, emit_json, printable, width
from fragmenta.commands.problems import (
    check_sarif,
    problem_text,
    write_sarif,
)
from fragmenta.commands.targets import target_of
from fragmenta.errors import KernelError
from fragmenta.inspect.evidence.arguments import for_kernel
from fragmenta.launch.instruments import MOST_STATES, Watch
from fragmenta.launch.limits import OUTPUT, SECONDS, Limits
from fragmenta.launch.request import LaunchOptions
from fragmenta.ptx import rules
from fragmenta.ptx.rules import ERROR

if TYPE_CHECKING:
    from fragmenta.commands.recorded_launches import How


@command(
    "orders",
    "fragmenta orders kernel.ptx --block 32 --arg ones:f32:32",
    "fragmenta orders kernel.ptx --block 32 --arg ones:f32:32 --json",
    "fragmenta orders kernel.ptx --block 32 --arg ones:f32:32 --limit 20000",
    "fragmenta orders tile-1.npz",
)
def orders(
    words: KernelFiles,
    grid: Grid = "1",
    block: Block = None,
    cluster: Cluster = None,
    cooperative: Cooperative = False,
    shared: Shared = 0,
    arg: Args = None,
    target: Target = None,
    flags: Flags = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", help="The most states to look at."),
    ] = MOST_STATES,
    seconds: Seconds = SECONDS,
    sarif_file: SarifFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    r"""The arguments are those of fragmenta launch.  Choose small sizes: a few blocks,
    and loops of a few rounds.

    What warps and copies do to barriers, mbarriers and flags is recorded in one run.
    Then every order in which that can happen is explored.  The answer is that no order
    hangs, or the shortest one that does, step by step; and races that show in other
    orders only.  It says how much it is about:

    \b
      all orders       nothing was left out
      this path only   branches depend on data, which were as they were
      incomplete       --limit was reached, or something could not be recorded

    If an order hangs, that is the verdict.  The exit status is 1 then, and if an order
    has another error.

    A recording of launches, a .npz file, is launched as it was recorded, and every
    launch is explored.
    """
    target = target_of(target)
    if is_recorded(words):
        from fragmenta.commands.recorded_launches import launch_recorded

        refused = {
            "--arg": arg,
            "--block": block,
            "--cluster": cluster,
            "--shared": shared,
            "--cooperative": cooperative,
            "--sarif": sarif_file,
        }
        how: How = {
            "watch": Watch("report"),
            "limits": Limits(seconds, None, OUTPUT, None),
            "target": target,
            "orders": limit,
        }
        launch_recorded(words, refused, how, as_json)
        return
    file, found = read_files(words, target, split_flags(flags)).one(target)
    given = read_arguments(arg or ())
    check_parameters(found, given)
    check_sarif(sarif_file, force, as_json)
    sizes = sides(grid, "--grid"), block_of(found, block)
    options: LaunchOptions = {
        "target": target,
        "shared": shared,
        "contract": True,
        "watch": Watch("report"),
        "cooperative": cooperative,
        "cluster": None if cluster is None else sides(cluster, "--cluster"),
        "limits": Limits(seconds, None, OUTPUT, None),
        "orders": limit,
    }
    values = for_kernel([each.value for each in given])
    where = target or found.loaded.module.target
    head = LaunchHeader(found, where, *sizes, wanted=not as_json and sarif_file != "-")
    check = partial(check_launch, found, values, shared, where)
    try:
        with patience(f"exploring {found.function.shown}") as progress:
            options["progress"] = head.after(check, progress)
            result = found.launch(*sizes, values, **options)
    except KernelError as fault:
        report_fault(file, fault, sarif_file, force, as_json)
        raise typer.Exit(NOTHING) from None
    assert result.orders is not None  # it was asked for
    problems = [each for each in result.problems if each.severity == ERROR]
    write_sarif(sarif_file, ((file, each) for each in result.problems), force)
    if as_json:
        listed = [each.to_dict() for each in result.problems]
        emit_json({"kernel": found.name, **result.orders.to_dict(), "problems": listed})
    elif sarif_file != "-":
        head.show()
        emit(printable(result.orders.text(width())))
        for each in problems:
            if not (result.orders.hangs and each.rule == rules.DEADLOCK.name):
                emit(f"\n{problem_text(file, each, with_rule=True)}")
    if problems:
        raise typer.Exit(NOTHING)
