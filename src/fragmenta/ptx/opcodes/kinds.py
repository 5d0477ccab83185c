"""What an instruction does to bits: one question to the table, for all who follow bits.

The kinds are in :data:`fragmenta.ptx.opcodes.table.KINDS`.
"""

from __future__ import annotations

from functools import cache

from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.table import COMPUTING, BitKind
from fragmenta.ptx.opcodes.tensor import NAMES, TENSOR, tensor_kind

UNKNOWN = BitKind("manages")
"""What is in no table: nothing is known of it."""


@cache
def kind_of(mnemonic: str, count: int | None = None) -> BitKind:
    """What an instruction does; ``count`` is the number of its operands.

    If its words stand in another order than in the table, all lines of its opcode that
    compute have to agree.

    >>> kind_of("shl.b32"), kind_of("xor.b32").table
    (BitKind(word='moves', controls=(2,), table=None), 102)
    >>> kind_of("add.s32").word, kind_of("add.sat.s32").word, kind_of("add.f32").word
    ('carries', 'computes', 'computes')
    """
    opcode = mnemonic.partition(".")[0]
    if opcode in TENSOR:
        return tensor_kind(mnemonic)
    found = TABLE.find(mnemonic, count)
    if found is not None:
        return found.kind
    kinds = {each.does[0] for each in TABLE.lines.get(opcode, ())}
    if len(kinds) == 1 and not kinds & COMPUTING:
        return BitKind(kinds.pop())
    return BitKind("computes") if kinds and kinds <= COMPUTING else UNKNOWN


def computes(mnemonic: str) -> bool:
    """Whether all that an instruction does is to compute in each lane.

    >>> computes("add.u32"), computes("st.global.u32")
    (True, False)
    """
    return kind_of(mnemonic).word in COMPUTING


@cache
def opcodes_of(*kinds: str) -> frozenset[str]:
    """The opcodes that have instructions of some kinds.

    >>> sorted(opcodes_of("branches")), "atom" in opcodes_of("loads", "updates")
    (['bra', 'brx'], True)
    """
    plain = {
        opcode
        for opcode, lines in TABLE.lines.items()
        if any(line.does[0] in kinds for line in lines)
    }
    tensor = {n.partition(".")[0] for n, kind in NAMES.items() if kind.word in kinds}
    return frozenset(plain | tensor)
