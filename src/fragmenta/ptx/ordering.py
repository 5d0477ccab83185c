"""The instructions that can synchronise threads, and their scopes.

A *scope* says for which threads an operation is meant: those of its block, its cluster,
its GPU, or the system.  :data:`DEFAULTS` says which one counts if none is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from fragmenta.ptx.families import MBARRIERS, UPDATES
from fragmenta.ptx.module import Function, Instruction


class Scope(IntEnum):
    """The threads that an operation is meant for; a later one includes the others.

    >>> Scope.CLUSTER.word, Scope.CTA < Scope.GPU
    ('.cluster', True)
    """

    CTA = 0
    CLUSTER = 1
    GPU = 2
    SYS = 3

    @property
    def word(self) -> str:
        """How PTX writes it."""
        return f".{self.name.lower()}"


class Role(NamedTuple):
    """How an instruction can take part in synchronisation."""

    fence: bool = False
    publishes: bool = False
    """Whether it writes; after a fence that releases."""
    releases: bool = False
    """Whether it publishes without a fence; of a fence, whether it releases."""
    reads: bool = False
    acquires: bool = False
    """Whether it acquires without a fence; of a fence, whether it acquires."""
    replaces: bool = False
    """Whether it writes without reading: what was published there is gone."""
    scope: Scope = Scope.GPU


STRONG = frozenset({"relaxed", "volatile", "mmio", "acquire", "release", "acq_rel"})
"""Words of an access that is strong."""
_ORDERED = frozenset({"acquire", "release", "acq_rel"})
_NOT_SHARED = frozenset({"local", "param", "param::entry", "param::func", "const"})
_SCOPES = {
    "cta": Scope.CTA,
    "cluster": Scope.CLUSTER,
    "gpu": Scope.GPU,
    "gl": Scope.GPU,
    "sys": Scope.SYS,
    "volatile": Scope.SYS,
    "mmio": Scope.SYS,
}
"""The scope that a word says."""
DEFAULTS = {
    **dict.fromkeys(UPDATES, Scope.GPU),
    **dict.fromkeys(MBARRIERS, Scope.CTA),
    "barrier": Scope.CLUSTER,
}
"""The scope of instructions that need not name one, by their first word.

``ld``, ``st`` and ``fence`` have to name it.  That ``mbarrier`` means the block even
with an address of the cluster is what ptxas 13.4 assembles: the machine code is that of
``.release.cta``."""


def written_scope(words: Sequence[str]) -> Scope | None:
    """The scope that the words of an instruction name, if they name one.

    >>> written_scope(("mbarrier", "arrive", "release", "cluster")).word
    '.cluster'
    >>> written_scope(("mbarrier", "arrive", "shared::cluster", "b64"))
    """
    # barrier.cluster and the like begin with a word that is no scope.
    found = [_SCOPES[each] for each in words[1:] if each in _SCOPES]
    named = words[0] != "barrier" and found
    return found[0] if named else None


def scope(words: Sequence[str]) -> Scope:
    """The scope of an instruction: the one it names, or its default.

    >>> scope(("atom", "add", "u32")).word, scope(("membar", "gl")).word
    ('.gpu', '.gpu')
    >>> scope(("ld", "volatile", "u32")).word
    '.sys'
    """
    named = written_scope(words)
    if named is not None:
        return named
    return DEFAULTS.get(words[0], Scope.GPU)


def role(instruction: Instruction) -> Role | None:
    """How an instruction can synchronise; None if it cannot."""
    words = set(instruction.qualifiers)
    opcode = instruction.opcode
    level = scope((opcode, *instruction.qualifiers))
    if opcode in ("membar", "fence"):
        if words & {"proxy", "mbarrier_init"}:
            return None
        return fence_role((opcode, *instruction.qualifiers))
    if words & _NOT_SHARED or any(each.startswith("mbarrier") for each in words):
        return None
    releases = bool(words & {"release", "acq_rel"})
    acquires = bool(words & {"acquire", "acq_rel"})
    if "async" in words:
        return None
    reads, stores = instruction.is_read, instruction.is_store
    if instruction.is_update:
        return Role(False, True, releases, reads, acquires and reads, False, level)
    if (reads or stores) and words & STRONG:
        return Role(False, stores, releases, reads, acquires, stores, level)
    return None


def fence_role(words: Sequence[str]) -> Role:
    """The role of a fence, which may only release or only acquire.

    >>> fence_role(("fence", "acquire", "gpu")).releases
    False
    """
    return Role(
        fence=True,
        releases="acquire" not in words,
        acquires="release" not in words,
        scope=scope(words),
    )


def orders(functions: Iterable[Function]) -> bool:
    """Whether functions have a fence, or any access that is ordered by itself."""
    for function in functions:
        for each in function.instructions:
            found = role(each)
            if found and (found.fence or _ORDERED & set(each.qualifiers)):
                return True
    return False


def synchronises(function: Function, ordered: bool | None = None) -> set[int]:
    """The numbers of the instructions of a function that can synchronise.

    Without a fence nothing that is relaxed can.  ``ordered`` says whether there is one
    anywhere in the program; by default only the function itself is looked at.
    """
    if not (orders((function,)) if ordered is None else ordered):
        return set()
    return {
        number
        for number, each in enumerate(function.instructions)
        if role(each) is not None
    }
