"""The instructions that a kernel needs around a ``tcgen05.mma``."""

from __future__ import annotations

from fragmenta.cuda.source.access import summand
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.shared.elements import stored
from fragmenta.reference.shared.operands import major_of
from fragmenta.reference.shared.tiles import default_swizzle
from fragmenta.reference.tensor_memory.scales import scale_copy

STEPS = 4
"""Multiplications between two waits: 128 bytes of each row of A."""
WIDEST = 32
"""Columns that one load takes, at most: registers are few."""


def around(op: Instruction, *, a_tensor: bool = False) -> dict[str, Instruction]:
    """The other instructions of a kernel, by what they do there.

    >>> import fragmenta as fm
    >>> found = around(fm.tcgen05("m128n48k16", a="f16", d="f32"))
    >>> print(found["load"])
    tcgen05.ld.sync.aligned.32x32b.x16.b32
    """
    group = f"cta_group::{op.cta_group}"
    many = ".multicast::cluster" if op.cta_group == 2 else ""
    names = {
        "alloc": f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32",
        "relinquish": f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned",
        "dealloc": f"tcgen05.dealloc.{group}.sync.aligned.b32",
        "commit": f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
        f"{many}.b64",
        "before": "tcgen05.fence::before_thread_sync",
        "after": "tcgen05.fence::after_thread_sync",
        "proxy": "fence.proxy.async",
        "load": f"tcgen05.ld.sync.aligned.32x32b.{_times(op.d.registers)}.b32",
        "wait": "tcgen05.wait::ld.sync.aligned",
    }
    for name in ["A"] * a_tensor + ["metadata"] * ("metadata" in op.fragments):
        count = STEPS * op.fragments[name].registers
        names[name] = f"tcgen05.st.sync.aligned.32x32b.x{count}.b32"
        names["wait_store"] = "tcgen05.wait::st.sync.aligned"
    found = {name: instruction(text) for name, text in names.items()}
    for name in op.fragments:
        if name.startswith("scale"):
            found[name] = scale_copy(op, name)
    return found


def _times(columns: int) -> str:
    """The repetitions of a load of one column: a power of two."""
    return f"x{min(WIDEST, columns & -columns)}"


def lane_of(move: Instruction) -> str:
    """As C: the lane of a register, from the first one that the warp reaches."""
    return summand(move.fragments["R"].layout, "row")


def column_of(move: Instruction) -> str:
    """As C: the column of a register, from that of the address."""
    return summand(move.fragments["R"].layout, "col")


def stored_bits(op: Instruction, operand: str) -> int:
    """Bits of an element in memory: a byte if shared memory has padding for it."""
    major = major_of(op, operand)
    swizzle = default_swizzle(op, operand, major)
    return stored(op.types[operand.lower()], major, "tcgen05", swizzle, op.kind).bits


def packing(op: Instruction, operand: str) -> str:
    """How elements narrower than a byte lie in global memory, in words."""
    of = op.types[operand.lower()]
    if of.bits >= 8:
        return ""
    if stored_bits(op, operand) == 8:
        return ", one element in the low bits of each byte"
    return ", two elements to a byte"
