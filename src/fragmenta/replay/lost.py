"""What numerics found, in a record: errors of arrays, of instructions, and problems.

The errors of an element are those of its last value.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fragmenta.numerics.report import Numerics, Output, Site, Thread
from fragmenta.numerics.seconds import kind_of
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.module import Instruction, demangled
from fragmenta.replay.parts import COLUMNS, Array, Columns, Row
from fragmenta.replay.problems import problem_row
from fragmenta.replay.recorded import Replay

MOST_ERRORS = 1 << 16
"""Elements of all arrays whose errors are kept."""


class Errors(NamedTuple):
    """The errors of a record: rows of its head, its columns, and what is left out."""

    head: Row
    columns: Columns
    left_out: str


def errors_of(replay: Replay, found: Numerics, alone: bool = True) -> Errors:
    """The errors of arrays and of instructions."""
    outputs: list[Row] = []
    parts: dict[str, list[Array]] = {name: [] for name in ERROR_COLUMNS}
    names = [each.name for each in replay.memories]
    left, at, large = MOST_ERRORS, 0, []
    for output in found.outputs.values():
        if output.name not in names:
            continue
        if output.held.size > left:
            large.append(output.shown)
            continue
        left -= output.held.size
        outputs.append(
            {
                "memory": names.index(output.name),
                "each": kind_of(output.format).bits // 8,
                "count": output.held.size,
                "at": at,
                "most": kind_of(output.format).precision,
            }
        )
        at += output.held.size
        for name, data in _columns(output).items():
            parts[name].append(data)
    columns = {
        name: np.concatenate([np.empty(0, COLUMNS[name]), *some])
        for name, some in parts.items()
    }
    said = f"errors of {' and '.join(large)} are not kept: all arrays together may have"
    said = f"{said} {MOST_ERRORS:,} elements with errors" if large else ""
    return Errors({"outputs": outputs, "sites": _sites(replay, found)}, columns, said)


ERROR_COLUMNS = tuple(each for each in COLUMNS if each.startswith("e_"))


def _columns(output: Output) -> Columns:
    """Errors in the order of memory; the bits of floats as words."""
    seconds = output.seconds
    with np.errstate(over="ignore", invalid="ignore"):
        exact = np.ascontiguousarray(seconds.exact + seconds.lower, np.float64)
        flat = {
            "e_error": seconds.error,
            "e_ulp": _flat(output, output.ulp),
            "e_lost": _flat(output, output.lost_bits),
        }
        found = {
            name: np.ascontiguousarray(data, np.float32).view(np.uint32)
            for name, data in flat.items()
        }
    return {"e_exact": exact.view(np.uint32), **found}


def _flat(output: Output, shaped: Array) -> Array:
    """The elements of an array in the order of memory."""
    order = "C" if output.elements is None else output.elements.order
    return shaped.reshape(-1, order=order)


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


def _executed(replay: Replay, function: str, index: int, thread: Thread) -> int:
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
