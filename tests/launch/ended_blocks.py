"""Records what a GPU does if a block accesses the shared memory of one that has ended.

Block 1 of a cluster of two waits until block 0 has returned (for a flag, and then for
some time), and accesses its shared memory.  On a machine with a GPU, nvcc and CuPy:

    python -m tests.launch.ended_blocks tests/golden/h200/ended_blocks.json

Each case has a process of its own, because an error of a launch ends its context.
``test_ended_blocks.py`` compares the recording with launches without a GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

TIMES = 5
_BYTES = ".mbarrier::complete_tx::bytes"
ACCESSES = {
    "none": "",
    "ld": 'asm volatile("ld.shared::cluster.u32 %0, [%1];"'
    ' : "=r"(got) : "r"(far) : "memory");',
    "ld_generic": "got = *(volatile unsigned *)generic;",
    "st": 'asm volatile("st.shared::cluster.u32 [%0], 7;" :: "r"(far) : "memory");',
    "atom": 'asm volatile("atom.shared::cluster.add.u32 %0, [%1], 1;"'
    ' : "=r"(got) : "r"(far) : "memory");',
    "red": 'asm volatile("red.shared::cluster.add.u32 [%0], 1;"'
    ' :: "r"(far) : "memory");',
    "st_async": f'asm volatile("st.async.shared::cluster{_BYTES}.u32 [%0], 7, [%1];"'
    ' :: "r"(far), "r"(far_bar) : "memory");',
    "red_async": 'asm volatile("red.async.relaxed.cluster.shared::cluster'
    f'{_BYTES}.add.u32 [%0], 7, [%1];" :: "r"(far), "r"(far_bar) : "memory");',
    "arrive": 'asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _,'
    ' [%0];" :: "r"(far_bar) : "memory");',
    "copy_to_peer": 'asm volatile("cp.async.bulk.shared::cluster.shared::cta'
    f'{_BYTES} [%0], [%1], 16, [%2];"'
    ' :: "r"(far), "r"(near), "r"(far_bar) : "memory");',
    "multicast": 'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;"'
    ' :: "r"(bar) : "memory");'
    f' asm volatile("cp.async.bulk.shared::cluster.global{_BYTES}.multicast::cluster'
    ' [%0], [%1], 16, [%2], %3;" :: "r"(near), "l"(in), "r"(bar),'
    ' "h"((unsigned short)3) : "memory");'
    " for (int i = 0; i < 100000 && got != 1; i++)"
    ' asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1],'
    ' 0; selp.u32 %0, 1, 0, p; }" : "=r"(got) : "r"(bar) : "memory");',
}
"""What block 1 does, by name."""
SOURCE = r"""
extern "C" __global__ void __cluster_dims__(2, 1, 1)
reach(unsigned *flag, unsigned *out, const unsigned *in, int which)
{
    __shared__ alignas(128) unsigned tile[32];
    __shared__ alignas(8) unsigned long long word;
    unsigned rank, got = 0xdead;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    unsigned near = (unsigned)__cvta_generic_to_shared(tile);
    unsigned bar = (unsigned)__cvta_generic_to_shared(&word);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 32; i++) tile[i] = 100 + rank;
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (rank == 0) {
        if (threadIdx.x == 0) { __threadfence(); atomicExch(flag, 1u); }
        return;
    }
    if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0u) == 0) {}
        for (int i = 0; i < 200; i++) __nanosleep(1000);
        unsigned far, far_bar;
        asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(far) : "r"(near));
        asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(far_bar) : "r"(bar));
        unsigned long long generic;
        asm volatile("{ .reg .u64 a; cvt.u64.u32 a, %1;"
                     " cvta.shared::cluster.u64 %0, a; }" : "=l"(generic) : "r"(far));
        switch (which) { CASES }
        out[0] = got;
        out[1] = tile[0];
        out[2] = 1;
    }
}
""".replace(
    "CASES",
    " ".join(
        f"case {index}: {{ {code} break; }}"
        for index, code in enumerate(ACCESSES.values())
    ),
)


def _child(cubin: str, name: str) -> None:
    """Launch a case; print what it left each time, or the error that ended it."""
    import cupy as cp

    kernel = cp.RawModule(path=cubin).get_function("reach")
    found: list[object] = []
    for _ in range(TIMES):
        flag, out = cp.zeros(1, cp.uint32), cp.zeros(3, cp.uint32)
        given = cp.arange(64, dtype=cp.uint32)
        try:
            kernel((2,), (32,), (flag, out, given, list(ACCESSES).index(name)))
            cp.cuda.runtime.deviceSynchronize()
            found.append(out.get().tolist())
        except cp.cuda.runtime.CUDARuntimeError as error:
            found.append(str(error))
            break
    print(json.dumps(found))


def main(output: str) -> None:
    """Record all cases."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "reach.cu", Path(folder) / "reach.cubin"
        source.write_text(SOURCE)
        command = ["nvcc", "-arch=sm_90a", "-cubin", "-o", str(cubin), str(source)]
        subprocess.run(command, check=True)
        for name in ACCESSES:
            child = [sys.executable, "-m", "tests.launch.ended_blocks"]
            run = subprocess.run(
                [*child, str(cubin), name],
                check=True,
                capture_output=True,
                text=True,
                timeout=60,
            )
            results[name] = json.loads(run.stdout.strip().splitlines()[-1])
    Path(output).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    _child(*sys.argv[1:]) if len(sys.argv) > 2 else main(sys.argv[1])
