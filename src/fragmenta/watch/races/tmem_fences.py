"""Checks for fences of tensor memory that shipped kernels leave out.

By the manual, a barrier or an mbarrier orders ``tcgen05`` instructions of different
threads only with ``tcgen05.fence::before_thread_sync`` before it, which a commit
includes, and ``tcgen05.fence::after_thread_sync`` after it.  Triton writes neither.
"""

from __future__ import annotations

from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event
from fragmenta.ptx import rules
from fragmenta.ptx.rules import WARNING
from fragmenta.watch.races.order import Clock, knows
from fragmenta.watch.races.tmem_shadow import QUEUED, RACE, Conflict, TensorAccess

FENCE = rules.MISSING_TENSOR_FENCE
_PLACES = {
    "after": "between the barrier or wait and this instruction",
    "before": "between that and the barrier",
}


class Fences:
    """The clocks of warps at their fences."""

    def __init__(self) -> None:
        self.after: dict[tuple[int, int], Clock] = {}
        """The clock of each warp at its last ``tcgen05.fence::after_thread_sync``."""

    def begin(self) -> None:
        """A new cluster begins."""
        self.after.clear()

    def check(
        self, found: Conflict, agent: int, warp: Warp, event: Event, lanes: int
    ) -> None:
        """Report accesses that are in order only if fences are not needed.

        ``agent`` stands for the fences of the earlier access' warp.
        """
        old, new = found.old, found.new
        where = found.where.words(new.rank)
        if found.ordered is None:
            warp.report(
                RACE,
                event,
                lanes,
                f"it writes {where}; {old.words} comes first only if the Tensor Core "
                "keeps the order of issue, which the manual does not promise for this "
                "pair",
                WARNING,
                other=old.site,
            )
            return
        missing = self._missing(old, new, found.pipelined, agent)
        if missing:
            warp.report(
                FENCE,
                event,
                lanes,
                f"it uses {where} after {old.words}, and no "
                f"tcgen05.fence::{missing}_thread_sync is {_PLACES[missing]}",
                other=old.site,
            )

    def _missing(
        self, old: TensorAccess, new: TensorAccess, pipelined: bool, agent: int
    ) -> str:
        """Which fence is missing between two accesses, if any."""
        same = (old.rank, old.warp) == (new.rank, new.warp)
        if new.kind == "dealloc" or (same and (pipelined or old.kind not in QUEUED)):
            return ""
        row = self.after.get((new.rank, new.warp))
        if row is None or not (old.before(row) if pipelined else old.known(row)):
            return "after"
        committed = old.kind in QUEUED and not pipelined
        if committed or knows(row[0], agent, 0, old.number):
            return ""
        return "before"
