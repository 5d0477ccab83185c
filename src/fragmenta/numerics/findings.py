"""Findings of numerics as problems of a launch: for SARIF, JSON and the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fragmenta.numerics.code.layout import Birth
from fragmenta.numerics.seconds import kind_of
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem, Related
from fragmenta.ptx.module import Instruction, Source

if TYPE_CHECKING:
    from fragmenta.numerics.report import Moment, Numerics, Site, Way

BAD = 2.0**-8
"""A relative error that is worth a warning, where bits cancel."""
MANY = 0.1
"""A share of addends that vanish which is worth a warning."""


def findings(found: Numerics) -> list[Problem]:
    """All findings: errors first."""
    every = [
        *(_born(found, each, rules.ERROR) for each in found.births),
        *(each for site in found.instructions for each in _site(found, site)),
        *(_born(found, each, rules.INFO) for each in found.notes),
    ]
    order = rules.SEVERITIES.index
    return sorted(every, key=lambda each: order(each.severity))


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
    source: Source | None = instruction.source
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


def _born(found: Numerics, way: Way, severity: str) -> Problem:
    """A NaN or an infinity that was born, or given."""
    born = way.born
    if not way.nan and severity == rules.ERROR:
        severity = rules.WARNING
    if born.kind == Birth.GIVEN and not born.unwritten:
        severity = rules.WARNING if way.nan else rules.INFO
    ends = [
        f"{count:,} elements of {found.outputs[name].shown}, the first {first}"
        for name, (count, first) in way.outputs.items()
    ]
    reached = f"; it reaches {' and '.join(ends)}" if ends else "; it reaches no array"
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


def _matters(found: Numerics) -> bool:
    """Whether an output has an error far above the rounding of its format."""
    for output in found.outputs.values():
        usual = max(2.0**-14, 2.0 ** (3 - kind_of(output.format).precision))
        if output.summary.error > usual * output.summary.exact:
            return True
    return False


def _site(found: Numerics, site: Site) -> Iterator[Problem]:
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
    if counts.get("cancelled") and site.worst_relative > BAD and grows:
        size = f"a relative error of {site.worst_relative:.3g}"
        yield made(
            rules.CANCELLATION,
            rules.WARNING if _matters(found) else rules.INFO,
            f"{site.cancelled_bits:.0f} bits cancel, and the result has "
            f"{'no digit that is right' if lost else size}",
            counts["cancelled"],
        )
    absorbed = counts.get("absorbed", 0)
    if absorbed > MANY * share and absorbed > 32:
        yield made(
            rules.ABSORPTION,
            rules.INFO,
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
        chooses = site.instruction.opcode in ("min", "max", "atom", "red")
        words = "would choose another operand" if chooses else "decide otherwise"
        yield made(
            rules.OTHER_BRANCH,
            rules.INFO if chooses else rules.WARNING,
            f"exact values {words}, {counts['other_way']:,} times",
            counts["other_way"],
        )
    if counts.get("restarted"):
        yield made(
            rules.LOST_EXACT,
            rules.INFO,
            f"exact values are lost here, {counts['restarted']:,} times",
            counts["restarted"],
        )
