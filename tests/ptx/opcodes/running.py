"""Runs the functions of the table, compiled on the CPU.

Many forms are compiled at once, each as a function that goes through all inputs, some
lanes at a time.  Compilation is not optimised, as in the engine.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from fragmenta.base.jit.compiler import load, object_code
from fragmenta.base.jit.trace import I1, I32, I64, Code, Memory, Value, convert
from tests.ptx.opcodes.inputs import COUNT, Words, kind_of, pools, row
from tests.ptx.opcodes.judging import Form, bits_of_type

LANES = 8
#: How many forms are compiled as one function, and functions at once.
TOGETHER, BATCH = 12, 240


def rows(form: Form) -> list[int]:
    """The rows of the pools for the operands of a form; two for one of 128 bits."""
    found: list[int] = []
    for slot, kind in form.operands():
        if slot.name in form.immediates:
            continue
        for _ in range(2 if kind == "b128" else 1):
            found.append(row(kind_of(kind, bits_of_type(kind)), len(found)))
    return found


def inputs(form: Form) -> list[Words]:
    """What the operands of a form are, as words."""
    return [pools()[each] for each in rows(form)]


def number_of_results(form: Form) -> int:
    """How many words a form writes for each input."""
    return sum(2 if kind == "b128" else 1 for _, kind in form.results())


def computed(forms: Sequence[Form], lanes: int = LANES) -> list[Words]:
    """The results of each form: one row for each result, one column for each input."""
    found: list[Words] = []
    for first in range(0, len(forms), BATCH):
        found += compiled(forms[first : first + BATCH], lanes)(pools())
    return found


def compiled(
    forms: Sequence[Form], lanes: int = LANES
) -> Callable[[Words], list[Words]]:
    """A function that computes the results of some forms for the numbers in pools."""
    module = ir.Module("forms")
    kind = ir.FunctionType(ir.VoidType(), [I64.as_pointer()] * 2)
    ends = list(itertools.accumulate(map(number_of_results, forms)))
    starts = range(0, len(forms), TOGETHER)
    for start in starts:
        function = ir.Function(module, kind, f"forms{start}")
        code = Code(function)
        given, results = (Memory(code.builder, each, I64) for each in function.args)
        with code.loop(COUNT, step=lanes) as place:
            operands = _Operands(given, place, lanes)
            for number in range(start, min(start + TOGETHER, len(forms))):
                first = ends[number] - number_of_results(forms[number])
                for row, word in enumerate(_trace(forms[number], operands), first):
                    results[place + COUNT * row] = word
        code.close()
    engine = load([object_code(str(module), optimise=0)])
    of = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    def run(numbers: Words) -> list[Words]:
        out = np.empty((ends[-1], COUNT), np.uint64)
        for start in starts:
            call = of(engine.get_function_address(f"forms{start}"))
            call(numbers.ctypes.data, out.ctypes.data)
        return np.split(out, ends[:-1])

    return run


class _Operands:
    """The operands of some inputs; each is loaded once."""

    def __init__(self, given: Memory, place: Value, lanes: int) -> None:
        self._given, self._place, self._lanes = given, place, lanes
        self._found: dict[tuple[int, int], Value] = {}

    def get(self, row: int, of: Any) -> Value:
        """The numbers of a row, in a type."""
        key = (row, of.width)
        if key not in self._found:
            builder, vector = self._place.builder, ir.VectorType(I64, self._lanes)
            address = self._given._at(self._place + COUNT * row, vector)
            word = builder.load(address)
            word.align = 8
            self._found[key] = convert(Value(builder, word), of)
        return self._found[key]


def _trace(form: Form, given: _Operands) -> Iterator[Value]:
    """Compute a form; its results in words."""
    places = iter(rows(form))
    there = {slot.name for slot in form.slots}
    operands: list[Any] = []
    for slot in form.syntax.operands:
        if slot.result:
            continue
        kind = form.type_of(slot)
        if slot.name not in there:
            operands.append(None)
        elif kind == "imm":
            continue  # among the qualifiers
        elif slot.name in form.immediates:
            shape = given.get(0, _integer(kind))
            operands.append(shape.lift(form.immediates[slot.name]))
        elif kind == "b128":
            operands.append(tuple(given.get(next(places), I64) for _ in range(2)))
        else:
            many = [
                given.get(next(places), _integer(kind))
                for _ in range(form.count(slot) or 1)
            ]
            operands.append(tuple(many) if form.count(slot) else many[0])
    assert form.syntax.emit is not None
    answer = form.syntax.emit(form.qualifiers, *operands)
    results = form.results()
    for one, (_, kind) in zip(
        answer if len(results) > 1 else [answer], results, strict=True
    ):
        for word in one if kind == "b128" else [one]:
            assert word.type.element == _integer(kind), (str(form), kind, word.type)
            if kind == "s8":  # as its register of 32 bits holds it
                word = convert(word, I32)
            yield convert(word, I64, signed=False)


def _integer(kind: str) -> Any:
    """The type of the value that a function of the table gets for a PTX type."""
    if kind == "pred":
        return I1
    width = 8 if kind in ("u8", "s8", "b8") else bits_of_type(kind)
    return ir.IntType(min(width, 64))
