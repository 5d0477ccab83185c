"""What is watched in a whole launch, and what was found in it?"""

from __future__ import annotations

from threading import Lock
from typing import Any

from fragmenta.ptx.engine.layout import RANK_BITS
from fragmenta.ptx.watching.accesses import Flags
from fragmenta.ptx.watching.accesses import Rule as GlobalRule
from fragmenta.ptx.watching.banks import BankCounts
from fragmenta.ptx.watching.findings import Found, Problems
from fragmenta.ptx.watching.global_watch import Finding, GlobalWatch, Who
from fragmenta.ptx.watching.layout import LAST_EPOCH, Plan
from fragmenta.ptx.watching.locations import Locations
from fragmenta.ptx.watching.observer import MBARRIERS, Observer
from fragmenta.ptx.watching.problems import Found as SharedFound

RACES = frozenset({
    "shared-race", "global-race", "read-before-arrival", "overwrite-while-read",
})  # fmt: skip


class LaunchWatch:
    """Watches all clusters of a launch."""

    def __init__(self, machine: Any) -> None:
        launch = machine.launch
        shape, compiled = launch.shape, launch.compiled
        self.machine, self.places = machine, compiled.places
        plan = Plan(
            shape.cluster_blocks, shape.warps, compiled.shared + launch.dynamic,
            MBARRIERS, bool(machine.events),
        )  # fmt: skip
        self.memory = GlobalWatch(launch.places, launch.units, plan.row)
        self.locations = Locations(self.memory)
        self.banks = BankCounts(len(compiled.places))
        self.observers: list[Observer] = []
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
            for each in observer.watch.found():
                problems.put(self._shared(observer, each))
        for finding in self.memory.found():
            made = self._global(finding)
            if made is not None:
                problems.put(made)
        if self.memory.full:
            message = (
                "global memory was watched for a part of the launch only: there were "
                "too many different accesses"
            )
            problems.put(Found("unwatched", "info", -1, message, 0, 0, 0))
        for banks in self.banks.found():
            problems.put(
                Found("bank-conflict", "info", self._site(banks.site), banks.message,
                      0, 0, 0, count=banks.executions)
            )  # fmt: skip
        self._drop_consequences(problems)

    def _drop_consequences(self, problems: Problems) -> None:
        """Who reads too early may find nothing there: that is said once."""
        sites = set()
        for each in problems:
            if each.rule in RACES and not each.more.get("same_value"):
                sites |= {each.site, each.other}
        problems.drop(lambda each: each.rule == "uninitialised" and each.site in sites)

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

    def _shared(self, observer: Observer, found: SharedFound) -> Found:
        watch = observer.watch
        kind, rank, number = watch.describe(found.now.agent)
        cluster = observer.numbers[found.cluster - 1]
        shape = self.machine.launch.shape
        block = shape.members(cluster)[rank]
        lanes = 1 << found.now.lane if found.now.lane >= 0 else 0xFFFFFFFF
        now = _agent(kind, number, found.now, watch)
        before = None
        if found.before is not None:
            before = _agent(*_kind(watch, found.before.agent), found.before, watch)
        first, last = (
            found.first & (1 << RANK_BITS) - 1,
            found.last & (1 << RANK_BITS) - 1,
        )
        more = {
            "space": "shared", "first": first, "last": last, "now": now,
            "before": before, "now_write": found.now_write,
            "was_write": found.was_write, "owner": found.first >> RANK_BITS,
        }  # fmt: skip
        rule = found.rule
        severity = "info" if rule == "same-value" else "error"
        if rule == "uninitialised":
            severity = self._unset(kind, found.now.site)
        made = Found(
            "shared-race" if rule == "same-value" else rule, severity,
            self._site(found.now.site), "", block, number, lanes, count=found.count,
            more=more,
        )  # fmt: skip
        made.more["same_value"] = rule == "same-value"
        if found.before is not None and found.before.epoch == LAST_EPOCH:
            words = self._words(found.before.site)
            if words[:2] == ["mbarrier", "init"]:
                made.rule = "mbarrier"
                made.more["alive"] = True
        if found.before is not None:
            made.other = self._site(found.before.site)
        return made

    def _unset(self, kind: str, site: int) -> str:
        """How bad it is to read what nobody wrote.

        A tile may be larger than the matrix: what products, ``ldmatrix`` and copies
        read beyond the edge may be thrown away later.
        """
        if kind == "warp" and self._words(site)[0] != "ldmatrix":
            return "error"
        return "warning" if kind in ("wgmma", "warp") else "info"

    # ── global memory ───────────────────────────────────────────────────────

    def _global(self, finding: Finding) -> Found | None:
        rule = finding.rule
        shape = self.machine.launch.shape
        observer = self.observers[0]
        now = self._who(observer, finding.now)
        before = None if finding.before is None else self._who(observer, finding.before)
        name, severity = "global-race", "error"
        if rule == GlobalRule.UNINITIALISED:
            name = "uninitialised"
        elif rule == GlobalRule.PROXY:
            name, severity = "missing-proxy-fence", "warning"
        elif rule in (GlobalRule.SAME_VALUE, GlobalRule.MIXED):
            severity = "info"
        block = shape.members(finding.now.group)[now["rank"]]
        more = {
            "space": "global", "first": finding.address, "last": finding.address + 4,
            "now": now, "before": before,
            "now_write": bool(finding.now.flags & Flags.WRITE),
            "was_write": before is not None
            and bool(finding.before and finding.before.flags & Flags.WRITE),
            "same_value": rule == GlobalRule.SAME_VALUE,
        }  # fmt: skip
        other = None if finding.before is None else self._site(finding.before.site)
        return Found(
            name, severity, self._site(finding.now.site), "", block, now["number"],
            1 << finding.now.lane, other, finding.times, more,
        )  # fmt: skip

    def _who(self, observer: Observer, who: Who) -> dict[str, Any]:
        kind, rank, number = observer.watch.describe(who.agent)
        shape = self.machine.launch.shape
        return {
            "kind": kind, "rank": rank, "number": number, "lane": who.lane,
            "epoch": who.epoch, "site": self._site(who.site),
            "block": shape.members(who.group)[rank],
        }  # fmt: skip


def _kind(watch: Any, agent: int) -> tuple[str, int]:
    kind, _, number = watch.describe(agent)
    return kind, number


def _agent(kind: str, number: int, moment: Any, watch: Any) -> dict[str, Any]:
    _, rank, _ = watch.describe(moment.agent)
    return {
        "kind": kind, "rank": rank, "number": number, "lane": moment.lane,
        "epoch": moment.epoch, "site": moment.site,
    }  # fmt: skip
