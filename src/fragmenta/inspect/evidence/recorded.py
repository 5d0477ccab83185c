"""Recorded launches as calls: what ``ptx.same`` and ``ptx.invariant`` take.

A recording of launches says the types of its arrays.  A recording of a program has
bytes only: there, an allocation has the type in which the kernel loads or stores
through the pointer to it, if that is a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array, is_whole
from fragmenta.engine.simt.accessing import element_type
from fragmenta.engine.simt.arguments import Pointer, Struct, pointer
from fragmenta.errors import BadCall, BadFile, shortened
from fragmenta.inspect.evidence.arguments import Argument, elements, for_kernel
from fragmenta.inspect.evidence.card_memory import Addresses, words_of
from fragmenta.inspect.evidence.launches import Launches, RecordedLaunch, load
from fragmenta.inspect.sameness.calls import Call
from fragmenta.launch.kernel import Kernel
from fragmenta.ptx.checking.register_effects import registers
from fragmenta.ptx.families import MOVES, SUMS
from fragmenta.ptx.module import Address, Function, Instruction, Register, Symbol
from fragmenta.reference.registers.dtype import dtype

_PASSING = MOVES | SUMS | {"cvta", "mad", "selp"}
"""Instructions that make a pointer from a pointer."""


def recorded(path: str | Path, launch: int | str | None = None) -> tuple[Call, ...]:
    """The launches of a recording, as calls with arrays of their own.

    ``launch`` is the number or the name of one of them.

    >>> recorded("nothing.npz")
    Traceback (most recent call last):
    fragmenta.errors.BadFile: nothing.npz is no file; a recording of launches is a \
.npz file
    """
    if not isinstance(path, str | Path):
        raise BadCall(f"path is that of a recording; given {type(path).__name__}")
    where = Path(path)
    if not where.is_file():
        raise BadFile(f"{where} is no file; a recording of launches is a .npz file")
    found = load(where)
    return tuple(_call(found, each) for each in _chosen(found, launch, where))


def _chosen(
    found: Launches, launch: int | str | None, where: Path
) -> Sequence[RecordedLaunch]:
    if launch is None:
        return found.launches
    many = len(found.launches)
    if isinstance(launch, int) and is_whole(launch) and 0 <= launch < many:
        return [found.launches[launch]]
    name = launch if isinstance(launch, str) else ""
    named = [each for each in found.launches if each.name == name]
    if not named:
        have = ", ".join(each.name for each in found.launches)
        raise BadCall(
            f"{where.name} has no launch {shortened(str(launch))}; it has {many}: "
            f"{shortened(have)}"
        )
    return named[:1]


def _call(found: Launches, launch: RecordedLaunch) -> Call:
    if launch.fault:
        raise BadFile(f"{launch.name} ended with an error when it was recorded")
    kernel, made = found.kernel(launch), found.arguments(launch)
    given: Iterable[object]
    if launch.memory:
        given = _of_program(kernel, launch, made)
    else:
        typed = [
            elements(each, spec["type"]) if isinstance(each, np.ndarray) else each
            for each, spec in zip(made, launch.arguments, strict=True)
        ]
        given = for_kernel(typed)
    options = {
        "shared": launch.shared,
        "cluster": launch.cluster,
        "cooperative": launch.cooperative or None,
        "target": found.made["target"],
    }
    chosen = {name: each for name, each in options.items() if each is not None}
    return Call(kernel, launch.grid, launch.block, given, **chosen)


# ── programs ────────────────────────────────────────────────────────────────


def _of_program(
    kernel: Kernel, launch: RecordedLaunch, made: Sequence[Argument]
) -> Iterator[object]:
    """The parameters of a launch whose memory was recorded as bytes."""
    count = len(launch.arguments)
    memory = [np.asarray(each).view(np.uint8) for each in made[count:]]
    parts = [(m.address, a.size) for m, a in zip(launch.memory, memory, strict=True)]
    addresses = Addresses(parts)
    parameters = [each.tobytes() for each in made[:count]]
    names = _symbols(kernel)
    reached = {n for n, each in enumerate(launch.memory) if each.name in names}
    for each in parameters:
        reached |= set(addresses.reached(np.frombuffer(_padded(each), np.uint8)))
    for number in sorted(reached):
        if addresses.reached(memory[number]):
            raise BadFile(
                f"{launch.name}: {launch.memory[number].name} has pointers in it; "
                "only pointers in parameters are followed"
            )
    kernel.loaded.renew(
        {
            each.name: data.tobytes()
            for each, data in zip(launch.memory, memory, strict=True)
            if each.variable
        }
    )
    types = accessed(kernel.function)
    typed: dict[int, Array] = {}
    for parameter, data in zip(kernel.function.parameters, parameters, strict=True):
        holders = addresses.holders(words_of(np.frombuffer(_padded(data), np.uint8)))
        into: list[tuple[int, Pointer]] = []
        for place in np.flatnonzero(holders >= 0).tolist():
            number = int(holders[place])
            start = launch.memory[number].address
            word = int.from_bytes(data[8 * place : 8 * place + 8], "little")
            array = typed.setdefault(
                number, _viewed(memory[number], types.get(parameter.name, ""))
            )
            into.append((8 * place, pointer(array, word - start)))
        if not into:
            yield data
        elif len(data) == 8:
            yield into[0][1] if into[0][1].offset else into[0][1].array
        else:
            yield Struct(data, tuple(into))


def _symbols(kernel: Kernel) -> set[str]:
    """The variables that a kernel names, or any function if it calls one."""
    own = kernel.function.instructions
    calls = any(each.opcode == "call" for each in own)
    functions = kernel.loaded.module.functions.values()
    every = (e for of in functions for e in of.instructions) if calls else own
    operands = (operand for each in every for operand in each.operands)
    named = (e.base if isinstance(e, Address) else e for e in operands)
    return {each.name for each in named if isinstance(each, Symbol)}


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def _viewed(data: NDArray[np.uint8], kind: str) -> Array:
    """Bytes as the elements of a type."""
    copy = data.copy()
    of = dtype(kind).storage if kind else np.dtype(np.uint8)
    return copy.view(of) if copy.size % of.itemsize == 0 else copy


def accessed(function: Function) -> dict[str, str]:
    """The floats in which a kernel loads and stores through each parameter.

    >>> from fragmenta.ptx.reading import parse
    >>> text = ".version 8.0 .target sm_80 .entry f(.param .u64 x, .param .u64 n) {"
    >>> text += ".reg .b64 %a<3>; .reg .f32 %f; .reg .b32 %r; ld.param.u64 %a1, [x];"
    >>> text += "add.s64 %a2, %a1, 8; ld.global.f32 %f, [%a2]; ld.param.u64 %a1, [n];"
    >>> accessed(parse(text + "ret; }").functions["f"])
    {'x': 'f32'}
    """
    held: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {}
    for _ in range(3):  # once more for each loop that a pointer goes round
        for each in function.instructions:
            if each.is_load and each.qualifiers[:1] == ("param",):
                _loaded(each, held)
            elif each.opcode in _PASSING:
                _passed(each, held)
            elif each.is_access:
                for name in _through(each, held):
                    found.setdefault(name, set()).add(element_type(each))
    return {
        name: next(iter(kinds))
        for name, kinds in found.items()
        if len(kinds) == 1 and kinds <= {"f16", "bf16", "f32", "f64"}
    }


def _loaded(of: Instruction, held: dict[str, set[str]]) -> None:
    goal, address = of.operands[:2]
    if isinstance(goal, Register) and isinstance(address, Address):
        base = address.base
        if isinstance(base, Symbol) and not address.offset:
            held[goal.name] = {base.name}


def _passed(of: Instruction, held: dict[str, set[str]]) -> None:
    goal, *sources = of.operands
    if isinstance(goal, Register):
        names: set[str] = set()
        for each in registers(sources):
            names |= held.get(each.name, set())
        held[goal.name] = held.get(goal.name, set()) | names if names else names


def _through(of: Instruction, held: Mapping[str, set[str]]) -> set[str]:
    addresses = [each for each in of.operands if isinstance(each, Address)]
    names = [held.get(each.name, set()) for each in registers(addresses)]
    return set().union(*names)
