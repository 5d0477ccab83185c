"""The products of one instruction, as chains of fused multiply-adds that round down.

:mod:`fragmenta.reference.arithmetic.floor_steps` describes the steps.  Here they
compute one instruction: all rows of A are packed first, then each panel of eight
columns of B is packed and multiplied by every group of four rows.  A *tile* is a group
of rows and a panel.

The accumulators are in registers of a warp or a warpgroup.  A tile has sixteen lanes:
of two registers, for the even columns and the odd ones; or of one, if it holds two f16.

A tile that these steps cannot compute is left as it is, and :func:`careful_kernel`
computes it product by product.  That is so if an element is infinite or NaN, or if
exponents are too far apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import (
    Traced,
    address_of_call,
    kernel,
    pointer,
    type_of,
)
from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    bits_of,
    call_address,
    convert,
    float_of,
    half_bits,
    half_of,
    is_nan,
    picked,
    select,
    size_of,
)
from fragmenta.reference.arithmetic import floored
from fragmenta.reference.arithmetic.chain import MODES, set_rounding
from fragmenta.reference.arithmetic.constants import fused_constants
from fragmenta.reference.arithmetic.elements import (
    Format,
    powers,
    small_value,
    to_float32,
    wide_value,
)
from fragmenta.reference.arithmetic.floating import (
    FusedNumbers,
    Products,
    fused_instruction,
)
from fragmenta.reference.arithmetic.floor_steps import (
    FloorNumbers,
    FloorStep,
    FloorVariant,
    Panel,
    Scratch,
    add_step,
    starting_at,
)
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.arithmetic.packing import (
    DEPTH,
    GROUP,
    Packing,
    column_packer,
    row_packer,
)
from fragmenta.reference.registers.dtype import dtype

_ALL = GROUP * LANES
_PAIR = 2 * LANES

#: The most elements of A, and the most rows of B, of an instruction.
MOST_A, MOST_K = 2048, 64


class Tiles(NamedTuple):
    """Where the operands of an instruction are, and which tiles it has.

    A is row by row.  B is in panels: for each k, eight columns.  ``chosen`` is the k of
    every element of a sparse A.
    """

    a: Memory
    b: Memory
    chosen: Memory
    d: Memory
    tops: Memory  #: where the rows of each group begin in D
    todo: Memory  #: for each tile, 1 if it must be computed with care
    status: Memory  #: 1 if that is so for some tile
    kept: Value  #: the bits of D that are used
    groups: Value
    panels: Value
    panel_step: Value  #: from one panel to the next in D
    odd_step: Value  #: from even to odd columns in D, if it is f32


PARAMETERS = {
    "a": pointer(I8),
    "b": pointer(I8),
    "chosen": pointer(I8),
    "d": pointer(F32),
    "tops": pointer(I32),
    "todo": pointer(I8),
    "status": pointer(I32),
    "kept": I32,
    **dict.fromkeys(("groups", "panels", "panel_step", "odd_step"), I64),
}


def computes(model: Model, rows: int) -> bool:
    """Whether the kernels compute an instruction with so many rows."""
    return (
        floored.computes(model)
        and model.c == model.d == model.accumulator
        and model.start == "c"
        and model.scale is None
        and not model.reordered
        and rows * model.stored <= MOST_A
        and model.k <= MOST_K
        and rows % GROUP == 0
    )


def sources(model: Model) -> tuple[Type, Type]:
    """The types of the raw bits of A and B."""
    a, b = (type_of(dtype(name).bits_dtype) for name in (model.a, model.b))
    return a, b


def instruction_kernels(model: Model) -> dict[str, Traced]:
    """The kernels of an instruction, by the names that :func:`call_kernels` uses."""
    found = fused_constants(model)
    forms = found.a, found.b
    wide = max(form.exponent_bits for form in forms) == 8
    variant = FloorVariant.of(model, wide)
    sixteens = model.stored % (2 * LANES) == 0
    rows, columns = (
        Packing(of, form, variant.values, False, model.sparse, LANES, sixteens)
        for of, form in zip(sources(model), forms, strict=True)
    )
    sizes = (size_of(of) for of in sources(model))
    numbers = model.fraction, model.floor, model.keep
    of = TileVariant(variant, numbers, model.stored, model.k, *sizes)
    kernels = {
        "tile_steps": (tile_kernel(of), of),
        "careful_steps": (careful_kernel(model), (model, found)),
        "pack_rows": (row_packer(rows), rows),
        "pack_columns": (column_packer(columns), columns),
    }
    return {
        name: made.kept(("reference/arithmetic",), key)
        for name, (made, key) in kernels.items()
    }


def call_kernels(code: Code, given: Tiles) -> None:
    """Compute all tiles, in a function that calls :func:`instruction_kernels`."""
    at = [address_of_call(code, name) for name in ("pack_rows", "pack_columns")]
    call_address(address_of_call(code, "tile_steps"), [*given, *at])
    with code.when(given.status[0] != 0):
        call_address(address_of_call(code, "careful_steps"), given)


# -- registers ----------------------------------------------------------------


def _first(given: Tiles, panel: Value, group: Value) -> Value:
    """Where the even columns of a tile begin."""
    return panel * given.panel_step + convert(given.tops[group], I64)


def _read(given: Tiles, first: Value, rows: int, half: bool) -> Value:
    """The accumulators of some rows of a tile, as float32."""
    count = rows * LANES
    if half:
        found = given.d.view(I16).lanes(first, count)
        return half_of(found & convert(given.kept, I16).in_all_lanes(count))
    places = [side + lane for lane in range(count // 2) for side in (0, count // 2)]
    even, odd = (
        given.d.lanes(at, count // 2) for at in (first, first + given.odd_step)
    )
    bits = bits_of(picked(even, places, odd))
    return float_of(bits & given.kept.in_all_lanes(count))


def _write(given: Tiles, first: Value, x: Value, half: bool) -> None:
    """Write the accumulators of some rows of a tile."""
    if half:
        bits = half_bits(x)
        given.d.view(I16)[first] = select(is_nan(x), bits.lift(0x7FFF), bits)
        return
    for side, at in enumerate((first, first + given.odd_step)):
        given.d[at] = picked(x, range(side, x.type.count, 2))


# -- tiles --------------------------------------------------------------------


class TileVariant(NamedTuple):
    """What must be known to compile the kernel for the tiles of an instruction."""

    steps: FloorVariant
    numbers: tuple[
        int, int, int
    ]  #: :class:`~fragmenta.reference.arithmetic.floors.FloorNumbers`
    stored: int
    k: int
    a_size: int  #: bytes of an element
    b_size: int


@once
def tile_kernel(of: TileVariant) -> Traced:
    """The kernel that computes the tiles of an instruction."""

    @kernel(**PARAMETERS, pack_rows=I64, pack_columns=I64)
    def tile_steps(code: Code, *arguments: Any) -> None:
        *operands, pack_rows, pack_columns = arguments
        given = Tiles(*operands)
        w = _work(code, of)
        wrong = code.scratch(I32, MOST_A // LANES // GROUP)
        set_rounding(code, code.constant(MODES["rz"], I32))
        given.status[0] = code.constant(0, I32)
        with code.loop(given.groups) as group:
            w.special[0] = code.constant(0, I32)
            _pack_rows(code, of, given, _of_group(w, of, group), group, pack_rows)
            wrong[group] = w.special[0]
        with code.loop(given.panels) as panel:
            w.special[0] = code.constant(0, I32)
            _pack_columns(code, of, given, w, panel, pack_columns)
            found = w.special[0]
            with code.loop(given.groups) as group:
                w.special[0] = found | wrong[group]
                with code.when(w.special[0] == 0):
                    _tile(code, of, given, _of_group(w, of, group), panel, group)
                given.todo[panel * given.groups + group] = convert(w.special[0], I8)
                given.status[0] = given.status[0] | w.special[0]
        set_rounding(code, code.constant(MODES["rn"], I32))

    return tile_steps


def _work(code: Code, of: TileVariant) -> Scratch:
    """The packed elements of all rows of A, and of a panel of B."""
    values = of.steps.values
    beside = of.steps.beside
    return Scratch(
        b_values=code.scratch(values, of.k * LANES),
        b_powers=code.scratch(I8, of.k * LANES),
        b_lows=code.scratch(I8, of.k // 2 * 4 * _PAIR),
        b_base=code.scratch(I16, LANES),
        a_values=code.scratch(values, MOST_A),
        a_powers=code.scratch(I8, MOST_A * LANES),
        a_lows=code.scratch(I8, MOST_A * LANES),
        a_signs=code.scratch(*((I8, MOST_A * LANES) if beside else (I32, MOST_A))),
        a_places=code.scratch(I32, MOST_A),
        a_base=code.scratch(I16, MOST_A // LANES),
        sums=code.scratch(F32, _ALL),
        special=code.scratch(I32, LANES),
        totals=code.scratch(I64, _ALL),
        exponents=code.scratch(I16, _ALL),
        held=code.scratch(F32, _ALL),
    )


def _of_group(w: Scratch, of: TileVariant, group: Value) -> Scratch:
    """The part of a group.

    Rows of a group are ``DEPTH`` elements apart.  Those of other groups are between
    them.
    """
    several = DEPTH // of.stored
    at = (group // several) * (GROUP * DEPTH) + group % several * of.stored
    pairs = group * (of.stored // 2 * GROUP * _PAIR)
    signs = at if of.steps.sparse else at // 2
    if of.steps.beside:
        signs = pairs
    return w._replace(
        a_values=starting_at(w.a_values, at),
        a_powers=starting_at(w.a_powers, pairs),
        a_lows=starting_at(w.a_lows, pairs),
        a_signs=starting_at(w.a_signs, signs),
        a_places=starting_at(w.a_places, at),
        a_base=starting_at(w.a_base, group * GROUP),
    )


def _pack_rows(
    code: Code, of: TileVariant, given: Tiles, w: Scratch, group: Value, packer: Value
) -> None:
    at = group * (GROUP * of.stored)
    sizes = (of.stored, of.stored, GROUP, 1, 0, of.stored, of.k)
    call_address(
        packer,
        [
            starting_at(given.a, at * of.a_size),
            given.a,
            starting_at(given.chosen, at),
            w.a_values,
            w.a_powers,
            w.a_lows,
            w.a_signs,
            w.a_places,
            w.a_base,
            w.special,
            *(code.constant(number, I64) for number in sizes),
        ],
    )


def _pack_columns(
    code: Code, of: TileVariant, given: Tiles, w: Scratch, panel: Value, packer: Value
) -> None:
    sizes = (of.k, LANES, LANES, 1)
    call_address(
        packer,
        [
            starting_at(given.b, panel * (of.k * LANES * of.b_size)),
            given.b,
            w.b_values,
            w.b_powers,
            w.b_lows,
            w.b_base,
            w.special,
            *(code.constant(number, I64) for number in sizes),
        ],
    )


def _tile(
    code: Code, of: TileVariant, given: Tiles, w: Scratch, panel: Value, group: Value
) -> None:
    """The steps of a tile."""
    numbers = FloorNumbers(*(code.constant(number, I32) for number in of.numbers))
    zero = code.constant(0, I64)
    first = _first(given, panel, group)
    w.sums[0] = _read(given, first, GROUP, of.steps.half)
    step, at = FloorStep(code, of.steps, numbers, w), Panel(zero, zero, zero, zero)
    with code.loop(of.stored, step=of.steps.products) as product:
        add_step(step, at, product)
    with code.when(w.special[0] == 0):
        _write(given, first, w.sums.lanes(0, _ALL), of.steps.half)


# -- with care ----------------------------------------------------------------


class DecodedElements(NamedTuple):
    """Elements as values and exponents."""

    values: Memory
    exponents: Memory


@once
def careful_kernel(model: Model) -> Traced:
    """The kernel that computes what the other one has left, product by product."""
    found = fused_constants(model)
    variant = found.variant._replace(careful=True)
    stored, k = model.stored, model.k

    @kernel(**PARAMETERS)
    def careful_steps(code: Code, *arguments: Any) -> None:
        given = Tiles(*arguments)
        a, b = (
            DecodedElements(
                code.scratch(variant.values, count), code.scratch(I32, count)
            )
            for count in (MOST_A, k * LANES)
        )
        places = code.scratch(I32, MOST_A) if model.sparse else None
        forms, types = (found.a, found.b), sources(model)
        elements = given.groups * (GROUP * stored)
        _decode(code, given.a.view(types[0]), a, forms[0], elements)
        if places is not None:
            with code.loop(elements, step=LANES) as q:
                row = convert(given.chosen.lanes(q), I32, signed=False)
                places[q] = row * LANES
        constants = (*found.rounding, found.c_least)
        r = FusedNumbers(*(code.constant(number, I64) for number in constants))
        zero, depth = code.constant(0, I64), code.constant(stored, I64)
        with code.loop(given.panels) as panel:
            bits = starting_at(given.b.view(types[1]), panel * (k * LANES))
            _decode(code, bits, b, forms[1], k * LANES)
            with code.loop(given.groups * GROUP) as row:
                group = row // GROUP
                with code.when(given.todo[panel * given.groups + group] != 0):
                    within = row % GROUP * (LANES if variant.half else LANES // 2)
                    first = _first(given, panel, group) + within
                    start = row * stored
                    at = Products(
                        a.values,
                        a.exponents,
                        places,
                        b.values,
                        b.exponents,
                        start,
                        zero if places is None else start,
                        zero,
                    )
                    c = convert(_read(given, first, 1, variant.half), F64)
                    x = fused_instruction(
                        code, at, zero, c, r.c_least, depth, r, variant
                    )
                    _write(given, first, to_float32(x), variant.half)

    return careful_steps


def _decode(
    code: Code, bits: Memory, to: DecodedElements, form: Format, count: Value | int
) -> None:
    """The values and exponents of elements."""
    values, exponents = to
    with code.loop(count, step=LANES) as at:
        raw = convert(bits.lanes(at), I32, signed=False)
        if form.exponent_bits == 8:
            x = wide_value(raw, size_of(bits.of), form)
        else:
            x = small_value(raw, form)
        values[at] = convert(x, values.of)
        exponents[at], _ = powers(x, form)
