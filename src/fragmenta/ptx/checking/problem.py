"""What is a problem of a PTX file, and how is it shown?"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from fragmenta.ptx.module import Source

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)

#: Every rule, and what breaks it.
RULES = {
    "syntax": "The text is not PTX.",
    "unknown-opcode": "There is no such instruction.",
    "unknown-modifier": "The instruction has no such modifier.",
    "not-covered": "The instruction exists, and is neither checked nor run here.",
    "modifiers": "These modifiers do not go together, or one of them is missing.",
    "modifier-order": "The modifiers stand in another order than in the manual.",
    "operand-count": "There are too many or too few operands.",
    "operand": "An operand is not what the instruction takes.",
    "register": "A register has the wrong type or width.",
    "constant": "A constant is out of range, or not of the type of the instruction.",
    "state-space": "A variable is in another state space than the instruction says.",
    "undeclared": "A register or a name is not declared.",
    "label": "A branch goes to a label that does not exist.",
    "version": "The instruction needs a newer PTX version than the file has.",
    "target": "The target does not have the instruction.",
    "tensor": "A Tensor Core instruction does not exist, or its operands do not fit.",
    "cta-group": "One function has tcgen05 of single CTAs and of pairs.",
    "deprecated": "The instruction is deprecated.",
    "unsupported": "A GPU may do it, but fragmenta does not.",
    "expanded": "The assembler replaces the instruction by others on this target.",
    "uninitialised": "A register or memory is read before it is written.",
    "aligned": "Not all threads of the warp can run the instruction together.",
    "shared-memory": "A kernel has more shared memory than the target allows.",
    # What only a launch shows.
    "shared-race": "Nothing orders two accesses of one place in shared memory.",
    "global-race": "Nothing orders two accesses of one place in global memory.",
    "read-before-arrival": "What an asynchronous copy writes is read too early.",
    "overwrite-while-read": "Something is overwritten that may still be read.",
    "missing-proxy-fence": "The async proxy may not see what threads have written.",
    "wgmma-registers-in-flight": "A register of a wgmma that still runs is touched.",
    "missing-wgmma-fence": "Nothing orders registers before the wgmma that takes them.",
    "mbarrier": "An mbarrier is used as it must not be.",
    "deadlock": "All threads wait, and nothing can wake one of them.",
    "divergent-aligned": "Not all threads run an .aligned instruction together.",
    "bad-descriptor": "A product is given a descriptor that it cannot use.",
    "tensor-memory": "Tensor memory is allocated or used as it must not be.",
    "tensor-memory-race": "Nothing orders two accesses of one place in tensor memory.",
    "tensor-registers-in-flight": "A register is used that a tcgen05.ld still fills.",
    "missing-tensor-fence": "A barrier orders tcgen05 only with its own fences.",
    "illegal-metadata": "The metadata of a sparse product has an illegal code.",
    "bad-tensor-map": "A copy is given a tensor map that it cannot use.",
    "leak": "The kernel ends, and nobody has waited for asynchronous work.",
    "bank-conflict": "An access of shared memory takes more passes than it needs.",
    "unwatched": "A part of the launch was not watched.",
    "fault": "The kernel does what it must not do, and cannot go on.",
    "schedule": "The result depends on when asynchronous work is done.",
}


def wrapped(text: str, width: int, indent: str) -> str:
    """A text in lines that fit; those after the first are indented by so much more."""
    own = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(
        text.strip(),
        width,
        initial_indent=own,
        subsequent_indent=own + indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _place(source: Source | None) -> dict[str, Any]:
    """A line of the source, and the calls that it is in, the kernel's own first."""
    frames = source.frames if source else ()
    named = str(source) if source else None
    return {"source": named, "frames": [str(each) for each in frames]}


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that a problem has to do with."""

    line: int
    text: str
    """The line of the PTX text."""
    message: str
    """What it has to do with it."""
    source: Source | None = None

    def to_dict(self) -> dict[str, Any]:
        """The place as plain values, for JSON."""
        return {"line": self.line, "text": self.text, "message": self.message,
                **_place(self.source)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or worth knowing, at one place of a PTX text."""

    rule: str
    """A key of ``RULES``."""
    severity: str
    """``error``, ``warning`` or ``info``."""
    line: int
    column: int
    """Both from 1."""
    text: str
    """The line of the PTX text."""
    message: str
    hint: str = ""
    function: str = ""
    source: Source | None = None
    """The place in the program that the PTX was compiled from."""
    length: int = 1
    """How many characters of the line it is about."""
    count: int = 1
    """How often a launch showed it."""
    block: tuple[int, int, int] | None = None
    """The first block that showed it."""
    related: tuple[Related, ...] = ()
    """The other places that it has to do with."""

    def to_dict(self) -> dict[str, Any]:
        """The problem as plain values, for JSON."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found |= _place(self.source)
        found["block"] = None if self.block is None else list(self.block)
        found["related"] = [each.to_dict() for each in self.related]
        return found

    @property
    def story(self) -> str:
        """The rule, what happened, and what would repair it."""
        named = self.message.startswith(f"{self.rule}: ")
        text = self.message if named else f"{self.rule}: {self.message}"
        if not self.hint:
            return text
        # A message of several lines ends with lines of code.
        return f"{text}\n{self.hint}" if "\n" in text else f"{text}. {self.hint}"

    def paragraph(self, width: int = 80) -> str:
        """The story in lines that fit, below its rule and its place."""
        where = self.source.words if self.source else f"PTX line {self.line}"
        lines = [*self.message.removeprefix(f"{self.rule}: ").split("\n"), self.hint]
        told = [wrapped(f"  {each}", width, "") for each in lines if each]
        return "\n".join([wrapped(f"{self.rule}, {where}", width, "  "), *told])

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.severity}: {self.message}"


def counts(problems: Iterable[Problem]) -> list[str]:
    """How many problems there are of each severity.

    >>> counts([Problem("leak", "error", 1, 1, "", "")] * 2)
    ['2 errors']
    """
    found = Counter(problem.severity for problem in problems)
    return [
        f"{found[each]} {each}{'s' * (found[each] > 1)}"
        for each in SEVERITIES
        if found[each]
    ]
