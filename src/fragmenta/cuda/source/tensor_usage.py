"""Example statements that call the function of a ``tcgen05`` instruction."""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.cuda.source.access import REGISTERS
from fragmenta.cuda.source.formatting import WIDTH, wrapped
from fragmenta.cuda.source.helpers import Snippet
from fragmenta.cuda.source.inline import (
    WrapperFunction,
    function_name,
    instruction_piece,
)
from fragmenta.cuda.source.ptx import MmaOptions, check_options
from fragmenta.cuda.source.tensor_moves import around
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.reading import instruction


def pieces(op: Instruction) -> Iterator[Snippet]:
    """The functions of the instructions that go with it."""
    needs: tuple[str, ...] = ("tcgen05_hold",) if op.loads else ()
    if op.tensor_memory:
        needs = ("tcgen05_hold", "warp_id", "elect_one", "mbarrier")
    for number, each in enumerate(_others(op)):
        piece = instruction_piece(each)
        yield Snippet(piece.name, piece.text, () if number else needs, piece.targets)


def _others(op: Instruction) -> list[Instruction]:
    if op.tensor_memory:
        group = f"cta_group::{op.cta_group}"
        names = [f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster.b64"]
        if op.idesc is None:
            return [instruction(names[0])]
        found = around(op)
        return [instruction(names[0]), *(found[n] for n in ("after", "load", "wait"))]
    if op.loads or op.stores:
        way = "ld" if op.loads else "st"
        return [instruction(f"tcgen05.wait::{way}.sync.aligned")]
    return []


def example(op: Instruction, name: str | None, options: MmaOptions) -> list[str]:
    """Statements that use it; addresses and descriptors are there already.

    >>> import fragmenta as fm
    >>> ld = fm.instruction("tcgen05.ld.sync.aligned.32x32b.x4.b32")
    >>> for line in example(ld, None, MmaOptions()):
    ...     print(line)
    unsigned r[4];
    tcgen05_ld_32x32b_x4_b32(r, taddr);
    tcgen05_wait_ld();
    tcgen05_hold(r);
    """
    options = check_options(op, options)
    call = WrapperFunction(op, name or function_name(op) + options.tag, False, options)
    arrays = [each for each in call.arguments if each.array and not op.tensor_memory]
    declared = [
        f"{REGISTERS[each.operand.ptx][0]} {each.name}[{each.operand.count}];"
        for each in arrays
    ]
    if any(each.name == "redval" for each in call.arguments):
        declared.append("unsigned redval;")
    if op.tensor_memory:
        return _multiplication(op, call)
    held = [f"tcgen05_hold({each.name});" for each in call.outputs]
    after = [f"{function_name(each)}();" for each in _others(op)]
    return [*declared, *_called(call), *after, *held]


def _called(call: WrapperFunction) -> list[str]:
    """The call, with names for what a caller gives."""
    columns = [a for a in call.arguments if a.operand.ptx == "columns"]
    words = [
        each.name
        for each in call.arguments
        if not (each.template or each.literal or each.has_default)
    ]
    if call.op.tensor_memory:
        words.append("false")
    head = f"{call.name}{'<32>' * bool(columns)}"
    line = f"{head}({', '.join(words)});"
    if len(line) < WIDTH - 7:
        return [line]
    filled = [f"{word}," for word in words[:-1]] + [f"{words[-1]});"]
    return [f"{head}(", *(f"    {text}" for text in wrapped(filled, WIDTH - 11))]


def _multiplication(op: Instruction, call: WrapperFunction) -> list[str]:
    """One thread multiplies; then each warp loads some columns of its lanes of D."""
    commit, *rest = _others(op)
    lines = [
        "if (warp_id() == 0 && elect_one()) {",
        *(f"    {line}" for line in _called(call)),
        f"    {function_name(commit)}(mbar);",
        "}",
        "mbarrier_wait(mbar, 0);",
    ]
    if not rest:
        return lines
    after, load, wait = rest
    count = load.fragments["R"].registers
    return [
        *lines,
        f"{function_name(after)}();",
        f"unsigned r[{count}];",
        f"{function_name(load)}(r, d + (32 * warp_id() << 16));",
        f"{function_name(wait)}();",
        "tcgen05_hold(r);",
    ]
