"""Explores all orders of a recorded launch, and puts what is found into words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from fragmenta.errors import KernelFault
from fragmenta.launch.launch import Launch
from fragmenta.launch.orders.answer import Orders, worst
from fragmenta.launch.orders.dependence import Dependent, dependent
from fragmenta.launch.orders.programs import Part, asks_for_clusters, parts
from fragmenta.launch.orders.recording import Recording, record
from fragmenta.launch.orders.story import HangStory, Teller, site_of
from fragmenta.orders import program as said
from fragmenta.orders.explore import explore
from fragmenta.orders.program import Span, Step, Steps
from fragmenta.orders.verdict import Coverage, Misuse, Race, Verdict
from fragmenta.progress import Progress
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.rules import Rule
from fragmenta.races.recording.recorder import Force
from fragmenta.races.report.messages import order, reports
from fragmenta.simt.naming import Names, place, short
from fragmenta.units.findings import Finding, Launched

HUNG = (rules.DEADLOCK.name,)
"""What the fault of a launch that hung is the same as."""
MORE = 20_000
"""Instructions of a run after a recorded one that hangs, besides four times those."""
MOST_GRANTS = 8
"""Clusters that one cluster is granted by clusterlaunchcontrol.try_cancel."""
MOST_RUNS = 64
"""Runs that follow a value which decides something."""


class Explored:
    """All orders of one launch."""

    def __init__(self, prepare: Callable[[], Launch], states: int) -> None:
        self._prepare, self._states = prepare, states
        self._run: Callable[[Launch], str]
        self.orders: Orders | None = None
        self._runs = 0
        self._enough: int | None = None
        """Instructions of further runs, if the recorded one hangs."""

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
        recording = record(launch, self._run)
        if recording.hung:
            self._enough = 4 * recording.instructions + MORE
        decisions = Decisions(recording.launched)
        explored: list[tuple[Part, Verdict]] = []
        every = parts(recording.logs, decisions.sites, recording.values)
        every += self._granted(recording, clusters, decisions)
        for number, part in enumerate(every):

            def share(done: float, number: int = number) -> None:
                progress((number + done) / len(every))

            extend = partial(self._extend, part, decisions.sites)
            verdict = explore(part.program, extend, limit=self._states, progress=share)
            explored.append((part, verdict))
        self.orders = _Answer(recording, explored, decisions.reasons).made()

    def _granted(
        self, recording: Recording, clusters: int, decisions: Decisions
    ) -> list[Part]:
        """What else happens if requests for clusters that have not begun are granted.

        Each number of grants is a run of its own: one cluster gets them all.
        """
        found: list[Part] = []
        if not asks_for_clusters(recording.logs):
            return found
        for grants in range(1, min(clusters, MOST_GRANTS + 1)):
            more = record(self._prepare(), self._run, grants=grants)
            recording.cut = recording.cut or more.cut
            recording.hung |= more.hung
            found += parts(more.logs, decisions.sites, more.values, -grants)
        if clusters > MOST_GRANTS + 1:
            decisions.reasons.append(
                f"a cluster may be granted {clusters - 1} others; it was granted at "
                f"most {MOST_GRANTS}"
            )
        return found

    def _extend(
        self,
        part: Part,
        sites: set[int],
        agent: int,
        observed: tuple[int, ...],
        order: tuple[Step, ...],
    ) -> Steps | None:
        """What an agent does after it has read these values: run it so."""
        if self._runs == MOST_RUNS:
            return None
        self._runs += 1
        who = part.agents[agent]
        force = Force(who.block, who.warp, who.lanes, sites, list(observed))
        recording = record(self._prepare(), self._run, force)
        for each in parts(recording.logs, sites, recording.values, self._runs):
            number = each.number(who)
            if number is None or not each.words <= part.words:
                continue
            steps: Steps | None = each.program.agents[number].steps
            for value in observed:
                steps = steps.after.get(value) if steps is not None else None
            if steps is not None:
                part.units.update(each.units)
                return steps
        return None

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
        more = [each for each in self.orders.found if _lines(*each) not in known]
        self.orders = replace(self.orders, found=tuple(more))
        if self.orders.hangs:  # its story says more than the fault of the one run
            found = [each for each in found if _lines(*each) != HUNG]
        return [*found, *more]


def _lines(launched: Launched, found: Finding) -> tuple[object, ...]:
    """What two findings of one pair of instructions have in common."""
    stopped = rules.DEADLOCK, rules.of_fault("limit")
    if found.rule in stopped and found.site < 0:
        return HUNG
    places = launched.compiled.places
    sites = [each for each in (found.site, found.other) if each is not None]
    where = [tuple(places[e]) if 0 <= e < len(places) else () for e in sites]
    return (found.rule.name, *sorted(map(str, where)))


class Decisions:
    """What decides how a kernel goes on, besides its arguments."""

    def __init__(self, launched: Launched) -> None:
        module, compiled = launched.module(), launched.compiled
        found = dependent(module, compiled.kernel)
        words = {(e.function, e.source) for e in found if e.word}
        self.sites = {
            site for site, place in enumerate(compiled.places) if tuple(place) in words
        }
        """Strong accesses whose values decide something.  They are followed."""
        self.reasons = [_depends(launched, each) for each in found if not each.word]
        """Why other data may take another way."""


class _Answer:
    """Puts the answers about all parts together."""

    def __init__(
        self,
        recording: Recording,
        explored: list[tuple[Part, Verdict]],
        reasons: list[str],
    ) -> None:
        self.recording, self.explored = recording, explored
        self.launched = recording.launched
        self.names = Names(self.launched.module(), self.launched.compiled)
        self.reasons = reasons

    def made(self) -> Orders:
        """The answer."""
        coverage = worst([verdict.coverage for _, verdict in self.explored])
        reasons = list(self.reasons)
        for _, verdict in self.explored:
            reasons += [self._reason(each) for each in verdict.reasons]
        if self.reasons:
            coverage = worst([coverage, Coverage.PATH])
        if self.recording.cut:
            coverage = Coverage.INCOMPLETE
            reasons.insert(0, self.recording.cut)
        stories = [
            (part, HangStory(Teller(self.launched, part), verdict.hang))
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
        return Orders(
            coverage.value,
            tuple(dict.fromkeys(reasons)),
            sum(verdict.orders for _, verdict in self.explored),
            sum(verdict.states for _, verdict in self.explored),
            stories[0][1] if stories else None,
            self.launched,
            tuple((self.launched, each) for each in findings),
            self._together(),
        )

    def _together(self) -> tuple[str, ...]:
        sites = {site for part, _ in self.explored for site in part.together}
        return tuple(dict.fromkeys(self.names.place(site) for site in sorted(sites)))

    def _reason(self, given: str) -> str:
        kind, _, site = given.partition(" ")
        if kind not in ("test", "loop", "lanes") or not site.isdecimal():
            return given
        what, where = self.names.mnemonic(int(site)), self.names.place(int(site))
        if kind == "loop":
            return (
                f"what the loop on {what} at {where} waits for is not plain: it was "
                "taken to wait for the value that it found"
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

    def _hang(self, part: Part, story: HangStory) -> Finding:
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

    def _others(self, part: Part, verdict: Verdict) -> Iterator[Finding]:
        teller = Teller(self.launched, part)
        for race in verdict.races:
            yield self._race(part, teller, race)
        for misuse in verdict.misuses:
            yield self._misuse(part, teller, misuse)

    def _race(self, part: Part, teller: Teller, race: Race) -> Finding:
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
        )

    def _access(self, teller: Teller, step: Step) -> str:
        site = site_of(step.event)
        what = short(self.names.mnemonic(site))
        return f"{what} of {teller.agent(step.agent)} at {self.names.place(site)}"

    def _misuse(self, part: Part, teller: Teller, misuse: Misuse) -> Finding:
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
    if race.fence:
        return rules.MISSING_PROXY_FENCE
    if race.span.space.startswith("shared"):
        return rules.SHARED_RACE
    return rules.GLOBAL_RACE
