"""A warpgroup outside of a kernel: four warps, registers and shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

import fragmenta as fm
from fragmenta.engine.simt.program import program
from fragmenta.engine.simt.wgmma_operands import Located, describe
from fragmenta.engine.units.warpgroups import Warpgroup, Wgmma
from fragmenta.inspect.evidence.variants import Variant
from fragmenta.inspect.evidence.warpgroup import WarpgroupCase
from fragmenta.ptx.module import Function
from fragmenta.ptx.reading.file import parse

START = 1024
"""Where shared memory of a kernel begins."""


class Warp:
    """A warp: its number, and its memory."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.memory = np.zeros(size, np.uint8)

    def register(self, offset: int, bits: int = 32) -> np.ndarray:
        """The values of a register in all lanes."""
        return self.memory[offset : offset + 4 * bits].view(f"u{bits // 8}")


def parsed(body: str, registers: str = "") -> tuple[Function, Any]:
    """A kernel, and where its registers are."""
    module = parse(
        ".version 8.7\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k()\n{\n"
        f".reg .pred p<4>; .reg .b64 x<8>; .reg .b32 r<64>; .reg .f32 f<300>;\n"
        f"{registers}\n{body}\nret;\n}}\n"
    )
    return module.functions["k"], program(module, "k")


def statement(op: fm.Instruction, way: Variant, scale_d: str = "p0") -> str:
    """The text of an instruction; D is f0 and so on, A r0 to r3, metadata r8."""
    d = ", ".join(f"f{i}" for i in range(op.d.registers))
    a = "{r0, r1, r2, r3}" if way.a_registers else "x0"
    immediates = way.immediates(op)
    rest = [f"r8, {immediates.pop('selector')}"] if op.sparse else []
    rest += [scale_d, *map(str, immediates.values())]
    return f"{op} {{{d}}}, {a}, x1, {', '.join(rest)};"


class Machine:
    """Four warps that can be given the inputs of a case."""

    def __init__(self, body: str, shared: int, first: int = 0, **how: Any) -> None:
        function, laid_out = parsed(body)
        self.function = function
        self.places = laid_out.units["k"].registers
        size = laid_out.warp_bytes
        self.warps = [Warp(first + number, size) for number in range(4)]
        self.shared = np.zeros(shared + START, np.uint8)
        self.group = Warpgroup(self.warps, self.shared, **how)
        self.named = {each.name: each for each in function.registers}
        self.located = [
            describe(each).located(self.offset)
            for each in function.instructions
            if each.mnemonic.startswith("wgmma.mma_async")
        ]

    def offset(self, register: Any) -> int:
        place: int = self.places[register.number]
        return place

    def at(self, name: str) -> int:
        return self.offset(self.named[name])

    def put(self, name: str, values: Any, bits: int = 32) -> None:
        """Set a register of all 128 threads."""
        given = np.broadcast_to(np.asarray(values), (128,))
        for number, warp in enumerate(self.warps):
            part = given[32 * number : 32 * number + 32]
            warp.register(self.at(name), bits)[:] = part

    def predicate(self, name: str, value: int) -> None:
        for warp in self.warps:
            warp.memory[self.at(name) : self.at(name) + 4] = 255 * value

    def get(self, name: str) -> np.ndarray:
        return np.concatenate([w.register(self.at(name)) for w in self.warps])

    def load(self, given: dict[str, Any], d: str = "f") -> None:
        """The inputs of one tile."""
        image = given["image"]
        self.shared[START : START + image.size] = image
        for number, values in enumerate(given["c"].T):
            self.put(f"{d}{number}", values)
        if given["a"].ndim:
            for number, values in enumerate(given["a"].T):
                self.put(f"r{number}", values)
        else:
            self.put("x0", given["a"] + np.uint64(START >> 4), 64)
        self.put("x1", given["b"] + np.uint64(START >> 4), 64)
        if "metadata" in given and "r8" in self.named:
            self.put("r8", given["metadata"].reshape(-1))
        if "p0" in self.named:
            self.predicate("p0", int(given["scale_d"]))

    def result(self, op: fm.Instruction, d: str = "f") -> np.ndarray:
        """D: (128 lanes, registers)."""
        found = [self.get(f"{d}{number}") for number in range(op.d.registers)]
        return np.stack(found, axis=1)

    def issue(self, number: int = 0, order: Any = range(4)) -> Wgmma | None:
        """All four warps issue an instruction."""
        found: list[Wgmma | None] = [
            self.group.issue(self.warps[warp], self.located[number], number)
            for warp in order
        ]
        assert found[:-1] == [None] * 3
        return found[-1]

    def wait(self, n: int = 0, commit: bool = True) -> None:
        """All four warps commit and wait."""
        for warp in self.warps:
            if commit:
                self.group.commit(warp)
            assert self.group.wait(warp, n)


def tiles(op: fm.Instruction, way: Variant, count: int = 4) -> Any:
    """Inputs and what ``op.execute`` makes of them, tile by tile."""
    case = WarpgroupCase(op, way, count, 7)
    given = case.inputs()
    want = case.expect(given, "sm_90a")
    for tile in range(count):
        yield {name: array[tile] for name, array in given.items()}, want[tile]


def json_again(located: Located) -> Located:
    """What is left of a description that was written to a file and read."""
    import json

    return Located.from_list(json.loads(json.dumps(located.to_list())))
