"""The instructions that are emitted, and which of them are compiled."""

from fragmenta import catalogue
from fragmenta.cuda.source.access import FragmentAccess

TENSOR = [op for op in catalogue() if op.family.startswith("tcgen05")]
OPS = [op for op in catalogue() if not op.family.startswith("tcgen05")]
WGMMA = [op for op in OPS if op.family.startswith("wgmma")]
OTHERS = [op for op in OPS if not op.family.startswith("wgmma")]

# Widths of wgmma that stand for all: the least, one that is no power of two,
# the most.
WIDTHS = (8, 24, 256)


def forms(op):
    """A wgmma is emitted twice: with A in shared memory, with A in registers."""
    return (False, True) if op.family.startswith("wgmma") else (False,)


def memory_type(part):
    """What a pointer to a fragment's elements in memory points to."""
    memory = FragmentAccess(part, "row")
    if memory.typed:
        return memory.register
    return {8: "unsigned char", 16: "unsigned short", 32: "unsigned"}.get(
        memory.bits, "void"
    )
