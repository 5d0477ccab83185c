"""What fast paths know of the instructions of a kernel, from one launch to the next.

Python makes the form of a product, or the cells of a load, at its first use.  The next
launch of the same kernel finds them.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from fragmenta.arrays.forking import Lock
from fragmenta.units.tensor_forms import TensorForms
from fragmenta.units.tensor_ways import KnownMoves

if TYPE_CHECKING:
    from fragmenta.simt.compiled import Compiled


class KnownInstructions:
    """Forms of the instructions of a compiled kernel.

    Descriptors are in bounds for one size of shared memory only.
    """

    def __init__(self) -> None:
        self.moves = KnownMoves()
        self._forms: dict[tuple[str, int], TensorForms] = {}
        self._noted: dict[tuple[str, int], dict[int, int]] = {}

    def forms(self, target: str, size: int) -> TensorForms:
        """The forms of products on a target, with so much shared memory."""
        return self._forms.setdefault((target, size), TensorForms(target))

    def noted(self, target: str, size: int) -> dict[int, int]:
        """Where the record of each event is, by its number."""
        return self._noted.setdefault((target, size), {})


_LOCK = Lock()
_KNOWN: dict[int, tuple[weakref.ref[Compiled], KnownInstructions]] = {}


def known_instructions(of: Compiled) -> KnownInstructions:
    """What is known of a compiled kernel, as long as somebody has it."""
    number = id(of)
    with _LOCK:
        found = _KNOWN.get(number)
        if found is None or found[0]() is not of:
            gone = weakref.ref(of, lambda _: _KNOWN.pop(number, None))
            found = _KNOWN[number] = gone, KnownInstructions()
        return found[1]
