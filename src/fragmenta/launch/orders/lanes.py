"""Divides the lanes of a warp into groups that do the same things.

Lanes that diverge make progress independently.  Lanes that took part in the same
entries of the log are one agent of the program; they meet the others of their warp
where the log says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fragmenta.watch.races.recording.log import Entry, Flag, Met, Peeked, Touched


def refined(groups: list[int], lanes: int) -> list[int]:
    """Groups of lanes, so divided that some lanes are whole groups.

    >>> [hex(each) for each in refined([0xFF], 0x0F)]
    ['0xf', '0xf0']
    """
    if all(not each & lanes or not each & ~lanes for each in groups):
        return groups
    halves = [half for each in groups for half in (each & lanes, each & ~lanes)]
    return [each for each in halves if each]


def groups(entries: Sequence[Entry], words: Iterable[int]) -> list[int]:
    """The groups of lanes of a warp.

    ``words`` are the addresses of the words through which threads synchronise; other
    strong accesses divide nothing.
    """
    known, every = set(words), 0
    for each in entries:
        every |= each.lanes
    found = [every] if every else []
    for each in entries:
        if _divides(each, known):
            found = refined(found, each.lanes)
    while True:
        before = found
        for each in entries:
            met = isinstance(each.action, Met) and not each.action.warpgroup
            if met and sum(bool(group & each.lanes) for group in found) > 1:
                found = refined(found, each.lanes)
        if found == before:
            return sorted(found, key=lambda group: group & -group)


def _divides(entry: Entry, words: set[int]) -> bool:
    action = entry.action
    if isinstance(action, Flag):
        return action.address in words
    if isinstance(action, Met):
        return action.warpgroup
    if isinstance(action, Touched) and action.write and words:
        return not words.isdisjoint(action.addresses.tolist())
    return not isinstance(action, Touched | Peeked)
