"""Second values through ``mma``, ``mma.sp`` and ``wmma.mma``, in compiled code.

:func:`write_product` is called after the code of the instruction was written: the
operands are in the stage then, and so is D (:mod:`fragmenta.engine.simt.matrices`).  It
writes
a call of :func:`warp_product`, which is in the table of functions of the launch::

    int32 f(uint32 *warp, const int64 *table, const uint32 *d, const uint32 *a,
            const uint32 *b, const uint32 *c, const uint32 *extra,
            const int64 *selectors, int64 data, int64 site, int64 block)

The table begins with two numbers: which accumulator it is, and how many a warp has.
Then come the places in the warp of plane 0 of each register of A, B, C and D, and of
those with block scales; -1 if a register has no planes.  Plane p is p times the bytes
of the register further on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from llvmlite import ir

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, pointer
from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Memory, Value, convert
from fragmenta.engine.planes.code.gathering import (
    clear,
    columns_of,
    end_bits,
    gather,
    held_by,
    raw_bits,
    scales_of,
    scatter,
    second_scales,
)
from fragmenta.engine.planes.code.products import (
    ProductAlgebra,
    ProductMatrices,
    ProductShape,
    product_model,
)
from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.emitter import InMemory, Writer
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import POINTER, field
from fragmenta.engine.simt.matrices import STAGE, operation
from fragmenta.engine.simt.warps import P, routine
from fragmenta.ptx.module import Instruction, Operand, Register, Vector
from fragmenta.reference.execution.warp import SELECTORS
from fragmenta.reference.execution.warp_operands import (
    Side,
    WarpOperands,
    from_registers,
)
from fragmenta.reference.execution.warp_registers import items_of
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.registers.fragment import Fragment

NAMES = ("a", "b", "c", "d")
HEAD = 2
"""Numbers in front of the places of registers in the table."""


# ── writing calls ───────────────────────────────────────────────────────────


def write_product(
    writer: Writer,
    instruction: Instruction,
    algebra: str,
    planes: int,
    second: Callable[[Register], InMemory | None],
    data: str,
    number: int,
    chain: tuple[int, int] = (0, 1),
) -> str:
    """Write the code that makes the second values of D, after the instruction.

    It returns what the algebra's product returns.

    ``algebra`` is its name in the table of algebras of a launch.  ``second`` says where
    plane 0 of a register is, ``data`` is a pointer to the algebra's memory, ``number``
    that of the instruction.  ``chain`` is the number of the accumulator, and how many
    there are in a warp.
    """
    op = operation(instruction)
    key = (str(op), writer.target, algebra, str(planes))
    if key not in writer.functions:
        writer.functions.append(key)
    function = writer.functions.index(key)
    given = dict(zip(("d", "a", "b", "c"), instruction.operands, strict=False))
    table = [*chain]
    for name in NAMES:
        table += _places(given[name], second)
    table += _scales(op, instruction, second)
    content = b"".join(each.to_bytes(8, "little", signed=True) for each in table)
    return writer.call(
        CALL,
        *("ptr %warp", "ptr %constants", "ptr %stage", "ptr %functions"),
        "ptr %block",
        f"i64 {function}",
        f"i64 {writer.data(content)}",
        f"ptr {data}",
        f"i64 {number}",
        returns="i32",
    )


def _places(
    operand: Operand, second: Callable[[Register], InMemory | None]
) -> Iterable[int]:
    """Where plane 0 of each register is; -1 if it has none."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    for each in items:
        found = second(each) if isinstance(each, Register) else None
        yield -1 if found is None else found.offset


def _scales(
    op: Op, instruction: Instruction, second: Callable[[Register], InMemory | None]
) -> Iterable[int]:
    """The same of the registers with the block scales of A and B."""
    if not op.scale_vec:
        return
    rest = [
        part
        for each in instruction.operands[len(NAMES) :]
        for part in (each.items if isinstance(each, Vector) else (each,))
    ]
    names = [each.name for each in op.operands[len(NAMES) :]]
    for name in ("scale_a", "scale_b"):
        yield from _places(rest[names.index(name)], second)


def _call(
    code: Code,
    warp: Raw,
    constants: Raw,
    stage: Raw,
    functions: Raw,
    block: Raw,
    number: Value,
    table: Value,
    data: Raw,
    site: Value,
) -> Value:
    """Call a function of the table of functions on the operands in the stage."""
    b = code.builder
    names = ("d", "a", "b", "c", "extra", "selectors")
    pointers = [POINTER] * (2 + len(names))
    kind = ir.FunctionType(I32, [*pointers, I64, I64, I64]).as_pointer()
    place = b.gep(b.bitcast(functions, kind.as_pointer()), [number.raw])
    given = [warps.place(code, stage, STAGE[name]) for name in names]
    there = b.gep(constants, [table.raw])
    index = field(code, block, layout.BLOCK_INDEX, I64)[0]
    last = [b.ptrtoint(data, I64), site.raw, index.raw]
    return Value(b, b.call(b.load(place), [warp, there, *given, *last]))


CALL = routine("plane product", _call, [P, P, P, P, P, I64, I64, P, I64], I32)


# ── what is called ──────────────────────────────────────────────────────────


@once
def warp_product(op: Op, target: str, algebra: ProductAlgebra) -> Traced:
    """The function of an instruction on a target, for an algebra."""
    how = ProductShape(op, product_model(op, target), algebra.planes, most=algebra.most)
    parameters = {
        "warp": pointer(I32),
        "table": pointer(I64),
        **dict.fromkeys(("d", "a", "b", "c"), pointer(how.raw)),
        "extra": pointer(I32),
        "selectors": pointer(I64),
        **dict.fromkeys(("data", "site", "block"), I64),
    }
    trace = partial(_trace, how, algebra)
    name = f"{algebra.name}_warp_product"
    return Traced(name, parameters, trace, returns=I32)


def _trace(
    how: ProductShape,
    algebra: ProductAlgebra,
    code: Code,
    warp: Memory,
    table: Memory,
    d: Memory,
    a: Memory,
    b: Memory,
    c: Memory,
    extra: Memory,
    selectors: Memory,
    data: Value,
    site: Value,
    block: Value,
) -> Value:
    op, model = how.op, how.model
    chosen = {name: selectors[place] for place, name in enumerate(SELECTORS)}
    sides = {
        "a": from_registers("a", op.a, a, model.stored),
        "b": from_registers("b", op.b, b, model.k),
    }
    given = WarpOperands(op, model, sides["a"], sides["b"], c, d, extra, chosen)
    bits = {name: code.scratch(how.raw, how.sizes[name]) for name in NAMES}
    for name, side in sides.items():
        raw_bits(code, how, side, bits[name])
    for name, of in (("c", c), ("d", d)):
        end_bits(code, how, name, of, bits[name])
    registers = _Registers(code, how, warp, table)
    seconds, has = {}, []
    for name in ("a", "b", "c"):
        size = how.words(name) * how.sizes[name]
        seconds[name] = code.scratch(I64, size)
        has.append(registers.gathered(name, sides.get(name), seconds[name]))
    seconds["d"] = code.scratch(I64, how.words("d") * how.sizes["d"])
    index, _ = columns_of(code, given)
    number = convert(warp[layout.WARP_NUMBER // 4], I64)
    scale_a, scale_b = (scales_of(code, given, side) for side in sides.values())
    tiles = ProductMatrices(
        bits["a"],
        bits["b"],
        bits["c"],
        bits["d"],
        index,
        scale_a,
        scale_b,
        seconds["a"],
        seconds["b"],
        seconds["c"],
        seconds["d"],
        has[0],
        has[1],
        has[2],
        data,
        site,
        number * table[1] + table[0],
        block,
        number,
    )
    if model.scale and getattr(algebra, "numbers", False):
        both = [
            second_scales(code, how, given, side, registers.scale(place))
            for place, side in enumerate(sides.values())
        ]
        (of_a, has_a), (of_b, has_b) = both
        tiles = tiles._replace(
            scale_a2=of_a, scale_b2=of_b, has_scale_a=has_a, has_scale_b=has_b
        )
    made = convert(algebra.product(code, how, tiles), I32, signed=False)
    registers.scattered(seconds["d"], made != 0)
    return made


class _Registers:
    """The planes of the registers of operands in the memory of a warp."""

    def __init__(
        self, code: Code, how: ProductShape, warp: Memory, table: Memory
    ) -> None:
        self._code, self._how, self._warp, self._table = code, how, warp, table
        self._first, start = {}, HEAD
        for name in NAMES:
            self._first[name] = start
            start += how.op.fragment(name.upper()).registers
        self._scales = start

    def _shape(self, name: str) -> tuple[Fragment, int]:
        """A fragment, and the words of one of its registers in all lanes."""
        part = self._how.op.fragment(name.upper())
        return part, LANES * part.register_bits // 32

    def gathered(self, name: str, side: Side | None, goal: Memory) -> Value:
        """Fill ``goal`` with the second values of A, B or C; whether there are any."""
        part, size = self._shape(name)
        items = side.items if side else items_of(part, "col", single=True)
        held = held_by(self._code, self._how, name, part.registers * size, items)
        read = partial(self._copy, name, out=False)
        return gather(self._code, self._how, name, held, read, goal)

    def scale(self, place: int) -> Callable[[Value, Memory], None]:
        """What copies a plane of the register with the scales of A, or of B."""

        def read(plane: Value, held: Memory) -> None:
            at = self._table[self._scales + place]
            there = at >= 0
            zero = self._code.constant(0, I32).in_all_lanes(LANES)
            with self._code.when(there):
                held[0] = self._warp.lanes((at >> 2) + plane * LANES, LANES)
            with self._code.when(~there):
                held[0] = zero

        return read

    def scattered(self, source: Memory, made: Value) -> None:
        """Put second values into the planes of D, or clear them."""
        code, how = self._code, self._how
        part, size = self._shape("d")
        items = items_of(part, "col", single=True)
        held = held_by(code, how, "d", part.registers * size, items)
        write = partial(self._copy, "d", out=True)
        with code.when(made):
            scatter(code, how, source, held, write)
        with code.when(~made):
            clear(code, how, held, write)

    def _copy(self, name: str, plane: Value, held: Memory, *, out: bool) -> None:
        """Copy one plane of all registers, into the warp or out of it."""
        code = self._code
        part, size = self._shape(name)
        zero = code.constant(0, I32).in_all_lanes(LANES)
        with code.loop(part.registers) as register:
            place = self._table[register + self._first[name]]
            at = (place >> 2) + plane * size
            there = place >= 0
            for part_ in range(0, size, LANES):
                own = register * size + part_
                with code.when(there):
                    if out:
                        self._warp[at + part_] = held.lanes(own, LANES)
                    else:
                        held[own] = self._warp.lanes(at + part_, LANES)
                if not out:
                    with code.when(~there):
                        held[own] = zero
