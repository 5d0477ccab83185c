"""What the mnemonic of a bulk copy says, and the order of its operands."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fragmenta.reference.isa.table import read
from fragmenta.reference.shared.reductions import TYPES_OF

#: The operands of each kind of copy.  One with a colon is there only if the
#: instruction has the word after the colon.
ORDERS = """
copy            | operands
load            | goal source size left:ignore_oob right:ignore_oob mbarrier mask:multicast::cluster policy:L2::cache_hint
exchange        | goal source size mbarrier
store           | goal source size policy:L2::cache_hint kept:cp_mask
prefetch        | source size policy:L2::cache_hint
tensor load     | goal tensor mbarrier offsets:im2col mask:multicast::cluster policy:L2::cache_hint
tensor store    | tensor source policy:L2::cache_hint
tensor prefetch | tensor offsets:im2col policy:L2::cache_hint
registers       | goal values mbarrier
"""  # noqa: E501
_ORDERS = {line["copy"]: line["operands"].split() for line in read(ORDERS)}
ROWS = ("tile::gather4", "tile::scatter4")
"""Words of copies of four rows: their coordinates are a column and the rows."""


class CopyForm(NamedTuple):
    """What the mnemonic says."""

    mnemonic: str
    kind: str
    """A line of :data:`ORDERS`."""
    words: tuple[str, ...]
    to: str
    """The state space of the goal; nothing if it is generic."""
    of: str
    """The state space of the source."""
    operation: str | None
    type: str
    operands: tuple[str, ...]

    def has(self, word: str) -> bool:
        """Whether the instruction has this word."""
        return word in self.words

    @property
    def rows(self) -> bool:
        """Whether it moves four rows of a tensor."""
        return any(word in self.words for word in ROWS)


@lru_cache(maxsize=1024)
def form(mnemonic: str) -> CopyForm:
    """What a mnemonic says.

    >>> found = form("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group")
    >>> found.kind, found.to, found.operands
    ('tensor store', 'global', ('tensor', 'source'))
    """
    words = tuple(mnemonic.split("."))
    spaces = [
        word for word in words if word.startswith("shared") or word == "global"
    ] + ["", ""]
    kind = _kind(words, spaces[0], spaces[1])
    names = (each.partition(":") for each in _ORDERS[kind])
    operands = tuple(name for name, _, word in names if not word or word in words)
    operation = next((word for word in words if word in TYPES_OF), None)
    to, of = ("", spaces[0]) if kind.endswith("prefetch") else spaces[:2]
    return CopyForm(mnemonic, kind, words, to, of, operation, words[-1], operands)


def _kind(words: tuple[str, ...], to: str, of: str) -> str:
    if words[0] != "cp":
        return "registers"
    tensor = "tensor " if "tensor" in words else ""
    if "prefetch" in words:
        return f"{tensor}prefetch"
    if to == "global":
        return f"{tensor}store"
    return f"{tensor}load" if of == "global" else "exchange"
