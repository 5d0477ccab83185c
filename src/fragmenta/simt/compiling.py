"""Compiles a program to machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fragmenta.jit import compiler
from fragmenta.ptx.module import Instruction, Module, Symbol
from fragmenta.simt import (  # noqa: F401 - some only register handlers of opcodes
    accessing,
    atomics,
    barriers,
    events,
    lane_copies,
    layout,
    library,
    matrices,
    warps,
)
from fragmenta.simt.admitting import admit
from fragmenta.simt.calling import after_call
from fragmenta.simt.control import ret
from fragmenta.simt.convergence import convergent_blocks
from fragmenta.simt.emitter import FULL, PARTIAL, Writer
from fragmenta.simt.mode import Mode
from fragmenta.simt.probes import NOTHING, Probes
from fragmenta.simt.program import JUMPS, CodeBlock, meets, program, stays
from fragmenta.simt.synchronising import meet


def make(
    module: Module,
    name: str,
    target: str,
    mode: tuple[bool, ...] = (),
    probes: Probes = NOTHING,
    measure: Callable[[int], None] = lambda _: None,
) -> tuple[dict[str, Any], tuple[bytes, ...], bytes]:
    """Compile a kernel: the fields of ``Compiled``, object files, constants."""
    parts = program(module, name)
    admit(module, [unit.function for unit in parts.units.values()])
    writer = Writer(parts, target, Mode(*mode), probes, measure)
    text = write(writer)
    code = compiler.object_code(text, optimise=0)
    routines = [
        *writer.routines.values(),
        warps.CHOOSE,
        warps.TURNS,
        warps.GRID,
        warps.RESET,
    ]
    called = library.objects({each.name: each for each in routines}.values())
    every = [i for u in parts.units.values() for i in u.function.instructions]
    about: dict[str, Any] = {
        "kernel": name,
        "warp_bytes": parts.warp_bytes,
        "shared": parts.shared,
        "local": parts.local,
        "recursive": any(unit.recursive for unit in parts.units.values()),
        "calls": len(parts.units) > 1,
        "counted": [[i.mnemonic for i in b.instructions] for b in parts.blocks],
        "places": [list(site) for site in writer.sites],
        "waits": [[b.unit.function.name, b.start] for b in parts.blocks],
        "refusals": {str(k): v for k, v in writer.refusals.items()},
        "functions": [list(each) for each in writer.functions],
        "fidelity": writer.fidelity,
        "ordered": any(map(_may_order, every)),
        "addresses": dict(parts.addresses),
        "allocates": any(each.opcode == "alloca" for each in every),
        "prints": any(_prints(each) for each in every),
        "events": writer.events,
        "mode": list(writer.mode),
        "routines": [each.names for each in called],
        **probes.about(parts),
    }
    objects = (code, *(each.code for each in called))
    return about, objects, bytes(writer.constants)


def _prints(instruction: Instruction) -> bool:
    named = [each.name for each in instruction.operands if isinstance(each, Symbol)]
    return instruction.opcode == "call" and "vprintf" in named


def _may_order(instruction: Instruction) -> bool:
    """Whether the results of blocks may depend on the order in which they run."""
    words = instruction.qualifiers
    if instruction.opcode in ("ld", "st"):
        if any(word.startswith("shared") for word in words):
            return False
        ordered = {"volatile", "acquire", "release", "relaxed", "mmio"}
        return bool(ordered & set(words))
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
    cases, all_lanes = [], convergent_blocks(writer.program)
    for block in writer.program.blocks:
        number = block.number
        versions = (FULL,) if number < all_lanes else (FULL, PARTIAL)
        for odd, version in enumerate(versions):
            _block(writer, block, version)
            cases.append(f"    i32 {2 * number + odd}, label %{version}{number}")
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
        "  %warp_at = ptrtoint ptr %warp to i64",
        "  %constants_at_ = ptrtoint ptr %constants to i64",
        "  %constants_from_warp = sub i64 %constants_at_, %warp_at",
        *writer.probes.head(),
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


def _block(writer: Writer, block: CodeBlock, version: str) -> None:
    writer.block, writer.version, writer.unit = block, version, block.unit
    writer.label(f"{version}{block.number}")
    instructions = block.unit.function.instructions
    # Lanes execute an instruction at which they wait several times.
    first = instructions[block.start] if block.stop > block.start else None
    again = first is not None and stays(first)
    if not again:
        _count(writer, block.number)
    if block.returns_here:
        writer.index = block.start - 1
        writer.guarded(lambda: after_call(writer, instructions[block.start - 1]))
    for index in range(block.start, block.stop):
        writer.index = index
        instruction = instructions[index]
        if version == PARTIAL and meets(instruction):
            meet(writer, instruction)
        writer.instruction(instruction)
    if again:
        _count(writer, block.number)
    last = instructions[block.stop - 1] if block.stop > block.start else None
    if last is not None and last.opcode in JUMPS:
        return
    writer.mask = "" if version == FULL else writer.active()
    if block.stop >= len(instructions) and not block.returns_here:
        end = Instruction("ret", (), (), None, last.line if last else 0, 0)
        ret(writer, end)
        return
    writer.goto(block.number + 1)


def _count(writer: Writer, number: int) -> None:
    place = writer.at("%counts", 8 * number)
    before = writer.value(f"load i64, ptr {place}")
    after = writer.value(f"add i64 {before}, 1")
    writer.line(f"store i64 {after}, ptr {place}")
