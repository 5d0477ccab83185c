"""Operands in memory: every element that is shown is that of the matrix."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.errors import Error
from fragmenta.inspect.debugging.debugger import Debugger
from fragmenta.inspect.debugging.fragments import fragment_lines, last_product
from fragmenta.inspect.debugging.matrices import Matrix, matrix
from fragmenta.inspect.debugging.terminal import Terminal
from fragmenta.inspect.replay.recorded import Replay
from fragmenta.reference.shared.tiles import pair_halves
from tests.debugging.test_fragments import held
from tests.ptx import tensor_kernels
from tests.thinning import THOROUGH
from tests.view.test_replay_page import recorded

D, A = 64, 256
CASES = {
    "pair": ("mma.cta_group::2.kind::f16", "%a_", "m256n64k16", "f16"),
    "inside": ("mma.cta_group::1.kind::f8f6f4", "[%a_tmem_]", "m128n32k32", "e4m3"),
}


def found(at: Debugger, name: str) -> Matrix:
    product = last_product(at)
    assert name in product.in_memory
    return matrix(at, product.step, product.op, product.given, name)


def values(at: Debugger, name: str) -> np.ndarray:
    return np.asarray(found(at, name).values, np.float64)


@cache
def large(name: str) -> tuple[Replay, np.ndarray, np.ndarray]:
    """What is recorded of a large kernel with one product, its A and its B."""
    words, a, shape, kind = CASES[name]
    group = 2 if "::2" in words else 1
    op: Any = fm.tcgen05(
        shape, kind=words.split("::")[-1], a=kind, d="f32", cta_group=group
    )
    m, n, k = op.shape
    random = np.random.default_rng(3)
    left, right = random.integers(-8, 9, (m, k)), random.integers(-8, 9, (k, n))
    left, right = (e.astype(op.types["a"].storage) for e in (left, right))
    image, of_a = fm.shared.tile(op, "A", pair_halves(left, op, "A"))
    image, of_b = fm.shared.tile(op, "B", pair_halves(right, op, "B"), image=image)
    result = tensor_kernels.launch(
        [f"tcgen05.{words} [%d+{D}], {a}, %b_, %idesc_, %p;"],
        0,
        image,
        op.a.pack(left, address=A),
        group=group,
        a=of_a.encode(),
        b=of_b.encode(),
        a_tmem=A,
        idesc=op.idesc,
        schedule="lazy",
        replay=True,
    )
    return result.replay(), left.astype(float), right.astype(float)


TWICE = """.version 8.8
.target sm_100a
.address_size 64
.entry twice(.param .u64 tiles, .param .u64 a, .param .u64 b, .param .u32 idesc) {
    .reg .b32 %t, %r<9>, %i; .reg .b64 %l<9>; .reg .pred %p<4>;
    .shared .align 128 .b8 tile[2560];
    .shared .align 8 .b64 bar;
    .shared .align 4 .b32 slot;
    mov.u32 %t, %tid.x;
    setp.eq.u32 %p1, %t, 0;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;
    @%p1 mbarrier.init.shared::cta.b64 [bar], 1;
    ld.param.u64 %l1, [tiles];
    mov.u32 %r1, tile;
    shl.b32 %r2, %t, 4;
FILL:
    cvt.u64.u32 %l2, %r2;
    add.u64 %l2, %l1, %l2;
    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%l2];
    add.u32 %r3, %r1, %r2;
    st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};
    add.u32 %r2, %r2, 512;
    setp.lt.u32 %p2, %r2, 2560;
    @%p2 bra FILL;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    ld.shared.u32 %r8, [slot];
    shr.u32 %r2, %r1, 4;
    cvt.u64.u32 %l3, %r2;
    ld.param.u64 %l4, [a];
    ld.param.u64 %l5, [b];
    ld.param.u32 %i, [idesc];
    add.u64 %l4, %l4, %l3;
    add.u64 %l5, %l5, %l3;
    setp.ne.u32 %p3, %t, %t;
    @%p1 tcgen05.mma.cta_group::1.kind::f16 [%r8+8], %l4, %l5, %i, %p3;
    @%p1 tcgen05.mma.cta_group::1.kind::f16 [%r8+8], %l4, %l5, %i, %p1;
    @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;
    @!%p2 bra WAIT;
    mov.u32 %r4, 0;
    st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};
    shl.b32 %r2, %t, 4;
    add.u32 %r2, %r1, %r2;
    st.shared.v4.u32 [%r2], {%r4, %r4, %r4, %r4};
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;
    ret;
}
"""
"""Two products of the same tiles; then some of A and of B is overwritten."""


@cache
def twice() -> tuple[Replay, np.ndarray, np.ndarray]:
    """What is recorded of it, A and B."""
    op: Any = fm.tcgen05("m64n8k16", a="f16", d="f32")
    random = np.random.default_rng(3)
    left, right = (
        random.integers(-8, 9, shape).astype(np.float16)
        for shape in ((64, 16), (16, 8))
    )
    image, a = fm.shared.tile(op, "A", left, swizzle=0)
    image, b = fm.shared.tile(op, "B", right, image=image, swizzle=0)
    tiles = np.zeros(2560, np.uint8)
    tiles[: image.size] = image
    given = [tiles, a.encode(), b.encode(), op.idesc]
    (kernel,) = ptx.parse(TWICE).kernels.values()
    result = kernel.launch(1, 32, given, schedule="lazy", replay=True)
    return result.replay(), left.astype(float), right.astype(float)


@pytest.mark.parametrize("name", ["twice", *(CASES if THOROUGH else [])])
def test_a_tcgen05_mma(name: str) -> None:
    """In flight and done; both blocks of a pair; A in tensor memory."""
    replay, left, right = twice() if name == "twice" else large(name)
    at = Debugger(replay)
    at.break_at("tcgen05.commit")
    at.run()
    assert found(at, "D").words == "in tensor memory; the product is in flight"
    np.testing.assert_array_equal(values(at, "A"), left)
    at.goto(len(at))
    at.look_at(0 if name == "twice" else 3)  # which has run none itself
    # A and B are as they were when they were multiplied.
    np.testing.assert_array_equal(values(at, "A"), left)
    np.testing.assert_array_equal(values(at, "B"), right)
    times = 2 if name == "twice" else 1
    np.testing.assert_array_equal(values(at, "D"), times * (left @ right))
    last = len(left) - 1
    spot = last_product(at).op.d.where(last, 5, address=8 if name == "twice" else D)
    assert found(at, "D").places[last][5] == f"lane {spot.lane}, column {spot.column}"
    for operand, row in (("A", 9), ("B", 15), ("D", last)):
        lines = fragment_lines(at, [operand, str(row)], 80)
        shown = " ".join(lines[2:]).split()
        for column, value in enumerate(values(at, operand)[row]):
            assert f"[{row},{column}]={value:g}" in shown


def test_a_wgmma_by_descriptors() -> None:
    at = Debugger(recorded("products", "early_sums", 0, "lazy"))
    at.goto(len(at))
    op = fm.instruction(last_product(at).op.mnemonic)
    wanted = op(found(at, "A").values, found(at, "B").values, target="sm_90a")
    for warp in range(4):
        at.look_at(warp)
        rows = slice(16 * warp, 16 * warp + 16)
        made = held(at, "D", (64, 8))[rows].astype(np.float32)
        np.testing.assert_array_equal(made, wanted[rows])


def test_the_words() -> None:
    at = Debugger(twice()[0])
    with pytest.raises(Error, match=r"tcgen05\.mma yet; break mma stops at the first"):
        fragment_lines(at, [], 80)
    at.goto(len(at))
    assert Terminal(at).do("print fragment D") == Terminal(at).do("fragment")
    lines = fragment_lines(at, ["A"], 40)
    assert re.match(
        r"A: 64 x 16 f16, step \d+, warp 0, in shared memory, descriptor 0x", lines[1]
    )
    assert len(lines) == 2 + 64
    assert max(map(len, lines[2:])) <= 40
    with pytest.raises(Error, match="D has rows 0 to 63; given 64"):
        fragment_lines(at, ["D", "64"], 80)
    with pytest.raises(Error, match=r"has D, A and B; given 'C'"):
        fragment_lines(at, ["C"], 80)
