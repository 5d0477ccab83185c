"""Places the variables of shared memory as ptxas does.

A kernel has the variables that it and the functions it may call name, one after the
other:

1. variables of the module with a linkage (``.visible``, ``.weak``, ``.extern`` with a
   size), in the order of the file,
2. the kernel's own,
3. the other variables of the module,
4. those of the functions, in the order in which the file declares the functions.

Variables without a size (``.extern .shared .align 16 .b8 x[]``) begin after them, at
multiples of 16 bytes at least.  They have no size, so that one begins after another
only where its alignment requires it.  All of the module count, also if the kernel
names none.  A variable that is declared in a function and that nothing names has no
place of its own, but counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.ptx.module import (
    Address,
    Function,
    Module,
    Operand,
    OperandGroup,
    Symbol,
    Variable,
    Vector,
)

DYNAMIC_ALIGN = 16


def named_in(operands: Sequence[Operand]) -> Iterator[str]:
    """The variables and functions that operands name."""
    for each in operands:
        if isinstance(each, Symbol):
            yield each.name
        elif isinstance(each, Address) and isinstance(each.base, Symbol):
            yield each.base.name
        elif isinstance(each, Vector | OperandGroup):
            yield from named_in(each.items)


def callees(module: Module, function: Function) -> list[str]:
    """The functions that a function may call, directly or through an address."""
    found: dict[str, None] = {}
    for instruction in function.instructions:
        for name in named_in(instruction.operands):
            goal = module.aliases.get(name, name)
            if goal in module.functions:
                found[goal] = None
    return list(found)


def reachable(module: Module, kernel: Function) -> list[str]:
    """The kernel, then all functions that it may call."""
    found = {kernel.name: None}
    waiting = [kernel]
    taken = any(
        symbol.name in module.functions
        for variable in module.variables.values()
        for _, symbol in variable.references
    )
    if taken:  # a table of functions in memory: any function may be called
        waiting += [f for f in module.functions.values() if not f.kernel]
    while waiting:
        function = waiting.pop()
        found[function.name] = None
        for name in callees(module, function):
            # The address of another kernel is for launching it, not for calling it.
            if name not in found and not module.functions[name].kernel:
                waiting.append(module.functions[name])
                found[name] = None
    return list(found)


@dataclass
class Space:
    """Memory that is allocated from its start on."""

    size: int

    def take(self, size: int, align: int) -> int:
        """Where the next bytes are."""
        start = -(-self.size // max(align, 1)) * max(align, 1)
        self.size = start + size
        return start


@dataclass
class SharedPlacement:
    """Where variables are in the shared memory of a kernel."""

    module: dict[str, int] = field(default_factory=dict)
    """Variables of the module that the kernel may use."""
    inner: dict[tuple[str, str], int] = field(default_factory=dict)
    """Variables of functions, by function and variable."""
    end: int = 0
    """Where static shared memory ends."""
    dynamic: tuple[str, ...] = ()
    """Variables without a size that the kernel or its functions name."""


def place_shared(module: Module, kernel: Function, start: int = 0) -> SharedPlacement:
    """Place the shared memory of a kernel; ``start`` is the first address.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_90
    ... .address_size 64
    ... .shared .align 4 .b8 other[4096]; .shared .align 4 .b8 tile[20];
    ... .extern .shared .align 64 .b8 rest[];
    ... .entry k() { .shared .b32 own; st.shared.b32 [tile], 1; st.shared.b32 [own], 2;
    ...     st.shared.b32 [rest], 3; ret; }''')
    >>> found = place_shared(module, module.functions["k"])
    >>> found.inner, found.module, found.end
    ({('k', 'own'): 0}, {'tile': 4, 'rest': 64}, 64)
    """
    names = reachable(module, kernel)
    functions = [each for each in module.functions.values() if each.name in names]
    own = {each.name: _named(each) for each in functions}
    used = set().union(*own.values())
    made, space = SharedPlacement(), Space(start)
    outer = [each for each in module.variables.values() if each.space == "shared"]
    sized = [each for each in outer if each.elements is not None and each.name in used]
    _take(made.module, space, [each for each in sized if each.linkage])
    unused: list[Variable] = []
    _inner(made, space, kernel, own[kernel.name], unused)
    _take(made.module, space, [each for each in sized if not each.linkage])
    for function in functions:
        if function.name != kernel.name:
            _inner(made, space, function, own[function.name], unused)
    _place_unsized(made, space, outer, functions, unused)
    every = [*outer, *(each for f in functions for each in f.variables.values())]
    made.dynamic = tuple(
        each.name
        for each in every
        if each.space == "shared" and each.elements is None and each.name in used
    )
    return made


def _named(function: Function) -> set[str]:
    """What the instructions of a function name."""
    every = (named_in(each.operands) for each in function.instructions)
    return {name for names in every for name in names}


def _take(places: dict[str, int], space: Space, variables: Sequence[Variable]) -> None:
    for each in variables:
        places[each.name] = space.take(each.size, each.align)


def _inner(
    made: SharedPlacement,
    space: Space,
    function: Function,
    used: set[str],
    unused: list[Variable],
) -> None:
    """Place the variables of a function that have a size."""
    for name, each in function.variables.items():
        if each.space != "shared" or each.elements is None:
            continue
        if name in used:
            made.inner[function.name, name] = space.take(each.size, each.align)
        else:
            unused.append(each)


def _place_unsized(
    made: SharedPlacement,
    space: Space,
    outer: Sequence[Variable],
    functions: Sequence[Function],
    unused: Sequence[Variable],
) -> None:
    """Place variables without a size, and count unnamed ones."""
    rest, dynamic = Space(space.size), Space(space.size)
    # The size is that of all: those that nothing names come last, and what has no size
    # would begin after them.
    for each in unused:
        rest.take(each.size, each.align)
    unsized = [("", each) for each in outer if each.elements is None]
    unsized += [
        (function.name, each)
        for function in functions
        for each in function.variables.values()
        if each.space == "shared" and each.elements is None
    ]
    for function_name, each in unsized:
        place = dynamic.take(0, max(each.align, DYNAMIC_ALIGN))
        rest.take(0, max(each.align, DYNAMIC_ALIGN))
        if function_name:
            made.inner[function_name, each.name] = place
        else:
            made.module[each.name] = place
    made.end = rest.take(0, DYNAMIC_ALIGN)
