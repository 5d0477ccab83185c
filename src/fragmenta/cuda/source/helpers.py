"""Small CUDA functions that several generated functions call.

Each of them is written once, however many functions call it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import cache

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.source import tensor_helpers
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.instruction_descriptor import TABLES
from fragmenta.reference.isa.table import read
from fragmenta.reference.shared.descriptor import FIELDS, Descriptor


@dataclass(frozen=True)
class Snippet:
    """A piece of CUDA source with a unique name.

    >>> [piece.name for piece in needed([Snippet("mine", "", needs=("lane_id",))])]
    ['lane_id']
    """

    name: str
    text: str = field(repr=False)
    needs: tuple[str, ...] = ()
    """The helpers that the text calls."""
    targets: str = ""
    """The targets that can compile it, in a table's words; empty: all."""
    defines: tuple[str, ...] = ()
    """Functions of instructions that the text already contains."""


def needed(pieces: Iterable[Snippet]) -> list[Snippet]:
    """The helpers that some pieces call, in the order to write them."""
    names = {name for piece in pieces for name in piece.needs}
    return [piece for piece in helpers() if piece.name in names]


@cache
def helpers() -> tuple[Snippet, ...]:
    """Every helper.

    >>> [piece.name for piece in helpers()][:8]
    ['lane_id', 'warp_id', 'nibble', 'bit', 'wgmma', 'elect_one', 'mbarrier', 'cluster']
    """
    blackwell = tensor_helpers.TARGETS
    return (
        Snippet("lane_id", _LANE_ID),
        Snippet("warp_id", _WARP_ID),
        Snippet("nibble", _NIBBLE),
        Snippet("bit", _BIT),
        Snippet("wgmma", f"{_WGMMA}\n{_descriptor()}", (), "sm_90a", _ORDERING),
        *(Snippet(name, text, (), "sm_90+") for name, text in tensor_helpers.HOPPER),
        Snippet("tcgen05_hold", tensor_helpers.HOLD, (), blackwell),
        Snippet("tcgen05_descriptor", tensor_helpers.descriptor(), (), blackwell),
        *(
            Snippet(f"tcgen05_idesc_{kind}", tensor_helpers.idesc(kind), (), blackwell)
            for kind in TABLES
        ),
        Snippet("fill_tile", tensor_helpers.FILL),
        Snippet("packed_units", tensor_helpers.PACKED),
    )


def tensor_needs(op: Instruction) -> tuple[str, ...]:
    """The helpers that make the descriptors of an instruction of ``tcgen05``.

    >>> import fragmenta as fm
    >>> tensor_needs(fm.tcgen05("m128n64k32", a="s8"))
    ('tcgen05_descriptor', 'tcgen05_idesc_i8')
    """
    if op.moves == "copy":
        return ("tcgen05_descriptor",)
    if not op.tensor_memory:
        return ()
    known = [f"tcgen05_idesc_{op.kind}"] if op.kind in TABLES else []
    return ("tcgen05_descriptor", *known)


_ORDERING = (
    "wgmma_fence",
    "wgmma_commit_group",
    "wgmma_wait_group",
    "fence_proxy_async",
)

_LANE_ID = """\
// This thread's place in its warp: 0 to 31.
__device__ __forceinline__ int lane_id()
{
    int lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
"""

_WARP_ID = """\
// This warp's place in its warpgroup, four warps in a row: 0 to 3.
__device__ __forceinline__ int warp_id()
{
    int rank = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    return (rank >> 5) & 3;
}
"""

_NIBBLE = """\
// Element `index` of memory that packs two elements in a byte, low bits first.
__device__ __forceinline__ unsigned nibble(const void* memory, int index)
{
    unsigned byte = static_cast<const unsigned char*>(memory)[index >> 1];
    return (byte >> 4 * (index & 1)) & 0xf;
}
"""

_BIT = """\
// Element `index` of memory that packs eight elements in a byte, low bits first.
__device__ __forceinline__ unsigned bit(const void* memory, int index)
{
    unsigned byte = static_cast<const unsigned char*>(memory)[index >> 3];
    return (byte >> (index & 7)) & 0x1;
}
"""

_WGMMA = """\
// wgmma runs on its own, in groups. In this order: write shared memory,
// fence_proxy_async, a barrier; wgmma_hold(d), wgmma_fence, one or more wgmma,
// wgmma_commit_group; wgmma_wait_group<0>, wgmma_hold(d); and only then read d, or
// write the registers of a.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most `pending` of the newest groups are still running.
template <int pending>
__device__ __forceinline__ void wgmma_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Make what this thread wrote to shared memory visible to wgmma and tcgen05.
__device__ __forceinline__ void fence_proxy_async()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

// Keep the compiler from moving uses of registers across this line.
__device__ __forceinline__ void wgmma_hold(float& d)
{
    asm volatile("" : "+f"(d)::"memory");
}

__device__ __forceinline__ void wgmma_hold(int& d)
{
    asm volatile("" : "+r"(d)::"memory");
}

__device__ __forceinline__ void wgmma_hold(unsigned& d)
{
    asm volatile("" : "+r"(d)::"memory");
}

template <typename Register, int count>
__device__ __forceinline__ void wgmma_hold(Register (&d)[count])
{
    #pragma unroll
    for (int r = 0; r < count; ++r) wgmma_hold(d[r]);
}
"""


def _descriptor() -> str:
    """A function that makes descriptors, from the table of their fields."""
    modes = {size: Descriptor(0, 0, 0, size).encode() >> 62 for size in (128, 64, 32)}
    chosen = "\n        : ".join(
        f"swizzle == {s} ? {mode}" for s, mode in modes.items()
    )
    terms = []
    for line in read(FIELDS):
        name = {"start": "address", "swizzle": "mode"}.get(line["field"], line["field"])
        if name == "base_offset":  # always 0 where the pattern begins
            continue
        mask, low = (1 << int(line["bits"])) - 1, int(line["low"])
        value = name if name == "mode" else f"{name} / {line['unit']}"
        term = f"({value} & {mask:#x}ull)"
        terms.append(f"{term} << {low}" if low else term)
    text = "\n        | ".join(terms)
    return f"""\
// The descriptor of an operand in shared memory. leading and stride: its offsets in
// bytes; swizzle: 0, 32, 64 or 128 bytes. The operand begins where the swizzle's
// pattern does.
__device__ __forceinline__ unsigned long long wgmma_descriptor(
    const void* start, unsigned leading, unsigned stride, int swizzle)
{{
    unsigned long long mode = {chosen}
        : 0;
    unsigned long long address = __cvta_generic_to_shared(start);
    return {text};
}}
"""
