"""What is a problem of a PTX file, and how is it shown?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fragmenta.ptx.module import Source

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)

#: Every rule, and what breaks it.
RULES = {
    "syntax": "The text is not PTX.",
    "unknown-opcode": "There is no such instruction.",
    "unknown-modifier": "The instruction has no such modifier.",
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
    "deprecated": "The instruction is deprecated.",
    "expanded": "The assembler replaces the instruction by others on this target.",
    "not-covered": "The instruction exists, but is not checked yet.",
    "uninitialised": "A register is read before it is written.",
    "aligned": "Not all threads of the warp can run the instruction together.",
    "shared-memory": "A kernel has more shared memory than the target allows.",
}


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

    def to_dict(self) -> dict[str, Any]:
        """The problem as plain values, for JSON."""
        found = asdict(self)
        found["source"] = str(self.source) if self.source else None
        return found

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.severity}: {self.message}"
