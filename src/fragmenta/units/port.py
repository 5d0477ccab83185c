"""What is asked of whoever watches a cluster?

:class:`Blind` does none of it: it is there when nobody watches.
"""

from __future__ import annotations

from typing import Any


class Blind:
    """Sees nothing."""

    def attach(self) -> None:
        """Blocks will run one after the other, without Python between them."""

    def enter(self) -> None:
        """Another such block has its first event."""

    def begin(self) -> None:
        """A new cluster begins."""

    def ended(self, block: Any) -> None:
        """All threads of one block of a cluster have ended."""

    def end(self) -> None:
        """All threads of the cluster have ended."""

    def init(self, warp: Any, event: Any, lanes: int, mbarrier: Any) -> None:
        """An mbarrier was made, or is no longer one."""

    def arrive(
        self, warp: Any, event: Any, lanes: int, mbarrier: Any, relaxed: bool
    ) -> None:
        """Lanes arrive at an mbarrier; its phase is not over yet."""

    def wait(
        self, warp: Any, event: Any, lanes: int, mbarrier: Any, phase: int,
        relaxed: bool,
    ) -> None:  # fmt: skip
        """Lanes have seen that a phase is over."""

    def vain(
        self, warp: Any, event: Any, lanes: int, mbarrier: Any, phase: int
    ) -> None:
        """Lanes begin to wait for a phase that is not over."""

    def turned(self, mbarrier: Any) -> None:
        """A phase of an mbarrier is over."""

    def finished(self, task: Any) -> None:
        """A copy is complete."""

    def used(self, warp: Any, event: Any, lanes: int, mbarrier: Any) -> None:
        """An instruction names an mbarrier."""

    def issue(self, task: Any, warp: Any, event: Any, lanes: int) -> None:
        """A copy was issued."""

    def complete(self, task: Any, mbarrier: Any) -> None:
        """A copy has signalled an mbarrier."""

    def copied(self, warp: Any, epoch: int) -> bool:
        """Whether compiled code has made ``cp.async``; a new epoch of them begins."""
        return False

    def waited(
        self, warp: Any, event: Any, lanes: int, kind: str, bound: int, read: bool
    ) -> None:
        """Lanes have waited for all copies before an epoch."""

    def copies_arrive(
        self, warp: Any, event: Any, lanes: int, mbarrier: Any, counted: bool
    ) -> None:
        """``cp.async.mbarrier.arrive``: the copies so far signal an mbarrier."""

    def multiplies(self, warp: Any, event: Any, located: Any) -> None:
        """A warp is about to issue a product."""

    def multiply(self, task: Any, warp: Any, event: Any) -> None:
        """All four warps have issued a product."""

    def multiplied(self, warp: Any, event: Any, warpgroup: Any, groups: int) -> None:
        """A warp has waited for all groups before a number."""

    def touched(self, warp: Any, event: Any, lanes: int) -> None:
        """An instruction touches registers of a product that is in flight."""

    def wgmma_fence(self, warp: Any, event: Any) -> None:
        """A warp executed ``wgmma.fence``."""

    def warpgroup(self, warp: Any, event: Any, lanes: int) -> None:
        """A warp executed an instruction of its warpgroup: its lanes are together."""

    def tensor_allocated(
        self, warp: Any, event: Any, lanes: int, address: int, columns: int, place: int
    ) -> None:
        """A warp allocated tensor memory, and wrote its address to shared memory."""

    def tensor_freed(
        self, warp: Any, event: Any, lanes: int, address: int, columns: int
    ) -> None:
        """A warp is done with tensor memory."""

    def tensor_moves(self, task: Any, warp: Any, event: Any, lanes: int) -> None:
        """A warp issued a load or a store of tensor memory."""

    def tensor_waited(
        self, warp: Any, event: Any, lanes: int, kind: str, tasks: Any
    ) -> None:
        """A warp has waited for its loads, or for its stores."""

    def tensor_issue(self, task: Any, warp: Any, event: Any, lanes: int) -> None:
        """A thread issued a product, or a copy into tensor memory."""

    def tensor_finished(self, task: Any) -> None:
        """A product or a copy into tensor memory is done."""

    def tensor_commit(
        self, arrival: Any, warp: Any, event: Any, lane: int, mbarrier: Any
    ) -> None:
        """A thread asks for an arrival at an mbarrier when its work is done."""

    def tensor_arrive(self, arrival: Any, mbarrier: Any) -> None:
        """The work is done, and the arrival is about to be counted."""

    def tensor_fence(self, warp: Any, event: Any, lanes: int, before: bool) -> None:
        """``tcgen05.fence``: before or after what synchronises threads."""

    def cluster_arrive(self, warp: Any, event: Any, lanes: int, relaxed: bool) -> None:
        """Lanes arrive at the barrier of the cluster."""

    def cluster_wait(self, warp: Any, event: Any, lanes: int, phase: int) -> None:
        """Lanes have passed the barrier of the cluster."""

    def fence(self, warp: Any, event: Any, lanes: int) -> None:
        """A fence of any kind."""

    def tensor_map(self, warp: Any, event: Any, lanes: int, address: int) -> None:
        """A tensor map was changed, or its change was acquired."""

    def registers(self, warp: Any, event: Any, lanes: int, count: int) -> None:
        """``setmaxnreg``: lanes ask for so many registers."""

    def location(
        self, warp: Any, event: Any, lanes: int, role: Any, addresses: Any
    ) -> None:
        """A strong access through which threads may synchronise."""
