"""Recording launches of kernels, and replaying recorded ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NotRequired, TypedDict, final

import typer

from fragmenta.base.progress import bar, ignore_progress
from fragmenta.commands.files import check_output, save_arrays, size_text
from fragmenta.commands.launch_arguments import (
    block_of,
    check_parameters,
    find_kernel,
    read_arguments,
)
from fragmenta.commands.launch_options import sides
from fragmenta.commands.numerics import lost
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.cuda.tools import device
from fragmenta.engine.units.schedule import Given
from fragmenta.errors import BadCall, one_of
from fragmenta.inspect.evidence import launches
from fragmenta.inspect.evidence.launches import Replayed
from fragmenta.launch.instruments import Watch
from fragmenta.launch.limits import Limits
from fragmenta.ptx.rules import ERROR

Sizes = tuple[str, str | None, int]
"""Grid and block as written, and the bytes of shared memory."""


def record_launch(
    file: str,
    name: str | None,
    sizes: Sizes,
    arguments: list[str] | None,
    output: str | None,
    force: bool,
) -> None:
    """Launch a kernel on the GPU and write what it changed."""
    gpu = device.present()
    if output is None:
        raise BadCall("--output is missing: which .npz file shall keep the launch?")
    check_output(output, force, ".npz")
    kernel = find_kernel(file, name)
    given = read_arguments(arguments or ())
    check_parameters(kernel, given)
    writer = launches.record(
        kernel,
        sides(sizes[0], "--grid"),
        block_of(kernel, sizes[1]),
        [each.spec for each in given],
        [each.value for each in given],
        shared=sizes[2],
        gpu=gpu,
    )
    save_arrays(output, writer.arrays(), force, ignore_progress)
    emit(device.describe(gpu.versions()))
    emit(f"{output}  1 launch, {Path(output).stat().st_size:,} bytes")


class LaunchRecord(TypedDict):
    """What came of one launch, for programs."""

    name: str
    kernel: str
    grid: list[int]
    block: list[int]
    bytes: int
    differing_bytes: int
    same: bool
    told: list[str]
    differences: list[dict[str, object]]
    problems: list[dict[str, object]]
    numerics: NotRequired[dict[str, object]]
    """What it lost, if that was asked for; ``report`` is the text."""
    orders: NotRequired[dict[str, object]]
    """What all orders of it show, if that was asked for; ``report`` is the text."""


@final
class FileRecord(TypedDict):
    """What came of the launches of a file."""

    file: str
    made: Mapping[str, str]
    launches: list[LaunchRecord]


class How(TypedDict, total=False):
    """How recorded launches are run."""

    watch: bool | Watch
    schedule: Given | Sequence[Given]
    limits: Limits
    target: str | None
    numerics: bool
    orders: str | int | None


def replayed_launches(path: Path, how: How | None = None) -> FileRecord:
    """One file: what each launch does here, and how that differs."""
    found = launches.load(path)
    done = []
    with bar(path.name) as progress:
        for each in launches.replay(found, **(how or {})):
            done.append(_described(each))
            progress(len(done) / len(found.launches))
    return {"file": str(path), "made": found.made, "launches": done}


def is_recording(file: str) -> bool:
    """Whether a recording is given in the place of a kernel's file."""
    path = Path(file)
    return path.is_file() and launches.is_recording(path)


def launch_recorded(
    words: Sequence[str], refused: Mapping[str, object], how: How, as_json: bool
) -> None:
    """Launch what was recorded; the exit status is 1 if it differs or has errors.

    ``refused`` are options that say what the recording says.
    """
    given = [name for name, value in refused.items() if value]
    if given or len(words) > 1:
        what = one_of(given or list(words[1:]), "and")
        raise BadCall(f"{words[0]} is a recording, which says all of it; given {what}")
    result = replayed_launches(Path(words[0]), how)
    if as_json:
        emit_json(result)
    else:
        emit("\n".join(launch_lines(result)))
    if different(result) or any(map(_is_wrong, result["launches"])):
        raise typer.Exit(1)


def _is_wrong(each: LaunchRecord) -> bool:
    """Whether a launch has a problem, or an error that numerics found."""
    lost = each["numerics"]["problems"] if "numerics" in each else []
    assert isinstance(lost, list)
    return bool(each["problems"]) or any(e["severity"] == ERROR for e in lost)


def _described(each: Replayed) -> LaunchRecord:
    launch = each.launch
    made: LaunchRecord = {
        "name": launch.name,
        "kernel": launch.entry,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "bytes": each.bytes,
        "differing_bytes": sum(wrong.count for wrong in each.differences),
        "same": each.same,
        "told": each.lines,
        "differences": [asdict(wrong) for wrong in each.differences],
        "problems": [wrong.to_dict() for wrong in each.hazards],
    }
    if each.numerics is not None:
        made["numerics"] = {**lost(each.numerics), "report": str(each.numerics)}
    if each.orders is not None:
        made["orders"] = {
            **each.orders.to_dict(),
            "report": each.orders.text(width() - 4),
        }
    return made


def different(result: FileRecord) -> bool:
    """Whether any launch of a file differs."""
    return not all(each["same"] for each in result["launches"])


def maker(made: Mapping[str, str]) -> str:
    """Who recorded it, and when."""
    return f"({made.get('gpu', '?')}, {made.get('date', '?')})"


def launch_lines(result: FileRecord) -> list[str]:
    """A line for the file, and one for each launch."""
    done = result["launches"]
    wrong = sum(not each["same"] for each in done)
    how = f"{wrong} differ" if wrong else "no byte differs"
    lines = [
        f"{len(done):>6} launches  {how}  {result['file']}  {maker(result['made'])}"
    ]
    longest = min(40, max(len(each["name"]) for each in done))
    for each in done:
        sizes = f"{size_text(_short(each['grid']))}, {size_text(_short(each['block']))}"
        bytes_differ = f"{each['differing_bytes']:,} bytes differ"
        state = "same" if each["same"] else bytes_differ
        lines.append(
            f"  {each['name']:<{longest}}  {sizes:<14} "
            f"{each['bytes']:>9,} bytes  {state}"
        )
        texts = [*each["told"], *(str(wrong["message"]) for wrong in each["problems"])]
        if "orders" in each:
            texts.append(str(each["orders"]["report"]))
        lines += [f"    {text}" for words in texts for text in words.splitlines()]
        if "numerics" in each:
            lines += ["", str(each["numerics"]["report"]), ""]
    return lines


def _short(sides: list[int]) -> tuple[int, ...]:
    """Without ones at the end."""
    kept = sides[:]
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return tuple(kept)
