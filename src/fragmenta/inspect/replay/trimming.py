"""A part of a record: from one step on, so many steps."""

from __future__ import annotations

import numpy as np

from fragmenta.inspect.replay.left_out import joined, kept_steps
from fragmenta.inspect.replay.parts import (
    COLUMNS,
    COPIES,
    ERRORS,
    MOMENTS,
    Array,
    Columns,
    Head,
    Row,
    moments_of,
)
from fragmenta.inspect.replay.recorded import Replay


def trimmed(replay: Replay, first: int, most: int) -> tuple[Head, Columns]:
    """The head and the columns of a part of a record.

    Registers and memories before it are as the steps that are left out have left them.
    """
    last = min(len(replay), first + most)
    part = _TrimmedRecord(replay, first, last)
    columns = part.steps() | part.accesses() | part.memories()
    columns |= {name: replay.columns[name] for name in ERRORS} | part.copied()
    head = part.head()
    columns |= part.moments(head)
    typed = {
        name: np.ascontiguousarray(columns[name], kind)
        for name, kind in COLUMNS.items()
    }
    return head, typed


_LATE = ("warp", "register", "unit", "at")


class _TrimmedRecord:
    """A part of a record, from its first step until before its last one."""

    def __init__(self, replay: Replay, first: int, last: int) -> None:
        self.replay, self.first, self.last = replay, first, last
        self.columns = replay.columns
        self.units = [
            number for number, each in enumerate(replay.units) if self._is_there(each)
        ]
        """The units that are kept."""
        self.numbers = np.full(len(replay.units) + 1, -1)
        """The new number of each unit; -1 if it is not kept."""
        self.numbers[self.units] = np.arange(len(self.units))

    @property
    def _end(self) -> int:
        """Before which writes are: after the last step, units may write."""
        return self.last + (self.last == len(self.replay))

    def _is_there(self, unit: Row) -> bool:
        over = unit["done"] >= 0 and max(unit["done"], unit["waited"]) < self.first
        return unit["issued"] < self.last and not over

    # ── steps ───────────────────────────────────────────────────────────────

    def steps(self) -> Columns:
        """The steps, and the registers before them."""
        chosen = slice(self.first, self.last)
        at = self.columns["at"].astype(np.int64)
        begin = int(at[self.first])
        end = int(at[self.last]) if self.last < len(at) else self._words_end()
        found = {name: self.columns[name][chosen] for name in ("site", "warp", "lanes")}
        found["at"] = at[chosen] - begin
        found["words"] = self.columns["words"][begin:end]
        return found | self._registers(found["words"])

    def _words_end(self) -> int:
        """Where the words of the last step end: those before the first step follow."""
        others = np.concatenate([self.columns["i_at"], self.columns["u_at"]])
        return int(others.min()) if others.size else len(self.columns["words"])

    def _registers(self, words: Array) -> Columns:
        """What registers held before the first step, and what units wrote later."""
        warps, ids, places, lanes = self.replay.before(self.first)
        step = self.columns["u_step"].astype(np.int64)
        late = np.flatnonzero((step >= self.first) & (step < self._end))
        by_units = {name: self.columns[f"u_{name}"][late] for name in _LATE}
        every = np.concatenate([ids, by_units["register"]])
        of = np.concatenate([places, by_units["at"]])
        more, at, where = [words], words.size, []
        for register, place in zip(every.tolist(), of.tolist(), strict=True):
            size = self.replay.registers[register].words
            more.append(self.columns["words"][place : place + size])
            where.append(at)
            at += size
        return {
            "words": np.concatenate(more),
            "i_warp": warps,
            "i_register": ids,
            "i_at": np.array(where[: len(ids)], np.int64),
            "i_lanes": lanes,
            "u_step": step[late] - self.first,
            "u_warp": by_units["warp"],
            "u_register": by_units["register"],
            "u_unit": self.numbers[by_units["unit"]],
            "u_at": np.array(where[len(ids) :], np.int64),
        }

    # ── memory ──────────────────────────────────────────────────────────────

    def accesses(self) -> Columns:
        """Writes and reads, and the bytes that are written."""
        found: Columns = {}
        for begin in "wr":
            step = self.columns[f"{begin}_step"].astype(np.int64)
            chosen = np.flatnonzero((step >= self.first) & (step < self._end))
            for name in ("memory", "offset", "size", "lane"):
                found[f"{begin}_{name}"] = self.columns[f"{begin}_{name}"][chosen]
            found[f"{begin}_step"] = step[chosen] - self.first
            found[f"{begin}_unit"] = self.numbers[self.columns[f"{begin}_unit"][chosen]]
            if begin == "w":
                found |= self._bytes(chosen)
        return found

    def _bytes(self, chosen: Array) -> Columns:
        size = self.columns["w_size"][chosen].astype(np.int64)
        ends = np.cumsum(size)
        total = int(ends[-1]) if ends.size else 0
        within = np.arange(total) - np.repeat(ends - size, size)
        of = np.repeat(self.columns["w_at"][chosen].astype(np.int64), size) + within
        return {"w_at": ends - size, "bytes": self.columns["bytes"][of]}

    def copied(self) -> Columns:
        """What the units that are kept have copied."""
        units = self.numbers[self.columns["c_unit"]]
        kept = np.flatnonzero(units >= 0)
        found = {name: self.columns[name][kept] for name in COPIES}
        return found | {"c_unit": units[kept]}

    def moments(self, head: Head) -> Columns:
        """The errors of elements in these steps; where they are goes to the head."""
        found = [{name: self.columns[name][:0] for name in MOMENTS}]
        if "numerics" in head:
            from fragmenta.inspect.replay.moments import cut

            outputs, begin = [], 0
            for each in head["numerics"]["outputs"]:
                own = moments_of(self.columns, each)
                found.append(cut(own, self.first, self.last))
                count = found[-1]["h_step"].size
                outputs.append({**each, "from": begin, "moments": count})
                begin += count
            head["numerics"] = {**head["numerics"], "outputs": outputs}
        return {name: np.concatenate([e[name] for e in found]) for name in MOMENTS}

    def memories(self) -> Columns:
        """What memories held before the first step of the part."""
        images, masks = [np.empty(0, np.uint8)], [np.empty(0, bool)]
        for number in range(len(self.replay.memories)):
            data, state = self.replay.memory_at(self.first - 1, number)
            images.append(data)
            masks.append(state > 0)
        defined = np.packbits(np.concatenate(masks), bitorder="little")
        return {"initial": np.concatenate(images), "defined": defined}

    # ── what is small ───────────────────────────────────────────────────────

    def head(self) -> Head:
        """The head, with the steps of the part."""
        head, replay = dict(self.replay.head), self.replay
        head["first"] = head["first"] + self.first
        head["units"] = [self._unit(replay.units[each]) for each in self.units]
        head["barriers"] = [self._barrier(each) for each in replay.barriers]
        head["problems"] = [self._problem(each) for each in replay.problems]
        count = self.last - self.first
        kept = kept_steps(head["first"], count, head["total"], head["cut"])
        head["left_out"] = joined(kept, head["others"])
        return head

    def _step(self, step: int) -> int:
        """A step of the whole as one of the part; -1 if it is not there."""
        return step - self.first if self.first <= step < self.last else -1

    def _unit(self, unit: Row) -> Row:
        moved = {"issued": max(0, unit["issued"] - self.first)}
        for name in ("done", "waited", "read"):
            step = unit.get(name, -1)
            moved[name] = 0 if 0 <= step < self.first else self._step(step)
        return {**unit, **moved}

    def _barrier(self, barrier: Row) -> Row:
        found = dict(barrier)
        for name in ("uses", "waits"):
            rows = barrier.get(name, [])
            kept = [[self._step(row[0]), *row[1:]] for row in rows]
            found[name] = [row for row in kept if row[0] >= 0]
        if "phases" in barrier:
            before = [row for row in barrier["phases"] if row[0] < self.first][-1:]
            kept = [[self._step(row[0]), *row[1:]] for row in barrier["phases"]]
            found["phases"] = [[0, *row[1:]] for row in before]
            found["phases"] += [row for row in kept if row[0] >= 0]
        return found

    def _problem(self, problem: Row) -> Row:
        steps = [self._step(each) for each in problem["steps"]]
        units = [
            self.units.index(each) if each in self.units else -1
            for each in problem["units"]
        ]
        return {**problem, "steps": steps, "units": units}
