"""Nothing a PTX text says reaches memory that the kernel was not given."""

from __future__ import annotations

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.engine.simt import layout
from fragmenta.errors import BadOperands
from tests.thinning import repeats

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<4>; "
    ".reg .f32 %f<5>; .shared .align 16 .b8 s[1024];\n"
)
A_MANY = ", ".join(["%r1"] * 400)


def launch(body: str, before: str = "", **options: object) -> None:
    """Launch a kernel with this body, on an array of 64 words."""
    text = (
        f"{HEAD}{before}.visible .entry k(.param .u64 x) {{\n{REGISTERS}{body}\nret;}}"
    )
    data = np.zeros(64, np.uint32)
    ptx.parse(text).kernels["k"].launch(
        options.pop("grid", 1), options.pop("block", 1), [data], **options
    )


#: Texts that are refused before anything is compiled, and words of the refusal.
REFUSED = [
    ("ld.param.u64 %d1, [x+4096];", "x has 8 bytes; given bytes 4096 to 4103"),
    ("ld.param.u64 %d1, [x-64];", "given bytes -64 to -57"),
    ("ld.param.u64 %d1, [x+4294967296];", "x has 8 bytes"),
    ("ld.param.v2.u64 {%d1, %d2}, [x];", "given bytes 0 to 15"),
    ("ld.param.u32 %r1, [x+2];", "at a multiple of 4 bytes of x; given 2"),
    ("{ .param .b32 a; st.param.b32 [a+4], %r1; call g, (a); }", "a has 4 bytes"),
    ("{ .param .b64 r; call (r), out; }", "result has 8 bytes"),
    ("cp.async.ca.shared.global [%r1], [%d1], 1048576;", "4, 8 or 16; given 1048576"),
    ("cp.async.ca.shared.global [%r1], [%d1], 0;", "4, 8 or 16; given 0"),
    ("cp.async.ca.shared.global [%r1], [%d1], -4;", "4, 8 or 16; given -4"),
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, "
        f"{{{A_MANY}}}, {{%r1, %r2}}, {{%f1, %f2, %f3, %f4}};",
        "a is 4 registers",
    ),
    (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2}, %d1, %d2, 1, 1, 1, "
        "0, 0;",
        "d is 4 registers",
    ),
    ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%h1}, [%r1];", "%h1"),
    ("match.any.sync.b64 %r1, %r2, -1;", "%r2 is declared as .b32"),
    ("shfl.sync.bfly.b32 %h1, %r1, 1, 31, -1;", "%h1 is declared as .b16"),
    ("atom.global.add.u32 %r1, [%d1], %d2;", "%d2 is declared as .b64"),
    ("ld.global.v4.u32 {%r1, %r2, %r3}, [%d1];", "4 registers in braces"),
    ("call g;", "g has 1 parameters, 0 results; the call has 0"),
    ("call g, (%d1);", "has 32 bits in 1 pieces; given 64 in 1"),
    ("call g, (s);", "s is neither"),
]
FUNCTIONS = """
.func g(.param .b32 y) { ret; }
.func (.param .b64 result) out() { .reg .b32 %r; st.param.b32 [result+8], %r; ret; }
"""


# Every operand, checked before or not; in every cluster an instruction.
@repeats(together=1)
@pytest.mark.parametrize(("body", "words"), REFUSED)
@pytest.mark.parametrize("check", [False, True])
def test_operands_that_do_not_fit_are_not_compiled(
    body: str, words: str, check: bool
) -> None:
    with pytest.raises(fm.Error) as caught:
        launch(body, FUNCTIONS, watch=check)
    assert check or isinstance(caught.value, BadOperands)
    assert words in str(caught.value)
    assert "PTX line " in str(caught.value)


def test_a_kernel_does_not_call_itself() -> None:
    with pytest.raises(fm.Error, match="k is a kernel, which cannot be called"):
        launch("call k, (%d1);", watch=False)


def _rank(rank: int) -> str:
    return f"{layout.SHARED_WINDOW + (rank << layout.RANK_BITS) + 0x400:#x}"


#: Instructions that reach the shared memory of another block; %d1 is its address.
REACHING = [
    "ld.u32 %r1, [%d1];",
    "st.u32 [%d1], %r1;",
    "atom.add.u32 %r1, [%d1], %r2;",
    "red.add.u32 [%d1], %r1;",
    "cp.async.ca.shared.global [s], [%d1], 16;",
    "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, "
    "%r7}, [%d1], 16;",
    "mbarrier.arrive.b64 _, [%d1];",
    "st.async.mbarrier::complete_tx::bytes.u32 [%d1], %r1, [%d1];",
    "fence.proxy.async; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[%r1], [%d1], 16, [%r1];",
]


@repeats(together=1)
@pytest.mark.parametrize("instruction", REACHING)
@pytest.mark.parametrize(("rank", "cluster"), [(1, 1), (2, 2), (255, 1)])
def test_a_block_that_is_not_in_the_cluster(
    instruction: str, rank: int, cluster: int
) -> None:
    body = f"mov.u64 %d1, {_rank(rank)}; cvt.u32.u64 %r1, %d1; {instruction}"
    with pytest.raises(fm.errors.KernelFault) as caught:
        launch(body, grid=cluster, block=32, cluster=cluster, watch=False)
    assert caught.value.kind in (
        "bounds",
        "mbarrier",
        "out-of-bounds",
        "bad-tensor-map",
    )


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 16, 300])
def test_an_address_of_a_block_that_is_not_there(rank: int, watch: bool) -> None:
    if rank & 0xFF == 0:
        return
    body = (
        f"mov.u32 %r1, s; mapa.shared::cluster.u32 %r2, %r1, {rank}; "
        "st.shared::cluster.u32 [%r2], %r1;"
    )
    with pytest.raises(fm.errors.KernelFault, match="out of bounds"):
        launch(body, watch=watch)
