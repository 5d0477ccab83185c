"""Compiles Triton's kernels for Blackwell, and keeps their PTX.

    python -m tests.triton.keep_blackwell FOLDER

Triton compiles without a GPU.  What is kept is the PTX of a few launches and the
parameters that it gets: ``tests/ptx/test_triton_blackwell.py`` launches it without Triton.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from pathlib import Path
from typing import Any

import triton

from fragmenta.frontends.triton.arrays import as_tensor
from fragmenta.triton import on_cpu
from tests.ptx.corpus.gluon_blackwell import LAUNCHES as PAIRS
from tests.ptx.corpus.triton_blackwell import LAUNCHES
from tests.ptx.corpus.triton_hopper import Launched
from tests.triton.record import as_given, make_arrays, parameters

KEPT = (
    "matmul-bf16",
    "matmul_specialised",
    "matmul_scaled-nvfp4",
    "attention_by_maps-causal-64-specialised",
    "pair_matmul",
)


def compiled(launch: Launched) -> dict[str, Any]:
    """One launch: the PTX, and what it gets."""
    given = map(as_tensor, as_given(launch, make_arrays(launch)))
    kernel = launch.function.warmup(
        *given, grid=launch.grid, **launch.constants, **launch.options
    )
    made = kernel.metadata
    text = re.sub(r'(\.file\s+\d+\s+)"[^"]*/([^"/]+)"', r'\1"\2"', kernel.asm["ptx"])
    return {
        "name": launch.name,
        "entry": made.name,
        "text": text,
        "grid": [launch.grid[0] * made.num_ctas, *launch.grid[1:]],
        "block": 32 * made.num_warps,
        "cluster": made.num_ctas,
        "shared": made.shared,
        "arguments": launch.arguments,
        "parameters": parameters(launch, kernel),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with on_cpu("sm_100a"):
        launches = [compiled(each) for each in (*LAUNCHES, *PAIRS) if each.name in KEPT]
    made = {"target": "sm_100a", "triton": triton.__version__}
    content = json.dumps({"made": made, "launches": launches}).encode()
    path = given.folder / f"{triton.__version__}.xz"
    path.write_bytes(lzma.compress(content, preset=9))


if __name__ == "__main__":
    main()
