"""One kernel that does any work of ``tcgen05`` on given memories.

It fills shared memory and all of tensor memory, lets one thread do one of several
pieces of work, waits for it, and hands tensor memory back.  So what it returns can be
compared with ``op.execute`` on the same memories.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta import ptx

BYTES = 48 << 10
"""Bytes of shared memory that are filled."""
NAMES = (
    "a",
    "b",
    "idesc",
    "p",
    "a_tmem",
    "scale_a",
    "scale_b",
    "metadata",
    "zero",
    *(f"lane{i}" for i in range(8)),
    "which",
)
"""What is given, in this order: in work, ``%a`` is a register with it."""
WIDE = ("a", "b", "zero")

HEAD = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry work(.param .u64 shared, .param .u64 given, .param .u64 memory)
{
.reg .pred %p, %first, %leader, %q; .reg .b32 %t, %w, %r<16>, %c<128>, %d;
.reg .b64 %l<9>;
.shared .align 1024 .b8 tile[BYTES];
.shared .align 8 .b64 bar;
.shared .align 4 .b32 slot;
mov.u32 %t, %tid.x;
shr.u32 %w, %t, 5;
mov.u32 %r15, %cluster_ctarank;
setp.ne.u32 %first, %w, 0;
@%first bra ALLOCATED;
tcgen05.alloc.cta_group::GROUP.sync.aligned.shared::cta.b32 [slot], 512;
tcgen05.relinquish_alloc_permit.cta_group::GROUP.sync.aligned;
ALLOCATED:
add.u32 %r0, %t, %r15;
setp.ne.u32 %leader, %r0, 0;
setp.ne.u32 %q, %t, 0;
@!%q mbarrier.init.shared::cta.b64 [bar], 1;
ld.param.u64 %l0, [shared];
mul.wide.u32 %l1, %r15, BYTES;
add.u64 %l0, %l0, %l1;
mov.u32 %r1, tile;
shl.b32 %r2, %t, 4;
FILL:
cvt.u64.u32 %l1, %r2;
add.u64 %l1, %l0, %l1;
ld.global.v4.u32 {%c0, %c1, %c2, %c3}, [%l1];
add.u32 %r3, %r1, %r2;
st.shared.v4.u32 [%r3], {%c0, %c1, %c2, %c3};
add.u32 %r2, %r2, 2048;
setp.lt.u32 %q, %r2, BYTES;
@%q bra FILL;
fence.proxy.async.shared::cta;
bar.sync 0;
ld.shared.u32 %d, [slot];
shl.b32 %r4, %w, 21;
add.u32 %r4, %r4, %d;
ld.param.u64 %l2, [memory];
mul.wide.u32 %l3, %r15, 262144;
add.u64 %l2, %l2, %l3;
mul.wide.u32 %l3, %t, 2048;
add.u64 %l2, %l2, %l3;
"""
FOOT = """
DONE:
COMMIT
OTHERS:
mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
@!%q bra OTHERS;
tcgen05.fence::after_thread_sync;
"""
END = """
MEET
@%first bra LAST;
tcgen05.dealloc.cta_group::GROUP.sync.aligned.b32 %d, 512;
LAST:
ret;
}
"""
CLUSTER = """
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""


def _moves(store: bool) -> str:
    """All of tensor memory, from global memory or to it, 128 columns at a time."""
    every = "{" + ", ".join(f"%c{i}" for i in range(128)) + "}"
    quads = [
        (f"[%l7+{4 * i}]", f"{{%c{i}, %c{i + 1}, %c{i + 2}, %c{i + 3}}}")
        for i in range(0, 128, 4)
    ]
    name = "STORE" if store else "LOAD"
    lines = ["mov.u32 %r6, 0;", f"{name}:", "add.u32 %r7, %r4, %r6;"]
    lines += ["mul.wide.u32 %l6, %r6, 4;", "add.u64 %l7, %l2, %l6;"]
    if store:
        lines += [f"ld.global.v4.u32 {r}, {at};" for at, r in quads]
        lines += [f"tcgen05.st.sync.aligned.32x32b.x128.b32 [%r7], {every};"]
        lines += ["tcgen05.wait::st.sync.aligned;"]
    else:
        lines += [f"tcgen05.ld.sync.aligned.32x32b.x128.b32 {every}, [%r7];"]
        lines += ["tcgen05.wait::ld.sync.aligned;"]
        lines += [f"st.global.v4.u32 {at}, {r};" for at, r in quads]
    lines += ["add.u32 %r6, %r6, 128;", "setp.lt.u32 %q, %r6, 512;"]
    return "\n".join([*lines, f"@%q bra {name};"])


def _given() -> str:
    lines = ["ld.param.u64 %l4, [given];"]
    for number, name in enumerate(NAMES):
        wide = name in WIDE
        lines.append(f".reg .b{64 if wide else 32} %{name}_;")
        kind = "u64" if wide else "u32"
        lines.append(f"ld.global.{kind} %{name}_, [%l4+{8 * number}];")
    lines += [
        "and.b32 %r5, %r1, 0x3ffff;",
        "shr.u32 %r5, %r5, 4;",
        "cvt.u64.u32 %l5, %r5;",
        "add.u64 %a_, %a_, %l5;",
        "add.u64 %b_, %b_, %l5;",
        "setp.ne.u32 %p, %p_, 0;",
    ]
    return "\n".join(lines)


@lru_cache(maxsize=8)
def kernel(work: tuple[str, ...], group: int = 1) -> Any:
    """A kernel that can do each piece of work; ``%a_`` and so on are what is given."""
    commit = (
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];"
        if group == 1
        else "mov.u16 %h, 3;\ntcgen05.commit.cta_group::2.mbarrier::arrive::one"
        ".shared::cluster.multicast::cluster.b64 [bar], %h;"
    )
    parts = [HEAD, _moves(store=True), "tcgen05.fence::before_thread_sync;", "MEET"]
    parts += ["@%leader bra OTHERS;", "tcgen05.fence::after_thread_sync;", _given()]
    for number, text in enumerate(work):
        parts += [f"setp.ne.u32 %q, %which_, {number};", f"@%q bra NEXT{number};"]
        parts += [text, "bra DONE;", f"NEXT{number}:"]
    parts += ["trap;", FOOT.replace("COMMIT", commit), _moves(store=False), END]
    text = "\n".join(parts).replace("BYTES", str(BYTES)).replace("GROUP", str(group))
    meet = CLUSTER if group == 2 else "bar.sync 0;"
    text = text.replace("MEET", meet).replace(
        ".reg .pred %p,", ".reg .b16 %h;\n.reg .pred %p,"
    )
    return ptx.parse(text).kernels["work"]


def run(
    work: Sequence[str],
    which: int,
    shared: NDArray[np.uint8],
    memory: NDArray[np.uint32],
    **given: Any,
) -> NDArray[np.uint32]:
    """Tensor memory after one piece of work."""
    after = memory.copy()
    launch(work, which, shared, after, **given)
    return after


def launch(
    work: Sequence[str],
    which: int,
    shared: NDArray[np.uint8],
    memory: NDArray[np.uint32],
    *,
    group: int = 1,
    lanes: Sequence[int] = (),
    schedule: str | int = "eager",
    watch: bool = False,
    replay: bool = False,
    **given: int,
) -> Any:
    """Do one piece of work; ``memory`` is overwritten by what it leaves."""
    tile = np.zeros((group, BYTES), np.uint8)
    tile[:, : shared.shape[-1]] = shared
    words = dict.fromkeys(NAMES, 0) | given | {"which": which}
    words |= {f"lane{i}": word for i, word in enumerate(lanes)}
    arguments = [tile, np.array([words[n] for n in NAMES], np.uint64), memory]
    options: dict[str, Any] = {"cluster": 2} if group == 2 else {}
    return kernel(tuple(work), group).launch(
        group, 128, arguments, schedule=schedule, watch=watch, replay=replay, **options
    )
