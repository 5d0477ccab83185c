"""The reports: the problems of a launch in words.

A message says who did what, where, to which memory; what it collides with; and which
wait or barrier would have ordered the two.  The hint says what repairs it.  All phrases
are in :mod:`phrases`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.naming import (
    KernelNames,
    block_words,
    counted,
    element,
    place,
)
from fragmenta.engine.units.findings import Finding, Launched
from fragmenta.errors import one_of, ranges
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem, Related
from fragmenta.ptx.languages import PTX, Words, told_from
from fragmenta.ptx.module import Location
from fragmenta.ptx.ordering import Scope, scope
from fragmenta.ptx.rules import INFO, SEVERITIES, named
from fragmenta.watch.races.report import phrases
from fragmenta.watch.races.report.directions import (
    CLUSTER,
    LANE_WAITS,
    Directions,
    need,
)
from fragmenta.watch.races.report.places import Advice, MissingBarriers
from fragmenta.watch.races.report.problem_context import Agent, Collision, Narrow, Wait
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.layout import COMMITTED, WARPGROUP

ALL = 0xFFFFFFFF


def reports(found: Iterable[tuple[Launched, Finding]]) -> list[Problem]:
    """All problems of a launch: errors, then warnings, then what is worth knowing."""
    return [problem for problem, _ in grouped(found)]


def grouped(
    found: Iterable[tuple[Launched, Finding]],
) -> list[tuple[Problem, list[Finding]]]:
    """All problems of a launch, in the order of reports, and what was found of each.

    The same lines of the source in an unrolled loop are one problem, and so are two
    accesses that race in either order.
    """
    reporters: dict[int, Reporter] = {}
    together: dict[tuple[str, ...], list[tuple[Reporter, Finding]]] = {}
    # Of two accesses, the one that reads is reported: it explains more.
    for launch, each in sorted(found, key=lambda pair: _writes(pair[1])):
        if id(launch) not in reporters:
            reporters[id(launch)] = Reporter(launch)
        reporter = reporters[id(launch)]
        problem = reporter.report(each)
        together.setdefault(key(problem), []).append((reporter, each))
    _join_open(together)
    every = [(_told(some), some) for some in map(_as_seen, together.values())]
    places: dict[int, MissingBarriers] = {}
    for number, ((reporter, told), _) in enumerate(every):
        reporter.place(number, told, places.setdefault(id(reporter), MissingBarriers()))
    made = [
        (
            _with_count(reporter.report(told, places[id(reporter)].advice(number))),
            [each for _, each in some],
        )
        for number, ((reporter, told), some) in enumerate(every)
    ]
    return sorted(made, key=lambda pair: order(pair[0]))


def _join_open(together: dict[tuple[str, ...], list[tuple[Reporter, Finding]]]) -> None:
    """Join what races with several blocks, of which none is named, to its pair.

    Whether a write comes before or after the reads of several blocks is chance.
    """
    for alone in [each for each in together if len(each) == _ONE_PLACE]:
        rule, severity, here = alone
        pairs = [
            each
            for each in together
            if each[:2] == (rule, severity) and here in each[2:] and each != alone
        ]
        if named(rule).symmetric and pairs:
            together[pairs[0]] += together.pop(alone)


_ONE_PLACE = 3
"""The parts of the key of a problem at one place: its rule, severity and line."""


def order(problem: Problem) -> tuple[int, bool, int]:
    """The key by which problems are sorted: a cause before what may follow from it."""
    severity = SEVERITIES.index(problem.severity)
    return severity, named(problem.rule).consequence, problem.line


def _as_seen(some: list[tuple[Reporter, Finding]]) -> list[tuple[Reporter, Finding]]:
    """Findings of one problem: those first that were seen in the order of the text."""
    return sorted(some, key=lambda each: each[0].turned(each[1]) is not each[1])


def _told(some: list[tuple[Reporter, Finding]]) -> tuple[Reporter, Finding]:
    """Several findings as one, which is reported; its repair is enough for all."""
    reporter, first = some[0]
    apart, count = 0, 0
    for _, each in some:
        apart, count = apart | each.apart, count + each.count
    return reporter, replace(first, apart=apart, count=count)


def _writes(found: Finding) -> bool:
    return isinstance(found, Collision) and found.noted.now_write


def key(problem: Problem) -> tuple[str, ...]:
    """What equal problems have in common: rule and lines, if possible of the source."""
    places: list[Problem | Related] = [problem, *problem.related]
    where = [str(each.source.words if each.source else each.line) for each in places]
    if named(problem.rule).symmetric:
        where.sort()
    return problem.rule, problem.severity, *where


def _with_count(problem: Problem) -> Problem:
    if problem.count == 1 or problem.rule == rules.BANK_CONFLICT.name:
        return problem
    message = f"{problem.message} (seen {problem.count:,} times)"
    return replace(problem, message=message)


class Reporter:
    """Puts the problems of one launch into words."""

    def __init__(self, launch: Launched) -> None:
        self.launch = launch
        self.names = KernelNames(launch.module(), launch.compiled)
        self._lines = self.names.module.text.splitlines()
        self._directions = Directions(self.names.module, launch.compiled)

    def turned(self, found: Finding) -> Finding:
        """A problem in the order that the text of the kernel means."""
        if not isinstance(found, Collision):
            return found
        return self._directions.turned(found)

    def place(self, number: int, found: Finding, places: MissingBarriers) -> None:
        """Add a problem to those that lack a barrier, if it does."""
        found = self.turned(found)
        if not isinstance(found, Collision) or not self._lacks_barrier(found):
            return
        needed = need(found)
        between = self._directions.between(found, needed.closes)
        if between is not None:
            places.add(number, between, needed)

    def _lacks_barrier(self, found: Collision) -> bool:
        """Whether a barrier between two accesses of threads would repair a problem."""
        now, before = found.story.now, found.story.before
        simple = found.rule.race and found.severity != INFO and not found.unused
        if before is None or not simple or found.story.narrow is not None:
            return False
        hint = self._repair(found, now, before, None)
        return hint.startswith(_OPENINGS) or (
            found.story.own_wait >= 0 and before.kind in LANE_WAITS
        )

    def report(self, found: Finding, advice: Advice | None = None) -> Problem:
        """A problem in the user's terms."""
        found = self.turned(found)
        if isinstance(found, Collision):
            message, hint = self._accesses(found, advice)
        else:
            message, hint = self._said(found)
        line, column, source = found.line, 1, None
        length = 1
        instruction = self.names.instruction(found.site) or self.names.at_line(line)
        if instruction is not None:
            line, column = instruction.line, instruction.column
            source, length = instruction.source, len(instruction.mnemonic)
        hint = self.language(source).spoken(hint)
        return Problem(
            found.rule.name,
            found.severity,
            line,
            column,
            self._text(line),
            message,
            hint,
            self.names.function(found.site),
            source,
            length,
            count=found.count,
            block=self._block(found.block),
            related=self._related(found),
        )

    def language(self, source: Location | None) -> Words:
        """What the line of a problem is written in; PTX if it is not known."""
        if self.launch.language != PTX or source is None:
            return self.launch.language
        return told_from(self.launch.compiled.kernel, source.file)

    def _text(self, line: int) -> str:
        return self._lines[line - 1] if 0 < line <= len(self._lines) else ""

    def _block(self, number: int) -> tuple[int, int, int]:
        found: tuple[int, int, int] = self.launch.shape.block_at(number)
        return found

    def _related(self, found: Finding) -> tuple[Related, ...]:
        other = -1 if found.other is None else found.other
        instruction = self.names.instruction(other)
        if instruction is None:
            return ()
        line = instruction.line
        what = found.rule.other
        return (Related(line, self._text(line).strip(), what, instruction.source),)

    # ── problems that have a message ─────────────────────────────────────────

    def _said(self, found: Finding) -> tuple[str, str]:
        hint = found.rule.repair if found.repair is None else found.repair
        hint = self.names.with_mbarriers(hint)
        message = self.names.with_mbarriers(found.message)
        if self.names.instruction(found.site) is None:
            return message, found.repair or found.rule.fatal
        where = self.names.place(found.site)
        what = self.names.mnemonic(found.site)
        if found.rule is rules.BANK_CONFLICT:  # it is about all warps
            return f"{what} at {where}: {message}", hint
        who = f"warp {found.warp}{_lanes(found.lanes)}"
        message += self._uses(found)
        message = f"{self._who(found)}{what} of {who} at {where}: {message}"
        if found.other is not None and self.names.instruction(found.other) is not None:
            title = found.rule.other
            there = self.names.place(found.other)
            message += f"; {title} is at {there}"
            hint = hint.replace("{here}", where).replace("{there}", there)
            relaxed = self._directions.relaxed(found.site, found.other)
            if found.rule is rules.TENSOR_MEMORY_RACE and relaxed:
                hint = self._not_relaxed(phrases.NOT_RELAXED, *relaxed)
        if found.rule is rules.LEAK:
            hint = self._uncommitted(found.site) or hint
        if found.rule is rules.WGMMA_REGISTERS_IN_FLIGHT and found.other is not None:
            hint = self._uncommitted(found.other, found.site) or hint
        if found.rule is rules.DIVERGENT_ALIGNED and hint == found.rule.repair:
            where = self._directions.condition(found.site)
            hint = phrases.OUTSIDE.format(what=what, where=where) if where else hint
        return message, hint

    def _uncommitted(self, site: int, used: int = -1) -> str:
        """What to do about work that is in no group when a wait_group is executed."""
        found = self._directions.uncommitted(site, used)
        if found is None:
            return ""
        kind = found.mnemonic.partition(".wait_group")[0]
        return phrases.NO_COMMIT.format(
            kind=kind, work=self.names.place(site), wait=place(found)
        )

    def _who(self, found: Finding) -> str:
        return f"{block_words(self._block(found.block))}: "

    # ── two accesses ────────────────────────────────────────────────────────

    def _accesses(
        self, found: Collision, advice: Advice | None = None
    ) -> tuple[str, str]:
        story, noted = found.story, found.noted
        now, before = story.now, story.before
        verb = "writes" if noted.now_write else "reads"
        memory = self.memory(found)
        start = f"{self._who(found)}{self._agent(now)} {verb} {memory}"
        if found.rule is rules.UNINITIALISED:
            what = phrases.PARTLY if noted.partly else phrases.UNWRITTEN
            uses = self._uses(found)
            return f"{start}, {what}{uses}", found.rule.repair
        if before is None:
            rest = phrases.SEVERAL if noted.now_write else phrases.SOMEBODY
            return f"{start}; {rest}", found.rule.repair
        phrase = found.rule.before
        if noted.case.same_value:
            phrase = phrases.SAME_VALUE
        elif noted.case in phrases.BY_CASE:
            phrase = phrases.BY_CASE[noted.case]
        elif noted.case is Detected.SCOPE:
            phrase = self._scoped(found)
        other = self._agent(before, now)
        verb = "wrote" if noted.was_write else "read"
        when, passed = self._round(found)
        rest = phrase.format(other=other, verb=verb, user=self._user(now))
        rest = rest.replace(f"{verb} it,", f"{verb} it{when},")
        if found.rule.symmetric:
            rest += phrases.wider(found.apart, now, before)
        if found.unused:
            return f"{start}; {rest}{phrases.UNUSED}", ""
        why = self._why(found, now, before) or passed
        hint = self._repair(found, now, before, advice)
        if story.narrow is not None and noted.case is not Detected.SCOPE:
            why, hint = self._narrow(story.narrow)
        return f"{start}; {rest}{f': {why}' if why else ''}", hint

    def _words(self, site: int) -> str:
        """The words of an instruction, all of them."""
        found = self.names.instruction(site)
        return "" if found is None else found.mnemonic

    def _scoped(self, found: Collision) -> str:
        """What is wrong between two strong accesses: a scope is too small."""
        needed, story = _needed(found), found.story
        assert story.before is not None
        words = [self._words(each.site) for each in (story.now, story.before)]
        some = [each for each in words if scope(each.split(".")) < needed]
        phrase = phrases.SCOPED.replace(
            "{narrow}", one_of(list(dict.fromkeys(some)), "and")
        )
        return phrase.replace("{needed}", needed.word).replace(
            "{where}", _within(needed)
        )

    def _narrow(self, found: Narrow) -> tuple[str, str]:
        """Why a release and an acquire do not order two accesses; what repairs it."""
        given = found.given.word
        if scope(self._words(found.release).split(".")) is not found.given:
            given += " of the fence before it"
        why = phrases.TOO_NARROW.format(
            release=self._instruction(found.release),
            given=given,
            acquire=self._instruction(found.acquire),
            taken=found.taken.word,
            where=_within(found.needed),
            needed=found.needed.word,
        )
        return why, phrases.WIDEN.format(needed=found.needed.word)

    def _instruction(self, site: int) -> str:
        return f"{self._words(site)} at {self.names.place(site)}"

    def _uses(self, found: Finding) -> str:
        """Where the value that was read is used, if that was followed."""
        uses: dict[str, None] = {}
        for kind, (function, index) in found.uses:
            at = self.names.module.functions[function].instructions[index]
            uses[f"{phrases.USES[kind]} at {place(at)}"] = None
        some = list(uses)
        more = f" and {len(some) - 2} more" if len(some) > 3 else ""
        harmless = phrases.HARMLESS if found.severity == INFO else ""
        if found.alike:
            harmless += phrases.ALIKE.format(counted(found.alike, "other load"))
        first = one_of(some[: 2 if more else 3], "and")
        return f"; it {first}{more}{harmless}" if some else ""

    def _user(self, who: Agent) -> str:
        """What reads through the async proxy."""
        if who.kind == COMMITTED:
            return f"the {self.names.mnemonic(who.site)}"
        return "the wgmma" if who.kind == WARPGROUP else "the copy"

    def _agent(self, who: Agent, than: Agent | None = None) -> str:
        """Who did something, and where it is written.

        ``than`` is another, whose block is not named again.
        """
        lane = "" if who.lane < 0 or who.kind == WARPGROUP else f" lane {who.lane}"
        if who.is_copy:
            lane = ""
            if who.issuer is not None:
                _, warp, lanes = who.issuer
                lane = f", issued by warp {warp}{_lanes(lanes)}"
                who = who._replace(rank=who.issuer[0])
        if than is not None:
            lane += self._elsewhere(who, than)
        return phrases.AGENTS[who.kind].format(
            mnemonic=self.names.mnemonic(who.site),
            number=who.number,
            lane=lane,
            place=self.names.place(who.site),
        )

    def _elsewhere(self, who: Agent, than: Agent) -> str:
        """The block of an agent, if it is another one."""
        if who.block >= 0:
            same = who.block == than.block
            return "" if same else f" of {block_words(self._block(who.block))}"
        return "" if who.rank == than.rank else f" of block {who.rank} of the cluster"

    def memory(self, found: Collision) -> str:
        """The memory that two accesses are about."""
        first, last = found.noted.first, found.noted.last
        if found.noted.case.space == "shared":
            low = (1 << layout.RANK_BITS) - 1
            owner = found.owner
            of = (
                ""
                if owner == found.story.now.rank
                else f" of block {owner} of the cluster"
            )
            return self.names.shared_range(first & low, last & low) + of
        slot, offset = first >> layout.SLOT_BITS, first & (1 << layout.SLOT_BITS) - 1
        for each in self.launch.places:
            if each.slot == slot:
                return element(each.name, each.elements, offset)
        return f"global {first:#x}"

    # ── what is missing between them ────────────────────────────────────────

    def _round(self, found: Collision) -> tuple[str, str]:
        """When the earlier access was, if the two are of different rounds of a loop.

        Also the barrier that does not come between them.
        """
        before = found.story.before
        if before is None or not self._lacks_barrier(found):
            return "", ""
        between = self._directions.between(found, need(found).closes)
        if between is None or len(between.gaps) != 1:
            return "", ""
        (gap,) = between.gaps
        if gap.first == gap.second or not between.next_round(gap):
            return "", ""
        when = phrases.LATER if gap.second == between.before else phrases.SOONER
        passed = between.passed(gap, need(found).closes)
        if passed is None:
            return when, ""
        return when, phrases.PASSED.format(where=place(passed))

    def _why(self, found: Collision, now: Agent, before: Agent) -> str:
        """Which waits came before, and why they do not help."""
        rule, wait = found.rule, found.story.wait
        if rule is rules.MBARRIER:
            return ""
        if before.is_copy and before.mbarrier is not None:
            return self._counted_copy(found, now, before)
        if rule is not rules.OVERWRITE_WHILE_READ or wait is None:
            return ""
        readers = phrases.warps([number for _, number in before.warps])
        arrival = "" if wait.arrival < 0 else self.names.place(wait.arrival)
        done = arrival and before.kind != "warp"
        phrase = phrases.RELEASED if done else phrases.ANOTHER
        return self._waited(phrase, wait, readers=readers, arrival=arrival)

    def _counted_copy(self, found: Collision, now: Agent, before: Agent) -> str:
        assert before.mbarrier is not None
        wait, (_, unordered) = found.story.wait, found.story.handed
        mbarrier = self.names.mbarrier(before.mbarrier[1])
        part = phrases.COUNTED.format(phase=before.epoch, mbarrier=mbarrier)
        if unordered >= 0 and self._is_relaxed(unordered):
            where = self.names.place(unordered)
            return f"{part}, for which it waited with .relaxed, at {where}"
        if wait is None or (wait.rank, wait.offset) != before.mbarrier:
            who = phrases.warps([number for _, number in now.warps]) or "the thread"
            return f"{part}, for which {who} had not waited"
        if wait.phase >= before.epoch:
            return f"{part}; only {self._waited(phrases.WAITED, wait)}"
        if wait.phase < 0:
            return f"{part}; {self._waited(phrases.NEW, wait)}"
        past = phrases.PAST if wait.at_once else " only"
        surplus = found.story.surplus
        if surplus:
            past += (
                f"; {mbarrier} got {counted(surplus, 'byte')} more than were expected"
            )
        return f"{part}; {self._waited(phrases.WAITED, wait)}{past}"

    def _waited(self, phrase: str, wait: Wait, **more: str) -> str:
        """Who waited for which phase, and where."""
        some = _lanes(wait.lanes) if len(wait.warps) == 1 else ""
        return phrase.format(
            who=phrases.warps(list(wait.warps)) + some,
            phase=wait.phase,
            parity=wait.phase & 1,
            where=self.names.place(wait.site),
            mbarrier=self.names.mbarrier(wait.offset),
            **more,
        )

    def _repair(
        self, found: Collision, now: Agent, before: Agent, advice: Advice | None
    ) -> str:
        case, writes = found.noted.case, found.noted.now_write
        if case.same_value:
            return ""
        if case in phrases.REPAIRS:
            return phrases.REPAIRS[case]
        if case in phrases.BY_CASE:
            return phrases.ONE_LANE
        if case is Detected.SCOPE:
            return phrases.WIDEN.format(needed=_needed(found).word)
        relaxed = self._relaxed(found, now, before) or self._lock(now, before)
        relaxed = relaxed or self._uncommitted(before.site, now.site)
        if relaxed:
            return relaxed
        phrase = phrases.repair(
            found.rule, case.space, writes, now, before, found.apart
        )
        mbarrier = where = ""
        if before.mbarrier is not None:
            offset = before.mbarrier[1]
            mbarrier = f"the mbarrier {self.names.shared(offset) or f'at {offset:#x}'}"
        own_wait = found.story.own_wait
        if own_wait >= 0 and before.kind in LANE_WAITS and now.block == before.block:
            phrase, where = phrases.OWN_WAIT, self.names.place(own_wait)
        elif found.story.surplus and before.mbarrier is not None:
            phrase = phrases.EXPECT
        elif phrase == phrases.BETWEEN and advice is None:
            phrase = self._unplaced(found)
        return phrase.format(
            access="the write" if writes else "the read",
            mbarrier=mbarrier,
            surplus=counted(found.story.surplus, "byte"),
            user=self._user(now),
            phase=before.epoch,
            parity=before.epoch & 1,
            readers=phrases.warps([number for _, number in before.warps]),
            wait=self.names.mnemonic(own_wait),
            where=where,
            **_barrier(found, advice),
        )

    def _unplaced(self, found: Collision) -> str:
        """What to do about two accesses that no place for a barrier is known for."""
        between = self._directions.between(found, need(found).closes)
        if between is None or need(found) is CLUSTER:
            return phrases.BETWEEN
        if found.noted.now_write and found.noted.was_write:
            if between.now == between.before:
                return phrases.ONE_THREAD
        elif between.adds:
            return phrases.ADDS
        return phrases.BETWEEN if between.meet else phrases.OTHER_PATH

    def _relaxed(self, found: Collision, now: Agent, before: Agent) -> str:
        """What to do about a barrier between two accesses that orders nothing."""
        if not found.rule.race:
            return ""
        arrival, wait = found.story.handed
        for site, word in ((arrival, ".release"), (wait, ".acquire")):
            if site >= 0 and self._is_relaxed(site):
                return self._not_relaxed(phrases.UNLIKE.format(word=word), site)
        sites = self._directions.relaxed(now.site, before.site)
        return self._not_relaxed(phrases.NOT_RELAXED, *sites) if sites else ""

    def _lock(self, now: Agent, before: Agent) -> str:
        """What to do about a lock that both threads hold, and that orders nothing."""
        found = self._directions.lock(now.site, before.site)
        if found is None:
            return ""
        taken, given = (place(each) for each in found)
        return phrases.LOCK.format(taken=taken, given=given)

    def _is_relaxed(self, site: int) -> bool:
        return "relaxed" in self._words(site).split(".")

    def _not_relaxed(self, instead: str, *sites: int) -> str:
        words = self._words(sites[0]).partition(".relaxed")
        places = dict.fromkeys(map(self.names.place, sites))
        return phrases.RELAXED.format(
            relaxed="".join(words[:2]), where=one_of(places, "and"), instead=instead
        )


_OPENINGS = tuple(phrases.BETWEEN.partition("{")[0] + each for each in phrases.BARRIERS)
"""How hints begin that ask for a barrier between two accesses."""


def _barrier(found: Collision, advice: Advice | None) -> dict[str, str]:
    """The barrier that two accesses need, and where it belongs."""
    if advice is None:
        return {"barrier": phrases.BARRIERS[need(found).rank], "place": ""}
    barrier = phrases.BARRIERS[advice.need.rank]
    if advice.some_warps:
        barrier = phrases.SOME_WARPS
    where = f": {advice.where}" if advice.where else ""
    repairs = phrases.repairs(advice.problems) if where else ""
    return {"barrier": barrier, "place": where + repairs}


def _needed(found: Collision) -> Scope:
    """The least scope that includes the threads of two blocks."""
    now, before = found.noted.now, found.noted.before
    near = before is not None and before.group == now.group
    return Scope.CLUSTER if near else Scope.GPU


def _within(least: Scope) -> str:
    """What has two blocks in it: the cluster, or the grid."""
    return "cluster" if least is Scope.CLUSTER else "grid"


def _lanes(lanes: int) -> str:
    """Lanes, if they are not all.

    >>> _lanes(1), _lanes(0xFFFFFFFF), _lanes(0xF0)
    (' lane 0', '', ' lanes 4-7')
    """
    if lanes in (0, ALL):
        return ""
    numbers = [lane for lane in range(32) if lanes >> lane & 1]
    return f" lane{'s' * (len(numbers) > 1)} {ranges(numbers)}"
