"""What is wrong with a function whose instructions are all right?"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.ptx.checking import memory
from fragmenta.ptx.checking.context import Context
from fragmenta.ptx.checking.divergence import Divergence
from fragmenta.ptx.checking.effects import effects
from fragmenta.ptx.checking.flow import blocks
from fragmenta.ptx.checking.places import Place
from fragmenta.ptx.checking.problem import ERROR, INFO, WARNING, Problem
from fragmenta.ptx.checking.reaching import unwritten
from fragmenta.ptx.module import Function

#: What is said about a register that is read too early.
_WHEN = {
    "never": "is never written",
    "later": "is written only later",
    "maybe": "is not written on every way to here",
}


def flow(function: Function, context: Context) -> Iterator[Problem]:
    """Registers that are read too early, and warps that are split."""
    code = function.instructions
    made = blocks(function)
    effect = [effects(each) for each in code]
    given = {each.name for each in function.parameters}  # some are registers
    for index, register, when in unwritten(made, effect):
        of = code[index]
        if register.name in given:
            continue
        chosen = of.opcode == "selp"  # it may choose the other one
        severity = INFO if when == "maybe" or chosen else WARNING
        message = f"{register.name} is read, but {_WHEN[when]}"
        yield context.problem(of, "uninitialised", severity, message)
    for index, branch in Divergence(function, effect).partial(made):
        of = code[index]
        if not context.first((index, "aligned")):
            continue
        why = f"the branch in line {code[branch].line} splits the warp"
        if index == branch:
            why = "its guard differs between threads of a warp"
        message = f"all threads of a warp must run {of.mnemonic} together, but {why}"
        yield context.problem(of, "aligned", WARNING, message)


def shared_memory(function: Function, context: Context) -> Iterator[Problem]:
    """Whether a kernel has more static shared memory than a target allows."""
    if not function.kernel:
        return
    used = memory.shared_bytes(context.module, function)
    for target in context.targets:
        static, dynamic = memory.limits(target)
        if used > static:
            message = (
                f"{function.name} has {used:,} bytes of static shared memory; "
                f"{target} allows {static:,}"
            )
            hint = f"shared memory of a size known at launch may have {dynamic:,} bytes"
            place = Place(function.line or 1, 1, 1)
            yield context.problem_at(place, "shared-memory", ERROR, message, hint)
            return
