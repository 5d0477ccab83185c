"""The comment above the function of a ``tcgen05`` instruction."""

from __future__ import annotations

from dataclasses import replace

from fragmenta.cuda.source.ptx import MmaOptions, check_options
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.tensor_memory.reaching import QUARTER

_ISSUED = {
    1: "One thread issues it",
    2: "One thread of the pair of CTAs issues it",
}
_COMMITTED = "it is done when the mbarrier of a later tcgen05.commit says so"


def described(op: Instruction) -> list[str]:
    """What an instruction descriptor adds to the name of a function.

    The whole word is in it if the shape and the types do not say it.

    >>> import fragmenta as fm
    >>> described(fm.tcgen05("m128n64k16", a="f16", d="f32"))
    ['m128n64k16', 'f32', 'f16', 'f16']
    >>> described(fm.tcgen05("m128n64k16", a="f16", d="f32", transpose_b=True))[-1]
    '08110010'
    """
    found = op.descriptor
    if found is None:
        return []
    words = [found.shape, found.d, found.a, found.b]
    plain = replace(
        found,
        selector=0,
        saturate=False,
        negate_a=False,
        negate_b=False,
        transpose_a=False,
        transpose_b=False,
        max_shift=0,
        scale_a_id=0,
        scale_b_id=0,
    )
    words += [found.scale] if found.scale else []
    return words if plain == found else [*words, f"{found.encode():08x}"]


def does(op: Instruction, options: MmaOptions) -> str:
    """What it does; empty for instructions of other families."""
    if op.tensor_memory:
        return _multiplies(op, check_options(op, options))
    if op.unit == "tcgen05" and (op.loads or op.stores):
        return _moves(op)
    if op.moves == "copy":
        return (
            f"Copy from shared memory, which s_descriptor describes, to tensor memory: "
            f"rows of {op.values['tile'].partition('x')[2][:-1]} bits, one to a lane. "
            f"{_ISSUED[op.cta_group or 1]}; {_COMMITTED}."
        )
    return ""


def _multiplies(op: Instruction, options: MmaOptions) -> str:
    where = "tensor" if options.a_tensor else "shared"
    a, b, d = "A", "B", "D"
    if op.idesc is not None:
        m, n, k = op.shape
        stored = f" stored as {m} x {k // 2}" if op.sparse else ""
        a = f"A ({m} x {k} {op.types['a']}{stored}"
        b, d = f"B ({k} x {n} {op.types['b']}", f"D ({m} x {n} {op.types['d']}"
        a, b, d = (
            f"{text} in {place} memory)"
            for text, place in ((a, where), (b, "shared"), (d, "tensor"))
        )
    said = (
        f"{d} = {a} * {b}{', both scaled,' if op.values['block_scale'] else ''} + D. "
    )
    said += f"{_ISSUED[op.cta_group or 1]}; {_COMMITTED}. "
    if op.idesc is None:
        said += "The instruction descriptor idesc says the shape and the types. "
    if options.disable_output_lane:
        said += "A bit of disable_output_lane leaves a lane of D as it was. "
    if options.scale_input_d:
        said += "D is first divided by 2 to the power of scale_input_d. "
    if options.zero_column_mask:
        said += "zero_column_mask says which columns of B count as zeros. "
    return said + "enable_input_d = false leaves the old D out."


def _moves(op: Instruction) -> str:
    loads = op.loads
    tile, num = op.values["tile"], op.values["num"]
    verb, way = ("Load", "from") if loads else ("Store", "to")
    wait = "ld" if loads else "st"
    then = "the registers are read" if loads else "others read the cells"
    said = (
        f"{verb} {tile}, {num[1:]} side by side, {way} tensor memory. A warp reaches "
        f"the {QUARTER} lanes from {QUARTER} * (warp % 4) on; all its threads give the "
        f"same address. tcgen05.wait::{wait} comes before {then}."
    )
    if tile == "16x32bx2":
        said += (
            " The second half of the warp is imm_half_splitoff columns further: it is "
            "added to the address."
        )
    if "red" in op.mnemonic.split("."):
        least = "least" if op.values["red"] == "min" else "greatest"
        said += f" redval is the {least} value of the thread."
    return said


def legend(op: Instruction) -> str:
    """What the letters of layouts in tensor memory are."""
    pair = any("P" in dict(part.layout.axes) for part in op.fragments.values())
    first = ("P, ", "the CTA of the pair, ") if pair else ("", "")
    return (
        f"{first[0]}T, C, E: bits of {first[1]}the lane and the column of tensor "
        "memory and of the element in the cell, lowest first."
    )


def legal_columns(name: str) -> str:
    """A check of the columns that are allocated or freed."""
    test = f"{name} % 32 == 0 && {name} > 0"
    return f'static_assert({test}, "{name} is a multiple of 32");'
