"""Compiles a program to machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fragmenta.base.jit import compiler
from fragmenta.engine.simt import (  # noqa: F401 - some only register handlers of opcodes
    accessing,
    atomics,
    barriers,
    events,
    lane_copies,
    layout,
    library,
    matrices,
    turns,
    warps,
)
from fragmenta.engine.simt.admitting import admit
from fragmenta.engine.simt.calling import after_call
from fragmenta.engine.simt.control import ret
from fragmenta.engine.simt.convergence import convergent_blocks
from fragmenta.engine.simt.emitter import FULL, PARTIAL, Writer
from fragmenta.engine.simt.mode import Mode
from fragmenta.engine.simt.probes import NOTHING, Probes
from fragmenta.engine.simt.program import JUMPS, CodeBlock, meets, program, stays
from fragmenta.engine.simt.synchronisation import synchronises
from fragmenta.engine.simt.synchronising import meet
from fragmenta.ptx.families import REDUCING
from fragmenta.ptx.module import Instruction, Module, Symbol

_SCHEDULER = (warps.CHOOSE, warps.TURNS, warps.GRID, warps.RESET, turns.STEPS)
_HEAD = (
    ("counts", layout.BLOCK_COUNTS),
    ("constants", layout.BLOCK_CONSTANTS),
    ("functions", layout.BLOCK_FUNCTIONS),
    ("parameters", layout.BLOCK_PARAMETERS),
    ("stage", layout.BLOCK_STAGE),
)
"""The pointers that all code uses."""


class CompiledKernel(NamedTuple):
    """A kernel as it was compiled."""

    about: dict[str, Any]
    """The fields of ``Compiled``."""
    objects: tuple[bytes, ...]
    """The object file of the kernel, and those of the routines that it calls."""
    constants: bytes
    partial: Callable[[], list[library.Object]]
    """Compiles the code for a part of the lanes, which few kernels need."""


def make(
    module: Module,
    name: str,
    target: str,
    mode: tuple[int, ...] = (),
    probes: Probes = NOTHING,
    measure: Callable[[int], None] = lambda _: None,
) -> CompiledKernel:
    """Compile a kernel."""
    of = Mode.of(mode)
    parts = program(module, name, of.stepped)
    admit(module, [unit.function for unit in parts.units.values()])
    writer = Writer(parts, target, of, probes, measure)
    text, rest = write(writer)
    code = compiler.object_code(text, optimise=0)
    whole, some = (list(each.routines.values()) for each in writer.sections.values())
    called = library.objects([*whole, *_SCHEDULER])
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
        "ordered": any(map(may_order, every)),
        "addresses": dict(parts.addresses),
        "allocates": any(each.opcode == "alloca" for each in every),
        "prints": any(_prints(each) for each in every),
        "events": writer.events,
        "mode": list(writer.mode),
        "routines": [each.names for each in called],
        **probes.about(parts),
    }
    objects = (code, *(each.code for each in called))

    def partial() -> list[library.Object]:
        code = compiler.object_code(rest, optimise=0)
        return [library.Object(["partial"], code), *library.objects(some)]

    return CompiledKernel(about, objects, bytes(writer.constants), partial)


def _prints(instruction: Instruction) -> bool:
    named = [each.name for each in instruction.operands if isinstance(each, Symbol)]
    return instruction.opcode == "call" and "vprintf" in named


def may_order(instruction: Instruction) -> bool:
    """Whether the results of blocks may depend on the order in which they run."""
    words = instruction.qualifiers
    if instruction.is_load or instruction.is_store:
        if any(word.startswith("shared") for word in words):
            return False
        ordered = {"volatile", "acquire", "release", "relaxed", "mmio"}
        return bool(ordered & set(words))
    if not instruction.is_update:
        return False
    if any(word.startswith("shared") for word in words):
        return False
    simple = {*REDUCING} & set(words)
    whole = {"u32", "s32", "b32", "u64", "s64", "b64"} & set(words)
    return instruction.is_fetch or not (simple and whole)


# ── text ────────────────────────────────────────────────────────────────────


def write(writer: Writer) -> tuple[str, str]:
    """The code of a program in LLVM's language: for all lanes, and for some of them.

    They are two functions.  ``kernel`` runs a warp until it has to stop.  It calls
    ``partial`` through a pointer when not all lanes take part, and that returns the
    number of the code block with which all go on, or -1.
    """
    together = convergent_blocks(writer.program)
    for block in writer.program.blocks:
        _block(writer, block, FULL)
        if block.number >= together:
            _block(writer, block, PARTIAL)
    every = len(writer.program.blocks)
    return _full(writer, range(every)), _partial(writer, range(together, every))


def _full(writer: Writer, numbers: Iterable[int]) -> str:
    """The function that runs a warp."""
    again = [
        "other:",
        "  %ends = icmp slt i32 %chosen, 0",
        "  br i1 %ends, label %stop, label %some",
        "some:",
        f"  %some_at = getelementptr i8, ptr %block, i64 {layout.BLOCK_PARTIAL}",
        "  %partial = load ptr, ptr %some_at",
        "  %back = call i32 %partial(ptr %warp, ptr %block, i32 %chosen)",
        "  br label %go",
        "stop:",
        "  ret void",
    ]
    cases = [f"    i32 {2 * each}, label %{FULL}{each}" for each in numbers]
    head = "define void @kernel(ptr %warp, ptr %block) {"
    start = ["  br label %dispatch"], "[%back, %some]"
    return _function(writer, FULL, head, *start, [*cases, "  ]", *again])


def _partial(writer: Writer, numbers: Iterable[int]) -> str:
    """The function that runs a warp while not all of its lanes take part."""
    again = ["other:", "  ret i32 %chosen", "stop:", "  ret i32 -1"]
    cases = [
        f"    i32 {2 * number + 1}, label %{PARTIAL}{number}" for number in numbers
    ]
    head = "define i32 @partial(ptr %warp, ptr %block, i32 %first) {"
    start = ["  br label %go"], "[%first, %entry]"
    return _function(writer, PARTIAL, head, *start, [*cases, "  ]", *again])


def _function(
    writer: Writer,
    version: str,
    head: str,
    enter: list[str],
    also: str,
    switch: list[str],
) -> str:
    """A function: its beginning, the choice of a code block, and all code blocks.

    ``also`` is where the number of the code block comes from, if not from the
    scheduler.
    """
    section = writer.sections[version]
    section.declared["choose"] = 'declare i32 @"choose"(ptr, ptr)'
    pointers = [
        line
        for name, offset in _HEAD
        for line in (
            f"  %{name}_at = getelementptr i8, ptr %block, i64 {offset}",
            f"  %{name} = load ptr, ptr %{name}_at",
        )
    ]
    return "\n".join(
        [
            *section.declared.values(),
            head,
            "entry:",
            *pointers,
            f"  %budget = getelementptr i8, ptr %warp, i64 {layout.BUDGET}",
            "  %warp_at = ptrtoint ptr %warp to i64",
            "  %constants_number = ptrtoint ptr %constants to i64",
            "  %constants_from_warp = sub i64 %constants_number, %warp_at",
            *writer.probes.head(),
            *enter,
            "dispatch:",
            '  %next = call i32 @"choose"(ptr %warp, ptr %block)',
            "  br label %go",
            "go:",
            f"  %chosen = phi i32 [%next, %dispatch], {also}",
            "  switch i32 %chosen, label %other [",
            *switch,
            *section.lines,
            "}",
        ]
    )


def _block(writer: Writer, block: CodeBlock, version: str) -> None:
    writer.begin(block, version)
    instructions = block.unit.function.instructions
    # Lanes execute an instruction at which they wait several times.
    first = instructions[block.start] if block.stop > block.start else None
    again = first is not None and stays(first)
    if not again:
        _count(writer, block.number)
    if block.returns_here:
        writer.index = block.start - 1
        writer.guarded(lambda: _after_call(writer, instructions[block.start - 1]))
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
    lanes = writer.mask if last is not None and last.guard is not None else ""
    writer.mask = "" if version == FULL else writer.active()
    if block.stop >= len(instructions) and not block.returns_here:
        end = Instruction("ret", (), (), None, last.line if last else 0, 0)
        ret(writer, end)
        return
    kind = synchronises(last) if last is not None and writer.mode.stepped else 0
    if kind:
        writer.end_turn(kind, lanes)
    else:
        writer.goto(block.number + 1)


def _after_call(writer: Writer, instruction: Instruction) -> None:
    """What lanes do that return from a call."""
    after_call(writer, instruction)
    writer.probes.returned(writer, instruction)


def _count(writer: Writer, number: int) -> None:
    place = writer.at("%counts", 8 * number)
    before = writer.value(f"load i64, ptr {place}")
    after = writer.value(f"add i64 {before}, 1")
    writer.line(f"store i64 {after}, ptr {place}")
    writer.probes.executed(writer, number)
