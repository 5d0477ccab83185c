"""The race detectors of a whole launch, and what they found."""

from __future__ import annotations

from threading import Lock
from typing import Any

from fragmenta.ptx import rules
from fragmenta.ptx.rules import INFO, WARNING
from fragmenta.races.global_watch import GlobalWatch, Who
from fragmenta.races.observer import MBARRIERS, Observer
from fragmenta.races.report.history import Mark, Recorded
from fragmenta.races.report.stories import Agent, Collision, Story, key
from fragmenta.races.shadow.bank_counts import BankCounts
from fragmenta.races.shadow.detected import Detected
from fragmenta.races.shadow.layout import LAST_EPOCH, Plan
from fragmenta.races.shadow.problem_table import Moment, Noted
from fragmenta.races.strong_accesses import Locations
from fragmenta.simt.layout import RANK_BITS
from fragmenta.units.findings import Finding, Problems


class LaunchWatch:
    """Watches all clusters of a launch."""

    def __init__(self, machine: Any) -> None:
        launch = machine.launch
        shape, compiled = launch.shape, launch.compiled
        self.machine, self.places = machine, compiled.places
        plan = Plan(
            shape.cluster_blocks,
            shape.warps,
            compiled.shared + launch.dynamic,
            MBARRIERS,
            machine.asynchronous,
            machine.tensor,
        )
        self.memory = GlobalWatch(launch.places, launch.units, plan.row)
        self.locations = Locations(self.memory)
        self.banks = BankCounts(len(compiled.places))
        self.observers: list[Observer] = []
        self.used: set[int] = set()
        """The sites of ``mbarrier.init`` of all mbarriers that are used."""
        self.lock = Lock()

    def observer(self, cluster: Any) -> Observer:
        """Who watches a cluster."""
        made = Observer(self.machine, cluster, self)
        for block in cluster.blocks:
            self.banks.attach(block.context.parts["block"])
        with self.lock:
            self.observers.append(made)
        return made

    def collect(self, problems: Problems) -> None:
        """Put all that was found with the problems of the launch."""
        for observer in self.observers:
            observer.keep()
            for each in observer.watch.found():
                problems.put(self._shared(observer, each))
        for finding in self.memory.found():
            problems.put(self._global(finding))
        if self.memory.full:
            message = (
                "global memory was watched for a part of the launch only: there were "
                "too many different accesses"
            )
            problems.put(Finding(rules.UNWATCHED, -1, message))
        for banks in self.banks.found():
            site, count = self._site(banks.site), banks.executions
            problems.put(Finding(rules.BANK_CONFLICT, site, banks.message, count=count))
        self._drop_consequences(problems)

    def close(self) -> None:
        """Let go of everything: the launch has ended."""
        for each in self.observers:
            vars(each).clear()
        vars(self).clear()

    def recorded(self) -> list[Recorded]:
        """What happened in some clusters, with the problems that were found there."""
        launch, found = self.machine.launch, list(self.machine.problems)
        kept = {
            number: notes
            for observer in self.observers
            for number, notes in observer.history.kept.items()
        }
        made = []
        for number, notes in sorted(kept.items()):
            members = launch.shape.members(number)
            marks = [
                Mark(
                    e.rule.name,
                    e.severity,
                    e.site,
                    e.other,
                    e.block,
                    e.story if isinstance(e, Collision) else None,
                )
                for e in found
                if e.block in members
            ]
            blocks = tuple(launch.shape.block_at(each) for each in members)
            schedule = self.machine.schedule.given
            made.append(
                Recorded(
                    number,
                    blocks,
                    launch.shape.warps,
                    schedule,
                    notes,
                    marks,
                    launch.module,
                    launch.compiled,
                )
            )
        return made

    def _drop_consequences(self, problems: Problems) -> None:
        """Who reads too early may find nothing there: that is said once."""
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
        """One number for an instruction that was written down several times."""
        place = self.places[site] if 0 <= site < len(self.places) else None
        return site if place is None else self.places.index(place)

    # ── shared memory ───────────────────────────────────────────────────────

    def _shared(self, observer: Observer, found: Noted[Moment]) -> Collision:
        story = observer.seen.stories[key(found)]
        now = story.now
        low = (1 << RANK_BITS) - 1
        rule, severity = found.case.rule, found.case.severity
        contested = not found.was_write or (
            story.before is not None and story.before.kind == "cp.async"
        )
        if rule is rules.MISSING_PROXY_FENCE and contested:
            severity = WARNING  # only with watch="strict": shipped kernels do without
        made = Collision(
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
            space="shared",
            story=story,
            owner=found.first >> RANK_BITS,
            first=found.first & low,
            last=found.last & low,
            now_write=found.now_write,
            was_write=found.was_write,
            same_value=found.case.same_value,
            one_store=found.case is Detected.ONE_STORE,
            partly=found.partly,
        )
        if found.before is not None and found.before.epoch == LAST_EPOCH:
            words = self._words(found.before.site)
            if words[:2] == ["mbarrier", "init"]:
                made.rule = rules.MBARRIER
                # An mbarrier that nobody uses only lacks its mbarrier.inval.
                if found.before.site not in self.used:
                    made.severity = INFO
        return made

    # ── global memory ───────────────────────────────────────────────────────

    def _global(self, finding: Noted[Who]) -> Collision:
        case, was = finding.case, finding.before
        now = self._who(finding.now)
        before = None if was is None else self._who(was)
        severity = case.severity
        if case is Detected.READ_WRITE and was is not None and not finding.apart:
            # Triton lets all lanes of a warp load what one of them stores afterwards.
            severity = INFO
        return Collision(
            case.rule,
            self._site(now.site),
            "",
            now.block,
            now.number,
            1 << now.lane,
            severity,
            None if was is None else self._site(was.site),
            finding.count,
            apart=finding.apart,
            space="global",
            first=finding.first,
            last=finding.last,
            story=Story(finding.now.group, now, before, None),
            now_write=finding.now_write,
            was_write=finding.was_write,
            same_value=case.same_value,
        )

    def _who(self, who: Who) -> Agent:
        kind, rank, number = self.observers[0].watch.describe(who.agent)
        block = self.machine.launch.shape.members(who.group)[rank]
        return Agent(kind, rank, number, who.lane, who.epoch, who.site, block=block)
