"""What numerics found, in a record: errors of arrays, of instructions, and problems.

The errors of an element over time are in :mod:`fragmenta.inspect.replay.moments`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fragmenta.inspect.replay.left_out import joined
from fragmenta.inspect.replay.moments import Moments, ends_of, error_words
from fragmenta.inspect.replay.parts import COLUMNS, ERRORS, MOMENTS, Array, Columns, Row
from fragmenta.inspect.replay.problems import problem_row
from fragmenta.inspect.replay.recorded import Replay
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.module import Instruction, demangled
from fragmenta.values.numerics.report import Numerics, Site, ThreadVisit
from fragmenta.values.numerics.seconds import kind_of

MOST_ERRORS = 1 << 16
"""Elements of all arrays whose errors are kept."""
MOST_MOMENTS = 1 << 18
"""Errors of all arrays over time that are kept."""


class RecordedErrors(NamedTuple):
    """The errors of a record: rows of its head, its columns, and what is left out."""

    head: Row
    columns: Columns
    left_out: str


def errors_of(replay: Replay, found: Numerics, alone: bool = True) -> RecordedErrors:
    """The errors of arrays and of instructions.

    ``alone``: all blocks of the launch are recorded.
    """
    outputs: list[Row] = []
    parts: dict[str, list[Array]] = {name: [] for name in (*ERRORS, *MOMENTS)}
    names = [each.name for each in replay.memories]
    moments, few = Moments(replay, found.kept, alone), []
    left, at, large = MOST_ERRORS, 0, []
    some, begin = MOST_MOMENTS, 0
    for output in found.outputs.values():
        if output.name not in names:
            continue
        if output.held.size > left:
            large.append(output.shown)
            continue
        left -= output.held.size
        number = names.index(output.name)
        times = moments.of(number, output)
        if times["h_step"].size > some:
            few.append(output.shown)
            times = ends_of(times)
        count = times["h_step"].size
        some -= count
        outputs.append(
            {
                "memory": number,
                "each": kind_of(output.format).bits // 8,
                "count": output.held.size,
                "at": at,
                "most": kind_of(output.format).precision,
                "from": begin,
                "moments": count,
            }
        )
        at, begin = at + output.held.size, begin + count
        words = error_words(output.seconds, output.format, "e")
        for name, data in (words | times).items():
            parts[name].append(data)
    columns = {
        name: np.concatenate([np.empty(0, COLUMNS[name]), *some])
        for name, some in parts.items()
    }
    said = joined(_left_out(large, few), _unkept(found))
    return RecordedErrors(
        {"outputs": outputs, "sites": _sites(replay, found)}, columns, said
    )


def _left_out(large: list[str], few: list[str]) -> str:
    """Which errors are not kept."""
    said = ""
    if large:
        said = (
            f"errors of {' and '.join(large)} are not kept: all arrays together may "
            f"have {MOST_ERRORS:,} elements with errors"
        )
    if few:
        more = f"errors of {' and '.join(few)} are kept from the last writes on"
        said = joined(said, more)
    return said


def _unkept(found: Numerics) -> str:
    kept = found.kept
    return "errors of later stores are not kept" if kept and kept.lost else ""


# ── instructions ────────────────────────────────────────────────────────────


def _sites(replay: Replay, found: Numerics) -> list[Row]:
    """What each instruction lost, those that lost nothing left out."""
    numbers = {(e.function, e.index): n for n, e in enumerate(replay.sites)}
    made = []
    for each in found.instructions:
        number = numbers.get((demangled(each.function), each.index))
        bits = _bits(each)
        if number is None or (bits < 1 and each.worst_ulp <= 1):
            continue
        made.append({"site": number, "bits": round(bits, 1), "words": _words(each)})
    return made


def _bits(site: Site) -> float:
    """The bits that the worst result of an instruction has lost."""
    precision = kind_of(_format(site.instruction)).precision
    if not math.isfinite(site.worst_relative):
        return float(precision)
    lost = math.log2(site.worst_relative) if site.worst_relative > 0 else -precision
    return min(max(lost + precision, 0.0), float(precision))


def _format(instruction: Instruction) -> str:
    """The format of what an instruction writes."""
    known = ("f64", "f32", "f16", "bf16", "e4m3", "e5m2")
    named = [each.removesuffix("x2") for each in instruction.qualifiers]
    return next((each for each in named if each in known), "f32")


def _words(site: Site) -> str:
    said = [
        f"{site.mnemonic}: a result has a relative error of {site.worst_relative:.3g}",
        f"it adds at most {site.worst_ulp:.3g} ulp itself",
    ]
    if site.cancelled_bits >= 1:
        said.append(f"{site.cancelled_bits:.0f} bits cancel")
    if site.share >= 0.01:
        said.append(f"{site.share:.0%} of the errors of the outputs come from here")
    return "; ".join(said)


# ── problems ────────────────────────────────────────────────────────────────


def lost_problems(replay: Replay, found: Numerics, first: int) -> list[Row]:
    """The findings as problems, with their steps; ``first`` is the first number."""
    return [
        problem_row(number, each, steps=[-1, _step(replay, found, each)])
        for number, each in enumerate(found.problems, first)
    ]


def _step(replay: Replay, found: Numerics, problem: Problem) -> int:
    """The step that a finding is about; -1 if it is not recorded."""
    ways = [each.born for each in (*found.births, *found.notes)]
    for each in ways:
        if _is_about(problem, each.function, each.instruction):
            return _executed(replay, each.function, each.at, each.thread)
    for site in found.instructions:
        if _is_about(problem, site.function, site.instruction):
            worst = site.other if site.other and _other(problem) else site.worst
            return _executed(replay, site.function, site.index, worst.thread)
    return -1


def _other(problem: Problem) -> bool:
    return problem.rule == rules.OTHER_BRANCH.name


def _is_about(problem: Problem, function: str, instruction: Instruction) -> bool:
    return problem.function == function and problem.line == instruction.line


def _executed(replay: Replay, function: str, index: int, thread: ThreadVisit) -> int:
    """The step at which a thread executed an instruction."""
    x, y, z = thread.block
    wide, high, _ = replay.grid
    block = x + wide * (y + high * z)
    x, y, z = thread.thread
    wide, high, _ = replay.block
    warp, lane = divmod(x + wide * (y + high * z), 32)
    key = demangled(function), index
    sites = [n for n, e in enumerate(replay.sites) if (e.function, e.index) == key]
    owners = [
        n for n, e in enumerate(replay.warps) if (e.block, e.warp) == (block, warp)
    ]
    if not sites or not owners:
        return -1
    steps = replay.steps_of_warp(owners[0])
    active = replay.steps.lanes[steps] >> np.uint32(lane) & np.uint32(1)
    mine = steps[(replay.steps.site[steps] == sites[0]) & (active > 0)]
    return int(mine[min(thread.iteration, mine.size - 1)]) if mine.size else -1
