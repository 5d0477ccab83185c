"""A debugger of a recorded launch: where it stands, where it stops, what it sees.

It knows neither terminals nor protocols.  A :class:`Debugger` stands at a moment, with
one warp in view.  The instruction of that warp is the next one to run: values are those
before it.  As the launch is recorded, every way leads backwards, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import BadCall, one_of
from fragmenta.inspect.debugging.expressions import Tree, evaluate, parse
from fragmenta.inspect.debugging.moments import Frame, Moments, Steps, after, before
from fragmenta.inspect.debugging.nans import nan_registers, steps_with_nan
from fragmenta.inspect.debugging.places import MemoryRange, SourceLines
from fragmenta.inspect.debugging.printing import lanes_text
from fragmenta.inspect.debugging.records import (
    BarrierHistory,
    LocatedProblem,
    UnitHistory,
    barriers,
    problems,
    units,
)
from fragmenta.inspect.debugging.scope import WarpScope
from fragmenta.inspect.debugging.values import Value

if TYPE_CHECKING:
    from fragmenta.inspect.replay.parts import Site
    from fragmenta.inspect.replay.recorded import Replay

Kind = Literal["line", "ptx", "function", "write"]
Why = Literal["start", "step", "breakpoint", "write", "problem", "nan", "goto", "end"]


class Stop(NamedTuple):
    """Why the debugger stands where it does."""

    why: Why
    words: str = ""
    title: str = ""
    """The same in a few words, if there are many."""
    breakpoint: int = 0
    problem: int = 0


@dataclass(eq=False)
class Breakpoint:
    """Where to stop: at some steps, or when bytes are written."""

    number: int
    kind: Kind
    text: str
    steps: Steps
    """At a line: the steps before which to stop.  Of writes: those that write."""
    condition: Tree | None = None
    condition_text: str = ""
    once: bool = False
    hits: int = 0
    place: tuple[str, int] = ("", 0)
    """File and line; empty for writes."""

    def next(self, moment: int, back: bool) -> int | None:
        """The moment at which it stops; a write is over when it does."""
        if self.kind != "write":
            return before(self.steps, moment) if back else after(self.steps, moment + 1)
        if back:
            return before(self.steps, moment)
        found = after(self.steps, moment)
        return None if found is None else found + 1


class Met(NamedTuple):
    """A place to stop that was met on the way."""

    at: int
    stop: Stop
    which: Breakpoint | None = None


def _at_problem(problem: LocatedProblem) -> tuple[int, Stop]:
    title = f"problem {problem.number}, {problem.code}"
    words = f"{title}: {problem.words}"
    return problem.shows, Stop("problem", words, title, problem=problem.number)


class Debugger:
    """Moves about a recording, and looks at it.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> kernel = ptx.parse('''
    ... .version 8.0 .target sm_80 .address_size 64
    ... .entry twice(.param .u64 data) {
    ...     .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ...     ld.param.u64 %rd1, [data];
    ...     ld.global.u32 %r1, [%rd1];
    ...     add.s32 %r2, %r1, %r1;
    ...     st.global.u32 [%rd1], %r2;
    ...     ret;
    ... }''').kernels["twice"]
    >>> result = kernel.launch(1, 1, [np.uint32([21])], replay=True)
    >>> at = Debugger(result.replay())
    >>> at.break_at("add").text, at.run().why, at.moment
    ('add', 'breakpoint', 2)
    >>> at.step("instruction").why, at.evaluate("%r2[0] - 1").texts
    ('step', ['41'])
    >>> at.run(back=True).why, at.moment
    ('breakpoint', 2)
    """

    def __init__(self, replay: Replay) -> None:
        if not len(replay):
            raise BadCall(f"the recording has no steps; {replay.left_out}".rstrip("; "))
        self.replay = replay
        self.moments = Moments(replay)
        self.lines = SourceLines(replay)
        self.moment = 0
        self.warp = int(self.moments.warps[0])
        self.stop = Stop("start", "the launch begins")
        self.breakpoints: dict[int, Breakpoint] = {}
        self.at_problems = True
        self.at_nan = False
        self.level: int | None = None
        """How many functions are around the line in view; None for the innermost."""
        self._numbered = 0
        self._names: dict[tuple[str, str], int] = {}

    # ── where it stands ─────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self.moments)

    def current(self, warp: int | None = None) -> int | None:
        """The step that a warp runs next; None if it has ended."""
        chosen = self.warp if warp is None else warp
        return after(self.moments.of_warp(chosen), self.moment)

    @property
    def site(self) -> Site | None:
        """The instruction that the warp in view runs next."""
        step = self.current()
        return None if step is None else self.moments.site(step)

    def frames(self, warp: int | None = None) -> list[Frame]:
        """The functions that a warp is in, innermost first."""
        chosen = self.warp if warp is None else warp
        step = self.current(chosen)
        return [] if step is None else self.moments.frames(chosen, step)

    def warp_name(self, number: int) -> str:
        """A warp by its block and its place there."""
        warp = self.replay.warps[number]
        return f"block {warp.block} warp {warp.warp}"

    def look_at(self, warp: int) -> None:
        """Take another warp into view; the moment stays."""
        if not 0 <= warp < len(self.replay.warps):
            raise BadCall(
                f"warps are 0 to {len(self.replay.warps) - 1}; given {warp}; info "
                "warps lists them"
            )
        self.warp, self.level = warp, None

    # ── going ───────────────────────────────────────────────────────────────

    def _go(self, moment: int, stop: Stop, level: int | None = None) -> Stop:
        self.level = level
        self.moment = max(0, min(moment, len(self)))
        self.stop = stop
        return stop

    def _end(self, back: bool) -> Stop:
        if back:
            return self._go(0, Stop("start", "the recording begins here"))
        left = self.replay.left_out
        words = "the recording ends here" + (f"; {left}" if left else "")
        return self._go(len(self), Stop("end", words))

    def step(self, by: str = "line", back: bool = False, over: bool = False) -> Stop:
        """Let the warp in view run an instruction, or up to another line.

        ``over`` stops neither in functions that are called nor in inlined ones.
        What other warps run meanwhile may meet a breakpoint or a problem: then the
        step ends there, with that warp in view.
        """
        here = self.current()
        if here is None and not back:
            return self._end(back)
        level = self.level_of(here) if over and by == "line" else None
        steps = (
            self._stops(by, here, level) if over else self.moments.of_warp(self.warp)
        )
        if by == "line" and not over:
            steps = steps[self._entries[steps]]
        found = before(steps, self.moment) if back else after(steps, (here or 0) + 1)
        if found is None:
            return self._edge(back)
        return self._towards(found, Stop("step"), back, level)

    def _towards(
        self, moment: int, stop: Stop, back: bool, level: int | None = None
    ) -> Stop:
        """Go to a moment, or to the first place to stop on the way there."""
        met = self._met(self.moment, back, moment)
        return self._go(moment, stop, level) if met is None else self._take(met)

    def _stops(self, by: str, here: int | None, level: int | None) -> Steps:
        """The steps of a warp that are not in what the function in view calls."""
        steps = self.moments.of_warp(self.warp)
        around = self._around(here)
        if by == "line":
            lines = self.lines.at_level(level)
            return self.moments.outer_entries(steps, lines, around)
        fits = np.array([each.function in around for each in self.replay.sites])
        inside = fits[self.moments.sites[steps]] & ~self.moments.returns[steps]
        return steps[inside]

    def _edge(self, back: bool) -> Stop:
        """Go where the warp in view begins or ends."""
        every = self.moments.of_warp(self.warp)
        if not len(every):
            return self._end(back)
        if back:
            stop = Stop("start", f"warp {self.warp} begins here")
            return self._towards(int(every[0]), stop, back)
        stop = Stop("end", f"warp {self.warp} ends here")
        return self._towards(int(every[-1]) + 1, stop, back)

    @cached_property
    def _entries(self) -> NDArray[np.bool_]:
        """The steps at which a warp comes to another line."""
        return self.moments.entries(self.lines.at_level(None))

    def level_of(self, here: int | None) -> int:
        """How many functions are inlined around the line in view."""
        if here is None:
            return 0
        depth = len(self.lines.frames[int(self.moments.sites[here])]) - 1
        return depth if self.level is None else min(self.level, depth)

    def _around(self, here: int | None) -> set[str]:
        """The functions that are under way."""
        step = (
            before(self.moments.of_warp(self.warp), len(self)) if here is None else here
        )
        if step is None:
            return set()
        return {e.site.function for e in self.moments.frames(self.warp, step)}

    @property
    def place(self) -> tuple[str, int] | None:
        """The file and the line in view."""
        step = self.current()
        if step is None:
            return None
        return self.lines.frames[int(self.moments.sites[step])][self.level_of(step)]

    def finish(self, back: bool = False) -> Stop:
        """Run until the function in view has returned, or back to its call."""
        here = self.current()
        if here is None:
            return self._end(back)
        found = self.moments.outside(self.warp, here, back)
        if found is None:
            return self._edge(back)
        return self._towards(found, Stop("step"), back)

    def goto(self, moment: int) -> Stop:
        """Go to a moment; the warp that is next comes into view."""
        if not 0 <= moment <= len(self):
            raise BadCall(f"steps are 0 to {len(self)}; given {moment}")
        if moment < len(self):
            self.warp = int(self.moments.warps[moment])
        return self._go(moment, Stop("goto"))

    def run(self, back: bool = False, first: bool = False) -> Stop:
        """Run to the next place to stop; ``first`` also stops where it stands."""
        met = self._met(self.moment - 1 if first else self.moment, back)
        return self._end(back) if met is None else self._take(met)

    def _met(self, start: int, back: bool, until: int | None = None) -> Met | None:
        """The next place to stop, if it is not farther away than a moment."""
        last = until if until is not None else 0 if back else len(self)
        found: list[Met] = []
        for each in self.breakpoints.values():
            at = self._hit(each, start, back, last)
            if at is not None:
                why: Why = "write" if each.kind == "write" else "breakpoint"
                words = f"breakpoint {each.number}, {each.text}"
                found.append(Met(at, Stop(why, words, breakpoint=each.number), each))
        if self.at_problems:
            found += [Met(*each) for each in self._problem(start, back)]
        if self.at_nan:
            found += [Met(*each) for each in self._nan(start, back)]
        found = [
            each for each in found if (last <= each.at if back else each.at <= last)
        ]
        return (max if back else min)(found, key=lambda met: met.at, default=None)

    def _take(self, met: Met) -> Stop:
        """Stop at a place."""
        which = met.which
        if which is not None:
            which.hits += 1
            if which.once:
                del self.breakpoints[which.number]
        stop = self._arrive(met.at, met.stop)
        if which is not None and which.kind == "line":
            self._show(which.place)
        return stop

    def _show(self, place: tuple[str, int]) -> None:
        """Take the function into view that a line is of."""
        step = self.current()
        if step is not None:
            frames = self.lines.frames[int(self.moments.sites[step])]
            self.level = frames.index(place) if place in frames else None

    def _arrive(self, at: int, stop: Stop) -> Stop:
        """Stand at a moment, with the warp in view that the stop is about."""
        step = at - 1 if stop.why == "write" and self.moment < at else at
        warp = self._warp_of(step) if 0 <= step < len(self) else self.warp
        if warp != self.warp:
            self.warp = warp
            stop = stop._replace(words=f"{stop.words}; {self.warp_name(warp)} stopped")
        return self._go(at, stop)

    def _warp_of(self, step: int) -> int:
        """The warp of a step; units write after the last step, too."""
        return int(self.moments.warps[min(step, len(self) - 1)])

    def _hit(self, each: Breakpoint, moment: int, back: bool, last: int) -> int | None:
        """Where a breakpoint stops next, if its condition is true.

        Conditions behind the last moment are not looked at.
        """
        at = each.next(moment, back)
        while at is not None and each.condition is not None:
            if at < last if back else at > last:
                return None
            step = at - 1 if each.kind == "write" and not back else at
            names = self.names_at(min(at, len(self)), self._warp_of(step))
            value = evaluate(each.condition, names)
            if bool(np.any(value.data != 0)):
                return at
            at = each.next(at, back)
        return at

    # ── problems and NaN ────────────────────────────────────────────────────

    @cached_property
    def units(self) -> list[UnitHistory]:
        """Asynchronous work."""
        return units(self.replay)

    @cached_property
    def barriers(self) -> list[BarrierHistory]:
        """Barriers of blocks and clusters, and mbarriers."""
        return barriers(self.replay)

    @cached_property
    def problems(self) -> list[LocatedProblem]:
        """What was found to be wrong."""
        return problems(self.replay)

    @cached_property
    def _shown(self) -> list[LocatedProblem]:
        """The problems that a step shows, in the order of these steps."""
        found = [each for each in self.problems if each.steps]
        return sorted(found, key=lambda each: (each.shows, each.number))

    def _problem(self, moment: int, back: bool) -> list[tuple[int, Stop]]:
        steps = np.array([each.shows for each in self._shown], np.int64)
        at = before(steps, moment) if back else after(steps, moment + 1)
        return [_at_problem(each) for each in self._shown if each.shows == at][:1]

    def problem(self, number: int | None = None, back: bool = False) -> Stop:
        """Go to the next problem, or to one by its number."""
        if not self._shown:
            some = len(self.problems)
            raise BadCall(
                f"none of the {some} problems is among the recorded steps; info "
                "problems lists them"
                if some
                else "the launch has no problems"
            )
        if number is None:
            found = self._problem(self._since("problem", back), back)
            if not found:
                way = "before" if back else "after"
                raise BadCall(f"there is no problem {way} step {self.moment:,}")
            return self._arrive(*found[0])
        for each in self._shown:
            if each.number == number:
                return self._arrive(*_at_problem(each))
        have = one_of([each.number for each in self._shown], "and")
        raise BadCall(f"no step shows problem {number}; there are {have}")

    @cached_property
    def nan_steps(self) -> Steps:
        """The steps that give NaN."""
        return steps_with_nan(self.replay)

    def _nan(self, moment: int, back: bool) -> list[tuple[int, Stop]]:
        steps = self.nan_steps
        at = before(steps, moment) if back else after(steps, moment + 1)
        return [] if at is None else [(at, Stop("nan", self._born(at)))]

    def _born(self, step: int) -> str:
        """Which registers an instruction gives NaN, and in which lanes."""
        found = nan_registers(self.replay, step)
        texts = [f"{name} in {lanes_text(mask)}" for name, mask in found]
        return f"the next instruction gives NaN: {one_of(texts, 'and')}"

    def nan(self, back: bool = False) -> Stop:
        """Go to the next instruction that gives NaN."""
        if not len(self.nan_steps):
            raise BadCall("no recorded instruction gives NaN")
        found = self._nan(self._since("nan", back), back)
        if not found:
            way = "before" if back else "after"
            raise BadCall(f"no instruction gives NaN {way} step {self.moment:,}")
        return self._arrive(*found[0])

    def _since(self, why: Why, back: bool) -> int:
        """The moment to search from: the one in view counts if it is no such stop."""
        return self.moment if back or self.stop.why == why else self.moment - 1

    # ── breakpoints ─────────────────────────────────────────────────────────

    def break_at(
        self, text: str, condition: str = "", once: bool = False
    ) -> Breakpoint:
        """Stop at a line, an instruction or a function.

        ``FILE:LINE``, ``LINE`` of the file in view, ``ptx:LINE``, the name of a
        function, or an opcode.
        """
        spot = self.lines.spot(text, self.site)
        steps = self.moments.of_sites(spot.sites, spot.kind == "line")
        made = self._add(spot.kind, spot.text, steps, condition, once)
        made.place = spot.file, spot.line
        return made

    def break_on_write(self, text: str, condition: str = "") -> Breakpoint:
        """Stop when a part of memory is written: ``shared[0x400]``, ``tile[3]``."""
        span = self.span(text)
        steps = span.writes(self.replay)
        return self._add("write", f"{span.text} written", steps, condition, False)

    def _add(
        self,
        kind: Kind,
        text: str,
        steps: Steps,
        condition: str,
        once: bool,
    ) -> Breakpoint:
        tree = parse(condition) if condition else None
        self._numbered += 1
        made = Breakpoint(self._numbered, kind, text, steps, tree, condition, once)
        self.breakpoints[made.number] = made
        return made

    def delete(self, number: int) -> None:
        """Forget a breakpoint."""
        if number not in self.breakpoints:
            have = one_of(self.breakpoints, "and")
            have = f"there are {have}" if have else "there is none"
            raise BadCall(f"no breakpoint {number}; {have}")
        del self.breakpoints[number]

    # ── looking ─────────────────────────────────────────────────────────────

    @property
    def names(self) -> WarpScope:
        """What names mean for the warp in view."""
        return self.names_at(self.moment, self.warp)

    def names_at(self, moment: int, warp: int, function: str = "") -> WarpScope:
        """What names mean for a warp at a moment."""
        return WarpScope(self.replay, moment, warp, function, self._names)

    def evaluate(self, text: str) -> Value:
        """The value of an expression, before the instruction in view."""
        return evaluate(text, self.names)

    def span(self, text: str) -> MemoryRange:
        """The bytes of memory that an expression names."""
        return self.names.span(text)
