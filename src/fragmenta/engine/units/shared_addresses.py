"""Addresses of shared memory that are given in the other form.

An instruction that names ``.shared`` takes an offset in shared memory, others take a
generic address.  The manual allows nothing else.  But a generic address of shared
memory is a high word that all of them have in common, and the offset, and the machine
code of ``mbarrier``, ``cp.async.bulk``, ``tcgen05.alloc`` and ``tcgen05.commit`` takes
the low word of the register in both cases (ptxas 13.0 for sm_100a).  So the other form
works on a GPU, and ThunderKittens uses it.  It is reported as a warning.
"""

from __future__ import annotations

from fragmenta.engine.simt.layout import SHARED_SLOT, SHARED_WINDOW, SLOT_BITS
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event
from fragmenta.ptx import rules


def names_shared(event: Event) -> bool:
    """Whether an instruction names shared memory, so that it takes an offset."""
    return any(word.startswith("shared") for word in event.words)


def low_word(
    warp: Warp, event: Event, lanes: int, address: int, named: bool
) -> int | None:
    """The offset of an address in shared memory, with the rank; None: it is elsewhere.

    ``named`` says whether the instruction names ``.shared``.
    """
    generic = address >> SLOT_BITS == SHARED_SLOT
    if not generic and address >> 32:
        return None
    offset = address - SHARED_WINDOW if generic else address
    if generic is named:
        _report(warp, event, lanes, address, offset, generic)
    return offset


def in_form(warp: Warp, event: Event, lanes: int, address: int, named: bool) -> int:
    """An address as the instruction takes it: an offset if it names ``.shared``."""
    found = low_word(warp, event, lanes, address, named)
    if found is None:
        return address
    return found if named else found + SHARED_WINDOW


def _report(
    warp: Warp, event: Event, lanes: int, address: int, offset: int, generic: bool
) -> None:
    given, wanted = "an offset in shared memory", "a generic address"
    repair = "Give it a generic address, or name the space, .shared::cta."
    if generic:
        given, wanted = wanted, given
        repair = "Convert it with cvta.to.shared (__cvta_generic_to_shared)."
    warp.report(
        rules.STATE_SPACE,
        event,
        lanes,
        f"{event.mnemonic} takes {wanted} by the manual; given {given}, {address:#x}; "
        f"machine code takes the low word, {offset:#x}, so a GPU does what is meant",
        rules.WARNING,
        repair=repair,
    )
