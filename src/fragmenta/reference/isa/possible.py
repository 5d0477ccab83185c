"""The shapes and types that an instruction descriptor may give a ``tcgen05.mma``.

The mnemonic says the kind only.  These functions list what it leaves open, from the rows
of :mod:`fragmenta.reference.isa.tcgen05_shapes`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.reference.isa.instruction import Instruction, Shape
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND, WIDE_K, sizes

# The qualifiers that are types; stype is that of block scales, type of moves.
TYPES = ("d", "a", "b", "c", "stype", "type")


def types_of(op: Instruction) -> dict[str, str]:
    """The type qualifiers of an instruction, those of scales and moves included.

    >>> from fragmenta.reference.isa.reading import instruction
    >>> types_of(instruction("movmatrix.sync.aligned.m8n8.trans.b16"))
    {'type': 'b16'}
    """
    return {name: op.values[name] for name in TYPES if op.values.get(name)}


def possible_types(op: Instruction) -> tuple[str, ...]:
    """Every type that a descriptor may give a mnemonic.

    >>> from fragmenta.reference.isa.reading import instruction
    >>> possible_types(instruction("tcgen05.mma.cta_group::1.kind::f16"))
    ('f16', 'bf16', 'f32')
    """
    row = OF_KIND.get(op.kind or "")
    if row is None or not op.tensor_memory:
        return ()
    scales = ["ue8m0"] if op.scale_vec else []
    scales += ["ue4m3"] if op.kind == "mxf4nvf4" else []
    return tuple(dict.fromkeys((*row.operands, *row.results, *scales)))


def possible_shapes(op: Instruction) -> Iterator[Shape]:
    """Every shape that a descriptor may give a mnemonic.

    >>> from fragmenta.reference.isa.reading import instruction
    >>> next(possible_shapes(instruction("tcgen05.mma.cta_group::1.kind::f16")))
    Shape(m=64, n=8, k=16)
    """
    for m, ns, k in possible_sizes(op):
        for n in ns:
            yield Shape(m, n, k)


def possible_sizes(op: Instruction) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """M, the values of N, and K.

    >>> from fragmenta.reference.isa.reading import instruction
    >>> op = instruction("tcgen05.mma.cta_group::1.kind::f16")
    >>> [(m, ns[-1], k) for m, ns, k in possible_sizes(op)]
    [(64, 256, 16), (128, 256, 16)]
    """
    kind = op.kind or ""
    if kind not in OF_KIND or not op.tensor_memory:
        return
    for wide in (False, True):
        k = WIDE_K if wide else OF_KIND[kind].k[op.sparse]
        found = sizes(kind, op.cta_group or 1, ws=op.ws, sparse=op.sparse, wide=wide)
        for m, ns in found.items():
            yield m, ns, k
