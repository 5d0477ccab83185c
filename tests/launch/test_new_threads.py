"""Threads that begin while others run: no false report, same bits, same reports.

What a kernel leaves and what is said about it depends on no thread.  So all launches on
several threads are compared with one on a single thread.  Threads begin and end at
other moments in each launch, so that every kernel is launched many times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.base.arrays import threads
from fragmenta.kernels import Kernel, Tile
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import Gemm
from tests.simt.kernels import kernel
from tests.thinning import some

BLOCKS = 24
CORES = 6
LAUNCHES = some(range(320), 16)

#: All blocks read the same words of ``given``, and each writes words of its own.  Block
#: ``odd`` does not wait before it reads what its other warp has stored.
SCALAR = """
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd1, [given]; ld.param.u32 %r1, [odd];
    mul.wide.u32 %rd2, %t, 4; add.u64 %rd3, %rd1, %rd2;
    mov.u32 %r2, 0; mov.u32 %r3, 0;
AGAIN:
    ld.global.u32 %r4, [%rd3]; add.u32 %r2, %r2, %r4;
    mov.u32 %r5, tile; mad.lo.u32 %r5, %t, 4, %r5;
    st.shared.u32 [%r5], %r2; bar.sync 0;
    xor.b32 %r6, %t, 33; mov.u32 %r7, tile; mad.lo.u32 %r7, %r6, 4, %r7;
    ld.shared.u32 %r8, [%r7]; add.u32 %r2, %r2, %r8; bar.sync 0;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 6; @%p1 bra AGAIN;
    setp.ne.u32 %p2, %cta, %r1; @%p2 bra OVER;
    st.shared.u32 [%r7], %t; ld.shared.u32 %r9, [%r5];
OVER:
    st.global.u32 [%mine], %r2;
    ret;
"""


class Case:
    """A kernel, how it is launched, and the array that it writes."""

    def __init__(self, launch: Callable[[], Any], out: Any) -> None:
        self._launch, self._out = launch, out

    def outcome(self) -> tuple[bytes, list[str], Any]:
        """What a launch leaves, and what is said about it."""
        self._out[...] = 0
        result = self._launch()
        said = sorted(str(each) for each in result.problems)
        return self._out.tobytes(), said, result.counts

    def history(self) -> list[tuple[int, list[Any]]]:
        """What happened in the clusters whose history a launch keeps."""
        return [(each.cluster, list(each.notes)) for each in self._launch().recorded]


def scalar(odd: int) -> Case:
    """Ordinary instructions; there is a race in block ``odd``."""
    made = kernel(SCALAR, ".param .u64 given, .param .u32 odd")
    out = np.zeros(BLOCKS * 64, np.uint32)
    given = [out, np.arange(64, dtype=np.uint32), np.uint32(odd)]
    return Case(lambda: made.launch(BLOCKS, 64, given, watch="report"), out)


def product(sparse: bool, watch: Any = "report") -> Case:
    """The project's own kernel, one tile for each block; A and B are read by many."""
    made = Kernel("bf16", out="f32", tile=Tile(128, 64), sparse=sparse)
    gemm = Gemm(made, 128 * 6, 64 * 4, 128, blocks=BLOCKS)
    entry = ptx.parse(gemm.text).kernels[launching.ENTRY]
    memory, shape = gemm.memory(), gemm.geometry
    given = launching.given(gemm, memory)

    def launch() -> Any:
        return entry.launch(
            shape.grid,
            shape.block,
            given,
            shared=shape.shared,
            target="sm_90a",
            watch=watch,
        )

    return Case(launch, memory.d.buffer)


@cache
def case(name: str) -> Case:
    """A case, made once."""
    if name.startswith("scalar"):
        return scalar(5 if "race" in name else BLOCKS)
    return product("sparse" in name)


@pytest.fixture(autouse=True)
def cores() -> Iterator[None]:
    before = threads.cores()
    yield
    threads.use_cores(before)


@pytest.mark.parametrize(
    "name", some(["scalar", "scalar with a race", "wgmma", "sparse"], 2)
)
def test_many_launches_on_several_threads(name: str) -> None:
    chosen = case(name)
    threads.use_cores(1)
    alone = chosen.outcome()
    assert bool(alone[1]) == ("race" in name)
    threads.use_cores(CORES)
    for number in LAUNCHES:
        assert chosen.outcome() == alone, f"launch {number}"
