"""Families of opcodes that all who read instructions treat alike.

``ld`` and ``ldu`` load, whoever asks.  An instruction says of which family it is, as in
``instruction.is_load``.  The table of opcodes has the lines of these opcodes and what
they do to bits; it takes a while to load, and these are asked when a file is read.
"""

from __future__ import annotations

LOADS = frozenset({"ld", "ldu"})
STORES = frozenset({"st"})
FETCHES = frozenset({"atom"})
"""Updates of memory that return what was there."""
REDUCTIONS = frozenset({"red"})
UPDATES = FETCHES | REDUCTIONS
ACCESSES = LOADS | STORES | UPDATES
"""Accesses of each lane to the memory at its address."""
READS = LOADS | FETCHES
WRITES = STORES | UPDATES
COPIES = frozenset({"cp"})
ROW_LOADS = frozenset({"ldmatrix"})
ROW_STORES = frozenset({"stmatrix"})
BARRIERS = frozenset({"bar", "barrier"})
MBARRIERS = frozenset({"mbarrier"})
MOVES = frozenset({"mov"})
CONVERSIONS = frozenset({"cvt"})
COMPARISONS = frozenset({"setp"})
PERMUTATIONS = frozenset({"prmt"})
SHUFFLES = frozenset({"shfl"})
SUMS = frozenset({"add", "sub"})
PRODUCTS = frozenset({"mul"})
FUSED = frozenset({"fma", "mad"})
"""A product and a sum."""
ARITHMETIC = SUMS | PRODUCTS | FUSED
WARP_PRODUCTS = frozenset({"mma", "wmma"})
"""Products of matrices that a warp has in its registers, and moves of fragments."""
WARPGROUP = frozenset({"wgmma"})
TENSOR_MEMORY = frozenset({"tcgen05"})

WITHOUT_RESULT = STORES | REDUCTIONS | BARRIERS | {"bra", "ret"}
"""The first operand is read."""

RULES = {
    **dict.fromkeys(LOADS, "load"),
    **dict.fromkeys(STORES, "store"),
    **dict.fromkeys(UPDATES, "atomic"),
    **dict.fromkeys(COPIES, "copy"),
    "call": "call",
    **dict.fromkeys(WARPGROUP, "warpgroup"),
    **dict.fromkeys(TENSOR_MEMORY, "tensor"),
    **dict.fromkeys(ROW_LOADS, "rows"),
    **dict.fromkeys(ROW_STORES, "stored_rows"),
    "movmatrix": "transpose",
    **dict.fromkeys(WARP_PRODUCTS, "multiply"),
    **dict.fromkeys(SHUFFLES, "shuffle"),
    **dict.fromkeys(("vote", "match", "redux"), "vote"),
}
"""Opcodes that are more than a calculation in each lane, and their rule.

Whoever follows values beside registers has a function for each rule."""

REDUCING = ("add", "min", "max", "and", "or", "xor")
"""Operations that combine numbers in any order: of lanes, or of one with memory."""
