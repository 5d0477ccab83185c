"""Recordings for the debugger: made by a launch, or read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fragmenta.commands.debug_options import How
from fragmenta.commands.launch import patience
from fragmenta.commands.launch_arguments import (
    block_of,
    check_parameters,
    read_arguments,
    read_files,
)
from fragmenta.commands.launch_options import schedules_of, sides, split_flags
from fragmenta.commands.replays import window_of
from fragmenta.commands.targets import target_of
from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.inspect.evidence import launches
from fragmenta.inspect.evidence.arguments import for_kernel
from fragmenta.inspect.replay.making import replay_of
from fragmenta.inspect.replay.recorded import Replay
from fragmenta.launch.instruments import Watch
from fragmenta.launch.result import Result


def recorded(how: How) -> Replay:
    """The recording of a launch: read from a file, or made."""
    words = how.words or []
    if words[0].endswith(".npz"):
        return _of_archive(words, how)
    target = target_of(how.target)
    _, found = read_files(words, target, split_flags(how.flags)).one(target)
    given = read_arguments(how.arg or ())
    check_parameters(found, given)
    sizes = sides(how.grid, "--grid"), block_of(found, how.block)
    with patience(f"recording {found.function.shown}") as progress:
        result = found.launch(
            *sizes,
            for_kernel([each.value for each in given]),
            target=target,
            shared=how.shared,
            contract=not how.no_contract,
            watch=Watch("report"),
            cooperative=how.cooperative,
            cluster=None if how.cluster is None else sides(how.cluster, "--cluster"),
            limits=how.limits,
            replay=window_of(how.blocks, how.replay_from),
            progress=progress,
            schedule=schedules_of(how.schedule, None),
        )
    return replay_of(result)


def _of_archive(words: Sequence[str], how: How) -> Replay:
    """A replay that was saved, or a launch that was recorded."""
    path = Path(words[0])
    if not path.is_file():
        raise BadCall(f"{words[0]} is no file")
    if not launches.is_recording(path):
        if len(words) > 1:
            raise BadCall(f"{words[0]} is a replay, which is of one launch")
        return Replay.load(path)
    return replay_of(_launched(path, words[1:], how))


def _launched(path: Path, name: Sequence[str], how: How) -> Result:
    """A launch of a recording, which has the arguments."""
    found = launches.load(path)
    named = {each.name: each for each in found.launches}
    if not name and len(named) == 1:
        name = list(named)
    if len(name) != 1 or name[0] not in named:
        wanted = "".join(name)
        have = one_of(named, "and")
        raise BadCall(
            f"{path} has the launches {have}; name one{nearest(wanted, named)}"
        )
    launch = named[name[0]]
    kernel = found.kernel(launch)
    launches.check_room(launch, how.limits)
    given = launches.Started(found, launch, kernel).given
    with patience(f"recording {kernel.function.shown}") as progress:
        return kernel.launch(
            launch.grid,
            launch.block,
            given,
            cluster=launch.cluster,
            cooperative=launch.cooperative,
            shared=launch.shared,
            target=target_of(how.target) or found.made["target"],
            watch=Watch("report"),
            limits=how.limits,
            replay=window_of(how.blocks, how.replay_from),
            progress=progress,
            schedule=schedules_of(how.schedule, None),
        )
