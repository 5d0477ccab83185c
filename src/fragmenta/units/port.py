"""The port: what a cluster tells whoever observes it.

:class:`Port` does nothing: it is there when nobody observes.  An observer, such as the
race detector, is a subclass.  The units call it and know nothing of what it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fragmenta.ptx.ordering import Role
    from fragmenta.simt.wgmma_operands import Located
    from fragmenta.units.events import Event
    from fragmenta.units.machine import Block, Warp
    from fragmenta.units.mbarriers import Mbarrier
    from fragmenta.units.warpgroups import Warpgroup
    from fragmenta.units.work import Work


class Port:
    """An observer that ignores everything."""

    def attach(self) -> None:
        """Blocks will run one after the other, without Python between them."""

    def enter(self) -> None:
        """Another such block has its first event."""

    def begin(self) -> None:
        """A new cluster begins."""

    def ended(self, block: Block) -> None:
        """All threads of one block of a cluster have ended."""

    def end(self) -> None:
        """All threads of the cluster have ended."""

    def init(self, warp: Warp, event: Event, lanes: int, mbarrier: Mbarrier) -> None:
        """An mbarrier was made, or is no longer one."""

    def arrive(
        self, warp: Warp, event: Event, lanes: int, mbarrier: Mbarrier, relaxed: bool
    ) -> None:
        """Lanes arrive at an mbarrier; its phase is not over yet."""

    def wait(
        self,
        warp: Warp,
        event: Event,
        lanes: int,
        mbarrier: Mbarrier,
        phase: int,
        relaxed: bool,
    ) -> None:
        """Lanes have seen that a phase is over."""

    def vain(
        self, warp: Warp, event: Event, lanes: int, mbarrier: Mbarrier, phase: int
    ) -> None:
        """Lanes begin to wait for a phase that is not over."""

    def turned(self, mbarrier: Mbarrier) -> None:
        """A phase of an mbarrier is over."""

    def issue(self, work: Work, warp: Warp, event: Event, lanes: int) -> None:
        """Work is in flight from now on; ``work.effect`` says what it does."""

    def done(self, work: Work) -> None:
        """A piece of work is done, and about to write its result."""

    def signal(self, work: Work, mbarrier: Mbarrier) -> None:
        """A piece of work that is done signals an mbarrier."""

    def used(self, warp: Warp, event: Event, lanes: int, mbarrier: Mbarrier) -> None:
        """An instruction names an mbarrier."""

    def copied(self, warp: Warp, epoch: int) -> bool:
        """Whether compiled code has made ``cp.async``; a new epoch of them begins."""
        return False

    def waited(
        self, warp: Warp, event: Event, lanes: int, kind: str, bound: int, read: bool
    ) -> None:
        """Lanes have waited for all copies before an epoch."""

    def multiplies(self, warp: Warp, event: Event, located: Located) -> None:
        """A warp is about to issue a product."""

    def multiplied(
        self, warp: Warp, event: Event, warpgroup: Warpgroup, groups: int
    ) -> None:
        """A warp has waited for all groups before a number."""

    def touched(self, warp: Warp, event: Event, lanes: int) -> None:
        """An instruction touches registers of a product that is in flight."""

    def wgmma_fence(self, warp: Warp, event: Event) -> None:
        """A warp executed ``wgmma.fence``."""

    def warpgroup(self, warp: Warp, event: Event, lanes: int) -> None:
        """A warp executed an instruction of its warpgroup: its lanes are together."""

    def tensor_allocated(
        self,
        warp: Warp,
        event: Event,
        lanes: int,
        address: int,
        columns: int,
        place: int,
    ) -> None:
        """A warp allocated tensor memory, and wrote its address to shared memory."""

    def tensor_freed(
        self, warp: Warp, event: Event, lanes: int, address: int, columns: int
    ) -> None:
        """A warp is done with tensor memory."""

    def tensor_waited(self, warp: Warp, event: Event, lanes: int, kind: str) -> None:
        """A warp has waited for its loads, or for its stores."""

    def tensor_fence(self, warp: Warp, event: Event, lanes: int, before: bool) -> None:
        """``tcgen05.fence``: before or after what synchronises threads."""

    def cluster_arrive(
        self, warp: Warp, event: Event, lanes: int, relaxed: bool
    ) -> None:
        """Lanes arrive at the barrier of the cluster."""

    def cluster_wait(self, warp: Warp, event: Event, lanes: int, phase: int) -> None:
        """Lanes have passed the barrier of the cluster."""

    def fence(self, warp: Warp, event: Event, lanes: int) -> None:
        """A fence of any kind."""

    def tensor_map(self, warp: Warp, event: Event, lanes: int, address: int) -> None:
        """A tensor map was changed, or its change was acquired."""

    def location(
        self,
        warp: Warp,
        event: Event,
        lanes: int,
        role: Role,
        addresses: list[tuple[int, int]],
    ) -> None:
        """A strong access through which threads may synchronise."""
