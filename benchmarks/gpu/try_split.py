"""Are split and early kernels right?  (a trial)"""
import sys
from check_gemm import Case, check
from fragmenta.kernels.config import Kernel, Tile
import torch
torch.zeros(1, device="cuda")
bad = 0
for a, out in (("bf16", "bf16"), ("e4m3", "bf16"), ("s8", "s32"), ("tf32", "f32")):
    for tile in (Tile(64, 8, split=4, resident=2), Tile(64, 24, split=2), Tile(128, 96, split=3), Tile(256, 96, split=8), Tile(128, 48, 2, split=2), Tile(256, 192, split=2), Tile(64, 64, resident=2), Tile(256, 128, 2, split=4)):
        for tr in (True, False):
            kernel = Kernel(a, out=out, tile=tile, transposed=tr, early=True)
            for case in (Case(321, 203, kernel.slab_k * 37 + 128 // 8, "random"), Case(700, 90, kernel.slab_k * 40, "adversarial")):
                try:
                    said = check(kernel, case, 50)
                except Exception as why:
                    said = f"{type(why).__name__} {why}"
                if said:
                    bad += 1
                    print("WRONG", kernel, case, said[:200], flush=True)
print("bad", bad)
