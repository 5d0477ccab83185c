"""The race detectors of a whole launch, and the problems that they found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once_property
from fragmenta.engine.simt.compiled import callback_address
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.events import Described, once_per_kernel
from fragmenta.engine.units.findings import Finding, Problems
from fragmenta.engine.units.kernel_units import kernel_units
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.observing import Results
from fragmenta.engine.units.port import Step
from fragmenta.ptx import families, rules
from fragmenta.ptx.rules import INFO, WARNING
from fragmenta.watch.races.global_watch import GlobalWatch, Who
from fragmenta.watch.races.layout_watch import ASK_LAYOUT, ASK_ROWS, is_watched
from fragmenta.watch.races.map_history import KNOWN, MapHistory
from fragmenta.watch.races.observer import Observer
from fragmenta.watch.races.product_units import ASK_UNITS
from fragmenta.watch.races.racy_reads import ReadLog
from fragmenta.watch.races.register_watch import register_uses
from fragmenta.watch.races.report.history import Note, Notes, Recorded
from fragmenta.watch.races.report.problem_context import (
    Agent,
    Collision,
    Narrow,
    ProblemContext,
)
from fragmenta.watch.races.rounded_copies import ALL, Copies, once
from fragmenta.watch.races.shadow import global_records
from fragmenta.watch.races.shadow.bank_counts import BankCounts
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.global_records import WORD
from fragmenta.watch.races.shadow.layout import LAST_EPOCH, MBARRIERS, Apart, Plan
from fragmenta.watch.races.shadow.problem_table import DetectedProblem, Moment
from fragmenta.watch.races.step_watch import ASK_STEP
from fragmenta.watch.races.strong_accesses import Locations
from fragmenta.watch.races.task_watch import ASK_COPY


class Findings(NamedTuple):
    """What the detectors of some clusters found, for those of another process."""

    found: list[Collision]
    used: NDArray[np.uint8]
    banks: list[NDArray[np.void]]
    full: bool
    lost: int
    kept: dict[int, Sequence[Note]]
    """The notes of some clusters."""


class Instructions(NamedTuple):
    """Which kinds of instructions of other units a kernel has."""

    products: bool
    copies: bool
    """Those that are tasks of machine code."""
    cluster_barriers: bool
    map_changes: bool
    boxes: bool
    """Copies of boxes, and what reads them."""
    registers: bool
    """Whether warps ask for registers."""


@once_per_kernel
def instructions_of(compiled: Described) -> Instructions:
    """Which instructions a kernel has; all observers of all its launches ask."""
    every = {each.words for each in kernel_units(compiled).events}
    return Instructions(
        any(each[0] in families.WARPGROUP for each in every),
        any(each[0] in families.COPIES for each in every),
        any(each[:2] == ("barrier", "cluster") for each in every),
        any(each[0] == "tensormap" for each in every),
        any(map(is_watched, every)),
        any(each[0] == "setmaxnreg" for each in every),
    )


class Asks:
    """What compiled code calls for observers that are copies of one another.

    A copy has the pointers of the first one.  Each thread runs one of them.
    """

    def __init__(self, machine: Machine) -> None:
        def here() -> Observer:
            found = machine.local.cluster.port
            assert isinstance(found, Observer)
            return found

        def units(of: int, key: int) -> None:
            here().units.add(of, key)

        def copies(address: int) -> None:
            here().tasks.issued(address)

        def asked(rank: int, of: int, word: int, site: int, number: int) -> None:
            found = here().layouts
            assert found is not None
            found.asked(rank, of, word, site, number)

        def rows(rank: int, number: int, site: int, where: int) -> None:
            found = here().layouts
            assert found is not None
            found.rows(rank, number, site, where)

        def steps(rank: int, chain: int, together: int, number: int) -> None:
            found = here().steps
            assert found is not None
            found.asked(rank, chain, together, number)

        self._kept = (
            ASK_UNITS(units),
            ASK_COPY(copies),
            ASK_LAYOUT(asked),
            ASK_ROWS(rows),
            ASK_STEP(steps),
        )
        first, second, third, fourth, fifth = map(callback_address, self._kept)
        self.units: int = first
        self.copies: int = second
        self.layouts: tuple[int, int] = third, fourth
        self.steps: int = fifth


class LaunchWatch:
    """Watches all clusters of a launch."""

    def __init__(self, machine: Machine) -> None:
        launch = machine.launch
        shape, compiled = launch.shape, launch.compiled
        self.machine, self.places = machine, compiled.places
        self.has = instructions_of(compiled)
        plan = Plan(
            shape.cluster_blocks,
            shape.warps,
            compiled.shared + launch.dynamic,
            MBARRIERS,
            machine.asynchronous,
            machine.tensor,
        )
        self.memory = GlobalWatch(launch.places, launch.cluster_count, plan.row)
        self.locations = Locations(self.memory, machine.strict)
        self.maps = MapHistory(launch)
        self.banks = BankCounts(len(compiled.places))
        self.observers: list[Observer] = []
        self.used = np.zeros(len(compiled.places) + 1, np.uint8)
        """Whether the mbarrier of an ``mbarrier.init`` is used, by its site."""
        self.uses = register_uses(compiled)
        self._copies: dict[str, Copies] = {}
        """What threads hold up to rounding, by functions that have races."""
        self.lock = Lock()
        self._first: dict[int, Notes] = {}
        """The notes of the first cluster, if a copy of an observer has them."""
        self._told: list[Findings] = []
        """What other processes found, which ran some of the clusters."""
        self.reads: ReadLog | None = None
        """Which loads race, if code tells of every load."""

    @once_property
    def asks(self) -> Asks:
        """What compiled code calls for observers that are copies."""
        return Asks(self.machine)

    def observer(self, cluster: Cluster) -> Observer:
        """A new observer of a cluster."""
        made = Observer(self.machine, cluster, self)
        for block in cluster.blocks:
            self.banks.attach(block.context.parts["block"])
        with self.lock:
            self.observers.append(made)
        if self.reads is not None:
            made.problems.begin_log()
        return made

    def read(self, observer: Observer, step: Step) -> None:
        """Lanes are about to load from memory that may be shared memory."""
        if self.reads is not None:
            self.reads.told(observer, step)

    def collect(self, problems: Problems) -> None:
        """Add all that was found to the problems of the launch."""
        every = [*self._told, self.told()]
        for told in every:
            self.used |= told.used
        for told in every:
            for each in told.found:
                problems.put(self._judged(each))
        missed = []
        if any(told.full for told in every):
            missed.append(
                "global memory was watched for a part of the launch only: there were "
                "too many different accesses"
            )
        lost = sum(told.lost for told in every)
        if lost:
            missed.append(f"there were too many problems: {lost:,} are not reported")
        if missed:
            problems.put(Finding(rules.UNWATCHED, -1, "; ".join(missed)))
        for banks in self.banks.found():
            site, count = self._site(banks.site), banks.executions
            problems.put(Finding(rules.BANK_CONFLICT, site, banks.message, count=count))
        self._drop_consequences(problems)

    def copying(self) -> LaunchWatch | None:
        """How copies of clusters are observed, unless Python reads a log of each."""
        return self if self.reads is None else None

    def results(self, cluster: Cluster) -> Results:
        """Where compiled code writes what it found in a cluster."""
        observer = cluster.port
        assert isinstance(observer, Observer)
        flags: list[NDArray[Any]] = [observer.problems.counts]
        first = global_records.FULL // 4
        flags += [each.narrow[first : first + 2] for each in observer.ledgers]
        blocks = [each.context.parts["block"] for each in cluster.blocks]
        return Results(flags, list(self.banks.of(blocks)), observer.history.memory)

    def add(self, counts: list[NDArray[np.uint8]]) -> None:
        """Add the counts of a copy of a cluster in which nothing was found."""
        self.banks.add(counts)

    def keep_first(self, log: NDArray[np.uint8]) -> None:
        """Keep what happened in the first cluster, which a copy has run."""
        notes = Notes(log)
        notes.freeze()
        self._first[0] = notes

    def told(self) -> Findings:
        """What was found here."""
        found = []
        for observer in self.observers:
            if self.reads is not None:
                self.reads.drain(observer)
            observer.keep()
            found += [self._shared(observer, e) for e in observer.shared.found()]
        found += [self._global(each) for each in self.memory.found()]
        return Findings(
            found,
            self.used,
            self.banks.tables,
            self.memory.full,
            sum(observer.problems.lost for observer in self.observers),
            self._kept(),
        )

    def take(self, told: Findings) -> None:
        """Add what was found in another process."""
        self._told.append(told)
        self.banks.take(told.banks)

    @property
    def spread(self) -> bool:
        """Whether other processes ran some of the clusters."""
        return bool(self._told)

    def remembered(self) -> Callable[[], None]:
        """What lets later launches know of the tensor maps of this one."""
        return partial(KNOWN.add, self.maps.known(self.memory))

    def close(self) -> None:
        """Free everything: the launch has ended."""
        for each in self.observers:
            each.close()
        vars(self).clear()

    def _kept(self) -> dict[int, Sequence[Note]]:
        """The notes of some clusters that ran here; they are read when needed."""
        found: dict[int, Sequence[Note]] = dict(self._first)
        for observer in self.observers:
            for number, notes in observer.history.kept.items():
                if number not in found or len(notes):  # some have run no cluster
                    found[number] = notes
        return found

    def recorded(self) -> list[Recorded]:
        """The histories of some clusters, with the problems that were found there."""
        launch, found = self.machine.launch, list(self.machine.problems)
        wrong = {each.block for each in found}
        kept = self._kept()
        for told in self._told:
            for number, notes in told.kept.items():
                if number == 0 or wrong & set(launch.shape.members(number)):
                    kept[number] = notes
        made = []
        for number, notes in sorted(kept.items()):
            members = launch.shape.members(number)
            problems = [each for each in found if each.block in members]
            blocks = tuple(launch.shape.block_at(each) for each in members)
            schedule = self.machine.schedule.given
            made.append(
                Recorded(
                    number,
                    blocks,
                    launch.shape.warps,
                    schedule,
                    notes,
                    problems,
                    launch.module,
                    launch.compiled,
                    tuple(members),
                    launch.shape,
                )
            )
        return made

    def _drop_consequences(self, problems: Problems) -> None:
        """Drop reads of unwritten memory that a race explains."""
        sites = set()
        for each in problems:
            if each.rule.race and each.severity != INFO:
                sites |= {each.site, each.other}
        problems.drop(
            lambda each: each.rule == rules.UNINITIALISED and each.site in sites
        )

    def _words(self, site: int) -> list[str]:
        """The opcode and the qualifiers at a site."""
        function, index = self.places[site]
        found = self.machine.launch.module().functions[function].instructions[index]
        return [found.opcode, *found.qualifiers]

    def _site(self, site: int) -> int:
        """One number for an instruction that has several sites."""
        place = self.places[site] if 0 <= site < len(self.places) else None
        return site if place is None else self.places.index(place)

    def _by_value(self, found: DetectedProblem, race: Detected) -> DetectedProblem:
        """A problem; a race, if equal values do not mean that the order is irrelevant.

        An atomic operation leaves what depends on the order.  What is in memory after a
        store need not be what a copy wrote that may still be in flight.
        """
        if not found.case.same_value or found.before is None:
            return found
        atomic = self._words(found.before.site)[0] in families.UPDATES
        now, before = (
            self.observers[0].order.describe(each.agent)[0]
            for each in (found.now, found.before)
        )
        return replace(found, case=race) if atomic or now != before else found

    def _rounded(self, found: DetectedProblem) -> bool:
        """Whether threads that store by one instruction differ by their rounding only.

        They are lanes that execute it together, or all threads of a block if each of
        them executes it once.
        """
        function, index = self.places[found.now.site]
        if found.case is not Detected.ONE_STORE and not self._one_store(found):
            return False
        if function not in self._copies:
            text = self.machine.launch.module().functions[function]
            self._copies[function] = Copies(text, self.machine.launch.shape.block)
        same = self._copies[function].bits(index)
        if found.case is Detected.ONE_STORE:
            return not found.lanes & ~(same & 31)
        return same == ALL

    def _one_store(self, found: DetectedProblem) -> bool:
        """Whether threads of a block stored by one instruction, each of them once."""
        place = self.places[found.now.site]
        if found.before is None or not found.was_write or not found.now_write:
            return False
        function, index = place
        return (
            found.case is Detected.SHARED_RACE
            and self.places[found.before.site] == place
            and not found.apart & ~int(Apart.WARP)
            and once(self.machine.launch.module().functions[function], index)
        )

    # ── shared memory ───────────────────────────────────────────────────────

    def _shared(self, observer: Observer, found: DetectedProblem) -> Collision:
        story = observer.stories.of(found)
        found = self._by_value(found, Detected.SHARED_RACE)
        if self._rounded(found):
            found = replace(found, case=Detected.ROUNDED)
        if found.case is Detected.SHARED_RACE:
            story = story._replace(narrow=self._narrow(story.cluster, story.cluster))
        story = story._replace(surplus=_surplus(observer, story))
        now = story.now
        rule, severity = found.case.rule, found.case.severity
        contested = not found.was_write or (
            story.before is not None and story.before.kind == "cp.async"
        )
        if rule is rules.MISSING_PROXY_FENCE and contested:
            severity = WARNING  # only with watch="strict": shipped kernels do without
        return Collision(
            rule,
            self._site(now.site),
            "",
            self.machine.launch.shape.members(story.cluster)[now.rank],
            now.number,
            1 << now.lane if now.lane >= 0 else 0xFFFFFFFF,
            severity,
            None if story.before is None else self._site(story.before.site),
            found.count,
            apart=found.apart,
            noted=found,
            story=story,
        )

    def _judged(self, made: Collision) -> Collision:
        """The problem, with what depends on all clusters of the launch."""
        before = made.noted.before
        if made.noted.case.space != "shared" or before is None:
            return made
        if before.epoch == LAST_EPOCH:
            words = self._words(before.site)
            if words[:2] == ["mbarrier", "init"]:
                made.rule = rules.MBARRIER
                # An mbarrier that is not used only lacks its mbarrier.inval.
                if not self.used[before.site]:
                    made.severity = INFO
        return made

    # ── global memory ───────────────────────────────────────────────────────

    def _global(self, finding: DetectedProblem) -> Collision:
        finding = self._by_value(finding, Detected.WRITE_WRITE)
        case, was = finding.case, finding.before
        now = self._who(finding.now)
        before = None if was is None else self._who(was)
        severity = case.severity
        narrow = None
        if was is not None and case.rule.race:
            narrow = self._narrow(was.group, finding.now.group)
        if case is Detected.READ_WRITE and was is not None and not finding.apart:
            # Triton lets all lanes of a warp load what one of them stores afterwards.
            severity = INFO
        rule, apart = case.rule, finding.apart
        if before is not None and before.kind != "warp":
            apart &= Apart.GROUP  # its number is not that of a warp
            if case is Detected.READ_WRITE and before.block == now.block:
                rule = rules.OVERWRITE_WHILE_READ
        return Collision(
            rule,
            self._site(now.site),
            "",
            now.block,
            now.number,
            1 << now.lane,
            severity,
            None if was is None else self._site(was.site),
            finding.count,
            apart=apart,
            noted=finding,
            story=ProblemContext(finding.now.group, now, before, None, narrow),
        )

    def _narrow(self, before: int, now: int) -> Narrow | None:
        """A release of one group that the other has read, with too small a scope."""
        every = self.locations.narrow
        found = every.get((before, now)) or every.get((now, before))
        if found is None:
            return None
        sites = self._site(found.release), self._site(found.acquire)
        return found._replace(release=sites[0], acquire=sites[1])

    def last_write(self, address: int) -> Agent | None:
        """Who wrote a word of global memory last; None: nobody did."""
        found = self.memory.written(address & -WORD, WORD)
        made = None if found is None else self._who(found)
        return made and made._replace(site=self._site(made.site))

    def _who(self, who: Moment | Who) -> Agent:
        kind, rank, number = self.observers[0].order.describe(who.agent)
        block = self.machine.launch.shape.members(who.group)[rank]
        return Agent(kind, rank, number, who.lane, who.epoch, who.site, block=block)


def _surplus(observer: Observer, story: ProblemContext) -> int:
    """Bytes that came for a phase in which nobody expected any.

    The copy of an earlier phase was taken for complete then, as fewer were expected.
    """
    before = story.before
    if before is None or before.mbarrier is None:
        return 0
    rank, offset = before.mbarrier
    if rank >= len(observer.cluster.blocks):
        return 0
    found = observer.cluster.blocks[rank].mbarriers.get(offset)
    if found is None or found.phase != before.epoch or not found.phase:
        return 0
    return max(0, -found.bytes) if found.pending == found.expected else 0
