"""What went wrong in a kernel, in words?"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from fragmenta.errors import KernelFault, ranges
from fragmenta.ptx.arguments import Segment
from fragmenta.ptx.engine import layout
from fragmenta.ptx.engine.compiled import Compiled
from fragmenta.ptx.engine.context import Context, Shape, word
from fragmenta.ptx.engine.layout import LANES, Fault
from fragmenta.ptx.module import Instruction, Module


class Place(NamedTuple):
    """What was executed, and by whom."""

    module: Module
    compiled: Compiled
    shape: Shape
    segments: list[Segment]
    context: Context


def explain(place: Place) -> KernelFault:
    """The error for a block that failed."""
    warp = place.context.warp(place.context.fault_warp)
    kind = Fault(word(warp, layout.FAULT_KIND))
    site = word(warp, layout.FAULT_ID)
    lane = word(warp, layout.FAULT_LANE)
    size = word(warp, layout.FAULT_SIZE)
    address = word(warp, layout.FAULT_ADDRESS, np.uint64)
    number = word(warp, layout.WARP_NUMBER)
    function, index = place.compiled.places[site]
    instruction = place.module.functions[function].instructions[index]
    thread = place.shape.thread_at(number * LANES + lane)
    block = place.shape.block_at(place.context.index)
    what = _what(place, kind, site, instruction, address, size)
    who = f"thread {_tuple(thread)} of block {_tuple(block)}"
    return KernelFault(
        f"{what}\n  by {who}\n  at {where(place.module, instruction)}",
        kind.name.lower(),
        instruction.line,
        str(instruction.source or ""),
        block,
        thread,
    )


def where(module: Module, instruction: Instruction) -> str:
    """An instruction's place and text."""
    lines = module.text.splitlines()
    text = ""
    if 0 < instruction.line <= len(lines):
        text = lines[instruction.line - 1].strip()
    source = f", {instruction.source}" if instruction.source else ""
    name = module.name or "PTX"
    return f"{name} line {instruction.line}{source}: {text}"


def _tuple(numbers: tuple[int, int, int]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _what(
    place: Place, kind: Fault, site: int, instruction: Instruction, address: int,
    size: int,
) -> str:  # fmt: skip
    goal = _address(place, _space(instruction, size), address)
    name, verb, size = instruction.mnemonic, _verb(instruction, size), abs(size)
    match kind:
        case Fault.BOUNDS:
            return f"out of bounds: {name} {verb} {size} bytes {goal}"
        case Fault.ALIGNMENT:
            return (
                f"misaligned: {name} {verb} {size} bytes {goal}; the address "
                f"{address:#x} is not a multiple of {size}"
            )
        case Fault.READ_ONLY:
            return f"read-only: {name} {verb} {size} bytes {goal}"
        case Fault.TRAP:
            return "the kernel stopped itself with a trap"
        case Fault.UNSUPPORTED:
            why = place.compiled.refusals.get(str(site), "")
            return f"not supported: {name}" + (f": {why}" if why else "")
        case Fault.STACK:
            return (
                "the stack of a recursive function is full; launch(..., stack=) makes "
                "it larger"
            )
        case Fault.DEPTH:
            return f"calls are nested deeper than {layout.RETURNS}"
        case Fault.METADATA:
            return f"{name} was given metadata with an illegal code"
        case Fault.BARRIER:
            return f"there are barriers 0 to 15; {name} names barrier {address}"
        case Fault.INDEX:
            return f"{name} was given the index {address}, which is beyond its list"
        case Fault.HOST:
            return "an assertion in the kernel failed, or a call of the host did"
    return f"{kind.name.lower()}: {name}"


def _verb(instruction: Instruction, size: int) -> str:
    if instruction.opcode == "cp":
        return "reads" if size > 0 else "writes"
    if instruction.opcode in ("ld", "ldu", "ldmatrix"):
        return "reads"
    return "writes" if instruction.opcode in ("st", "stmatrix") else "accesses"


def _space(instruction: Instruction, size: int) -> str:
    """The state space of the address: ``shared``, ``local``, or generic."""
    words = instruction.qualifiers
    if instruction.opcode == "cp":  # it has two addresses
        return "generic" if size > 0 else "shared"
    if any(each.startswith("shared") for each in words):
        return "shared"
    return "local" if "local" in words else "generic"


def _address(place: Place, space: str, address: int) -> str:
    """Where an address is, seen from the nearest memory."""
    slot, offset = address >> layout.SLOT_BITS, address & (1 << layout.SLOT_BITS) - 1
    if space == "shared":
        return _in_shared(place, address)
    if space == "local":
        return f"at {_from(address, place.compiled.local)} local memory"
    for segment in place.segments:
        if segment.slot == slot:
            return f"at {_from(offset, segment.data.size)} {segment.name}"
        if segment.slot == slot + 1:  # below its start
            below = (1 << layout.SLOT_BITS) - offset
            if below < 1 << 32:
                return f"{below} bytes before the start of {segment.name}"
    if slot == layout.SHARED_SLOT:
        return _in_shared(place, offset)
    if slot == layout.LOCAL_SLOT:
        return f"at {_from(offset, place.compiled.local)} local memory"
    if slot == layout.PARAM_SLOT:
        return f"at byte {offset} of the parameters"
    if slot == 0:
        return f"at {address:#x}, {address} bytes from a null pointer"
    return (
        f"at {address:#x}, where nothing is; if this is the address of an array, give "
        "the array itself or ptx.pointer(array, offset)"
    )


def _in_shared(place: Place, address: int) -> str:
    if address >> layout.SLOT_BITS == layout.SHARED_SLOT:
        return f"at the generic address {address:#x}; cvta.to.shared converts it"
    whole = place.context.parts["shared"].size - layout.SHARED_START
    static = place.compiled.shared - layout.SHARED_START
    return (
        f"at {_from(address - layout.SHARED_START, whole)} shared memory ({static} "
        f"bytes static, {whole - static} dynamic)"
    )


def _from(offset: int, size: int) -> str:
    if offset < 0:
        return f"{-offset} bytes before the start of"
    if offset >= size:
        return f"{offset - size} bytes behind the end ({size} bytes) of"
    return f"byte {offset} of {size} of"


def stuck(place: Place) -> KernelFault:
    """The error for a block whose warps all wait."""
    block = place.shape.block_at(place.context.index)
    about = f"deadlock: every warp of block {_tuple(block)} waits"
    return _listed(place, about, "deadlock")


def endless(place: Place, limit: int) -> KernelFault:
    """The error for a kernel that executed too many instructions."""
    block = place.shape.block_at(place.context.index)
    about = (
        f"the kernel executed more than limit={limit:,} warp instructions; if it does "
        "not run forever, give a larger limit"
    )
    if _lanes(place):
        about += f".  Block {_tuple(block)} is here:"
    return _listed(place, about, "limit")


def _listed(place: Place, about: str, kind: str) -> KernelFault:
    """An error that says where all lanes of the block are."""
    lines, first = [], None
    for (function, index), who in _lanes(place).items():
        instruction = place.module.functions[function].instructions[index]
        first = first or instruction
        lines.append(f"  {_short(who)}\n    at {where(place.module, instruction)}")
    return KernelFault(
        "\n".join([about, *lines]),
        kind,
        first.line if first else 0,
        str(first.source or "") if first else "",
        place.shape.block_at(place.context.index),
    )


def _lanes(place: Place) -> dict[tuple[str, int], list[str]]:
    """The lanes of each warp that have not ended, by what they execute next."""
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    for number in range(place.shape.warps):
        warp = place.context.warp(number)
        live = word(warp, layout.LIVE, np.uint32)
        pcs = warp[layout.PC : layout.PC + 4 * LANES].view(np.int32)
        for pc in sorted({int(pcs[lane]) for lane in range(LANES) if live >> lane & 1}):
            lanes = [i for i in range(LANES) if live >> i & 1 and pcs[i] == pc]
            function, index = place.compiled.waits[pc]
            found[function, index].append(f"warp {number} lanes {ranges(lanes)}")
    return found


def _short(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return "; ".join(names[:4]) + more
