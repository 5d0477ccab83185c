"""Where the planes of registers are in the memory of a warp.

A register that is followed has P *shadow registers*, one for each plane, side by side.
They come after all registers of a warp, so they begin without second values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fragmenta.engine.planes.code.flow import followed
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.program import PlacedFunction, Program, register_bytes
from fragmenta.ptx.module import Register

WIDTHS = (8, 16, 32, 64, 128)


@dataclass
class ShadowRegisters:
    """The shadow registers of a function."""

    of: dict[int, tuple[Register, ...]] = field(default_factory=dict)
    """By the number of the register, plane by plane."""
    nothing: dict[int, Register] = field(default_factory=dict)
    """Registers that always hold 0, by their bits."""


def place_shadows(
    program: Program, planes: int, granule: int, whole: bool
) -> dict[str, ShadowRegisters]:
    """The shadow registers of all that are followed, by the name of the function."""
    zeros = program.warp_bytes
    program.warp_bytes += WIDTHS[-1] // 8 * LANES
    made = {}
    for name, unit in program.units.items():
        found = ShadowRegisters()
        for number in sorted(followed(unit.function, granule, whole)):
            found.of[number] = place_shadow(program, unit, number, planes)
        for bits in WIDTHS:
            found.nothing[bits] = added(unit, Register("%zero'", f"b{bits}", 0), zeros)
        place_words(program, unit, planes)
        made[name] = found
    if any(each.recursive for each in program.units.values()):
        _place_results(program, planes)
    program.warp_bytes = -(-program.warp_bytes // 64) * 64
    return made


def added(unit: PlacedFunction, register: Register, place: int) -> Register:
    """A register of a unit that its function does not declare."""
    unit.registers.append(place)
    return replace(register, number=len(unit.registers) - 1)


def place_shadow(
    program: Program, unit: PlacedFunction, number: int, planes: int
) -> tuple[Register, ...]:
    """Give a register a shadow in each plane, side by side."""
    register = unit.function.registers[number]
    size = register_bytes(register)
    first = -(-program.warp_bytes // 64) * 64
    program.warp_bytes = first + planes * size
    places = [first + plane * size for plane in range(planes)]
    # Of 128 bits, calls move both halves one by one.
    for half in range(0, size, 8 * LANES):
        here = unit.registers[number] + half
        program.shadows[here] = tuple(each + half for each in places)
    return tuple(
        added(unit, replace(register, name=f"{register.name}'{plane}"), place)
        for plane, place in enumerate(places)
    )


def place_words(program: Program, unit: PlacedFunction, planes: int) -> None:
    """Give the parameters of calls planes, word by word."""
    for name, first in unit.words.items():
        variable = unit.function.variables.get(name) or unit.given[name]
        words = -(-variable.size // 4)
        size = 4 * LANES * words
        start = program.warp_bytes
        program.warp_bytes += planes * size
        places = tuple(start + plane * size for plane in range(planes))
        unit.shadow_words[name] = places
        for step in range(0, size, 4 * LANES):
            program.shadows[first + step] = tuple(each + step for each in places)


def _place_results(program: Program, planes: int) -> None:
    """Give planes to where arguments and results of recursive calls are kept apart."""
    for number in range(layout.RESULT_WORDS):
        here, size = layout.RESULTS + 8 * LANES * number, 8 * LANES
        start = program.warp_bytes
        program.warp_bytes += planes * size
        program.shadows[here] = tuple(start + plane * size for plane in range(planes))
