"""Finds the code blocks that all lanes of a warp always execute together.

The lanes start together.  Before the first instruction at which they can diverge, no
code for a part of them is needed.  A kernel without branches is half as long.
"""

from __future__ import annotations

from fragmenta.engine.simt.program import JUMPS, CodeBlock, Program, waits
from fragmenta.ptx.flow import destinations
from fragmenta.ptx.module import Immediate, Instruction


def convergent_blocks(program: Program) -> int:
    """How many code blocks, from the first on, all lanes execute together."""
    own = [b for b in program.blocks if b.unit.function is program.kernel]
    diverging = next(
        (b.number for b in own if any(map(_may_diverge, b.instructions))), None
    )
    if diverging is None:
        return len(own)
    bound = diverging + 1
    while True:
        # Lanes that have diverged may jump back.
        later = [b for b in own if b.number >= min(bound, diverging)]
        lowest = min((goal for b in later for goal in _destinations(b)), default=bound)
        if lowest >= bound:
            return bound
        bound = lowest


def _may_diverge(instruction: Instruction) -> bool:
    """Whether lanes that execute an instruction may go on at different times."""
    if instruction.opcode in ("brx", "call"):
        return True
    if instruction.is_barrier:
        operands = instruction.operands
        if instruction.votes:  # a result, numbers, a predicate
            operands = operands[1:-1]
        same = all(isinstance(each, Immediate) for each in operands)
        return instruction.guard is not None or not same
    if waits(instruction):
        return True
    return instruction.opcode in JUMPS and instruction.guard is not None


def _destinations(block: CodeBlock) -> list[int]:
    """The code blocks that a block may jump to."""
    unit = block.unit
    places = (destinations(unit.function, each) for each in block.instructions[-1:])
    return [unit.at[place] for some in places for place in some]
