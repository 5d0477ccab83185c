"""Runs Triton's tutorials as they are, without a GPU, and says which are right.

    python -m tests.triton.tutorials FOLDER [NUMBER ...] [--target sm_90a]

FOLDER has the files of ``python/tutorials`` of Triton's repository.  Their benchmarks
are switched off.  Those that check themselves only in a benchmark or in pytest are
called with small sizes (:data:`CALLS`).  Tutorial 04 needs the package tabulate.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import runpy
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attention(names: dict[str, Any]) -> None:
    """Both directions, with and without the mask, as its own test does."""
    for causal in (False, True):
        names["test_op"](1, 2, 128, 64, causal, False, "bwd", "triton-fp16")
    names["test_op"](1, 2, 128, 64, True, False, "fwd", "triton-fp8")


def persistent(names: dict[str, Any]) -> None:
    """All variants, as its own main does, but for the large size and the profiler."""
    import torch

    torch.manual_seed(0)
    for dtype in (torch.float16, torch.float8_e4m3fn):
        names["validate"](32, 32, 32, dtype)
    # With 8 bits and a larger k, what stands for cuBLAS rounds other sums.
    names["validate"](256, 256, 512, torch.float16)


def scaled(names: dict[str, Any]) -> None:
    """One product of blocks with scales, as its own main does."""
    if not names["supports_block_scaling"]():
        raise NotImplementedError("block scaling needs sm_100a")
    names["validate_block_scaled"](256, 256, 512, block_scale_type="mxfp8")


CALLS: dict[str, Callable[[dict[str, Any]], None]] = {
    "06": attention,
    "09": persistent,
    "10": scaled,
}
"""What is called of tutorials that do nothing when they are imported."""


def run(path: Path, target: str) -> None:
    """Run one tutorial."""
    import triton

    import fragmenta.triton

    triton.testing.Mark.run = lambda *_, **__: None
    with fragmenta.triton.on_cpu(target, torch=True, autotune="first"):
        call = CALLS.get(path.name[:2])
        found = runpy.run_path(str(path), run_name="tutorial" if call else "__main__")
        if call:
            call(found)


def described(path: Path, target: str) -> dict[str, Any]:
    """What a tutorial did: its state, the reason, and the seconds it took."""
    start = time.perf_counter()
    printed = io.StringIO()
    state, reason = "right", ""
    try:
        with contextlib.redirect_stdout(printed):
            run(path, target)
        if "❌" in printed.getvalue():
            state = "wrong"
    except NotImplementedError as why:
        state, reason = "other target", str(why)
    except BaseException as why:
        traceback.print_exc()
        state, reason = "failed", f"{type(why).__name__}: {str(why)[:300]}"
    print(printed.getvalue()[-3000:])
    seconds = round(time.perf_counter() - start, 1)
    return {"name": path.stem, "state": state, "reason": reason, "seconds": seconds}


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--target", default="sm_90a")
    given = parser.parse_args()
    chosen = tuple(given.numbers) or tuple("01")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for path in sorted(given.folder.glob("[01][0-9]-*.py")):
            if path.name.startswith(chosen):
                told = pool.apply(described, (path, given.target))
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
