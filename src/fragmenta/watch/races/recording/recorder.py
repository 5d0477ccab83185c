"""Records what the warps and the units of a launch do to what synchronises them.

A :class:`Recorder` is the observer of one cluster: it answers the port of the units and
the events of :mod:`fragmenta.watch.races.probes.synchronisation`, and writes a
:class:`~fragmenta.watch.races.recording.log.Log`.  A test of an mbarrier that is no
loop by itself is answered with no, once: that is what it answers in some order, and
the wait that follows is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES, RANK_BITS, SHARED_WINDOW
from fragmenta.engine.simt.wgmma_operands import Located
from fragmenta.engine.units import port
from fragmenta.engine.units.barrier_state import ClusterBarrierRecord
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.events import Event, carries_out, first, together
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.findings import Problems
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.port import ChangedMap, Columns, Port, Step
from fragmenta.engine.units.work import Work
from fragmenta.ptx import effects, rules
from fragmenta.ptx.families import MBARRIERS, REDUCTIONS
from fragmenta.ptx.module import type_bits
from fragmenta.ptx.ordering import scope
from fragmenta.watch.races.probes.polling import spins
from fragmenta.watch.races.probes.synchronisation import LOOP
from fragmenta.watch.races.recording.log import (
    Action,
    Arrives,
    ClusterArrived,
    ClusterWaited,
    Counted,
    Entry,
    Exited,
    Fenced,
    Flag,
    Flying,
    Initialised,
    Issued,
    Joined,
    Log,
    Looped,
    Met,
    Peeked,
    Place,
    Touched,
    Until,
    Waited,
)

MOST_ENTRIES = 400_000
"""Entries of a launch; what comes later is not recorded."""
PATIENCE = 2_000
"""Passes of loops on words without anything else before it is a deadlock."""
Ends: TypeAlias = Callable[[int, Flag], bool | None]
"""Whether the pass of a loop that an access is ends it: asked with the site."""


@dataclass
class Force:
    """Values that some lanes are to read from words, one after the other."""

    block: int
    warp: int
    lanes: int
    sites: set[int]
    """The strong accesses that are counted."""
    left: list[int]


MOST_HELP = 256
"""Loops that are ended in a run with forced values."""


def _wanted(action: Flag) -> Iterator[int]:
    """Values of a word that may end a loop on it: those that it is compared with."""
    until = action.until
    named = until.registers if isinstance(until, Looped) else ()
    if isinstance(until, Until):
        named = (until.value,)
    whole = (1 << 8 * action.size) - 1
    for each in (*named, 0, action.found ^ whole ^ whole >> 1):
        for value in (each, each + 1, each - 1):
            yield value & whole


class OrdersWatch:
    """Records all clusters of a launch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.logs: list[Log] = []
        self.entries = 0
        self.force: Force | None = None
        self.ends: Ends = lambda site, action: None if action.until is None else True
        """Whether a pass of a loop ends it; None: it is not known what it waits for."""
        self.guessed = False
        """Whether that happened."""
        self.fruitless = 0
        """Passes of loops on words since anything else happened."""
        self._helped = 0
        self.polling: dict[tuple[int, ...], tuple[Recorder, Warp, Entry]] = {}
        """The last pass of each loop on a word that goes on."""
        self.values: dict[int, int] = {}
        """What words held before their first strong access, by address."""
        self._recorders: list[Recorder] = []
        module = machine.launch.module()
        places = machine.launch.compiled.places
        self.spinning = {
            number: spins(module.functions[function], index)
            for number, (function, index) in (
                (each.number, places[each.site])
                for each in machine.events
                if each.words[0] in MBARRIERS | {"flag"}
            )
        }
        """Whether an event repeats itself until it succeeds, by its number."""
        machine.events = [self._peeking(each) for each in machine.events]

    def _peeking(self, event: Event) -> Event:
        tests = event.mnemonic.startswith(effects.WAYS["mbarrier"].waits)
        if not tests or self.spinning[event.number]:
            return event

        def run(warp: Warp, event: Event, lanes: int) -> int:
            recorder = warp.block.cluster.port
            assert isinstance(recorder, Recorder)
            if recorder.refuses(warp, event, lanes):
                event.operands[0].put(warp, lanes, 0)
                return lanes
            return carried(warp, event, lanes)

        carried = event.run
        return event._replace(run=run)

    def observer(self, cluster: Cluster) -> Recorder:
        """A new recorder of a cluster."""
        made = Recorder(self, cluster)
        self._recorders.append(made)
        return made

    def help(self) -> tuple[int, ...] | None:
        """Let a loop of the lanes end that read other values; which, if one will.

        In the order that has those values, others write the word that they wait for.
        Here it is written for them, so that what follows is recorded, too.
        """
        force = self.force
        if force is None or self._helped == MOST_HELP:
            return None
        for key, (_, warp, (lanes, site, action)) in self.polling.items():
            mine = (warp.block.index, warp.number) == (force.block, force.warp)
            if not (mine and lanes & force.lanes and isinstance(action, Flag)):
                continue
            for value in _wanted(action):
                if self.ends(site, action._replace(found=value)):
                    memory, place = warp.block.memory(action.address)
                    data = value.to_bytes(action.size, "little")
                    memory[place : place + action.size] = list(data)
                    self._helped, self.fruitless = self._helped + 1, 0
                    return key
        return None

    def polled(self, step: Step) -> Flag | None:
        """The pass before of the loop that lanes are in, which is forgotten."""
        block, number = step.warp.block.index, step.warp.number
        found = None
        for key in list(self.polling):
            if key[:2] == (block, number) and key[3] & step.lanes:
                _, _, entry = self.polling.pop(key)
                assert isinstance(entry.action, Flag)
                found = entry.action if entry.site == step.event.site else found
        return found

    def stuck(self) -> None:
        """The launch is in a deadlock: record the waits that did not end."""
        for recorder, warp, entry in self.polling.values():
            recorder.add(warp, *entry)
        self.polling.clear()
        for each in self._recorders:
            each.stuck()

    def collect(self, problems: Problems) -> None:
        """Add nothing: the launch was watched before."""

    def copying(self) -> None:
        """Each cluster has to be observed in Python."""

    def told(self) -> Any:
        """What was recorded."""
        return self.logs

    def take(self, told: Any) -> None:
        """Add what was recorded elsewhere."""
        self.logs += told

    def close(self) -> None:
        """Free what only the run needed."""
        for each in self._recorders:
            vars(each).clear()
        self._recorders.clear()
        self.polling.clear()
        del self.machine


class Recorder(Port):
    """Records one cluster after the other."""

    functions = None

    def __init__(self, watch: OrdersWatch, cluster: Cluster) -> None:
        self.watch, self.cluster = watch, cluster
        self.log: Log | None = None
        self._flying: dict[Work, Flying] = {}
        self._refused: set[tuple[int, int, int, int, int]] = set()
        self._stalled: dict[tuple[int, int, Place], Entry] = {}
        self._polled: dict[tuple[int, int], list[Entry]] = {}
        """The last passes of loops on words, of which the end is not known."""
        self._passing: dict[tuple[int, int, int], int] = {}
        """Lanes of a ``bar.warp.sync`` that others passed before, by warp and mask."""

    def begin(self) -> None:
        """A new cluster begins."""
        launch = self.watch.machine.launch
        members = launch.shape.members(self.cluster.number)
        self.log = Log(
            self.cluster.number, list(members), launch.shape.warps, launch.shape.threads
        )
        self.watch.logs.append(self.log)
        self._flying.clear()
        self._refused.clear()
        self._stalled.clear()
        self._polled.clear()
        self._passing.clear()

    def add(self, warp: Warp, lanes: int, site: int, action: Action) -> None:
        """Write an entry."""
        assert self.log is not None
        if self.watch.entries >= MOST_ENTRIES:
            self.log.cut = f"more than {MOST_ENTRIES:,} events were recorded"
            return
        self.watch.entries += 1
        self.watch.fruitless = 0
        key = warp.block.rank, warp.number
        if key in self._polled:
            self._flush(key, lanes)
        self.log.entries.setdefault(key, []).append(Entry(lanes, site, action))

    def meets(self, warp: Warp, site: int, lanes: int, mask: int) -> None:
        """Lanes passed a ``bar.warp.sync``: all of its mask met when the first did."""
        key = warp.block.rank, warp.number, mask
        left = self._passing.get(key, 0)
        if lanes & ~left:
            left = mask & warp.live
            self.add(warp, left, site, Met())
        self._passing[key] = left & ~lanes

    def _add(self, step: Step, action: Action) -> None:
        self.add(step.warp, step.lanes, step.event.site, action)

    # ── mbarriers ───────────────────────────────────────────────────────────

    def change(self, step: Step, what: Mbarrier | Columns | ChangedMap) -> None:
        """An mbarrier was made or is none any more."""
        if isinstance(what, Mbarrier):
            alive = step.warp.block.mbarriers.get(what.offset) is what
            self._add(step, Initialised(_place(what), what.expected if alive else 0))

    def counts(
        self, step: Step, mbarrier: Mbarrier, arrivals: int, expected: int, drops: bool
    ) -> None:
        """An instruction counts arrivals and bytes at an mbarrier."""
        words, phase = step.event.words, mbarrier.phase
        how = arrivals, expected, drops, phase, words
        self._add(step, Counted(_place(mbarrier), *how))

    def stall(self, step: Step, mbarrier: Mbarrier, phase: int) -> None:
        """Lanes begin to wait: that is recorded when they go on, or never do."""
        parity = "parity" in step.event.words
        waits = Waited(_place(mbarrier), phase, parity, step.event.words, True)
        key = step.warp.block.rank, step.warp.number, _place(mbarrier)
        self._stalled[key] = Entry(step.lanes, step.event.site, waits)

    def acquire(self, step: Step, waited: port.Waited) -> None:
        """Lanes have waited."""
        mbarrier, warp = waited.mbarrier, step.warp
        rank, number = warp.block.rank, warp.number
        if mbarrier is not None:
            self._stalled.pop((rank, number, _place(mbarrier)), None)
            parity = "parity" in step.event.words
            words = step.event.words
            self._add(step, Waited(_place(mbarrier), waited.until, parity, words))
            return
        match waited.done_by:
            case "cluster":
                self._add(step, ClusterWaited())
            case "wgmma_group":
                queue = ("wgmma", rank, number // 4, 0)
                self._add(step, Joined(queue, waited.until, False))
            case "async_group":
                queue = ("cp.async", rank, number, 0)
                self._add(step, Joined(queue, waited.until, False))
            case "bulk_group":
                queue = ("bulk", rank, number, first(step.lanes))
                self._add(step, Joined(queue, waited.until, waited.read))
            case "wait::ld" | "wait::st" as which:
                queue = (which, rank, number, 0)
                self._add(step, Joined(queue, 1 << 62, False))

    def refuses(self, warp: Warp, event: Event, lanes: int) -> bool:
        """Whether a test of an mbarrier is to be answered with no, as it may be."""
        address, given = (
            each.value(warp, first(lanes)) for each in event.operands[1:3]
        )
        offset = address & (1 << RANK_BITS) - 1
        mbarrier = warp.block.mbarriers.get(offset)
        if mbarrier is None:
            return False
        if "parity" in event.words:
            same = mbarrier.phase & 1 == given & 1
            phase = mbarrier.phase if same else mbarrier.phase - 1
        else:
            phase = given >> 32
        key = event.number, warp.block.rank, warp.number, offset, phase
        if phase < 0 or key in self._refused:
            return False
        self._refused.add(key)
        place = warp.block.rank, offset
        self.add(warp, lanes, event.site, Peeked(place, phase))
        return True

    # ── words ───────────────────────────────────────────────────────────────

    def read(self, step: Step, action: Flag) -> None:
        """A strong access; a pass of a loop that goes on is not recorded.

        If it is not known what a loop waits for, it is taken to wait for what its last
        pass finds.  If all that happens are such passes, the launch hangs.
        """
        warp, event, lanes = step
        ends = self.watch.ends(event.site, action)
        if (
            ends is None
            and self.watch.spinning[event.number]
            and action.opcode not in REDUCTIONS
        ):
            until = Until("eq", action.found, -1)
            made = action._replace(until=until, guessed=True)
            self._poll(warp, Entry(lanes, event.site, made))
            self.watch.guessed = True
        else:
            first = self.watch.polled(step)
            if first is not None and isinstance(action.until, Looped):
                # The loop starts from what its first pass had.
                action = action._replace(until=first.until)
            if ends is not False:
                self._add(step, action)
                return
            entry = Entry(lanes, event.site, action._replace(pending=True))
            self.watch.polling[_key(step)] = self, warp, entry
        warp.give_way()
        self.watch.fruitless += 1
        if self.watch.fruitless <= PATIENCE:
            return
        helped = self.watch.help()
        if helped == _key(step):  # the access that is about to happen ends it
            self.watch.polled(step)
            self._add(step, action)
        elif helped is None:
            what = "all that is left are loops on words that nobody changes"
            raise Stop(rules.DEADLOCK, event.site, warp, lanes, what)

    def _poll(self, warp: Warp, entry: Entry) -> None:
        """Keep the last pass of a loop of which the end is not known."""
        key = warp.block.rank, warp.number
        others = self._polled.get(key, [])
        if any(each.lanes & entry.lanes and each.site != entry.site for each in others):
            self._flush(key, entry.lanes)
            others = self._polled.get(key, [])
        kept = [each for each in others if not each.lanes & entry.lanes]
        self._polled[key] = [*kept, entry]

    def _flush(self, key: tuple[int, int], lanes: int = -1) -> None:
        """The loops on words that some lanes of a warp were in have ended."""
        every = self._polled.pop(key, [])
        left = [each for each in every if not each.lanes & lanes]
        if left:
            self._polled[key] = left
        ended = [each for each in every if each.lanes & lanes]
        if ended and self.log is not None:
            self.log.entries.setdefault(key, []).extend(ended)

    def forced(self, warp: Warp, site: int, lanes: int) -> int | None:
        """What a word is to hold before some lanes read it; None: what it holds."""
        force = self.watch.force
        if force is None or site not in force.sites or not force.left:
            return None
        mine = (warp.block.index, warp.number) == (force.block, force.warp)
        if not (mine and lanes & force.lanes) or self._again(warp, site, lanes):
            return None
        return force.left.pop(0)

    def _again(self, warp: Warp, site: int, lanes: int) -> bool:
        """Whether an access is a further pass of a loop that some lanes are in."""
        here = warp.block.index, warp.number, site
        passes = (key for key in self.watch.polling if key[:3] == here)
        others = self._polled.get((warp.block.rank, warp.number), [])
        return any(key[3] & lanes for key in passes) or any(
            each.lanes & lanes and each.site == site for each in others
        )

    # ── barriers ────────────────────────────────────────────────────────────

    def release(self, step: Step, barrier: Mbarrier | ClusterBarrierRecord) -> None:
        """Lanes arrive at the barrier of the cluster; mbarriers count arrivals."""
        if isinstance(barrier, ClusterBarrierRecord):
            self._add(step, ClusterArrived(step.event.words))

    def fence(self, step: Step) -> None:
        """A fence."""
        if step.event.words[0] in ("fence", "membar"):
            self._add(step, Fenced(step.event.words))

    def touch(self, step: Step, product: Located | None = None) -> None:
        """A warp issues its part of a product: the warpgroup meets."""
        if product is not None:
            self._add(step, Met(warpgroup=True))

    # ── work in flight ──────────────────────────────────────────────────────

    def issue(self, step: Step, work: Work) -> None:
        """Work is in flight from now on."""
        made = Flying(step.event.mnemonic, work.site, work.completes, work.proxy)
        made.combines, made.ordinal = work.combines, len(self._flying)
        made.reads, made.writes = list(work.sources), list(work.goals)
        if work.slot is not None:
            made.queue, made.epoch = work.slot[:-1], max(work.slot.epoch, 0)
        arrive = work.arrivals, work.bytes
        made.signals = [(_place(each), *arrive) for each in work.mbarriers]
        made.after = [self._flying[e] for e in work.before if e in self._flying]
        self._flying[work] = made
        later = work.role is not None
        self._add(step, self._written(step, work, made) if later else Issued(made))

    def _written(self, step: Step, work: Work, made: Flying) -> Flag:
        """The strong access that work makes when it is done."""
        (warp, event, lanes), (goal,) = step, work.goals
        address, size = int(goal.starts[0]), goal.size
        memory, place = warp.block.memory(address)
        there = int.from_bytes(memory[place : place + size].tobytes(), "little")
        self.watch.values.setdefault(address, there)
        value = event.operands[1].value(warp, first(lanes)) & (1 << 8 * size) - 1
        opcode, kind = event.words[0], event.words[-1]
        operation = event.words[-2] if work.combines else ""
        reach = scope(event.words).name.lower()
        how = opcode, operation, reach, "release", (value,), there
        return Flag(address, size, *how, kind=kind, work=made)

    # ── the end ─────────────────────────────────────────────────────────────

    def stuck(self) -> None:
        """The cluster is in a deadlock: add the waits that did not end."""
        for key in list(self._polled):
            self._flush(key)
        for (rank, number, _), entry in self._stalled.items():
            warp = self.cluster.blocks[rank].warps[number]
            self.add(warp, *entry)
        self._stalled.clear()


def _place(mbarrier: Mbarrier) -> Place:
    return mbarrier.block.rank, mbarrier.offset


def _key(step: Step) -> tuple[int, ...]:
    warp = step.warp
    return warp.block.index, warp.number, step.event.site, step.lanes


# ── events of the instrument ────────────────────────────────────────────────


def _recorder(warp: Warp) -> Recorder:
    found = warp.block.cluster.port
    assert isinstance(found, Recorder)
    return found


@carries_out("arrives")
def arrives(warp: Warp, event: Event, lanes: int) -> int:
    """Lanes are about to arrive at a barrier, or poll it."""
    new = lanes & ~int(warp.words[layout.ARRIVED >> 2])
    if new:
        for members, (number, *count) in together(warp, new, *event.operands):
            missing = LANES - warp.live.bit_count() if members == warp.live else 0
            expected = count[0] if count else 0
            action = Arrives(event.words[1], number, expected, missing)
            _recorder(warp).add(warp, members, event.site, action)
    return lanes


@carries_out("met")
def met(warp: Warp, event: Event, lanes: int) -> int:
    """Lanes passed a ``bar.warp.sync``, or exchange values."""
    for group, given in together(warp, lanes, *event.operands):
        mask = given[0] & 0xFFFFFFFF if given else group
        _recorder(warp).meets(warp, event.site, group, mask)
    return lanes


@carries_out("leaves")
def leaves(warp: Warp, event: Event, lanes: int) -> int:
    """Lanes are about to end."""
    _recorder(warp).add(warp, lanes, event.site, Exited())
    return lanes


@carries_out("accesses")
def accesses(warp: Warp, event: Event, lanes: int) -> int:
    """A plain access is about to happen."""
    kind, size, window = event.words[1:4]
    chosen = np.flatnonzero(lanes >> np.arange(LANES) & 1)
    found = event.operands[0].lanes(warp).astype(np.int64)[chosen]
    if window == "shared":
        found = found + SHARED_WINDOW
    shared = found >> layout.SLOT_BITS == layout.SHARED_SLOT
    recorder, values = _recorder(warp), None
    if len(event.operands) == 2 and event.operands[1].kind in ("r", "i"):
        values = event.operands[1].lanes(warp).astype(np.int64)[chosen]
    for near in (True, False):
        some = shared == near
        if some.any():
            what = kind != "read", near, int(size), chosen[some], found[some]
            own = None if values is None else values[some]
            recorder.add(warp, lanes, event.site, Touched(*what, own))
    return lanes


@carries_out("flag")
def flag(warp: Warp, event: Event, lanes: int) -> int:
    """A strong access is about to happen."""
    opcode, operation, kind, window, scope, sense, compare, mask = event.words[1:9]
    size = max(1, type_bits(kind) // 8)
    at, against, *known = event.operands
    if any(each.kind == "_" for each in known):
        known = []
    compared = list(against.items) if compare == LOOP else [against] * bool(compare)
    recorder, count = _recorder(warp), len(compared)
    start = SHARED_WINDOW if window == "shared" else 0
    for members, (offset, *given) in together(warp, lanes, at, *compared, *known):
        address = offset + start
        memory, place = warp.block.memory(address)
        forced = recorder.forced(warp, event.site, members)
        if forced is not None:
            memory[place : place + size] = list(forced.to_bytes(size, "little"))
        there = int.from_bytes(memory[place : place + size].tobytes(), "little")
        recorder.watch.values.setdefault(address, there)
        values = tuple(each & (1 << 8 * size) - 1 for each in given[count:])
        until: Until | Looped | None = None
        if compare == LOOP:
            until = Looped(tuple(given[:count]))
        elif compare:
            number = given[0] & (1 << 8 * size) - 1
            until = Until(compare, number, int(mask))
        how = opcode, operation, scope, sense
        action = Flag(address, size, *how, values, there, until, kind=kind)
        recorder.read(Step(warp, event, members), action)
    return lanes
