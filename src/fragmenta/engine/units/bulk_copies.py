"""Copies without a tensor map.

``cp.async.bulk`` and ``cp.reduce.async.bulk`` move adjacent bytes, ``st.async`` and
``red.async`` a number or a short vector from registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.atomics import note_of
from fragmenta.engine.simt.layout import PLAIN
from fragmenta.engine.units.blocks import Thread
from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.work import (
    Bytes,
    Copy,
    CopyBlock,
    Pair,
    Range,
    Region,
    Starts,
    aligned,
    destinations,
    in_global,
    in_shared,
    pieces,
    poisoned,
    shared_address,
    spread,
)
from fragmenta.ptx import rules
from fragmenta.ptx.effects import effect
from fragmenta.ptx.module import type_bytes
from fragmenta.reference.shared.reductions import reduced

Slack = Callable[[int, int], int]
UNIT = 16
"""Bytes that the addresses and the size of a bulk copy are multiples of."""


def no_slack(address: int, size: int) -> int:
    """What is past the end of an argument is a fault."""
    return 0


class BulkCopy(Copy):
    """``cp.async.bulk`` and ``cp.reduce.async.bulk``.

    ``to`` and ``of`` are the state spaces of the goal and of the source, as the
    instruction names them.  ``kept`` is the operand of ``.cp_mask``: it has a bit for
    each of 16 bytes.  ``ignored`` are the first and last bytes that ``.ignore_oob``
    leaves out.  ``reduction`` is an operation and a type, such as ``("add", "f32")``.
    ``slack`` says how many of some bytes may be past the end of an argument.
    """

    name = "bulk copy"

    def __init__(
        self,
        block: CopyBlock,
        thread: Thread,
        site: int,
        goal: int,
        source: int,
        size: int,
        *,
        to: str,
        of: str,
        mbarrier: int | None = None,
        mask: int | None = None,
        kept: int = 0xFFFF,
        ignored: tuple[int, int] = (0, 0),
        reduction: tuple[str, str] | None = None,
        slack: Slack = no_slack,
    ) -> None:
        super().__init__(block, thread, site)
        self._survives = slack
        _whole_units(size, self.name)
        self.bytes, self.mask, self.kept = size, mask, kept
        self.reduction = reduction
        self.ignored = _ignored(ignored, size)
        self.effect = effect(
            "cp.async.bulk" if reduction is None else "cp.reduce.async.bulk",
            "bulk_group" if to == "global" else "mbarrier::complete_tx::bytes",
        )
        if of != "global" and to != "global" and len(block.cluster.blocks) == 1:
            raise CopyFault(
                rules.OTHER_BLOCK,
                "a bulk copy from shared to shared memory needs a cluster of several "
                "blocks; an H200 refuses it as an illegal instruction without one",
            )
        self._source = self._from(source, of)
        self._goals = self._to(goal, to, mbarrier)
        self._data: Bytes = np.empty(0, np.uint8)

    def _from(self, address: int, space: str) -> Region:
        what, (left, right) = f"the source of a {self.name}", self.ignored
        aligned(address, UNIT, what)
        if space == "global":
            beyond = self._slack(address + left, right - left, writes=False)
            self.ignored = left, right - beyond
            return in_global(self.block, address + left, right - beyond - left, what)
        rank, offset = shared_address(self.block, address, what, space)
        return in_shared(self.block, rank, offset, self.bytes, what)

    def _to(self, address: int, space: str, mbarrier: int | None) -> list[Region]:
        what = f"the goal of a {self.name}"
        aligned(address, UNIT, what)
        if space == "global":
            size = self.bytes
            if self.reduction is None:
                size -= self._slack(address, size, writes=True)
            return [in_global(self.block, address, size, what, writes=True)]
        rank, offset = shared_address(self.block, address, what, space)
        goals = destinations(self.block, rank, self.mask, self.name)
        self._signal(mbarrier, space, rank)
        return [in_shared(self.block, r, offset, self.bytes, what) for r in goals]

    def _slack(self, address: int, size: int, *, writes: bool) -> int:
        """How many bytes past the end of an argument are left out."""
        found = self._survives(address, size)
        if found:
            self.past.append((address, size, writes))
        return found

    @property
    def goals(self) -> list[Range]:
        """What it writes."""
        if self.kept == 0xFFFF:
            return [place.range for place in self._goals if place.range.size]
        found = []
        for place in self._goals:
            space, rank, start, size = place.range
            places = start + np.flatnonzero(self._keeps(self.bytes)[:size])
            found += pieces(space, rank, places, 1)
        return found

    def _keeps(self, size: int) -> NDArray[np.bool_]:
        bits = [self.kept >> byte & 1 for byte in range(UNIT)]
        return np.tile(np.array(bits, bool), size // UNIT)

    @property
    def sources(self) -> list[Range]:
        """What it reads."""
        return [self._source.range] if self._source.range.size else []

    @property
    def pairs(self) -> list[Pair]:
        """Where its bytes come from, unless it combines them."""
        left, right = self.ignored
        if self.reduction is not None:
            return []
        of, found = self._source.range, []
        for place in self._goals:
            size = min(right, place.range.size) - left
            start = int(place.range.starts[0]) + left
            if size > 0:
                goal = place.range._replace(start=start, size=size)
                found.append(Pair(goal, of._replace(size=size)))
        return found

    @property
    def noted(self) -> int:
        """The note of what it writes to global memory."""
        return PLAIN if self.reduction is None else note_of(*self.reduction)

    def read(self) -> None:
        """Take the source; what is ignored has no defined value."""
        left, right = self.ignored
        self._data = poisoned(np.arange(self.bytes))
        self._data[left:right] = self._source.take()

    def write(self) -> None:
        """Put it to each goal, or combine it with what is there."""
        for place in self._goals:
            data, size = self._data[: place.range.size], place.range.size
            if self.reduction is not None:
                data = combined(*self.reduction, place.take(), data)
            elif self.kept != 0xFFFF:
                data = np.where(self._keeps(self.bytes)[:size], data, place.take())
            place.put(data)

    @property
    def sum(self) -> tuple[str, str]:
        """The operation, and the type of the elements."""
        return self.reduction or super().sum

    def summands(
        self, block: CopyBlock, values: Sequence[int] = ()
    ) -> list[tuple[Bytes, Bytes]]:
        """What its goals hold in a block, and the source."""
        data = self._source.on(block).take()
        return [(each.on(block).take(), data) for each in self._goals]

    def put_sums(self, block: CopyBlock, sums: Sequence[Bytes]) -> None:
        """Put something to its goals in a block."""
        for each, data in zip(self._goals, sums, strict=True):
            each.on(block).put(data)

    def carry(self, shadow: CopyBlock, values: Sequence[int] = ()) -> None:
        """Copy the shadows; what is ignored has none."""
        if self.combines:
            super().carry(shadow, values)
        else:
            self._copy_shadows(shadow, 0)

    def follow(self, shadow: CopyBlock, values: Sequence[int] = ()) -> Starts:
        """Copy the shadows; what is ignored has no defined value."""
        if self.reduction is None:
            self._copy_shadows(shadow, 0xFF)
        else:
            size = type_bytes(self.reduction[1])
            both = self.summands(shadow)
            self.put_sums(shadow, [spread(old | new, size) for old, new in both])
        return self._undefined(shadow)

    def _copy_shadows(self, shadow: CopyBlock, ignored: int) -> None:
        """Copy from and to shadows; what is ignored becomes a byte."""
        left, right = self.ignored
        data = np.full(self.bytes, ignored, np.uint8)
        data[left:right] = self._source.on(shadow).take()
        if self.past:  # that is reported already
            data[right:] = 0
        for each in self._goals:
            place, size = each.on(shadow), each.range.size
            keeps = self._keeps(self.bytes)[:size]
            place.put(np.where(keeps, data[:size], place.take()))


def _whole_units(size: int, name: str) -> None:
    if size % UNIT:
        raise CopyFault(
            rules.BAD_SIZE,
            f"the size of a {name} must be a multiple of {UNIT} bytes; given {size}, "
            f"nearest {round(size / UNIT) * UNIT}",
        )


def _ignored(ignored: tuple[int, int], size: int) -> tuple[int, int]:
    """The first byte that is copied, and the one past the last."""
    left, right = ignored
    if not (0 <= left < UNIT and 0 <= right < UNIT) or left + right > size:
        raise CopyFault(
            rules.BAD_SIZE,
            f".ignore_oob leaves out 0 to {UNIT - 1} bytes on each side, at most all; "
            f"given {left} and {right} of {size}",
        )
    return left, size - right


def combined(operation: str, kind: str, old: Bytes, new: Bytes) -> Bytes:
    """The bytes that a reduction leaves; ``kind`` is the type in the instruction.

    >>> words = np.array([3, 7], np.uint32).view(np.uint8)
    >>> combined("add", "u32", words, words).view(np.uint32)
    array([ 6, 14], dtype=uint32)
    """
    # Bits are combined as unsigned numbers; a sum does not depend on the sign.
    unsigned = kind in ("b32", "b64") or (operation, kind) == ("add", "s64")
    name = f"u{kind[1:]}" if unsigned else kind
    word = f"u{type_bytes(kind)}"
    return reduced(operation, name, old.view(word), new.view(word)).view(np.uint8)


# ── st.async and red.async ──────────────────────────────────────────────────


class AsyncStore(Copy):
    """``st.async`` and ``red.async``: from registers to a block of the cluster.

    ``values`` are the bits of the elements.  ``space`` is that of the instruction; if
    it names none, the addresses are generic.
    """

    name, effect = "st.async", effect("st.async")

    def __init__(
        self,
        block: CopyBlock,
        thread: Thread,
        site: int,
        goal: int,
        values: Sequence[int],
        kind: str,
        mbarrier: int,
        *,
        space: str = "shared::cluster",
        operation: str | None = None,
    ) -> None:
        super().__init__(block, thread, site)
        self.operation, self.kind = operation, kind
        if operation is not None:
            self.name, self.effect = "red.async", effect("red.async")
        size = type_bytes(kind)
        self.bytes = size * len(values)
        what = f"the goal of a {self.name}"
        rank, offset = shared_address(block, goal, what, space)
        aligned(offset, self.bytes, what)
        self._goal = in_shared(block, rank, offset, self.bytes, what)
        self._signal(mbarrier, space, rank)
        self._data = self._bytes(values)

    def _bytes(self, values: Sequence[int]) -> Bytes:
        size = type_bytes(self.kind)
        mask = (1 << 8 * size) - 1
        data = b"".join((value & mask).to_bytes(size, "little") for value in values)
        return np.frombuffer(data, np.uint8)

    @property
    def goals(self) -> list[Range]:
        """What it writes."""
        return [self._goal.range]

    def write(self) -> None:
        """Put the elements to shared memory, or combine them with what is there."""
        data = self._data
        if self.operation is not None:
            data = combined(self.operation, self.kind, self._goal.take(), data)
        self._goal.put(data)

    @property
    def sum(self) -> tuple[str, str]:
        """The operation, and the type of the elements."""
        return self.operation or "", self.kind

    def summands(
        self, block: CopyBlock, values: Sequence[int] = ()
    ) -> list[tuple[Bytes, Bytes]]:
        """What its goal holds in a block, and what was in registers."""
        data = self._bytes(values) if values else self._data
        return [(self._goal.on(block).take(), data)]

    def put_sums(self, block: CopyBlock, sums: Sequence[Bytes]) -> None:
        """Put something to its goal in a block."""
        self._goal.on(block).put(sums[0])

    def follow(self, shadow: CopyBlock, values: Sequence[int] = ()) -> Starts:
        """Put the shadows of the registers to those of shared memory."""
        place, data = self._goal.on(shadow), self._bytes(values)
        if self.operation is not None:
            data = spread(place.take() | data, type_bytes(self.kind))
        place.put(data)
        return self._undefined(shadow)


# ── prefetch ────────────────────────────────────────────────────────────────


class Prefetch(Copy):
    """``cp.async.bulk.prefetch``: it is checked, and does nothing."""

    name, effect = "bulk prefetch", effect("cp.async.bulk.prefetch")

    def __init__(
        self, block: CopyBlock, thread: Thread, site: int, source: int, size: int
    ) -> None:
        super().__init__(block, thread, site)
        aligned(source, UNIT, f"the source of a {self.name}")
        _whole_units(size, self.name)
