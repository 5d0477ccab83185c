"""Forms of ``wgmma.mma_async`` in memory: one instruction, and where its operands are.

A *form* belongs to a kernel.  A *bound form* belongs to a warpgroup: it has memory for
the registers that the product reads.  A *bundle* has the values of a D in all four
warps; bound forms with the same D share it.  A new warpgroup binds all forms that are
known at once: a *plan* says where everything is in one piece of memory.
:mod:`fragmenta.engine.units.fast.layout` says where everything is in a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.forking import Lock
from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.compiled import address_of, aligned
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.wgmma_operands import Located
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.records import Bytes, Record, Word
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.wgmma_sources import bad_descriptor

if TYPE_CHECKING:
    from fragmenta.reference.execution.warpgroup import WarpgroupFunction

WARPS = 4
ALL = 0xFFFFFFFF
_LINE = 16
"""Words of 64 bytes: registers of a warp begin at multiples of that."""


def signed(number: int) -> int:
    """64 bits as a signed number.

    >>> signed(1 << 63) == -(1 << 63)
    True
    """
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


# ── forms ───────────────────────────────────────────────────────────────────


class FormRecord(Record):
    """An instruction of a kernel."""

    number = Word(layout.FORM_NUMBER)

    def __init__(self, located: Located, number: int, target: str, size: int) -> None:
        super().__init__(aligned(layout.FORM_BYTES))
        self.located, self.number, self._size = located, number, size
        self._function = _function(located, target)
        self.call = self._function.traced.compile()
        read = located.read
        self._d = np.array(located.d, np.int64)
        self._inputs = np.array([each.offset for each in read], np.int64)
        self._known = np.zeros((2, layout.KNOWN), np.int64)
        self._write()

    def _write(self) -> None:
        of, scale = self.located, self.located.scale_d
        self.words[layout.FORM_A_SHARED >> 2] = not of.ways.a_from_registers
        in_place = self._function.in_place and _consecutive(self._d)
        self.words[layout.FORM_IN_PLACE >> 2] = in_place
        self.words[layout.FORM_D_COUNT >> 2] = self._d.size
        self.words[layout.FORM_INPUT_COUNT >> 2] = self._inputs.size
        self.words[layout.FORM_SCALE_D_CONSTANT >> 2] = scale.constant & 1
        self.words[layout.FORM_SCALE_D_NEGATED >> 2] = scale.negated
        places = layout.FORM_DESCRIPTORS >> 3
        self.longs[places : places + 4] = -1, 0, -1, 0
        for number, each in enumerate(of.descriptors):
            pair = each.offset, signed(each.constant)
            self.longs[places + 2 * number : places + 2 * number + 2] = pair
        for offset, value in (
            (layout.FORM_FUNCTION, self._function.address),
            (layout.FORM_D, address_of(self._d)),
            (layout.FORM_INPUTS, address_of(self._inputs)),
            (layout.FORM_SCALE_D, scale.offset),
            (layout.FORM_SELECTOR, of.selector),
            (layout.FORM_KNOWN, address_of(self._known[0])),
            (layout.FORM_KNOWN + 8, address_of(self._known[1])),
        ):
            self.longs[offset >> 3] = value

    def bad(self, given: Sequence[int]) -> str:
        """What is wrong with descriptors; "" and remembered if nothing is."""
        of, ways = self.located.op, self.located.ways
        names = "B" if ways.a_from_registers else "AB"
        for name, word, known in zip(names, given, self._known, strict=False):
            trans = ways.trans_a if name == "A" else ways.trans_b
            wrong = bad_descriptor(of, name, word, trans, self._size)
            if wrong:
                return wrong
            _remember(known, word)
        return ""


def known_places(word: int) -> list[int]:
    """The places where machine code looks for a descriptor."""
    start = (word * layout.HASH & (1 << 64) - 1) >> 56
    return [(start + probe) % layout.KNOWN for probe in range(layout.PROBES)]


def _remember(known: NDArray[np.int64], word: int) -> None:
    """Put a descriptor where machine code looks for it."""
    places = known_places(word)
    there = known[places].tolist()
    if signed(word) not in there:
        known[places[there.index(0) if 0 in there else 0]] = signed(word)


@once
def _function(located: Located, target: str) -> WarpgroupFunction:
    from fragmenta.reference.execution.warpgroup import warpgroup_function

    ways = located.ways
    return warpgroup_function(
        located.op,
        target,
        a_from_registers=ways.a_from_registers,
        imm_scale_a=ways.imm_scale_a,
        imm_scale_b=ways.imm_scale_b,
        trans_a=ways.trans_a,
        trans_b=ways.trans_b,
    )


class Forms:
    """The forms of a kernel, each made at its first use.

    ``size`` are the bytes of the shared memory of a block.
    """

    def __init__(self, target: str, size: int) -> None:
        self._target, self._size = target, size
        self._made: dict[Located, FormRecord] = {}
        self._lock = Lock()
        self.by_address: dict[int, FormRecord] = {}
        self._plan = BundlePlan(())

    @property
    def plan(self) -> BundlePlan:
        """Where a warpgroup has the forms that are known by now."""
        if len(self._plan.forms) != len(self._made):
            with self._lock:
                self._plan = BundlePlan(tuple(self._made.values()))
        return self._plan

    def of(self, located: Located) -> FormRecord:
        """The form of an instruction."""
        found = self._made.get(located)
        if found is None:
            with self._lock:
                found = self._made.get(located)
                if found is None:
                    number = len(self._made)
                    found = FormRecord(located, number, self._target, self._size)
                    self.by_address[found.address] = found
                    self._made[located] = found
        return found


# ── registers ───────────────────────────────────────────────────────────────


def _consecutive(offsets: NDArray[np.int64]) -> bool:
    """Whether registers of a warp follow each other."""
    return bool((np.diff(offsets) == 4 * LANES).all())


class Registers:
    """Some registers of 32 bits of one warp."""

    def __init__(self, words: NDArray[np.uint32], offsets: Sequence[int]) -> None:
        self.offsets = tuple(offsets)
        places = np.array(offsets, np.int64) // 4
        self._shape = len(offsets), LANES
        first = int(places[0])
        #: A view of them, if one follows the other.
        self._view: NDArray[np.uint32] | None = None
        if _consecutive(np.array(offsets, np.int64)):
            self._view = words[first : first + places.size * LANES].reshape(self._shape)
        self._lines = words.reshape(-1, _LINE)
        self._places = (places // _LINE)[:, None] + np.arange(LANES // _LINE)

    def get(self, goal: NDArray[np.uint32]) -> None:
        """Copy their values, (registers, lanes)."""
        if self._view is not None:
            goal[...] = self._view
        else:
            goal[...] = self._lines[self._places].reshape(self._shape)

    def put(self, values: NDArray[np.uint32]) -> None:
        """Set them."""
        if self._view is not None:
            self._view[...] = values
        else:
            self._lines[self._places] = values.reshape((*self._places.shape, _LINE))

    def fill(self, value: int) -> None:
        """Set them all to one value."""
        if self._view is not None:
            self._view.fill(value)
        else:
            self._lines[self._places] = value


_ROW = 4 * WARPS * LANES
"""Bytes of a register of all four warps."""


def _rows(memory: Bytes) -> NDArray[np.uint32]:
    """Memory for registers of all four warps."""
    return memory.view(np.uint32).reshape(-1, WARPS * LANES)


class Bundle(Record):
    """The registers of D of some products, with their values in all four warps."""

    def __init__(
        self,
        offsets: tuple[int, ...],
        words: Sequence[NDArray[np.uint32]],
        memory: Bytes | None = None,
    ) -> None:
        if memory is None:
            memory = aligned(bundle_bytes(offsets))
        super().__init__(memory[: layout.BUNDLE_BYTES])
        self.offsets = offsets
        self.values = _rows(memory[layout.BUNDLE_BYTES :])
        self.longs[layout.BUNDLE_VALUES >> 3] = address_of(self.values)
        self.parts = [
            self.values[:, LANES * warp : LANES * (warp + 1)] for warp in range(WARPS)
        ]
        self.registers = [Registers(each, offsets) for each in words]
        self.pending = self.words[layout.BUNDLE_PENDING >> 2 :][:WARPS]
        """Products that each warp has issued and that have not run."""


class Bound(Record):
    """A form in one warpgroup, with memory for what it reads from registers."""

    def __init__(
        self,
        form: FormRecord,
        bundle: Bundle,
        words: Sequence[NDArray[np.uint32]],
        memory: Bytes | None = None,
    ) -> None:
        if memory is None:
            memory = aligned(bound_bytes(form.located))
        super().__init__(memory[: layout.BOUND_BYTES])
        located = form.located
        self.form, self.bundle = form, bundle
        read = located.read
        inputs = self._kept = _rows(memory[layout.BOUND_BYTES :])
        self.inputs = []
        """Registers of A and metadata, and where they are copied to."""
        for row, each in zip(inputs, read, strict=False):
            row[:] = each.constant & ALL
            for warp, of in enumerate(words if each.offset >= 0 else ()):
                goal = row[LANES * warp : LANES * (warp + 1)].reshape(1, LANES)
                self.inputs.append((goal, Registers(of, [each.offset])))
        self.metadata = inputs[len(located.a)] if located.metadata else inputs[0]
        """The words of all lanes, if it has metadata."""
        for offset, part in (
            (layout.BOUND_BUNDLE, bundle.raw),
            (layout.BOUND_INPUTS, inputs),
            (layout.BOUND_METADATA, self.metadata),
        ):
            self.longs[offset >> 3] = address_of(part)
        self._arguments = address_of(bundle.values), address_of(inputs)
        self._metadata = address_of(self.metadata)

    def multiply(self, product: int, shared: int, size: int) -> int:
        """Add a product to the values of the bundle; 0 if that could be done.

        ``product`` and ``shared`` are addresses of its record and of shared memory.
        """
        for goal, register in self.inputs:
            register.get(goal)
        return self.form.call(
            *self._arguments,
            product + layout.PRODUCT_DESCRIPTORS,
            shared,
            size,
            self._metadata,
            product + layout.PRODUCT_SCALE_D,
            WARPS * LANES,
            LANES,
        )


# ── all forms of a warpgroup ────────────────────────────────────────────────


def bundle_bytes(offsets: Sequence[int]) -> int:
    """Bytes of a bundle: its record, and the values of its registers."""
    return layout.BUNDLE_BYTES + _ROW * len(offsets)


def bound_bytes(located: Located) -> int:
    """Bytes of a bound form: its record, and the values that it reads."""
    return layout.BOUND_BYTES + _ROW * max(len(located.read), 1)


class BundlePlan:
    """Where the bundles and the bound forms of a warpgroup are in one piece of memory.

    Forms that read constants are bound one by one.
    """

    def __init__(self, forms: Sequence[FormRecord]) -> None:
        self.forms = forms
        self.bundles: dict[tuple[int, ...], slice] = {}
        self.bound: dict[FormRecord, slice] = {}
        self.bytes = 0
        for form in forms:
            if all(each.offset >= 0 for each in form.located.read):
                d = form.located.d
                if d not in self.bundles:
                    self.bundles[d] = self._room(bundle_bytes(d))
                self.bound[form] = self._room(bound_bytes(form.located))
        registers = [each for d in self.bundles for each in d]
        self.disjoint = len(registers) == len({*registers})
        """Whether no register is in two bundles."""
        starts = [each.start for each in self.bundles.values()]
        first = np.array(starts, np.int64)[:, None] + layout.BUNDLE_PENDING
        self._pending = first // 4 + np.arange(WARPS)
        self._write_pointers()

    def _room(self, size: int) -> slice:
        start, self.bytes = self.bytes, self.bytes + size
        return slice(start, self.bytes)

    def _write_pointers(self) -> None:
        """Note where pointers are, and what they point to."""
        self._numbers = np.array([form.number for form in self.bound], np.int64)
        self._bound_at = np.array([e.start for e in self.bound.values()], np.int64)
        found = [
            (each.start + layout.BUNDLE_VALUES, each.start + layout.BUNDLE_BYTES)
            for each in self.bundles.values()
        ]
        for form, each in self.bound.items():
            inputs = each.start + layout.BOUND_BYTES
            metadata = _ROW * len(form.located.a) if form.located.metadata else 0
            found += [
                (each.start + layout.BOUND_BUNDLE, self.bundles[form.located.d].start),
                (each.start + layout.BOUND_INPUTS, inputs),
                (each.start + layout.BOUND_METADATA, inputs + metadata),
            ]
        pointers = np.array(found, np.int64).reshape(-1, 2)
        self._places, self._goals = pointers[:, 0] // 8, pointers[:, 1]

    def made(self, addresses: NDArray[np.int64]) -> Bytes:
        """Memory with all of them; ``addresses`` gets where each bound form is."""
        memory = aligned(self.bytes)
        base = address_of(memory)
        memory.view(np.int64)[self._places] = self._goals + base
        addresses[self._numbers] = self._bound_at + base
        return memory

    def renewed(self, memory: Bytes, resets: ResetSchedule) -> None:
        """Tell what :meth:`clear` clears."""
        words = memory.view(np.int32)
        for first in self._pending[:, 0].tolist():
            resets.clear(words[first : first + WARPS])

    def clear(self, memory: Bytes) -> None:
        """No product is pending."""
        memory.view(np.int32)[self._pending] = 0
