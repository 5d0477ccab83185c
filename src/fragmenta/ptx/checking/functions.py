"""Checks of a function whose instructions are all right."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fragmenta.ptx import rules
from fragmenta.ptx.checking import memory
from fragmenta.ptx.checking.context import Context
from fragmenta.ptx.checking.divergence import Divergence
from fragmenta.ptx.checking.places import LineSpan
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.checking.reaching import Unwritten, unwritten
from fragmenta.ptx.checking.register_effects import effects_of
from fragmenta.ptx.families import MOVES
from fragmenta.ptx.flow import blocks
from fragmenta.ptx.module import Function
from fragmenta.ptx.rules import INFO, WARNING

#: The words for a register that is read too early.
_WHEN = {
    "never": "never written",
    "later": "written only later",
    "maybe": "not written on every path to here",
}


_COPIES = MOVES | {"selp"}
"""A compiler may move an unwritten value without using it."""


def flow(function: Function, context: Context) -> Iterator[Problem]:
    """Registers that are read too early, and warps that are split."""
    made = blocks(function)
    found = unwritten(made, effects_of(function))
    yield from _early(function, context, list(found))
    yield from _split(function, context, Divergence(function).partial(made))


def cta_groups(function: Function, context: Context) -> Iterator[Problem]:
    """All tcgen05 of a function work for one CTA, or all for a pair."""
    first = ""
    for each in function.instructions:
        found = re.search(r"\.(cta_group::[12])\b", each.mnemonic)
        if not each.of_tensor_memory or found is None:
            continue
        first = first or found[1]
        if found[1] != first:
            message = (
                f"{function.shown} has tcgen05 with .{first} before this .{found[1]}"
            )
            hint = "all tcgen05 of a function have the same .cta_group"
            yield context.problem(each, rules.CTA_GROUP, message, hint)
            return


def _early(
    function: Function, context: Context, found: list[Unwritten]
) -> Iterator[Problem]:
    """One problem for each instruction; a single one for all that may be right."""
    given = {each.name for each in function.parameters}  # some are registers
    together: dict[tuple[object, ...], list[Unwritten]] = {}
    for each in found:
        of = function.instructions[each.instruction]
        lax = each.when == "maybe" or of.opcode in _COPIES
        key = (each.when,) if lax else (each.when, each.instruction)
        if (each.register.vector or each.register.name) not in given:
            together.setdefault(key, []).append(each)
    for (when, *place), some in together.items():
        first, more = some[0], len(some) - 1
        others = f" and {more} other register{'s' * (more > 1)}" if more else ""
        read = f"{first.register.name}{others} {'are' if more else 'is'} read"
        message = f"{read}, but {'are' if more else 'is'} {_WHEN[str(when)]}"
        of = function.instructions[first.instruction]
        severity = WARNING if place else INFO
        yield context.problem(of, rules.UNINITIALISED, message, severity=severity)


def _split(
    function: Function, context: Context, found: Iterator[tuple[int, int]]
) -> Iterator[Problem]:
    """One problem for each instruction that runs with a part of its warp."""
    code = function.instructions
    for index, branch in found:
        of = code[index]
        if not context.first((index, "aligned")):
            continue
        why = f"the branch in line {code[branch].line} splits the warp"
        if index == branch:
            why = "its guard differs between threads of a warp"
        message = f"all threads of a warp must run {of.mnemonic} together, but {why}"
        yield context.problem(of, rules.ALIGNED, message)


def shared_memory(function: Function, context: Context) -> Iterator[Problem]:
    """Whether a kernel has more static shared memory than a target allows."""
    if not function.kernel:
        return
    used = memory.shared_bytes(context.module, function)
    for target in context.targets:
        static, dynamic = memory.limits(target)
        if used > (dynamic if function.of_tiles else static):
            message = (
                f"{function.shown} has {used:,} bytes of static shared memory; "
                f"{target} allows {static:,}"
            )
            hint = f"shared memory of a size known at launch may have {dynamic:,} bytes"
            place = LineSpan(function.line or 1, 1, 1)
            yield context.problem_at(place, rules.SHARED_MEMORY, message, hint)
            return
