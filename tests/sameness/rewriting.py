"""Random expressions as kernels, and rewritings of them, with a symbolic oracle.

A kernel has one output for each expression, so a pair of kernels is many pairs of
expressions.  The oracle knows two expressions as equal if they are equal after operands
that commute are sorted; it knows nothing of hashes.
"""

import random as randomness
from typing import NamedTuple

import numpy as np

from fragmenta import ptx

LEAVES = 8


class Op(NamedTuple):
    name: str
    operands: tuple


class Leaf(NamedTuple):
    number: int


COMMUTE = {
    "add.rn.f32": 2,
    "mul.rn.f32": 2,
    "fma.rn.f32": 2,
    "add.rz.f32": 2,
    "max.f32": 2,
    "min.f32": 2,
}
ASSOCIATE = ("max.f32", "min.f32")
NAMES = (*COMMUTE, "sub.rn.f32", "div.rn.f32", "neg.f32", *["add.rn.f32"] * 4)
OPERANDS = {"fma.rn.f32": 3, "neg.f32": 1}


def grown(random, depth):
    """A random expression."""
    if depth == 0 or random.random() < 0.15:
        return Leaf(random.randrange(LEAVES))
    name = random.choice(NAMES)
    count = OPERANDS.get(name, 2)
    return Op(name, tuple(grown(random, depth - 1) for _ in range(count)))


def negative(of):
    """Minus a normal form.  A leaf may be a NaN whose bits two negations change."""
    if of[0] == "neg" and of[1][0] != "x":
        return of[1]
    return ("neg", of)


def _flat(of, name):
    """The operands of an operation whose brackets do not matter."""
    return of[1:] if of[0] == name else (of,)


def normal(of, leaves=None):
    """The normal form of the oracle: a sum of a difference, operands sorted."""
    if isinstance(of, Leaf):
        return ("x", (leaves[of.number] if leaves else of).number)
    operands = [normal(each, leaves) for each in of.operands]
    name = of.name
    if name == "neg.f32":
        return negative(operands[0])
    if name == "sub.rn.f32":
        name, operands[1] = "add.rn.f32", negative(operands[1])
    many = COMMUTE.get(name, 0)
    if name in ASSOCIATE:
        operands = [e for each in operands for e in _flat(each, name)]
        many = len(operands)
    return (name, *sorted(operands[:many]), *operands[many:])


def rewritten(random, of, how):
    """A rewriting that keeps the bits (commute), or one that need not (the others)."""
    if isinstance(of, Leaf):
        other = how == "leaf" and random.random() < 0.2
        return Leaf(random.randrange(LEAVES)) if other else of
    operands = tuple(rewritten(random, each, how) for each in of.operands)
    made = Op(of.name, operands)
    if how == "commute" and of.name in COMMUTE:
        return Op(of.name, (operands[1], operands[0], *operands[2:]))
    if how == "associate" and of.name in ("add.rn.f32", *ASSOCIATE):
        left, right = operands
        if isinstance(left, Op) and left.name == of.name:
            return Op(
                of.name, (left.operands[0], Op(of.name, (left.operands[1], right)))
            )
    if how == "exchange" and random.random() < 0.5:
        return Op(of.name, operands[::-1])
    if how == "split" and of.name == "fma.rn.f32":
        return Op("add.rn.f32", (Op("mul.rn.f32", operands[:2]), operands[2]))
    if how == "round" and of.name == "add.rn.f32" and random.random() < 0.5:
        return Op("add.rz.f32", operands)
    return made


HOW = ("commute", "associate", "split", "round", "nothing", "leaf", "exchange")


_PICKED = (
    "ld.global.u32 %r5, [%rd5+{at}]; mul.wide.u32 %rd9, %r5, 4; "
    "add.s64 %rd9, %rd1, %rd9; ld.global.f32 %x{n}, [%rd9];\n"
)


def kernel(expressions, layout="plain", picked=False):
    """PTX that computes every expression of x[lane, :] in each lane.

    If inputs are picked, leaf n of a thread is x[pick[thread, n]].
    """
    lines, registers = [], [LEAVES]

    def write(of):
        if isinstance(of, Leaf):
            return f"%x{of.number}"
        operands = [write(each) for each in of.operands]
        registers[0] += 1
        goal = f"%f{registers[0]}"
        lines.append(f"{of.name} {goal}, {', '.join(operands)};")
        return goal

    for number, each in enumerate(expressions):
        found = write(each)
        if layout == "shuffled":  # to a neighbour and back
            for _ in range(2):
                registers[0] += 1
                lines.append(
                    f"shfl.sync.bfly.b32 %f{registers[0]}, {found}, 1, 31, -1;"
                )
                found = f"%f{registers[0]}"
        elif layout == "shared":
            lines.append(f"st.shared.f32 [%r2], {found};")
            registers[0] += 1
            found = f"%f{registers[0]}"
            lines.append(f"ld.shared.f32 {found}, [%r2];")
        lines.append(f"st.global.f32 [%rd6+{4 * number}], {found};")
    load = _PICKED if picked else "ld.global.f32 %x{n}, [%rd5+{at}];\n"
    loads = "".join(load.format(n=n, at=4 * n) for n in range(LEAVES))
    more = ", .param .u64 pick" if picked else ""
    address = "ld.param.u64 %rd8, [pick]; add.s64 %rd5, %rd8, %rd3;" if picked else ""
    body = "\n".join(lines)
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y{more})
{{
    .reg .b32 %r<8>; .reg .b64 %rd<12>; .reg .f32 %x<{LEAVES}>;
    .reg .f32 %f<{registers[0] + 1}>;
    .shared .align 4 .b8 room[128];
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r1, %r4, 32, %r1;
    mul.wide.u32 %rd3, %r1, {4 * LEAVES}; mul.wide.u32 %rd4, %r1, {4 * len(expressions)};
    add.s64 %rd5, %rd1, %rd3; add.s64 %rd6, %rd2, %rd4;
    {address}
    mov.u32 %r3, room; mov.u32 %r2, %tid.x; shl.b32 %r2, %r2, 2; add.u32 %r2, %r2, %r3;
    {loads}{body}
    ret;
}}"""


def call(expressions, x, y, layout="plain"):
    text = kernel(expressions, layout)
    return ptx.Call(ptx.parse(text).kernels["k"], 1, 32, [x, y], contract=False)


def pairs(count, seed):
    """Expressions, and a rewriting of each."""
    random = randomness.Random(seed)
    for number in range(count):
        first = grown(random, 3)
        yield first, rewritten(random, first, HOW[number % len(HOW)])


def memory(count):
    x = np.random.default_rng(1).standard_normal((32, LEAVES)).astype(np.float32)
    return x, np.zeros((32, count), np.float32)
