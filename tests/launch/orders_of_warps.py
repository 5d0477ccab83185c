"""Kernels that are right in one order of warps and wrong in another."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from fragmenta import ptx

INIT = r"""__shared__ __align__(8) unsigned long long barrier;
unsigned at = __cvta_generic_to_shared(&barrier);
if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], COUNT;" :: "r"(at));
__syncthreads();"""
ARRIVE = r"""asm volatile("{.reg .b64 s; mbarrier.arrive.shared.b64 s, [%0];}"
                  :: "r"(at) : "memory");"""
WAIT = r"""asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, "
                  "[%0], %1; @!p bra W;}" :: "r"(at), "r"(i & 1) : "memory");"""


class Wrong(NamedTuple):
    """A kernel that round robin shows nothing about, in any schedule of its work."""

    threads: int
    body: str
    """Of ``void wrong(int *x)``; ``t`` is the thread and ``w`` its warp."""
    finds: str
    """Schedules that show it: other bits than round robin, an error, or no end."""

    @property
    def source(self) -> str:
        """The program."""
        head = 'extern "C" __global__ void wrong(int *x)'
        return f"{head} {{ int t = threadIdx.x, w = t / 32; {self.body} }}"


WRONG = {
    # The flag is read once: nobody waits for it.
    "a flag that nobody waits for": Wrong(
        64,
        """volatile int *flag = x + 40;
        if (t == 0) { flag[1] = 5; __threadfence(); flag[0] = 1; }
        if (t == 32) x[0] = flag[0] == 1 ? flag[1] : -1;""",
        "in-steps oldest-waits",
    ),
    "a sum without an atomic": Wrong(
        64,
        """__shared__ volatile int n;
        if (t == 0) n = 0;
        __syncthreads();
        if (t % 32 == 0) { int before = n; n = before + 1; }
        __syncthreads();
        if (t == 0) x[0] = n;""",
        "in-steps",
    ),
    # Who comes first is no property of the program.
    "a ticket that is taken for the warp": Wrong(
        64,
        """__shared__ int tickets;
        if (t == 0) tickets = 0;
        __syncthreads();
        if (t % 32 == 0) x[w] = atomicAdd(&tickets, 1);""",
        "in-steps youngest-waits",
    ),
    "two locks in two orders": Wrong(
        64,
        """if (t % 32) return;
        int *first = x + w, *second = x + 1 - w;
        while (atomicCAS(first, 0, 1));
        while (atomicCAS(second, 0, 1));
        __threadfence();
        ((volatile int *) x)[5] += 1;
        __threadfence();
        atomicExch(second, 0); atomicExch(first, 0);""",
        "in-steps",
    ),
    # Warp 1 arrives twice without a wait: warp 2 may miss a whole phase.
    "a phase that nobody holds back": Wrong(
        96,
        INIT.replace("COUNT", "2")
        + f"""if (t % 32 == 0 && w < 2) for (int i = 0; i < 2; ++i)
            {{ {ARRIVE} if (w == 0) {{ {WAIT} }} }}
        if (t == 64) {{ for (int i = 0; i < 2; ++i) {{ {WAIT} }} x[7] = 1; }}""",
        "youngest-waits",
    ),
}
"""Each is found by at least one adversary."""

#: Two pairs of warps with one number: a pair may be one warp of each.
ONE_BARRIER = Wrong(
    128,
    """__shared__ int tile[128];
    tile[t] = t;
    asm volatile("bar.sync 1, 64;" ::: "memory");
    x[t] = tile[t ^ 32];""",
    "random",
)


@cache
def kernel(wrong: Wrong) -> ptx.Kernel:
    """The kernel, compiled once."""
    return ptx.RawKernel(wrong.source, "wrong").kernel
