"""PTX kernels that run one instruction on many tiles.

Each kernel has one instruction.  A block computes one tile: it takes its
registers, descriptors and addresses from arrays (tiles, …), runs the instruction
and stores the result.  An instruction that uses shared memory also gets an image
of it; addresses count from the image's first byte, which lies at a multiple of
1024, and the kernel adds where that is.
"""

from __future__ import annotations

from fragmenta.cuda.source import ptx
from fragmenta.cuda.source.kernel import WARP, KernelBuilder, add_wgmma
from fragmenta.errors import BadCall, ShapeError, one_of
from fragmenta.reference.isa.families import IN_REGISTERS
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.shared.descriptor import UNIT

MOST = 48 * 1024
"""Bytes of shared memory that a kernel may have without asking at launch."""

MOVES = {
    "ldmatrix": ("d", "address", "image"),
    "stmatrix": ("d", "a", "address", "image"),
    "movmatrix": ("d", "a"),
}
"""The parameters of each move."""


def parameters(op: Instruction, *, a_registers: bool = False) -> tuple[str, ...]:
    """The arrays a kernel takes, in order; ``d`` is what it writes.

    Each is (tiles, …): registers (tiles, lanes, n); descriptors, for ``a`` and
    ``b`` of wgmma, one 64-bit word a tile; ``scale_d`` one 32-bit word a tile;
    ``address`` (tiles, 32); ``image`` (tiles, bytes).

    >>> import fragmenta as fm
    >>> parameters(fm.mma("m16n8k32", a="s8"))
    ('d', 'a', 'b', 'c')
    >>> parameters(fm.wgmma("m64n8k16", a="f16", d="f32"))
    ('d', 'c', 'a', 'b', 'scale_d', 'image')
    >>> parameters(fm.find("stmatrix.m8n8.x4.b16"))
    ('d', 'a', 'address', 'image')
    """
    if op.family in MOVES:
        return MOVES[op.family]
    listed = ptx.operands(op, a_registers=a_registers)
    names = [each.name for each in listed if each.ptx != "immediate"]
    if op.warp:
        return tuple(names)
    if op.warpgroup:
        wanted = ["d", "c", "a", "b", "metadata", "scale_d"]
        return (*(w for w in wanted if w in names or w == "c"), "image")
    known = one_of([*IN_REGISTERS, *MOVES])
    raise BadCall(f"there is no kernel here for {op}; it is one of {known}")


def entry(
    op: Instruction,
    name: str,
    *,
    image_bytes: int = 0,
    a_registers: bool = False,
    **immediates: int,
) -> str:
    """A kernel that runs the instruction once for each block.

    ``immediates`` are those that the instruction has, at their defaults unless
    given.  A block has 128 threads for wgmma, else 32.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="s8")
    >>> text = entry(op, "one", image_bytes=4096)
    >>> [line.strip() for line in text.splitlines() if "wgmma." in line][1][:60]
    'wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%d0, %d1, %'
    """
    names = parameters(op, a_registers=a_registers)
    if "image" in names and (image_bytes % UNIT or not 0 < image_bytes <= MOST):
        raise ShapeError(
            f"an image is a multiple of {UNIT} bytes, at most {MOST}; given "
            f"{image_bytes}"
        )
    chosen = ptx.immediates(op, immediates, a_registers=a_registers)
    made = KernelBuilder(name)
    made.pointers(names)
    if op.warpgroup:
        add_wgmma(
            made,
            op,
            image_bytes=image_bytes,
            a_registers=a_registers,
            immediates=chosen,
        )
    else:
        _add_warp(made, op, image_bytes, chosen)
    return made.text()


def _add_warp(
    made: KernelBuilder, op: Instruction, size: int, immediates: dict[str, int]
) -> None:
    """One instruction of a warp, on registers or between them and shared memory."""
    listed = {each.name: each for each in op.operands if each.ptx != "immediate"}
    made.declare(listed.values())
    if "address" in listed:
        made.image(size)
    made.tiles(WARP)
    if "address" in listed:
        made.point("image", "%tile", size)
        made.copy("in", size, WARP)
        made.do("bar.sync 0;")
        _add_address(made, op)
    for name, each in listed.items():
        if name not in ("d", "address"):
            made.load(each)
    made.do(ptx.statement(op, a_registers=False, options=ptx.PLAIN, **immediates))
    if op.stores:
        made.do("bar.sync 0;")
        made.point("d", "%tile", size)
        made.copy("out", size, WARP)
    else:
        made.store(listed["d"])


def _add_address(made: KernelBuilder, op: Instruction) -> None:
    """This lane's address; a generic one where no state space is named."""
    made.point("address", "%place", 4)
    made.do(
        "ld.global.u32 %word, [%base];",
        "add.u32 %word, %word, %shared;",
        "cvt.u64.u32 %address, %word;",
    )
    if not op.values["space"]:
        made.do("cvta.shared.u64 %address, %address;")
