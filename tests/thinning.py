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
