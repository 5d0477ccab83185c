"""What a debugger tells: where it stands, what is around, who did what."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fragmenta.errors import BadCall
from fragmenta.inspect.debugging.debugger import Breakpoint, Debugger, Stop
from fragmenta.inspect.debugging.places import MemoryRange
from fragmenta.inspect.debugging.printing import lanes_text
from fragmenta.inspect.debugging.records import UnitHistory

if TYPE_CHECKING:
    from fragmenta.inspect.replay.parts import Access

AROUND = 5
"""Lines of source before and after the line in view."""
MOST_READS = 4
"""Reads of a byte that are listed."""
MOST_LISTED = 40
"""Lines of a list; then it says how many more there are."""


def short(text: str, most: int) -> str:
    r"""A text in one line, cut to fit.

    >>> short("add.f32  %f1,\n %f2, %f3;", 12)
    'add.f32 %f1…'
    """
    plain = " ".join(text.split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def wrapped(line: str, width: int) -> list[str]:
    """A line in pieces that fit."""
    if len(line) <= width:
        return [line]
    margin = len(line) - len(line.lstrip())
    return textwrap.wrap(
        line,
        width,
        initial_indent="",
        subsequent_indent=" " * (margin + 2),
        break_on_hyphens=False,
    )


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "step"), counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def most(lines: list[str]) -> list[str]:
    """The first lines of a long list."""
    rest = len(lines) - MOST_LISTED
    return lines if rest <= 0 else [*lines[:MOST_LISTED], f"… and {rest:,} more"]


# ── where it stands ─────────────────────────────────────────────────────────


def summary(at: Debugger) -> list[str]:
    """The launch that is recorded."""
    of = at.replay
    problems = counted(len(at.problems), "problem")
    steps = f"{counted(len(of), 'step')} of {counted(len(of.warps), 'warp')}"
    line = f"{of.kernel}, {of.target}, schedule {of.schedule}: {steps}, {problems}"
    return [line, of.left_out] if of.left_out else [line]


def stopped(stop: Stop) -> list[str]:
    """Why it stopped."""
    return [] if stop.why in ("step", "goto") else stop.words.splitlines()


def line_text(at: Debugger, place: tuple[str, int]) -> str:
    """The text of a line, or nothing."""
    lines = at.lines.text(place[0])
    return lines[place[1] - 1].strip() if 0 < place[1] <= len(lines) else ""


def place_text(place: tuple[str, int]) -> str:
    """A file without folders, and a line.

    >>> place_text(("src/gemm.cu", 31))
    'gemm.cu:31'
    """
    return f"{place[0].rpartition('/')[2]}:{place[1]}"


def spot(at: Debugger, step: int) -> str:
    """Where a step is: in the source, or else in the PTX."""
    return place_text(at.lines.frames[int(at.moments.sites[step])][-1])


def where(at: Debugger) -> list[str]:
    """The instruction that is next, and its line."""
    step = at.current()
    head = f"step {at.moment:,} of {len(at):,}  {at.warp_name(at.warp)}"
    if step is None:
        return [f"{head}  ended"]
    site = at.moments.site(step)
    lanes = lanes_text(int(at.replay.steps.lanes[step]))
    waits = "" if step == at.moment else f", its next step is {step:,}"
    place = at.place
    assert place is not None  # there is a step
    lines = [f"{head}  {place_text(place)}  {lanes}{waits}"]
    if site.file and (text := line_text(at, place)):
        lines.append(f"{place[1]}\t{short(text, 64)}".expandtabs(8))
    lines.append(f"ptx {site.ptx_line}\t{short(site.text, 64)}".expandtabs(8))
    return lines


def backtrace(at: Debugger) -> list[str]:
    """The functions that are under way, innermost first; also those inlined."""
    found = at.frames()
    if not found:
        return [f"{at.warp_name(at.warp)} has ended"]
    texts = []
    for frame in found:
        *inner, own = at.lines.frames[int(at.moments.sites[frame.step])][::-1]
        texts += [f"inlined, {place_text(each)}" for each in inner]
        texts.append(f"{frame.site.function}, {place_text(own)}, step {frame.step:,}")
    return [f"#{number} {each}" for number, each in enumerate(texts)]


def listing(
    at: Debugger, text: str, before: tuple[str, int] | None
) -> tuple[list[str], tuple[str, int] | None]:
    """Lines around a place, or those behind what was listed last."""
    if text and text not in ("ptx", "source"):
        found = at.lines.spot(text, at.site)
        file, line = found.file, found.line
    elif before is not None and not text:
        file, line = before
    else:
        step = at.current()
        mine = at.moments.of_warp(at.warp)
        last = step if step is not None else int(mine[-1]) if len(mine) else 0
        own = at.place or at.lines.frames[int(at.moments.sites[last])][-1]
        ptx = at.lines.ptx_name, at.moments.site(last).ptx_line
        file, line = ptx if text == "ptx" or not at.lines.text(own[0]) else own
    every = at.lines.text(file)
    if not every:
        raise BadCall(f"the text of {file} was not recorded; list ptx shows the PTX")
    first = max(1, line - AROUND)
    last = min(len(every), line + AROUND)
    return _numbered(at, file, every, first, last), (file, last + AROUND + 1)


def _numbered(
    at: Debugger, file: str, every: list[str], first: int, last: int
) -> list[str]:
    """Lines with their numbers; ``>`` is in view, ``*`` has a breakpoint."""
    step = at.current()
    here = 0
    if step is not None:
        here = at.lines.line_in(file, int(at.moments.sites[step]))
        here = at.place[1] if at.place and at.place[0] == file else here
    stops = {e.place[1] for e in at.breakpoints.values() if e.place[0] == file}
    if first > last:
        return [f"{file} ends at line {len(every)}"]
    return [
        f"{'>' if number == here else '*' if number in stops else ' '}{number:>5}  "
        + every[number - 1].expandtabs(4)[:72]
        for number in range(first, last + 1)
    ]


# ── breakpoints ─────────────────────────────────────────────────────────────


def breakpoint_lines(made: Breakpoint) -> list[str]:
    """A breakpoint and how often it stops."""
    condition = f" if {made.condition_text}" if made.condition_text else ""
    times = counted(len(made.steps), "time")
    done = "written" if made.kind == "write" else "reached"
    return [f"breakpoint {made.number}: {made.text}{condition}, {done} {times}"]


# ── who ─────────────────────────────────────────────────────────────────────


def _access(at: Debugger, access: Access, verb: str) -> str:
    """One access in words."""
    when = f"{verb} at step {access.step:,} by"
    if access.unit is not None:
        return f"{when} {_unit_name(at, at.units[access.unit])}"
    number = int(at.moments.warps[access.step])
    lane = "" if access.lane is None else f" lane {access.lane}"
    site = at.moments.site(access.step)
    return (
        f"{when} {at.warp_name(number)}{lane}, {spot(at, access.step)}: "
        f"{short(site.text, 60)}"
    )


def _wrote(at: Debugger, access: Access) -> str:
    """Who wrote a byte; a unit that is in flight has filled it with poison."""
    unit = None if access.unit is None else at.units[access.unit]
    hides = unit is not None and not 0 <= unit.done <= access.step
    found = _access(at, access, "hidden" if hides else "written")
    return f"{found}: reads see poison" if hides else found


def who(at: Debugger, text: str) -> list[str]:
    """Who wrote a byte, who has read it, who may still write it."""
    span = at.span(text)
    before, place = at.moment - 1, (span.memory, span.offset)
    wrote = at.replay.writer(before, *place)
    lines = [
        f"{span.text}, before step {at.moment:,}",
        _unwritten(at, span) if wrote is None else f"  {_wrote(at, wrote)}",
    ]
    read = [e for e in at.replay.readers(before, *place) if e.step < at.moment]
    lines += [f"  {_access(at, each, 'read')}" for each in read[-MOST_READS:]]
    if len(read) > MOST_READS:
        lines.append(f"  and read {len(read) - MOST_READS:,} times before")
    for unit in at.units:
        if unit.state(at.moment) == "in flight" and span.touched_by(unit):
            lines.append(f"  may still be written by {_unit_name(at, unit)}")
    follows = at.replay.next_write(before, *place)
    if follows is not None:
        last = follows >= len(at)
        when = "after the last step" if last else f"next at step {follows:,}"
        lines.append(f"  written {when}")
    for each in at.problems:
        if span.concerned(each):
            lines.append(f"  problem {each.number}: {short(each.words, 100)}")
    return lines


def _unwritten(at: Debugger, span: MemoryRange) -> str:
    """A byte that no recorded step wrote."""
    _, states = at.replay.memory_at(-1, span.memory)
    known = bool(states[span.offset])
    return f"  {'as it was before the first step' if known else 'never written'}"


# ── lists ───────────────────────────────────────────────────────────────────


def _unit_name(at: Debugger, unit: UnitHistory) -> str:
    warp = f" of {at.warp_name(unit.warp)}" if unit.warp >= 0 else ""
    return f"unit {unit.number}, {unit.kind}{warp}, issued at step {unit.issued:,}"


def units(at: Debugger) -> list[tuple[str, str]]:
    """Asynchronous work that was issued, and its state."""
    issued = [each for each in at.units if each.issued < at.moment]
    return [(f"{each.number} {each.kind}", _unit_text(at, each)) for each in issued]


def _unit_text(at: Debugger, unit: UnitHistory) -> str:
    state = unit.state(at.moment)
    return f"{state}, {unit.bytes:,} bytes, issued at step {unit.issued:,}"


def barriers(at: Debugger) -> list[tuple[str, str]]:
    """Barriers, and what happened last at each."""
    found = []
    for each in at.barriers:
        past = [words for step, words in each.events if step < at.moment]
        found.append((each.name, past[-1] if past else "nothing yet"))
    return found


def _warps(at: Debugger, rest: str) -> list[str]:
    lines = []
    for number in range(len(at.replay.warps)):
        step = at.current(number)
        mark = ">" if number == at.warp else " "
        name = f"{mark} {number:<3} {at.warp_name(number)}"
        if step is None:
            lines.append(f"{name}  ended")
            continue
        site = at.moments.site(step)
        lanes = lanes_text(int(at.replay.steps.lanes[step]))
        lines.append(f"{name}  {spot(at, step)}  {lanes}  {short(site.text, 24)}")
    return most(lines)


def _problems(at: Debugger, rest: str) -> list[str]:
    lines = []
    for each in at.problems:
        step = f"step {each.shows:,}" if each.steps else "not among the steps"
        lines.append(f"{each.number}  {each.code}, {step}: {short(each.words, 160)}")
        if each.missing:
            lines.append(f"   missing: {each.missing}")
    return lines or ["no problems"]


def _units(at: Debugger, rest: str) -> list[str]:
    lines = [f"{name:<28} {text}" for name, text in units(at)]
    return most(lines) or ["nothing asynchronous was issued yet"]


def _barriers(at: Debugger, rest: str) -> list[str]:
    lines = [f"{name:<24} {text}" for name, text in barriers(at)]
    return most(lines) or ["the kernel uses no barriers"]


def _breakpoints(at: Debugger, rest: str) -> list[str]:
    every = at.breakpoints.values()
    lines = [
        f"{breakpoint_lines(each)[0]}, {counted(each.hits, 'hit')}" for each in every
    ]
    return lines or ["no breakpoints"]


def _registers(at: Debugger, rest: str) -> list[str]:
    lines = []
    for name, value in at.names.registers().items():
        texts = value.texts
        same = len(set(texts)) == 1
        lines.append(f"{name:<10} {texts[0] if same else short(', '.join(texts), 64)}")
    return lines or ["no register was written yet"]


def _memory(at: Debugger, rest: str) -> list[str]:
    lines = []
    for each in at.names.memories():
        _, states = each.read(0, each.size)
        written = int(np.count_nonzero(states))
        lines.append(f"{each.memory:<20} {each.size:,} bytes, {written:,} written")
        lines += [f"  {name}" for name in at.names.variables(each)]
    return lines or ["no memory was recorded"]


INFO: dict[str, Callable[[Debugger, str], list[str]]] = {
    "warps": _warps,
    "problems": _problems,
    "units": _units,
    "barriers": _barriers,
    "breakpoints": _breakpoints,
    "registers": _registers,
    "memory": _memory,
}
