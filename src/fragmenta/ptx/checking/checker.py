"""The check of a whole module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fragmenta.errors import nearest
from fragmenta.ptx import rules
from fragmenta.ptx.checking.context import Context
from fragmenta.ptx.checking.functions import cta_groups, flow, shared_memory
from fragmenta.ptx.checking.instructions import wrong_with
from fragmenta.ptx.checking.names import VisibleNames
from fragmenta.ptx.checking.places import LineSpan, SpanFinder
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.checking.tensor import signature
from fragmenta.ptx.module import Function, Module
from fragmenta.ptx.placement import reachable
from fragmenta.ptx.rules import ERROR, WARNING
from fragmenta.reference.isa.target import TARGETS, Version, check_target, number


def check(
    module: Module,
    target: str | None = None,
    kernel: str | None = None,
    with_flow: bool = True,
) -> list[Problem]:
    """Everything that is wrong with a module, or worth knowing, in order of the text.

    With ``target``, also whether this target can run it; with ``kernel``, only what
    concerns this kernel and the functions that it may call.  ``with_flow=False`` leaves
    out how registers and threads flow through a function, which is never an error.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_90a
    ... .entry f() {
    ...     .reg .b32 %r<2>; .reg .f32 %f<2>;
    ...     mov.b32 %r1, 0;
    ...     mov.f32 %f1, 0f00000000;
    ...     add.s32 %r1, %r1, %f1;
    ...     ret;
    ... }
    ... ''')
    >>> for problem in check(module):
    ...     print(problem)
    8:23: error: b of add.s32 is a .s32 register; %f1 is declared as .f32
    """
    if target is not None:
        target = check_target(target)
    named = dict.fromkeys((module.target, target or module.target))
    context = Context(
        module,
        SpanFinder(module.text),
        tuple(each for each in named if each in TARGETS),
        module.version,
    )
    found = list(_header(context, target))
    if kernel is None:
        chosen = list(module.functions.values())
    else:
        names = reachable(module, module.functions[kernel])
        chosen = [each for each in module.functions.values() if each.name in names]
    found += problems(context, chosen, with_flow)
    return sorted(found, key=lambda each: (each.line, each.column))


def problems(
    context: Context, functions: Iterable[Function], with_flow: bool = True
) -> Iterator[Problem]:
    """Everything that is wrong in some functions of a module."""
    good: set[object] = set()
    for function in functions:
        if not function.declared_only:
            yield from _function(function, context.within(function), good, with_flow)


def _function(
    function: Function, context: Context, good: set[object], with_flow: bool
) -> Iterator[Problem]:
    """Everything about a function.

    How registers and threads flow through it is checked only if every instruction is
    right.  ``good`` has what was found to be right before, without the names.
    """
    names = VisibleNames(context, function) if context.declared else None
    right = True
    for each in function.instructions:
        key = signature(each)
        found = [] if key in good else list(wrong_with(each, context))
        if not found:
            good.add(key)
        if names is not None:
            found += names.wrong_with(each)
        yield from found
        right = right and all(problem.severity != ERROR for problem in found)
    yield from cta_groups(function, context)
    if context.declared and function.instructions:
        if right and with_flow:
            yield from flow(function, context)
        yield from shared_memory(function, context)


def _header(context: Context, wanted: str | None) -> Iterator[Problem]:
    """Whether the version has the file's target, and the wanted one can run it."""
    target, version = context.module.target, context.module.version
    found = re.search(r"\.target\s+(\w+)", context.places.clean)
    place = LineSpan(1, 1, 1)
    if found:
        place = context.places.of(found.start(1), len(target))
    if target not in TARGETS:
        if not re.fullmatch(r"sm_[1-6]\d", target):  # those had no Tensor Cores
            message = f"no target {target}{nearest(target, TARGETS)}"
            yield context.problem_at(place, rules.TARGET, message, severity=WARNING)
        return
    if version < TARGETS[target]:
        have = Version(*version)
        message = f"{target} needs PTX {TARGETS[target]}; the file has {have}"
        yield context.problem_at(place, rules.VERSION, message)
    if wanted and not runs_on(target, wanted):
        message = f"PTX for {target} cannot be assembled for {wanted}"
        yield context.problem_at(place, rules.TARGET, message)


def runs_on(written: str, target: str) -> bool:
    """Whether PTX for one target can be assembled for another.

    >>> runs_on("sm_80", "sm_90a"), runs_on("sm_90a", "sm_100a")
    (True, False)
    >>> runs_on("sm_100f", "sm_103a")
    True
    """
    if written == target:
        return True
    if written.endswith("a"):
        return False
    first, second = number(written), number(target)
    if written.endswith("f") and (
        first // 10 != second // 10 or target[-1] not in "af"
    ):
        return False
    return first <= second
