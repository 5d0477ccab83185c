"""The messages of a kernel that failed: what happened, where, and to which thread."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from fragmenta.engine.simt import layout, naming
from fragmenta.engine.simt.arguments import Segment
from fragmenta.engine.simt.compiled import Compiled
from fragmenta.engine.simt.context import Context, Grid, word
from fragmenta.engine.simt.layout import LANES, Fault
from fragmenta.engine.simt.naming import KernelNames, counted, illegal_code
from fragmenta.errors import KernelFault, ranges
from fragmenta.launch.limits import how_to_raise
from fragmenta.ptx import families, rules
from fragmenta.ptx.barrier_places import is_block_barrier
from fragmenta.ptx.module import Instruction, Module, Special, demangled, type_bytes
from fragmenta.ptx.placement import reachable
from fragmenta.ptx.rules import Rule

if TYPE_CHECKING:
    from fragmenta.engine.units.blocks import Block
    from fragmenta.engine.units.clusters import Cluster
    from fragmenta.engine.units.mbarrier_state import Mbarrier
    from fragmenta.launch.spinning import Spun


ORDERS = (
    'launch(..., orders="all"), or the command "fragmenta orders", says who would '
    "have to write it"
)
"""What tells more about words that threads spin on."""


class FaultContext(NamedTuple):
    """What was executed, and in which block."""

    module: Module
    compiled: Compiled
    shape: Grid
    segments: list[Segment]
    context: Context
    parameters: int
    """The bytes of the kernel's parameters."""
    written: Callable[[int], tuple[int, str]] = lambda _: (-1, "")
    """Who wrote a word of global memory last: the instruction, and words for it."""


def explain(place: FaultContext, why: str = "") -> KernelFault:
    """The error for a block that failed; ``why`` is the reason, if it is known."""
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
    gone = _ended(place, kind, address)
    what = why or gone or _what(place, kind, site, instruction, address, size)
    who = f"thread {_tuple(thread)} of block {_tuple(block)}"
    hint = _no_workspace(place, kind, address)
    made = KernelFault(
        f"{what}\n  by {who}\n  at {place.module.where(instruction)}{hint}",
        rules.UNSUPPORTED.name
        if why
        else rules.SHARED_RACE.name
        if gone
        else kind.name.lower(),
        instruction.line,
        str(instruction.source or ""),
        block,
        thread,
    )
    made.place = instruction.source
    return made


_WORKSPACE = frozenset({"%envreg1", "%envreg2"})


def _no_workspace(place: FaultContext, kind: Fault, address: int) -> str:
    """A hint, if a kernel reads the workspace that only a cooperative grid has."""
    null = kind == Fault.BOUNDS and address < layout.FIRST_SLOT
    if kind != Fault.TRAP and not null:
        return ""
    if any(each.slot == layout.WORKSPACE_SLOT for each in place.segments):
        return ""
    module = place.module
    reads = any(
        isinstance(operand, Special) and operand.name in _WORKSPACE
        for name in reachable(module, module.functions[place.compiled.kernel])
        for instruction in module.functions[name].instructions
        for operand in instruction.operands
    )
    if not reads:
        return ""
    return (
        f"\n  {demangled(place.compiled.kernel)} reads %envreg1 and %envreg2, "
        "where a cooperative grid has the\n  address of its workspace: grid.sync() "
        "needs launch(..., cooperative=True)"
    )


def _ended(place: FaultContext, kind: Fault, address: int) -> str:
    """The message for an access to the memory of a block that has ended."""
    slot = address >> layout.SLOT_BITS
    rank = address >> layout.RANK_BITS & 0xFF
    if kind != Fault.BOUNDS or slot not in (0, layout.SHARED_SLOT):
        return ""
    if rank >= place.shape.cluster_blocks or place.shape.cluster_blocks == 1:
        return ""
    if place.context.peers[rank, 1]:
        return ""
    return (
        f"an access to the shared memory of block {rank} of the cluster, whose threads "
        "have all ended; a barrier of the cluster at the end would keep them"
    )


def stopped(place: FaultContext, rule: Rule, what: str) -> KernelFault:
    """The error for an event that could not be carried out."""
    fault = explain(place, what)
    fault.kind = rule.name
    return fault


def _tuple(numbers: tuple[int, int, int]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _what(
    place: FaultContext,
    kind: Fault,
    site: int,
    instruction: Instruction,
    address: int,
    size: int,
) -> str:
    goal = _address(place, _space(instruction, size), address)
    name, verb, size = instruction.mnemonic, _verb(instruction, size), abs(size)
    match kind:
        case Fault.BOUNDS:
            return f"out of bounds: {name} {verb} {size} bytes{goal}"
        case Fault.ALIGNMENT:
            return (
                f"misaligned: {name} {verb} {size} bytes{goal}; the address, "
                f"{address:#x}, is not a multiple of {size}"
            )
        case Fault.READ_ONLY:
            return f"read-only: {name} {verb} {size} bytes{goal}"
        case Fault.TRAP:
            return "the kernel stopped itself with a trap"
        case Fault.UNSUPPORTED:
            why = place.compiled.refusals.get(str(site), "")
            why = why.removeprefix(f"{name} is not supported")
            return f"not supported: {name}" + (f": {why}" if why else "")
        case Fault.STACK:
            return (
                "the stack of a recursive function is full; "
                "launch(..., limits=Limits(stack=)) makes it larger"
            )
        case Fault.DEPTH:
            return f"calls are nested deeper than {layout.RETURNS}"
        case Fault.METADATA:
            return f"{name} was given illegal metadata: {_metadata(place, name)}"
        case Fault.BARRIER:
            return f"there are barriers 0 to 15; {name} names barrier {address}"
        case Fault.INDEX:
            return f"{name} was given the index {address}, which is beyond its list"
        case Fault.HOST:
            return "an assertion in the kernel failed, or a call of the host did"
    return f"{kind.name.lower()}: {name}"


def _metadata(place: FaultContext, mnemonic: str) -> str:
    """The lane, the code and the row of the first illegal code of a product."""
    # It takes a while to import, and only wrong kernels need it.
    from fragmenta.engine.simt.matrices import STAGE
    from fragmenta.reference.isa.reading import instruction

    stage = place.context.parts["stage"]
    words = stage[STAGE["extra"] :][: 4 * LANES].view(np.uint32)
    selector = int(stage[STAGE["selectors"] :][:8].view(np.int64)[0])
    return illegal_code(instruction(mnemonic), words, selector)


def _verb(instruction: Instruction, size: int) -> str:
    if instruction.is_copy:
        return "reads" if size > 0 else "writes"
    if instruction.opcode in families.LOADS | families.ROW_LOADS:
        return "reads"
    stores = families.STORES | families.REDUCTIONS | families.ROW_STORES
    return "writes" if instruction.opcode in stores else "accesses"


def _space(instruction: Instruction, size: int) -> str:
    """The state space of the address: ``shared``, ``local``, or generic."""
    words = instruction.qualifiers
    if instruction.is_copy:  # it has two addresses
        return "generic" if size > 0 else "shared"
    if any(each.startswith("shared") for each in words):
        return "shared"
    return "local" if "local" in words else "generic"


def _address(place: FaultContext, space: str, address: int) -> str:
    """Where an address is, relative to the nearest memory."""
    context = place.context
    shared = context.parts["shared"].size - layout.SHARED_START
    local = context.parts["local"].size // (place.shape.warps * LANES)
    signed = address - (1 << 64) if address >> 63 else address
    if space == "shared" and address >> layout.SLOT_BITS == layout.SHARED_SLOT:
        return f" at the generic address {address:#x}; cvta.to.shared converts it"
    if space == "shared" and signed < layout.FIRST_SLOT:
        return _in_shared(place, signed - layout.SHARED_START)
    if space == "local":
        return _from(signed, local, "local memory")
    known = [(each.address, each.data.size, each.name) for each in place.segments]
    known += [
        (layout.SHARED_WINDOW + layout.SHARED_START, shared, "shared memory"),
        (layout.LOCAL_WINDOW, local, "local memory"),
        (layout.PARAM_WINDOW, place.parameters, "the parameters"),
    ]
    start, size, name = min(
        known, key=lambda each: max(each[0] - address, address - each[0] - each[1])
    )
    if name == "shared memory" and abs(address - start) < 1 << (layout.SLOT_BITS - 1):
        return _in_shared(place, address - start)
    if abs(address - start) < 1 << (layout.SLOT_BITS - 1):
        return _from(address - start, size, name)
    if address < layout.FIRST_SLOT:
        return f" at {address:#x}, {address} bytes past a null pointer"
    return f" at {address:#x}{NOTHING_THERE}"


NOTHING_THERE = (
    ", where nothing is; if this is the address of an array, give the array itself or "
    "ptx.pointer(array, offset)"
)
_NOWHERE = re.compile(rf" at 0x([0-9a-f]+){re.escape(NOTHING_THERE)}")


def with_freed(text: str, freed: Callable[[int], str]) -> str:
    """The message of a program's kernel, which has no arrays to give.

    ``freed`` says what was at an address before it was freed, if anything was.

    >>> with_freed(f"it reads 4 bytes at 0x10{NOTHING_THERE}", lambda _: "")
    'it reads 4 bytes at 0x10, where nothing is allocated'
    >>> with_freed(f"it reads 4 bytes at 0x10{NOTHING_THERE}", lambda _: "allocation 0")
    'it reads 4 bytes at 0x10, which was freed: allocation 0'
    """

    def said(found: re.Match[str]) -> str:
        was = freed(int(found[1], 16))
        there = f", which was freed: {was}" if was else ", where nothing is allocated"
        return f" at 0x{found[1]}{there}"

    return _NOWHERE.sub(said, text)


def _in_shared(place: FaultContext, offset: int) -> str:
    whole = place.context.parts["shared"].size - layout.SHARED_START
    static = place.compiled.shared - layout.SHARED_START
    parts = f" ({static} static, {whole - static} dynamic)"
    if 1 << 31 <= offset < 1 << 32:  # an address of 32 bits below zero
        offset -= 1 << 32
    return _from(offset, whole, "shared memory") + parts


def _from(offset: int, size: int, name: str) -> str:
    if offset < 0:
        return f", {-offset} bytes before the start of {name}"
    if offset >= size:
        past = f"{offset - size} bytes past the end of {name}"
        return f", {past}, which has {size} bytes{_wrapped(offset)}"
    return f" at byte {offset} of {name}, which has {size} bytes"


def _wrapped(offset: int) -> str:
    """A hint, if an index below 0 was taken for a large one of 32 bits."""
    for size in (1, 2, 4, 8, 16):
        below = (size << 32) - offset
        if 0 < below <= size << 20 and below % size == 0:
            return f"; the index may be {-below // size}, as an unsigned number"
    return ""


def stuck(place: FaultContext, cluster: Cluster | None = None) -> KernelFault:
    """The error for a block whose warps all wait."""
    block = place.shape.block_at(place.context.index)
    about = f"deadlock: every warp of block {_tuple(block)} waits"
    if cluster is not None:
        for each in cluster.blocks:
            about += _allocations(place, cluster, each)
            for found in each.mbarriers.values():
                about += _mbarrier(place, each, found)
    made = _listed(place, about, rules.DEADLOCK.name)
    made.hint = _stuck_hint(made.message)
    return made


def _stuck_hint(message: str) -> str:
    """What to look at, if every warp waits at barriers."""
    if "mbarrier" not in message:
        return rules.DEADLOCK.fatal
    if "were over before" in message:
        return rules.OVERTAKEN
    asked = re.search(r"did you mean parity (\d)\?", message)
    return (
        rules.OTHER_PARITY.format(asked[1], 1 - int(asked[1]))
        if asked
        else rules.UNBALANCED
    )


def _allocations(place: FaultContext, cluster: Cluster, block: Block) -> str:
    """Who waits for tensor memory, and why it does not come."""
    about = ""
    if block.tensor is None:
        return about
    of = f"block {_tuple(place.shape.block_at(block.index))}"
    asked = cluster.requests
    for number, columns in block.tensor.waiting.items():
        about += f"\n  warp {number} of {of} waits for tcgen05.alloc"
        if block.rank in asked and block.rank ^ 1 not in asked:
            peer = cluster.blocks[block.rank ^ 1]
            about += (
                ".cta_group::2: a warp of both CTAs of the pair has to execute it, and "
                f"none of block {_tuple(place.shape.block_at(peer.index))} has"
            )
            continue
        taken = int(block.tensor.allocated.sum())
        about += (
            f" of {columns} columns: {taken} of the {block.tensor.allocated.size} "
            "columns are allocated, and nobody frees them"
        )
    return about


def _mbarrier(place: FaultContext, block: Block, mbarrier: Mbarrier) -> str:
    """Who waits for an mbarrier, and what it waits for."""
    if not mbarrier.waiting:
        return ""
    one = len(mbarrier.waiting) == 1
    who = f"warp{'s' * (not one)} {ranges(sorted(mbarrier.waiting))}"
    of = f" of block {_tuple(place.shape.block_at(block.index))}"
    phase = next(iter(mbarrier.waiting.values()))
    name = KernelNames(place.module, place.compiled).with_mbarriers(str(mbarrier))
    missing = f", which {_missing(mbarrier)}{_made(place, mbarrier, phase)}"
    why = _overtaken(mbarrier) or missing + _skipped(mbarrier)
    return (
        f"\n  {who}{of} wait{'s' * one} for phase {phase} (parity {phase & 1}) of "
        f"{name}{why}"
    )


def _overtaken(mbarrier: Mbarrier) -> str:
    """That warps came too late for the phase that they meant, if they did.

    A wait by parity is for the present phase or the one before it.  Who has seen one
    phase waits for the next; if that and the one after it are over, the present phase
    may have its parity.
    """
    last = {mbarrier.seen(each) for each in mbarrier.waiting}
    phase = next(iter(mbarrier.waiting.values()))
    if len(last) != 1:
        return ""
    meant = last.pop() + 1
    if meant >= phase or (phase - meant) % 2:
        return ""
    they = "it" if len(mbarrier.waiting) == 1 else "they"
    return (
        f": phases {meant} and {meant + 1} were over before {they} waited for phase "
        f"{meant}, which has the same parity"
    )


def _skipped(mbarrier: Mbarrier) -> str:
    """That warps never waited for the phase before, whose parity is the other one."""
    last = {mbarrier.seen(each) for each in mbarrier.waiting}
    phase = next(iter(mbarrier.waiting.values()))
    begun = mbarrier.pending != mbarrier.expected or mbarrier.bytes
    if begun or last != {phase - 2}:
        return ""
    they = "it has" if len(mbarrier.waiting) == 1 else "they have"
    return (
        f"; phase {phase - 1} is over, and {they} not waited for it: did you mean "
        f"parity {1 - (phase & 1)}?"
    )


def _made(place: FaultContext, mbarrier: Mbarrier, phase: int) -> str:
    """What is known about the making of an mbarrier that somebody waits for."""
    about, site = "", mbarrier.birth[3]
    come = mbarrier.expected - mbarrier.pending
    if site >= 0 and come and mbarrier.pending:
        where = KernelNames(place.module, place.compiled).place(site)
        about = (
            f" ({come} came): its mbarrier.init at {where} gave it a count of "
            f"{mbarrier.expected}"
        )
    if phase == mbarrier.phase == 0 and not come and not mbarrier.bytes:
        about += "; nobody has arrived, and a new mbarrier passes a wait for parity 1"
    return about


def _missing(mbarrier: Mbarrier) -> str:
    """What an mbarrier still waits for."""
    left = [
        counted(count, what)
        for count, what in ((mbarrier.pending, "arrival"), (mbarrier.bytes, "byte"))
        if count > 0
    ]
    said = [f"still expects {' and '.join(left)}"] if left else []
    if mbarrier.bytes < 0:
        said.append(f"got {counted(-mbarrier.bytes, 'byte')} more than were expected")
    return " and ".join(said)


def over_limit(limit: int) -> str:
    """Says that a kernel executed too many instructions."""
    return (
        f"the kernel executed more than {limit:,} warp instructions; it may run "
        f"forever{how_to_raise('instructions')}"
    )


def endless(places: list[FaultContext], limit: int) -> KernelFault:
    """The error for a kernel that executed too many instructions."""
    return with_places(KernelFault(over_limit(limit), "limit"), places)


def standstill(
    places: list[FaultContext], ended: int = 0, later: int = 0
) -> KernelFault:
    """The error for blocks all of whose threads spin on words, or wait.

    ``ended`` blocks are over, and ``later`` ones have not begun: others are in the way.
    """
    place, *others = places
    block = place.shape.block_at(place.context.index)
    about = f"deadlock: every warp of block {_tuple(block)} spins or waits"
    if others:
        about += f", and so do those of {counted(len(others), 'other block')}"
    if ended:
        about += f"; {counted(ended, 'block')} {_has(ended)} ended"
    spins = any(spun_words(each) for each in places)
    about += f"; {'nobody is left to change the word' if spins else 'nothing changes'}"
    if later:
        about += (
            f"\n  {counted(later, 'block')} of the grid {_has(later)} not begun: "
            f"{len(places):,} wait, and no more run at a time"
        )
    made = _listed(place, about, rules.DEADLOCK.name)
    if spins:
        made.hint = f"Nobody who is left can change the word. {rules.NOBODY_WRITES}"
    elif not any(map(_waits, places)):
        made.hint = rules.NO_END
    if later:
        made.hint = rules.DOES_NOT_FIT
    return made


def _waits(place: FaultContext) -> bool:
    """Whether a thread of a block waits for others at a barrier, or for lanes."""
    functions = place.module.functions
    found = (functions[name].instructions[index] for name, index in _lanes(place))
    return any(e.is_barrier or e.is_mbarrier or "sync" in e.qualifiers for e in found)


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


Ended = TypeVar("Ended", bound=KernelFault)


def with_places(fault: Ended, places: list[FaultContext]) -> Ended:
    """The error for a launch that a limit ended: where the threads of a block are.

    That is a block that spins, if one does.
    """
    spinning = (each for each in places if spun_words(each))
    chosen = next(spinning, places[0] if places else None)
    if chosen is None:
        return fault
    about = fault.message
    if _lanes(chosen):
        block = chosen.shape.block_at(chosen.context.index)
        about += f"\n  block {_tuple(block)} is here:"
    made = _listed(chosen, about, "limit")
    fault.args = (made.message, fault.kind, *made.args[2:])
    fault.line, fault.source = made.line, made.source
    fault.block, fault.place = made.block, made.place
    return fault


def spun_words(place: FaultContext) -> list[str]:
    """Which threads of a block spin, on which words, and where."""
    block, said = _tuple(place.shape.block_at(place.context.index)), []
    for (function, index), found in _lanes(place).items():
        instruction = place.module.functions[function].instructions[index]
        for words in _spun(place, function, index, found)[:1]:
            who = _short([f"warp {w} lanes {ranges(n)}" for w, n in found])
            where = " ".join(place.module.where(instruction).rstrip(";").split())
            said.append(
                f"{who} of block {block} {'is' if len(found) == 1 else 'are'} "
                f"{words.strip()}, at {where}"
            )
    return said


def _listed(place: FaultContext, about: str, kind: str) -> KernelFault:
    """An error that says where all lanes of the block are."""
    lines, first = [], None
    for (function, index), found in _lanes(place).items():
        who = [f"warp {warp} lanes {ranges(lanes)}" for warp, lanes in found]
        instruction = place.module.functions[function].instructions[index]
        first = first or instruction
        lines.append(f"  {_short(who)}\n    at {place.module.where(instruction)}")
        if kind == "limit" or "spins" in about:
            lines += _spun(place, function, index, found)
        if kind == rules.DEADLOCK.name and "aligned" in instruction.qualifiers:
            lines += _divided(place, instruction, who)
    if kind == rules.DEADLOCK.name:
        lines += _apart(place)
    if any(each.startswith("    spinning") for each in lines):
        lines.append(f"  {ORDERS}")
    made = KernelFault(
        "\n".join([about, *lines]),
        kind,
        first.line if first else 0,
        str(first.source or "") if first else "",
        place.shape.block_at(place.context.index),
    )
    made.place = first.source if first else None
    return made


def _apart(place: FaultContext) -> list[str]:
    """The barriers that some warps wait at and others do not come to."""
    at: dict[str, set[int]] = defaultdict(set)
    live: set[int] = set()
    for (function, index), found in _lanes(place).items():
        instruction = place.module.functions[function].instructions[index]
        numbers = {number for number, _ in found}
        live |= numbers
        if is_block_barrier(instruction):
            at[naming.place(instruction)] |= numbers
    lines = []
    for where, some in at.items():
        others = sorted(live - some)
        if others:
            plural = "s" * (len(others) > 1)
            does = "do" if plural else "does"
            lines.append(
                f"  warp{plural} {ranges(others)} {does} not come to the barrier of "
                f"{where}"
            )
    return lines


def _spun(
    place: FaultContext, function: str, index: int, who: list[tuple[int, list[int]]]
) -> list[str]:
    """Which word lanes spin on, if they do, and what is known about it."""
    from fragmenta.launch.spinning import Spinning

    number, lanes = who[0]
    functions = place.module.functions
    names = (name for name, _ in place.compiled.waits if functions[name].kernel)
    loops = Spinning(place.module, next(names))
    found = loops.found(place.context.warp(number), function, index, lanes)
    if found is None:
        return []
    where = _address(place, _space(found.instruction, 0), found.address).strip()
    others = ", and others on other words" if found.several else ""
    line = place.module.functions[function].instructions[index].line
    also = (
        f" (PTX line {found.instruction.line})"
        if found.instruction.line != line
        else ""
    )
    return [
        f"    spinning on the word {where}{others}{also}",
        *_holds(place, found),
    ]


def _holds(place: FaultContext, found: Spun) -> list[str]:
    """Who wrote a word of global memory last, and what it holds."""
    slot, offset = found.address >> layout.SLOT_BITS, found.address & _OFFSET
    space = next((each for each in place.segments if each.slot == slot), None)
    if space is None or _space(found.instruction, 0) != "generic":
        return []
    size = type_bytes(found.instruction.qualifiers[-1])
    value = int.from_bytes(space.data[offset : offset + size].tobytes(), "little")
    site, who = place.written(found.address)
    if site < 0:
        last = "which no thread wrote" if who else ""
    elif (
        tuple(place.compiled.places[site]) == found.at and not found.instruction.is_load
    ):
        last = ""  # an attempt in vain counts as a write
    else:
        last = f"written last by {who}"
    held = f"    it holds {value}{', ' if last else ''}{last}"
    return [held, *_missing_arrivals(place, found, value)]


def _missing_arrivals(place: FaultContext, found: Spun, value: int) -> list[str]:
    """What a word has to become, and how many arrivals at it are missing."""
    if found.address >> layout.SLOT_BITS == layout.WORKSPACE_SLOT:
        # Bit 31 changes when all have come: block 0 adds the rest, others one each.
        blocks = place.shape.blocks
        come = blocks - (-value & 0x7FFFFFFF)
        return [f"    {come} of {counted(blocks, 'block')} came to grid.sync()"]
    if found.until is None:
        return []
    compare, limit = found.until
    line = f"    the loop ends if it is {naming.COMPARED[compare]} {limit}"
    wanted = limit + (compare == "gt")
    if compare in ("eq", "ge", "gt") and found.counts and value != wanted:
        came = f"{value} of {counted(wanted, 'arrival')} came"
        if value > wanted:
            came = f"{counted(value, 'arrival')} came, {value - wanted} too many"
        line += f": {came}"
    return [line]


_OFFSET = (1 << layout.SLOT_BITS) - 1


def _lanes(place: FaultContext) -> dict[tuple[str, int], list[tuple[int, list[int]]]]:
    """The lanes of each warp that have not ended, by what they execute next."""
    found: dict[tuple[str, int], list[tuple[int, list[int]]]] = defaultdict(list)
    for number in range(place.shape.warps):
        warp = place.context.warp(number)
        live = word(warp, layout.LIVE, np.uint32)
        pcs = warp[layout.PC : layout.PC + 4 * LANES].view(np.int32)
        for pc in sorted({int(pcs[lane]) for lane in range(LANES) if live >> lane & 1}):
            lanes = [i for i in range(LANES) if live >> i & 1 and pcs[i] == pc]
            function, index = place.compiled.waits[pc]
            found[function, index].append((number, lanes))
    return found


def _divided(
    place: FaultContext, instruction: Instruction, who: list[str]
) -> list[str]:
    """What is missing where only some lanes of a warp execute an instruction."""
    for number in range(place.shape.warps):
        live = word(place.context.warp(number), layout.LIVE, np.uint32)
        every = ranges([lane for lane in range(LANES) if live >> lane & 1])
        named = [each for each in who if each.startswith(f"warp {number} ")]
        if named and named[0] != f"warp {number} lanes {every}":
            aligned = f"    {instruction.mnemonic} is .aligned"
            return [f"{aligned}: all lanes of warp {number} have to execute it"]
    return []


def _short(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return "; ".join(names[:4]) + more
