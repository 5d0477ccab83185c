"""The errors of elements over time: one for each write that was recorded.

A run with numerics writes down what lanes store, with second values.  The n-th time
that a warp is at an instruction is the same in both runs, as both have one schedule.
What a lane stored then must be the same bits; else the error is not known, and neither
is that of what units write.  The last value of an element has the error that numerics
found at the end.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from fragmenta.engine.simt.layout import LANES
from fragmenta.inspect.replay.parts import COLUMNS, MOMENTS, Array, Columns
from fragmenta.inspect.replay.recorded import Replay
from fragmenta.ptx.families import UPDATES
from fragmenta.ptx.module import demangled
from fragmenta.values.numerics.code import keeping
from fragmenta.values.numerics.engine import StoredSeconds
from fragmenta.values.numerics.report import OutputErrors
from fragmenta.values.numerics.seconds import ArrayPlanes, Seconds, kind_of
from fragmenta.values.numerics.summaries import bits_lost, ulps

KNOWN, OTHER_BITS = 1, 2
"""Whether an error is known; the run with numerics may have stored other bits."""
Key = tuple[int, int, int]
"""A block, a warp of it, and a site of numerics."""


def error_words(seconds: Seconds, format_: str, begin: str) -> Columns:
    """Errors in the order of memory; the bits of floats as words."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact = np.ascontiguousarray(seconds.exact + seconds.lower, np.float64)
        ulp = ulps(seconds.error, exact, format_)
        flat = {"error": seconds.error, "ulp": ulp, "lost": bits_lost(ulp, format_)}
        found = {
            f"{begin}_{name}": np.ascontiguousarray(data, np.float32).view(np.uint32)
            for name, data in flat.items()
        }
    return {f"{begin}_exact": exact.view(np.uint32), **found}


class _Rows(NamedTuple):
    """The rows of all logs: arrays with a number for each row."""

    data: Array
    """The bytes of all logs."""
    start: Array
    size: Array
    lanes: Array
    width: Array
    """The bytes of an element."""
    keys: dict[Key, list[int]]
    """The rows of a warp and a site, in their order."""


def _rows(kept: StoredSeconds) -> _Rows:
    data = np.concatenate([np.empty(0, np.uint8), *kept.logs])
    words, starts, at = data.view(np.uint32), [], 0
    while at < words.size:
        starts.append(4 * at)
        at += int(words[at + keeping.ROW_SIZE // 4]) // 4
    start = np.array(starts, np.int64)
    head = words[(start // 4)[:, None] + np.arange(keeping.ROW_HEAD // 4)]
    keys: dict[Key, list[int]] = {}
    names = keeping.ROW_BLOCK, keeping.ROW_WARP, keeping.ROW_SITE
    for row, key in enumerate(head[:, [each // 4 for each in names]].tolist()):
        keys.setdefault(tuple(key), []).append(row)
    size, lanes, width = (
        head[:, each // 4].astype(np.int64)
        for each in (keeping.ROW_SIZE, keeping.ROW_LANES, keeping.ROW_WIDTH)
    )
    return _Rows(data, start, size, lanes, width, keys)


class Moments:
    """The errors of what a recorded run wrote, write by write."""

    def __init__(self, replay: Replay, kept: StoredSeconds | None, alone: bool) -> None:
        self.replay, self.kept, self.alone = replay, kept, alone
        self.whole = not replay.head["first"] and replay.head["total"] == len(replay)
        """Whether all steps of the blocks are here."""

    @cached_property
    def rows(self) -> _Rows:
        """What the run with numerics wrote down."""
        assert self.kept is not None
        return _rows(self.kept)

    @cached_property
    def row_of(self) -> Array:
        """For each step, its row; -1 if it has none."""
        found = np.full(len(self.replay) + 1, -1, np.int64)
        if self.kept is None or self.replay.head["first"]:
            return found  # it is not known how often a warp was there before
        replay = self.replay
        sites = {(e.function, e.index): n for n, e in enumerate(replay.sites)}
        warps = {(e.block, e.warp): n for n, e in enumerate(replay.warps)}
        there = replay.steps.lanes != 0
        for (block, warp, number), rows in self.rows.keys.items():
            name, index = self.kept.places[number]
            site, own = sites.get((demangled(name), index)), warps.get((block, warp))
            if site is None or own is None:
                continue
            mine = replay.steps_of_warp(own)
            mine = mine[(replay.steps.site[mine] == site) & there[mine]][: len(rows)]
            found[mine] = rows[: len(mine)]
        return found

    def of(self, number: int, output: OutputErrors) -> Columns:
        """The errors of an array, in the order of elements and steps."""
        each = kind_of(output.format).bits // 8
        columns = self.replay.columns
        writes = np.flatnonzero(columns["w_memory"] == number)
        first = columns["w_offset"][writes].astype(np.int64)
        end = first + columns["w_size"][writes]
        begin = first // each
        many = np.maximum(np.minimum(-(-end // each), output.held.size) - begin, 0)
        starts = np.cumsum(many) - many
        within = np.arange(int(many.sum())) - np.repeat(starts, many)
        made = _empty(within.size)
        made["h_element"][:] = np.repeat(begin, many) + within
        made["h_step"][:] = np.repeat(columns["w_step"][writes], many)
        fits = (first % each == 0) & (end % each == 0) & (many > 0)
        self._join(made, writes[fits], starts[fits], output)
        order = np.lexsort((made["h_step"], made["h_element"]))  # stable: writes
        key = made["h_element"][order].astype(np.int64) * (len(self.replay) + 2)
        key += made["h_step"][order]
        chosen = order[np.diff(key, append=-1) != 0]
        writer = np.repeat(writes, many)[chosen]
        made = picked(made, chosen)
        self._ends(made, writer, number, output)
        made["h_known"] &= KNOWN
        return made

    def _join(
        self, made: Columns, writes: Array, starts: Array, output: OutputErrors
    ) -> None:
        """Put the errors of what lanes have stored."""
        columns, rows = self.replay.columns, self.row_of
        row = rows[columns["w_step"][writes]]
        row[columns["w_unit"][writes] >= 0] = -1
        known = np.flatnonzero(row >= 0)
        if not known.size:
            return
        writes, starts, row = writes[known], starts[known], row[known]
        assert self.kept is not None
        size, width = self.rows.size[row], self.rows.width[row]
        each = width * LANES * (self.kept.planes + 1)
        total = (size - keeping.ROW_HEAD) // each * width
        lane = columns["w_lane"][writes].astype(np.int64)
        good = (total == columns["w_size"][writes]) & (lane < LANES)
        good &= (self.rows.lanes[row] >> np.minimum(lane, LANES - 1) & 1) > 0
        for kind in np.unique(np.stack([width, total], 1)[good], axis=0).tolist():
            some = np.flatnonzero(good & (width == kind[0]) & (total == kind[1]))
            given = writes[some], row[some], lane[some]
            self._decode(made, starts[some], given, kind, output)

    def _decode(
        self,
        made: Columns,
        starts: Array,
        given: tuple[Array, Array, Array],
        kind: list[int],
        output: OutputErrors,
    ) -> None:
        """Put the errors of stores of one kind: bytes of an element, and of a lane."""
        assert self.kept is not None
        (writes, row, lane), (width, total) = given, kind
        planes, columns = self.kept.planes, self.replay.columns
        each, count = width * LANES, total // width
        base = self.rows.start[row] + keeping.ROW_HEAD + lane * width
        part, byte = np.divmod(np.arange(total), width)
        held = base[:, None] + (each * planes * part + byte)
        seconds = np.stack(
            [self.rows.data[held + plane * each].reshape(-1) for plane in range(planes)]
        )
        past = each * planes * count
        theirs = self.rows.data[base[:, None] + (past + each * part + byte)]
        where = columns["w_at"][writes].astype(np.int64)[:, None] + np.arange(total)
        mine = columns["bytes"][where]
        size = kind_of(output.format).bits // 8
        same = (mine == theirs).reshape(-1, size).all(axis=1)
        found = ArrayPlanes.of(mine.reshape(-1), seconds, output.format).whole()
        places = starts[:, None] + np.arange(total // size)
        places = places.reshape(-1)
        _put(made, places, error_words(found, output.format, "h"), same)
        made["h_known"][places[~same]] = OTHER_BITS

    def _ends(
        self, made: Columns, writer: Array, number: int, output: OutputErrors
    ) -> None:
        """Put the errors of last values, if they are those that numerics found."""
        if not self.whole or not writer.size:
            return
        element, columns = made["h_element"].astype(np.int64), self.replay.columns
        last = np.flatnonzero(np.diff(element, append=-1))
        last = last[(made["h_known"][last] == 0) & ~self._adds(writer[last])]
        last = last[made["h_step"][last] < len(self.replay)]
        if not last.size or (columns["w_step"] >= len(self.replay)).any():
            return
        size = kind_of(output.format).bits // 8
        data = self.replay.memory_at(len(self.replay) - 1, number)[0]
        count = output.held.size
        mine = data[: count * size].reshape(-1, size)[element[last]]
        theirs = output.held.data[: count * size].reshape(-1, size)[element[last]]
        same = (mine == theirs).all(axis=1)
        words = error_words(output.seconds, output.format, "h")
        _put(made, last, picked(words, element[last]), same)

    def _adds(self, writes: Array) -> Array:
        """Which writes add to what is there: other blocks may do so later."""
        replay = self.replay
        if self.alone:
            return np.zeros(writes.size, bool)
        of_sites = [e.opcode.partition(".")[0] in UPDATES for e in replay.sites]
        of_units = ["red" in f"{e['kind']} {e['name']}" for e in replay.units]
        step = np.minimum(replay.columns["w_step"][writes], len(replay) - 1)
        unit = replay.columns["w_unit"][writes]
        by_lane = np.array([*of_sites, False])[replay.steps.site[step]]
        return np.where(unit < 0, by_lane, np.array([*of_units, False])[unit])


def _empty(count: int) -> Columns:
    """Errors that are not known."""
    made = {name: np.zeros(count, COLUMNS[name]) for name in MOMENTS}
    made["h_exact"] = np.full(count, np.nan).view(np.uint32)
    for name in ("h_error", "h_ulp", "h_lost"):
        made[name] = np.full(count, np.nan, np.float32).view(np.uint32)
    return made


def _put(made: Columns, places: Array, words: Columns, good: Array) -> None:
    """Put errors that are known to their places."""
    chosen = np.flatnonzero(good)
    for name, data in words.items():
        wide = 2 if name == "h_exact" else 1
        made[name].reshape(-1, wide)[places[chosen]] = data.reshape(-1, wide)[chosen]
    made["h_known"][places[chosen]] = KNOWN


def picked(columns: Columns, chosen: Array) -> Columns:
    """Some rows of columns with errors; an exact value has two words."""
    return {
        name: data.reshape(-1, 2)[chosen].reshape(-1)
        if name == "h_exact"
        else data[chosen]
        for name, data in columns.items()
    }


def ends_of(columns: Columns) -> Columns:
    """The last errors alone: before, from the first write on, none is known."""
    element = columns["h_element"].astype(np.int64)
    first = np.flatnonzero(np.diff(element, prepend=-1))
    last = np.flatnonzero(np.diff(element, append=-1))
    before = first[first != last]
    made = picked(columns, np.sort(np.concatenate([before, last])))
    gone = np.isin(np.sort(np.concatenate([before, last])), before)
    nothing = _empty(int(gone.sum()))
    for name in nothing.keys() - {"h_element", "h_step"}:
        wide = 2 if name == "h_exact" else 1
        made[name].reshape(-1, wide)[gone] = nothing[name].reshape(-1, wide)
    return made


def cut(columns: Columns, first: int, last: int) -> Columns:
    """The errors in a part of the steps: those before it are from -1 on."""
    step = columns["h_step"].astype(np.int64)
    element = columns["h_element"].astype(np.int64)
    before = np.flatnonzero(step < first)
    before = before[np.diff(element[before], append=-1) != 0]
    within = np.flatnonzero((step >= first) & (step < last))
    made = picked(columns, np.sort(np.concatenate([before, within])))
    made["h_step"] = np.maximum(made["h_step"] - first, -1).astype(np.int32)
    return made
