"""A recorded run: what a register or a byte was at any step, and who wrote it.

Steps are in the order in which they were executed here, which is one of the orders that
a GPU may choose; they are no nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import as_array, check_flags, is_among, is_whole
from fragmenta.errors import BadCall, ValueRangeError, one_of, shortened
from fragmenta.inspect.replay.aligning import aligned, line_pairs
from fragmenta.inspect.replay.parts import (
    ALL_LANES,
    ERRORS,
    IN_FLIGHT,
    MOST_NAME,
    MOST_RUNS,
    NOBODY,
    WRITTEN,
    Access,
    Array,
    Columns,
    Head,
    Memory,
    Origin,
    RecordedWarp,
    Register,
    Row,
    Site,
    Value,
    moments_of,
)

KEYFRAME = 1 << 12
"""Writes after which the bytes of a memory are kept, so that looking back is fast."""
MOST_KEYFRAMES = 64
WAYS = ("instruction", "line", "event")
EVENTS = ("issued", "done", "waited")
"""What happens to asynchronous work."""
MEETS = re.compile(r"(bar|barrier)\.(?!warp)")
"""Opcodes at which warps wait for each other."""


class StepColumns(NamedTuple):
    """The columns of all steps."""

    site: Array
    warp: Array
    lanes: Array


class ArrayErrors(NamedTuple):
    """The errors of the elements of an array, in the order of memory."""

    exact: NDArray[np.float64]
    error: NDArray[np.float32]
    ulp: NDArray[np.float32]
    """In units of the last place."""
    lost_bits: NDArray[np.float32]
    known: NDArray[np.bool_]
    """Whether the error is known; the others are NaN where it is not."""


class Replay:
    """A recorded run of a kernel.

    ``result.replay()`` returns it, after ``launch(..., replay=True)``.
    """

    def __init__(
        self, head: Head, columns: Columns, others: Sequence[Replay] = ()
    ) -> None:
        self.head, self.columns = head, columns
        self.others = tuple(others)
        """Runs beside it: of other schedules, or of a kernel that was repaired."""
        self.kernel: str = head["kernel"]
        self.target: str = head["target"]
        self.schedule: str = head["schedule"]
        self.grid, self.block, self.cluster = (
            tuple(head[name]) for name in ("grid", "block", "cluster")
        )
        self.left_out: str = head["left_out"]
        self.sites = [
            Site(*(_plain(each[name]) for name in Site._fields))
            for each in head["sites"]
        ]
        self.registers = [
            Register(*(each[name] for name in Register._fields))
            for each in head["registers"]
        ]
        self.warps = [
            RecordedWarp(*(each[name] for name in RecordedWarp._fields))
            for each in head["warps"]
        ]
        self.memories = [
            Memory(*(_plain(each[name]) for name in Memory._fields))
            for each in head["memories"]
        ]
        self.units: list[Row] = head["units"]
        self.barriers: list[Row] = head["barriers"]
        self.problems: list[Row] = head["problems"]
        self.steps = StepColumns(columns["site"], columns["warp"], columns["lanes"])
        self._frames: dict[int, list[tuple[int, Array, Array]]] = {}

    def __len__(self) -> int:
        return len(self.steps.site)

    def __repr__(self) -> str:
        beside = one_of([each.name for each in self.others], "and")
        return (
            f"<Replay: {len(self):,} steps of {self.kernel}, {len(self.warps)} warps, "
            f"{len(self.problems)} problems{beside and f'; beside it {beside}'}>"
        )

    # ── runs ────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        """What the run is called beside others; its schedule if it has no name."""
        return str(self.head.get("name") or self.schedule)

    @property
    def runs(self) -> tuple[Replay, ...]:
        """This run, and those beside it."""
        return (self, *self.others)

    def beside(self, other: Replay, name: str = "") -> Self:
        """This run with another one beside it, in one file and in one page.

        The other is called by its schedule, unless it has another name.  Runs that were
        beside the other one are not taken along.
        """
        check_beside(self, other, name)
        if len(self.runs) >= MOST_RUNS:
            raise BadCall(f"at most {MOST_RUNS} runs are beside one another")
        named = name or other.name
        taken = [each.name for each in self.runs]
        if named in taken:
            raise BadCall(
                f"the runs {one_of(taken, 'and')} are there; name the other run, as in "
                f'beside(other, "repaired"); given {named!r}'
            )
        lines = line_pairs(other.head, self.head)
        head = {**other.head, "name": named, "lines": lines}
        more = type(self)(head, other.columns)
        return type(self)(self.head, self.columns, (*self.others, more))

    def aligned(self, step: int, other: Replay) -> int | None:
        """The step of another run at which the same warp is where it is at a step.

        It is the same execution of the same line.  If the other kernel does not have
        the line, it is one before.  None: the other run does not have the warp.
        """
        check_beside(self, other)
        return aligned(self, self._step(step), other)

    @property
    def lines_of_first(self) -> list[Row]:
        """Which of its lines are lines of the run that it is beside."""
        found: list[Row] = self.head.get("lines", [])
        return found

    def _step(self, step: int, least: int = 0) -> int:
        check_whole("a step", step)
        if not least <= step < len(self):
            raise ValueRangeError(
                f"the steps are {least} to {len(self) - 1}; given {step}"
            )
        return int(step)

    def _memory(self, memory: int | str) -> int:
        names = [each.name for each in self.memories]
        if isinstance(memory, str):
            if memory in names:
                return names.index(memory)
            raise BadCall(f"the memories are {one_of(names)}; given {memory!r}")
        check_whole("a memory", memory)
        if not 0 <= memory < len(names):
            raise ValueRangeError(
                f"the memories are 0 to {len(names) - 1}; given {memory}"
            )
        return int(memory)

    # ── registers ───────────────────────────────────────────────────────────

    @cached_property
    def _written(self) -> tuple[Array, Array, Array]:
        """Every value of a register: sorted keys, where the words are, who wrote.

        A key is the warp, the register and the step; the step before the first is 0.
        Who wrote are lanes; a unit writes for all of them.
        """
        site, warp, at = (
            self.columns[name].astype(np.int64) for name in ("site", "warp", "at")
        )
        late = (self.columns[f"u_{name}"].astype(np.int64) for name in _LATE)
        late_warp, late_register, late_at, late_step = late
        # Of what is written at one step, the step itself comes last; then the end.
        times = np.minimum(late_step + 1, len(self))
        every = self._key(late_warp, late_register, times)
        ended = late_step >= len(self)
        keys, places = [every[~ended]], [late_at[~ended]]
        lanes = [np.full(keys[0].size, ALL_LANES, np.uint32)]
        order = np.argsort(site, kind="stable")
        numbers, starts = np.unique(site[order], return_index=True)
        ends = np.append(starts[1:], len(order))
        for number, start, end in zip(numbers, starts, ends, strict=True):
            chosen, offset = order[start:end], 0
            for register in self.sites[number].writes:
                keys.append(self._key(warp[chosen], register, chosen + 1))
                places.append(at[chosen] + offset)
                lanes.append(self.columns["lanes"][chosen])
                offset += self.registers[register].words
        keys.append(every[ended])
        places.append(late_at[ended])
        lanes.append(np.full(int(ended.sum()), ALL_LANES, np.uint32))
        begun = (self.columns[f"i_{name}"].astype(np.int64) for name in _BEGUN)
        first_warp, first_register, first_at = begun
        keys.append(self._key(first_warp, first_register, 0))
        places.append(first_at)
        lanes.append(self.columns["i_lanes"])
        whole, where, who = map(np.concatenate, (keys, places, lanes))
        sorted_ = np.argsort(whole, kind="stable")
        return whole[sorted_], where[sorted_], who[sorted_]

    def _key(self, warp: Value, register: Value, step: Value) -> Value:
        return (warp * len(self.registers) + register) * (len(self) + 1) + step

    def value(self, step: int, warp: int, register: int) -> Array | None:
        """A register by lane, after a step; None if it was not written before.

        ``lanes_with`` says which lanes have a value: the others have 0.
        """
        first, end = self._entries(step, warp, register)
        if first == end:
            return None
        of, at = self.registers[register], int(self._written[1][end - 1])
        return of.typed(self.columns["words"][at : at + of.words])

    def lanes_with(self, step: int, warp: int, register: int) -> NDArray[np.bool_]:
        """Which lanes have written a register, after a step."""
        first, end = self._entries(step, warp, register)
        mask = np.bitwise_or.reduce(self._written[2][first:end], initial=np.uint32(0))
        return np.asarray(mask >> np.arange(32, dtype=np.uint32) & 1, bool)

    def _entries(self, step: int, warp: int, register: int) -> tuple[int, int]:
        """Where the writes of a register are, until after a step."""
        least = self._key(int(warp), int(register), 0)
        keys = self._written[0]
        first = int(np.searchsorted(keys, least))
        return first, max(first, int(np.searchsorted(keys, least + step + 1, "right")))

    def before(self, step: int) -> tuple[Array, Array, Array, Array]:
        """All registers before a step: warps, registers, their words, their lanes.

        Of words it is said where they are.
        """
        keys, places, lanes = self._written
        owner, time = np.divmod(keys, len(self) + 1)
        known = np.flatnonzero(time <= step)
        last = np.flatnonzero(np.diff(owner[known], append=-1))
        warp, register = np.divmod(owner[known[last]], len(self.registers))
        first = np.append(0, last[:-1] + 1)[: len(last)]
        who = np.bitwise_or.reduceat(lanes[known], first) if len(last) else lanes[:0]
        return warp, register, places[known[last]], who

    def function_at(self, step: int, warp: int) -> str:
        """The function that a warp is in, at a step."""
        mine = self.steps_of_warp(warp)
        place = int(np.searchsorted(mine, step, "right")) - 1
        chosen = mine[max(place, 0)] if mine.size else None
        if chosen is None:
            return self.sites[0].function if self.sites else ""
        return self.sites[int(self.steps.site[chosen])].function

    def registers_at(
        self, step: int, warp: int, function: str | None = None
    ) -> dict[str, Array]:
        """The registers of a warp by lane, after a step; those that were written.

        They are those of the function that the warp is in, unless another is given.  If
        some lanes have not written a register, it is a masked array without them.
        """
        step = self._step(step, -1)
        self._warp(warp)
        name = self.function_at(step, warp) if function is None else function
        found = {}
        for number, register in enumerate(self.registers):
            if register.function == name:
                value = self.register_at(step, warp, number)
                if value is not None:
                    found[register.name] = value
        return found

    def register_at(self, step: int, warp: int, register: int) -> Array | None:
        """A register as ``registers_at`` has it; None if no lane has written it."""
        value = self.value(step, warp, register)
        if value is None:
            return None
        there = self.lanes_with(step, warp, register)
        return value if there.all() else _masked(value, there)

    def _warp(self, warp: int) -> None:
        check_whole("a warp", warp)
        if not 0 <= warp < len(self.warps):
            raise ValueRangeError(
                f"the warps are 0 to {len(self.warps) - 1}; given {warp}"
            )

    # ── memory ──────────────────────────────────────────────────────────────

    @cached_property
    def _starts(self) -> list[int]:
        """Where the first bytes of each memory are."""
        sizes = [each.size for each in self.memories]
        return [0, *np.cumsum(sizes).tolist()]

    def _first(self, memory: int) -> tuple[Array, Array]:
        """The bytes of a memory before the first step, and their states."""
        start, end = self._starts[memory : memory + 2]
        bits = self.columns["defined"][start // 8 : -(-end // 8)]
        known = np.unpackbits(bits, bitorder="little")[start % 8 :][: end - start]
        return self.columns["initial"][start:end].copy(), known.astype(np.uint8)

    @cached_property
    def _writes_of(self) -> list[Array]:
        """The writes to each memory, in their order."""
        memory = self.columns["w_memory"]
        return [np.flatnonzero(memory == each) for each in range(len(self.memories))]

    @cached_property
    def _reads_of(self) -> list[Array]:
        memory = self.columns["r_memory"]
        return [np.flatnonzero(memory == each) for each in range(len(self.memories))]

    def memory_at(
        self, step: int, memory: int | str
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The bytes of a memory after a step, and their states.

        A state is 0 if the byte was not written, 1 if it was, and 2 if a unit that was
        issued and is not done writes it.  The step -1 is before the first one.
        """
        step, number = self._step(step, -1), self._memory(memory)
        writes = self._writes_of[number]
        count = int(np.searchsorted(self.columns["w_step"][writes], step, "right"))
        data, state = self._frame(number, count)
        for unit in self.units:
            done = unit["done"] if unit["done"] >= 0 else len(self) + 1
            if unit["issued"] <= step < done:
                for where, start, size in unit["writes"]:
                    if where == number:
                        state[start : start + size] = IN_FLIGHT
        return data, state

    def _frame(self, memory: int, count: int) -> tuple[Array, Array]:
        """A memory after so many writes; what is on the way is kept."""
        every = max(KEYFRAME, len(self._writes_of[memory]) // MOST_KEYFRAMES)
        kept = self._frames.setdefault(memory, [(0, *self._first(memory))])
        while kept[-1][0] + every <= count:
            last = kept[-1]
            data, state = last[1].copy(), last[2].copy()
            self._apply(memory, last[0], last[0] + every, data, state)
            kept.append((last[0] + every, data, state))
        begin, data, state = kept[min(count // every, len(kept) - 1)]
        data, state = data.copy(), state.copy()
        self._apply(memory, begin, count, data, state)
        return data, state

    def _apply(
        self, memory: int, first: int, last: int, data: Array, state: Array
    ) -> None:
        """Make some writes; of those to one byte, the last stays."""
        chosen = self._writes_of[memory][first:last]
        size = self.columns["w_size"][chosen].astype(np.int64)
        total = int(size.sum())
        if not total:
            return
        within = np.arange(total) - np.repeat(np.cumsum(size) - size, size)
        goal = np.repeat(self.columns["w_offset"][chosen].astype(np.int64), size)
        of = np.repeat(self.columns["w_at"][chosen].astype(np.int64), size)
        goal += within
        inside = goal < data.size
        data[goal[inside]] = self.columns["bytes"][(of + within)[inside]]
        state[goal[inside]] = WRITTEN

    # ── errors ──────────────────────────────────────────────────────────────

    def errors(self, memory: int | str, step: int | None = None) -> ArrayErrors | None:
        """The errors of the elements of an array, as they are after a step.

        Without one, they are those of the array as the launch has left it.  They are
        there if the launch had ``numerics=True``, too.  None: the array was not
        written, has no floats, or is too large.  An element that no step has written
        has no error, and that of others may not be known: see ``known``.
        """
        number = self._memory(memory)
        if step is not None:
            step = self._step(step, -1)
        for each in self.head.get("numerics", {}).get("outputs", ()):
            if each["memory"] == number:
                if step is not None:
                    return self._errors_at(each, step)
                chosen = slice(each["at"], each["at"] + each["count"])
                wide = slice(2 * chosen.start, 2 * chosen.stop)
                exact = self.columns["e_exact"][wide].view(np.float64)
                error, ulp, lost = (
                    self.columns[name][chosen].view(np.float32) for name in ERRORS[1:]
                )
                return ArrayErrors(
                    exact, error, ulp, lost, np.ones(each["count"], bool)
                )
        return None

    def _errors_at(self, output: Row, step: int) -> ArrayErrors:
        """The errors of an array after a step: of each element, the last one then."""
        found = moments_of(self.columns, output)
        some = np.flatnonzero(found["h_step"] <= step)
        element = found["h_element"][some].astype(np.int64)
        last = np.diff(element, append=-1) != 0
        some, element = some[last], element[last]
        exact = np.full(output["count"], np.nan)
        exact[element] = found["h_exact"].view(np.float64)[some]
        error, ulp, lost = (
            np.full(output["count"], np.nan, np.float32) for _ in range(3)
        )
        error[element] = found["h_error"].view(np.float32)[some]
        ulp[element] = found["h_ulp"].view(np.float32)[some]
        lost[element] = found["h_lost"].view(np.float32)[some]
        known = np.zeros(output["count"], bool)
        known[element] = found["h_known"][some] > 0
        return ArrayErrors(exact, error, ulp, lost, known)

    # ── who ─────────────────────────────────────────────────────────────────

    def _touching(self, begin: str, memory: int, offset: int) -> Array:
        """The accesses of a byte, in their order."""
        of = self._writes_of if begin == "w" else self._reads_of
        every = of[memory]
        first = self.columns[f"{begin}_offset"][every].astype(np.int64)
        size = self.columns[f"{begin}_size"][every]
        found: Array = every[(first <= offset) & (offset < first + size)]
        return found

    def _access(self, begin: str, number: int) -> Access:
        step, memory, offset, size, lane, unit = (
            int(self.columns[f"{begin}_{name}"][number])
            for name in ("step", "memory", "offset", "size", "lane", "unit")
        )
        value = b""
        if begin == "w":
            at = int(self.columns["w_at"][number])
            value = self.columns["bytes"][at : at + size].tobytes()
        who = None if lane == NOBODY else lane
        which = None if unit < 0 else unit
        return Access(step, memory, offset, size, who, which, begin == "w", value)

    def writer(self, step: int, memory: int | str, offset: int) -> Access | None:
        """Who wrote a byte last, at a step or before; None if nobody did."""
        step, number = self._step(step, -1), self._byte(memory, offset)
        found = self._touching("w", number, offset)
        found = found[self.columns["w_step"][found] <= step]
        return self._access("w", int(found[-1])) if found.size else None

    def origins(self, step: int, memory: int | str, offset: int) -> list[Origin]:
        """Where a byte comes from: itself, then what copies had it from.

        The first is the byte with who wrote it last, at a step or before.  If a copy
        did, the byte that it copied follows, with who had written that one by then, and
        so on: the last one was written by something else, or by nobody.
        """
        step, number = self._step(step, -1), self._byte(memory, offset)
        found: list[Origin] = []
        until = len(self.columns["w_step"])
        while True:
            every = self._touching("w", number, offset)
            some = (every < until) & (self.columns["w_step"][every] <= step)
            last = every[some][-1:].tolist()
            writer = self._access("w", last[0]) if last else None
            found.append(Origin(number, offset, writer))
            source = None if writer is None else self._copied(writer, number, offset)
            if source is None:
                return found
            assert writer is not None
            number, offset, read = source
            # A copy reads before it writes; some have read a while before.
            until, step = last[0], step if read < 0 else read

    def _copied(
        self, writer: Access, memory: int, offset: int
    ) -> tuple[int, int, int] | None:
        """The byte that a copy has put to another; when it read it, if long before."""
        if writer.unit is None:
            return None
        unit, columns = self.units[writer.unit], self.columns
        if not 0 <= unit["done"] <= writer.step:
            return None  # so far it hides what it will write
        own = np.arange(*np.searchsorted(columns["c_unit"], writer.unit + np.arange(2)))
        past = offset - columns["c_offset"][own].astype(np.int64)
        here = (columns["c_memory"][own] == memory) & (past >= 0)
        chosen = np.flatnonzero(here & (past < columns["c_size"][own]))
        if chosen.size:
            row, more = int(own[chosen[0]]), int(past[chosen[0]])
            at = int(columns["c_at"][row]) + more
            return int(columns["c_from"][row]), at, unit.get("read", -1)
        return self._copied_by_lane(writer, offset)

    def _copied_by_lane(
        self, writer: Access, offset: int
    ) -> tuple[int, int, int] | None:
        """What a lane has read for a ``cp.async`` that was done at once."""
        columns, first = self.columns, writer.step
        begin, end = np.searchsorted(columns["r_step"], [first, first + 1]).tolist()
        past = offset - writer.offset
        for read in range(begin, end):
            if (
                columns["r_lane"][read] == writer.lane
                and columns["r_size"][read] > past
            ):
                at = int(columns["r_offset"][read]) + past
                return int(columns["r_memory"][read]), at, -1
        return None

    def next_write(self, step: int, memory: int | str, offset: int) -> int | None:
        """The first step after one that writes a byte."""
        step, number = self._step(step, -1), self._byte(memory, offset)
        steps = self.columns["w_step"][self._touching("w", number, offset)]
        later = steps[steps > step]
        return int(later[0]) if later.size else None

    def readers(self, step: int, memory: int | str, offset: int) -> list[Access]:
        """Who read what a byte holds at a step: from its write until the next one."""
        last = self.writer(step, memory, offset)
        until = self.next_write(step, memory, offset)
        found = self._touching("r", self._byte(memory, offset), offset)
        steps = self.columns["r_step"][found]
        begin = -1 if last is None else last.step
        end = len(self) + 1 if until is None else until
        chosen = found[(steps >= begin) & (steps <= end)]
        return [self._access("r", int(each)) for each in chosen]

    def _byte(self, memory: int | str, offset: int) -> int:
        number = self._memory(memory)
        check_whole("an offset", offset)
        size = self.memories[number].size
        if not 0 <= offset < size:
            name = self.memories[number].name
            raise ValueRangeError(f"{name} has bytes 0 to {size - 1}; given {offset}")
        return number

    # ── going on ────────────────────────────────────────────────────────────

    @cached_property
    def _by_warp(self) -> list[Array]:
        return [
            np.flatnonzero(self.steps.warp == each) for each in range(len(self.warps))
        ]

    def steps_of_warp(self, warp: int) -> Array:
        """The steps of a warp."""
        self._warp(warp)
        return self._by_warp[warp]

    def place(self, site: int) -> tuple[str, int]:
        """The file and the line of an instruction: of the source, else of the PTX."""
        of = self.sites[site]
        return (of.file, of.line) if of.file else (self.ptx_file, of.ptx_line)

    @property
    def ptx_file(self) -> str:
        """The name of the PTX."""
        return str(self.head["files"][0]["name"])

    def steps_of_line(self, file: str, line: int) -> Array:
        """The steps of all instructions of a line, of the source or of the PTX."""
        check_whole("a line", line)
        if not isinstance(file, str):
            raise BadCall(f"a file is named by a text; given {file!r}")
        ptx = file == self.ptx_file
        wanted = [
            number
            for number, each in enumerate(self.sites)
            if (
                each.ptx_line == line if ptx else (each.file, each.line) == (file, line)
            )
        ]
        return np.flatnonzero(np.isin(self.steps.site, wanted))

    @cached_property
    def _numbered(self) -> dict[tuple[str, int], int]:
        """The lines that have instructions, numbered."""
        known: dict[tuple[str, int], int] = {}
        for each in range(len(self.sites)):
            known.setdefault(self.place(each), len(known))
        return known

    def line_number(self, place: tuple[str, int]) -> int:
        """The number of a line among those that have instructions; else -1."""
        return self._numbered.get(place, -1)

    @cached_property
    def line_numbers(self) -> Array:
        """For each instruction, a number that those of one line have in common."""
        every = range(len(self.sites))
        return np.array([self._numbered[self.place(each)] for each in every], np.int64)

    def entries(self, lines: Array | None = None) -> Array:
        """For each step, whether its warp comes to a line, or with a loop to it again.

        ``lines`` has a number for each instruction: its line, or -1 if it has none.
        Without it, these are ``line_numbers``.
        """
        line = self.line_numbers if lines is None else as_array(lines)
        if line.shape != (len(self.sites),) or line.dtype.kind not in "iu":
            raise BadCall(
                f"lines has a whole number for each of {len(self.sites)} instructions; "
                f"given {line.dtype} of shape {line.shape}"
            )
        found = line[self.steps.site] >= 0
        for mine in self._by_warp:
            site = np.asarray(self.steps.site[mine], np.int64)
            again = site[1:] <= site[:-1]
            found[mine[1:]] &= again | (line[site[1:]] != line[site[:-1]])
        return found

    @cached_property
    def _enters(self) -> Array:
        return self.entries()

    @cached_property
    def _events(self) -> Array:
        """The steps at which something happens besides computing."""
        found = {
            *(each[name] for each in self.units for name in EVENTS),
            *(at for each in self.barriers for at, *_ in each.get("phases", ())),
            *(step for each in self.problems for step in each["steps"]),
        }
        meets = [n for n, each in enumerate(self.sites) if MEETS.match(each.opcode)]
        found.update(np.flatnonzero(np.isin(self.steps.site, meets)).tolist())
        return np.array(sorted(e for e in found if 0 <= e < len(self)), np.int64)

    def next_step(
        self,
        step: int,
        warp: int | None = None,
        by: str = "instruction",
        back: bool = False,
    ) -> int | None:
        """The next step, or the one before; None if there is none.

        With ``by="line"``, it is the next one at which the warp that is given, or that
        of the step, comes to another line of the source, or with a loop to the same;
        without a source, of the PTX.  Backwards, the beginning of a line comes first.
        With ``by="event"``, it is the next one at which asynchronous work is issued,
        done or waited for, a warp comes to a barrier, an mbarrier changes, or a problem
        shows.
        """
        step = self._step(step, -1)
        check_flags(back=back)
        if not is_among(by, WAYS):
            raise BadCall(f"by is {one_of(WAYS)}; given {by!r}")
        if by == "line" and warp is None and step >= 0:
            warp = int(self.steps.warp[step])
        mine = np.arange(len(self)) if warp is None else self.steps_of_warp(warp)
        chosen = mine[mine < step][::-1] if back else mine[mine > step]
        if by == "event":
            chosen = chosen[np.isin(chosen, self._events)]
        elif by == "line":
            chosen = chosen[self._enters[chosen]]
        return int(chosen[0]) if chosen.size else None

    def lines(self, file: str) -> list[str]:
        """The text of a file, line by line; empty if it could not be read."""
        for each in self.head["files"]:
            if each["name"] == file:
                return str(each["text"]).splitlines()
        return []

    # ── files ───────────────────────────────────────────────────────────────

    def save(self, path: str | PathLike[str]) -> None:
        """Keep it in a file, ``.npz``, with the runs beside it."""
        from fragmenta.inspect.replay.files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Replay:
        """Read what :meth:`save` has written."""
        from fragmenta.inspect.replay.files import load

        first, *others = load(path)
        return cls(*first, [cls(*each) for each in others])


def _masked(value: Array, there: NDArray[np.bool_]) -> Array:
    """A register without the lanes that have no value."""
    gone = ~there.reshape(-1, *[1] * (value.ndim - 1))
    return np.ma.masked_array(value, np.broadcast_to(gone, value.shape))


def check_whole(what: str, value: object) -> None:
    """Refuse what is no whole number."""
    if not is_whole(value):
        raise BadCall(f"{what} is a whole number; given {value!r}")


def check_beside(replay: Replay, other: object, name: object = "") -> None:
    """Refuse what is no other run, and what is no name."""
    if not isinstance(other, Replay):
        raise BadCall(f"a run beside this one is a Replay; given {other!r}")
    if not isinstance(name, str) or len(name) > MOST_NAME or "\n" in name:
        raise BadCall(
            f"the name of a run is a text of at most {MOST_NAME} letters; given "
            f"{shortened(str(name))}"
        )


_BEGUN = ("warp", "register", "at")
_LATE = (*_BEGUN, "step")


def _plain(given: Value) -> Value:
    """Lists of JSON as tuples."""
    return tuple(map(_plain, given)) if isinstance(given, list) else given
