"""Chains of Tensor Core instructions in one warp, and their exact sums of products.

The operands lie in memory as registers, step by step; so the kernel is only loads, the
chain, and a store of the registers of D.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import fragmenta as fm
from tests.numerics.planted import exact
from tests.numerics.planted.cases import spread

Array = NDArray[Any]
STEPS = 8


class Chain(NamedTuple):
    """One instruction."""

    name: str
    instruction: str
    target: str
    dtype: Any
    result: Any = np.float32
    version: str = "8.4"


MMA = "mma.sync.aligned"
CHAINS = [
    Chain("f16", f"{MMA}.m16n8k16.row.col.f32.f16.f16.f32", "sm_90a", np.float16),
    Chain(
        "half",
        f"{MMA}.m16n8k16.row.col.f16.f16.f16.f16",
        "sm_80",
        np.float16,
        np.float16,
    ),
    Chain(
        "bf16", f"{MMA}.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80", ml_dtypes.bfloat16
    ),
    Chain("tf32", f"{MMA}.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90a", np.float32),
    Chain(
        "e4m3",
        f"{MMA}.m16n8k32.row.col.f32.e4m3.e4m3.f32",
        "sm_90a",
        ml_dtypes.float8_e4m3fn,
    ),
    Chain(
        "f64", f"{MMA}.m8n8k4.row.col.f64.f64.f64.f64", "sm_80", np.float64, np.float64
    ),
    Chain(
        "sparse",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "sm_90a",
        np.float16,
        version="8.5",
    ),
    Chain(
        "nvfp4",
        f"{MMA}.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
        "sm_120a",
        ml_dtypes.float4_e2m1fn,
        version="8.7",
    ),
]


class Made(NamedTuple):
    """A launch: the arrays of registers, room for D, and the exact D as registers."""

    text: str
    arguments: list[Array]
    exact: Array


def made(chain: Chain) -> Made:
    """The kernel of a chain, its operands and its exact result."""
    op = fm.instruction(chain.instruction)
    m, n, k = (int(each) for each in op.shape)
    a = spread(STEPS, m, k, low=0.3, high=1.7)
    b = spread(STEPS, k, n, seed=2, low=0.3, high=1.7)
    if chain.name == "e4m3":
        a, b = (np.exp2(6 * (each - 1)).astype(np.float32) for each in (a, b))
    if chain.name == "sparse":
        a.reshape(-1, 4)[:, 1::2] = 0
    a, b = a.astype(chain.dtype), b.astype(chain.dtype)
    if chain.name == "tf32":
        cut = np.uint32(0xFFFFE000)
        a, b = ((each.view(np.uint32) & cut).view(np.float32) for each in (a, b))
    arrays, wide_a, wide_b = _operands(chain, op, a, b)
    total = exact.dots(
        wide_a.transpose(1, 0, 2).reshape(m, -1), wide_b.reshape(-1, n).T
    )
    places = [op.d.holds(lane) for lane in range(32)]
    registers = np.array([[total[tuple(at)] for at in of] for of in places])
    room = np.zeros(registers.shape, chain.result)
    counts = [each.shape[-1] for each in arrays]
    return Made(_text(chain, op, counts), [*arrays, room], registers)


def _operands(
    chain: Chain, op: Any, a: Array, b: Array
) -> tuple[list[Array], Array, Array]:
    """The registers of all steps, and the matrices with their scales."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    if chain.name == "sparse":
        stored = [fm.sparse.compress(op, each) for each in a]
        values = np.stack([op.a.pack(each.values) for each in stored])
        metadata = np.stack([op.metadata.pack(each.indices) for each in stored])
        return [values, op.b.pack(b), metadata], wide_a, wide_b
    found = [op.a.pack(a), op.b.pack(b)]
    if chain.name == "nvfp4":
        kind = ml_dtypes.float8_e4m3fn
        one = np.exp2(spread(STEPS, *op.scale_a.shape, seed=3) * 7).astype(kind)
        two = np.exp2(spread(STEPS, *op.scale_b.shape, seed=4) * 7).astype(kind)
        found += [op.scale_a.pack(one), op.scale_b.pack(two)]
        wide_a = wide_a * np.repeat(one.astype(np.float64), 16, -1)
        wide_b = wide_b * np.repeat(two.astype(np.float64), 16, -2)
    return found, wide_a, wide_b


def _text(chain: Chain, op: Any, counts: list[int]) -> str:
    wide = chain.result is np.float64
    size, kind = (8, "f64") if wide else (4, "b32")
    results = op.d.registers
    lists = [[f"%r{i}_{j}" for j in range(count)] for i, count in enumerate(counts)]
    d = [f"%d{j}" for j in range(results)]
    words = [", ".join(each) for each in lists]
    c = ", ".join(d)
    parts = [f"{{{c}}}", f"{{{words[0]}}}", f"{{{words[1]}}}", f"{{{c}}}"]
    if chain.name == "sparse":
        parts += [words[2], "0"]
    if chain.name == "nvfp4":
        parts += [f"{{{words[2]}}}", "{0, 0}", f"{{{words[3]}}}", "{0, 0}"]
    number = [f".param .u64 p{i}" for i in range(len(counts) + 1)]
    body = []
    for i, count in enumerate(counts):
        body += [f"ld.param.u64 %p{i}, [p{i}];"]
        body += [
            f"mul.wide.u32 %at, %lane, {size * count};",
            f"add.u64 %p{i}, %p{i}, %at;",
        ]
    body += [f"mov.{kind} {each}, {'0d0000000000000000' if wide else 0};" for each in d]
    body += [f"mov.u32 %left, {STEPS};", "more:"]
    for i, registers in enumerate(lists):
        for j, each in enumerate(registers):
            body += [f"ld.global.{kind} {each}, [%p{i}+{size * j}];"]
        body += [f"add.u64 %p{i}, %p{i}, {32 * size * len(registers)};"]
    body += [f"{chain.instruction} {', '.join(parts)};"]
    body += ["sub.u32 %left, %left, 1;", "setp.ne.u32 %again, %left, 0;"]
    body += ["@%again bra more;", f"ld.param.u64 %at, [p{len(counts)}];"]
    body += [f"mul.wide.u32 %p0, %lane, {size * results};", "add.u64 %at, %at, %p0;"]
    body += [f"st.global.{kind} [%at+{size * j}], {each};" for j, each in enumerate(d)]
    pointers = ", ".join(f"%p{i}" for i in range(len(counts)))
    registers = ", ".join([*d, *(each for some in lists for each in some)])
    inner = "\n".join(f"    {line}" for line in body)
    return f"""\
.version {chain.version}
.target {chain.target}
.address_size 64

.visible .entry chain({", ".join(number)})
{{
    .reg .pred %again;
    .reg .b32 %lane, %left;
    .reg .b64 %at, {pointers};
    .reg .{"f64" if wide else "b32"} {registers};
    mov.u32 %lane, %tid.x;
{inner}
    ret;
}}
"""
