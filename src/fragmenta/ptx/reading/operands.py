"""Reads operands.

Most operands are written many times, and nearly all have one of a few forms: a name, a
number, an address or a vector of those.  :func:`quick` finds these with one regular
expression and keeps what it found; :func:`operand` reads all forms, word by word.
"""

from __future__ import annotations

import re
from dataclasses import replace

from fragmenta.ptx.module import (
    Address,
    Label,
    Negative,
    Not,
    Operand,
    OperandGroup,
    Pair,
    Register,
    RegisterPart,
    Special,
    Symbol,
    Vector,
)
from fragmenta.ptx.reading import expressions
from fragmenta.ptx.reading.expressions import immediate, literal
from fragmenta.ptx.reading.lexer import NAME, Cursor
from fragmenta.ptx.reading.scopes import ELEMENTS, BlockScope, FunctionScope, Unknown

_QUICK = re.compile(
    rf"""(?P<name>{NAME})
    | \[\s*(?P<base>{NAME})\s*(?:\+\s*(?P<offset>-?(?:0|[1-9]\d{{0,17}}))\s*)?\]
    | (?P<number>0|[1-9]\d{{0,17}}|0[xX][0-9a-fA-F]{{1,16}}
        |0[fF][0-9a-fA-F]{{8}}|0[dD][0-9a-fA-F]{{16}})
    | -(?P<negative>[1-9]\d{{0,17}})
    | (?P<part>{NAME}\.[a-z]\d?)
    | \{{(?P<vector>[^{{}}\[\]()]*)\}}
    """,
    re.VERBOSE | re.ASCII,
)


def quick(names: FunctionScope, text: str) -> Operand | None:
    """An operand of a frequent form, or None if it has another form.

    >>> quick(FunctionScope({"given": 1}), "[given+8]")
    Address(base=Symbol(name='given', offset=0), offset=8, items=())
    >>> quick(FunctionScope({}), "1 << 4")
    """
    found = _QUICK.fullmatch(text)
    if found is None:
        return None
    kind = found.lastgroup
    operand: Operand | None
    if kind == "name":
        operand = names.operand(text)
    elif kind in ("base", "offset"):
        operand = _address(names, found["base"], int(found["offset"] or 0))
    elif kind == "vector":
        operand = _quick_vector(names, found["vector"])
    elif kind == "part":
        name, _, which = text.partition(".")
        operand = names.part(name, which)
    elif kind == "number":
        operand = literal(text)
    else:
        operand = immediate(expressions.Whole(int(text)))
    if operand is not None and not names.open:
        names.scope.known[text] = operand
    return operand


def _quick_vector(names: FunctionScope, text: str) -> Vector | None:
    known, items = names.scope.known, []
    for word in map(str.strip, text.split(",")):
        item = known.get(word) or quick(names, word)
        if item is None or isinstance(item, Unknown | Vector):
            return None
        items.append(item)
    return Vector(tuple(items))


def _address(names: FunctionScope, base: str, offset: int) -> Address | None:
    found = names.operand(base)
    if isinstance(found, Register | Symbol):
        return Address(found, offset)
    return None


# ── word by word ────────────────────────────────────────────────────────────

_OPERAND = ("a register", "a constant", "a name", "'['", "'{'")


def operand(cursor: Cursor, names: FunctionScope) -> Operand:
    """Take an operand of any form but a group."""
    first = _single(cursor, names)
    if cursor.word != "|":
        return first
    if _is_part(first):
        cursor.fail("','", "';'")
    cursor.step()
    at, second = cursor.at, _single(cursor, names)
    if _is_part(second):
        cursor.text.fail(at, "a part of a register", ["a register"])
    return Pair(first, second)


def _is_part(of: Operand) -> bool:
    """Whether an operand has a dot: ``%v.x``, ``%r1.h0``, ``%tid.x``."""
    if isinstance(of, Register):
        return bool(of.vector)
    return isinstance(of, RegisterPart) or (isinstance(of, Special) and "." in of.name)


def _single(cursor: Cursor, names: FunctionScope) -> Operand:
    if cursor.kind == "name":
        return _named(cursor, names)
    if cursor.word == "{":
        return _vector(cursor, names)
    if cursor.word == "[":
        return address(cursor, names)
    if cursor.word in ("!", "-"):
        return _signed(cursor, names)
    return constant(cursor)


def constant(cursor: Cursor) -> Operand:
    """Take a constant; a float of 32 bits always stands alone."""
    word, kind = cursor.word, cursor.kind
    if kind != "number" and word not in ("(", "+", "-", "!", "~", "WARP_SZ"):
        cursor.fail(*_OPERAND)
    if kind == "number" and word[:2].lower() == "0f":
        cursor.step()
        return literal(word)
    return immediate(expressions.expression(cursor))


def _named(cursor: Cursor, names: FunctionScope) -> Operand:
    """Take a name, a part of a register, or a place in a variable."""
    if cursor.word == "WARP_SZ" and names.find("WARP_SZ") is None:
        return constant(cursor)
    name = cursor.step()
    if cursor.kind == "directive":
        return _part(cursor, names, name)
    found = names.operand(name)
    if not isinstance(found, Symbol):
        return found
    if cursor.word in ("+", "-"):
        return type(found)(found.name, expressions.added(cursor))
    if cursor.accept("["):
        index = expressions.whole(cursor)
        cursor.expect("]", "an operator")
        return Address(found, index * names.element_bytes(found))
    return found


def _part(cursor: Cursor, names: FunctionScope, name: str) -> Operand:
    """Take the ``.x`` after a name."""
    at, which = cursor.at, cursor.step()[1:]
    part = names.part(name, which)
    if part is None:
        whole = names.operand(name)
        count = len(whole.items) if isinstance(whole, Vector) else 0
        allowed = [f"'.{each}'" for each in ELEMENTS[:count]]
        cursor.text.fail(at, f"'.{which}', which {name} does not have", allowed)
    return part


def _register(cursor: Cursor, names: FunctionScope, what: str) -> Register:
    """Take the name of a register that is no vector."""
    at, name = cursor.at, cursor.name(what)
    found = names.register(name)
    if found is None:
        cursor.text.fail(at, f"the vector register '{name}'", [what])
    return found


def _signed(cursor: Cursor, names: FunctionScope) -> Operand:
    """Take a predicate or a register with a sign, or a constant."""
    start, sign = cursor.at, cursor.step()
    if cursor.kind != "name" or cursor.word == "WARP_SZ":
        cursor.jump(start)
        return constant(cursor)
    if sign == "!":
        return Not(_register(cursor, names, "a predicate"))
    of = _register(cursor, names, "a register")
    if cursor.kind == "directive":
        return Negative(RegisterPart(of, cursor.step()[1:]))
    return Negative(of)


def _vector(cursor: Cursor, names: FunctionScope) -> Vector:
    cursor.enter()
    cursor.expect("{")
    items = [_item(cursor, names)]
    while cursor.accept(","):
        items.append(_item(cursor, names))
    cursor.expect("}", "','")
    cursor.leave()
    return Vector(tuple(items))


def _item(cursor: Cursor, names: FunctionScope) -> Operand:
    """Take an item of a vector, where a name can only be a register."""
    if cursor.word in ("{", "["):
        cursor.fail("a register", "a constant", "'_'")
    at, item = cursor.at, operand(cursor, names)
    if isinstance(item, Unknown):
        return names.undeclared(item.name)
    if isinstance(item, Vector):
        allowed = ["a register", "a constant", "'_'"]
        cursor.text.fail(at, f"the vector register '{item.name}' in braces", allowed)
    return item


def address(cursor: Cursor, names: FunctionScope) -> Address:
    """Take an address in square brackets."""
    cursor.enter()
    cursor.expect("[")
    base: Register | Symbol | int = 0
    if cursor.kind == "name" and cursor.word != "WARP_SZ":
        at, name = cursor.at, cursor.step()
        found = names.operand(name)
        if not isinstance(found, Register | Symbol):
            cursor.text.fail(at, f"'{name}'", ["a register", "a variable", "a number"])
        base, added = found, expressions.added(cursor)
    else:
        added = expressions.whole(cursor)
    items = []
    while cursor.accept(","):
        items.append(operand(cursor, names))
    cursor.expect("]", *(() if items else ("'+'",)), "','")
    cursor.leave()
    return Address(base, added, tuple(items))


def group(cursor: Cursor, names: FunctionScope) -> OperandGroup:
    """Take operands in parentheses: what a call gives or gets."""
    cursor.expect("(")
    items = []
    if cursor.word != ")":
        items.append(_argument(cursor, names))
        while cursor.accept(","):
            items.append(_argument(cursor, names))
    cursor.expect(")", "','")
    return OperandGroup(tuple(items))


def _argument(cursor: Cursor, names: FunctionScope) -> Operand:
    """Take what a call gives or gets: whole registers, variables and constants."""
    at, allowed = cursor.at, ("a register", "a variable", "a constant")
    if cursor.word in ("{", "["):
        cursor.fail(*allowed)
    item = operand(cursor, names)
    if _is_part(item):
        cursor.text.fail(at, "a part of a register in a call", allowed)
    return item


def guard(cursor: Cursor, names: FunctionScope) -> Register | Not:
    """Take the predicate that stands after an ``@``."""
    negated = cursor.accept("!")
    found = _register(cursor, names, "a predicate")
    return Not(found) if negated else found


def settled(
    names: FunctionScope, given: Operand, scope: BlockScope, branch: bool
) -> Operand:
    """The operand with labels in the place of unknown names, seen from a block.

    A branch can only go to a label, even if there is none of that name.
    """
    if isinstance(given, Unknown):
        found = names.label(given.name, scope)
        if found is not None and not given.offset:
            return found
        missing = names.missing(given.name)
        return Label(missing, given.name) if branch else Symbol(missing, given.offset)
    if isinstance(given, OperandGroup | Vector):
        items = (settled(names, item, scope, branch) for item in given.items)
        return replace(given, items=tuple(items))
    if isinstance(given, Pair):
        first, second = (
            settled(names, item, scope, branch) for item in (given.first, given.second)
        )
        return Pair(first, second)
    if not isinstance(given, Address):
        return given
    base = given.base
    if isinstance(base, Unknown):
        base = Symbol(names.missing(base.name))
    items = (settled(names, item, scope, branch) for item in given.items)
    return Address(base, given.offset, tuple(items))
