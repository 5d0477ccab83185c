"""The values of words: what atomic operations and loops make of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from fragmenta.watch.orders.program import Atomic, Condition, Loop, Passed, Word
from fragmenta.watch.orders.typed import TYPED

MOST_VALUES = 64
"""More values of a word than this count as any value."""


def wrapped(value: int, word: Word) -> int:
    """A value as the word holds it."""
    return value & ((1 << 8 * word.size) - 1)


def computed(atomic: Atomic, old: int) -> int:
    """The new value of an atomic operation.

    >>> flag = Word("global", 0)
    >>> computed(Atomic(flag, "cas", 7, compare=1), 1)
    7
    """
    typed = TYPED.get(atomic.operation)
    if typed is not None:
        for _ in range(atomic.times):
            old = typed(old, wrapped(atomic.operand, atomic.word))
        return old
    return wrapped(_COMPUTED[atomic.operation](old, atomic), atomic.word)


_COMPUTED: dict[str, Callable[[int, Atomic], int]] = {
    "add": lambda old, a: old + a.operand,
    "exch": lambda old, a: a.operand,
    "cas": lambda old, a: a.operand if old == a.compare else old,
    "min": lambda old, a: min(old, a.operand),
    "max": lambda old, a: max(old, a.operand),
    "and": lambda old, a: old & a.operand,
    "or": lambda old, a: old | a.operand,
    "xor": lambda old, a: old ^ a.operand,
    "inc": lambda old, a: 0 if old >= a.operand else old + 1,
    "dec": lambda old, a: a.operand if old == 0 or old > a.operand else old - 1,
    "take": lambda old, a: max(old - 1, 0),
}


Passing: TypeAlias = Callable[[int], Passed]
Updates: TypeAlias = list[tuple[Atomic, Callable[[int], int] | None, int]]
"""Atomic operations, what each makes of a value if it is in a loop, and the number of
its result."""


def done(
    atomic: Atomic, loop: Condition | Loop, passed: Passing | None, value: int
) -> int:
    """What the atomic operation of a loop makes of a value."""
    if passed is None:
        return computed(atomic, value)
    then = passed(value)
    if not then.ends:
        return value
    return then.value if isinstance(loop, Loop) else computed(atomic, value)


def reachable(
    stored: set[int] | None, atomics: Updates, most: int = MOST_VALUES
) -> set[int] | None:
    """The values that atomic operations make of others; None: more than are kept.

    Each operation is done at most once.  Additions may come in any order, so a pass
    over them finds all sums; other operations are repeated until nothing is new.

    >>> from fragmenta.watch.orders.program import Word
    >>> add = Atomic(Word("global", 0), "add", 1)
    >>> sorted(reachable({0}, [(add, None, -1)] * 3))
    [0, 1, 2, 3]
    """
    if stored is None:
        return None
    found = set(stored)
    once = all(each.operation == "add" and step is None for each, step, _ in atomics)
    size = -1
    while size != len(found):
        size = len(found)
        for atomic, step, _ in atomics:
            found |= {(step or partial(computed, atomic))(each) for each in found}
            if len(found) > most:
                return None
        if once:
            break
    return found
