"""The events of a program that strong accesses to words and fences are."""

from __future__ import annotations

from collections.abc import Hashable

from fragmenta.ptx import families
from fragmenta.ptx.ordering import Scope, written_scope
from fragmenta.ptx.ordering import scope as scope_of
from fragmenta.watch.orders import program as said
from fragmenta.watch.orders.program import Order
from fragmenta.watch.orders.typed import named
from fragmenta.watch.races.recording.log import Fenced, Flag

OBSERVING = (said.Load, said.Atomic, said.Await)
SUMS = ("add", "inc", "dec", "xor")
"""Atomic operations of which it matters how many lanes do them."""


def named_scope(words: tuple[str, ...]) -> Scope:
    """The scope of an instruction on an mbarrier.

    Shipped kernels arrive at other blocks without one, so only a scope that is written
    down is small.

    >>> named_scope(("mbarrier", "arrive", "release", "cta")).word
    '.cta'
    """
    return Scope.CTA if written_scope(words) is Scope.CTA else Scope.CLUSTER


def word_events(
    word: said.Word,
    action: Flag,
    condition: said.Condition | said.Loop | None,
    lanes: int,
    how: tuple[Order, Scope, int],
    kept: Hashable = None,
) -> list[said.Event]:
    """The events of a strong access by some lanes, one after the other.

    What they find is kept under a name, if one is given.
    """
    atomic, times = None, 1
    if action.opcode in families.UPDATES:
        operand, compare = (*action.given[::-1], 0, 0)[:2]
        if action.operation != "cas":
            compare = 0
        operation = named(action.operation, action.kind)
        if operation == "add":  # all lanes at once
            operand = operand * lanes & (1 << 8 * action.size) - 1
        elif action.operation == "xor":  # every other lane undoes it
            operand *= lanes & 1
        elif action.operation in ("inc", "dec"):
            times = lanes
        returns = action.opcode in families.FETCHES
        what = operation, operand, compare, returns, None
        each = lanes if operation.startswith("add.") else 1  # floats round each time
        atomic = said.Atomic(word, *what, *how, times=each, kept=kept)
    if condition is not None:
        return [said.Await(word, condition, atomic, *how, kept=kept)]
    if atomic is not None:
        return [atomic] * times
    if action.opcode in families.STORES:
        value = action.given[0] if action.given else 0
        return [said.Store(word, value, *how)]
    return [said.Load(word, *how, kept=kept)]


def fence(action: Fenced, site: int) -> list[said.Event]:
    """The events of a fence."""
    words = action.words
    if "proxy" in words:
        generic = any(word.startswith("async") for word in words)
        return [said.ProxyFence(site)] if generic else []
    scope = Scope(int(scope_of(words)))
    return [said.Fence(scope, place=site)]
