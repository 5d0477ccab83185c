"""The option ``--target``: completion and meaning.

Commands that run files take it without the catalogue of instructions, which takes a
while to import.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fragmenta.reference.isa.target import TARGETS

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction


def complete_target(incomplete: str) -> list[str]:
    """Targets, and words for them, that begin with a text, for completion."""
    from fragmenta.reference.isa.synonyms import architectures

    names = (*TARGETS, *architectures())
    return [each for each in names if each.startswith(incomplete)]


def target_of(text: str | None, op: Instruction | None = None) -> str | None:
    """The target that an option names, also by a word such as hopper.

    A word may mean several: those that have the instruction count, and they must
    compute it in the same way.
    """
    if text is None:
        return None
    from fragmenta.reference.isa.synonyms import named_target

    if op is None or not op.multiplies:
        return named_target(text, TARGETS if op is None else op.requires.targets)
    from fragmenta.reference.execution.mma import numeric_model

    def how(target: str) -> object:
        return replace(numeric_model(op, target), target="", source="")

    return named_target(text, op.requires.targets, how)
