"""The check of a PTX text, or of a single instruction."""

from __future__ import annotations

import re
from dataclasses import replace

from fragmenta.errors import BadCall, PtxSyntaxError
from fragmenta.ptx import rules
from fragmenta.ptx.checking.checker import check, problems
from fragmenta.ptx.checking.context import Context
from fragmenta.ptx.checking.places import SpanFinder
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.reading import parse
from fragmenta.reference.isa.target import TARGETS, check_target


def check_text(text: str, target: str | None = None, name: str = "") -> list[Problem]:
    """Everything that is wrong with a text; if it cannot be read, that alone.

    >>> check_text(".version 8.0 .target sm_90a .entry f() { ret }")[0].rule
    'syntax'
    """
    if target is not None:
        target = check_target(target)
    try:
        module = parse(text, name)
    except PtxSyntaxError as why:
        return [_unreadable(text, why)]
    return check(module, target)


def _unreadable(text: str, why: PtxSyntaxError) -> Problem:
    lines = text.split("\n")
    shown = lines[why.line - 1].rstrip("\r") if why.line <= len(lines) else ""
    message = str(why).split("\n", maxsplit=1)[0]
    message = re.sub(r"^.*?, line \d+, column \d+: ", "", message)
    message, _, hint = message.partition("; ")
    return Problem(
        rules.SYNTAX.name,
        rules.SYNTAX.severity,
        why.line,
        why.column,
        shown,
        message,
        hint,
    )


_HEAD = ".version {} .target {} .address_size 64 .entry f() {{ "


def check_line(text: str, target: str | None = None) -> list[Problem]:
    """Everything that is wrong with one instruction, whose registers are not declared.

    >>> [each.message for each in check_line("add.s32 %r1, %r2;")]
    ['add.s32 takes 3 operands (d, a, b); given 2']
    >>> check_line("add.s32")
    []
    """
    if target is not None:
        target = check_target(target)
    head = _HEAD.format(max(TARGETS.values()), target or "sm_90a")
    line = text.strip().rstrip(";")
    try:
        module = parse(f"{head}\n{line};\n}}")
    except PtxSyntaxError as why:
        found = _unreadable(f"\n{line}", why)
        return [replace(found, line=max(1, found.line - 1), text=line)]
    if [len(each.instructions) for each in module.functions.values()] != [1]:
        raise BadCall(f"one instruction at a time; given {line!r}")
    targets = (target,) if target else ()
    context = Context(module, SpanFinder(module.text), targets, None, declared=False)
    return [
        replace(each, line=each.line - 1, function="")
        for each in problems(context, module.functions.values())
    ]
