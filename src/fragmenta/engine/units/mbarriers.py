"""Mbarriers: the instructions that make them, arrive and wait."""

from __future__ import annotations

from fragmenta.engine.simt.layout import RANK_BITS, SHARED_START
from fragmenta.engine.simt.naming import counted
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out, together
from fragmenta.engine.units.fairness import gives_way
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.mbarrier_state import WHEN_DONE, Mbarrier
from fragmenta.engine.units.past_the_end import ended
from fragmenta.engine.units.port import Step, Waited
from fragmenta.engine.units.shared_addresses import low_word, names_shared
from fragmenta.ptx import rules
from fragmenta.ptx.ordering import Scope, scope, written_scope

# ── finding one ─────────────────────────────────────────────────────────────


def find(warp: Warp, event: Event, address: int, lanes: int) -> Mbarrier:
    """The mbarrier at an address, which may be in another block of the cluster."""
    block = warp.block.owner(address, event, warp, lanes)
    offset = address & (1 << RANK_BITS) - 1
    found = block.mbarriers.get(offset)
    if found is None:
        near = ", ".join(hex(each) for each in sorted(block.mbarriers)[:8])
        there = f"; there are mbarriers at {near}" if near else ""
        raise Stop(
            rules.MBARRIER,
            event.site,
            warp,
            lanes,
            f"{event.mnemonic} at shared {offset:#x}, where no mbarrier was "
            f"initialised{there}",
        )
    if not found.intact():
        raise Stop(
            rules.MBARRIER,
            event.site,
            warp,
            lanes,
            f"{found} was written over by an ordinary access or a copy",
        )
    return found


def named(warp: Warp, event: Event, address: int, lanes: int) -> Mbarrier:
    """The mbarrier at an address that an instruction names."""
    return find(warp, event, shared_address(warp, event, address, lanes), lanes)


def shared_address(warp: Warp, event: Event, address: int, lanes: int) -> int:
    """An address in shared memory; it is generic if the instruction names no space."""
    named_space = names_shared(event)
    found = low_word(warp, event, lanes, address, named_space)
    if found is None:
        takes = "an offset in shared memory" if named_space else "a generic address"
        raise Stop(
            rules.MBARRIER,
            event.site,
            warp,
            lanes,
            f"{event.mnemonic} takes {takes}; {address:#x} is not in shared memory",
        )
    return found


@carries_out("mbarrier.init")
def init(warp: Warp, event: Event, lanes: int) -> int:
    """Make an mbarrier."""
    block = warp.block
    for members, (given, count) in together(warp, lanes, *event.operands[:2]):
        address = shared_address(warp, event, given, members)
        offset = address & (1 << RANK_BITS) - 1
        inside = SHARED_START <= offset <= block.shared.size - 8
        if address >> RANK_BITS != block.rank or not inside or offset % 8:
            raise Stop(
                rules.MBARRIER,
                event.site,
                warp,
                members,
                f"an mbarrier is 8 bytes of the block's shared memory at a multiple of "
                f"8; given the address {address:#x}",
            )
        if not 1 <= count <= layout.MOST:
            raise Stop(
                rules.MBARRIER,
                event.site,
                warp,
                members,
                f"an mbarrier expects 1 to {layout.MOST:,} arrivals; given {count:,}",
            )
        old = block.mbarriers.get(offset)
        busy = old.busy() if old is not None else ""
        if busy:
            warp.report(
                rules.MBARRIER,
                event,
                members,
                f"{old} is initialised again while {busy}",
                repair="Initialise it once, or execute mbarrier.inval when all are "
                "done with it.",
            )
        elif old is not None:
            _check_idle(warp, event, members, old)
        made = block.mbarriers.make(offset, count)
        block.cluster.port.change(Step(warp, event, members), made)
    return lanes


def _check_idle(warp: Warp, event: Event, lanes: int, old: Mbarrier) -> None:
    """Report that an mbarrier which was used is made again without an end before it.

    PTX leaves that undefined.  Hardware does what is meant if no thread uses the old
    one any more; a thread that still waits with the parity of the old one hangs.
    """
    watched = warp.block.cluster.machine.observers
    if watched and old.phase and old.intact():
        warp.report(
            rules.MBARRIER,
            event,
            lanes,
            f"{old} is initialised again without mbarrier.inval, after {old.phase} of "
            "its phases: PTX leaves undefined what that does",
            rules.WARNING,
            repair="Execute mbarrier.inval before it, with a barrier between that and "
            "the last use; or go on with its phases.",
        )


@carries_out("mbarrier.inval")
def inval(warp: Warp, event: Event, lanes: int) -> int:
    """End an mbarrier; its memory may be used for other things."""
    for members, (address,) in together(warp, lanes, event.operands[0]):
        found = named(warp, event, address, members)
        busy = found.busy()
        if busy:
            warp.report(
                rules.MBARRIER,
                event,
                members,
                f"{found} is made invalid while {busy}",
                repair=WHEN_DONE,
            )
        found.again = True
        warp.block.mbarriers.retire(found)
        warp.block.cluster.port.change(Step(warp, event, members), found)
    return lanes


# ── arriving ────────────────────────────────────────────────────────────────


@carries_out("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(warp: Warp, event: Event, lanes: int) -> int:
    """Arrive, with or without bytes to expect."""
    expects, drops = "expect_tx" in event.words, "arrive_drop" in event.words
    result, *rest = event.operands
    if result.kind == "a":  # a remote arrival may be written without a result
        result, rest = result._replace(kind="_"), list(event.operands)
    for members, (given, *more) in together(warp, lanes, *rest):
        address = shared_address(warp, event, given, members)
        if _arrives_too_late(warp, event, address, members):
            continue
        found = find(warp, event, address, members)
        threads = members.bit_count()
        count = 1 if expects or not more else more[0]
        token = found.phase << 32 | found.pending
        step = Step(warp, event, members)
        expected = more[0] * threads if expects else 0
        warp.block.cluster.port.counts(step, found, count * threads, expected, drops)
        if expects:
            _expect(warp, event, members, found, expected)
        arrivals = possible(warp, event, members, found, count * threads)
        if "noComplete" in event.words and arrivals == found.pending:
            warp.report(
                rules.MBARRIER,
                event,
                members,
                f"an arrival with .noComplete would complete phase {found.phase} of "
                f"{found}",
                repair="Leave out .noComplete, or let another arrival be the last.",
            )
        if found.block is not warp.block:
            found.remote = found.remote or not expects
            _check_arrival_scope(warp, event, members, found)
        if drops:
            found.expected -= arrivals
        warp.block.cluster.port.release(step, found)
        found.arrive(arrivals, warp)
        result.put(warp, members, token)
        warp.block.cluster.changes += 1
    return lanes


def _arrives_too_late(warp: Warp, event: Event, address: int, lanes: int) -> bool:
    """Report an arrival at a block of the cluster that has ended, and ignore it.

    An H200 goes on, too.  In a watched launch it is a fault unless problems are only
    reported.
    """
    if not warp.block.cluster.machine.ignores_ended:
        return False
    rank, blocks = address >> RANK_BITS, warp.block.cluster.blocks
    if not 0 <= rank < len(blocks) or not blocks[rank].ended:
        return False
    ended(warp, event, lanes, rank, "the arrival")
    return True


def reaches(warp: Warp, event: Event, found: Mbarrier) -> bool:
    """Whether the scope of an arrival includes the block of the mbarrier.

    Shipped kernels arrive at other blocks without a scope, which means ``.cta``, so
    that only a scope that is written down is too small.
    """
    return found.block is warp.block or written_scope(event.words) is not Scope.CTA


def _check_arrival_scope(warp: Warp, event: Event, lanes: int, found: Mbarrier) -> None:
    """Report an arrival that hands nothing over to the block of the mbarrier.

    One that expects bytes has nothing to hand over: who waits there waits for copies.
    If more depends on it, that is a race.  So it counts as one that names no scope.
    """
    named_scope = not reaches(warp, event, found)
    narrow = named_scope and "expect_tx" not in event.words
    strict = warp.block.cluster.machine.strict
    if scope(event.words) >= Scope.CLUSTER or not (narrow or strict):
        return
    given = "names no scope, which means .cta,"
    if named_scope:
        given = "has the scope .cta"
    warp.report(
        rules.MBARRIER,
        event,
        lanes,
        f"{event.mnemonic} {given} and arrives at {found} of block "
        f"{found.block.rank} of the cluster: what block {warp.block.rank} did before "
        "is not ordered before what that block does after its wait",
        "" if narrow else rules.WARNING,
        repair="Write .release.cluster here, and .acquire.cluster at the wait.",
    )


def _check_wait_scope(warp: Warp, event: Event, lanes: int, found: Mbarrier) -> None:
    """Report a wait that takes nothing over from other blocks that arrive."""
    if not found.remote or written_scope(event.words) is not Scope.CTA:
        return
    warp.report(
        rules.MBARRIER,
        event,
        lanes,
        f"{event.mnemonic} has the scope .cta and waits for {found}, at which threads "
        "of other blocks of the cluster arrive: what they did before is not ordered "
        "before what comes after this wait",
        rules.WARNING,
        repair="Write .acquire.cluster here, and .release.cluster at the arrivals.",
    )


def possible(
    warp: Warp, event: Event, lanes: int, found: Mbarrier, arrivals: int
) -> int:
    """The number of arrivals, at most as many as are pending; more are reported."""
    surplus = arrivals - found.pending
    if surplus > 0:
        warp.report(
            rules.MBARRIER,
            event,
            lanes,
            f"{counted(arrivals, 'arrival')} at {found}, where phase {found.phase} "
            f"expects {found.expected} in all, and {found.pending} more",
            other=found.birth[3] if found.birth[3] >= 0 else None,
            repair=f"Let mbarrier.init give it a count of {found.expected + surplus}, "
            f"or let {surplus} fewer arrive.",
        )
    return min(arrivals, found.pending)


@carries_out("mbarrier.expect_tx")
def expect_tx(warp: Warp, event: Event, lanes: int) -> int:
    """Expect bytes."""
    for members, (address, count) in together(warp, lanes, *event.operands):
        found = named(warp, event, address, members)
        expected, step = count * members.bit_count(), Step(warp, event, members)
        warp.block.cluster.port.counts(step, found, 0, expected, False)
        _expect(warp, event, members, found, expected)
        found.write()
        warp.block.cluster.changes += 1
    return lanes


@carries_out("mbarrier.complete_tx")
def complete_tx(warp: Warp, event: Event, lanes: int) -> int:
    """Count bytes as arrived, without a copy."""
    for members, (address, count) in together(warp, lanes, *event.operands):
        found = named(warp, event, address, members)
        expected, step = -count * members.bit_count(), Step(warp, event, members)
        warp.block.cluster.port.counts(step, found, 0, expected, False)
        _expect(warp, event, members, found, expected)
        found.settle(warp)
        warp.block.cluster.changes += 1
    return lanes


def _expect(warp: Warp, event: Event, lanes: int, found: Mbarrier, count: int) -> None:
    if not -layout.MOST <= found.bytes + count <= layout.MOST:
        raise Stop(
            rules.MBARRIER,
            event.site,
            warp,
            lanes,
            f"{found} counts at most {layout.MOST:,} bytes at a time; "
            f"{found.bytes + count:,} would be pending",
        )
    found.expect(count)


@carries_out("mbarrier.pending_count")
def pending_count(warp: Warp, event: Event, lanes: int) -> int:
    """The arrivals that were pending when the state was returned."""
    for members, (state,) in together(warp, lanes, event.operands[1]):
        event.operands[0].put(warp, members, state & 0xFFFFFFFF)
    return lanes


# ── waiting ─────────────────────────────────────────────────────────────────


@carries_out("mbarrier.try_wait", "mbarrier.test_wait")
def wait(warp: Warp, event: Event, lanes: int) -> int:
    """Test whether a phase is over; ``try_wait`` also waits for it."""
    answer, address_at, phase_at = event.operands[:3]
    passed, cluster = 0, warp.block.cluster
    for members, (place, given) in together(warp, lanes, address_at, phase_at):
        address = shared_address(warp, event, place, members)
        if address >> RANK_BITS != warp.block.rank:
            raise Stop(
                rules.MBARRIER,
                event.site,
                warp,
                members,
                f"a thread cannot wait for the mbarrier of another block; given "
                f"{address:#x} in block {warp.block.rank} of the cluster",
            )
        found = find(warp, event, address, members)
        wanted = _wanted(warp, event, members, found, given)
        gives_up = cluster.hasty and not found.waited_for(warp.number, wanted)
        if wanted >= found.phase and not gives_up:
            cluster.wanted(found)
        over = wanted < found.phase
        if over and "test_wait" not in event.words and gives_way(warp, found, wanted):
            cluster.port.stall(Step(warp, event, members), found, wanted)
            cluster.changes += 1
            continue
        tests = "test_wait" in event.words or cluster.impatient or gives_up
        if over or tests:
            answer.put(warp, members, int(over))
            passed |= members
        if over:
            _check_wait_scope(warp, event, members, found)
            found.waits(warp.number, None)
            found.saw(warp.number, wanted)
            step = Step(warp, event, members)
            cluster.port.acquire(step, Waited("mbarrier", wanted, found))
            cluster.changes += 1
        else:
            if found.waits(warp.number, wanted):
                cluster.port.stall(Step(warp, event, members), found, wanted)
            warp.tested(members)
            if passed & members:
                warp.give_way()
    return passed


def _wanted(warp: Warp, event: Event, lanes: int, found: Mbarrier, given: int) -> int:
    """The number of the phase that an instruction waits for."""
    if "parity" in event.words:
        # Parity names the present phase, or the one before it.
        under_way = found.phase & 1 == given & 1
        return found.phase if under_way else found.phase - 1
    phase = given >> 32
    if not found.phase - 1 <= phase <= found.phase:
        warp.report(
            rules.MBARRIER,
            event,
            lanes,
            f"a wait for phase {phase} of {found}, which is in phase {found.phase}: a "
            "state is of the present phase or the one before it",
        )
    return phase
