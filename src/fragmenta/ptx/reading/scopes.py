"""Resolves names: registers, variables and labels of nested blocks.

A name belongs to the innermost ``{ }`` that declares it.  Registers and variables are
known from their declaration on, labels in the whole block: they are resolved when the
function ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.ptx.module import (
    Immediate,
    Label,
    Operand,
    Register,
    RegisterPart,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
    type_bytes,
)
from fragmenta.ptx.reading.expressions import WARP_SZ

SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid|laneid|n?warpid|n?smid|gridid"
    r"|cluster_n?ctarank|is_explicit_cluster|lanemask_(?:eq|le|lt|ge|gt)"
    r"|clock(?:_hi|64)?|globaltimer(?:_lo|_hi)?|pm[0-7](?:_64)?|envreg\d{1,2}"
    r"|reserved_smem_offset_(?:begin|end|cap|\d+)|current_graph_exec"
    r"|(?:total|aggr|dynamic)_smem_size)"
)
"""The names of the special registers."""

SPECIAL_VECTOR = re.compile(r"%(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)")
"""The special registers that are vectors of four elements."""
ELEMENTS = "xyzw"
"""The elements of a vector register."""
_COLOURS = dict(zip("rgba", ELEMENTS, strict=True))

_SINK = Sink()
_WARP_SZ = Immediate(WARP_SZ, "int", WARP_SZ)
Kind: TypeAlias = tuple[str, int]
"""The type of a register, and how many elements it has."""


class Unknown(Symbol):
    """A name that was not declared up to here: a label further down, or nothing."""

    __slots__ = ()


@dataclass
class BlockScope:
    """What one block declares."""

    parent: BlockScope | None = None
    kinds: dict[str, Kind] = field(default_factory=dict)
    """Registers declared one by one."""
    ranges: dict[str, tuple[int, Kind]] = field(default_factory=dict)
    """Registers declared as ``%r<100>``, by the name before the number."""
    used: dict[str, Register | Vector] = field(default_factory=dict)
    """The declared registers that were used."""
    undeclared: set[str] = field(default_factory=set)
    """Those among them that were not declared."""
    symbols: dict[str, Symbol] = field(default_factory=dict)
    """Variables, parameters and tables, with their unique names."""
    labels: dict[str, str] = field(default_factory=dict)
    """The unique name of each label."""
    known: dict[str, Operand] = field(default_factory=dict)
    """What operands stand for, as written: most are written many times."""

    def in_range(self, name: str) -> bool:
        """Whether a declaration such as ``%r<100>`` includes a name."""
        stem = name.rstrip("0123456789")
        number = name[len(stem) :]
        count, _ = self.ranges.get(stem, (0, None))
        return 0 < len(number) < 10 and int(number) < count

    def forget_undeclared(self) -> None:
        """Registers that were used before they were declared are others than these."""
        for each in self.undeclared:
            self.used.pop(each, None)
        self.undeclared.clear()

    def declares(self, name: str) -> bool:
        """Whether this block itself declares a name."""
        return name in self.kinds or name in self.symbols or name in self.labels


class FunctionScope:
    """The names of one function."""

    def __init__(self, outer: Mapping[str, object]):
        self.outer = outer
        """What the module has declared so far, by name."""
        self.scope = self.top = BlockScope()
        self.taken: dict[str, int] = {}
        self.registers: list[Register] = []
        self.variables: dict[str, Variable] = {}
        self.open = False
        """Whether a name was met that may turn out to be a label."""

    # ── declaring ───────────────────────────────────────────────────────────

    def enter(self) -> None:
        """Go into a block."""
        self.scope = BlockScope(self.scope)

    def leave(self) -> bool:
        """Come out of a block; False if it is the function's own."""
        if self.scope.parent is None:
            return False
        self.scope = self.scope.parent
        return True

    def unique(self, name: str) -> str:
        """A name that nothing else has in this function, and no variable outside."""
        count = self.taken[name] = self.taken.get(name, 0) + 1
        if count == 1 and name in self.outer:
            count = self.taken[name] = 2
        return name if count == 1 else f"{name}@{count}"

    def add_register(self, name: str, kind: Kind, count: int | None = None) -> bool:
        """Declare a register, or ``count`` of them; False if it was declared before."""
        scope = self.scope
        scope.known.clear()  # the name may have meant another one up to here
        scope.forget_undeclared()
        if count is not None:
            fresh = name not in scope.ranges
            scope.ranges[name] = (count, kind)
            return fresh
        fresh = not scope.declares(name) and not scope.in_range(name)
        scope.kinds[name] = kind
        return fresh

    def add_parameter(self, variable: Variable) -> bool:
        """Declare a parameter, which keeps its name; False if it has one already."""
        if variable.space == "reg":
            return self.add_register(
                variable.name, (variable.type, variable.elements or 1)
            )
        fresh = not self.scope.declares(variable.name)
        self.taken[variable.name] = 1
        self.scope.symbols[variable.name] = Symbol(variable.name)
        self.variables[variable.name] = variable
        return fresh

    def add_symbol(self, name: str) -> Symbol | None:
        """Declare a variable or a table; None if the name was declared before."""
        scope = self.scope
        if scope.declares(name):
            return None
        scope.known.clear()
        found = scope.symbols[name] = Symbol(self.unique(name))
        return found

    def add_label(self, name: str) -> Label | None:
        """Declare a label; None if the name was declared before."""
        if self.scope.declares(name):
            return None
        unique = self.scope.labels[name] = self.unique(name)
        return Label(unique, name)

    # ── looking up ──────────────────────────────────────────────────────────

    def find(self, name: str) -> Register | Vector | Symbol | None:
        """The register or the variable of a name, or None."""
        scope: BlockScope | None = self.scope
        stem = name.rstrip("0123456789")
        number = int(name[len(stem) :]) if 0 < len(name) - len(stem) < 10 else -1
        while scope is not None:
            register = scope.used.get(name)
            if register is not None:
                return register
            kind = scope.kinds.get(name)
            if kind is not None:
                return self._use(scope, name, kind)
            if name in scope.symbols:
                return scope.symbols[name]
            if number >= 0 and stem in scope.ranges:
                count, kind = scope.ranges[stem]
                if number < count:
                    return self._use(scope, f"{stem}{number}", kind)
            scope = scope.parent
        return None

    def _use(self, scope: BlockScope, name: str, kind: Kind) -> Register | Vector:
        found = scope.used.get(name)
        if found is not None:
            return found
        type_, lanes = kind
        made: Register | Vector
        if lanes == 1:
            made = self._new(name, type_)
        else:
            made = Vector(
                tuple(self._new(f"{name}.{e}", type_, name) for e in ELEMENTS[:lanes]),
                name,
            )
        scope.used[name] = made
        return made

    def _new(self, name: str, type_: str, vector: str = "") -> Register:
        found = Register(name, type_, len(self.registers), vector)
        self.registers.append(found)
        return found

    def register(self, name: str) -> Register | None:
        """The register of a name where nothing else may stand; None for a vector."""
        found = self.find(name)
        if isinstance(found, Vector):
            return None
        return found if isinstance(found, Register) else self.undeclared(name)

    def undeclared(self, name: str) -> Register:
        """A register that no declaration has; it has no type."""
        found = self.top.used.get(name)
        if not isinstance(found, Register):
            found = self.top.used[name] = self._new(name, "")
            self.top.undeclared.add(name)
        return found

    def part(self, name: str, which: str) -> Operand | None:
        """``%v.x``, ``%tid.x`` or ``%r1.h0``; None if there is no such part."""
        found: Operand | None = self.find(name)
        element = ELEMENTS.find(_COLOURS.get(which, which))
        if found is None and SPECIAL.fullmatch(name):
            found = self.operand(name)
        if isinstance(found, Vector):
            wrong = len(which) != 1 or not 0 <= element < len(found.items)
            return None if wrong else found.items[element]
        if isinstance(found, Special):
            return None
        register = self.register(name)
        return None if register is None else RegisterPart(register, which)

    def operand(self, name: str) -> Operand:
        """What a name that stands alone means."""
        found = self.find(name)
        if found is not None:
            return found
        if name == "_":
            return _SINK
        if name[0] == "%":
            if SPECIAL_VECTOR.fullmatch(name):
                items = (Special(f"{name}.{each}") for each in ELEMENTS)
                return Vector(tuple(items), name)
            if SPECIAL.fullmatch(name):
                return Special(name)
            return self.undeclared(name)
        if name == "WARP_SZ":
            return _WARP_SZ
        return Symbol(name) if name in self.outer else self.unknown(name)

    def unknown(self, name: str) -> Unknown:
        """A name that is settled at the end of the function."""
        self.open = True
        return Unknown(name)

    def missing(self, name: str) -> str:
        """A name that stands for nothing; another block may have one that is equal."""
        return f"{name}@0" if name in self.taken else name

    def element_bytes(self, symbol: Symbol) -> int:
        """The bytes of an element of a variable; 1 if it is not known."""
        found = self.variables.get(symbol.name) or self.outer.get(symbol.name)
        return type_bytes(found.type) if isinstance(found, Variable) else 1

    def label(self, name: str, scope: BlockScope) -> Label | None:
        """The label of a name as seen from a block, or None."""
        inner: BlockScope | None = scope
        while inner is not None:
            if name in inner.labels:
                return Label(inner.labels[name], name)
            inner = inner.parent
        return None
