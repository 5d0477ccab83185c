"""How does a GPU run one instruction that reads shared memory?

Kernels in PTX for ``wgmma``, ``ldmatrix``, ``stmatrix`` and ``movmatrix``, one
instruction in each.  A block is a tile: it copies its image of shared memory
from global memory, takes its registers and addresses from arrays, runs the
instruction and stores what came of it.  Addresses count from the image's first
byte, which lies at a multiple of 1024; the kernel adds where that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fragmenta.cuda.source import ptx
from fragmenta.errors import Error
from fragmenta.isa.instruction import Instruction
from fragmenta.shared.descriptor import UNIT

WARP = 32
WARPGROUP = 128
MOST = 48 * 1024
"""Bytes of shared memory that a kernel may have without asking at launch."""


def parameters(op: Instruction, *, a_registers: bool = False) -> tuple[str, ...]:
    """The arrays a kernel takes, in order; ``d`` is what it writes.

    Each is (tiles, …): registers (tiles, lanes, n); descriptors, for ``a`` and
    ``b`` of wgmma, one 64-bit word a tile; ``scale_d`` one 32-bit word a tile;
    ``address`` (tiles, 32); ``image`` (tiles, bytes).

    >>> import fragmenta as fm
    >>> parameters(fm.wgmma("m64n8k16", a="f16", d="f32"))
    ('d', 'c', 'a', 'b', 'scale_d', 'image')
    >>> parameters(fm.find("stmatrix.m8n8.x4.b16"))
    ('d', 'a', 'address', 'image')
    """
    if op.family.startswith("wgmma"):
        listed = [each.name for each in ptx.operands(op, a_registers=a_registers)]
        wanted = ["d", "c", "a", "b", "metadata", "scale_d"]
        return (*(w for w in wanted if w in listed or w == "c"), "image")
    moves = {
        "ldmatrix": ("d", "address", "image"),
        "stmatrix": ("d", "a", "address", "image"),
        "movmatrix": ("d", "a"),
    }
    if op.family not in moves:
        raise Error(
            f"there is no kernel here for {op}; it is one of {', '.join(moves)}"
        )
    return moves[op.family]


def entry(
    op: Instruction,
    name: str,
    *,
    image_bytes: int = 0,
    a_registers: bool = False,
    **immediates: int,
) -> str:
    """A kernel that runs the instruction once for each block.

    ``immediates`` are wgmma's: scale_a, scale_b (1 unless given), trans_a,
    trans_b and selector (0).  The block has 128 threads for wgmma, else 32.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="s8")
    >>> text = entry(op, "one", image_bytes=4096)
    >>> [line.strip() for line in text.splitlines() if "wgmma" in line][1][:60]
    'wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%d0, %d1, %'
    """
    names = parameters(op, a_registers=a_registers)
    if "image" in names and (image_bytes % UNIT or not 0 < image_bytes <= MOST):
        raise Error(
            f"an image is a multiple of {UNIT} bytes, at most {MOST}; given "
            f"{image_bytes}"
        )
    if op.family.startswith("wgmma"):
        body = _wgmma(op, image_bytes, a_registers, immediates)
    else:
        body = _move(op, image_bytes)
    params = ",\n    ".join(f".param .u64 p_{each}" for each in names)
    lines = "\n".join(f"    {line}" for line in [*body, "ret;"])
    return f".visible .entry {name}(\n    {params})\n{{\n{lines}\n}}\n"


def module(entries: Iterable[str], ops: Sequence[Instruction], target: str) -> str:
    """A PTX module of kernels, in the first version that has them all.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="s8")
    >>> print(module([entry(op, "one", image_bytes=4096)], [op], "sm_90a")[:30])
    .version 8.0
    .target sm_90a
    ...
    """
    version = max(op.requires.ptx_on(target) for op in ops)
    return ptx.header(target, version) + "".join(entries)


# ── the parts of a kernel ───────────────────────────────────────────────────


def _wgmma(
    op: Instruction, size: int, a_registers: bool, immediates: dict[str, int]
) -> list[str]:
    listed = {each.name: each for each in ptx.operands(op, a_registers=a_registers)}
    chosen = {
        each.name: immediates.get(each.name, 1 if each.name.startswith("scale") else 0)
        for each in listed.values()
        if each.ptx == "immediate"
    }
    unknown = set(immediates) - set(chosen)
    if unknown:
        raise Error(f"{op} has no immediate {min(unknown)}")
    lines = [
        *ptx.declarations(op, a_registers=a_registers),
        *_preamble(WARPGROUP, size),
        *_copy_in(WARPGROUP, size),
        # What this thread wrote must be seen by the unit that wgmma reads with.
        "fence.proxy.async;",
        "bar.sync 0;",
        *ptx.move("ld", listed["d"], "c"),
    ]
    if a_registers:
        lines += ptx.move("ld", listed["a"], "a")
    else:
        lines += _descriptor("a")
    lines += _descriptor("b")
    if op.sparse:
        lines += ptx.move("ld", listed["metadata"], "metadata")
    return [
        *lines,
        *_per_tile("scale_d", 4),
        "ld.global.u32 %word, [%base];",
        "setp.ne.u32 %scale_d, %word, 0;",
        "wgmma.fence.sync.aligned;",
        ptx.statement(op, a_registers=a_registers, **chosen),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        *ptx.move("st", listed["d"], "d"),
    ]


def _move(op: Instruction, size: int) -> list[str]:
    listed = {each.name: each for each in op.operands}
    lines = [*ptx.declarations(op), *_preamble(WARP, size)]
    if op.family != "movmatrix":
        lines += [*_copy_in(WARP, size), "bar.sync 0;", *_address(op)]
    if "a" in listed:
        lines += ptx.move("ld", listed["a"], "a")
    lines.append(ptx.statement(op))
    if op.family == "stmatrix":
        return [*lines, "bar.sync 0;", *_copy_out(WARP, size)]
    return [*lines, *ptx.move("st", listed["d"], "d")]


def _preamble(block: int, size: int) -> list[str]:
    shared = [f".shared .align 1024 .b8 image[{size}];"] if size else []
    return [
        *shared,
        ".reg .u64 %base, %offset, %global;",
        ".reg .u32 %tile, %thread, %place, %word, %shared, %at, %to, %v<4>;",
        ".reg .pred %done;",
        "mov.u32 %tile, %ctaid.x;",
        "mov.u32 %thread, %tid.x;",
        f"mad.lo.u32 %place, %tile, {block}, %thread;",
        *(["mov.u32 %shared, image;"] if size else []),
    ]


def _per_tile(name: str, size: int) -> list[str]:
    """%base becomes the address of this tile's item."""
    return [
        f"ld.param.u64 %base, [p_{name}];",
        "cvta.to.global.u64 %base, %base;",
        f"mul.wide.u32 %offset, %tile, {size};",
        "add.u64 %base, %base, %offset;",
    ]


def _copy_in(block: int, size: int) -> list[str]:
    move = [
        "ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%global];",
        "st.shared.v4.u32 [%to], {%v0, %v1, %v2, %v3};",
    ]
    return _copy("in", "image", move, block, size)


def _copy_out(block: int, size: int) -> list[str]:
    move = [
        "ld.shared.v4.u32 {%v0, %v1, %v2, %v3}, [%to];",
        "st.global.v4.u32 [%global], {%v0, %v1, %v2, %v3};",
    ]
    return _copy("out", "d", move, block, size)


def _copy(label: str, name: str, move: list[str], block: int, size: int) -> list[str]:
    """All threads together move an image, 16 bytes each at a time."""
    return [
        *_per_tile(name, size),
        f"shl.b32 %at, %thread, {UNIT.bit_length() - 1};",
        f"{label}:",
        f"setp.ge.u32 %done, %at, {size};",
        f"@%done bra {label}_done;",
        "cvt.u64.u32 %offset, %at;",
        "add.u64 %global, %base, %offset;",
        "add.u32 %to, %shared, %at;",
        *move,
        f"add.u32 %at, %at, {block * UNIT};",
        f"bra {label};",
        f"{label}_done:",
    ]


def _descriptor(name: str) -> list[str]:
    """This tile's descriptor, its start moved to where the image is."""
    return [
        *_per_tile(name, 8),
        f"ld.global.b64 %{name}, [%base];",
        "shr.u32 %word, %shared, 4;",
        "cvt.u64.u32 %offset, %word;",
        f"add.u64 %{name}, %{name}, %offset;",
    ]


def _address(op: Instruction) -> list[str]:
    """This lane's address; a generic one where no state space is named."""
    generic = [] if op.values["space"] else ["cvta.shared.u64 %address, %address;"]
    return [
        "ld.param.u64 %base, [p_address];",
        "cvta.to.global.u64 %base, %base;",
        "mul.wide.u32 %offset, %place, 4;",
        "add.u64 %base, %base, %offset;",
        "ld.global.u32 %word, [%base];",
        "add.u32 %word, %word, %shared;",
        "cvt.u64.u32 %address, %word;",
        *generic,
    ]
