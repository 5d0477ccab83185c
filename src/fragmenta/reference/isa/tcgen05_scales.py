"""Rules for a ``tcgen05.mma`` that need its mnemonic and its descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.errors import UnknownInstruction, nearest, one_of
from fragmenta.reference.isa.tcgen05_shapes import WIDE_K

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction


def scales_of(op: Instruction, text: str) -> int:
    """Scales per row of A of a ``tcgen05.mma``; a size may be left out or renamed."""
    vectors = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 4 if "16" in text else 2}
    if op.kind not in vectors:
        return 0
    found = vectors[op.kind]
    if text.startswith("scale_vec::"):
        found = int(text.removeprefix("scale_vec::").rstrip("X"))
    wide = op.idesc is not None and op.shape.k == WIDE_K
    return found * 3 // 2 if wide else found


def check_scales(op: Instruction) -> None:
    """Refuse scales of a type that the mnemonic does not take.

    >>> import fragmenta as fm
    >>> fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4", scale="ue4m3", scale_vec=2)
    Traceback (most recent call last):
    fragmenta.errors.UnknownInstruction: scales of ue4m3 cover 16 elements each: they \
need .scale_vec::4X or .block16
    """
    vector = op.scale_vec if op.shape.k != WIDE_K else op.scale_vec * 2 // 3
    if op.values.get("stype") == "ue4m3" and vector != 4:
        raise UnknownInstruction(
            "scales of ue4m3 cover 16 elements each: they need .scale_vec::4X or "
            ".block16"
        )
    found = op.descriptor
    if found is None or vector != 4 or op.shape.k == WIDE_K:
        return
    if found.scale_a_id or found.scale_b_id:
        raise UnknownInstruction(
            "four scales fill a cell, so they begin at byte 0: scale_a_id and "
            f"scale_b_id are 0; given {found.scale_a_id} and {found.scale_b_id}"
        )


def not_in_tensor_memory(op: Instruction, name: str) -> str:
    """Why an operand of a ``tcgen05.mma`` has no place in tensor memory."""
    have = f"in tensor memory are {one_of(op.fragments, 'and')}"
    if name.lower() == "b":
        return (
            f"B of {op.family} is in shared memory, read through a descriptor; {have}"
        )
    if name.lower() == "metadata" and op.sparse:
        return (
            f"no source but figures says where the metadata of {op} is "
            f"(M = {op.shape.m}, cta_group::{op.cta_group}); it is known for 128 rows "
            f"in a CTA, and for .ws; {have}"
        )
    if name.lower() == "a":
        return f"no source says how A of {op}, with k 96, is in tensor memory; {have}"
    return f"{op} has no operand {name}{nearest(name, op.fragments)}; {have}"
