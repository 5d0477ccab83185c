"""Ask PyTorch and torchao how they store sparse matrices, and keep the answers.

    python tests/golden/make_exchange.py

needs PyTorch, on any machine: these conversions run on the CPU.  For Sparse-Marlin
it needs torchao 0.9, whose Marlin 2:4 is a copy of Sparse-Marlin's conversion;
where there is none, only PyTorch is asked.  The answers are the independent
statement that the tests of `fragmenta.reference.sparse.exchange` replay where neither is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

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
MARLIN_SHAPES = [(64, 64), (128, 128)]


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


def ask(
    name: str,
    shapes: list[tuple[int, int]],
    versions: dict[str, str],
    compress: Callable[..., Any],
    decompress: Callable[..., Any],
) -> None:
    """Every type and shape, and a proof that the answer says the matrix."""
    for of, dtype in TYPES.items():
        kept = {}
        for seed, shape in enumerate(shapes):
            matrix = dense(dtype, shape, seed)
            packed, meta = compress(matrix)
            assert torch.equal(decompress(packed, meta), matrix)
            key = "x".join(map(str, shape))
            kept |= {
                f"{key}_dense": bits(matrix),
                f"{key}_packed": bits(packed),
                f"{key}_meta": meta.numpy(),
            }
        np.savez_compressed(HERE / f"{name}_{of}.npz", **versions, **kept)


def main() -> None:
    HERE.mkdir(exist_ok=True)
    versions = {"torch_version": torch.__version__}
    ask("torch", SHAPES, versions, from_dense, to_dense)
    try:
        from torchao.sparsity.marlin import utils as marlin
    except ImportError:
        print("torchao is not installed; Sparse-Marlin's answers stay as they are")
        return
    versions |= {"torchao_version": metadata.version("torchao")}
    ask(
        "marlin",
        MARLIN_SHAPES,
        versions,
        marlin.sparse_semi_structured_from_dense_cutlass,
        marlin.sparse_semi_structured_to_dense_cutlass,
    )


if __name__ == "__main__":
    main()
