"""Selects some of many similar cases, always the same.

``make test`` takes some, chosen by their number, so that every run takes the same;
``make thorough`` takes all.
"""

import os

LONG = 6
THOROUGH = bool(os.environ.get("FRAGMENTA_THOROUGH"))


def some(cases, every, start=0):
    """One of ``every`` cases, of long lists half as many; in a thorough run all."""
    listed = list(cases)
    if len(listed) > LONG * every:
        every *= 2
    return listed if THOROUGH else listed[start % every :: every]
