"""Orders of weights as users have them: their instruction is a public one."""

from __future__ import annotations

from dataclasses import replace

from fragmenta.frontends.api.instructions import kept
from fragmenta.frontends.api.returning import returning
from fragmenta.reference.weights import shuffling as orders
from fragmenta.reference.weights.shuffling import Shuffle


def _shuffled(found: Shuffle) -> Shuffle:
    return found if found.op is None else replace(found, op=kept(found.op))


shuffle = returning(orders.shuffle, _shuffled, "Shuffle", __name__)
