"""``wgmma`` in machine code: its second values are made when it is issued.

The observer of a cluster answers two calls of the units (``PORT_...``).  A block has a
table with an entry for each form of ``wgmma``; the first product of a form is Python's,
which makes the entry.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, convert, select
from fragmenta.engine.planes.code import layout as at
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import P, routine
from fragmenta.engine.units.fast import layout as fast

ENTRY = (
    "function",
    "table",
    "shadows",
    "work",
    "data",
    "site",
    "chain",
    "chains",
    "eager",
)
"""The numbers of an entry."""
MOST_FORMS = 256
"""Forms that have entries; others are Python's."""
WARPS = 4


def _entry(code: Code, block: Raw, form: Raw) -> Value:
    """The address of the entry of a form; 0 if there is none."""
    shadow = pointer_at(code, block, layout.BLOCK_SHADOW)
    table = pointer_at(code, shadow, at.PRODUCTS)
    number = convert(field(code, form, fast.FORM_NUMBER, I32)[0], I64)
    found = code.variable(code.constant(0, I64))
    b = code.builder
    there = Value(b, b.icmp_unsigned("!=", table, ir.Constant(POINTER, None)))
    with code.when(there & (number < MOST_FORMS)):
        found.value = field(code, table, 0, I64)[number]
    return found.value


def _touch(
    code: Code,
    block: Raw,
    warp: Raw,
    event: Raw,
    lanes: Value,
    form: Raw,
    number: Value,
) -> Value:
    """Whether machine code can make the second values of a form."""
    found = _entry(code, block, form)
    return convert(found != 0, I32, signed=False)


def _product(
    code: Code,
    block: Raw,
    warp: Raw,
    event: Raw,
    lanes: Value,
    product: Raw,
    number: Value,
) -> Value:
    """All four warps have issued a product: make the second values of D."""
    b = code.builder
    form = pointer_at(code, product, fast.PRODUCT_FORM)
    place = b.inttoptr(_entry(code, block, form).raw, POINTER)
    entry = {
        name: field(code, place, 8 * index, I64)[0] for index, name in enumerate(ENTRY)
    }
    own = convert(field(code, warp, layout.WARP_NUMBER, I32)[0], I64)
    first = own & -WARPS
    base = field(code, block, layout.BLOCK_FIRST_WARP, I64)[0]
    size = field(code, block, layout.BLOCK_WARP_BYTES, I64)[0]
    warps = code.scratch(I64, WARPS)
    for index in range(WARPS):
        warps[index] = base + (first + index) * size
    given = [
        b.bitcast(warps.raw, POINTER),
        b.inttoptr(entry["table"].raw, POINTER),
        field(code, product, fast.PRODUCT_DESCRIPTORS, I64).raw,
        pointer_at(code, block, layout.BLOCK_SHARED),
        field(code, block, layout.BLOCK_SHARED_SIZE, I64)[0].raw,
        b.inttoptr(entry["shadows"].raw, POINTER),
        field(code, product, fast.PRODUCT_SCALE_D, I64).raw,
        b.inttoptr(entry["work"].raw, POINTER),
        entry["data"].raw,
        entry["site"].raw,
        (first * entry["chains"] + entry["chain"]).raw,
        field(code, block, layout.BLOCK_INDEX, I64)[0].raw,
        first.raw,
        entry["eager"].raw,
    ]
    kind = ir.FunctionType(I32, [each.type for each in given])
    call = b.inttoptr(entry["function"].raw, kind.as_pointer())
    good = Value(b, b.call(call, given))
    # It need not be computed again.
    done = field(code, product, fast.PRODUCT_DONE, I32)
    done[0] = select(entry["eager"] != 0, good, good.lift(0))
    return code.constant(1, I32)


_KINDS = [P, P, P, I32, P, I64]
TOUCH = routine("planes.wgmma.touch", _touch, _KINDS, I32)
PRODUCT = routine("planes.wgmma.product", _product, _KINDS, I32)
