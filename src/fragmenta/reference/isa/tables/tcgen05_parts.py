"""The layouts of the operands of ``tcgen05.mma`` in tensor memory.

The manual gives the ways in which D is spread over tensor memory letters, A to G.  A in
tensor memory is in the lanes of the rows of D.
"""

from __future__ import annotations

from fragmenta.reference.isa.instruction import Instruction, Parts
from fragmenta.reference.isa.tcgen05_shapes import LAYOUTS, WIDE_K
from fragmenta.reference.registers.dtype import dtype
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.registers.tensor_fragment import LANES, TensorFragment, Window
from fragmenta.reference.registers.words import Container, container

# Scales: factor j is byte j % 4 of a cell.  The rows of A, or columns of B, are in lanes
# 0 to 31, and repeated in the other three quarters.  The next 32 are in the next column.
# In a pair with M = 128, half of the columns of B are in two quarters, and the others
# are in the other two.
_QUARTER = "T0 T1 T2 T3 T4"


def _line(op: Instruction) -> dict[str, str]:
    return LAYOUTS[op.layout_letter]


def parts(op: Instruction) -> Parts:
    """D, A, the scales and the metadata, if a descriptor says what they are.

    B has no fragment: it is always read from shared memory.
    """
    if op.descriptor is None:
        return {}
    found = {"D": _d(op)}
    if op.shape.k != WIDE_K:  # no source says how A of K = 96 is in tensor memory
        found["A"] = _a(op)
    found.update(_scales(op))
    if op.sparse and _line(op)["letter"] not in "CF":
        found["metadata"] = _metadata(op)
    return found


def _free(**named: str) -> str:
    text = "  ".join(f"{name} = {digits}" for name, digits in named.items() if digits)
    return f" | {text}" if text else ""


def _sizes(op: Instruction, columns: int, elements: int) -> dict[str, int]:
    sizes = {"P": 2} if op.cta_group == 2 else {}
    return sizes | {"T": LANES, "C": columns, "E": elements}


def _d(op: Instruction) -> TensorFragment:
    """One element in each cell, an f16 in its lower half."""
    line, of = _line(op), op.types["d"]
    columns = op.shape.n >> len(line["parts"].split())
    text = f"row = {line['row']}  col = C* {line['parts']}" + _free(base=line["base"])
    layout = Layout.parse(text, **_sizes(op, columns, 1))
    slot = Container(32, 0, of.bits)
    return TensorFragment("D", of, layout, slot, layout.data)


def _a(op: Instruction) -> TensorFragment:
    """Eight columns for one instruction, repeated for each part of N."""
    line, of = _line(op), op.types["a"]
    slot = container(of, op.kind)
    elements = 32 // slot.bits
    text = f"row = {line['row']}  col = E* C*"
    text += _free(copy=line["parts"], base=line["base"])
    columns = op.stored_k // elements
    layout = Layout.parse(text, **_sizes(op, columns, elements))
    stored = op.shape.k // op.stored_k
    return TensorFragment("A", of, layout, slot, layout.data, stored)


# ── scales ──────────────────────────────────────────────────────────────────


def _scales(op: Instruction) -> dict[str, TensorFragment]:
    found = op.descriptor
    if not op.scale_vec or found is None:
        return {}
    return {
        "scale_A": _scale_a(op, found.scale_a_id),
        "scale_B": _scale_b(op, found.scale_b_id),
    }


def _scale_a(op: Instruction, first: int) -> TensorFragment:
    """The scales of the rows that the CTA has."""
    pair = op.cta_group == 2
    rows = op.shape.m // op.cta_group if op.cta_group else op.shape.m
    low = max(2, rows // 32)
    text = (
        f"row = {_QUARTER} {_bits('C', low)} {'P0' * pair}  "
        f"col = E0 E1 {_above('C', low)} | copy = T5 T6"
    )
    windows = (Window(op.shape.m), Window(op.scale_vec, first))
    return _scale(op, "scale_A", text, low, windows, first)


def _scale_b(op: Instruction, first: int) -> TensorFragment:
    """The scales of all columns, in both CTAs."""
    n, pair = op.shape.n, op.cta_group == 2
    split = _line(op)["letter"] == "B"
    part = n // 2 if split else n
    padded = -(-part // 128) * 128
    low = padded // 32
    copy = "T5" if split else "T5 T6"
    text = (
        f"row = E0 E1 {_above('C', low)}  "
        f"col = {_QUARTER} {_bits('C', low)} {'T6' * split}"
        f" | copy = {copy} {'P0' * pair}"
    )
    columns = Window(n, 0, part, padded) if split else Window(n)
    return _scale(
        op, "scale_B", text, low, (Window(op.scale_vec, first), columns), first
    )


def _scale(
    op: Instruction,
    name: str,
    text: str,
    low: int,
    windows: tuple[Window, ...],
    first: int,
) -> TensorFragment:
    of = dtype(op.values["stype"])
    words = -(-(first + op.scale_vec) // 4)
    layout = Layout.parse(text, **_sizes(op, low * words, 4))
    major = layout.data if name == "scale_A" else layout.data[::-1]
    return TensorFragment(name, of, layout, container(of), major, windows=windows)


def _bits(axis: str, size: int) -> str:
    """The digits of an axis below ``size``."""
    return " ".join(f"{axis}{bit}" for bit in range(size.bit_length() - 1))


def _above(axis: str, size: int) -> str:
    return f"{axis}{size.bit_length() - 1}*"


# ── metadata ────────────────────────────────────────────────────────────────


def _metadata(op: Instruction) -> TensorFragment:
    """One code for each row and chunk of a sparse A."""
    granularity, found = op.granularity, op.descriptor
    assert granularity is not None
    assert found is not None
    line, of = _line(op), dtype("u4")
    half = op.kind in ("f16", "tf32")
    if half:
        # Two consecutive instructions share a pair of columns; the selector chooses.
        row = line["row"].replace("T3", "E2")
        text = f"row = {row}  chunk = E0 E1 T3"
    else:
        text = f"row = {line['row']}  chunk = E0 E1 E2 C0"
    layout = Layout.parse(
        text + _free(copy=line["parts"]), **_sizes(op, 1 if half else 2, 8)
    )
    shape = (op.shape.m, op.shape.k // granularity.chunk)
    assert layout.shape == shape, (layout.shape, shape)
    slot = container(of)
    return TensorFragment(
        "metadata", of, layout, slot, layout.data, skipped=found.selector
    )
