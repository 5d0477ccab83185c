"""Random programs, and what they do, said a second time in plain Python.

A program is a list of instructions.  Here each thread executes it alone, one
instruction after the other; at an exchange it waits for the others of its warp.

    python -m tests.simt.programs COUNT [SEED]

compares the engine with this on COUNT programs.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np

from fragmenta import ptx
from tests.simt.kernels import kernel, run

MASK = 0xFFFFFFFF
REGISTERS, PREDICATES = 8, 4
THREADS = 40
"""A whole warp, and 8 lanes of another."""
#: Programs in one kernel: each block executes one.
TOGETHER = 20


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


OPERATIONS: dict[str, tuple[int, Callable[..., int]]] = {
    "add.u32": (2, lambda a, b: a + b),
    "sub.u32": (2, lambda a, b: a - b),
    "mul.lo.u32": (2, lambda a, b: a * b),
    "mul.hi.u32": (2, lambda a, b: a * b >> 32),
    "mul.hi.s32": (2, lambda a, b: signed(a) * signed(b) >> 32),
    "mad.lo.u32": (3, lambda a, b, c: a * b + c),
    "and.b32": (2, lambda a, b: a & b),
    "or.b32": (2, lambda a, b: a | b),
    "xor.b32": (2, lambda a, b: a ^ b),
    "not.b32": (1, lambda a: ~a),
    "neg.s32": (1, lambda a: -a),
    "shl.b32": (2, lambda a, b: a << b if b < 32 else 0),
    "shr.u32": (2, lambda a, b: a >> b if b < 32 else 0),
    "shr.s32": (2, lambda a, b: signed(a) >> min(b, 31)),
    "min.s32": (2, lambda a, b: min(a, b, key=signed)),
    "max.u32": (2, max),
    "popc.b32": (1, lambda a: a.bit_count()),
    "clz.b32": (1, lambda a: 32 - a.bit_length()),
    "brev.b32": (1, lambda a: int(f"{a:032b}"[::-1], 2)),
    "sad.u32": (3, lambda a, b, c: abs(a - b) + c),
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "lt.u32": lambda a, b: a < b,
    "ge.u32": lambda a, b: a >= b,
    "eq.u32": lambda a, b: a == b,
    "ne.s32": lambda a, b: a != b,
    "gt.s32": lambda a, b: signed(a) > signed(b),
    "le.s32": lambda a, b: signed(a) <= signed(b),
}
LOGIC: dict[str, Callable[[bool, bool], bool]] = {
    "and.pred": lambda a, b: a and b,
    "or.pred": lambda a, b: a or b,
    "xor.pred": lambda a, b: a != b,
}


class Step(NamedTuple):
    """An instruction; the operands are names, numbers, or labels."""

    text: str
    operands: tuple[str | int, ...] = ()
    guard: str = ""
    """A predicate, with ! before it if it is negated."""

    def ptx(self, prefix: str) -> str:
        """The instruction in PTX."""
        if self.text == "label":
            return f"{prefix}{self.operands[0]}:"
        names = [
            f"{prefix}{o}"
            if isinstance(o, str) and o[0] == "L"
            else f"%{o}"
            if isinstance(o, str)
            else str(o)
            for o in self.operands
        ]
        guard = self.guard.replace("p", "%p").replace("c", "%c").replace("%%", "%")
        before = f"@{guard} " if guard else ""
        extra = {"s": ", 0x181f, -1", "u": ", 0x1800, -1", "v": ", -1"}
        if self.text.startswith("shfl"):
            return (
                f"{before}{self.text} {', '.join(names)}"
                + (extra["u"] if ".up." in self.text else extra["s"])
                + ";"
            )
        if self.text.startswith("vote"):
            return f"{before}{self.text} {', '.join(names)}{extra['v']};"
        return f"{before}{self.text} {', '.join(names)};"


# ── making ──────────────────────────────────────────────────────────────────


class Maker:
    """Makes one random program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.steps: list[Step] = []
        self.labels = 0

    def program(self) -> list[Step]:
        """A program of some dozens of instructions."""
        self.block(3, [])
        return self.steps

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def register(self) -> str:
        return f"x{self.random.randrange(REGISTERS)}"

    def predicate(self) -> str:
        return f"p{self.random.randrange(PREDICATES)}"

    def source(self) -> str | int:
        if self.random.random() < 0.3:
            return self.random.choice([0, 1, 2, 7, 31, 32, 255, 0x7FFFFFFF, MASK])
        return self.register()

    def guard(self) -> str:
        if self.random.random() < 0.7:
            return ""
        return self.random.choice(["", "!"]) + self.predicate()

    def block(self, depth: int, ends: list[str]) -> None:
        """Some statements; ``ends`` are the labels behind the loops around them."""
        for _ in range(self.random.randint(2, 5)):
            kind = self.random.random()
            if kind < 0.55 or not depth:
                self.simple()
            elif kind < 0.65 and depth == 3:
                self.exchange()
            elif kind < 0.72 and ends:
                self.steps.append(Step("bra", (ends[-1],), self.predicate()))
            elif kind < 0.86:
                self.branch(depth - 1, ends)
            else:
                self.loop(depth - 1, ends)

    def simple(self) -> None:
        """An instruction of each thread alone."""
        kind = self.random.random()
        if kind < 0.7:
            name = self.random.choice(list(OPERATIONS))
            count, _ = OPERATIONS[name]
            given = [self.source() for _ in range(count)]
            self.steps.append(Step(name, (self.register(), *given), self.guard()))
        elif kind < 0.85:
            name = "setp." + self.random.choice(list(COMPARISONS))
            operands = self.predicate(), self.register(), self.source()
            self.steps.append(Step(name, operands, self.guard()))
        elif kind < 0.95:
            name = self.random.choice(list(LOGIC))
            operands = tuple(self.predicate() for _ in range(3))
            self.steps.append(Step(name, operands, self.guard()))
        else:
            given = self.register(), self.source(), self.source(), self.predicate()
            self.steps.append(Step("selp.u32", given, self.guard()))

    def exchange(self) -> None:
        """What the lanes do together, where all of them come."""
        if self.random.random() < 0.7:
            mode = self.random.choice(["up", "down", "bfly", "idx"])
            given = self.register(), self.register(), self.random.randrange(8)
            self.steps.append(Step(f"shfl.sync.{mode}.b32", given))
        else:
            given_ = self.register(), self.predicate()
            self.steps.append(Step("vote.sync.ballot.b32", given_))

    def branch(self, depth: int, ends: list[str]) -> None:
        """If, perhaps with an else."""
        other, end = self.label(), self.label()
        negated = self.random.choice(["", "!"])
        self.steps.append(Step("bra", (other,), negated + self.predicate()))
        self.block(depth, ends)
        if self.random.random() < 0.6:
            self.steps.append(Step("bra", (end,)))
            self.steps.append(Step("label", (other,)))
            self.block(depth, ends)
        else:
            self.steps.append(Step("label", (other,)))
        self.steps.append(Step("label", (end,)))

    def loop(self, depth: int, ends: list[str]) -> None:
        """A loop of at most 4 rounds, as many as a register says."""
        start, end = self.label(), self.label()
        count, most, on = f"n{depth}", f"m{depth}", f"c{depth}"
        self.steps += [
            Step("and.b32", (most, self.register(), 3)),
            Step("mov.u32", (count, 0)),
            Step("label", (start,)),
        ]
        self.block(depth, [*ends, end])
        self.steps += [
            Step("add.u32", (count, count, 1)),
            Step("setp.lt.u32", (on, count, most)),
            Step("bra", (start,), on),
            Step("label", (end,)),
        ]


# ── executing ───────────────────────────────────────────────────────────────

State = dict[str, int]
Exchange = tuple[str, int, int]


def thread(steps: list[Step], state: State) -> Generator[Exchange, list[int], None]:
    """One thread; it gives what it exchanges, and gets what its warp gave."""
    places = {str(s.operands[0]): i for i, s in enumerate(steps) if s.text == "label"}
    at = 0
    while at < len(steps):
        name, operands, guard = steps[at]
        at += 1
        if guard and state[guard.lstrip("!")] == guard.startswith("!"):
            continue
        if name == "label":
            continue
        if name == "bra":
            at = places[str(operands[0])]
            continue
        goal = str(operands[0])
        given = [state[o] if isinstance(o, str) else o for o in operands[1:]]
        if name.startswith(("shfl", "vote")):
            step = given[1] if len(given) > 1 else 0
            every = yield name, given[0], step
            state[goal] = exchanged(name, state["lane"], step, every)
        else:
            state[goal] = computed(name, given)


def computed(name: str, given: list[int]) -> int:
    if name.startswith("setp."):
        return int(COMPARISONS[name[5:]](*given))
    if name in LOGIC:
        return int(LOGIC[name](*map(bool, given)))
    if name == "selp.u32":
        return given[0] if given[2] else given[1]
    if name == "mov.u32":
        return given[0]
    return OPERATIONS[name][1](*given) & MASK


def exchanged(name: str, lane: int, step: int, every: list[int]) -> int:
    """Lanes exchange values with the others of their eight."""
    if name.startswith("vote"):
        return sum(1 << i for i, value in enumerate(every) if value)
    first = lane & ~7
    goal = {
        "up": lane - step,
        "down": lane + step,
        "bfly": lane ^ step,
        "idx": first | step,
    }[name.split(".")[2]]
    return every[goal] if first <= goal < first + 8 else every[lane]


def executed(steps: list[Step], initial: np.ndarray) -> np.ndarray:
    """What the registers and predicates of each thread are at the end."""
    final = []
    for first in range(0, THREADS, 32):
        states: list[State] = []
        for number in range(first, min(first + 32, THREADS)):
            state = {f"x{i}": int(initial[number, i]) for i in range(REGISTERS)}
            state |= {f"p{i}": 0 for i in range(PREDICATES)} | {"lane": number % 32}
            states.append(state)
        lanes = [thread(steps, state) for state in states]
        given = [next(each, None) for each in lanes]
        while given[0] is not None:
            values = [each[1] for each in given if each is not None]
            given = [_sent(each, values) for each in lanes]
        final += states
    words = [[s[f"x{i}"] for i in range(REGISTERS)] for s in final]
    bits = [sum(s[f"p{i}"] << i for i in range(PREDICATES)) for s in final]
    return np.array([[*w, b] for w, b in zip(words, bits, strict=True)], np.uint32)


def _sent(
    lane: Generator[Exchange, list[int], None], values: list[int]
) -> Exchange | None:
    try:
        return lane.send(values)
    except StopIteration:
        return None


# ── comparing ───────────────────────────────────────────────────────────────


def body(programs: list[list[Step]]) -> str:
    """A kernel whose blocks each execute one of the programs."""
    size = 4 * (REGISTERS + 1)
    loads = "".join(f"ld.global.u32 %x{i}, [%rd2+{4 * i}];\n" for i in range(REGISTERS))
    stores = "".join(
        f"st.global.u32 [%rd3+{4 * i}], %x{i};\n" for i in range(REGISTERS)
    )
    packed = "mov.u32 %r1, 0;\n" + "".join(
        f"selp.u32 %r2, {1 << i}, 0, %p{i};\nor.b32 %r1, %r1, %r2;\n"
        for i in range(PREDICATES)
    )
    cleared = "".join(f"setp.ne.u32 %p{i}, 0, 0;\n" for i in range(PREDICATES))
    names = ", ".join(f"P{i}" for i in range(len(programs)))
    lines = "".join(
        f"P{number}:\n" + "\n".join(s.ptx(f"P{number}") for s in steps) + "\nbra END;\n"
        for number, steps in enumerate(programs)
    )
    return f"""
    .reg .b32 %x<{REGISTERS}>, %n<4>, %m<4>;
    .reg .pred %c<4>;
    ld.param.u64 %rd1, [initial];
    mad.wide.u32 %rd2, %t, {4 * REGISTERS}, %rd1;
    mad.wide.u32 %rd3, %all, {size}, %out;
    {loads}{cleared}
T: .branchtargets {names};
    brx.idx %cta, T;
    {lines}
END: {packed}{stores} st.global.u32 [%rd3+{4 * REGISTERS}], %r1;"""


def difference(seed: int, count: int = TOGETHER) -> str:
    """Where the engine differs on some programs; empty if it does not."""
    programs = [Maker(seed * 1000 + i).program() for i in range(count)]
    generator = np.random.default_rng(seed)
    initial = generator.integers(0, 1 << 32, (THREADS, REGISTERS), dtype=np.uint32)
    initial[:, ::2] &= 15
    out = np.zeros((count, THREADS, REGISTERS + 1), np.uint32)
    made = kernel(body(programs), ".param .u64 initial")
    run(
        made,
        out,
        initial,
        threads=THREADS,
        blocks=count,
        limits=ptx.Limits(instructions=50_000_000),
    )
    for number, steps in enumerate(programs):
        want = executed(steps, initial)
        if (out[number] != want).any():
            who, which = np.argwhere(out[number] != want)[0]
            text = "\n".join(step.ptx("") for step in steps)
            return (
                f"program {seed * 1000 + number}, thread {who}, word {which}: "
                f"{out[number, who, which]:#x}, not {want[who, which]:#x}\n{text}"
            )
    return ""


def main(count: int, first: int = 0) -> None:
    """Compare until something differs."""
    for seed in range(first, first + -(-count // TOGETHER)):
        found = difference(seed)
        if found:
            sys.exit(found)
    sys.stdout.write(f"{count} programs: no difference\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
