"""Explores all orders of a recorded launch, and puts what is found into words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from fragmenta.base.progress import Progress
from fragmenta.engine.simt.naming import KernelNames, place, short
from fragmenta.engine.units.findings import Finding, Launched
from fragmenta.errors import KernelFault
from fragmenta.launch.launch import Launch
from fragmenta.launch.orders.answer import Orders, worst
from fragmenta.launch.orders.contested import (
    awaited,
    components,
    contested,
    stored_and_loaded,
    users,
    writing,
)
from fragmenta.launch.orders.dependence import Dependent, dependent
from fragmenta.launch.orders.loops import Loops, Once
from fragmenta.launch.orders.order_words import HangReport, OrderWords, site_of
from fragmenta.launch.orders.programs import ClusterProgram, asks_for_clusters, parts
from fragmenta.launch.orders.recording import Recording, record
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.rules import ERROR, Rule
from fragmenta.watch.orders import program as said
from fragmenta.watch.orders.explore import explore
from fragmenta.watch.orders.program import Events, OrderStep, Span
from fragmenta.watch.orders.verdict import Coverage, Misuse, Race, Verdict
from fragmenta.watch.races.recording.log import Log
from fragmenta.watch.races.recording.recorder import Force
from fragmenta.watch.races.report import phrases
from fragmenta.watch.races.report.messages import order, reports

HUNG = (rules.DEADLOCK.name,)
"""What the fault of a launch that hung is the same as."""
MORE = 20_000
"""Instructions of a run after a recorded one that hangs, besides four times those."""
FORCED = 100_000
"""The same of a run with other values, if the recorded one does not hang."""
MOST_GRANTS = 8
"""Clusters that one cluster is granted by clusterlaunchcontrol.try_cancel."""
MOST_CONTESTED = 64
"""Words that are accessed plainly and by atomic operations, in all orders."""
MOST_RUNS = 64
"""Runs that follow a value which decides something."""
TOLD = "other threads are told it"
MOST_DECIDING = 4
"""Warps that use a word whose value decides what is accessed, so that each of them is
run with the value of each."""


class Explored:
    """All orders of one launch."""

    def __init__(self, prepare: Callable[[], Launch], states: int, once: Once) -> None:
        """``once`` launches small kernels: the loops of this one."""
        self._prepare, self._states, self._once = prepare, states, once
        self._loops: Loops
        self._contested: set[int] = set()
        """The words that some access plainly, and others by atomic operations."""
        self._run: Callable[[Launch], str]
        self.orders: Orders | None = None
        self._followed: dict[Hashable, Recording] = {}
        """Runs that follow a value, by the agent and by what it observes."""
        self._seen: list[Log] = []
        """What all runs before this round have shown."""
        self._enough: int | None = None
        """Instructions of further runs, if the recorded one hangs."""
        self._longest = 0
        """Instructions of a run with other values."""

    @property
    def hangs(self) -> bool:
        """Whether some order hangs."""
        return self.orders is not None and self.orders.hangs

    @property
    def problems(self) -> list[Problem]:
        """What other orders show, in words."""
        return reports(self.orders.found if self.orders is not None else ())

    def with_earlier(self, fault: KernelFault) -> list[Problem]:
        """The same, with what a run showed before a fault: a cause comes first."""
        found = self.problems
        known = {(each.rule, each.line) for each in found}
        more = [e for e in fault.problems if (e.rule, e.line) not in known]
        every = [*found, *(each for each in more if isinstance(each, Problem))]
        return sorted(every, key=order)

    def most(self, most: int | None) -> int | None:
        """The instructions that a run may execute.

        Where blocks wait for words in global memory, a run that hangs has no end.
        """
        if self._enough is None:
            return most
        return self._enough if most is None else min(most, self._enough)

    def explore(self, run: Callable[[Launch], str], progress: Progress) -> None:
        """Record the launch, and explore its orders."""
        self._run, launch = run, self._prepare()
        if launch.machine is None:  # nothing in it synchronises
            self.orders = Orders(Coverage.ALL.value, (), 1, 1)
            return
        clusters = launch.cluster_count
        self._loops = Loops(launch.kept, self._once)
        recording = record(launch, self._run, self._loops.ends)
        if recording.hung and not recording.guessed:
            self._enough = 4 * recording.instructions + MORE
        self._longest = 4 * recording.instructions + FORCED
        decisions = Decisions(recording.launched)
        self._contested = contested(recording.logs)
        if len(self._contested) > MOST_CONTESTED:
            decisions.reasons.append(
                f"{len(self._contested):,} words are accessed plainly and by atomic "
                "operations of other blocks: only the launch itself compares them"
            )
            self._contested = set()
        granted = self._granted(recording, clusters, decisions)
        known = -1
        while known < len(self._followed):  # what a run shows may be new to all others
            known = len(self._followed)
            explored = self._round([recording, *granted], decisions, progress)
        faults = [each.fault for each in (recording, *granted) if each.fault]
        self.orders = _Answer(recording, explored, decisions, faults).made()

    def _round(
        self, given: list[Recording], decisions: Decisions, progress: Progress
    ) -> list[tuple[ClusterProgram, Verdict]]:
        """Explore all parts, with what is known of the runs so far."""
        runs = [*given, *self._followed.values()]
        self._seen = [log for each in runs for log in each.logs]
        if decisions.follow(self._seen, self._contested, self._loops):
            self._followed.clear()  # they were about fewer values
            self._seen = [log for each in given for log in each.logs]
        every: list[ClusterProgram] = []
        for number, each in enumerate(given):
            every += self._parts(each, decisions.sites, -number)
        explored: list[tuple[ClusterProgram, Verdict]] = []
        for number, part in enumerate(every):

            def share(done: float, number: int = number) -> None:
                progress((number + done) / len(every))

            extend = partial(self._extend, part, decisions)
            verdict = explore(part.program, extend, limit=self._states, progress=share)
            explored.append((part, verdict))
        return explored

    def _parts(
        self, recording: Recording, sites: set[int], run: int = 0
    ) -> list[ClusterProgram]:
        how = sites, self._contested, self._loops, recording.values
        return parts(recording.logs, *how, run, self._seen)

    def _granted(
        self, recording: Recording, clusters: int, decisions: Decisions
    ) -> list[Recording]:
        """What else happens if requests for clusters that have not begun are granted.

        Each number of grants is a run of its own: one cluster gets them all.
        """
        found: list[Recording] = []
        if not asks_for_clusters(recording.logs):
            return found
        for grants in range(1, min(clusters, MOST_GRANTS + 1)):
            more = record(self._prepare(), self._run, self._loops.ends, grants=grants)
            recording.cut = recording.cut or more.cut
            recording.hung |= more.hung
            found.append(more)
        if clusters > MOST_GRANTS + 1:
            decisions.reasons.append(
                f"a cluster may be granted {clusters - 1} others; it was granted at "
                f"most {MOST_GRANTS}"
            )
        return found

    def _extend(
        self,
        part: ClusterProgram,
        decisions: Decisions,
        agent: int,
        observed: tuple[int, ...],
        order: tuple[OrderStep, ...],
    ) -> Events | None:
        """What an agent does after it has read these values: run it so."""
        who, sites = part.agents[agent], decisions.sites
        recorded = part.program.agents[agent].steps
        site = _site(recorded, observed)
        if site in decisions.told:
            return Events(cut=decisions.told[site], ends=True)
        key = part.clusters[0], who[:3], observed
        if key not in self._followed:
            if len(self._followed) == MOST_RUNS:
                return None
            force = Force(who.block, who.warp, who.lanes, sites, list(observed))
            self._followed[key] = self._forced(force)
        recording = self._followed[key]
        run = list(self._followed).index(key) + 1
        for each in self._parts(recording, sites, run):
            number = each.number(who)
            if number is None or not each.words <= part.words:
                continue
            whole = each.program.agents[number].steps
            steps: Events | None = whole
            for value in observed:
                steps = steps.after.get(value) if steps is not None else None
            if steps is not None:
                other = _other_told(recorded, whole, decisions.told)
                if other is not None:
                    return Events(cut=decisions.told[other])
                part.units.update(each.units)
                return steps
        return None

    def _forced(self, force: Force) -> Recording:
        """Record the launch with other values, for a time that has an end.

        A value that nobody writes any more may keep lanes in a loop for ever.
        """
        before, self._enough = self._enough, min(self._enough or 1 << 62, self._longest)
        try:
            return record(self._prepare(), self._run, self._loops.ends, force)
        finally:
            self._enough = before

    def added_to(
        self, found: list[tuple[Launched, Finding]]
    ) -> list[tuple[Launched, Finding]]:
        """What a launch showed, and what only other orders show.

        The race detector knows more about accesses of the one order that it saw.  So
        of two accesses that it reported, nothing is added.
        """
        if self.orders is None:
            return found
        known = {_lines(*each) for each in found}
        # A pair that is a note, such as two stores of the same bits, is not wrong.
        wrong = {_lines(*each) for each in found if each[1].severity == ERROR}
        more = [each for each in self.orders.found if _lines(*each) not in known]
        both = wrong & {_lines(*each) for each in self.orders.found}
        self.orders = replace(
            self.orders, found=tuple(more), wrong=bool(more or both) or self.hangs
        )
        if self.orders.hangs:  # its story says more than the fault of the one run
            found = [each for each in found if _lines(*each) != HUNG]
        return [*found, *more]


def _site(steps: Events | None, observed: tuple[int, ...]) -> int | None:
    """Where the last of some values was observed."""
    for value in observed[:-1]:
        steps = steps.after.get(value) if steps is not None else None
    site = steps.events[-1].place if steps is not None and steps.events else None
    return site if isinstance(site, int) else None


def _other_told(recorded: Events, other: Events, told: Collection[int]) -> int | None:
    """Where an agent finds a value that others are told, and not the recorded one.

    The others do what followed the recorded one.
    """
    before = [each for each in _observed(recorded) if each[0] in told]
    now = [each for each in _observed(other) if each[0] in told]
    pairs = zip_longest(now, before)
    return next((one[0] for one, two in pairs if one and one != two), None)


def _observed(steps: Events) -> Iterator[tuple[int, int]]:
    """The places where a recorded agent observed values, with the values."""
    while steps.after:
        ((value, then),) = steps.after.items()
        yield site_of(steps.events[-1]), value
        steps = then


def _lines(launched: Launched, found: Finding) -> tuple[object, ...]:
    """What two findings of one pair of instructions have in common."""
    stopped = rules.DEADLOCK, rules.of_fault("limit")
    if found.rule in stopped and found.site < 0:
        return HUNG
    places = launched.compiled.places
    sites = [each for each in (found.site, found.other) if each is not None]
    where = [tuple(places[e]) if 0 <= e < len(places) else () for e in sites]
    rule = "race" if found.rule.race and len(sites) > 1 else found.rule.name
    return (rule, *sorted(map(str, where)))


class Decisions:
    """What decides how a kernel goes on, besides its arguments."""

    def __init__(self, launched: Launched) -> None:
        module, compiled = launched.module(), launched.compiled
        found = dependent(module, compiled.kernel)
        self._places = compiled.places
        words = [each for each in found if each.word]
        self.sites = self._sites(e for e in words if not (e.memory or e.stored))
        """Strong accesses whose values decide something.  They are followed."""
        self._others = self._sites(e for e in words if not e.stored)
        self._telling = [each for each in words if each.stored]
        self._stored = [each for each in self._telling if each.operand]
        self._handed = self._sites(e for e in words if e.handed and not e.stored)
        self._plain = self._sites(e for e in found if not e.word)
        self._launched = launched
        self.untried: list[str] = []
        """Values that were not followed, as there are too many."""
        self.told: dict[int, str] = {}
        """Strong accesses whose values other threads are told: only what follows the
        value of the recorded run is known.  Each with words for that."""
        self.reasons = [
            _depends(launched, e) for e in found if not (e.word or e.memory)
        ]
        """Why other data may take another way."""

    def _sites(self, found: Iterable[Dependent]) -> set[int]:
        return self._at({(each.function, each.source) for each in found})

    def _at(self, places: set[tuple[str, int]]) -> set[int]:
        """The sites of instructions."""
        every = enumerate(self._places)
        return {site for site, place in every if tuple(place) in places}

    def follow(self, logs: list[Log], words: set[int], loops: Loops) -> bool:
        """Follow also those that decide about memory, or what words hold.

        The first are followed if several warps use the word; the others if others wait
        for the word that they are written to.  The answer is whether there are more.
        """
        before = len(self.sites)
        self._about_memory(logs, words, loops)
        while True:
            known = len(self.sites)
            all_words = awaited(logs, self.sites | loops.sources) | words
            written = writing(logs, all_words)
            places = {tuple(self._places[site]) for site in written}
            stored = [each for each in self._stored if each[:2] in places]
            self.sites |= self._sites(stored)
            self._keep(self._sites(each for each in stored if each.handed), TOLD)
            if len(self.sites) == known:
                return known > before

    def _about_memory(self, logs: list[Log], words: set[int], loops: Loops) -> None:
        told = self._told(logs)
        handed = self._handed | told
        self._keep(handed & self.sites, TOLD)
        waited = awaited(logs, self.sites | loops.sources)
        for (address, _), (who, sites) in users(logs).items():
            some = sites & (self._others | handed) - self.sites
            if address in words:
                self.sites |= some & (self._others | told)
                self._keep(some & told, TOLD)
                self.untried += [self._left_out(e, TOLD) for e in some & told]
            elif len(who) > 1:
                few = len(who) <= MOST_DECIDING
                tried = some - handed if few else set()
                self.sites |= tried
                many = f"{len(who)} warps use it, more than {MOST_DECIDING}"
                why = TOLD if few else many
                self.untried += [self._left_out(each, why) for each in some - tried]
                if some - tried and self._explored_together(who, logs, words | waited):
                    self.sites |= some - tried
                    self._keep(some - tried, why)

    @staticmethod
    def _explored_together(
        who: set[tuple[int, ...]], logs: list[Log], words: set[int]
    ) -> bool:
        """Whether some warps that use a word are in one program.

        Then each has to find there what it found in the recorded run, as it does what
        it did there.  Warps of different programs are not compared.
        """
        number = {
            log.cluster: number
            for number, several in enumerate(components(logs, words))
            for log in several
        }
        return len({number[cluster] for cluster, *_ in who}) < len(who)

    def _told(self, logs: list[Log]) -> set[int]:
        """Strong accesses whose value is stored where others load what decides."""
        stores = self._at({each[:2] for each in self._telling})
        found = stored_and_loaded(logs, stores, self._plain)
        places = {tuple(self._places[site]) for site in found}
        return self._sites(each for each in self._telling if each[:2] in places)

    def _keep(self, sites: set[int], why: str) -> None:
        for site in sites - self.told.keys():
            self.told[site] = self._left_out(site, why, "what follows")

    def _left_out(self, site: int, why: str, about: str = "what is accessed") -> str:
        names = KernelNames(self._launched.module(), self._launched.compiled)
        what, where = names.mnemonic(site), names.place(site)
        return (
            f"which warp finds which value with {what} at {where} decides {about}: "
            f"that was taken as in the recorded run, as {why}"
        )


class _Answer:
    """Puts the answers about all parts together."""

    def __init__(
        self,
        recording: Recording,
        explored: list[tuple[ClusterProgram, Verdict]],
        decisions: Decisions,
        faults: list[KernelFault],
    ) -> None:
        self.faults = faults
        self.recording, self.explored = recording, explored
        self.launched = recording.launched
        self.names = KernelNames(self.launched.module(), self.launched.compiled)
        self.reasons = decisions.reasons
        self.untried = list(dict.fromkeys(decisions.untried))

    def made(self) -> Orders:
        """The answer."""
        coverage = worst([verdict.coverage for _, verdict in self.explored])
        reasons = [*self.reasons, *self.untried]
        for _, verdict in self.explored:
            reasons += [self._reason(each) for each in verdict.reasons]
        if self.reasons:
            coverage = worst([coverage, Coverage.PATH])
        if self.untried:
            coverage = Coverage.INCOMPLETE
        if any(r.startswith("loop ") for _, v in self.explored for r in v.reasons):
            coverage = Coverage.INCOMPLETE
        if self.recording.cut:
            coverage = Coverage.INCOMPLETE
            reasons.insert(0, self.recording.cut)
        stories = [
            (part, HangReport(OrderWords(self.launched, part), verdict.hang))
            for part, verdict in self.explored
            if verdict.hang is not None
        ]
        if self.recording.hung and not stories:
            coverage = Coverage.INCOMPLETE
            reasons.insert(0, "the launch hangs as it ran, and why was not found")
        stories.sort(key=lambda each: len(each[1].steps))
        findings = [self._hang(*each) for each in stories[:1]]
        for part, verdict in self.explored:
            findings += self._others(part, verdict)
        findings += [self._failed(each) for each in self.faults]
        return Orders(
            coverage.value,
            tuple(dict.fromkeys(reasons)),
            sum(verdict.orders for _, verdict in self.explored),
            sum(verdict.states for _, verdict in self.explored),
            stories[0][1] if stories else None,
            self.launched,
            tuple((self.launched, each) for each in findings),
            self._together(),
            bool(findings),
        )

    def _together(self) -> tuple[str, ...]:
        sites = {site for part, _ in self.explored for site in part.together}
        return tuple(dict.fromkeys(self.names.place(site) for site in sorted(sites)))

    def _reason(self, given: str) -> str:
        kind, _, site = given.partition(" ")
        if kind not in ("test", "loop", "lanes", "kept") or not site.isdecimal():
            return given
        what, where = self.names.mnemonic(int(site)), self.names.place(int(site))
        if kind == "loop":
            return (
                f"what the loop on {what} at {where} waits for is not known: it was "
                "taken to wait for the value that it found; what follows another value "
                "was not explored"
            )
        if kind == "kept":
            return (
                f"the loop on {what} at {where} depends on what other lanes had found "
                "before: that was taken as in the recorded run"
            )
        if kind == "lanes":
            return (
                f"several lanes execute {what} at {where} at once, and its value "
                "decides what follows: the values of the recorded run were taken"
            )
        return (
            f"{what} at {where} said no, and no wait for that phase followed: what "
            "follows a yes was not explored"
        )

    # ── findings ────────────────────────────────────────────────────────────

    def _hang(self, part: ClusterProgram, story: HangReport) -> Finding:
        message = "\n".join(["in some order, the launch hangs:", *story.lines()])
        return Finding(
            rules.DEADLOCK,
            story.site,
            message,
            part.agents[story.first].block,
            part.agents[story.first].warp,
            part.agents[story.first].lanes,
            repair=story.repair,
        )

    def _failed(self, fault: KernelFault) -> Finding:
        """What a recorded run did that a kernel must not do: that run is an order."""
        x, y, z = fault.block or (0, 0, 0)
        wide, high, _ = self.launched.shape.grid
        return Finding(
            rules.of_fault(fault.kind),
            -1,
            f"in some order, the kernel fails:\n{fault}",
            x + wide * (y + high * z),
            severity=ERROR,
            line=fault.line,
            repair=fault.hint or None,
        )

    def _others(self, part: ClusterProgram, verdict: Verdict) -> Iterator[Finding]:
        teller = OrderWords(self.launched, part)
        for race in verdict.races:
            yield self._race(part, teller, race)
        for misuse in verdict.misuses:
            yield self._misuse(part, teller, misuse)

    def _race(self, part: ClusterProgram, teller: OrderWords, race: Race) -> Finding:
        who = part.agents[race.second.agent]
        other, verb = self._access(teller, race.first), "accessed"
        message = (
            f"in some order, {other} {verb} the same {_memory(race.span)} "
            f"({race.span.start:#x}), and nothing orders the two"
        )
        return Finding(
            _rule(race),
            site_of(race.second.event),
            message,
            who.block,
            who.warp,
            who.lanes,
            other=site_of(race.first.event),
            repair=self._repair(part, race),
        )

    def _repair(self, part: ClusterProgram, race: Race) -> str | None:
        """What orders the two, by the kind of the work that one of them is."""
        for work, other in ((race.first, race.second), (race.second, race.first)):
            flying = part.units.get(work.unit) if work.unit is not None else None
            if flying is not None and not race.fence:
                told = [self.names.mbarrier(at[1]) for at, *_ in flying.signals[:1]]
                what = short(self.names.mnemonic(site_of(other.event)))
                only_read = not _writes(work)
                return phrases.waited_for(
                    flying.done_by, short(flying.name), what, "".join(told), only_read
                )
        return None

    def _access(self, teller: OrderWords, step: OrderStep) -> str:
        site = site_of(step.event)
        what = short(self.names.mnemonic(site))
        return f"{what} of {teller.agent(step.agent)} at {self.names.place(site)}"

    def _misuse(
        self, part: ClusterProgram, teller: OrderWords, misuse: Misuse
    ) -> Finding:
        who = part.agents[misuse.step.agent]
        told = teller.steps(misuse.order)
        lines = [f"{each.number}. {each.who} {each.does}" for each in told[-8:]]
        message = "\n".join([f"in some order, {misuse.kind.value}:", *lines])
        barrier = isinstance(misuse.step.event, _BARRIERS)
        return Finding(
            rules.DEADLOCK if barrier else rules.MBARRIER,
            site_of(misuse.step.event),
            message,
            who.block,
            who.warp,
            who.lanes,
        )


_BARRIERS = (said.Sync, said.Arrive, said.ClusterArrive, said.ClusterWait)


def _depends(launched: Launched, each: Dependent) -> str:
    """Why a branch may go another way."""
    code = launched.module().functions[each.function].instructions
    at, source = code[each.place], code[each.source]
    what = "an operand of" if each.operand else "the branch"
    what = f"{what} {short(at.mnemonic)}" if each.operand else what
    return (
        f"{what} at {place(at)} depends on what {short(source.mnemonic)} at "
        f"{place(source)} loaded: other data may take another way"
    )


def _memory(span: Span) -> str:
    return "shared memory" if span.space.startswith("shared") else "global memory"


def _rule(race: Race) -> Rule:
    """The rule of a race; work in flight has rules of its own."""
    if race.fence:
        return rules.MISSING_PROXY_FENCE
    first, second = race.first, race.second
    if first.unit is not None and _writes(first) and not _writes(second):
        return rules.READ_BEFORE_ARRIVAL
    flying = first.unit is not None or second.unit is not None
    if flying and not _writes(first):
        return rules.OVERWRITE_WHILE_READ
    if race.span.space.startswith("shared"):
        return rules.SHARED_RACE
    return rules.GLOBAL_RACE


def _writes(step: OrderStep) -> bool:
    """Whether a step writes memory."""
    event = step.event
    if isinstance(event, said.Access):
        return bool(event.writes)
    waits = isinstance(event, said.Await) and event.update is None
    return not waits and not isinstance(event, said.Load)
