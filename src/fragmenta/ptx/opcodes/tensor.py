"""The opcodes of the Tensor Cores, and what their instructions do.

The catalogue in :mod:`fragmenta.reference.isa` says what they look like; the table of opcodes
has no lines for them.
"""

from __future__ import annotations

from functools import cache

from fragmenta.ptx.opcodes.table import BitKind
from fragmenta.reference.isa.table import read

# The longest name counts.
_KINDS = """
instruction     | kind
mma             | multiplies
wmma.mma        | multiplies
wmma.load       | loads
wmma.store      | stores
wgmma.mma_async | multiplies
wgmma           | synchronises
tcgen05.mma     | multiplies
tcgen05.ld      | loads
tcgen05.st      | stores
tcgen05.cp      | copies
tcgen05.shift   | copies
tcgen05.commit  | synchronises
tcgen05.wait    | synchronises
tcgen05.fence   | synchronises
tcgen05         | manages
ldmatrix        | loads
stmatrix        | stores
movmatrix       | exchanges
spcompress      | computes
spdecompress    | computes
"""
NAMES = {line["instruction"]: BitKind(line["kind"]) for line in read(_KINDS)}
TENSOR = frozenset(name.partition(".")[0] for name in NAMES)
"""The opcodes whose instructions the catalogue has."""


@cache
def tensor_kind(mnemonic: str) -> BitKind:
    """What an instruction of the catalogue does.

    >>> tensor_kind("tcgen05.wait::ld.sync.aligned").word
    'synchronises'
    """
    begun = [name for name in NAMES if mnemonic.startswith(name)]
    return NAMES[max(begun, key=len)]
