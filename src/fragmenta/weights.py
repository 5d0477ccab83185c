"""Orders of quantised weights, so that a lane loads its elements with wide loads.

shuffle(op, "B", ...)     the order for an instruction -> Shuffle, which reorders
from_marlin_24(...)       a checkpoint of Marlin 2:4 -> Marlin24
to_marlin_24(...)         integers, codes and scales -> the arrays of that checkpoint

>>> import fragmenta as fm
>>> op = fm.mma("m16n8k16", a="f16", d="f32")
>>> fm.weights.shuffle(op, "B", shape=(64, 64)).shape
(64, 64)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.base.door import homes, opener

_HOME = homes(
    {
        "frontends.api.weights": "shuffle",
        "reference.weights.shuffling": "Shuffle",
        "reference.weights.marlin": "from_marlin_24 to_marlin_24 Marlin24 "
        "Marlin24Words",
    }
)
__all__ = sorted(_HOME)  # noqa: PLE0605 - the keys are strings

# The imports say to type checkers what the table says; a test holds the two together.
if TYPE_CHECKING:
    from fragmenta.frontends.api.weights import shuffle as shuffle
    from fragmenta.reference.weights.marlin import Marlin24 as Marlin24
    from fragmenta.reference.weights.marlin import Marlin24Words as Marlin24Words
    from fragmenta.reference.weights.marlin import from_marlin_24 as from_marlin_24
    from fragmenta.reference.weights.marlin import to_marlin_24 as to_marlin_24
    from fragmenta.reference.weights.shuffling import Shuffle as Shuffle
else:
    __getattr__ = opener(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
