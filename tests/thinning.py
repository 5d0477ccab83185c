"""Selects some of many similar cases, always the same.

``make test`` takes some, chosen by their number, so that every run takes the same;
``make thorough`` takes all.
"""

import itertools
import os
from collections import Counter

import pytest

THOROUGH = bool(os.environ.get("FRAGMENTA_THOROUGH"))


def some(cases, every, start=0):
    """One of ``every`` cases; all of them in a thorough run."""
    listed = list(cases)
    return listed if THOROUGH else listed[start % every :: every]


def kinds(cases, kind, every=0):
    """The first case of each kind, and one of ``every`` others; in a thorough run all."""
    listed = list(cases)
    first = {kind(each): number for number, each in reversed([*enumerate(listed)])}
    rest = [number for number in range(len(listed)) if number not in first.values()]
    others = rest[::every] if every else []
    chosen = sorted([*first.values(), *others])
    return listed if THOROUGH else [listed[number] for number in chosen]


def repeats(every=1, together=0, start=0):
    """Mark a test that is parametrized, and whose cases repeat a kind.

    One of ``every`` cases stays; with ``together``, so many that each value of each
    parameter occurs (1), or each value with each value of another parameter (2).  In a
    thorough run all stay.
    """
    return pytest.mark.repeats(every=every, together=together, start=start)


def left_out(items):
    """The tests among those collected that are for a thorough run only."""
    functions = {}
    for item in [] if THOROUGH else items:
        mark = item.get_closest_marker("repeats")
        if mark is not None:
            of = functions.setdefault(item.nodeid.partition("[")[0], (mark.kwargs, []))
            of[1].append(item)
    found = set()
    for how, cases in functions.values():
        chosen = range(how["start"] % how["every"], len(cases), how["every"])
        if how["together"]:
            given = [each.callspec.params.items() for each in cases]
            values = [[(name, repr(value)) for name, value in each] for each in given]
            chosen = meetings(values, how["together"])
        found |= {*cases} - {cases[number] for number in chosen}
    return found


def meetings(cases, together):
    """The numbers of so few cases that so many parts of each meet in one of them.

    Where several would do, parts that occurred least come first.

    >>> meetings(["ac", "ad", "bc", "bd", "ec", "ed"], 1)
    [0, 3, 4]
    >>> every = [*map("".join, itertools.product("ab", "cd", "ef"))]
    >>> [every[number] for number in meetings(every, 2)]
    ['ace', 'adf', 'bcf', 'bde']
    """
    parts = [set(itertools.combinations(each, together)) for each in cases]
    missing, chosen, seen = set().union(*parts), [], Counter()

    def worth(number):
        return len(parts[number] & missing), -sum(seen[each] for each in parts[number])

    while missing:
        best = max(range(len(parts)), key=worth)
        chosen.append(best)
        seen.update(parts[best])
        missing -= parts[best]
    return sorted(chosen)
