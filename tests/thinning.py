"""Selects some of many similar cases, always the same.

``make test`` takes some, chosen by their number, so that every run takes the same;
``make thorough`` takes all.
"""

import os

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
