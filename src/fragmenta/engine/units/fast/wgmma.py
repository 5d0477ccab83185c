"""Fast paths of ``wgmma``: products are issued, committed and waited for.

Python makes the form of an instruction, and binds it in a warpgroup, when it is first
used there.  It also looks at every descriptor once.  A product that fails in machine
code stays next in the queue with its status, and Python says what is wrong.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    larger,
    select,
    smaller,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.layout import LANES, POISON
from fragmenta.engine.simt.library import POINTER, as_signed, field, pointer_at
from fragmenta.engine.simt.warps import P, all_lanes, put_lanes, routine, to_word
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast.step import (
    FastStep,
    declared,
    fast_path,
    note,
    shift,
    woke,
)

FENCES = 1
"""A word of the instruction: ``wgmma.fence``; without it, ``wgmma.commit_group``."""
WARPS = 4
REGISTER = 4 * LANES
"""Bytes of a register in one warp."""
ALL = -1


def _long(code: Code, base: Raw, offset: int) -> Memory:
    return field(code, base, offset, I64)


def _word(code: Code, base: Raw, offset: int) -> Memory:
    return field(code, base, offset, I32)


def _there(code: Code, pointer: Raw) -> Value:
    """Whether a pointer points to something."""
    b = code.builder
    return Value(b, b.icmp_unsigned("!=", pointer, ir.Constant(POINTER, None)))


def _bound(code: Code, group: Raw, form: Raw) -> Raw:
    """Where a pointer to the bound form is."""
    b, number = code.builder, _word(code, form, layout.FORM_NUMBER)[0]
    every = field(code, pointer_at(code, group, layout.GROUP_BOUND), 0, POINTER)
    return b.load(b.gep(every.raw, [convert(number, I64).raw]))


def _product(code: Code, group: Raw, number: Value) -> Raw:
    """The record of a product."""
    b = code.builder
    place = number & (_word(code, group, layout.GROUP_CAPACITY)[0] - 1)
    at = convert(place, I64) * layout.PRODUCT_BYTES
    return b.gep(pointer_at(code, group, layout.GROUP_QUEUE), [at.raw])


class FastWarpgroup:
    """The warpgroup of a warp, whole and known to Python."""

    def __init__(self, step: FastStep) -> None:
        self._step = step
        code, number = step.code, step.number
        b = code.builder
        at = convert(number >> 2, I64) * layout.GROUP_BYTES
        records = pointer_at(code, step.state, layout.STATE_WARPGROUPS)
        self.record = b.gep(records, [at.raw])
        self.own = convert(number & WARPS - 1, I64)
        step.require(self.word(layout.GROUP_READY)[0] != 0)

    def word(self, offset: int) -> Memory:
        """Words of its record."""
        return self._step.word(self.record, offset)

    def count(self, offset: int) -> Value:
        """The number of this warp."""
        return self.word(offset)[self.own]

    def put(self, offset: int, number: Value) -> None:
        """Set the number of this warp."""
        self.word(offset)[self.own] = number

    @property
    def least(self) -> Value:
        """The products that all four warps have issued."""
        issued = self.word(layout.GROUP_ISSUED)
        first, second, third, fourth = (issued[warp] for warp in range(WARPS))
        return smaller(smaller(first, second), smaller(third, fourth))

    def note_in_flight(self) -> None:
        """Tell the warp how many products it has not waited for."""
        step = self._step
        left = self.count(layout.GROUP_ISSUED) - self.count(layout.GROUP_RETIRED)
        step.word(step.warp, engine.IN_FLIGHT)[0] = left


def _schedule(step: FastStep) -> Value:
    return step.word(step.cluster, layout.CLUSTER_SCHEDULE)[0]


# ── copies of registers ─────────────────────────────────────────────────────


def _copied(
    code: Code,
    places: Raw,
    count: Value,
    warp: Raw,
    rows: Raw,
    own: Value,
    *,
    back: bool = False,
    poison: bool = False,
) -> None:
    """Copy registers of a warp into rows of 128 lanes, or back."""
    b = code.builder
    at = Memory(b, b.bitcast(places, I64.as_pointer()), I64)
    with code.loop(convert(count, I64)) as number:
        place = at[number]
        with code.when(place >= 0):  # not a constant
            register = b.gep(warp, [place.raw])
            there = number * (WARPS * REGISTER) + own * REGISTER
            row = b.gep(rows, [there.raw])
            goal, source = (register, row) if back else (row, register)
            value = all_lanes(code, source)
            put_lanes(code, goal, value)
            if poison:
                put_lanes(code, register, value.lift(POISON))


def _each_warp(
    code: Code,
    group: Raw,
    form: Raw,
    parts: tuple[int, int],
    rows: Raw,
    *,
    back: bool = False,
) -> None:
    """Copy registers of all warps into rows, or back; ``parts``: places and count."""
    places = pointer_at(code, form, parts[0])
    count = _word(code, form, parts[1])[0]
    warps = field(code, group, layout.GROUP_WARPS, POINTER)
    with code.loop(WARPS) as own:
        _copied(code, places, count, warps[own].raw, rows, own, back=back)


# ── a product ───────────────────────────────────────────────────────────────


class Ready(NamedTuple):
    """The product that is next, and where everything is."""

    code: Code
    state: Raw
    group: Raw
    product: Raw
    form: Raw
    bound: Raw
    bundle: Raw
    late: Value
    """Whether D is hidden, and its values are in the bundle."""

    def pointer(self, base: Raw, offset: int, of: Type) -> Raw:
        """A pointer of a record."""
        b = self.code.builder
        return b.bitcast(pointer_at(self.code, base, offset), of.as_pointer())

    def operands(self) -> list[Raw]:
        """A in registers, descriptors, shared memory, metadata and the rest."""
        code = self.code
        return [
            self.pointer(self.bound, layout.BOUND_INPUTS, I32),
            _long(code, self.product, layout.PRODUCT_DESCRIPTORS).raw,
            pointer_at(code, self.state, layout.STATE_SHARED),
            _long(code, self.state, layout.STATE_SHARED_SIZE)[0].raw,
            self.pointer(self.bound, layout.BOUND_METADATA, I32),
            _long(code, self.product, layout.PRODUCT_SCALE_D).raw,
        ]

    def where(self, in_place: Value, values: Raw) -> list[Raw]:
        """Where D is, and the steps in words from a register or a warp to the next."""
        code, b = self.code, self.code.builder
        warps = field(code, self.group, layout.GROUP_WARPS, POINTER)
        places = _long(code, pointer_at(code, self.form, layout.FORM_D), 0)
        first = b.gep(warps[0].raw, [places[0].raw])
        number, next_one = (Value(b, b.ptrtoint(warps[w].raw, I64)) for w in (0, 1))
        apart = (next_one - number) >> 2
        return [
            b.bitcast(b.select(in_place.raw, first, values), I32.as_pointer()),
            select(in_place, apart.lift(LANES), WARPS * LANES).raw,
            select(in_place, apart, LANES).raw,
        ]

    def multiply(self) -> Value:
        """Call the machine code; 0 if it could compute D.

        Otherwise the launch ends with an error, and nobody reads D.
        """
        code, b = self.code, self.code.builder
        function = pointer_at(code, self.form, layout.FORM_FUNCTION)
        values = pointer_at(code, self.bundle, layout.BUNDLE_VALUES)
        d = layout.FORM_D, layout.FORM_D_COUNT
        in_place = _word(code, self.form, layout.FORM_IN_PLACE)[0] != 0
        copied = ~self.late & ~in_place
        with code.when(copied):
            _each_warp(code, self.group, self.form, d, values)
        where = self.where(~self.late & in_place, values)
        given = [where[0], *self.operands(), *where[1:]]
        kind = ir.FunctionType(I32, [each.type for each in given])
        call = b.bitcast(function, kind.as_pointer())
        status = Value(b, b.call(call, given))
        with code.when(copied & (status == 0)):
            _each_warp(code, self.group, self.form, d, values, back=True)
        return status

    def show(self) -> None:
        """It has run: D of warps is shown, unless another product hides it."""
        code = self.code
        pending = _word(code, self.bundle, layout.BUNDLE_PENDING)
        places = pointer_at(code, self.form, layout.FORM_D)
        count = _word(code, self.form, layout.FORM_D_COUNT)[0]
        values = pointer_at(code, self.bundle, layout.BUNDLE_VALUES)
        warps = field(code, self.group, layout.GROUP_WARPS, POINTER)
        with code.loop(WARPS) as own:
            left = pending[own] - 1
            pending[own] = left
            with code.when(left == 0):
                _copied(code, places, count, warps[own].raw, values, own, back=True)


def _note_run(
    code: Code, cluster: Raw, state: Raw, group: Raw, product: Raw, kind: int
) -> None:
    """Tell a recorder of a run for all four warps; the product says who issued it."""
    warps = field(code, group, layout.GROUP_WARPS, POINTER)
    block = pointer_at(code, state, layout.STATE_BLOCK)
    nobody = ir.Constant(POINTER, None)
    who = block, warps[0].raw, nobody, ir.Constant(I32, 0)
    where = Value(code.builder, code.builder.ptrtoint(group, I64))
    note(code, cluster, kind, who, product, where)


def _run(code: Code, cluster: Raw, state: Raw, group: Raw) -> Value:
    """Run the next product of a warpgroup; 0 if that could be done."""
    ran = _word(code, group, layout.GROUP_RAN)
    product = _product(code, group, ran[0])
    form = pointer_at(code, product, layout.PRODUCT_FORM)
    bound = _bound(code, group, form)
    bundle = pointer_at(code, bound, layout.BOUND_BUNDLE)
    late = _word(code, cluster, layout.CLUSTER_SCHEDULE)[0] != layout.EAGER
    inputs = layout.FORM_INPUTS, layout.FORM_INPUT_COUNT
    goal = pointer_at(code, bound, layout.BOUND_INPUTS)
    _each_warp(code, group, form, inputs, goal)
    here = Ready(code, state, group, product, form, bound, bundle, late)
    done = _word(code, product, layout.PRODUCT_DONE)[0] != 0
    found = code.variable(code.constant(0, I32))
    with code.when(~done):
        found.value = here.multiply()
    status = found.value
    with code.when(status != 0):
        _word(code, product, layout.PRODUCT_STATUS)[0] = status
        _note_run(code, cluster, state, group, product, layout.NOTE_FAILED)
    with code.when(status == 0):
        ran[0] = ran[0] + 1
        changes = _long(code, cluster, layout.CLUSTER_CHANGES)
        changes[0] = changes[0] + 1
        woke(code, cluster)
        with code.when(late):
            here.show()
        _note_run(code, cluster, state, group, product, layout.NOTE_RAN)
    return status


RUN = routine("units.wgmma.run", _run, [P, P, P], I32)


def _run_next(step: FastStep, group: FastWarpgroup) -> Value:
    b = step.code.builder
    kind = ir.FunctionType(I32, [POINTER] * 3)
    function = declared(b.module, RUN.name, kind)
    return Value(b, b.call(function, [step.cluster, step.state, group.record]))


# ── issuing ─────────────────────────────────────────────────────────────────


def _descriptor(step: FastStep, form: Raw, number: int) -> Value:
    """A descriptor, which must be the same in all lanes."""
    code, b = step.code, step.code.builder
    place, constant = (
        step.long(form, layout.FORM_DESCRIPTORS + 16 * number + each)[0]
        for each in (0, 8)
    )
    found = code.variable(constant)
    with code.when(place >= 0):
        at = b.gep(step.warp, [place.raw])
        first = Memory(b, b.bitcast(at, I64.as_pointer()), I64)[0]
        step.require(to_word(all_lanes(code, at, I64) == first) == ALL)
        found.value = first
    return found.value


def _scale_d(step: FastStep, form: Raw) -> Value:
    """Whether the old D is added, which must be the same in all lanes."""
    code, b = step.code, step.code.builder
    place = step.long(form, layout.FORM_SCALE_D)[0]
    found = code.variable(step.word(form, layout.FORM_SCALE_D_CONSTANT)[0])
    with code.when(place >= 0):
        word = step.word(b.gep(step.warp, [place.raw]), 0)[0]
        step.require((word == 0) | (word == ALL))
        found.value = word & 1
    negated = step.word(form, layout.FORM_SCALE_D_NEGATED)[0]
    return convert(found.value ^ negated, I64, signed=False)


def _known(step: FastStep, form: Raw, number: int, word: Value) -> Value:
    """Whether Python has looked at a descriptor, and found nothing wrong."""
    code = step.code
    where = pointer_at(code, form, layout.FORM_KNOWN + 8 * number)
    known = _long(code, where, 0)
    start = shift(word * as_signed(layout.HASH, 64), 56)
    found: Value = known[start] == word
    for probe in range(1, layout.PROBES):
        found = found | (known[(start + probe) & layout.KNOWN - 1] == word)
    return found


class ProductOperands:
    """The operands of a product, as one warp has them."""

    def __init__(self, step: FastStep, form: Raw) -> None:
        self._step, self._form = step, form
        self.descriptors = [_descriptor(step, form, each) for each in range(2)]
        self.scale_d = _scale_d(step, form)

    def require_known(self) -> None:
        """Leave new descriptors to Python."""
        step = self._step
        one = step.word(self._form, layout.FORM_A_SHARED)[0] == 0
        first, second = (
            _known(step, self._form, number, word)
            for number, word in enumerate(self.descriptors)
        )
        step.require(first & (one | second))

    def require_same(self, product: Raw) -> None:
        """Leave to Python what another warp has otherwise."""
        step, b = self._step, self._step.code.builder
        form = pointer_at(step.code, product, layout.PRODUCT_FORM)
        step.require(Value(b, b.icmp_unsigned("==", form, self._form)))
        there = step.long(product, layout.PRODUCT_DESCRIPTORS)
        for number, word in enumerate(self.descriptors):
            step.require(there[number] == word)
        scale = step.long(product, layout.PRODUCT_SCALE_D)[0]
        step.require(scale == self.scale_d)

    def write(self, group: FastWarpgroup, product: Raw, number: Value) -> None:
        """Write down a new product."""
        step, b = self._step, self._step.code.builder
        form = Value(b, b.ptrtoint(self._form, I64))
        there = step.long(product, layout.PRODUCT_DESCRIPTORS)
        for place, word in enumerate(self.descriptors):
            there[place] = word
        selector = step.long(self._form, layout.FORM_SELECTOR)[0]
        for offset, long in (
            (layout.PRODUCT_FORM, form),
            (layout.PRODUCT_SCALE_D, self.scale_d),
            (layout.PRODUCT_SELECTOR, selector),
            (layout.PRODUCT_ORDINAL, selector.lift(0)),
        ):
            step.long(product, offset)[0] = long
        for offset, word in (
            (layout.PRODUCT_NUMBER, number),
            (layout.PRODUCT_GROUP, group.count(layout.GROUP_COMMITTED)),
            (layout.PRODUCT_WARPGROUP, group.word(layout.GROUP_NUMBER)[0]),
            (layout.PRODUCT_SITE, step.word(step.event, layout.EVENT_SITE)[0]),
            (layout.PRODUCT_ISSUED, number.lift(0)),
            (layout.PRODUCT_STATUS, number.lift(0)),
            (layout.PRODUCT_DONE, number.lift(0)),
        ):
            step.word(product, offset)[0] = word
        group.word(layout.GROUP_QUEUED)[0] = number + 1


def _still_held(step: FastStep, group: FastWarpgroup) -> None:
    """A warp that is held at a product waits, or goes on."""
    code, b = step.code, step.code.builder
    held = group.count(layout.GROUP_HELD)
    with code.when(held != 0):
        with code.when(group.least < held):
            b.ret(step.lanes.lift(0).raw)
        group.put(layout.GROUP_HELD, held.lift(0))
        b.ret(step.lanes.raw)


def _hide(step: FastStep, group: FastWarpgroup, form: Raw, bound: Raw) -> None:
    """Keep D of a warp aside, and poison its registers."""
    code = step.code
    bundle = pointer_at(code, bound, layout.BOUND_BUNDLE)
    pending = step.word(bundle, layout.BUNDLE_PENDING)
    before = pending[group.own]
    with code.when(before == 0):
        places = pointer_at(code, form, layout.FORM_D)
        count = step.word(form, layout.FORM_D_COUNT)[0]
        values = pointer_at(code, bundle, layout.BUNDLE_VALUES)
        _copied(code, places, count, step.warp, values, group.own, poison=True)
    pending[group.own] = before + 1


def _start(step: FastStep, group: FastWarpgroup, product: Raw) -> None:
    """All four warps have issued a product: it is in flight, or runs at once."""
    code = step.code
    step.word(product, layout.PRODUCT_WARP)[0] = step.number
    ordinal = step.long(step.cluster, layout.CLUSTER_ORDINAL)
    ordinal[0] = ordinal[0] + 1
    step.long(product, layout.PRODUCT_ORDINAL)[0] = ordinal[0]
    step.observe(layout.PORT_PRODUCT, product)
    step.note(layout.NOTE_PRODUCT, product)
    with code.when(_schedule(step) == layout.EAGER):
        # If it could not run, Python finds it next in the queue.
        step.require(_run_next(step, group) == 0)


def _issue(step: FastStep) -> Value:
    """Issue the part of a warp of a product."""
    code = step.code
    group = FastWarpgroup(step)
    _still_held(step, group)
    step.require((step.lanes == ALL) & (_schedule(step) != layout.RANDOM))
    form = pointer_at(code, step.event, layout.EVENT_FORM)
    step.require(_there(code, form))
    count = group.word(layout.GROUP_BOUND_COUNT)[0]
    step.require(step.word(form, layout.FORM_NUMBER)[0] < count)
    bound = _bound(code, group.record, form)
    step.require(_there(code, bound))
    given = ProductOperands(step, form)
    number = group.count(layout.GROUP_ISSUED)
    queued = group.word(layout.GROUP_QUEUED)[0]
    product = _product(code, group.record, number)
    new = number == queued
    with code.when(new):
        given.require_known()
        room = group.word(layout.GROUP_CAPACITY)[0]
        step.require(queued - group.word(layout.GROUP_RAN)[0] < room)
    with code.when(~new):
        given.require_same(product)
    fine = step.observe(layout.PORT_TOUCH, form, convert(number, I64))
    step.require(fine != 0)
    site = step.word(step.event, layout.EVENT_SITE)[0]
    group.word(layout.GROUP_LAST_SITE)[0] = site
    with code.when(new):
        given.write(group, product, number)
    with code.when(_schedule(step) != layout.EAGER):
        _hide(step, group, form, bound)
    issued = step.word(product, layout.PRODUCT_ISSUED)
    issued[0] = issued[0] + 1
    group.put(layout.GROUP_ISSUED, number + 1)
    group.note_in_flight()
    last = issued[0] == WARPS
    with code.when(last):
        _start(step, group, product)
        step.woke()
    step.changed()
    observed = _there(code, pointer_at(code, step.cluster, layout.CLUSTER_PORT))
    # Hold it: accesses of a warp that is ahead would seem to come before.
    holds = observed & ~last
    with code.when(holds):
        group.put(layout.GROUP_HELD, number + 1)
        where = Value(code.builder, code.builder.ptrtoint(form, I64))
        step.note(layout.NOTE_HELD, form, where)
    return select(holds, step.lanes.lift(0), step.lanes)


# ── fences and groups ───────────────────────────────────────────────────────


def _fence(step: FastStep) -> Value:
    """Order accesses to registers before the products that follow."""
    group = FastWarpgroup(step)
    step.observe(layout.PORT_FENCE, group.record)
    return step.lanes


def _commit(step: FastStep) -> Value:
    """Close a group of products."""
    code = step.code
    group = FastWarpgroup(step)
    number = group.count(layout.GROUP_COMMITTED)
    end = group.count(layout.GROUP_ISSUED)
    ends = field(code, pointer_at(code, group.record, layout.GROUP_ENDS), 0, I32)
    place = convert(number, I64)
    count = group.word(layout.GROUP_ENDS_COUNT)
    new = number == count[0]
    with code.when(new):
        step.require(number < group.word(layout.GROUP_ENDS_CAPACITY)[0])
    with code.when(~new):
        step.require(ends[place] == end)
    step.observe(layout.PORT_FENCE, group.record)
    with code.when(new):
        ends[place] = end
        count[0] = number + 1
    group.put(layout.GROUP_COMMITTED, number + 1)
    return step.lanes


def _wait(step: FastStep) -> Value:
    """Wait for all groups but the newest; the operand says how many are left."""
    code, b = step.code, step.code.builder
    group = FastWarpgroup(step)
    groups = convert(group.count(layout.GROUP_COMMITTED), I64) - step.value(0)
    end = code.variable(code.constant(0, I32))
    with code.when(groups > 0):
        where = pointer_at(code, group.record, layout.GROUP_ENDS)
        end.value = field(code, where, 0, I32)[groups - 1]
    with code.when(end.value > group.count(layout.GROUP_RETIRED)):
        with code.when(group.least < end.value):
            b.ret(step.lanes.lift(0).raw)
        step.require(group.word(layout.GROUP_PYTHON)[0] == 0)
        failed = code.variable(code.constant(0, I32))
        left = end.value - group.word(layout.GROUP_RAN)[0]
        with code.loop(convert(left, I64)) as _, code.when(failed.value == 0):
            failed.value = _run_next(step, group)
        step.require(failed.value == 0)  # Python finds it next in the queue
        group.put(layout.GROUP_RETIRED, end.value)
        group.note_in_flight()
    until = larger(groups, 0)
    step.observe(layout.PORT_MULTIPLIED, group.record, until)
    step.note(layout.NOTE_MULTIPLIED, group.record, until)
    step.changed()
    return step.lanes


ISSUE = fast_path("units.wgmma.mma_async", _issue)
FENCE = fast_path("units.wgmma.fence", _fence)
COMMIT = fast_path("units.wgmma.commit_group", _commit)
WAIT = fast_path("units.wgmma.wait_group", _wait)
