"""How does a program become machine code, and what is kept of it?

All that is needed to run a kernel is in one :class:`Compiled`: object files, constants,
sizes, and what each code block consists of.  It is kept in the cache on disk, so that a
kernel that was compiled before starts at once.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fragmenta.machine import compiler
from fragmenta.machine.cache import Cache
from fragmenta.progress import notice
from fragmenta.ptx.engine import (
    accessing,
    atomics,
    copying,
    layout,
    library,
    matrices,
    warps,
)
from fragmenta.ptx.engine.control import after_call, ret
from fragmenta.ptx.engine.layout import Fault
from fragmenta.ptx.engine.program import Block, meets, program
from fragmenta.ptx.engine.synchronising import meet
from fragmenta.ptx.engine.writing import FULL, PARTIAL, Writer
from fragmenta.ptx.module import Function, Instruction, Module

# Each of these says how some opcodes are written.
PARTS = (accessing, atomics, copying, matrices)

_TERMINAL = frozenset({"bra", "brx", "ret", "exit", "call", "trap"})


@dataclass(frozen=True)
class Compiled:
    """A kernel as machine code."""

    kernel: str
    objects: tuple[bytes, ...]
    constants: bytes
    warp_bytes: int
    shared: int
    local: int
    recursive: bool
    calls: bool
    counted: list[list[str]]
    """The mnemonics of each code block."""
    places: list[list[Any]]
    """For each site of a possible fault: function and index of the instruction."""
    waits: list[list[Any]]
    """For each code block, function and index of its first instruction."""
    refusals: dict[str, str]
    """Why an instruction is not supported, by its site."""
    functions: list[list[str]]
    fidelity: dict[str, str]
    ordered: bool
    """Whether blocks may influence one another, so that their order matters."""
    addresses: dict[str, int]
    allocates: bool
    """Whether it asks for local memory while it runs."""

    def to_bytes(self) -> bytes:
        """Everything in one piece."""
        about = asdict(self)
        parts = [*about.pop("objects"), about.pop("constants")]
        about["sizes"] = [len(part) for part in parts]
        text = json.dumps(about).encode()
        return b"".join([len(text).to_bytes(8, "little"), text, *parts])

    @classmethod
    def from_bytes(cls, data: bytes) -> Compiled:
        """What :meth:`to_bytes` made."""
        size = int.from_bytes(data[:8], "little")
        about = json.loads(data[8 : 8 + size])
        place, parts = 8 + size, []
        for length in about.pop("sizes"):
            parts.append(data[place : place + length])
            place += length
        return cls(objects=tuple(parts[:-1]), constants=parts[-1], **about)

    @cached_property
    def code(self) -> Code:
        """The machine code, loaded."""
        return Code(self.objects)


class Code:
    """Machine code in memory."""

    def __init__(self, objects: tuple[bytes, ...]) -> None:
        self._engine = compiler.load(objects)
        self.kernel: int = self._engine.get_function_address("kernel")
        address = self._engine.get_function_address("grid")
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        self.grid = ctypes.CFUNCTYPE(None, *kinds)(address)


def compiled(
    module: Callable[[], Module], text: str, chosen: tuple[str, str, str]
) -> Compiled:
    """The machine code of a kernel, from the cache if it is there.

    ``chosen`` are its name, the target, and what else the code depends on.  ``module``
    is asked for only if there is something to compile.
    """
    key = "\0".join(["kernel", *compiler.processor(), library.digest(), *chosen, text])
    disk = Cache.present()
    kept = disk.get(key)
    if kept is not None:
        return Compiled.from_bytes(kept)
    name, target, _ = chosen
    with notice(f"compiling the kernel {name}, once"):
        made = _compile(module(), name, target)
    disk.put(key, made.to_bytes())
    return made


def _compile(module: Module, name: str, target: str) -> Compiled:
    parts = program(module, name)
    writer = Writer(parts, target)
    text = write(writer)
    code = compiler.object_code(text, optimise=0)
    routines = [*writer.routines.values(), warps.CHOOSE, warps.TURNS, warps.GRID]
    known = {each.name: each for each in routines}
    return Compiled(
        kernel=name,
        objects=(code, *library.objects(known.values())),
        constants=bytes(writer.constants),
        warp_bytes=parts.warp_bytes,
        shared=parts.shared,
        local=parts.local,
        recursive=any(unit.recursive for unit in parts.units.values()),
        calls=len(parts.units) > 1,
        counted=[[i.mnemonic for i in b.instructions] for b in parts.blocks],
        places=[list(site) for site in writer.sites],
        waits=[[b.unit.function.name, b.start] for b in parts.blocks],
        refusals={str(k): v for k, v in writer.refusals.items()},
        functions=[list(each) for each in writer.functions],
        fidelity=writer.fidelity,
        ordered=any(_orders(u.function) for u in parts.units.values()),
        addresses=dict(parts.addresses),
        allocates=any(
            each.opcode == "alloca"
            for unit in parts.units.values()
            for each in unit.function.instructions
        ),
    )


def _orders(function: Function) -> bool:
    """Whether the results of blocks may depend on the order in which they run."""
    return any(map(_may_order, function.instructions))


def _may_order(instruction: Instruction) -> bool:
    words = instruction.qualifiers
    if instruction.opcode in ("ld", "st"):
        if any(word.startswith("shared") for word in words):
            return False
        return bool({"volatile", "acquire", "release", "mmio"} & set(words)) or (
            "relaxed" in words
        )
    if instruction.opcode not in ("atom", "red"):
        return False
    if any(word.startswith("shared") for word in words):
        return False
    simple = {"add", "and", "or", "xor", "min", "max"} & set(words)
    whole = {"u32", "s32", "b32", "u64", "s64", "b64"} & set(words)
    return instruction.opcode == "atom" or not (simple and whole)


# ── text ────────────────────────────────────────────────────────────────────


def write(writer: Writer) -> str:
    """The code of a program in LLVM's language."""
    for block in writer.program.blocks:
        for version in (FULL, PARTIAL):
            _block(writer, block, version)
    cases = [
        f"    i32 {2 * b.number + odd}, label %{version}{b.number}"
        for b in writer.program.blocks
        for odd, version in enumerate((FULL, PARTIAL))
    ]
    head = [
        "define void @kernel(ptr %warp, ptr %block) {",
        "entry:",
        *(
            line
            for name, offset in (
                ("counts", layout.BLOCK_COUNTS),
                ("constants", layout.BLOCK_CONSTANTS),
                ("functions", layout.BLOCK_FUNCTIONS),
                ("parameters", layout.BLOCK_PARAMETERS),
                ("stage", layout.BLOCK_STAGE),
            )
            for line in (
                f"  %{name}_at = getelementptr i8, ptr %block, i64 {offset}",
                f"  %{name} = load ptr, ptr %{name}_at",
            )
        ),
        f"  %budget = getelementptr i8, ptr %warp, i64 {layout.BUDGET}",
        "  br label %dispatch",
        "dispatch:",
        '  %chosen = call i32 @"choose"(ptr %warp, ptr %block)',
        "  switch i32 %chosen, label %stop [",
        *cases,
        "  ]",
        "stop:",
        "  ret void",
    ]
    writer.declared["choose"] = 'declare i32 @"choose"(ptr, ptr)'
    return "\n".join([*writer.declared.values(), *head, *writer.lines, "}"])


def _block(writer: Writer, block: Block, version: str) -> None:
    writer.block, writer.version, writer.unit = block, version, block.unit
    writer.label(f"{version}{block.number}")
    _count(writer, block.number)
    instructions = block.unit.function.instructions
    before = instructions[block.start - 1] if block.start else None
    if before is not None and before.opcode == "call":
        writer.guarded(lambda: after_call(writer, before))
    for index in range(block.start, block.stop):
        writer.index = index
        instruction = instructions[index]
        if version == PARTIAL and meets(instruction):
            meet(writer, instruction)
        writer.instruction(instruction)
    last = instructions[block.stop - 1] if block.stop > block.start else None
    if last is not None and last.opcode in _TERMINAL:
        return
    writer.mask = "" if version == FULL else writer.active()
    if block.stop >= len(instructions):
        end = Instruction("ret", (), (), None, last.line if last else 0, 0)
        ret(writer, end)
        return
    writer.goto(block.number + 1)


def _count(writer: Writer, number: int) -> None:
    place = writer.at("%counts", 8 * number)
    before = writer.value(f"load i64, ptr {place}")
    after = writer.value(f"add i64 {before}, 1")
    writer.line(f"store i64 {after}, ptr {place}")


__all__ = ["Code", "Compiled", "Fault", "compiled"]
