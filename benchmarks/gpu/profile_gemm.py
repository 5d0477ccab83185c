"""One launch of each interesting kernel, for a profiler.

    ncu --clock-control none --set full --page raw --csv -k gemm \
        python benchmarks/gpu/profile_gemm.py > counters.csv

docs/kernels-history.md gives the results.
"""

from __future__ import annotations

import torch
from bench_gemm import dense, packed

from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.torch import run

FP8 = Kernel("e4m3", out="bf16", transposed=True)
BF16 = Kernel("bf16", out="bf16", transposed=True)
BITS = Kernel("b1", sparse=False)
PRODUCTS = (
    (FP8, (8192, 8192, 8192)),
    (FP8, (8192, 256, 8192)),
    (BF16, (8192, 64, 8192)),
    (BITS, (8192, 8192, 8192)),
)


def main() -> None:
    """Launch each with the tile that is chosen for its shape."""
    for kernel, (m, n, k) in PRODUCTS:
        chosen = choose(kernel, m, n, k)
        a = packed(kernel.a, m, k) if kernel.sparse else dense(kernel.a, m, k)
        b = dense(kernel.b, n, k)
        torch.cuda.synchronize()
        run(chosen, a, b, m)
        torch.cuda.synchronize()
        print(chosen, m, n, k)


if __name__ == "__main__":
    main()
