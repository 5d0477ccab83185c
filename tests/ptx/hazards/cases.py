"""Small kernels, right and wrong, and what the race detector must report about each.

A row is a kernel of ``sources/`` that is right (BUG 0: nothing worse than a note may be
reported, and the bits are those of an H200), and its mistakes by number: the rules of
which one must be reported, the severity, and what may be reported besides.

The rows of a source that is not named here are in the source itself, in a comment above
each kernel: ``// row: "entry", 32, out(32), wrong={1: "rule"}``, with the arguments of
:func:`row`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fragmenta.inspect.evidence.arguments import (
    Spec,
    arange,
    bits,
    full,
    integers,
    normal,
    output,
    scalar,
    values,
)

ERROR, WARNING, NOTE = "error", "warning", "info"
EMPTY = "empty"


class Mistake(NamedTuple):
    """What must be reported about a wrong kernel."""

    rules: tuple[str, ...]
    """One of them must be reported."""
    severity: str = ERROR
    also: tuple[str, ...] = ()
    """What may be reported besides: what follows from the mistake."""


class Row(NamedTuple):
    """A kernel, how it is launched, and its mistakes."""

    source: str
    entry: str
    grid: int
    block: int
    cluster: int
    arguments: list[Spec]
    mistakes: dict[int, Mistake]
    leaves: list[Any] | None = None
    """What it leaves in its arrays, if no recording has that."""


class Case(NamedTuple):
    """One launch: a row with one of its mistakes, or with none."""

    row: Row
    bug: int = 0

    @property
    def name(self) -> str:
        """The source, the kernel, and the number of the mistake."""
        plain = f"{self.row.source}-{self.row.entry}"
        return f"{plain}-{self.bug}" if self.bug else plain


ROWS: list[Row] = []
_SOURCE = [""]


def source(name: str) -> None:
    """The rows that follow are of this source."""
    _SOURCE[0] = name


def row(
    entry: str,
    block: int,
    *arguments: Spec,
    grid: int = 1,
    cluster: int = 1,
    wrong: dict[int, Any] | None = None,
    leaves: list[Any] | None = None,
) -> None:
    """A kernel; a mistake is a rule, several of them, or a :class:`Mistake`.

    ``leaves`` are the words of its arrays after a right launch.  It is for a kernel
    that no GPU has run yet.
    """
    mistakes = {}
    for bug, rules in (wrong or {}).items():
        if isinstance(rules, str):
            rules = (rules,)
        mistakes[bug] = rules if isinstance(rules, Mistake) else Mistake(rules)
    shape = grid, block, cluster
    ROWS.append(Row(_SOURCE[0], entry, *shape, list(arguments), mistakes, leaves))


def i32(value: int) -> Spec:
    return scalar("i32", value)


def u32(*shape: int) -> Spec:
    return integers("u32", *shape, low=0, high=1000)


def out(*shape: int) -> Spec:
    return output("u32", *shape)


def zero(count: int = 1) -> Spec:
    return full("u32", count)


def empty(*shape: int) -> Spec:
    """An array that the host does not set."""
    return {**output("u32", *shape), EMPTY: True}


def made_map() -> Spec:
    """Room for a tensor map, which begins with an address that differs everywhere."""
    return {**empty(32), "address": True}


def box_map(of: int, box: tuple[int, ...] = (8, 16), swizzle: int = 0) -> Spec:
    """A tensor map by value, of argument ``of``; the last dimension is the innermost."""
    return {"kind": "map", "of": of, "box": box, "swizzle": swizzle}


READ, WRITE, FENCE = (
    "read-before-arrival",
    "overwrite-while-read",
    "missing-proxy-fence",
)
SHARED, GLOBAL, BARRIER = "shared-race", "global-race", "mbarrier"
LAYOUT, COLLISION = "layout-mismatch", "barrier-collision"
STEPS = Mistake((LAYOUT,), WARNING)
"""A and B advance by different steps."""
FLIGHT, DEADLOCK, LEAK = "wgmma-registers-in-flight", "deadlock", "leak"
UNSET, ALIGNED, BANKS = "uninitialised", "divergent-aligned", "bank-conflict"
HANGS = Mistake((DEADLOCK,), also=(BARRIER, LEAK))
MISUSED = Mistake((BARRIER,), also=(DEADLOCK, LEAK, UNSET, SHARED))
EARLY = Mistake((READ,), also=(LEAK, BARRIER, SHARED, UNSET))
OVERLAP = Mistake((SHARED, WRITE, READ), also=(UNSET,))
UNORDERED = Mistake((SHARED,), also=(UNSET,))
"""Who is first reads what is not there yet."""
A16, B16, D = normal("f16", 1024), normal("f16", 128), output("f32", 64, 8)
A_TILE, B_TILE = (
    integers("f16", 256, low=-8, high=9),
    integers("f16", 128, low=-8, high=9),
)
LEGAL = values("u32", [0x44EE9DC8, 0xE4E4D8C9, 0x9C4E8D4E, 0xDEC984DE] * 32)

# ── idioms of shipped kernels ───────────────────────────────────────────────

source("idioms")
row("elected_wait", 64, u32(32), out(32))
row("elected_flag", 32, out(32), zero(), out(32), grid=2)
row("first_wait", 64, u32(96), out(96))
row("ring_wgmma", 160, normal("f16", 5 * 1024), normal("f16", 5 * 128), D, i32(5))
row("ring_loads", 96, u32(5 * 64), out(64), i32(5))
row("ring_ldmatrix", 64, u32(3 * 128), out(32), i32(3))
row("copy_before_expect", 32, u32(32), out(32))
row("copies_one_barrier", 32, u32(128), out(128))
row("epilogue", 96, out(64))
row("fence_by_issuer", 64, out(64))
row("store_ring", 64, out(5 * 64), i32(5))
row("wgmma_chain", 160, normal("f16", 7 * 1024), normal("f16", 7 * 128), D, i32(7))
row("fence_operand", 128, A16, B16, D)
row("own_rows", 128, normal("f16", 2048), B16, D)
row("inherited_wait", 64, u32(32), out(32))
row("multicast", 32, u32(64), out(128), grid=2, cluster=2)
row("counted_blocks", 64, u32(64), zero(), out(192), grid=3)
row("token", 32, u32(64), out(32))
row("cp_async_arrive", 96, u32(32), out(64))

# ── right, and easily taken for wrong ───────────────────────────────────────

source("quiet")
row("copied_operands", 128, A16, B16, D)
row("plain_refill", 64, u32(192), out(192))
row("pending_store", 64, out(64))
row("reductions", 32, zero(32), grid=3)
row("round_trip", 32, out(32), out(32))
row("stored_matrix", 32, bits("u32", 32), out(32))
row("same_value", 32, out(32))
row("bytes", 128, out(32))
row("half_warps", 32, out(32))
row("early_return", 128, out(64))
row("written_and_returned", 96, out(40))
row("voting", 64, u32(64), out(64))
row("shared_flag", 64, out(32))
row("old_flag", 64, out(32))
row("shared_counter", 64, out(64))
row("states", 32, u32(32), out(32))
row(
    "two_consumers", 384, normal("f16", 2048), normal("f16", 256), output("f32", 128, 8)
)

# ── bugs that shipped ───────────────────────────────────────────────────────

source("pairs")
row("stored_tile", 64, out(64), wrong={1: FENCE, 2: FENCE})
row("written_operands", 128, A16, B16, D, wrong={1: FENCE, 2: FENCE})
row("early_read", 32, u32(32), out(32), wrong={1: EARLY})
row("other_barrier", 32, u32(64), out(32), wrong={1: EARLY})
row(
    "wrong_parity",
    32,
    u32(64),
    out(32),
    i32(2),
    wrong={n: Mistake((READ, DEADLOCK), also=(LEAK, BARRIER)) for n in (1, 2)},
)
row(
    "early_release",
    160,
    normal("f16", 5 * 1024),
    normal("f16", 5 * 128),
    D,
    i32(5),
    wrong={1: Mistake((WRITE,), also=(FLIGHT,)), 2: Mistake((WRITE,), also=(FLIGHT,))},
)
row("store_depth", 32, out(5 * 32), i32(5), wrong={1: WRITE})
row("lonely_wait", 64, out(128), wrong={1: Mistake((WRITE,), also=(SHARED,))})
row("other_group", 64, out(128), wrong={1: Mistake((WRITE,), also=(LEAK,)), 2: WRITE})
row("elected_arrive", 64, out(32), wrong={1: UNORDERED})
row(
    "counts",
    32,
    u32(32),
    out(32),
    wrong={
        1: HANGS,
        2: Mistake((DEADLOCK, BARRIER), also=(LEAK,)),
        3: HANGS,
        4: MISUSED,
    },
)
row("two_loads", 32, u32(64), out(32), wrong={1: OVERLAP})
row("copied", 64, u32(128), out(64), wrong={1: OVERLAP, 2: EARLY})
row("relaxed_arrival", 32, out(64), grid=2, cluster=2, wrong={1: UNORDERED})
row(
    "early_flag",
    32,
    out(32),
    zero(),
    out(32),
    grid=2,
    wrong={1: Mistake((GLOBAL, READ))},
)
row("overwritten_barrier", 32, u32(32), out(64), wrong={1: MISUSED, 2: MISUSED})
row("replicated", 64, u32(128), out(64), wrong={1: SHARED})
row("exited_block", 32, out(32), zero(), grid=2, cluster=2, wrong={1: SHARED})

# ── bugs that were found late ───────────────────────────────────────────────

source("known")
row("sparse_operands", 128, A16, normal("f16", 256), LEGAL, D, wrong={1: FENCE})
row(
    "polled_copy",
    32,
    out(32),
    zero(),
    out(32),
    grid=2,
    wrong={1: Mistake((FENCE,), WARNING)},
)
row("half_written", 64, out(64), wrong={1: OVERLAP})
row(
    "shared_operand",
    256,
    normal("f16", 2048),
    normal("f16", 256),
    output("f32", 128, 8),
    wrong={1: WRITE},
)
row("refilled", 64, u32(192), out(192), wrong={1: OVERLAP})
row("dynamic_loop", 64, u32(7 * 32), out(7 * 32), i32(7))

# ── before Hopper ───────────────────────────────────────────────────────────

source("plain")
row("exchange", 64, arange("u32", 64), wrong={1: UNORDERED})
row("sliding", 64, u32(192), out(64), i32(3), wrong={1: UNORDERED})
row("two_barriers", 128, out(128), wrong={1: UNORDERED})
row("handed_over", 64, out(96), i32(3), wrong={1: UNORDERED})
row("lanes", 32, out(32), wrong={1: UNORDERED, 2: UNORDERED})
row("warp_sum", 32, u32(32), wrong={1: UNORDERED})
row("histogram", 64, u32(64), out(16), wrong={1: UNORDERED})
row("global_histogram", 64, u32(256), zero(16), grid=4, wrong={1: GLOBAL})
row("overlapping", 32, out(128), grid=4, wrong={1: GLOBAL})
row("neighbour", 32, u32(64), out(64), grid=2, wrong={1: GLOBAL})
row("last_block", 32, u32(128), empty(128), zero(), out(32), grid=4, wrong={1: GLOBAL})
row(
    "grid_barrier",
    32,
    empty(256),
    zero(),
    grid=4,
    wrong={n: Mistake((GLOBAL,), also=(UNSET,)) for n in (1, 2)},
)
row(
    "stream_k",
    32,
    u32(128),
    empty(128),
    zero(4),
    out(32),
    grid=4,
    wrong={1: GLOBAL, 2: GLOBAL},
)
row("locked", 32, zero(), zero(), grid=5, wrong={1: GLOBAL})
row("double_buffer", 64, u32(320), out(64), i32(5), wrong={1: EARLY, 2: OVERLAP})
row(
    "forgotten_copy",
    32,
    u32(32),
    out(32),
    wrong={1: Mistake((LEAK,), WARNING), 2: Mistake((LEAK,), WARNING)},
)
row("unset_shared", 64, u32(64), out(64), wrong={1: Mistake((UNSET,), "")})
row("unset_tail", 64, u32(40), out(1), i32(40), wrong={1: Mistake((UNSET,), "")})
row("unset_global", 32, empty(32), out(32), wrong={1: UNSET})
row("unset_sum", 32, empty(1), out(1), wrong={1: UNSET})
row(
    "unset_register",
    32,
    u32(32),
    out(32),
    wrong={1: Mistake((UNSET,), ""), 2: Mistake((UNSET,), "")},
)
row("returned", 64, out(32), wrong={1: SHARED})
row("some_warps", 64, out(64), wrong={1: HANGS})
row("cycle", 64, out(64), wrong={1: HANGS})
row("some_lanes", 64, out(64), wrong={1: ALIGNED})
row(
    "some_lanes_load",
    32,
    arange("u32", 32),
    out(32),
    wrong={1: Mistake((ALIGNED,), also=("bounds", "fault"))},
)
row("column", 32, out(32), wrong={1: Mistake((BANKS,), NOTE)})
row("stride_two", 32, out(32), wrong={1: Mistake((BANKS,), NOTE)})

# ── tiles that are not full ─────────────────────────────────────────────────

source("tiles")
UNDEFINED = Mistake((UNSET,), WARNING)
row("dropped", 64, u32(101), out(128), i32(101), wrong={1: UNDEFINED})
row("shuffled", 96, u32(96), out(96), wrong={1: UNDEFINED})
row("scanned", 64, u32(203), out(256), i32(203), wrong={1: UNDEFINED})
row("cancelled", 32, u32(20), out(32), i32(20), wrong={1: UNDEFINED})
row(
    "some_rows",
    32,
    A_TILE,
    B_TILE,
    output("f32", 16, 8),
    i32(11),
    wrong={1: UNDEFINED, 2: UNDEFINED},
)
row("some_columns", 32, A_TILE, B_TILE, output("f32", 16), i32(5), wrong={1: UNDEFINED})
row("decided", 32, u32(20), out(32), i32(20), wrong={1: UNDEFINED})
row("branched", 32, u32(20), out(32), i32(20), wrong={1: UNDEFINED})
row("indexed", 32, u32(20), out(32), i32(20), wrong={1: UNDEFINED})
row("halves", 32, u32(32), out(32), wrong={1: UNDEFINED})
row("voted", 32, u32(20), out(32), i32(20), wrong={1: UNDEFINED})

# ── mbarriers ───────────────────────────────────────────────────────────────

source("barriers")
row("never", 64, out(64), wrong={1: HANGS})
row("circle", 64, out(64), wrong={1: HANGS})
row(
    "unturned",
    64,
    out(64),
    i32(3),
    wrong={1: Mistake((SHARED, DEADLOCK), also=(BARRIER,))},
)
row(
    "too_many",
    32,
    out(32),
    wrong={
        1: Mistake((BARRIER,), "", also=(DEADLOCK,)),
        2: Mistake((BARRIER, DEADLOCK), ""),
    },
)
row("large_count", 32, out(32), wrong={1: MISUSED})
row("before_init", 32, out(32), wrong={1: MISUSED})
row(
    "unordered_init",
    64,
    out(64),
    wrong={1: Mistake((BARRIER, SHARED), also=(DEADLOCK,))},
)
row("init_again", 32, out(32), wrong={1: MISUSED})
row("invalidated", 64, out(32), wrong={1: MISUSED})
row("after_inval", 32, out(32), wrong={1: MISUSED})
row("data_again", 32, out(32))
row("peeked", 32, out(32), wrong={1: MISUSED})
row("no_complete", 32, out(32), wrong={1: MISUSED})
row("remote_wait", 32, out(64), grid=2, cluster=2, wrong={1: MISUSED})
row("forgotten_load", 32, u32(32), out(32), wrong={1: Mistake((LEAK,), "")})
row("copy_before_init", 32, u32(32), out(32), wrong={1: MISUSED})

# ── products ────────────────────────────────────────────────────────────────

source("products")
FLYING = Mistake((FLIGHT,), WARNING)
UNFENCED = Mistake(("missing-wgmma-fence",), WARNING)
row("early_sums", 128, A16, B16, D, wrong={1: FLYING, 2: FLYING})
row("a_in_registers", 128, bits("u32", 512), A16, B16, D, out(128), wrong={1: FLYING})
row("fences", 128, A16, B16, D, wrong={1: UNFENCED, 2: UNFENCED})
row(
    "forgotten_product",
    128,
    A16,
    B16,
    D,
    wrong={1: Mistake((LEAK,), ""), 2: Mistake((LEAK,), "")},
)
row("early_store", 128, A16, B16, D, wrong={1: (WRITE, SHARED), 2: (WRITE, SHARED)})
row(
    "descriptors",
    128,
    A16,
    B16,
    D,
    wrong={
        1: Mistake(("bad-descriptor",), also=(UNSET,)),
        2: "bad-descriptor",
        3: ("bad-descriptor", ALIGNED),
    },
)
row(
    "metadata",
    128,
    A16,
    normal("f16", 256),
    LEGAL,
    D,
    wrong=dict.fromkeys((1, 2), "illegal-metadata"),
)
row("half_operand", 128, A16, B16, D, wrong={1: Mistake((UNSET,), "")})
row("some_threads", 128, A16, B16, D, wrong={1: ALIGNED, 2: (ALIGNED, DEADLOCK)})
row(
    "metadata_register",
    128,
    A16,
    normal("f16", 256),
    LEGAL,
    D,
    wrong={1: FLIGHT, 2: FLIGHT},
)
row("a_registers", 128, normal("f16", 1024), A16, B16, D, wrong={1: FLYING})

# ── clusters ────────────────────────────────────────────────────────────────

source("clusters")
PAIR = {"grid": 2, "cluster": 2}
row("remote_write", 32, out(64), **PAIR, wrong={1: Mistake((SHARED,), also=(UNSET,))})
row("remote_read", 32, out(64), **PAIR, wrong={1: Mistake((SHARED, WRITE))})
row("early_exit", 32, out(32), zero(), **PAIR, wrong={1: SHARED})
row("pushed", 32, out(64), **PAIR, wrong={1: EARLY})
row("sent", 32, out(64), **PAIR, wrong={1: OVERLAP})
row("remote_arrive", 32, out(64), **PAIR, wrong={1: Mistake((SHARED,), also=(UNSET,))})
row(
    "shared_ring",
    96,
    u32(192),
    out(128),
    i32(3),
    **PAIR,
    wrong={1: Mistake((WRITE, READ, SHARED), also=(BARRIER, DEADLOCK))},
)

# ── tensor maps ─────────────────────────────────────────────────────────────

source("maps")
row("box", 128, box_map(2), out(128), u32(16, 32), wrong={1: EARLY, 2: HANGS})
row("stored_box", 128, box_map(1), out(16, 32), wrong={1: FENCE})
row(
    "made_map",
    32,
    u32(16, 32),
    made_map(),
    out(256),
    wrong={1: FENCE, 2: Mistake((WRITE, "bad-tensor-map"), also=(FENCE,))},
)
row(
    "read_map",
    32,
    u32(1),
    made_map(),
    out(512),
    wrong={1: Mistake((WRITE, "bad-tensor-map"), also=(FENCE,))},
)

# ── tensor memory ───────────────────────────────────────────────────────────

source("tensor")
CELLS, LOADED, TENSOR = (
    "tensor-memory-race",
    "tensor-registers-in-flight",
    "tensor-memory",
)
LEFT, RIGHT = (
    integers("f16", 2048, low=-8, high=9),
    integers("f16", 256, low=-8, high=9),
)
SUMS = output("u32", 128, 16)
row(
    "product",
    128,
    LEFT,
    RIGHT,
    SUMS,
    wrong={1: CELLS, 2: CELLS, 3: Mistake((CELLS,), also=(DEADLOCK,))},
)
row("chain", 128, LEFT, RIGHT, SUMS)
row("stored", 128, LEFT, RIGHT, SUMS, wrong={1: CELLS, 2: CELLS})
row("copied_in", 128, LEFT, RIGHT, SUMS, out(1024), wrong={1: CELLS})
row("freed", 128, LEFT, RIGHT, SUMS, wrong={1: (CELLS, TENSOR), 2: CELLS})
row(
    "refilled_operand",
    128,
    LEFT,
    integers("f16", 512, low=-8, high=9),
    SUMS,
    wrong={1: WRITE, 2: (WRITE, SHARED)},
)
row("written_operand", 128, LEFT, RIGHT, SUMS, wrong={1: FENCE, 2: FENCE})
row(
    "unset_cells",
    128,
    LEFT,
    RIGHT,
    SUMS,
    wrong={1: Mistake((UNSET,), WARNING), 2: Mistake((UNSET,), WARNING)},
)
row("allocation", 128, LEFT, RIGHT, SUMS, wrong={1: TENSOR, 2: TENSOR, 3: TENSOR})
row("two_shapes", 128, LEFT, RIGHT, SUMS, wrong={1: CELLS})
row("two_issuers", 128, LEFT, RIGHT, SUMS, wrong={1: CELLS})
row(
    "pipeline",
    192,
    integers("f16", 5 * 2048, low=-8, high=9),
    integers("f16", 5 * 256, low=-8, high=9),
    SUMS,
    i32(5),
    wrong={1: WRITE, 2: Mistake((WRITE, SHARED), also=(BARRIER, DEADLOCK, READ))},
)
row(
    "sums_in_turns",
    160,
    LEFT,
    RIGHT,
    output("u32", 5, 128, 16),
    i32(5),
    wrong={1: CELLS, 2: Mistake((CELLS, DEADLOCK), also=(BARRIER,))},
)

row(
    "counted_by_pairs",
    128,
    box_map(2),
    out(256),
    u32(16, 32),
    grid=4,
    cluster=4,
    wrong={1: EARLY},
)

source("strict")
UNFENCED_CELLS = Mistake(("missing-tensor-fence",), WARNING)
row("fenced", 128, LEFT, RIGHT, SUMS, wrong=dict.fromkeys((1, 2, 3), UNFENCED_CELLS))
row(
    "loaded",
    128,
    LEFT,
    RIGHT,
    SUMS,
    wrong=dict.fromkeys((1, 2), Mistake((LOADED,), WARNING)),
)
row("copied_twice", 128, LEFT, RIGHT, SUMS, wrong={1: Mistake((CELLS,), WARNING)})

# ── rows in sources ─────────────────────────────────────────────────────────

SOURCES = Path(__file__).parent / "sources"


def rows_in(text: str) -> list[str]:
    """The rows in the comments of a source, as the arguments of :func:`row`.

    >>> rows_in('// row: "f", 32,\\n//      out(32)\\nKERNEL f(u32 *out)')
    ['"f", 32, out(32)']
    """
    found = re.findall(r"^// row: (.*(?:\n//  +.*)*)", text, re.M)
    return [re.sub(r"\n//  +", " ", each) for each in found]


for _path in sorted(SOURCES.glob("*.cu")):
    if _path.stem not in {each.source for each in ROWS}:
        source(_path.stem)
        for _row in rows_in(_path.read_text("utf-8")):
            eval(f"row({_row})", {**globals(), "np": np})


def cases() -> list[Case]:
    """Every launch."""
    return [Case(each, bug) for each in ROWS for bug in (0, *each.mistakes)]
