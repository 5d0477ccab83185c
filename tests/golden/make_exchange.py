"""Ask PyTorch how it stores sparse matrices, and keep the answers.

    python tests/golden/make_exchange.py

needs PyTorch, on any machine: these conversions run on the CPU.  The answers
are the independent statement that the tests of `fragmenta.exchange` replay
where PyTorch is not installed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.sparse._semi_structured_conversions import (
    sparse_semi_structured_from_dense_cutlass as from_dense,
)
from torch.sparse._semi_structured_conversions import (
    sparse_semi_structured_to_dense_cutlass as to_dense,
)

HERE = Path(__file__).parent / "exchange"
TYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "s8": torch.int8,
}
SHAPES = [(32, 64), (64, 128), (96, 192)]


def dense(dtype: torch.dtype, shape: tuple[int, int], seed: int) -> torch.Tensor:
    """Chunks with every set of non-zeros that fits, none and one included."""
    random = np.random.default_rng(seed)
    rows, cols = shape
    chunk, kept = (2, 1) if dtype == torch.float32 else (4, 2)
    ranks = random.random((rows, cols // chunk, chunk)).argsort(axis=-1)
    allowed = random.integers(0, kept + 1, (rows, cols // chunk, 1))
    values = random.integers(1, 127, (rows, cols // chunk, chunk))
    signs = random.choice([-1, 1], values.shape)
    matrix = np.where(ranks < allowed, values * signs, 0).reshape(shape)
    return torch.from_numpy(matrix).to(dtype)


def bits(tensor: torch.Tensor) -> np.ndarray:
    """NumPy has no bfloat16; raw bits it has."""
    unsigned = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.itemsize]
    return tensor.view(unsigned).numpy().view(f"u{tensor.itemsize}")


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for name, dtype in TYPES.items():
        kept = {}
        for seed, shape in enumerate(SHAPES):
            matrix = dense(dtype, shape, seed)
            packed, meta = from_dense(matrix)
            assert torch.equal(to_dense(packed, meta), matrix)
            key = "x".join(map(str, shape))
            kept |= {
                f"{key}_dense": bits(matrix),
                f"{key}_packed": bits(packed),
                f"{key}_meta": meta.numpy(),
            }
        np.savez_compressed(
            HERE / f"torch_{name}.npz", torch_version=torch.__version__, **kept
        )


if __name__ == "__main__":
    main()
