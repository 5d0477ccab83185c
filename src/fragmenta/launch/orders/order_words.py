"""Tells an order of events in words: who did what, and who waits for what.

The names are those of the reports: lines of the source, variables in shared memory,
blocks of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.layout import SLOT_BITS
from fragmenta.engine.simt.naming import (
    COMPARED,
    KernelNames,
    block_words,
    counted,
    element,
    short,
)
from fragmenta.engine.units.findings import Launched
from fragmenta.errors import one_of
from fragmenta.launch.orders.programs import ClusterProgram
from fragmenta.ptx import rules
from fragmenta.watch.orders import program as said
from fragmenta.watch.orders.verdict import (
    Hang,
    MbarrierState,
    MeetingState,
    Waiting,
    WordState,
)

MOST_STEPS = 16
"""Steps of a story in text; JSON has all of them."""
QUIET = (said.Access, said.Fence, said.ProxyFence, said.Commit, said.ReadDone)
"""Events that a story leaves out."""


@dataclass(frozen=True)
class OrderLine:
    """One step of a story."""

    number: int
    """Its place among the steps that are told, from 1."""
    index: int
    """Its place in the order, which has steps that are not told, too."""
    who: str
    does: str
    site: int
    """The instruction: a number of ``Compiled.places``."""
    warp: str = ""
    """The warp, without its lanes."""
    minor: bool = False
    """Whether it matters less: lanes that meet or end, mbarriers that are made."""


class OrderWords:
    """Tells orders of one program."""

    def __init__(self, launch: Launched, part: ClusterProgram) -> None:
        self.launch, self.part = launch, part
        self.names = KernelNames(launch.module(), launch.compiled)

    # ── names ───────────────────────────────────────────────────────────────

    def agent(self, number: int) -> str:
        """Who an agent is."""
        who, name = self.part.agents[number], self.part.program.agents[number].name
        name = name.partition(" of block")[0]
        return f"{name}{self._of(who.block)}"

    def _of(self, block: int) -> str:
        several = len({each.block for each in self.part.agents}) > 1
        shape = self.launch.shape
        return f" of {block_words(shape.block_at(block))}" if several else ""

    def _grid(self, block: int) -> int:
        """The block of the grid that a block of the program is."""
        for agent, who in zip(self.part.program.agents, self.part.agents, strict=True):
            if agent.block == block:
                return who.block
        return block

    def mbarrier(self, of: said.Mbarrier) -> str:
        """The name of an mbarrier."""
        return f"{self.names.mbarrier(of.address)}{self._of(self._grid(of.block))}"

    def word(self, of: said.Word) -> str:
        """The name of a word in memory."""
        if of.space.startswith("shared"):
            return self.names.shared(of.address) or f"shared {of.address:#x}"
        offset = of.address & (1 << SLOT_BITS) - 1
        for each in self.launch.places:
            if each.slot == of.address >> SLOT_BITS:
                return element(each.name, each.elements, offset)
        return f"global {of.address:#x}"

    def meeting(self, of: said.Meeting) -> str:
        """The name of a barrier."""
        if isinstance(of, said.Barrier):
            return f"barrier {of.number}{self._of(self._grid(of.block))}"
        if of.name:
            return f"the wgmma of warpgroup {of.warp // 4}"
        return f"the other lanes of warp {of.warp}"

    def place(self, event: said.Event) -> str:
        """Where an event is in the text."""
        site = site_of(event)
        return f" at {self.names.place(site)}" if site >= 0 else ""

    # ── steps ───────────────────────────────────────────────────────────────

    def steps(self, order: Sequence[said.OrderStep]) -> list[OrderLine]:
        """All steps of an order that matter."""
        states = _States()
        told: list[OrderLine] = []
        for index, step in enumerate(order):
            note = states.apply(step.event)
            if isinstance(step.event, QUIET):
                continue
            place = len(told) + 1, index
            who = self.agent(step.agent)
            if step.unit is not None:
                unit = self.part.units.get(step.unit)
                name = short(unit.name) if unit is not None else "work"
                who = f"the {name} of {who}"
            does = self.does(step.event, step.observed) + note
            warp = self.warp(step.agent) if step.unit is None else ""
            minor = _minor(step.event)
            told.append(OrderLine(*place, who, does, site_of(step.event), warp, minor))
        return told

    def warp(self, number: int) -> str:
        """The warp of an agent."""
        who = self.part.agents[number]
        return f"warp {who.warp}{self._of(who.block)}"

    def does(self, event: said.Event, observed: int | None = None) -> str:
        """What an event does, and where it is."""
        return f"{self._does(event, observed)}{self.place(event)}"

    def _does(self, event: said.Event, observed: int | None) -> str:
        match event:
            case said.Sync(said.WarpBarrier()):
                return f"meets {self.meeting(event.barrier)}"
            case said.Sync() | said.Arrive():
                of = f" of {event.count} threads" if event.count else ""
                then = " and waits" if isinstance(event, said.Sync) else ""
                return f"arrives at {self.meeting(event.barrier)}{of}{then}"
            case said.ClusterArrive():
                return "arrives at the barrier of the cluster"
            case said.ClusterWait():
                return "passes the barrier of the cluster"
            case said.MbarrierInit():
                name, count = self.mbarrier(event.mbarrier), event.count
                return f"initialises {name} with {counted(count, 'arrival')}"
            case said.MbarrierInval():
                return f"makes {self.mbarrier(event.mbarrier)} invalid"
            case said.MbarrierArrive():
                times = f" {event.count} times" if event.count > 1 else ""
                more = f" and expects {counted(event.expect, 'byte')}"
                return (
                    f"arrives{times} at {self.mbarrier(event.mbarrier)}"
                    f"{more if event.expect else ''}"
                )
            case said.MbarrierRaise():
                more = counted(event.count, "more arrival")
                return f"makes {self.mbarrier(event.mbarrier)} expect {more}"
            case said.ExpectTx():
                more = counted(event.bytes, "byte")
                return f"expects {more} at {self.mbarrier(event.mbarrier)}"
            case said.CompleteTx():
                more = counted(event.bytes, "byte")
                return f"brings {more} to {self.mbarrier(event.mbarrier)}"
            case said.MbarrierWait():
                return f"passes the wait for {self._waits_for(event)}"
            case said.MbarrierTest():
                said_so = "yes" if observed else "no"
                return f"tests {self._waits_for(event)}: {said_so}"
        return self._does_more(event, observed)

    def _does_more(self, event: said.Event, observed: int | None) -> str:
        match event:
            case said.Issue():
                return f"issues {short(event.unit.kind)}"
            case said.GroupWait() | said.UnitWait():
                return "has waited for its work in flight"
            case said.Load():
                return f"reads {observed} from {self.word(event.word)}"
            case said.Store():
                return f"stores {event.value} to {self.word(event.word)}"
            case said.Atomic():
                found = "" if observed is None else f", and finds {observed}"
                operation = f"atomic {event.operation} of {event.operand}"
                return f"makes an {operation} to {self.word(event.word)}{found}"
            case said.Await():
                found = "" if observed is None else f", as it finds {observed}"
                return f"passes the loop on {self.word(event.word)}{found}"
            case said.Choose():
                return f"is given {observed}"
            case said.Exit():
                return "ends"
        return type(event).__name__

    def _waits_for(self, event: said.MbarrierWait | said.MbarrierTest) -> str:
        if event.token is not None:
            return f"the phase of its own arrival at {self.mbarrier(event.mbarrier)}"
        return f"parity {event.parity} of {self.mbarrier(event.mbarrier)}"

    # ── who waits ───────────────────────────────────────────────────────────

    def waiting(self, hang: Hang) -> list[str]:
        """Who waits for what at the end, and why it does not come.

        Agents that wait for the same thing are told together.
        """
        together: dict[tuple[str, str], list[int]] = {}
        for each in hang.waiting:
            if isinstance(each.event, said.Sync) and isinstance(
                each.event.barrier, said.WarpBarrier
            ):
                continue
            told = self._waits(each, hang)
            together.setdefault(told, []).append(each.agent)
        if not together:
            for each in hang.waiting:
                told = self._waits(each, hang)
                together.setdefault(told, []).append(each.agent)
        found = []
        for (what, why), agents in together.items():
            who = self._all(agents)
            verb = "waits" if len(who) == 1 else "wait"
            several = one_of(who, "and")
            if len(who) > 4:
                several = f"{', '.join(who[:3])} and {len(who) - 3} more"
            found.append(f"{several} {verb} {what}{why}")
        return found

    def _all(self, agents: list[int]) -> list[str]:
        """The names of agents; those of all lanes of a warp are the warp."""
        by_warp: dict[str, list[int]] = {}
        for each in agents:
            by_warp.setdefault(self.warp(each), []).append(each)
        names = []
        for warp, several in by_warp.items():
            alone = len(several) == 1
            names.append(self.agent(several[0]) if alone else warp)
        return names

    def _waits(self, each: Waiting, hang: Hang) -> tuple[str, str]:
        event, state = each.event, each.state
        if isinstance(event, said.MbarrierWait) and isinstance(state, MbarrierState):
            return self._at_mbarrier(event, state, each, hang)
        if isinstance(state, MeetingState):
            return self._at_meeting(event, state, each)
        if isinstance(event, said.Await) and isinstance(state, WordState):
            if isinstance(event.condition, said.Loop):
                what = f"in the loop on {self.word(event.word)}{self.place(event)}"
                why = f"; it holds {state.value}, for which the loop goes on"
                return what, f"{why}, and nobody is left to change it"
            until = f"{COMPARED[event.condition.compare]} {event.condition.value}"
            what = f"for {self.word(event.word)} to be {until}{self.place(event)}"
            return what, f"; it holds {state.value}, and nobody is left to change it"
        return f"for work in flight{self.place(event)}", ""

    def _at_mbarrier(
        self, event: said.MbarrierWait, state: MbarrierState, each: Waiting, hang: Hang
    ) -> tuple[str, str]:
        name, phase = self.mbarrier(event.mbarrier), state.phase
        what = f"for phase {phase} (parity {phase & 1}) of {name}{self.place(event)}"
        left = [
            counted(number, word)
            for number, word in ((state.pending, "arrival"), (state.tx, "byte"))
            if number > 0
        ]
        why = f", which still expects {' and '.join(left)}" if left else ""
        if state.tx < 0:
            more = counted(-state.tx, "byte")
            why += f"{' and' if left else ', which'} got {more} more than expected"
        return what, "".join([why, *self._reasons(event, state, each, hang)])

    def _reasons(
        self, event: said.MbarrierWait, state: MbarrierState, each: Waiting, hang: Hang
    ) -> Iterator[str]:
        """Why a phase does not end: what is missing, or came too early."""
        phase, parity = state.phase, event.parity
        for agent, missing in each.missing[:2]:
            if agent != each.agent:
                yield f"; {self.agent(agent)}, which {self.does(missing)}, waits itself"
        if each.missing and any(agent != each.agent for agent, _ in each.missing):
            return
        past, meant = phase - 1, max(each.seen, default=-1) + 1
        if each.missing:
            agent, missing = each.missing[0]
            yield f"; it would itself have to go on: it {self.does(missing)}, later"
        elif meant == past and event.token is None:
            nobody = self._nobody_waited(event.mbarrier, past, hang)
            waited = "nobody waited" if nobody else "it has not waited"
            yield (
                f"; phase {past} had completed and {waited} for it: parity {parity} "
                f"waits for the phase after it; did you mean {1 - parity}?"
            )
        elif meant < past and event.token is None:
            yield (
                f"; phases {meant} to {past} had completed before it waited for phase "
                f"{meant}: an arrival came too early, or a wait is missing"
            )
        else:
            yield "; nobody is left to arrive there"
        early = [index for was, index in each.history if was == past]
        if past >= 0 and past in each.seen and early:
            step = hang.order[early[-1]]
            number = sum(
                not isinstance(e.event, QUIET) for e in hang.order[: early[-1]]
            )
            yield (
                f"; step {number + 1}, where {self.agent(step.agent)} "
                f"{self._does(step.event, None)}, counted in phase {past}"
            )

    def _nobody_waited(self, mbarrier: said.Mbarrier, phase: int, hang: Hang) -> bool:
        states = _States()
        for step in hang.order:
            states.apply(step.event)
            waits = isinstance(step.event, said.MbarrierWait)
            same = waits and getattr(step.event, "mbarrier", None) == mbarrier
            if same and states.phase(mbarrier) - 1 == phase:
                return False
        return True

    def _at_meeting(
        self, event: said.Event, state: MeetingState, each: Waiting
    ) -> tuple[str, str]:
        if isinstance(event, said.ClusterWait):
            name = "the barrier of the cluster"
        else:
            assert isinstance(event, said.Sync)
            name = self.meeting(event.barrier)
        what = f"at {name}{self.place(event)}"
        why = (
            f", where {state.threads} of {counted(state.count, 'thread')} have arrived"
        )
        for agent, missing in each.missing[:2]:
            if agent != each.agent:
                why += (
                    f"; {self.agent(agent)}, which {self.does(missing)}, waits itself"
                )
        if not each.missing:
            why += "; nobody is left to come there"
        return what, why


def _minor(event: said.Event) -> bool:
    if isinstance(event, said.Sync):
        return isinstance(event.barrier, said.WarpBarrier)
    return isinstance(event, said.Exit | said.MbarrierInit | said.GroupWait)


def site_of(event: said.Event) -> int:
    """The instruction of an event; -1 if there is none."""
    place = getattr(event, "place", None)
    return place if isinstance(place, int) else -1


class _States:
    """Counts phases along an order."""

    def __init__(self) -> None:
        self._states: dict[said.Mbarrier, list[int]] = {}

    def phase(self, mbarrier: said.Mbarrier) -> int:
        """The present phase."""
        return self._states.get(mbarrier, [0])[0]

    def apply(self, event: said.Event) -> str:
        """Count an event; says so if it completes a phase."""
        if isinstance(event, said.MbarrierInit):
            self._states[event.mbarrier] = [0, event.count, event.count, 0]
            return ""
        mbarrier = getattr(event, "mbarrier", None)
        state = self._states.get(mbarrier) if mbarrier is not None else None
        if state is None:
            return ""
        match event:
            case said.MbarrierArrive():
                state[3] += event.expect
                state[2] -= event.count
                if event.drop:
                    state[1] -= event.count
            case said.MbarrierRaise():
                state[2] += event.count
            case said.ExpectTx():
                state[3] += event.bytes
            case said.CompleteTx():
                state[3] -= event.bytes
            case _:
                return ""
        if state[2] or state[3]:
            return ""
        state[0], state[2] = state[0] + 1, state[1]
        return f", which completes phase {state[0] - 1}"


class HangReport:
    """The story of an order that hangs."""

    def __init__(self, teller: OrderWords, hang: Hang) -> None:
        self._teller, self._hang = teller, hang

    @cached_property
    def steps(self) -> list[OrderLine]:
        """All steps."""
        return self._teller.steps(self._hang.order)

    @cached_property
    def waiting(self) -> list[str]:
        """Who waits at the end."""
        return self._teller.waiting(self._hang)

    @property
    def site(self) -> int:
        """The first instruction at which somebody waits."""
        return min((site_of(each.event) for each in self._hang.waiting), default=-1)

    @property
    def first(self) -> int:
        """The first agent that waits there."""
        for each in self._hang.waiting:
            if site_of(each.event) == self.site:
                return each.agent
        return 0

    @property
    def repair(self) -> str:
        """What to look at."""
        waits = [each.event for each in self._hang.waiting]
        counts = any(isinstance(each, said.MbarrierWait) for each in waits)
        if not counts:
            return self._spun() or rules.DEADLOCK.fatal
        fresh = {e.event.mbarrier for e in self._hang.waiting if _fresh(e)}  # type: ignore[union-attr]
        return rules.FRESH if len(fresh) > 1 else rules.UNBALANCED

    def _spun(self) -> str:
        """About words that agents spin on: who wrote them last."""
        waits = [each.event for each in self._hang.waiting]
        words = dict.fromkeys(e.word for e in waits if isinstance(e, said.Await))
        last = "; ".join(map(self._last_write, words))
        if not last:
            return ""
        advice = rules.ONE_ORDER if len(words) > 1 else rules.NOBODY_WRITES
        return f"Nobody who is left can change what is waited for: {last}. {advice}"

    def _last_write(self, word: said.Word) -> str:
        name = self._teller.word(word)
        for step in reversed(self._hang.order):
            if _writes(step, word):
                who, where = (
                    self._teller.agent(step.agent),
                    self._teller.place(step.event),
                )
                return f"{who} wrote {name} last,{where}"
        return f"nobody wrote {name}"

    def lines(self, most: int = MOST_STEPS) -> list[str]:
        """The story, one step in a line, and who waits at the end."""
        merged = _merged([each for each in self.steps if not each.minor])
        steps = self._shown(merged, most)
        found = [f"{each.number}. {each.who} {each.does}" for each in steps]
        if len(steps) < len(merged) or any(each.minor for each in self.steps):
            found.insert(0, "(steps that matter less are left out)")
        return [*found, "Then nobody can go on:", *(f"- {e}" for e in self.waiting)]

    def _shown(self, steps: list[OrderLine], most: int) -> list[OrderLine]:
        """The last steps; first those that touch what is waited for."""
        if len(steps) <= most:
            return steps
        objects = {_object(each.event) for each in self._hang.waiting}
        order = self._hang.order
        near = [e for e in steps if _object(order[e.index].event) in objects]
        chosen = near[-most:]
        rest = [each for each in steps if each not in chosen]
        more = most - len(chosen)
        chosen += rest[-more:] if more > 0 else []
        return sorted(chosen, key=lambda each: each.number)


def _writes(step: said.OrderStep, word: said.Word) -> bool:
    """Whether a step changes a word; an ``atom.cas`` in vain does not."""
    event = step.event
    if getattr(event, "word", None) != word:
        return False
    if isinstance(event, said.Atomic) and event.operation == "cas":
        return step.observed == event.compare
    if isinstance(event, said.Await):
        return event.update is not None
    return isinstance(event, said.Store | said.Atomic)


def _fresh(each: Waiting) -> bool:
    """Whether an agent waits for phase 0 of an mbarrier that nobody has touched."""
    waits = isinstance(each.event, said.MbarrierWait) and each.event.token is None
    state = each.state
    if not waits or not isinstance(state, MbarrierState) or state.phase:
        return False
    return state.pending == state.expected and not state.tx


def _merged(steps: list[OrderLine]) -> list[OrderLine]:
    """Steps in which groups of lanes of one warp do the same, as one."""
    found: list[OrderLine] = []
    for each in steps:
        last = found[-1] if found else None
        if last and each.warp and (last.warp, last.does) == (each.warp, each.does):
            found[-1] = replace(last, who=each.warp)
        else:
            found.append(each)
    return found


def _object(event: said.Event) -> object:
    """What an event is about."""
    for name in ("mbarrier", "barrier", "word"):
        found = getattr(event, name, None)
        if found is not None and not isinstance(found, said.WarpBarrier):
            return found
    return None
