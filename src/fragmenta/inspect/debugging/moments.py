"""The steps of a recording by warp, by line and by call: where a debugger can go.

A moment is a number: moment 7 is before step 7, after steps 0 to 6.  The last moment is
after the last step.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fragmenta.inspect.replay.parts import Site
    from fragmenta.inspect.replay.recorded import Replay

Steps = NDArray[np.int64]


def after(steps: Steps, moment: int) -> int | None:
    """The first of sorted steps that is not before a moment.

    >>> after(np.array([2, 5]), 3), after(np.array([2, 5]), 6)
    (5, None)
    """
    at = int(np.searchsorted(steps, moment))
    return int(steps[at]) if at < len(steps) else None


def before(steps: Steps, moment: int) -> int | None:
    """The last of sorted steps before a moment.

    >>> before(np.array([2, 5]), 5), before(np.array([2, 5]), 2)
    (2, None)
    """
    at = int(np.searchsorted(steps, moment))
    return int(steps[at - 1]) if at else None


class Frame(NamedTuple):
    """A function that is under way, and the step at which it is."""

    step: int
    site: Site


class Moments:
    """Where a recording can stop."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.sites = np.asarray(replay.steps.site, np.int64)
        self.warps = np.asarray(replay.steps.warp, np.int64)
        self._by_warp: dict[int, Steps] = {}

    def __len__(self) -> int:
        return len(self.sites)

    def of_warp(self, warp: int) -> Steps:
        """The steps of a warp."""
        if warp not in self._by_warp:
            self._by_warp[warp] = np.flatnonzero(self.warps == warp)
        return self._by_warp[warp]

    def site(self, step: int) -> Site:
        """The instruction of a step."""
        return self.replay.sites[int(self.sites[step])]

    @cached_property
    def returns(self) -> NDArray[np.bool_]:
        """Steps that are the second half of a call: what it returns arrives."""
        opcodes = [each.opcode.partition(".")[0] for each in self.replay.sites]
        order = np.argsort(self.warps, kind="stable")
        sites, warp = self.sites[order], self.warps[order]
        calls = np.array([each == "call" for each in opcodes])[sites]
        ends = np.array([each == "ret" for each in opcodes])[sites]
        found = np.zeros(len(order), bool)
        found[order[1:]] = calls[1:] & ends[:-1] & (warp[1:] == warp[:-1])
        return found

    def entries(self, lines: Steps) -> NDArray[np.bool_]:
        """The steps at which a warp comes to another line, or with a loop to it again.

        ``lines`` has a number for each site: its line, or -1 if it has none.
        """
        found: NDArray[np.bool_] = self.replay.entries(lines) & ~self.returns
        return found

    def of_sites(self, sites: list[int], entered: bool = False) -> Steps:
        """The steps at some instructions; ``entered`` where a warp comes to them."""
        chosen = np.full(len(self.replay.sites), -1, np.int64)
        chosen[sites] = 1
        if entered:
            return np.flatnonzero(self.entries(chosen))
        return np.flatnonzero((chosen[self.sites] > 0) & ~self.returns)

    def outer_entries(self, steps: Steps, lines: Steps, inside: set[str]) -> Steps:
        """Steps at which a warp comes to another line of some functions.

        What these functions call is passed over.
        """
        fits = np.array([each.function in inside for each in self.replay.sites])
        mine: Steps = steps[fits[self.sites[steps]]]
        line = lines[self.sites[mine]]
        new = np.ones(len(mine), bool)
        new[1:] = line[1:] != line[:-1]
        found: Steps = mine[new & (line >= 0)]
        return found

    # ── calls ───────────────────────────────────────────────────────────────

    @cached_property
    def _functions(self) -> NDArray[np.int64]:
        names = [each.function for each in self.replay.sites]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return np.array([numbers[name] for name in names], np.int64)

    def _changes(self, warp: int, until: int) -> tuple[Steps, Steps]:
        """The steps of a warp before a moment, and which are in another function."""
        steps = self.of_warp(warp)
        steps = steps[: int(np.searchsorted(steps, until))]
        inside = self._functions[self.sites[steps]]
        return steps, np.flatnonzero(inside[1:] != inside[:-1]) + 1

    def frames(self, warp: int, step: int) -> list[Frame]:
        """The functions that are under way at a step of a warp, innermost first."""
        steps, changes = self._changes(warp, step + 1)
        stack = [Frame(int(steps[0]), self.site(int(steps[0])))] if len(steps) else []
        for at in changes.tolist():
            new = int(steps[at])
            stack[-1] = Frame(int(steps[at - 1]), self.site(int(steps[at - 1])))
            names = [each.site.function for each in stack]
            name = self.site(new).function
            if name in names:
                del stack[names.index(name) :]
            stack.append(Frame(new, self.site(new)))
        if stack:
            stack[-1] = Frame(step, self.site(step))
        return stack[::-1]

    def outside(self, warp: int, step: int, back: bool = False) -> int | None:
        """The next step of a warp in a function that called this one."""
        callers = {each.site.function for each in self.frames(warp, step)[1:]}
        steps = self.of_warp(warp)
        here = int(np.searchsorted(steps, step))
        rest = steps[:here][::-1] if back else steps[here + 1 :]
        names = np.array([each.function in callers for each in self.replay.sites])
        found = np.flatnonzero(names[self.sites[rest]])
        return int(rest[found[0]]) if len(found) else None
