"""How does compiled code tell the watching of an access?

Before a load, a store or an atomic operation, a watched kernel calls the routines that
compare it with the accesses before it.  Accesses through which threads may synchronise
are events, too.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from fragmenta.isa.tables.moves import ROW_BYTES
from fragmenta.ptx.engine import layout
from fragmenta.ptx.engine.events import described, tell
from fragmenta.ptx.engine.library import Routine, as_signed
from fragmenta.ptx.engine.memory import Access
from fragmenta.ptx.engine.program import Program
from fragmenta.ptx.engine.writing import Writer, Written
from fragmenta.ptx.module import Address, Function, Instruction
from fragmenta.ptx.watching.banks import counted_banks
from fragmenta.ptx.watching.global_memory import GLOBAL_SUPPORT, watched_global
from fragmenta.ptx.watching.roles import orders, role, synchronises
from fragmenta.ptx.watching.shadow import SUPPORT, watched

_STRONG = frozenset({"relaxed", "volatile", "mmio", "acquire", "release", "acq_rel"})
_ORDERED: WeakKeyDictionary[Program, bool] = WeakKeyDictionary()
_SYNCHRONISING: dict[int, tuple[Function, set[int]]] = {}


def access(
    writer: Writer, instruction: Instruction, what: Access, at: Written, offset: int,
    registers: list[str], kind: str, lanes: str = "", banks: bool = True,
) -> None:  # fmt: skip
    """Write the checks of an access; ``kind`` is read, write or atomic.

    ``banks`` says whether its passes through shared memory are counted.
    """
    if not writer.mode.watch or what.space == "local":
        return
    words = set(instruction.qualifiers)
    if "nc" in words or "param" in words or "const" in words:
        return
    if kind != "atomic" and words & _STRONG:
        kind = f"strong {kind}"
    given = (
        "ptr %warp", "ptr %block", f"ptr {at.pointer}", f"i64 {offset}",
        f"i32 {lanes or writer.lanes()}", f"i32 {writer.site()}",
    )  # fmt: skip
    # A store is compared with what is there; the registers of others are not read.
    places = [f"ptr {each}" for each in registers if kind.endswith("write")]
    _synchronises(writer, instruction)
    if what.space == "global":
        cta = "cta" in words
        _link(writer, GLOBAL_SUPPORT)
        made = watched_global(what, kind.replace(" ", "-"), cta=cta)  # type: ignore[arg-type]
        writer.call(made, *given, *places)
        if "global" in words:
            return
        _in_window(writer, what, at, offset, given, places, kind)
        return
    near = what._replace(space="shared")
    _link(writer, SUPPORT)
    writer.call(watched(near, kind), *given, *places)
    if banks and kind in ("read", "write") and what.space == "shared":
        writer.call(counted_banks(near), *given)


def _link(writer: Writer, support: tuple[Routine, ...]) -> None:
    """The checks call some routines themselves."""
    writer.routines.update({each.name: each for each in support})


def _in_window(
    writer: Writer, what: Access, at: Written, offset: int, given: tuple[str, ...],
    places: list[str], kind: str,
) -> None:  # fmt: skip
    """Generic addresses may be in shared memory: those without the window are checked.

    Others are far outside of it then, and left out.
    """
    near = what._replace(space="shared")
    _link(writer, SUPPORT)
    moved = list(given)
    moved[3] = f"i64 {as_signed(offset - layout.SHARED_WINDOW, 64)}"
    writer.call(watched(near, kind), *moved, *places)


def _synchronises(writer: Writer, instruction: Instruction) -> None:
    """An event, if threads may synchronise through this access."""
    if writer.index not in _numbers(writer):
        return
    found = role(instruction)
    address = next((o for o in instruction.operands if isinstance(o, Address)), None)
    if found is None or address is None:
        return
    generic = "" if any(w.startswith("shared") for w in instruction.qualifiers) else "g"
    words = ["location", *(str(int(each)) for each in found), generic]
    tell(writer, words, [described(writer, address)])


def _numbers(writer: Writer) -> set[int]:
    program = writer.program
    if program not in _ORDERED:
        every = [unit.function for unit in program.units.values()]
        _ORDERED[program] = orders(every)
    if not _ORDERED[program]:
        return set()
    function = writer.unit.function
    known = _SYNCHRONISING.get(id(function))
    if known is None or known[0] is not function:
        known = function, synchronises(function, True)
        _SYNCHRONISING[id(function)] = known
    return known[1]


def copies(
    writer: Writer, size: int, to: Written, to_offset: int, of: Written, of_offset: int,
    used: str,
) -> None:  # fmt: skip
    """Write the checks of ``cp.async``: it reads global and writes shared memory."""
    if not writer.mode.watch:
        return
    _link(writer, SUPPORT)
    _link(writer, GLOBAL_SUPPORT)
    site, lanes = f"i32 {writer.site()}", writer.lanes()
    there = Access("shared", 32, 32, size // 4, address=to.bits)
    writer.call(
        watched(there, "cp.async"), "ptr %warp", "ptr %block", f"ptr {to.pointer}",
        f"i64 {to_offset}", f"i32 {lanes}", site,
    )  # fmt: skip
    here = Access("global", 32, 32, size // 4, address=of.bits)
    reading = writer.value(f"and i32 {lanes}, {used}")
    writer.call(
        watched_global(here, "read"), "ptr %warp", "ptr %block", f"ptr {of.pointer}",
        f"i64 {of_offset}", f"i32 {reading}", site,
    )  # fmt: skip


def rows(
    writer: Writer, instruction: Instruction, at: Written, offset: int, used: int,
    stores: bool, values: str, width: int,
) -> None:  # fmt: skip
    """Write the checks of ``ldmatrix`` or ``stmatrix``: rows of ``width`` bytes.

    ``values`` is where the rows are that are stored, side by side.
    """
    what = Access("shared", 8 * width, 8 * width, address=at.bits)
    chosen = writer.value(f"and i32 {writer.lanes()}, {_signed((1 << used) - 1)}")
    given = (
        "ptr %warp", "ptr %block", f"ptr {at.pointer}", f"i64 {offset}",
        f"i32 {chosen}", f"i32 {writer.site()}",
    )  # fmt: skip
    _link(writer, SUPPORT)
    if stores:
        writer.call(watched(what, "write"), *given, f"ptr {values}")
    else:
        writer.call(watched(what, "read"), *given)
    if width == ROW_BYTES:  # nobody said which rows of 8 bytes one pass takes
        words = what._replace(bits=32, register=32, elements=width // 4)
        writer.call(counted_banks(words), *given)


def _signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number
