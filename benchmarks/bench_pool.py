"""The cost of launches in a pool, against plain launches in one process.

CPU time is that of all processes together: the one that asks, the fork server and the
workers, counted by the system when they have ended.  A pool that launches one known
kernel is subtracted.  New kernels differ in their text, known ones have been launched
before.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from fragmenta import ptx

FORMS = (
    "add.s32 %r{d}, %r{a}, %r{b};",
    "xor.b32 %r{d}, %r{a}, %r{b};",
    "mad.lo.s32 %r{d}, %r{a}, %r{b}, %r{c};",
    "shl.b32 %r{d}, %r{a}, 3;",
    "fma.rn.f32 %f{d}, %f{a}, %f{b}, %f{c};",
    "setp.lt.s32 %p1, %r{a}, %r{b};",
    "selp.b32 %r{d}, %r{a}, %r{b}, %p1;",
)
LINES = 50
"""Instructions of a small kernel."""
_SEEDS = itertools.count(int.from_bytes(os.urandom(4), "little") << 20)


def small() -> str:
    """A small kernel that no one has launched before."""
    rng = random.Random(next(_SEEDS))
    places = [{name: rng.randrange(1, 30) for name in "dabc"} for _ in range(LINES)]
    body = "\n".join(rng.choice(FORMS).format(**each) for each in places)
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry small(.param .u64 out)
{{
    .reg .b32 %r<40>; .reg .f32 %f<40>; .reg .b64 %rd<4>; .reg .pred %p<3>;
    mov.u32 %r30, %tid.x;
{body}
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd2, %r30, 4, %rd1;
    st.global.u32 [%rd2], {rng.randrange(1 << 30)};
    ret;
}}"""


def spent() -> float:
    """CPU seconds of this process, and of its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    found = [resource.getrusage(each) for each in kinds]
    return sum(each.ru_utime + each.ru_stime for each in found)


def cost(call: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    before = spent()
    call()
    return spent() - before


def in_a_pool(texts: Iterator[str] | list[str], launches: int, watch: bool) -> None:
    out = np.zeros(32, np.uint32)
    how = "report" if watch else False
    with ptx.Pool(2, launches=launches) as pool:
        jobs = (pool.submit(text, 1, 32, [out], watch=how) for text in texts)
        for job in pool.as_completed(jobs):
            assert job.result().instructions


def in_this_process(texts: Iterator[str] | list[str], watch: bool) -> None:
    out = np.zeros(32, np.uint32)
    kernels: dict[str, ptx.Kernel] = {}
    for text in texts:
        if text not in kernels:
            kernels[text] = ptx.parse(text).kernels["small"]
        result = kernels[text].launch(1, 32, [out], watch="report" if watch else False)
        assert result.instructions
        assert result.problems is not None


@pytest.mark.parametrize("watch", [False, True], ids=["not watched", "watched"])
def test_small_kernels(watch: bool) -> None:
    """New ones under 100 ms of CPU each, known ones under 10."""
    new, known = 100, 400
    again = [small() for _ in range(4)]
    in_this_process(again, watch)  # all of the compiler is loaded
    plain = cost(lambda: in_this_process((small() for _ in range(new)), watch)) / new
    repeated = cost(lambda: in_this_process(again * (known // 4), watch)) / known
    first = min(cost(lambda: in_a_pool(again * 4, 10**6, watch)) for _ in range(2))
    start = min(cost(lambda: in_a_pool(again[:1], 10**6, watch)) for _ in range(2))
    pooled = cost(lambda: in_a_pool((small() for _ in range(new)), 10**6, watch))
    warm = cost(lambda: in_a_pool(again * (known // 4), 10**6, watch))
    alone = cost(lambda: in_a_pool((small() for _ in range(10)), 1, watch))
    print(
        f"\n{'watched' if watch else 'not watched'}, CPU of a small kernel:"
        f"\n  new    {_ms(plain)} here, {_ms((pooled - start) / new)} in a pool "
        f"({(pooled - start) / new / plain:.2f} times; the goal is 100 ms)"
        f"\n  known  {_ms(repeated)} here, {_ms((warm - first) / (known - 16))} in a "
        f"pool (the goal is 10 ms)"
        f"\n  new, each in a process of its own: {_ms((alone - start) / 10)}"
        f"\n  the pool itself: {_ms(start)}"
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
