"""Which words of memory threads synchronise through, and which clusters share them.

A word that a loop waits for, or whose value decides what follows, is part of a program.
So is one that a cluster accesses plainly and another by a strong access.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import SHARED_SLOT, SLOT_BITS
from fragmenta.ptx.families import WRITES
from fragmenta.watch.races.recording.log import Action, Flag, Log, Touched


def awaited(logs: list[Log], deciding: set[int]) -> set[int]:
    """The words that loops wait for, or whose value decides something."""
    return {
        entry.action.address
        for log in logs
        for entries in log.entries.values()
        for entry in entries
        if isinstance(entry.action, Flag)
        and (entry.action.until is not None or entry.site in deciding)
    }


def users(
    logs: list[Log],
) -> dict[tuple[int, int], tuple[set[tuple[int, ...]], set[int]]]:
    """The warps that access each word strongly, and the sites where they do.

    By the address, and the cluster if it is in shared memory.
    """
    found: dict[tuple[int, int], tuple[set[tuple[int, ...]], set[int]]] = {}
    for log in logs:
        for key, entries in log.entries.items():
            for _, site, action in entries:
                if isinstance(action, Flag):
                    near = action.address >> SLOT_BITS == SHARED_SLOT
                    word = action.address, log.cluster if near else -1
                    who, sites = found.setdefault(word, (set(), set()))
                    who.add((log.cluster, *key))
                    sites.add(site)
    return found


def writing(logs: list[Log], words: set[int]) -> set[int]:
    """The sites of accesses that write some words."""
    every, found = np.array(sorted(words), np.int64), set[int]()
    for log in logs:
        for entries in log.entries.values():
            for _, site, action in entries:
                if site not in found and _writes(action, every):
                    found.add(site)
    return found


def stored_and_loaded(logs: list[Log], stores: set[int], loads: set[int]) -> set[int]:
    """The sites of some stores whose bytes some loads read, in the same cluster.

    Stores to global memory and loads of other clusters count, too.
    """
    loaded: dict[int, set[int]] = defaultdict(set)
    for _, own, action in _plainly(logs, loads, False):
        for start in np.unique(action.addresses).tolist():
            loaded[own].update(range(start, start + action.size))
    read = {own: np.array(sorted(bytes), np.int64) for own, bytes in loaded.items()}
    return {
        site
        for site, own, action in _plainly(logs, stores, True)
        if own in read and _within(read[own], action).size
    }


def _plainly(
    logs: list[Log], sites: set[int], write: bool
) -> Iterator[tuple[int, int, Touched]]:
    """The plain accesses at some sites, with the site and whose memory it is.

    Shared memory is that of a cluster; global memory is -1.
    """
    for log in logs:
        for entry in (each for entries in log.entries.values() for each in entries):
            action = entry.action
            plain = isinstance(action, Touched) and action.write == write
            if plain and entry.site in sites and isinstance(action, Touched):
                yield entry.site, log.cluster if action.shared else -1, action


def _writes(action: Action, words: NDArray[np.int64]) -> bool:
    """Whether an action writes one of some words."""
    if isinstance(action, Flag):
        return action.opcode in WRITES and bool((words == action.address).any())
    if not isinstance(action, Touched) or not action.write:
        return False
    return bool(np.isin(action.addresses, words).any())


class _Used(NamedTuple):
    """Who uses words of global memory: the numbers of logs, by the address."""

    strongly: dict[int, set[int]]
    plainly: dict[int, set[int]]
    """Those of them that somebody accesses strongly."""


def _used(logs: list[Log]) -> _Used:
    found = _Used(defaultdict(set), defaultdict(set))
    for number, action in _actions(logs):
        if isinstance(action, Flag) and action.address >> SLOT_BITS != SHARED_SLOT:
            found.strongly[action.address].add(number)
    every = np.array(sorted(found.strongly), np.int64)
    for number, action in _actions(logs):
        if every.size and isinstance(action, Touched) and not action.shared:
            for address in _within(every, action).tolist():
                found.plainly[address].add(number)
    return found


def contested(logs: list[Log]) -> set[int]:
    """The words that one cluster accesses plainly, and another by a strong access."""
    used = _used(logs)
    return {
        address
        for address, users in used.plainly.items()
        if len(users | used.strongly[address]) > 1
    }


def components(logs: list[Log], words: set[int]) -> list[list[Log]]:
    """Logs that synchronise with one another through words, together."""
    of = list(range(len(logs)))

    def root(number: int) -> int:
        while of[number] != number:
            number = of[number]
        return number

    used = _used(logs)
    for address in words & set(used.strongly):
        first, *others = used.strongly[address] | used.plainly[address]
        for each in others:
            of[root(each)] = root(first)
    found: dict[int, list[Log]] = defaultdict(list)
    for number, log in enumerate(logs):
        found[root(number)].append(log)
    return list(found.values())


def _actions(logs: list[Log]) -> Iterator[tuple[int, Action]]:
    for number, log in enumerate(logs):
        for entries in log.entries.values():
            for entry in entries:
                yield number, entry.action


def _within(words: NDArray[np.int64], action: Touched) -> NDArray[np.int64]:
    """The words, in order, that begin in what lanes access."""
    first = np.searchsorted(words, action.addresses)
    last = np.searchsorted(words, action.addresses + action.size)
    there = np.flatnonzero(first < last)
    several = [words[first[each] : last[each]] for each in there]
    return np.unique(np.concatenate(several)) if several else words[:0]
