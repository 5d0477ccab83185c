"""The passes of an access through shared memory, in compiled code.

A pass takes one word from each of the 32 banks.  Lanes share a word that they all want.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    Variable,
    convert,
    select,
)
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.memory import has, lane_of
from fragmenta.engine.simt.warps import to_word
from fragmenta.reference.shared.banks import BANKS


def passes(code: Code, words: int, starts: Raw, lanes: Value) -> tuple[Value, Value]:
    """The passes of an access, and how many it needs at least.

    So many lanes are served together that they take at most one word of each bank.
    """
    total, least = (code.variable(lanes.lift(0)) for _ in range(2))
    together = LANES // words
    counts = Memory(code.builder, code.array(I32, BANKS), I32)
    vector = ir.VectorType(I32, LANES)
    taken = code.builder.bitcast(code.array(vector), I32.as_pointer())
    with code.loop(words) as phase:
        worst = code.variable(lanes.lift(0))
        used = code.variable(lanes.lift(0))
        with code.loop(BANKS) as bank:
            counts[bank] = lanes.lift(0)
        with code.loop(together) as index:
            lane = phase * together + index
            with code.when(has(lanes, lane)), code.loop(words) as part:
                word = lane_of(code, starts, lane) + convert(part, I32)
                _take(code, word, taken, counts, used, worst)
        total.value = total.value + worst.value
        some = convert(worst.value != 0, I32, signed=False)
        least.value = least.value + some
    return total.value, least.value


def _take(
    code: Code,
    word: Value,
    taken: Raw,
    counts: Memory,
    used: Variable,
    worst: Variable,
) -> None:
    """A lane takes a word, if no lane before it took the same."""
    b = code.builder
    vector = ir.VectorType(I32, LANES)
    before = b.load(b.bitcast(taken, vector.as_pointer()))
    before.align = 4
    known = to_word(Value(b, before) == word.in_all_lanes(LANES))
    # The first ``used`` of them are valid; there may be 32.
    valid = select(used.value == LANES, word.lift(-1), (word.lift(1) << used.value) - 1)
    with code.when((known & valid) == 0):
        b.store(word.raw, b.gep(taken, [convert(used.value, I64).raw]))
        used.value = used.value + 1
        bank = convert(word & (BANKS - 1), I64)
        counts[bank] = counts[bank] + 1
        worst.value = select(counts[bank] > worst.value, counts[bank], worst.value)
