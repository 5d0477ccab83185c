"""Findings of numerics as problems of a launch: for SARIF, JSON and the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem, Related
from fragmenta.ptx.families import FUSED, UPDATES
from fragmenta.ptx.module import Instruction, Location
from fragmenta.values.numerics.code.exact import SUMS
from fragmenta.values.numerics.code.layout import Birth
from fragmenta.values.numerics.words import COUNTED

if TYPE_CHECKING:
    from fragmenta.values.numerics.judging import Loss
    from fragmenta.values.numerics.report import (
        Moment,
        NonFinitePath,
        Numerics,
        OutputErrors,
        Site,
    )

BAD = 2.0**-8
"""A relative error that is worth a warning, where bits cancel."""
CLIPS = 1 / 32
"""A share of numbers that a range may not cut off: outliers are fewer."""
MANY = 0.1
"""A share of addends that vanish which is worth a word."""
PART = 0.05
"""A share of an output's error that is worth a word."""
WELL = 1.0
"""Units of the last place up to which an output is right."""
TERMS = 8.0
"""Units from which on it is told that addends vanish, if an output's error is that."""


def findings(found: Numerics) -> list[Problem]:
    """All findings: errors first."""
    effects = _Effects(found)
    every = [
        *(_born(found, each, rules.ERROR) for each in found.births),
        *(_wrong(found, each) for each in found.outputs.values()),
        *(each for site in _merged(found) for each in _site(found, site, effects)),
        *(_born(found, each, effects.of_note(each)) for each in found.notes),
    ]
    order = rules.SEVERITIES.index
    told = [each for each in every if each is not None]
    return sorted(told, key=lambda each: order(each.severity))


def _text(found: Numerics, instruction: Instruction) -> str:
    lines = found.text.splitlines()
    if 0 < instruction.line <= len(lines):
        return lines[instruction.line - 1].strip()
    return instruction.mnemonic


def _problem(
    found: Numerics,
    rule: rules.Rule,
    severity: str,
    function: str,
    instruction: Instruction,
    message: str,
    count: int,
    block: tuple[int, int, int],
    related: tuple[Related, ...] = (),
) -> Problem:
    source: Location | None = instruction.source
    return Problem(
        rule.name,
        severity,
        instruction.line,
        max(1, instruction.column),
        _text(found, instruction),
        message,
        rule.repair,
        function,
        source,
        count=count,
        block=block,
        related=related,
    )


def _born(found: Numerics, way: NonFinitePath, severity: str) -> Problem:
    """A NaN or an infinity that was born, or given."""
    born = way.born
    if not (way.nan or way.wrong) and severity == rules.ERROR:
        severity = rules.WARNING
    if born.kind == Birth.GIVEN and not born.unwritten:
        severity = rules.WARNING if way.nan else rules.INFO
    ends = [
        f"{count:,} elements of {found.outputs[name].shown}, the first {first}"
        for name, (count, first) in way.outputs.items()
    ]
    reached = f"; it reaches {' and '.join(ends)}" if ends else "; it reaches no array"
    reached += f"; {way.wrong}" if way.wrong and not way.nan else ""
    rule = rules.NAN if way.nan else rules.INFINITY
    return _problem(
        found,
        rule,
        severity,
        born.function,
        born.instruction,
        f"{born.words}, {born.thread}{reached}",
        born.times,
        born.thread.block,
        tuple(_related(found, each) for each in way.moments[1:]),
    )


def _related(found: Numerics, moment: Moment) -> Related:
    return Related(
        moment.line, _text(found, moment.instruction), moment.words, moment.source
    )


def _wrong(found: Numerics, output: OutputErrors) -> Problem | None:
    """An output whose error is more than its type explains."""
    lost = found.losses[output.name]
    severity = lost.severity(found.limits)
    site = source_of(found, lost)
    if not severity or site is None:
        return None
    least = found.limits.warning
    why = f"{lost.by} explains {lost.explained:.2g}"
    if least is not None:
        why = f"the limit is {least:.2g}"
    return _problem(
        found,
        rules.OUTPUT_ERROR,
        severity,
        site.function,
        site.instruction,
        f"{output.at(lost.place)} {lost.words}; {why}",
        1,
        site.worst.thread.block,
    )


def source_of(found: Numerics, lost: Loss) -> Site | None:
    """The site that an error comes from; if none is known, the first that is listed."""
    named = (each for each in found.instructions if each.number == lost.source)
    return next(named, found.instructions[0] if found.instructions else None)


class _Effects:
    """What sites do to outputs: a sum that is compensated does nothing."""

    def __init__(self, found: Numerics) -> None:
        self.shares: dict[str, float] = {}
        for each in found.instructions:
            known = self.shares.get(each.place, 0.0)
            self.shares[each.place] = known + each.share
        self.clipped = Counter[str]()
        """What both sides of the ranges of a line cut off, until it is told."""
        for each in found.instructions:
            self.clipped[each.place] += each.counts.get("clipped", 0)
        every = found.losses.values()
        self.matters = any(each.severity(found.limits) for each in every)
        self.ulp = max((each.ulp for each in every), default=0.0)
        # Without floats in an output, or with decisions, effects are not known.
        self.known = bool(found.outputs) and not found.branches and not found.births

    def of_note(self, way: NonFinitePath) -> str:
        """An infinity that reaches no array may be why an output is wrong."""
        overflows = way.born.kind == Birth.OVERFLOW
        return rules.WARNING if overflows and self.matters else rules.INFO

    def none(self, site: Site) -> bool:
        """Whether no output misses what a site loses."""
        return (
            self.known and not self.matters and self.shares.get(site.place, 0) < PART
        ) or (self.known and self.ulp <= WELL)


def unmissed(found: Numerics, site: Site) -> bool:
    """Whether a site has a large error that no output misses: a compensation."""
    return site.worst_relative > BAD and _Effects(found).none(site)


def _merged(found: Numerics) -> list[Site]:
    """Sites; instructions of one line that are alike, as of an unrolled loop, as one.

    Its worst element is the worst of all.
    """
    alike: dict[tuple[str, str, str], list[Site]] = {}
    for each in found.instructions:
        key = each.function, each.place, each.mnemonic
        alike.setdefault(key, []).append(each)
    return [_together(few) if len(few) > 1 else few[0] for few in alike.values()]


def _together(few: list[Site]) -> Site:
    counts = sum((Counter(each.counts) for each in few), Counter[str]())
    return replace(
        max(few, key=lambda each: each.worst_relative),
        elements=sum(each.elements for each in few),
        cancelled_bits=max(each.cancelled_bits for each in few),
        share=sum(each.share for each in few),
        counts=dict(counts),
        other=next((each.other for each in few if each.other is not None), None),
    )


def _is_tie(site: Site) -> bool:
    """Whether a number is rounded to an integer, and it is near where that changes.

    A function whose argument is reduced so is right with either: by ``cvt.rni``, or by
    a sum with a large constant, as in ``expf``.  A comparison is none: second values go
    the way that was taken, and tell nothing of the other.
    """
    opcode, words = site.instruction.opcode, site.instruction.qualifiers
    if site.other is None or not (opcode in SUMS or "rni" in words):
        return False
    held, exact = (
        math.prod(each[:2]) if opcode in FUSED else min(each[:2], key=abs)
        for each in (site.other.operands, site.other.exact_operands)
    )
    if not math.isfinite(held) or not math.isfinite(exact):
        return False
    to_nearest = not {"rm", "rp", "rz"}.intersection(words)
    apart = abs(abs(held - round(held)) - (0.5 if to_nearest else 0.0))
    return apart + abs(exact - held) < 2.0**-4


def _site(found: Numerics, site: Site, effects: _Effects) -> Iterator[Problem]:
    def made(rule: rules.Rule, severity: str, message: str, count: int) -> Problem:
        return _problem(
            found,
            rule,
            severity,
            site.function,
            site.instruction,
            message,
            count,
            site.worst.thread.block,
        )

    counts, share = site.counts, max(1, site.elements)
    lost = math.isinf(site.worst_relative)
    grows = site.amplification > 4 or lost
    none = effects.none(site)
    bad = counts.get("cancelled") and site.worst_relative > BAD and grows
    if bad and not none:
        size = f"a relative error of {site.worst_relative:.3g}"
        yield made(
            rules.CANCELLATION,
            rules.WARNING if effects.matters else rules.INFO,
            f"{site.cancelled_bits:.0f} bits cancel, and the result has "
            f"{'no digit that is right' if lost else size}",
            counts["cancelled"],
        )
    absorbed = counts.get("absorbed", 0)
    if absorbed > MANY * share and absorbed > 32 and not none:
        most = site.share > 0.5 and effects.ulp > TERMS
        yield made(
            rules.ABSORPTION,
            rules.WARNING if most else rules.INFO,
            f"{absorbed:,} of {site.elements:,} addends vanish whole",
            absorbed,
        )
    for name, rule, words in (
        ("saturated", rules.SATURATION, "are cut to the largest number of the format"),
        ("flushed", rules.UNDERFLOW, "are flushed to zero"),
        ("underflows", rules.UNDERFLOW, "become zero"),
    ):
        if counts.get(name) and not (name == "underflows" and counts.get("flushed")):
            severity = rules.WARNING if name == "saturated" else rules.INFO
            yield made(
                rule,
                severity,
                f"{counts[name]:,} of {site.elements:,} {words}",
                counts[name],
            )
    if counts.get("other_way"):
        # The least and the largest are hardly changed by that.
        chooses = site.instruction.opcode in UPDATES | {"min", "max"}
        words = "would choose another operand" if chooses else "decide otherwise"
        harmless = chooses or (not effects.matters and _is_tie(site))
        yield made(
            rules.OTHER_BRANCH,
            rules.INFO if harmless else rules.WARNING,
            f"exact values {words}, {counts['other_way']:,} times",
            counts["other_way"],
        )
    if counts.get("unrounded"):
        yield made(
            rules.UNROUNDED,
            rules.WARNING,
            f"{counts['unrounded']:,} of {site.elements:,} numbers "
            f"{COUNTED['unrounded']}; rintf(x) rounds",
            counts["unrounded"],
        )
    clipped = effects.clipped.pop(site.place, 0) if counts.get("clipped") else 0
    if clipped > max(CLIPS * share, 4) and not effects.matters:
        yield made(
            rules.CLIPPED,
            rules.WARNING,
            f"{clipped:,} of {site.elements:,} numbers {COUNTED['clipped']}",
            clipped,
        )
    if counts.get("wrapped") and not effects.matters:
        yield made(
            rules.WRAPPED,
            rules.WARNING,
            f"{counts['wrapped']:,} of {site.elements:,} {COUNTED['wrapped']}",
            counts["wrapped"],
        )
    if counts.get("restarted"):
        yield made(
            rules.LOST_EXACT,
            rules.INFO,
            f"exact values are lost here, {counts['restarted']:,} times",
            counts["restarted"],
        )
