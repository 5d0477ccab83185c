"""Forms of ``tcgen05.mma`` in memory: an instruction with its descriptor.

All launches of a kernel share them.  A :class:`TensorForm` has tables of where the
elements of each operand are, so that machine code can gather them
(:mod:`fragmenta.engine.units.fast.tensor_products`).  A form that the steps there do
not compute has no function; then Python computes the product.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.forking import Lock
from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.compiled import address_of, aligned
from fragmenta.engine.units import event_table, tensor_steps
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.fast import tensor_layout as at
from fragmenta.engine.units.records import Record
from fragmenta.engine.units.records import signed as signed_word
from fragmenta.engine.units.tcgen05_sources import read_ranges
from fragmenta.engine.units.wgmma_forms import known_places, signed
from fragmenta.engine.units.work import Range
from fragmenta.reference.arithmetic.blocks import PANEL
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.registers.tensor_fragment import TensorAddress, TensorFragment
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.operands import extent, major_of
from fragmenta.reference.shared.swizzles import pattern

Places = NDArray[np.int64]
_CELL = 4
"""Bytes of a cell."""
_LINE = 64


class UnitOffsets(NamedTuple):
    """Where the units of an operand are, in bytes.

    Elements with less than 8 bits are units themselves.  Then the places are in bits,
    and the unit is the bits of an element, negative.
    """

    places: NDArray[np.int32]
    unit: int
    copies: int = 1

    @property
    def units(self) -> int:
        """How many units there are, of one copy."""
        return self.places.size // self.copies


def _table(places: Places, size: int, copies: int = 1, most: int = 16) -> UnitOffsets:
    """A table of elements of so many bytes; neighbours are one unit, up to ``most``.

    >>> _table(np.arange(0, 32, 2), 2)
    UnitOffsets(places=array([ 0, 16], dtype=int32), unit=16, copies=1)
    """
    flat = places.reshape(-1)
    for unit in (16, 4, 2, 1):
        per = unit // size
        if not per or unit > most or flat.size % (per * copies):
            continue
        groups = flat.reshape(-1, per)
        if (groups == groups[:, :1] + np.arange(per) * size).all():
            return UnitOffsets(groups[:, 0].astype(np.int32), unit, copies)
    raise AssertionError("elements of 1, 2, 4 or 16 bytes are units themselves")


# ── operands ────────────────────────────────────────────────────────────────


def _panels(places: Places) -> Places:
    """(rows, columns) as (panels, rows, 8)."""
    rows, columns = places.shape[-2:]
    parted = places.reshape(-1, rows, columns // PANEL, PANEL)
    return parted.swapaxes(-3, -2)


@lru_cache(maxsize=1024)
def _in_shared(
    op: Op, name: str, of: Descriptor, order: tuple[int, ...], panels: bool
) -> UnitOffsets:
    """Where A or B is in shared memory, in the order that the steps want."""
    (rows, k), kind = extent(op, name), op.types[name.lower()]
    row, along = np.ogrid[:rows, :k]
    major = major_of(op, name)
    bits = np.asarray(of.bit_address(row, along, kind, major, op.kind), np.int64)
    narrow = kind.bits < 8
    found = (bits if narrow else bits // 8)[:, list(order)]
    if op.cta_group == 2:  # rows of A, columns of B
        found = np.concatenate([found, found + at.SECOND])
    if name == "B":
        found = _panels(found.T) if panels else found.T
    if narrow:
        return UnitOffsets(found.reshape(-1).astype(np.int32), -kind.bits)
    return _table(found, kind.bits // 8)


@lru_cache(maxsize=1024)
def _in_cells(
    op: Op, name: str, lane: int, order: tuple[int, ...], panels: bool
) -> UnitOffsets:
    """Where an operand is in tensor memory, if its address has column 0."""
    part = _tensor_part(op, name)
    size = part.container.bits // 8
    index = part.slots(TensorAddress(lane, 0))
    block, slot = np.divmod(index, at.LANES * at.COLUMNS * part.elements)
    places = slot * size + block * at.SECOND
    if order:
        rows = places.reshape(len(places), *part.shape)
        places = rows[..., list(order)].reshape(len(places), -1)
    if panels and name in ("D", "scale_B"):
        rows = places.reshape(len(places), *part.shape)
        places = _panels(rows).reshape(len(places), -1)
    # An f16 of D is converted cell by cell.
    single = name == "D" and part.container.width != part.container.bits
    return _table(places, size, len(places), size if single else 16)


def _tensor_part(op: Op, name: str) -> TensorFragment:
    part = op.fragment(name)
    assert isinstance(part, TensorFragment)
    return part


def suits(op: Op, model: Model, a_in_cells: bool) -> bool:
    """Whether the steps compute an instruction, and its bytes are its elements."""
    word = op.descriptor
    assert word is not None
    special = (
        op.sparse
        or word.negate_a
        or word.negate_b
        or any(op.values.get(name) for name in ("ashift", "lut"))
    )
    same = model.c == model.d == model.accumulator
    if special or not same or not tensor_steps.computes(model):
        return False
    names = [*(["A"] if a_in_cells else []), *(_SCALES if op.scale_vec else [])]
    for container in (op.fragment(name).container for name in names):
        if container.width != container.bits or container.bits % 8:
            return False
    return bool(op.fragment("D").container.bits == 8 * _CELL)


_SCALES = ("scale_A", "scale_B")
_NAMES = ("A", "B", "D", *_SCALES)


# ── forms ───────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4096)
def _apart(word: int) -> tuple[Descriptor, int]:
    """The descriptor in the first repeat of its swizzle, and how far away that is."""
    of = Descriptor.decode(word, "tcgen05")
    repeat = pattern(of.swizzle).repeat
    first = 0 if of.absolute else of.start // repeat * repeat
    return replace(of, start=of.start - first), first


class OperandDescriptor(Record):
    """What a descriptor says about A or B."""

    def __init__(
        self, word: int, table: UnitOffsets, start: int, reads: Sequence[Range]
    ) -> None:
        super().__init__(aligned(at.SOURCE_BYTES))
        self._table = table
        self._starts = [each.starts.astype(np.uint32) for each in reads]
        self._ranges = np.array(
            [
                (address_of(starts), starts.size, each.size)
                for starts, each in zip(self._starts, reads, strict=True)
            ],
            np.int64,
        )
        for offset, number in (
            (at.SOURCE_WORD, signed(word)),
            (at.SOURCE_TABLE, address_of(table.places)),
            (at.SOURCE_START, start),
            (at.SOURCE_READS, address_of(self._ranges)),
            (at.SOURCE_READS_COUNT, len(self._ranges)),
        ):
            self.longs[offset >> 3] = number
        self.words[at.SOURCE_UNIT >> 2] = table.unit
        self.words[at.SOURCE_COUNT >> 2] = table.units


@lru_cache(maxsize=4096)
def footprint(
    op: Op, name: str, lane: int
) -> tuple[tuple[int, tuple[int, ...], int, int], ...]:
    """For each block of the pair: the lanes, the first column, how many there are."""
    used = _tensor_part(op, name).cells(address=TensorAddress(lane, 0))
    found = []
    for number, each in enumerate(used if used.ndim == 3 else used[None]):
        lanes = tuple(np.flatnonzero(each.any(axis=1)).tolist())
        columns = np.flatnonzero(each.any(axis=0))
        first, last = int(columns[0]), int(columns[-1])
        found.append((number, lanes, first, last + 1 - first))
    return tuple(found)


def write_region(
    memory: NDArray[np.uint8], lanes: Iterable[int], first: int, columns: int
) -> None:
    """Write some lanes, and columns from that of an address on."""
    record, mask = Record(memory), sum(1 << each for each in lanes)
    for half in range(2):
        word = signed(mask >> 64 * half & (1 << 64) - 1)
        record.longs[(at.REGION_LANES >> 3) + half] = word
    record.words[at.REGION_FIRST >> 2] = first
    record.words[at.REGION_COLUMNS >> 2] = columns


class Key(NamedTuple):
    """What a form is made for."""

    op: Op
    idesc: int
    lanes: tuple[int | None, ...]
    """The lanes of the addresses of A, B, D and the scales; None: no address."""


class TensorForm(Record):
    """An instruction of a launch, and where its operands are."""

    def __init__(self, key: Key, target: str) -> None:
        super().__init__(aligned(at.FORM_BYTES))
        self.key, op = key, key.op
        self.model = numeric_model(op, chosen_target(op, target))
        chosen = self.model.order if self.model.reordered else range(self.model.stored)
        self._order = tuple(chosen)
        self._known = np.zeros((2, fast.KNOWN), np.int64)
        self._made: dict[tuple[int, int], OperandDescriptor] = {}
        self.sources: dict[int, tuple[str, int]] = {}
        """The operand and the descriptor of each source, by its address."""
        self._kept: list[object] = []
        self._lock = Lock()
        self.words[at.FORM_PAIR >> 2] = op.cta_group == 2
        self.words[at.FORM_IDESC >> 2] = signed_word(key.idesc)
        self.words[at.FORM_SHAPE >> 2 : (at.FORM_SHAPE >> 2) + 2] = op.shape[:2]
        for number in range(2):
            place = (at.FORM_SOURCES >> 3) + number
            self.longs[place] = address_of(self._known[number])
        self.able = suits(op, self.model, key.lanes[at.A] is not None)
        """Whether machine code computes it."""
        if self.able:
            self._write()

    def _write(self) -> None:
        op, model = self.key.op, self.model
        m, n = op.shape[:2]
        steps = tensor_steps.steps(model, m, n)
        numbers = np.array(steps.numbers, np.int64)
        self._kept += [steps, numbers]
        self.words[at.FORM_KIND >> 2] = steps.kind
        self.words[at.FORM_HALF >> 2] = model.d == "f16"
        self.words[at.FORM_SCALED >> 2] = bool(op.scale_vec)
        for offset, number in (
            (at.FORM_NUMBERS, address_of(numbers)),
            (at.FORM_BLOCKS, steps.blocks),
            (at.FORM_D_BYTES, m * n * _CELL),
            (at.FORM_FUNCTION, steps.address),
        ):
            self.longs[offset >> 3] = number
        sizes = [
            *(
                rows * len(self._order) * op.types[name].bits_dtype.itemsize
                for rows, name in ((m, "a"), (n, "b"))
            ),
            m * n * _CELL,
            *(rows * model.scale_vec for rows in (m, n)),
        ]
        start = 0
        for number, size in enumerate([*sizes, 0]):
            self.longs[(at.FORM_ROOM >> 3) + number] = start
            start += -(-size // _LINE) * _LINE
        assert start + _LINE + steps.work <= at.SCRATCH
        for number, lane in enumerate(self.key.lanes):
            if lane is not None:
                self._write_cells(number, lane)

    def _write_cells(self, number: int, lane: int) -> None:
        """Write the table of an operand in tensor memory."""
        order = self._order if number == at.A else ()
        panels = tensor_steps.in_panels(self.model)
        table = _in_cells(self.key.op, _NAMES[number], lane, order, panels)
        self._kept.append(table)
        start = at.FORM_PARTS + number * at.PART_BYTES
        self.longs[(start + at.PART_TABLE) >> 3] = address_of(table.places)
        for offset, value in (
            (at.PART_UNIT, table.unit),
            (at.PART_COUNT, table.units),
            (at.PART_COPIES, table.copies),
            (at.PART_LANE, lane),
        ):
            self.words[(start + offset) >> 2] = value
        shapes = footprint(self.key.op, _NAMES[number], lane)
        for block in range(2):
            _, lanes, first, columns = shapes[block % len(shapes)]
            place = start + at.PART_REGIONS + block * at.REGION_BYTES
            region = self.raw[place : place + at.REGION_BYTES]
            write_region(region, lanes, first, columns)

    def source(self, number: int, word: int) -> OperandDescriptor:
        """What a descriptor of A or B says; it must be right for this instruction."""
        found = self._made.get((number, word))
        if found is None:
            with self._lock:
                found = self._made.get((number, word))
                if found is None:
                    found = self._made[number, word] = self._make(number, word)
        return found

    def _make(self, number: int, word: int) -> OperandDescriptor:
        base, first = _apart(word)
        op, name = self.key.op, _NAMES[number]
        panels = tensor_steps.in_panels(self.model)
        table = _in_shared(op, name, base, self._order, panels)
        made = OperandDescriptor(word, table, first, read_ranges(op, name, word)[0])
        known = self._known[number]
        self.sources[made.address] = name, word
        places = known_places(word)
        # What was there before is kept: another thread may read it just now.
        free = next((e for e in places if not known[e]), places[0])
        known[free] = made.address
        return made


class TensorForms:
    """The forms of a launch, each made at its first use."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._made: dict[Key, TensorForm] = {}
        self.by_address: dict[int, TensorForm] = {}
        self._lock = Lock()

    def named(self, source: int) -> tuple[Op, str, int]:
        """The instruction, the operand and the descriptor of a source at an address."""
        for form in tuple(self.by_address.values()):
            if source in form.sources:
                return form.key.op, *form.sources[source]
        raise AssertionError("sources are kept as long as their forms")

    def of(self, key: Key) -> TensorForm:
        """The form of an instruction."""
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key)
                if found is None:
                    found = self._made[key] = TensorForm(key, self._target)
                    self.by_address[found.address] = found
        return found


class TensorProduct(Record):
    """A product, as machine code takes it."""

    def __init__(
        self,
        form: TensorForm,
        places: Sequence[int],
        enable: int,
        tensors: Sequence[int],
        shared: Sequence[int],
    ) -> None:
        super().__init__(aligned(at.PRODUCT_BYTES))
        self.form = form
        self.longs[at.PRODUCT_FORM >> 3] = form.address
        for offset, some in (
            (at.PRODUCT_PLACES, places),
            (at.PRODUCT_ENABLE, [enable]),
            (at.PRODUCT_TENSORS, [tensors[0], tensors[-1]]),
            (at.PRODUCT_SHARED, [shared[0], shared[-1]]),
        ):
            self.longs[offset >> 3 : (offset >> 3) + len(some)] = some


@once
def multiply() -> Callable[[int], int]:
    """The machine code that computes a product, given where its record is."""
    # Tracing takes a while to import.
    from fragmenta.engine.units.fast.tensor_products import MULTIPLY

    kinds = (ctypes.c_void_p,)
    return event_table.code().function(MULTIPLY, *kinds, returns=ctypes.c_int32)
