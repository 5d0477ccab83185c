"""Nodes: where a NaN or an infinity was born, and which way it came.

A node is a site, a kind, and the node of the operand that it comes from, its parent.
Its number has the context above bit 12.  All lanes and blocks that come the same way
share a node, which keeps the first of them.  A way that comes to a site again, as in a
loop, goes on with the node that it had there.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import F64, I32, I64, Code, Value, convert, shift_unsigned
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.values.numerics.code import layout as at

CONTEXT_BITS = 12
"""Where the number of the context begins in the number of a node."""
NAME = "numerics.node"


def new_node(code: Code, table: Raw, given: Sequence[Value]) -> Value:
    """The number of the node with these fields, without the count, as i32."""
    b = code.builder
    function = b.module.globals.get(NAME)
    if function is None:
        function = _defined(b.module)
    return Value(b, b.call(function, [table, *(each.raw for each in given)]))


def _defined(module: ir.Module) -> ir.Function:
    wide, floats = [I64] * 7, [F64] * 4
    kind = ir.FunctionType(I32, [POINTER, *wide, *floats])
    function = ir.Function(module, kind, NAME)
    function.linkage = "internal"
    function.attributes.add("noinline")
    code = Code(function)
    table, *rest = function.args
    code.close(_found(code, table, [Value(code.builder, each) for each in rest]))
    return function


def _nodes(code: Code, table: Raw, number: Value) -> Raw:
    """Where the nodes of the context of a node are."""
    b = code.builder
    directory = pointer_at(code, table, at.NODES)
    context = shift_unsigned(number, CONTEXT_BITS)
    entry = b.bitcast(b.gep(directory, [(context * 8).raw]), POINTER.as_pointer())
    return b.load(entry)


def _place(code: Code, table: Raw, number: Value) -> Raw:
    """Where a node is, of any context."""
    index = number & ((1 << CONTEXT_BITS) - 1)
    nodes = _nodes(code, table, number)
    return code.builder.gep(nodes, [(index * at.NODE_BYTES).raw])


def _existing(code: Code, table: Raw, number: Value) -> Value:
    """The number of a node; 0 if its context has none.

    A kernel that takes the bits of one float for another, or that races, has numbers in
    its second values that are none of nodes.
    """
    b = code.builder
    found = code.variable(number.lift(0))
    with code.when(shift_unsigned(number, CONTEXT_BITS) < at.MOST_CONTEXTS):
        nodes = Value(b, b.ptrtoint(_nodes(code, table, number), I64))
        with code.when(nodes != 0):
            found.value = number
    return found.value


def _field(code: Code, node: Raw, name: str) -> Value:
    return field(code, node, at.NODE_AT[name], I64)[0]


def _found(code: Code, table: Raw, given: list[Value]) -> Value:
    """Look for a node, and make it if there is none."""
    given[2] = _existing(code, table, given[2])
    site, kind, parent, operand = given[:4]
    found = code.variable(site.lift(0))
    step = code.variable(parent)
    # The way may have been here before.
    with (
        code.loop(at.LONGEST),
        code.when(
            (step.value != 0) & (found.value == 0) & (kind == int(at.Birth.PASSED))
        ),
    ):
        node = _place(code, table, step.value)
        with code.when(_field(code, node, "site") == site):
            found.value = step.value
        step.value = _field(code, node, "parent")
    first = field(code, table, at.FIRST_NODE, I64)[0]
    count = field(code, table, at.NODE_COUNT, I64)
    with code.when(found.value == 0), code.loop(count[0], start=1) as index:
        node = _place(code, table, first + index)
        same = _field(code, node, "site") == site
        for name, wanted in (("kind", kind), ("parent", parent), ("operand", operand)):
            same = same & (_field(code, node, name) == wanted)
        with code.when(same):
            found.value = first + index
    with code.when(found.value == 0):
        full = count[0] >= at.MOST_NODES
        with code.when(full):
            lost = field(code, table, at.LOST_NODES, I64)
            lost[0] = lost[0] + 1
        with code.when(~full):
            found.value = first + count[0]
            _fill(code, _place(code, table, found.value), given)
            count[0] = count[0] + 1
    with code.when(found.value != 0):
        node = _place(code, table, found.value)
        number = field(code, node, at.NODE_AT["count"], I64)
        number[0] = number[0] + 1
    return convert(found.value, I32)


def _fill(code: Code, node: Raw, given: list[Value]) -> None:
    names = [each for each in at.NODE_FIELDS if each != "count"]
    for name, value in zip(names, given, strict=True):
        of = F64 if name in ("a", "b", "c", "value") else I64
        field(code, node, at.NODE_AT[name], of)[0] = value
    field(code, node, at.NODE_AT["count"], I64)[0] = given[0].lift(0)
