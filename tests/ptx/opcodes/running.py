"""What do the functions of the table compute, when they are compiled here?

Many forms are compiled at once, each as a function that goes through all inputs, some
lanes at a time.  Compilation is not optimised, as in the engine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import binding, ir

from fragmenta.machine import compiler
from fragmenta.machine.trace import I1, I64, Code, Memory, Value, convert
from tests.ptx.opcodes.inputs import COUNT, Words, kind_of, pools, row
from tests.ptx.opcodes.judging import Form, bits_of_type

LANES = 8
BATCH = 200


def rows(form: Form) -> list[int]:
    """The rows of the pools for the operands of a form; two for one of 128 bits."""
    found: list[int] = []
    for slot, kind in form.operands():
        if slot.type == "imm":
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


def computed(forms: Sequence[Form]) -> list[Words]:
    """The results of each form: one row for each result, one column for each input."""
    found: list[Words] = []
    for first in range(0, len(forms), BATCH):
        found += _computed_at_once(forms[first : first + BATCH])
    return found


def _computed_at_once(forms: Sequence[Form]) -> list[Words]:
    module = ir.Module("forms")
    kind = ir.FunctionType(ir.VoidType(), [I64.as_pointer()] * 2)
    for number, form in enumerate(forms):
        function = ir.Function(module, kind, f"form{number}")
        code = Code(function)
        given, results = (Memory(code.builder, each, I64) for each in function.args)
        with code.loop(COUNT, step=LANES) as place:
            _trace(form, given, results, place)
        code.close()
    engine = _loaded(str(module))
    found = []
    for number, form in enumerate(forms):
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
            engine.get_function_address(f"form{number}")
        )
        out = np.empty((number_of_results(form), COUNT), np.uint64)
        call(pools().ctypes.data, out.ctypes.data)
        found.append(out)
    return found


def _trace(form: Form, given: Memory, results: Memory, place: Value) -> None:
    """Load the operands, compute, store the results."""
    words = [given.lanes(place + COUNT * each) for each in rows(form)]
    operands: list[Any] = []
    for slot, kind in form.operands():
        if slot.type == "imm":
            operands.append(form.immediates[slot.name])
        elif kind == "b128":
            operands.append((words.pop(0), words.pop(0)))
        else:
            operands.append(convert(words.pop(0), _integer(kind)))
    there = {slot.name for slot in form.slots}
    for position, slot in enumerate(s for s in form.syntax.operands if not s.result):
        if slot.name not in there:
            operands.insert(position, None)
    answer = form.syntax.emit(form.qualifiers, *operands)  # type: ignore[misc]
    several = isinstance(answer, tuple) and len(form.results()) > 1
    number = 0
    for one, (slot, kind) in zip(
        answer if several else [answer], form.results(), strict=True
    ):
        for word in one if kind == "b128" else [one]:
            assert word.type.element == _integer(kind) or kind == "b128", (
                form,
                slot,
                word.type,
            )
            signed = kind.startswith("s") and kind == "s8"
            if kind == "s8":  # as its register of 32 bits holds it
                word = convert(
                    convert(word, ir.IntType(32), signed=signed), I64, signed=False
                )
            results[place + COUNT * number] = convert(word, I64, signed=False)
            number += 1


def _integer(kind: str) -> Any:
    """The type of the value that a function of the table gets for a PTX type."""
    if kind == "pred":
        return I1
    width = 8 if kind in ("u8", "s8", "b8") else bits_of_type(kind)
    return ir.IntType(min(width, 64))


def _loaded(text: str) -> Any:
    """An engine with the machine code of a module."""
    cpu, features = compiler._processor()
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(cpu=cpu, features=features, opt=0, jit=True)
    module = binding.parse_assembly(text)
    module.verify()
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
