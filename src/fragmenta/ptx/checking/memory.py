"""Does a kernel have more shared memory than its target allows?"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.isa.table import read
from fragmenta.isa.target import expand
from fragmenta.ptx.module import (
    Address,
    Function,
    Group,
    Module,
    Operand,
    Symbol,
    Variable,
)

# What ptxas allows in a kernel, and what a launch may have at most; bytes.  The first
# line that has the target counts.
SHARED = """
targets                                | static | dynamic
sm_90a sm_100a sm_103a sm_107a sm_110a | 232448 | 232448
sm_120a sm_121a                        | 101376 | 101376
sm_90..110                             |  49152 | 232448
sm_120..121                            |  49152 | 101376
sm_86..86 sm_88..89                    |  49152 | 101376
sm_80..87                              |  49152 | 166912
sm_75..75                              |  49152 |  65536
sm_70..72                              |  49152 |  98304
"""
_SHARED = read(SHARED)


def limits(target: str) -> tuple[int, int]:
    """The bytes of static and of dynamic shared memory that a kernel may have.

    >>> limits("sm_80"), limits("sm_90a")
    ((49152, 166912), (232448, 232448))
    """
    row = next(row for row in _SHARED if target in expand(row["targets"]))
    return int(row["static"]), int(row["dynamic"])


def reachable(module: Module, kernel: Function) -> list[Function]:
    """A kernel and the functions that it may call, in order of the text.

    If a variable holds the address of a function, any function may be called.
    """
    found, waiting = {kernel.name}, [kernel]
    if any(
        symbol.name in module.functions
        for variable in module.variables.values()
        for _, symbol in variable.references
    ):
        waiting += [each for each in module.functions.values() if not each.kernel]
    while waiting:
        function = waiting.pop()
        found.add(function.name)
        for name in _names(function):
            goal = module.aliases.get(name, name)
            if goal in module.functions and goal not in found:
                waiting.append(module.functions[goal])
    return [each for each in module.functions.values() if each.name in found]


def shared_bytes(module: Module, kernel: Function) -> int:
    """The static shared memory of a kernel and of the functions that it calls.

    A variable outside of functions counts if it is used.  Alignment may take a little
    more room: ptxas puts the variables in an order of its own.
    """
    seen: dict[str, Variable] = {}
    for function in reachable(module, kernel):
        for name, inner in function.variables.items():
            seen[f"{function.name} {name}"] = inner
        for name in _names(function):
            outer = module.variables.get(name)
            if outer is not None:
                seen[name] = outer
    return sum(
        variable.size
        for variable in seen.values()
        if variable.space == "shared" and variable.linkage != "extern"
    )


def _names(function: Function) -> Iterator[str]:
    """The variables and functions that the instructions name."""
    for instruction in function.instructions:
        stack: list[Operand] = list(instruction.operands)
        while stack:
            each = stack.pop()
            if isinstance(each, Symbol):
                yield each.name
            elif isinstance(each, Address) and isinstance(each.base, Symbol):
                yield each.base.name
            elif isinstance(each, Group):
                stack += each.items
