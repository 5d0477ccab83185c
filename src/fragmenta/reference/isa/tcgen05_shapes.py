"""The shapes and types of ``tcgen05.mma``.

The mnemonic says the kind, and the instruction descriptor says M, N and the types.
The assembler does not look into descriptors, so these rows rest on the manual alone.
K is never written: it follows from the kind and from sparsity.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from fragmenta.reference.isa.table import read

# "K" has the dense and the sparse K.  Sources are the tables of the PTX manual, version
# 9.1 (M91) or 9.3 (M93).
KINDS = """
kind     | K       | A and B                  | D       | source
f16      | 16 / 32 | f16 bf16                 | f16 f32 | M91 table 39, M93 table 42
tf32     | 8 / 16  | tf32                     | f32     | M91 table 39, M93 table 42
f8f6f4   | 32 / 64 | e4m3 e5m2 e2m3 e3m2 e2m1 | f16 f32 | M91 table 39, M93 table 42
i8       | 32 / 64 | s8 u8                    | s32     | M91 table 39, M93 table 42
mxf8f6f4 | 32 / 64 | e4m3 e5m2 e2m3 e3m2 e2m1 | f32     | M91 table 39, M93 table 42
mxf4     | 64 / 128 | e2m1                    | f32     | M91 table 39, M93 table 42
mxf4nvf4 | 64 / 128 | e2m1                    | f32     | M91 table 39, M93 table 42
"""

# The values of N for each M.  "8..256/8" means 8 to 256 in steps of 8.
#
# Sources disagree about the step of N.  The manual of 9.1 and 9.3 has steps of 8
# (one CTA) and 16 (a pair) for f16, tf32 and f8f6f4.  CUTLASS has steps of 16 at
# M = 128 and of 32 in a pair where A is in tensor memory.  TVM and readers of the
# manual of 9.4 have 8 at M = 64, 16 at M = 128 and 32 in a pair everywhere.  The rows
# here are the last ones: what all sources allow.
SIZES = """
kinds              | group | form   | M   | N
f16 tf32 f8f6f4    | 1     | plain  | 64  | 8..256/8
f16 tf32 f8f6f4    | 1     | plain  | 128 | 16..256/16
f16 tf32 f8f6f4    | 2     | plain  | 128 | 32..256/32
f16 tf32 f8f6f4    | 2     | plain  | 256 | 32..256/32
i8                 | 1     | plain  | 64  | 8 16 24 32..256/16
i8                 | 1     | plain  | 128 | 8 16 24 32..256/16
i8                 | 2     | plain  | 128 | 32..256/32
i8                 | 2     | plain  | 256 | 32..256/32
mxf8f6f4 mxf4 mxf4nvf4 | 1 | plain  | 128 | 8..256/8
mxf8f6f4 mxf4 mxf4nvf4 | 2 | dense  | 128 | 16..256/16
mxf8f6f4 mxf4 mxf4nvf4 | 2 | plain  | 256 | 16..256/16
f16 tf32 f8f6f4 i8 | 1     | ws     | 32  | 64 128 256
f16 tf32 f8f6f4 i8 | 1     | ws     | 64  | 64 128 256
f16 tf32 f8f6f4 i8 | 1     | ws     | 128 | 64 128 256
f16 tf32 f8f6f4 i8 | 1     | ws.sp  | 32  | 64 128
f16 tf32 f8f6f4 i8 | 1     | ws.sp  | 64  | 64 128
f16 tf32 f8f6f4 i8 | 1     | ws.sp  | 128 | 64 128
"""

# K = 96 (dense): the manual lists it for a pair with M = 256 only.  CUTLASS and TVM have
# it for one CTA with M = 128, too, with N in steps of 16.
WIDE = """
kinds         | group | form  | M   | N
mxf4 mxf4nvf4 | 1     | dense | 128 | 16..256/16
mxf4 mxf4nvf4 | 2     | dense | 256 | 16..256/16
"""
WIDE_K = 96
WIDE_TARGETS = ("sm_103a", "sm_107a")


class MmaKind(NamedTuple):
    """One row of :data:`KINDS`."""

    k: tuple[int, int]
    operands: tuple[str, ...]
    results: tuple[str, ...]
    source: str


def _kinds() -> Iterator[tuple[str, MmaKind]]:
    for line in read(KINDS):
        dense, sparse = (int(k) for k in line["K"].split("/"))
        operands, results = line["A and B"].split(), line["D"].split()
        yield (
            line["kind"],
            MmaKind((dense, sparse), tuple(operands), tuple(results), line["source"]),
        )


OF_KIND: dict[str, MmaKind] = dict(_kinds())


@cache
def sizes(
    kind: str, group: int, *, ws: bool = False, sparse: bool = False, wide: bool = False
) -> dict[int, tuple[int, ...]]:
    """The values of N for each M; empty if there are none.

    >>> list(sizes("f16", 2)), sizes("f16", 1, ws=True)[32]
    ([128, 256], (64, 128, 256))
    """
    forms = {"ws.sp" if sparse else "ws"}
    if not ws:
        forms = {"plain", "sparse" if sparse else "dense"}
    found: dict[int, tuple[int, ...]] = {}
    for line in read(WIDE if wide else SIZES):
        if (
            kind in line["kinds"].split()
            and int(line["group"]) == group
            and line["form"] in forms
        ):
            found[int(line["M"])] = tuple(_numbers(line["N"]))
    return found


def _numbers(text: str) -> Iterator[int]:
    for word in text.split():
        if ".." not in word:
            yield int(word)
            continue
        ends, step = word.split("/")
        first, last = (int(end) for end in ends.split(".."))
        yield from range(first, last + 1, int(step))


def transposed_step(group: int) -> int:
    """The step of N if B has 8-bit elements and is N-major (M91 table 52)."""
    return 16 * group


# ── layouts of D ────────────────────────────────────────────────────────────

# M is that of the pair for a group of 2.  ``row`` are the lanes of a row, lowest first.
# Where a row has fewer lanes than there are, ``parts`` of N are in the other lanes, or
# the address chooses the ``base``.
_LAYOUTS = """
letter | M   | group | form   | row                     | parts | base
A      | 256 | 2     | plain  | T0 T1 T2 T3 T4 T5 T6 P0 |       |
B      | 128 | 2     | dense  | T0 T1 T2 T3 T4 T5 P0    | T6    |
C      | 128 | 2     | sparse | T0 T1 T2 T3 T5 T6 P0    |       | T4
D      | 128 | 1     | any    | T0 T1 T2 T3 T4 T5 T6    |       |
E      | 64  | 1     | ws     | T0 T1 T2 T3 T4 T5       | T6    |
F      | 64  | 1     | plain  | T0 T1 T2 T3 T5 T6       |       | T4
G      | 32  | 1     | ws     | T0 T1 T2 T3 T4          | T5 T6 |
"""
#: The lanes of the rows of D, by the manual's letter.
LAYOUTS = {line["letter"]: line for line in read(_LAYOUTS)}


def layout_letter(m: int, group: int, ws: bool, sparse: bool) -> str:
    """The letter of the layout of D.

    >>> layout_letter(64, 1, ws=False, sparse=False)
    'F'
    """
    forms = {"any", "ws" if ws else "plain", "sparse" if sparse else "dense"}
    found = [
        letter
        for letter, line in LAYOUTS.items()
        if (int(line["M"]), int(line["group"])) == (m, group) and line["form"] in forms
    ]
    (letter,) = found
    return letter
