"""The reports: the problems of a launch in words.

A message says who did what, where, to which memory; what it collides with; and which
wait or barrier would have ordered the two.  The hint says what repairs it.  All phrases
are in :mod:`phrases`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fragmenta.errors import one_of, ranges
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem, Related
from fragmenta.ptx.languages import PTX, Words, told_from
from fragmenta.ptx.module import Source
from fragmenta.ptx.ordering import Scope, scope
from fragmenta.ptx.rules import INFO, SEVERITIES, Rule, named
from fragmenta.races.report import phrases
from fragmenta.races.report.stories import Agent, Collision, Narrow, Wait
from fragmenta.races.shadow.detected import Detected
from fragmenta.simt import layout
from fragmenta.simt.naming import Names, block_words, counted, element, place
from fragmenta.units.findings import Finding, Launched

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
        problem = reporters[id(launch)].report(each)
        together.setdefault(key(problem), []).append((reporters[id(launch)], each))
    every = [
        (_with_count(_report_once(some)), [each for _, each in some])
        for some in together.values()
    ]
    return sorted(every, key=lambda pair: order(pair[0]))


def order(problem: Problem) -> tuple[int, bool, int]:
    """The key by which problems are sorted: a cause before what may follow from it."""
    severity = SEVERITIES.index(problem.severity)
    return severity, named(problem.rule).consequence, problem.line


def _report_once(some: list[tuple[Reporter, Finding]]) -> Problem:
    """Several findings as one problem; its repair is enough for all of them."""
    reporter, first = some[0]
    apart = 0
    for _, each in some:
        apart |= each.apart
    problem = reporter.report(replace(first, apart=apart))
    return replace(problem, count=sum(each.count for _, each in some))


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
        self.names = Names(launch.module(), launch.compiled)
        self._lines = self.names.module.text.splitlines()

    def report(self, found: Finding) -> Problem:
        """A problem in the user's terms."""
        if isinstance(found, Collision):
            message, hint = self._accesses(found)
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

    def language(self, source: Source | None) -> Words:
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
            hint = found.rule.fatal
            counts = found.rule is rules.DEADLOCK and "mbarrier" in message
            return message, phrases.UNBALANCED if counts else hint
        where = self.names.place(found.site)
        what = self.names.mnemonic(found.site)
        if found.rule is rules.BANK_CONFLICT:  # it is about all warps
            return f"{what} at {where}: {message}", hint
        who = f"warp {found.warp}{_lanes(found.lanes)}"
        message += self._uses(found)
        message = f"{self._who(found)}{what} of {who} at {where}: {message}"
        if found.other is not None and self.names.instruction(found.other) is not None:
            title = found.rule.other
            message += f"; {title} is at {self.names.place(found.other)}"
        return message, hint

    def _who(self, found: Finding) -> str:
        return f"{block_words(self._block(found.block))}: "

    # ── two accesses ────────────────────────────────────────────────────────

    def _accesses(self, found: Collision) -> tuple[str, str]:
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
        rest = phrase.format(other=other, verb=verb, user=self._user(now))
        if found.rule.symmetric:
            rest += phrases.wider(found.apart, now, before)
        if found.unused:
            return f"{start}; {rest}{phrases.UNUSED}", ""
        why = self._why(found.rule, now, before, story.wait)
        hint = self._repair(found, now, before)
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
        if who.kind == "tcgen05":
            return f"the {self.names.mnemonic(who.site)}"
        return "the wgmma" if who.kind == "wgmma" else "the copy"

    def _agent(self, who: Agent, than: Agent | None = None) -> str:
        """Who did something, and where it is written.

        ``than`` is another, whose block is not named again.
        """
        lane = "" if who.lane < 0 or who.kind == "wgmma" else f" lane {who.lane}"
        if who.kind == "mbarrier":
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

    def _why(self, rule: Rule, now: Agent, before: Agent, wait: Wait | None) -> str:
        """Which waits came before, and why they do not help."""
        if rule is rules.MBARRIER:
            return ""
        if before.kind == "mbarrier" and before.mbarrier is not None:
            return self._counted_copy(now, before, wait)
        if rule is not rules.OVERWRITE_WHILE_READ or wait is None:
            return ""
        readers = phrases.warps([number for _, number in before.warps])
        arrival = "" if wait.arrival < 0 else self.names.place(wait.arrival)
        done = arrival and before.kind != "warp"
        phrase = phrases.RELEASED if done else phrases.ANOTHER
        return self._waited(phrase, wait, readers=readers, arrival=arrival)

    def _counted_copy(self, now: Agent, before: Agent, wait: Wait | None) -> str:
        assert before.mbarrier is not None
        mbarrier = self.names.mbarrier(before.mbarrier[1])
        part = phrases.COUNTED.format(phase=before.epoch, mbarrier=mbarrier)
        if wait is None or (wait.rank, wait.offset) != before.mbarrier:
            who = phrases.warps([number for _, number in now.warps]) or "the thread"
            return f"{part}, for which {who} had not waited"
        if wait.phase >= before.epoch:
            return f"{part}; only {self._waited(phrases.WAITED, wait)}"
        if wait.phase < 0:
            return f"{part}; {self._waited(phrases.NEW, wait)}"
        past = phrases.PAST if wait.at_once else " only"
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

    def _repair(self, found: Collision, now: Agent, before: Agent) -> str:
        case, writes = found.noted.case, found.noted.now_write
        if case.same_value:
            return ""
        if case in phrases.BY_CASE:
            return phrases.ONE_LANE
        if case is Detected.SCOPE:
            return phrases.WIDEN.format(needed=_needed(found).word)
        mbarrier = ""
        if before.mbarrier is not None:
            offset = before.mbarrier[1]
            mbarrier = f"the mbarrier {self.names.shared(offset) or f'at {offset:#x}'}"
        phrase = phrases.repair(
            found.rule, case.space, writes, now, before, found.apart
        )
        return phrase.format(
            access="the write" if writes else "the read",
            mbarrier=mbarrier,
            user=self._user(now),
            phase=before.epoch,
            parity=before.epoch & 1,
            readers=phrases.warps([number for _, number in before.warps]),
        )


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
