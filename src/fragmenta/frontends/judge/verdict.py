"""A verdict: one word, and the evidence for it."""

from __future__ import annotations

import textwrap
from dataclasses import field
from typing import cast

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.frontends.judge.findings import CLEAN, KINDS, WORDS, Finding, rank
from fragmenta.frontends.judge.wire import Json


@dataclass(frozen=True)
class Verdict:
    """What a judge says about a candidate.

    >>> from fragmenta.frontends.judge.findings import Finding
    >>> verdict = Verdict("k.py", (Finding("zeros", "output 0[3] is 0, exactly 7"),))
    >>> verdict.word
    'wrong'
    >>> print(verdict)
    wrong: k.py
      zeros: an output is zero everywhere, and should not be
        output 0[3] is 0, exactly 7
    """

    name: str
    findings: tuple[Finding, ...] = ()
    """What was found, the most important first."""
    cases: tuple[str, ...] = ()
    """The inputs that were tried."""
    cost: dict[str, Json] = field(default_factory=dict)
    """What the launches of the first call did."""
    confined: tuple[str, ...] = ()
    """What the system took away from the process of the candidate."""
    seconds: float = 0.0
    """How long the judge needed."""
    estimated: tuple[str, ...] = ()
    """Operators of the reference whose bounds of errors are estimates."""
    sizes: tuple[str, ...] = ()
    """The sizes that it covers: those of calls that came to their end."""

    @property
    def word(self) -> str:
        """The verdict: see :data:`fragmenta.frontends.judge.findings.WORDS`."""
        found = [each.word for each in self.findings]
        return min(found, key=WORDS.index, default=CLEAN)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the findings."""
        return tuple(dict.fromkeys(each.name for each in self.findings))

    def to_dict(self) -> dict[str, Json]:
        """The verdict as plain values, for JSON."""
        return {
            "verdict": self.word,
            "candidate": self.name,
            "findings": [
                {
                    "name": each.name,
                    "verdict": each.word,
                    "means": KINDS[each.name].means,
                    "evidence": each.evidence,
                    "case": each.case,
                }
                for each in self.findings
            ],
            "cases": list(self.cases),
            "sizes": list(self.sizes),
            "cost": dict(self.cost),
            "confined": list(self.confined),
            "estimated": list(self.estimated),
            "seconds": round(self.seconds, 3),
        }

    def text(self, width: int = 80) -> str:
        """The verdict for people, in lines that fit."""
        lines = [f"{self.word}: {self.name}"]
        if self.sizes and self.word == CLEAN:
            lines += textwrap.wrap(
                f"covers {'; '.join(self.sizes)}",
                width,
                initial_indent="  ",
                subsequent_indent="    ",
            )
        for each in self.findings:
            lines.append(f"  {each.name}: {KINDS[each.name].means}")
            said = each.evidence + (f" ({each.case})" if each.case else "")
            for line in said.splitlines():
                lines += textwrap.wrap(
                    line,
                    width,
                    initial_indent="    ",
                    subsequent_indent="    ",
                    break_on_hyphens=False,
                )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """The findings, the most important first."""
    return tuple(sorted(findings, key=lambda each: rank(each.name)))


def verdict_json(verdict: Verdict) -> dict[str, Json]:
    """A verdict as a process answers it."""
    return {
        "name": verdict.name,
        "findings": [list(each) for each in verdict.findings],
        "cases": list(verdict.cases),
        "cost": verdict.cost,
        "confined": list(verdict.confined),
        "estimated": list(verdict.estimated),
        "sizes": list(verdict.sizes),
        "seconds": verdict.seconds,
    }


def verdict_of(given: dict[str, Json]) -> Verdict:
    """The inverse of :func:`verdict_json`.

    >>> verdict_of(verdict_json(Verdict("k.py"))) == Verdict("k.py")
    True
    """
    findings = cast("list[list[str]]", given["findings"])
    return Verdict(
        str(given["name"]),
        tuple(Finding(*map(str, each)) for each in findings if each[0] in KINDS),
        tuple(map(str, cast("list[Json]", given["cases"]))),
        cast("dict[str, Json]", given["cost"]),
        tuple(map(str, cast("list[Json]", given["confined"]))),
        float(cast("float", given["seconds"])),
        tuple(map(str, cast("list[Json]", given["estimated"]))),
        tuple(map(str, cast("list[Json]", given["sizes"]))),
    )
