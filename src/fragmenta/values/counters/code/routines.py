"""Routines that count what an access moves, in compiled code."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I8,
    I32,
    I64,
    Code,
    Value,
    compare_unsigned,
    convert,
    intrinsic,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import (
    POINTER,
    Routine,
    as_signed,
    field,
    pointer_at,
)
from fragmenta.engine.simt.memory import (
    AccessForm,
    addresses,
    has,
    inside,
    lane_of,
    pointer,
    segment,
    spill,
)
from fragmenta.engine.simt.passes import passes
from fragmenta.engine.simt.warps import routine, to_word
from fragmenta.reference.isa.instruction_descriptor import TABLES
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND, WIDE_K
from fragmenta.reference.shared.banks import WORD
from fragmenta.reference.shared.tensor_map import FIELD, element_types
from fragmenta.values.counters.code import layout as at

PAIRED_BYTES = 16
"""Accesses of so many bytes of which more lanes are served at once."""
_GIVEN = [POINTER, POINTER, POINTER, I64, I32, I32]


def _site(code: Code, block: Raw, number: Value) -> Raw:
    """The record of a site."""
    base = pointer_at(code, block, layout.BLOCK_COUNTERS)
    return code.builder.gep(base, [convert(number, I64, signed=False).raw])


def _add(code: Code, record: Raw, place: int, number: Value) -> None:
    cell = field(code, record, place, I64)
    cell[0] = cell[0] + convert(number, I64, signed=False)


def _ones(code: Code, word: Value) -> Value:
    return Value(
        code.builder, intrinsic(code.builder, "llvm.ctpop.i32", I32, [word.raw])
    )


# ── global and generic addresses ────────────────────────────────────────────


def counted_global(
    access: AccessForm,
    *,
    reads: bool = False,
    writes: bool = False,
    past_l1: bool = False,
) -> Routine:
    """The routine that counts an access by generic addresses; an atomic does both.

    Lanes whose address is in shared memory are counted there; those in local memory and
    among the parameters nowhere.  ``number`` is where the record of the site is.
    ``past_l1``: its sectors are counted where it writes, by :func:`counted_goal`.
    """
    name = f"count.{reads:d}{writes:d}.{access.bytes}.a{access.address}.{int(past_l1)}"

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        number: Value,
    ) -> None:
        where = addresses(code, register, access.address, offset)
        slots = shift_unsigned(where, layout.SLOT_BITS)
        far = (slots >= layout.FIRST_ARGUMENT) & (slots < layout.FIRST_CONSTANT)
        distant = to_word(far) & lanes
        record = _site(code, block, number)
        with code.when(distant != 0):
            count = _sectors(code, block, where, distant, reads, writes)
            _add(code, record, at.SITE_REQUESTS, lanes.lift(1))
            _add(code, record, at.SITE_THREADS, _ones(code, distant))
            if not past_l1:
                _add(code, record, at.SITE_SECTORS, count)
        near = to_word(slots == layout.SHARED_SLOT) & lanes
        with code.when(near != 0):
            _passes(code, record, access, where, near)

    return routine(name, trace, _GIVEN, None)


def _sectors(
    code: Code,
    block: Raw,
    where: Value,
    lanes: Value,
    reads: bool,
    writes: bool,
) -> Value:
    """The sectors of an access: a lane that is the first in its sector counts.

    Atomics of one address are done one after the other.  So they take turns, and in
    each turn a sector counts again.
    """
    ids = shift_unsigned(where, at.SECTOR.bit_length() - 1)
    spilled, starts = spill(code, ids), spill(code, where)
    turns = _turns(code, where, starts, lanes) if reads and writes else None
    count = code.variable(lanes.lift(0))
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        same = _same_before(code, ids, spilled, lanes, lane)
        with code.when(same == 0):
            _mark(code, block, lane_of(code, starts, lane), reads, writes)
        if turns is not None:
            vector, memory = turns
            same = same & to_word(vector == vector.lift(lane_of(code, memory, lane)))
        count.value = count.value + convert(same == 0, I32, signed=False)
    value: Value = count.value
    return value


def _same_before(
    code: Code, numbers: Value, spilled: Raw, lanes: Value, lane: Value
) -> Value:
    """The lanes before one that have the same number, which is spilled, too."""
    place = convert(lane, I32)
    earlier = lanes & ((place.lift(1) << place) - 1)
    return to_word(numbers == numbers.lift(lane_of(code, spilled, lane))) & earlier


def counted_goal(bits: int) -> Routine:
    """The routine that counts the sectors of shared memory that ``cp.async.cg`` fills.

    It goes past the L1 cache: a GPU counts 32 bytes of its goal as a sector, wherever
    they come from (seen on an H200).
    """
    name = f"count.goal.{bits}"

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        number: Value,
    ) -> None:
        ids = shift_unsigned(
            addresses(code, register, bits, offset), at.SECTOR.bit_length() - 1
        )
        spilled, count = spill(code, ids), code.variable(lanes.lift(0))
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            same = _same_before(code, ids, spilled, lanes, lane)
            count.value = count.value + convert(same == 0, I32, signed=False)
        _add(code, _site(code, block, number), at.SITE_SECTORS, count.value)

    return routine(name, trace, _GIVEN, None)


def _turns(code: Code, where: Value, starts: Raw, lanes: Value) -> tuple[Value, Raw]:
    """For each lane, how many lanes before it have the same address."""
    b = code.builder
    vector = ir.VectorType(I32, LANES)
    place = code.array(vector)
    b.store(ir.Constant(vector, [0] * LANES), place)
    memory = b.bitcast(place, I32.as_pointer())
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        same = _same_before(code, where, starts, lanes, lane)
        b.store(_ones(code, same).raw, b.gep(memory, [lane.raw]))
    return Value(b, b.load(place)), memory


def _mark(code: Code, block: Raw, address: Value, reads: bool, writes: bool) -> None:
    """Note that a sector of a segment was touched."""
    b = code.builder
    counters = pointer_at(code, block, layout.BLOCK_COUNTERS)
    table = pointer_at(code, counters, at.FOOTPRINTS)
    slot = shift_unsigned(address, layout.SLOT_BITS)
    record = b.gep(table, [(slot * at.FOOTPRINT_BYTES).raw])
    sector = shift_unsigned(
        address & ((1 << layout.SLOT_BITS) - 1), at.SECTOR.bit_length() - 1
    )
    most = field(code, record, at.FOOTPRINT_SECTORS, I64)[0]
    with code.when(compare_unsigned("<", sector, most)):
        for wanted, place in (
            (reads, at.FOOTPRINT_READ),
            (writes, at.FOOTPRINT_WRITTEN),
        ):
            if wanted:
                goal = b.gep(pointer_at(code, record, place), [sector.raw])
                b.store(ir.Constant(I8, 1), goal)


# ── shared memory ───────────────────────────────────────────────────────────


def counted_shared(access: AccessForm, rows: bool = False) -> Routine:
    """The routine that counts the passes of an access of shared memory.

    ``rows``: it is an ``ldmatrix`` or ``stmatrix``.
    """
    name = f"count.shared.{access.bytes}.a{access.address}.{int(rows)}"

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        number: Value,
    ) -> None:
        with code.when(lanes != 0):
            where = addresses(code, register, access.address, offset)
            record = _site(code, block, number)
            _passes(code, record, access, where, lanes, rows)

    return routine(name, trace, _GIVEN, None)


def _passes(
    code: Code,
    record: Raw,
    access: AccessForm,
    where: Value,
    lanes: Value,
    rows: bool = False,
) -> None:
    words = spill(code, convert(shift_unsigned(where, 2), I32))
    if access.bytes == PAIRED_BYTES and not rows:
        words, lanes = _paired(code, words, lanes)
    taken, least = passes(code, max(1, access.bytes // WORD), words, lanes)
    _add(code, record, at.SITE_SHARED, lanes.lift(1))
    _add(code, record, at.SITE_PASSES, taken)
    _add(code, record, at.SITE_LEAST, least)


def _paired(code: Code, words: Raw, lanes: Value) -> tuple[Raw, Value]:
    """Lanes of which a half of the warp is served at once, if they come in pairs.

    Of 16 bytes for each lane, eight lanes are served at once.  If lanes 2i and 2i + 1
    of a half want the same bytes, its 16 lanes are (seen on an H200).
    """
    b = code.builder
    moved = code.array(ir.VectorType(I32, LANES))
    goal = b.bitcast(moved, I32.as_pointer())
    chosen = code.variable(lanes)
    with code.loop(LANES) as lane:
        b.store(lane_of(code, words, lane).raw, b.gep(goal, [lane.raw]))
    for half in (0, LANES // 2):
        alike = code.variable(lanes.lift(1))
        with code.loop(LANES // 4) as pair:
            even = pair * 2 + half
            both = has(lanes, even) & has(lanes, even + 1)
            equal = lane_of(code, words, even) == lane_of(code, words, even + 1)
            with code.when(both & ~equal):
                alike.value = lanes.lift(0)
        with code.when(alike.value != 0):
            kept = code.variable(lanes.lift(0))
            with code.loop(LANES // 4) as pair:
                even = pair * 2 + half
                first = convert(~has(lanes, even), I64, signed=False)
                word = lane_of(code, words, even + first)
                b.store(word.raw, b.gep(goal, [(pair + half).raw]))
                some = has(lanes, even) | has(lanes, even + 1)
                bit = convert(some, I32, signed=False)
                kept.value = kept.value | (bit << convert(pair + half, I32))
            rest = 0xFFFF << (LANES // 2 - half)  # the other half
            chosen.value = (chosen.value & as_signed(rest, 32)) | kept.value
    return goal, chosen.value


# ── bulk copies ─────────────────────────────────────────────────────────────


_Lane = Callable[[Code, Raw, Raw, Value], None]
"""Counts what one lane gives: of the code, the block, the record and the number."""


def _of_each_lane(name: str, bits: int, count: _Lane) -> Routine:
    """A routine that counts the numbers that lanes give, of so many bits."""

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        number: Value,
    ) -> None:
        record = _site(code, block, number)
        given = spill(code, addresses(code, register, bits, offset))
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            count(code, block, record, lane_of(code, given, lane))

    return routine(name, trace, _GIVEN, None)


def counted_size(bits: int) -> Routine:
    """The routine that adds the sizes that lanes give, of so many bits."""

    def count(code: Code, block: Raw, record: Raw, size: Value) -> None:
        _add(code, record, at.SITE_BYTES, size)
        _add(code, record, at.SITE_THREADS, code.constant(1, I32))

    return _of_each_lane(f"count.size.{bits}", bits, count)


def counted_products(bits: int, kind: str) -> Routine:
    """The routine that adds the products of ``tcgen05.mma`` of a kind.

    Lanes give instruction descriptors of so many bits, which have M and N.
    """
    rows = {row["field"]: row for row in read(TABLES[kind])}

    def size(word: Value, axis: str) -> Value:
        low, width, unit = (int(rows[axis][each]) for each in ("low", "bits", "unit"))
        return (shift_unsigned(word, low) & ((1 << width) - 1)) * unit

    def count(code: Code, block: Raw, record: Raw, word: Value) -> None:
        depth = word.lift(OF_KIND[kind].k[0])
        if "wide" in rows:
            is_wide = shift_unsigned(word, int(rows["wide"]["low"])) & 1
            depth = select(is_wide != 0, word.lift(WIDE_K), depth)
        made = size(word, "m") * size(word, "n") * depth
        _add(code, record, at.SITE_PRODUCTS, made)

    return _of_each_lane(f"count.products.{bits}.{kind}", bits, count)


def counted_box(bits: int, rows: bool) -> Routine:
    """The routine that adds the bytes of the boxes of tensor maps.

    ``rows``: it moves four rows of a tensor, not a box.
    """

    def count(code: Code, block: Raw, record: Raw, address: Value) -> None:
        where = segment(code, block, address)
        with code.when(inside(where, address, 128)):
            given = pointer(code, where, address, I8)
            _add(code, record, at.SITE_BYTES, _box_bytes(code, given, rows))
        _add(code, record, at.SITE_THREADS, code.constant(1, I32))

    return _of_each_lane(f"count.box.{bits}.{int(rows)}", bits, count)


def _bits(code: Code, given: Raw, name: str, index: int = 0) -> Value:
    """A number of a tensor map, as it is stored."""
    of = FIELD[name]
    low = of.low + index * of.step
    word = field(code, given, low // 64 * 8, I64)[0]  # no field is in two words
    return shift_unsigned(word, low % 64) & ((1 << of.bits) - 1)


def _box_bytes(code: Code, given: Raw, rows: bool) -> Value:
    """The bytes of a box; what is outside the tensor counts, too."""
    sizes = [0] * 16
    for each in element_types(packed=True):
        sizes[each.code] = each.bits
    table = code.table(sizes, I64)
    rank = _bits(code, given, "rank") + 1
    total = table[_bits(code, given, "code")]
    for axis in range(1 if rows else 5):
        count = _bits(code, given, "box", axis) + 1
        step = _bits(code, given, "element_strides", axis) + 1
        taken = (count + step - 1) // step
        total = total * select(rank > axis, taken, taken.lift(1))
    total = total // 8
    if rows:
        return total * 4
    column = _bits(code, given, "im2col") != 0
    return select(column, _bits(code, given, "bytes"), total)
