"""``tcgen05.mma``: one thread multiplies, with D in tensor memory and B in shared memory.

The mnemonic has no shape and few types: the instruction descriptor, an operand, has
them.  A comes from shared memory, through a descriptor, or from tensor memory.
"""

from __future__ import annotations

from itertools import product

from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.isa.table import Form, Row, read
from fragmenta.reference.isa.tables.tcgen05_parts import parts
from fragmenta.reference.isa.target import Version, expand

# ``in``: the four families, of which ``sp`` have a sparse A, and ``ws`` keep B in a
# collector ("weight stationary").  A kind with a size is scaled by blocks; "none" is
# the default size.  From sm_107 on, B has a collector besides that of A, and may be
# looked up in a table (``lut``), if A is dense.
TABLE = """
in              | kind            | size                        | lut | ptx | targets
mma sp ws ws.sp | f16 tf32        |                             |     | 8.6 | 100a/f 110a/f
mma sp ws ws.sp | f8f6f4          |                             | lut | 8.6 | 100a/f 110a/f
mma sp ws ws.sp | i8              |                             |     | 8.6 | sm_100a sm_110a
mma sp ws ws.sp | ti16            |                             |     | 9.4 | sm_107a sm_107f
mma sp          | mxf8f6f4        | none                        | lut | 8.6 | 100a/f 110a/f
mma sp          | mxf8f6f4        | scale_vec::1X               |     | 8.6 | sm_100a sm_103a sm_107a sm_110a
mma sp          | mxf8f6f4        | block32                     | lut | 8.8 | 100a/f 110a/f
mma             | mxf4            | none                        |     | 8.6 | 100a/f 110a/f
mma             | mxf4            | block32                     |     | 8.8 | 100a/f 110a/f
mma             | mxf4nvf4        | block16 block32             |     | 8.8 | 100a/f 110a/f
mma sp          | mxf4            | scale_vec::2X               |     | 8.6 | sm_100a sm_103a sm_107a sm_110a
mma sp          | mxf4nvf4        | scale_vec::2X scale_vec::4X |     | 8.7 | sm_100a sm_103a sm_107a sm_110a
sp              | mxf4            | none                        |     | 8.6 | sm_100a sm_103a sm_107a sm_110a
sp              | mxf4            | block32                     |     | 8.8 | sm_100a sm_103a sm_107a sm_110a
sp              | mxf4nvf4        | block16 block32             |     | 8.8 | sm_100a sm_103a sm_107a sm_110a
"""
USES = ("fill", "use", "lastuse", "discard")
GROUPS = ("cta_group::1", "cta_group::2")
_A = tuple(f"collector::a::{use}" for use in USES)
_B = tuple(f"collector::b::{use}" for use in USES)
_BUFFERS = tuple(f"collector::b{i}::{use}" for i in range(4) for use in USES)
LUT = "decompress::lut::b"
#: The targets that scale D before they add to it.
SCALING = "100a/f"
#: Collectors of B and tables for B in mma that is not ``ws``.
_SINCE = Version(9, 4)
_FIRST = 107


def _rows(family: str) -> tuple[Row, ...]:
    rows = []
    for line in read(TABLE):
        if family in line["in"].split():
            rows += _of_line(line, family)
    return tuple(rows)


def _of_line(line: dict[str, str], family: str) -> list[Row]:
    """The rows of a line: plain, shifted, with a collector of B, with a table for B."""
    weight_stationary = family.startswith("ws")
    sizes = tuple(each.replace("none", "") for each in line["size"].split()) or ("",)
    fields = {
        "cta_group": GROUPS[:1] if weight_stationary else GROUPS,
        "kind": tuple(f"kind::{kind}" for kind in line["kind"].split()),
        "block_scale": ("block_scale",) if line["size"] else ("",),
        "scale_vec": sizes,
    }
    version = Version.parse(line["ptx"])
    if weight_stationary:
        return [_collected(fields, _BUFFERS, version, line["targets"])]
    plain = {**fields, "lut": ("",), "ashift": ("",)}
    shifted = {**plain, "ashift": ("ashift",)}
    looked_up = {**plain, "lut": (LUT,)}
    kinds = [(plain, _A)] if line["size"] else [(plain, _A), (shifted, _A[2:])]
    rows = [
        _collected({**each}, of_a, version, line["targets"]) for each, of_a in kinds
    ]
    newer = [t for t in expand(line["targets"]) if t.startswith(f"sm_{_FIRST}")]
    if newer:
        text = " ".join(newer)
        rows += [_collected(each, of_a, _SINCE, text, _B) for each, of_a in kinds]
        if line["lut"] and family == "mma":
            rows += [_collected(looked_up, _A, _SINCE, text, of_b) for of_b in ((), _B)]
    return rows


def _collected(
    fields: dict[str, tuple[str, ...]],
    uses: tuple[str, ...],
    version: Version,
    targets: str,
    uses_of_b: tuple[str, ...] = (),
) -> Row:
    """A row with its collectors; to discard is what happens without a word."""
    silent = "collector::b0::discard" if "collector::b0::fill" in uses else _A[-1]
    spoken = tuple(use for use in uses if use != silent)
    allowed = {**fields, "collector": ("", *spoken)}
    if "ashift" in fields:
        allowed["collector_b"] = uses_of_b or ("",)
    return Row(allowed, version, targets, {f"collector={silent}": ""})


# ── operands ────────────────────────────────────────────────────────────────


def lists(op: Instruction) -> tuple[tuple[Operand, ...], ...]:
    """Every list of operands: A in shared or tensor memory, with and without options."""
    tensor_a = (True,) if op.values.get("ashift") else (False, True)
    return tuple(
        operands_from(op, tensor_a=in_tensor, mask=mask, last=last)
        for in_tensor, mask, last in product(
            tensor_a, _options(_has_mask(op)), _options(_has_last(op))
        )
    )


def _options(has: bool) -> tuple[bool, ...]:
    return (False, True) if has else (False,)


def _weight_stationary(op: Instruction) -> bool:
    return op.ws


def _has_mask(op: Instruction) -> bool:
    """Whether lanes of D may be left as they are."""
    return not (op.values["block_scale"] or _weight_stationary(op))


def _has_last(op: Instruction) -> bool:
    """Whether an optional operand ends the list: a scale of D, a mask of columns."""
    return _weight_stationary(op) or op.values["kind"] in ("kind::f16", "kind::tf32")


def operands(op: Instruction) -> tuple[Operand, ...]:
    """The operands without the optional ones; see :func:`operands_from`."""
    return lists(op)[0]


def operands_from(
    op: Instruction, *, tensor_a: bool = False, mask: bool = False, last: bool = False
) -> tuple[Operand, ...]:
    """d, a, b, metadata or table, idesc, scales, mask, enable-input-d, and the last."""
    found = [
        _tensor("d"),
        _tensor("a") if tensor_a else Operand("a", ".b64", vector=False),
        Operand("b", ".b64", vector=False),
    ]
    found += [_tensor("metadata")] if op.sparse else []
    found += [_tensor("lut")] if op.values.get("lut") else []
    found.append(Operand("idesc", "number", vector=False))
    if op.values["block_scale"]:
        found += [_tensor("scale_a"), _tensor("scale_b")]
    if mask:
        words = 8 if op.values["cta_group"].endswith("2") else 4
        found.append(Operand("disable_output_lane", ".b32", words))
    found.append(Operand("enable_input_d", ".pred", vector=False))
    if last and _weight_stationary(op):
        found.append(Operand("zero_column_mask", ".b64", vector=False))
    elif last:
        values = tuple(range(16))
        found.append(
            Operand("scale_input_d", "immediate", values=values, targets=SCALING)
        )
    return tuple(found)


def _tensor(name: str) -> Operand:
    """An address in tensor memory, in brackets."""
    return Operand(name, "tensor", vector=False)


_TAIL = ".{cta_group}.{kind}.{block_scale}.{scale_vec}"
_USES = ".{lut}.{ashift}.{collector}.{collector_b}"


def _form(words: str, head: str, tail: str, family: str) -> Form:
    name = f"tcgen05.{words}"
    return Form(
        name,
        (f"{name}{tail}",),
        _rows(family),
        operands,
        parts,
        any_order=head,
        lists=lists,
        unit="tcgen05",
        multiplies="tensor memory",
        sparse=family.endswith("sp"),
        ws=family.startswith("ws"),
    )


MMA = _form("mma", "tcgen05.mma", _TAIL + _USES, "mma")
MMA_SP = _form("mma.sp", "tcgen05.mma", _TAIL + _USES, "sp")
MMA_WS = _form("mma.ws", "tcgen05.mma.ws", _TAIL + ".{collector}", "ws")
MMA_WS_SP = _form("mma.ws.sp", "tcgen05.mma.ws", _TAIL + ".{collector}", "ws.sp")
FORMS = (MMA, MMA_SP, MMA_WS, MMA_WS_SP)
