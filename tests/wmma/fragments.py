"""Every fragment of the wmma API, matrices in memory for them, and products."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fragmenta import wmma
from fragmenta.reference.isa.tables import wmma as table
from fragmenta.reference.registers.words import pack_words

ROOT = Path(__file__).resolve().parents[2]

BY_CUDA = {
    "half": "f16",
    "__half": "f16",
    "__nv_bfloat16": "bf16",
    "float": "f32",
    "double": "f64",
    "signed char": "s8",
    "unsigned char": "u8",
    "int": "s32",
    "precision::tf32": "tf32",
    "experimental::precision::u4": "u4",
    "experimental::precision::s4": "s4",
    "experimental::precision::b1": "b1",
}

# Elements per lane of a, b and accumulator, as the guide's header declares them.
ELEMENTS = """
f16  | 16 16 16 | 16 16 8 | f16 f32
f16  | 32 8 16  | 16 16 8 | f16 f32
f16  | 8 32 16  | 16 16 8 | f16 f32
bf16 | 16 16 16 | 8 8 8   | f32
bf16 | 32 8 16  | 16 4 8  | f32
bf16 | 8 32 16  | 4 16 8  | f32
s8   | 16 16 16 | 8 8 8   | s32
s8   | 32 8 16  | 16 4 8  | s32
s8   | 8 32 16  | 4 16 8  | s32
u8   | 16 16 16 | 8 8 8   | s32
u8   | 32 8 16  | 16 4 8  | s32
u8   | 8 32 16  | 4 16 8  | s32
tf32 | 16 16 8  | 4 4 8   | f32
f64  | 8 8 4    | 1 1 2   | f64
u4   | 8 8 32   | 8 8 2   | s32
s4   | 8 8 32   | 8 8 2   | s32
b1   | 8 8 128  | 32 32 2 | s32
"""
ROWS = [
    (of, tuple(map(int, shape.split())), tuple(map(int, counts.split())), accs.split())
    for of, shape, counts, accs in (
        [cell.strip() for cell in line.split("|")]
        for line in ELEMENTS.strip().splitlines()
    )
]
SUB_BYTE = {"u4": (np.uint32, 8), "s4": (np.int32, 8), "b1": (np.uint32, 32)}


def layouts(of, use):
    """The layouts that a fragment of a multiplicand may have."""
    if of in SUB_BYTE:
        return [wmma.row_major if use is wmma.matrix_a else wmma.col_major]
    return [wmma.row_major, wmma.col_major]


def every_fragment(**options):
    """One of each: use, shape, type and layout."""
    for of, shape, _, accumulators in ROWS:
        for use in (wmma.matrix_a, wmma.matrix_b):
            for layout in layouts(of, use):
                yield wmma.fragment(use, *shape, of, layout, **options)
        for each in accumulators:
            yield wmma.fragment(wmma.accumulator, *shape, each, **options)


FRAGMENTS = list(every_fragment())
ACCUMULATORS = {
    str(frag): frag for frag in FRAGMENTS if frag.use is wmma.accumulator
}.values()


def memory_layouts(frag):
    """(row or col, what load_matrix_sync is told)."""
    if frag.memory_layout is None:
        return [("row", wmma.mem_row_major), ("col", wmma.mem_col_major)]
    return [(frag.memory_layout.value, None)]


def part_of(frag):
    """The fragment as the instruction table has it."""
    return table.fragment(frag.use.value, str(frag.shape), frag.element_type.name)


def random_bits(of, shape, seed=0):
    words = np.random.default_rng(seed).integers(0, 1 << 63, shape, np.uint64)
    return (words & np.uint64(of.mask)).astype(of.bits_dtype)


def shortest(frag, major):
    """The shortest leading dimension that the guide allows, and its step."""
    rows, cols = part_of(frag).shape
    step = 128 // frag.element_type.bits
    return -(-(cols if major == "row" else rows) // step) * step, step


def image(bits, major, ldm, of, before=0, after=0):
    """A memory image of one matrix, by slices; ones in every other place."""
    leading = bits if major == "row" else bits.T
    memory = np.full((len(leading), ldm), of.mask, of.bits_dtype)
    memory[:, : leading.shape[1]] = leading
    ends = [np.full(n, of.mask, of.bits_dtype) for n in (before, after)]
    flat = np.concatenate([ends[0], memory.ravel(), ends[1]])
    return np.ascontiguousarray(pack_words(flat, of.bits, max(8, of.bits)))


def raw(memory, of):
    """An image as NumPy memory that the fragment takes."""
    return memory if of.bits < 8 else memory.view(of.storage)


# What leading dimensions are multiples of, in elements: as the guide says, and of
# the types that it does not name.
GUIDE = {"f16": 8, "f32": 4, "u4": 32, "s4": 32, "b1": 128}
EXTENDED = {"bf16": 8, "s8": 16, "u8": 16, "tf32": 4, "f64": 2, "s32": 4}


def operands(op, warps=(), seed=0):
    """Fragments with random contents, and the matrices as raw bits."""
    rng = np.random.default_rng(seed)
    frags, bits = {}, {}
    for name in "abcd":
        part = op.fragments[name.upper()]
        use = {"a": wmma.matrix_a, "b": wmma.matrix_b}.get(name, wmma.accumulator)
        layout = op.values.get(f"{name}layout")
        frag = wmma.fragment(
            use, *op.shape, op.types[name], layout and f"{layout}_major", warps=warps
        )
        frags[name] = frag
        if name != "d":
            of = part.dtype
            if of.kind == "float":
                values = rng.normal(size=(*warps, *part.shape)).astype(of.storage)
            else:
                values = of.decode(random_bits(of, (*warps, *part.shape), rng))
            bits[name] = of.encode(values)
            frag.registers[...] = part.pack(values)
    return frags, bits


def multiply(op, frags, target=None):
    a, b, c, d = (frags[name] for name in "abcd")
    if "bitop" in op.values:
        xor = op.values["bitop"].startswith("xor")
        bits = wmma.experimental
        chosen = bits.bmmaBitOpXOR if xor else bits.bmmaBitOpAND
        wmma.bmma_sync(d, a, b, c, chosen, target=target)
    else:
        wmma.mma_sync(d, a, b, c, op.satfinite, target=target)
    return op.d.unpack(d.registers)
