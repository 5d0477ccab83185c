"""Threads that store one result to one place, each with a rounding of its own.

After a butterfly of ``shfl.bfly``, all lanes hold the same sum.  Lanes that differ add
the two halves of a step in different orders.  That leaves the same bits, since an
addition of two numbers has no order.  But if a compiler fuses a product into a step,
each lane rounds the product of the other lane and not its own: ``fma(c, c, d)`` in one
lane, ``fma(d', d', c')`` in the other.  Triton's reductions of ``x * x`` are compiled
like this, and so is Welford's, of a mean, a count and a sum of squares.  All lanes of a
warp store the result to one word of shared memory, and sometimes all warps do.

Whether copies differ by rounding alone is seen where nothing is rounded: the text is
followed in a finite field, with numbers drawn for all that it does not compute.  Two
threads whose formulas are the same by arithmetic get one number there.  Others get
different ones: that all threads of a block agree by chance is out of the question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import isfinite
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.ptx.checking.register_effects import effects_of, registers, writers
from fragmenta.ptx.dataflow import reached
from fragmenta.ptx.module import (
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    Special,
    Symbol,
    Vector,
)
from fragmenta.ptx.opcodes.kinds import computes

_P = (1 << 31) - 1
"""The prime of the field: products of two numbers have 62 bits."""
_WARP = 32
_WHOLE_WARP = 31
_FLOATS = ("f16", "f32", "f64", "bf16")
_UNIFORM = ("%ctaid", "%nctaid", "%ntid")
_SMOOTH = frozenset({"abs", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"})
"""Functions of floats whose results are near where their operands are."""
_OBSERVED = frozenset({"volatile", "relaxed", "acquire", "mmio"})
_LOW = 0xFFFFFFFF
_BITS = 10
ALL = (1 << _BITS) - 1
"""All bits of a thread's number: a block has at most 1024 threads."""

Numbers: TypeAlias = NDArray[np.int64]


class _Value(NamedTuple):
    """What a register holds: for each thread of a block."""

    number: Numbers
    """In the field: the same for threads that compute the same, up to rounding."""
    name: Numbers
    """The same only for threads that hold the same bits."""
    whole: Numbers | None = None
    """The number itself, where only the place of the thread decides it."""


def once(function: Function, index: int) -> bool:
    """Whether each thread executes an instruction at most once: it is in no loop."""
    every = function.instructions
    return function.kernel and not any(
        each.opcode == "brx"
        or (each.opcode == "bra" and _target(function, each) <= index)
        for each in every[index:]
    )


def _target(function: Function, branch: Instruction) -> int:
    return function.labels.get(getattr(branch.operands[-1], "name", ""), 0)


class Copies:
    """What the threads of a block hold, as far as the text of a function says it."""

    def __init__(self, function: Function, block: tuple[int, int, int]) -> None:
        self._function = function
        x, y, z = block
        self._threads = np.arange(x * y * z)
        places = self._threads % x, self._threads // x % y, self._threads // (x * y)
        self._special = dict(zip(("%tid.x", "%tid.y", "%tid.z"), places, strict=True))
        self._special["%laneid"] = self._threads % _WARP
        self._random = np.random.default_rng(0)
        self._names: dict[tuple[object, ...], int] = {}
        self._drawn: Numbers = np.zeros(0, np.int64)
        self._writers = writers(function)
        self._values: dict[int, _Value] = {}

    def bits(self, index: int) -> int:
        """The bits of a thread's number over which what a store writes is one result.

        Threads that differ in these bits only store the same, up to its rounding.
        """
        stored = registers(self._function.instructions[index].operands[1:])
        every = [self._followed(each, index).number for each in stored]
        found = 0
        for bit in range(_BITS if every else 0):
            other = self._threads ^ 1 << bit
            there = other < self._threads.size
            if all(np.array_equal(each[there], each[other[there]]) for each in every):
                found |= 1 << bit
        return found

    def _followed(self, register: Register, index: int) -> _Value:
        """The value of a register; first those that it is made of."""
        code = self._function.instructions

        def makers(named: Sequence[Register], before: int) -> list[int]:
            some = (self._maker(each, before) for each in named)
            return [made for made in some if made is not None]

        needed = reached(
            makers([register], index),
            lambda at: makers(effects_of(self._function)[at].reads, at),
        )
        for made in sorted(needed):
            of = code[made]
            for each in effects_of(self._function)[made].writes:
                if each.number not in self._values:
                    self._values[each.number] = self._made(made, of, each)
        return self._operand(register, index) or self._own(register)

    def _maker(self, register: Register, before: int) -> int | None:
        """The one instruction that writes a register, if it stands before another."""
        first, *others = self._writers.get(register.number, (before,))
        code = self._function.instructions
        known = first < before and not others and code[first].guard is None
        return first if known else None

    # ── names ───────────────────────────────────────────────────────────────

    def _named(self, what: object, *given: Numbers) -> _Value:
        """Values that are the same where all that they depend on is."""
        rows, where = np.unique(
            np.stack([np.zeros_like(self._threads), *given], 1),
            axis=0,
            return_inverse=True,
        )
        ids = [
            self._names.setdefault((what, *row), len(self._names))
            for row in map(tuple, rows.tolist())
        ]
        name = np.asarray(ids)[where.reshape(-1)]
        more = len(self._names) - self._drawn.size
        drawn = self._random.integers(1, _P, max(0, more))
        self._drawn = np.concatenate([self._drawn, drawn])
        return _Value(self._drawn[name], name)

    def _own(self, register: Register) -> _Value:
        """What the text does not say: each thread has its own."""
        return self._named(("own", register.number), self._threads)

    def _whole(self, numbers: Numbers) -> _Value:
        return self._named("whole", numbers)._replace(whole=numbers)

    def _operand(self, operand: Operand, before: int) -> _Value | None:
        """What an instruction is given; None if that is not followed."""
        if isinstance(operand, Register):
            known = self._maker(operand, before) is not None
            return self._values[operand.number] if known else self._own(operand)
        if isinstance(operand, Immediate):
            if operand.form == "int":
                return self._whole(np.full_like(self._threads, int(operand.value)))
            made = self._named(("float", operand.form, operand.bits))
            if not isfinite(operand.value):
                return made
            exact = Fraction(operand.value)
            number = exact.numerator * pow(exact.denominator, -1, _P) % _P
            return made._replace(number=np.full_like(self._threads, number))
        if isinstance(operand, Special) and operand.name in self._special:
            return self._whole(self._special[operand.name])
        uniform = isinstance(operand, Special) and operand.name.startswith(_UNIFORM)
        if uniform or isinstance(operand, Symbol):
            return self._named(operand)
        return None

    # ── instructions ────────────────────────────────────────────────────────

    def _made(self, index: int, of: Instruction, register: Register) -> _Value:
        """What an instruction writes to one of its registers."""
        found = None
        if of.is_load:
            found = self._loaded(index, of, register)
        elif of.is_shuffle and of.operands[0] == register:
            found = self._shuffled(index, of)
        elif of.operands[0] == register and _is_pure(of):
            given = [self._operand(each, index) for each in of.operands[1:]]
            known = [each for each in given if each is not None]
            if len(known) == len(given):
                found = self._computed(of, known)
        return found or self._own(register)

    def _loaded(self, index: int, of: Instruction, register: Register) -> _Value | None:
        """Threads that load from one address by one instruction get the same."""
        address = of.operands[1]
        if _OBSERVED & set(of.qualifiers) or not isinstance(address, Address):
            return None
        if "param" not in of.qualifiers and not once(self._function, index):
            return None
        base = address.base
        at = self._operand(base, index) if isinstance(base, Register) else None
        first = of.operands[0]
        place = first.items.index(register) if isinstance(first, Vector) else 0
        what = "loaded", index, place
        return self._named(what) if at is None else self._named(what, at.name)

    def _shuffled(self, index: int, of: Instruction) -> _Value | None:
        """What the lane has that differs in some bits, in a butterfly of a warp."""
        _, source, lanes, clamp, *_ = of.operands
        whole = isinstance(clamp, Immediate) and clamp.value == _WHOLE_WARP
        whole = whole and self._threads.size % _WARP == 0 and "bfly" in of.qualifiers
        given = self._operand(source, index)
        if not whole or not isinstance(lanes, Immediate) or given is None:
            return None
        other = self._threads ^ int(lanes.value)
        return _Value(given.number[other], given.name[other])

    def _computed(self, of: Instruction, given: Sequence[_Value]) -> _Value:
        if of.is_move:
            return given[0]
        same = self._named(of.mnemonic, *(each.name for each in given))
        types = [each for each in of.qualifiers if each.startswith((*_FLOATS, *"bsu"))]
        if types and all(each.startswith(_FLOATS) for each in types):
            number = self._arithmetic(of, [each.number for each in given])
            return same if number is None else same._replace(number=number)
        wholes = [each.whole for each in given if each.whole is not None]
        emit = _WHOLE.get(of.mnemonic)
        if emit and len(wholes) == len(given):
            low = emit(*(each & _LOW for each in wholes)) & _LOW
            return self._whole(np.asarray(low))
        return same

    def _arithmetic(self, of: Instruction, given: list[Numbers]) -> Numbers | None:
        """The result in the field; None if it is not smooth."""
        if {"sat", "relu"} & set(of.qualifiers):
            return None
        if of.is_conversion and len(given) == 1:
            return given[0]
        if of.opcode in _FIELD:
            return np.asarray(_FIELD[of.opcode](*given) % _P)
        if of.opcode in ("min", "max"):
            return self._named((of.opcode, "of"), *np.sort(given, axis=0)).number
        if of.opcode in _SMOOTH:
            return self._named((of.opcode, "of"), *given).number
        return None


def _is_pure(of: Instruction) -> bool:
    """Whether it gives the same bits wherever its operands have the same bits."""
    return computes(of.mnemonic) and of.opcode not in ("addc", "subc", "madc")


_WHOLE: dict[str, Callable[..., Numbers]] = {
    **dict.fromkeys(("add.s32", "add.u32"), lambda x, y: x + y),
    **dict.fromkeys(("sub.s32", "sub.u32"), lambda x, y: x - y),
    **dict.fromkeys(("shr.u32", "shr.b32"), lambda x, y: x >> np.minimum(y, 32)),
    "and.b32": lambda x, y: x & y,
    "or.b32": lambda x, y: x | y,
    "xor.b32": lambda x, y: x ^ y,
    "shl.b32": lambda x, y: np.where(y < 32, x << np.minimum(y, 31), 0),
}
"""What is computed with numbers that are known, of 32 bits."""


def _inverse(x: Numbers) -> Numbers:
    """1 / x in the field: x to the power of all its numbers but two."""
    made = np.ones_like(x)
    for bit in reversed(range(31)):
        made = made * made % _P
        if _P - 2 >> bit & 1:
            made = made * x % _P
    return made


_FIELD: dict[str, Callable[..., Numbers]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "fma": lambda x, y, z: x * y % _P + z,
    "mad": lambda x, y, z: x * y % _P + z,
    "neg": lambda x: -x,
    "div": lambda x, y: x * _inverse(y),
    "rcp": _inverse,
}
