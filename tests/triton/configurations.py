"""A matrix product in Triton in forty configurations, and which of them an H200
separates.

    python -m tests.triton.configurations FILE    # on the machine with the GPU
    python -m tests.triton.configurations --prove docs/verification/classes.json

Tiles, warps, stages and splits of k are what an autotuner chooses from.  Each
configuration runs on the same random inputs.  Two are in one class if all of their
results are equal.  ``docs/same-bits.md`` tells what the classes are, and
``tests/triton/test_configurations.py`` finds them without a GPU: by proof, from the
expressions.  ``--prove`` writes down what it finds.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

import fragmenta

M, N, K = 256, 256, 1024
INPUTS = 1000
"""Random inputs on which the GPU compares configurations."""


@triton.jit
def product(
    a,
    b,
    c,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """C = A B, with k in SPLIT parts whose sums are added at the end, in order."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    part = k // SPLIT
    for split in range(SPLIT):
        added = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(split * part, (split + 1) * part, BLOCK_K):
            at = start + inner
            left = tl.load(a + rows[:, None] * k + at[None, :])
            right = tl.load(b + at[:, None] * n + cols[None, :])
            added = tl.dot(left, right, added)
        total += added
    tl.store(c + rows[:, None] * n + cols[None, :], total)


class Configuration(NamedTuple):
    """What an autotuner chooses."""

    block_m: int
    block_n: int
    block_k: int
    split: int
    warps: int
    stages: int

    def __str__(self) -> str:
        """A short name.

        >>> str(Configuration(64, 64, 32, 1, 4, 3))
        '64x64x32 split 1 warps 4 stages 3'
        """
        tile = "x".join(map(str, self[:3]))
        return f"{tile} split {self.split} warps {self.warps} stages {self.stages}"

    def meta(self) -> dict[str, int]:
        """The meta-parameters."""
        return {
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "BLOCK_K": self.block_k,
            "SPLIT": self.split,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }

    def launch(self, a: Any, b: Any, c: Any) -> Any:
        """Launch the product of two matrices."""
        meta = self.meta()
        return product[grid(meta)](a, b, c, M, N, K, **meta)


def grid(meta: dict[str, int]) -> tuple[int, int]:
    """A block for each tile."""
    return M // meta["BLOCK_M"], N // meta["BLOCK_N"]


def _tiles() -> list[Configuration]:
    """Forty: tiles with one part of k, then tiles with several."""
    tiles = [(16, 32), (32, 64), (64, 64), (64, 128), (128, 64), (128, 128)]
    whole = [
        Configuration(*tile, inner, 1, warps, stages)
        for tile, (inner, warps, stages) in itertools.product(
            tiles, [(32, 4, 2), (64, 4, 3), (64, 8, 3), (128, 4, 2)]
        )
    ]
    split = [
        Configuration(*tile, 64, parts, 4, 2)
        for tile, parts in itertools.product(tiles[1:5], [2, 4, 8, 16])
    ]
    return whole + split


CONFIGURATIONS = _tiles()
KINDS: dict[str, Any] = {
    "f16": np.float16,
    "e4m3": ml_dtypes.float8_e4m3fn,
}


def inputs(kind: str, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Random matrices; with odd seeds their magnitudes differ by factors of 2^12."""
    rng = np.random.default_rng(seed)
    found = []
    for shape in ((M, K), (K, N)):
        numbers = rng.standard_normal(shape, np.float32)
        if seed % 2:
            numbers *= np.exp2(rng.integers(-6, 7, shape)).astype(np.float32)
        found.append(numbers.astype(KINDS[kind]))
    return found[0], found[1]


def proved(kind: str, chosen: list[Configuration]) -> Any:
    """The classes of some configurations, found without a GPU."""
    from fragmenta.triton import classes

    metas = {str(each): each.meta() for each in chosen}
    names = {id(meta): name for name, meta in metas.items()}
    a, b = inputs(kind, 0)
    arguments = [a, b, np.zeros((M, N), np.float32), M, N, K]
    return classes(
        product,
        metas.values(),
        arguments,
        grid=grid,
        names=lambda meta: names[id(meta)],
    )


def classes(results: dict[Configuration, str]) -> list[list[str]]:
    """The configurations with equal results, by name.

    >>> one, two = Configuration(1, 1, 1, 1, 1, 1), Configuration(2, 1, 1, 1, 1, 1)
    >>> len(classes({one: "x", two: "x"})), len(classes({one: "x", two: "y"}))
    (1, 2)
    """
    found: dict[str, list[str]] = {}
    for each, result in results.items():
        found.setdefault(result, []).append(str(each))
    return list(found.values())


def _measured(kind: str, count: int) -> list[list[str]]:
    """The classes that the GPU's results show."""
    import torch

    storage = {"f16": torch.float16, "e4m3": torch.float8_e4m3fn}
    hashes = {each: hashlib.sha256() for each in CONFIGURATIONS}
    c = torch.empty((M, N), dtype=torch.float32, device="cuda")
    # A sum of all words with random odd weights, modulo 2^64, is made on the GPU.
    random = np.random.default_rng(1).integers(-(2**63), 2**63, M * N, np.int64) | 1
    weights = torch.from_numpy(random).cuda()
    for seed in range(count):
        a, b = (
            torch.from_numpy(each.view(np.uint8)).cuda().view(storage[kind])
            for each in inputs(kind, seed)
        )
        for each, known in hashes.items():
            c.fill_(float("nan"))
            each.launch(a, b, c)
            words = c.view(torch.int32).long().flatten()
            total = int((words * weights).sum())
            known.update(total.to_bytes(8, "little", signed=True))
    return classes({each: known.hexdigest() for each, known in hashes.items()})


def prove() -> dict[str, Any]:
    """The classes of each kind of element by proof, and what separates each two."""
    found: dict[str, Any] = {
        "made": date.today().isoformat(),
        "script": "python -m tests.triton.configurations --prove",
        "fragmenta": fragmenta.__version__,
        "target": "sm_90a",
        "triton": triton.__version__,
        "shape": [M, N, K],
        "classes": {},
        "ways": {},
        "between": {},
        "seconds of processor time": {},
    }
    for kind in KINDS:
        start = time.process_time()
        made = proved(kind, CONFIGURATIONS)
        seconds = round(time.process_time() - start, 1)
        found["seconds of processor time"][kind] = seconds
        found["classes"][kind] = [list(each) for each in made.members]
        found["ways"][kind] = list(made.ways.values())
        found["between"][kind] = {
            f"{x} and {y}": [each.verdict, each.cause, str(each.witness)]
            for (x, y), each in made.between.items()
        }
    return found


def main() -> None:
    """Measure the classes of each kind of element, or prove them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--prove", action="store_true", help="without a GPU")
    given = parser.parse_args()
    found = prove() if given.prove else measured(given.inputs)
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    for kind, each in found["classes"].items():
        print(kind, [len(names) for names in each])


def measured(count: int) -> dict[str, Any]:
    """The classes of each kind of element, as a GPU shows them."""
    import torch

    return {
        "made": date.today().isoformat(),
        "script": "python -m tests.triton.configurations",
        "gpu": torch.cuda.get_device_name(),
        "triton": triton.__version__,
        "torch": torch.__version__,
        "shape": [M, N, K],
        "inputs": count,
        "classes": {kind: _measured(kind, count) for kind in KINDS},
    }


if __name__ == "__main__":
    main()
