"""Which code blocks do all lanes of a warp always execute together?

The lanes start together.  Until something can part them, no code for a part of them is
needed: of a kernel without branches, half the code.
"""

from __future__ import annotations

from fragmenta.ptx.flow import destinations
from fragmenta.ptx.module import Immediate, Instruction
from fragmenta.simt.program import JUMPS, CodeBlock, Program, waits


def together(program: Program) -> int:
    """How many code blocks, from the first on, all lanes execute together."""
    own = [b for b in program.blocks if b.unit.function is program.kernel]
    parting = next((b.number for b in own if any(map(_parts, b.instructions))), None)
    if parting is None:
        return len(own)
    bound = parting + 1
    while True:
        # Lanes that have parted may jump back.
        later = [b for b in own if b.number >= min(bound, parting)]
        lowest = min((goal for b in later for goal in _goals(b)), default=bound)
        if lowest >= bound:
            return bound
        bound = lowest


def _parts(instruction: Instruction) -> bool:
    """Whether lanes that execute an instruction may go on at different times."""
    if instruction.opcode in ("brx", "call"):
        return True
    if instruction.opcode in ("bar", "barrier"):
        operands = instruction.operands
        if "red" in instruction.qualifiers:  # a result, numbers, a predicate
            operands = operands[1:-1]
        same = all(isinstance(each, Immediate) for each in operands)
        return instruction.guard is not None or not same
    if waits(instruction):
        return True
    return instruction.opcode in JUMPS and instruction.guard is not None


def _goals(block: CodeBlock) -> list[int]:
    """The code blocks that a block may jump to."""
    unit = block.unit
    places = (destinations(unit.function, each) for each in block.instructions[-1:])
    return [unit.at[place] for some in places for place in some]
