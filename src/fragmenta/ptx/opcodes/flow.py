"""Which instructions follow one another, and which registers are needed later?

A function is cut into straight pieces of code.  Jumps to the next instruction and
labels that nothing jumps to do not cut it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.ptx.module import (
    Address,
    Function,
    Group,
    Instruction,
    Label,
    Not,
    Operand,
    Pair,
    Part,
    Register,
    Symbol,
    Vector,
)

# Their first operand is not a result.
_NO_RESULT = frozenset(
    {"st", "red", "bra", "brx", "ret", "exit", "trap", "brkpt", "membar", "fence",
     "nanosleep", "prefetch", "prefetchu", "pmevent", "setmaxnreg", "griddepcontrol",
     "cp", "stmatrix", "discard", "applypriority", "sust", "sured", "tensormap",
     "stackrestore"}
)  # fmt: skip

# Without a use of their result they are left out.
_PURE = frozenset(
    {"abs", "add", "and", "bfe", "bfi", "bfind", "bmsk", "brev", "clz", "cnot",
     "copysign", "cos", "cvt", "cvta", "div", "dp2a", "dp4a", "ex2", "fma", "fns",
     "lg2", "lop3", "mad", "mad24", "max", "min", "mov", "mul", "mul24", "neg", "not",
     "or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "selp", "set", "setp", "shf",
     "shl", "shr", "sin", "slct", "sqrt", "sub", "szext", "tanh", "testp", "xor"}
)  # fmt: skip

_MODES = frozenset(("rn", "rz", "rm", "rp"))


# ── operands ────────────────────────────────────────────────────────────────


def registers_in(operand: Operand | None) -> Iterator[int]:
    """The numbers of the registers in an operand."""
    if isinstance(operand, Register):
        yield operand.number
    elif isinstance(operand, Part | Not):
        yield operand.of.number
    elif isinstance(operand, Vector | Group):
        for item in operand.items:
            yield from registers_in(item)
    elif isinstance(operand, Pair):
        yield from registers_in(operand.first)
        yield from registers_in(operand.second)
    elif isinstance(operand, Address):
        if isinstance(operand.base, Register):
            yield operand.base.number
        for item in operand.items:
            yield from registers_in(item)


def _has_result(instruction: Instruction) -> bool:
    first = instruction.operands[0] if instruction.operands else None
    if isinstance(first, Register | Part | Vector | Pair):
        if instruction.opcode in ("bar", "barrier"):
            return "red" in instruction.qualifiers
        return instruction.opcode not in _NO_RESULT
    return instruction.opcode == "call" and len(instruction.operands) > 1


def writes(instruction: Instruction) -> list[tuple[int, bool]]:
    """The registers that are written, and whether nothing of the old value is left."""
    if not _has_result(instruction):
        return []
    first = instruction.operands[0]
    whole = (
        instruction.guard is None
        and not isinstance(first, Part)
        and instruction.opcode != "wgmma"
    )
    return [(number, whole) for number in registers_in(first)]


def reads(instruction: Instruction) -> list[int]:
    """The registers that are read."""
    found = list(registers_in(instruction.guard))
    first = 1 if _has_result(instruction) else 0
    if instruction.opcode == "wgmma":  # the accumulator is read, too
        first = 0
    for operand in instruction.operands[first:]:
        found += registers_in(operand)
    return found


# ── pieces ──────────────────────────────────────────────────────────────────


def cuts(instruction: Instruction) -> bool:
    """Whether a piece of code ends behind an instruction."""
    words = set(instruction.qualifiers)
    match instruction.opcode:
        case "bra" | "brx" | "ret" | "exit" | "call" | "trap" | "brkpt" | "pmevent":
            return True
        case "membar" | "setmaxnreg":
            return True
        case "fence":
            return bool(words & {"acq_rel", "sc"})
        case "griddepcontrol":
            return "launch_dependents" in words
        case "div" | "rem" | "sqrt" | "rcp":
            return bool(words & _MODES) or bool(words & {"u64", "s64"})
    return False


class Flow:
    """The pieces of a function, and what each of them leaves for others."""

    def __init__(self, function: Function) -> None:
        self.code = function.instructions
        self._labels = function.labels
        self._tables = function.tables
        self._next = self._successors()
        self.pieces = self._pieces()
        """The places of the instructions of each piece, in order."""
        self.live, self.needed = self._live()
        """For each piece a number with a bit for each register that is needed later;
        for each instruction whether its results are needed."""

    def _target(self, place: int) -> int:
        """The instruction that runs first at a place: plain jumps are followed."""
        seen = set()
        while place < len(self.code) and place not in seen:
            instruction = self.code[place]
            if instruction.opcode != "bra" or instruction.guard is not None:
                return place
            seen.add(place)
            place = self._jump(instruction)
        return place

    def _jump(self, instruction: Instruction) -> int:
        label = instruction.operands[0]
        assert isinstance(label, Label | Symbol)
        return self._labels[label.name]

    def _successors(self) -> list[list[int]]:
        found = []
        for place, instruction in enumerate(self.code):
            after = [self._target(place + 1)]
            if instruction.opcode in ("ret", "exit", "trap"):
                after = after if instruction.guard is not None else []
            elif instruction.opcode == "bra":
                jump = self._target(self._jump(instruction))
                after = [jump] if instruction.guard is None else [*after, jump]
            elif instruction.opcode == "brx":
                after = [self._target(place) for place in self._table(instruction)]
            found.append(
                [place for place in dict.fromkeys(after) if place < len(self.code)]
            )
        return found

    def _table(self, instruction: Instruction) -> list[int]:
        for operand in instruction.operands[1:]:
            name = getattr(operand, "name", "")
            if name in self._tables:
                return [self._labels[each.name] for each in self._tables[name]]
        return sorted(set(self._labels.values()))

    def _pieces(self) -> list[list[int]]:
        """Straight pieces of the code that can be reached."""
        if not self.code:
            return []
        sources = [0] * (len(self.code) + 1)
        reached, waiting = set(), [self._target(0)]
        sources[waiting[0]] = 2  # the entry begins a piece
        while waiting:
            place = waiting.pop()
            if place in reached or place >= len(self.code):
                continue
            reached.add(place)
            for after in self._next[place]:
                sources[after] += 1
                waiting.append(after)
        begins = {place for place in reached if sources[place] != 1}
        for place in reached:
            # A guarded jump to the next instruction does not cut.
            one = self.code[place].opcode == "bra" and len(self._next[place]) == 1
            if cuts(self.code[place]) and not one:
                begins.update(self._next[place])
        return [self._piece(place, begins) for place in sorted(begins)]

    def _piece(self, place: int, begins: set[int]) -> list[int]:
        piece = [place]
        while True:
            after = self._next[piece[-1]]
            if len(after) != 1 or after[0] in begins:
                return piece
            piece.append(after[0])

    def dead(self) -> Iterator[int]:
        """The instructions whose results nothing needs."""
        for piece in self.pieces:
            yield from (place for place in piece if not self.needed[place])

    # ── what is needed later ────────────────────────────────────────────────

    def _live(self) -> tuple[list[int], list[bool]]:
        masks = [self._masks(each) for each in self.code]
        first = {piece[0]: number for number, piece in enumerate(self.pieces)}
        after = [
            [first[place] for place in self._next[piece[-1]]] for piece in self.pieces
        ]
        before: list[list[int]] = [[] for _ in self.pieces]
        for number, some in enumerate(after):
            for other in some:
                before[other].append(number)
        live_in, live = [0] * len(self.pieces), [0] * len(self.pieces)
        needed = [False] * len(self.code)
        waiting = list(range(len(self.pieces)))
        while waiting:
            number = waiting.pop()
            live[number] = 0
            for other in after[number]:
                live[number] |= live_in[other]
            entering = self._enter(self.pieces[number], live[number], masks, needed)
            if entering != live_in[number]:
                live_in[number] = entering
                waiting += before[number]
        return live, needed

    def _masks(self, instruction: Instruction) -> tuple[int, int, int, bool]:
        """Registers read, written, and written as a whole; whether it may be left out."""
        read = written = whole = 0
        for number in reads(instruction):
            read |= 1 << number
        for number, complete in writes(instruction):
            written |= 1 << number
            whole |= int(complete) << number
        pure = instruction.opcode in _PURE and "cc" not in instruction.qualifiers
        return read, written, whole, pure and bool(written)

    def _enter(
        self,
        piece: list[int],
        live: int,
        masks: list[tuple[int, int, int, bool]],
        needed: list[bool],
    ) -> int:
        """What is needed before a piece; notes which instructions are needed."""
        for place in reversed(piece):
            read, written, whole, pure = masks[place]
            if pure and not live & written:
                continue
            needed[place] = True
            live = live & ~whole | read
        return live
