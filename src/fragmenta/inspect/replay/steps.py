"""The steps of a record, and the words of the registers that they write."""

from __future__ import annotations

import numpy as np

from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.program import register_bytes
from fragmenta.engine.tracing.code.effects import written
from fragmenta.engine.tracing.trace import State
from fragmenta.inspect.replay.parts import ALL_LANES, Array, Columns
from fragmenta.inspect.replay.program import Traced


def steps(of: Traced) -> Columns:
    """The columns of all steps, and of registers that no step wrote."""
    return _LaunchSteps(of).columns()


class _LaunchSteps:
    """The steps of a recorded launch."""

    def __init__(self, of: Traced) -> None:
        self.of, self.told = of, of.told

    def columns(self) -> Columns:
        """Steps and the words of their registers: 32 for a register, or more."""
        pieces = self.told.pieces
        none = np.empty((0, 4), np.uint32)
        rows = np.concatenate([none, *(each.steps for each in pieces)])
        starts = np.cumsum([0, *(each.words.size for each in pieces)])
        base = np.repeat(starts[:-1], [len(each.steps) for each in pieces])
        at = rows[:, 3].astype(np.int64) + base
        words = np.concatenate(
            [np.empty(0, np.uint32), *(each.words for each in pieces)]
        )
        stopped = self._stopped()
        if stopped is not None:
            rows = np.concatenate([rows, stopped[0]])
            at = np.append(at, words.size)
            words = np.concatenate([words, *stopped[1]])
        site = rows[:, 0].astype(np.int64)
        at, words = self._widened(site, at, words)
        first = {
            "site": site,
            "warp": rows[:, 1],
            "lanes": rows[:, 2],
            "at": at,
            "words": words,
        }
        return self._with_units(self._with_start(first))

    def _stopped(self) -> tuple[Array, list[Array]] | None:
        """A last step, if an instruction stopped the launch: its registers stay."""
        fault = self.of.fault
        if fault is None:
            return None
        name, index = self.of.stepped.of.compiled.places[fault.site]
        row = np.array(
            [[self.of.site_of(fault.site), fault.warp, fault.lanes, 0]], np.uint32
        )
        found = []
        for owner, each in written(
            self.of.program, self.of.module.functions[name], index
        ):
            place = self.of.about["registers"][owner][each.number]
            size = register_bytes(each)
            found.append(fault.memory[place:][:size].view(np.uint32))
        return row, found

    def _widened(self, site: Array, at: Array, words: Array) -> tuple[Array, Array]:
        """Registers of 8 and 16 bits as words, one for each lane."""
        bits = [each["bits"] for each in self.of.registers]
        sizes = np.array(
            [sum(_width(bits[r]) for r in s["writes"]) for s in self.of.sites] or [0]
        )
        if all(of in (1, 32, 64, 128) for of in bits):
            return at, words
        each = sizes[site]
        ends = np.cumsum(each)
        goals = ends - each
        wide = np.empty(int(ends[-1]) if len(ends) else 0, np.uint32)
        for number in np.unique(site).tolist():
            chosen = np.flatnonzero(site == number)
            of, to = at[chosen][:, None], goals[chosen][:, None]
            for register in self.of.sites[number]["writes"]:
                width, kept = _width(bits[register]), max(1, bits[register])
                span = words[of + np.arange(kept)]
                if kept < width:
                    narrow = np.uint8 if kept == 8 else np.uint16
                    span = span.view(narrow).astype(np.uint32)
                wide[to + np.arange(width)] = span
                of, to = of + kept, to + width
        return goals, wide

    def _with_start(self, found: Columns) -> Columns:
        """Registers before the first step, if steps before it are left out."""
        state = self.told.states[0] if self.told.states else None
        if state is None or state.whole:
            return found
        rows, more, lanes = [], [found["words"]], self._wrote_before(state)
        at = found["words"].size
        for number, memory in state.warps.items():
            for register, words in self._registers_of(memory):
                who = lanes.get((number, register), 0)
                if who:
                    rows.append((number, register, at, who))
                    more.append(words)
                    at += words.size
        columns_ = np.array(rows, np.int64).reshape(-1, 4).T
        names = ("i_warp", "i_register", "i_at", "i_lanes")
        found |= dict(zip(names, columns_, strict=True))
        found["words"] = np.concatenate(more)
        return found

    def _wrote_before(self, state: State) -> dict[tuple[int, int], int]:
        """The lanes that wrote registers before a state, by warp and register."""
        found: dict[tuple[int, int], int] = {}
        for (warp, site), lanes in state.ran.items():
            for register in self.of.sites[site]["writes"]:
                found[warp, register] = found.get((warp, register), 0) | lanes
        for each in self.told.late:
            if self.of.at(each.step) < 0:
                name, index = self.of.stepped.of.compiled.places[each.site]
                for number in self.of.about["late"][name][str(index)]:
                    found[each.warp, self.of.bases[name] + number] = ALL_LANES
        return found

    def _registers_of(self, memory: Array) -> list[tuple[int, Array]]:
        """All registers in the memory of a warp, as words."""
        found = []
        for function in self.of.functions:
            places = self.of.about["registers"][function.name]
            for each in function.registers:
                number = self.of.bases[function.name] + each.number
                bits = self.of.registers[number]["bits"]
                size = 4 if bits == 1 else bits // 8 * LANES
                raw = memory[places[each.number] :][:size]
                narrow = {8: np.uint8, 16: np.uint16}.get(bits, np.uint32)
                found.append((number, raw.view(narrow).astype(np.uint32)))
        return found

    def _with_units(self, found: Columns) -> Columns:
        """Registers that units wrote."""
        rows: list[tuple[int, int, int, int, int]] = []
        more, at = [found["words"]], found["words"].size
        for each in self.told.late:
            step = self.of.at(each.step)
            if step < 0:
                continue
            step += self.of.is_over(each.step)
            name, index = self.of.stepped.of.compiled.places[each.site]
            for number in self.of.about["late"][name][str(index)]:
                register = self.of.bases[name] + number
                rows.append((step, each.warp, register, each.unit, at))
                at += LANES
            more.append(each.words)
        columns_ = np.array(rows, np.int64).reshape(-1, 5).T
        names = ("u_step", "u_warp", "u_register", "u_unit", "u_at")
        found |= dict(zip(names, columns_, strict=True))
        found["words"] = np.concatenate(more)
        return found


def _width(bits: int) -> int:
    """The words of a register in a record."""
    return 1 if bits == 1 else max(32, bits)
