"""Small CUDA functions that code for ``tcgen05`` needs besides the instructions.

Some make descriptors, from the tables of their fields.  Others elect a thread, wait at
mbarriers and fill shared memory.
"""

from __future__ import annotations

from fragmenta.cuda.source.formatting import comment, signature
from fragmenta.reference.isa.instruction_descriptor import TABLES, type_codes
from fragmenta.reference.isa.table import read
from fragmenta.reference.shared.fields import CONSTANT, MODES_OF, TCGEN05_FIELDS
from fragmenta.reference.shared.swizzles import pattern

TARGETS = "100a/f 110a/f"
"""The targets that have ``tcgen05``."""

_ELECT = """\
// Whether this is the one thread of its warp that is chosen. All threads of the warp
// ask together.
__device__ __forceinline__ bool elect_one()
{
    unsigned chosen;
    asm volatile(
        "{\\n"
        "  .reg .pred chosen;\\n"
        "  elect.sync _|chosen, 0xffffffff;\\n"
        "  selp.b32 %0, 1, 0, chosen;\\n"
        "}\\n"
        : "=r"(chosen));
    return chosen;
}
"""

_MBARRIER = """\
// One thread initialises an mbarrier in shared memory. A barrier comes before its use.
__device__ __forceinline__ void mbarrier_init(unsigned long long* mbar, unsigned count)
{
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(mbar));
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;\\n"
        "fence.mbarrier_init.release.cluster;\\n"
        :
        : "r"(address), "r"(count)
        : "memory");
}

// Wait for the end of the phase with this parity: 0 for the first one, 1 for the next.
__device__ __forceinline__ void mbarrier_wait(unsigned long long* mbar, unsigned parity)
{
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(mbar)), done = 0;
    while (!done) {
        asm volatile(
            "{\\n"
            "  .reg .pred done;\\n"
            "  mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\\n"
            "  selp.b32 %0, 1, 0, done;\\n"
            "}\\n"
            : "=r"(done)
            : "r"(address), "r"(parity)
            : "memory");
    }
}
"""

_CLUSTER = """\
// This CTA's place in its cluster.
__device__ __forceinline__ int cluster_rank()
{
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Wait for all threads of the cluster.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\\n"
        "barrier.cluster.wait.acquire.aligned;\\n" ::: "memory");
}
"""

#: Helpers for Hopper and later.
HOPPER = (("elect_one", _ELECT), ("mbarrier", _MBARRIER), ("cluster", _CLUSTER))

HOLD = """\
// After tcgen05.wait::ld: keep the compiler from using the registers earlier.
__device__ __forceinline__ void tcgen05_hold(unsigned& r)
{
    asm volatile("" : "+r"(r)::"memory");
}

template <int count>
__device__ __forceinline__ void tcgen05_hold(unsigned (&r)[count])
{
    #pragma unroll
    for (int i = 0; i < count; ++i) tcgen05_hold(r[i]);
}
"""

FILL = """\
// Copy lines of 16-byte units to where a descriptor has them: spans of `span` bytes,
// `group` lines of them in an atom. The distances are those from a span and from an
// atom's lines to the next. The swizzle XORs the bits `changed` of an offset with those
// `apart` above them. stride: bytes from a line to the next in `from`.
template <int lines, int units, int span, int group, int to_span, int to_lines,
    int changed, int apart, typename Change>
__device__ __forceinline__ void fill_tile(
    unsigned char* tile, const unsigned char* from, long long stride, Change change)
{
    for (int i = threadIdx.x; i < lines * units; i += blockDim.x) {
        int line = i / units, along = i % units * 16;
        int at = along % span + line % group * span + along / span * to_span
            + line / group * to_lines;
        at ^= at >> apart & changed;
        uint4 unit = *reinterpret_cast<const uint4*>(from + line * stride + along);
        *reinterpret_cast<uint4*>(tile + at) = change(unit);
    }
}

// Units that are stored as they are.
struct as_they_are {
    __device__ __forceinline__ uint4 operator()(uint4 unit) const { return unit; }
};
"""

PACKED = """\
// Sixteen elements, one in the low bits of each byte, become sixteen elements of `bits`
// bits without gaps; the rest of the 16 bytes is padding.
template <int bits>
struct packed_units {
    __device__ __forceinline__ uint4 operator()(uint4 unit) const
    {
        unsigned from[4] = {unit.x, unit.y, unit.z, unit.w}, to[5] = {};
        #pragma unroll
        for (int e = 0; e < 16; ++e) {
            unsigned element = (from[e / 4] >> 8 * (e % 4)) & ((1u << bits) - 1);
            unsigned long long moved = element;
            moved <<= bits * e % 32;
            to[bits * e / 32] |= static_cast<unsigned>(moved);
            to[bits * e / 32 + 1] |= static_cast<unsigned>(moved >> 32);
        }
        return make_uint4(to[0], to[1], to[2], to[3]);
    }
};
"""


# ── descriptors ─────────────────────────────────────────────────────────────


def descriptor() -> str:
    """A function that makes descriptors of shared memory, from their fields.

    >>> "1ull << 46" in descriptor()
    True
    """
    terms = []
    for line in read(TCGEN05_FIELDS):
        name, low = line["field"], int(line["low"])
        mask = (1 << int(line["bits"])) - 1
        if name in ("base_offset", "absolute"):  # 0 where the pattern begins
            continue
        if name == "constant":
            terms.append(f"{CONSTANT}ull << {low}")
            continue
        value = {"start": "address", "swizzle": "mode"}.get(name, name)
        value += "" if name == "swizzle" else f" / {line['unit']}"
        term = f"({value} & {mask:#x}ull)"
        terms.append(f"{term} << {low}" if low else term)
    text = "\n        | ".join(terms)
    modes = {
        code: swizzle for code, swizzle in enumerate(MODES_OF["tcgen05"]) if swizzle
    }
    codes = ", ".join(f"{code} {pattern(s).words}" for code, s in modes.items())
    said = (
        "The descriptor of an operand in shared memory for tcgen05.mma and tcgen05.cp. "
        f"leading and stride: its offsets in bytes; mode: 0 no swizzle, {codes}. The "
        "operand begins where the swizzle's pattern does."
    )
    opening = signature(
        "__device__ __forceinline__ unsigned long long tcgen05_descriptor",
        [
            "const void* start",
            "unsigned leading",
            "unsigned stride",
            "unsigned long long mode",
        ],
    )
    body = (
        "    unsigned long long address = __cvta_generic_to_shared(start);\n"
        f"    return {text};"
    )
    return "\n".join([*comment(said), opening, "{", body, "}"]) + "\n"


def idesc(kind: str) -> str:
    """A function that makes instruction descriptors of a kind, from their fields.

    >>> print(idesc("mxf4").splitlines()[-2].strip())
    | (wide & 0x1) << 31;
    """
    first = {"m": 0, "n": 1, "d": 2, "a": 3, "b": 4, "scale": 5}
    lines = read(TABLES[kind])
    taken = [
        line
        for line in lines
        if line["kinds"] == "all" or kind in line["kinds"].split()
    ]
    ordered = sorted(taken, key=lambda line: first.get(line["field"], 9))
    parameters, said = [], []
    for line in ordered:
        name = line["field"]
        parameters.append(f"unsigned {name}" + ("" if name in first else " = 0"))
        if line["unit"] == "type":
            codes = ", ".join(f"{c} {of}" for of, c in type_codes(name, kind).items())
            said.append(f"{name}: {codes}")
    terms = []
    for line in taken:
        value = line["field"]
        value += f" / {line['unit']}" if line["unit"] not in ("type", "1") else ""
        mask, low = (1 << int(line["bits"])) - 1, int(line["low"])
        terms.append(f"({value} & {mask:#x})" + (f" << {low}" if low else ""))
    text = "\n        | ".join(terms)
    opening = signature(
        f"__device__ __forceinline__ constexpr unsigned tcgen05_idesc_{kind}",
        parameters,
    )
    about = f"The instruction descriptor of kind::{kind}. {'; '.join(said)}."
    body = f"    return {text};"
    return "\n".join([*comment(about), opening, "{", body, "}"]) + "\n"
