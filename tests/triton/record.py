"""Records what an H200 leaves in memory after each Triton kernel for Hopper.

    python -m tests.triton.record FOLDER [RESULTS]    # on the machine with the GPU

Triton compiles and launches the kernels itself.  A recording has, for each launch, the
PTX, the parameters that it got, and a hash of each array afterwards.  Its name is the
version of Triton.  ``tests/ptx/test_triton_hopper.py`` replays it without Triton, and
``tests/triton/test_hopper.py`` compares it with what the installed Triton makes of the
same source.  The GPU's machine did not have Triton 3.9: what it compiles here without a
GPU was assembled and launched there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import re
from datetime import date
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from fragmenta import ptx
from fragmenta.engine.simt.arguments import Pointer, Struct
from fragmenta.frontends.triton.arguments import flat
from fragmenta.frontends.triton.arrays import as_tensor
from fragmenta.inspect.evidence.arguments import Argument, make
from tests.ptx.corpus.triton_hopper import LAUNCHES, Launched

REPEAT = 5
"""How often each launch has to give the same bytes."""
_KINDS: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def short_hash(array: Any) -> str:
    """A hash of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def make_arrays(launch: Launched) -> list[Argument]:
    """What a launch starts from."""
    found = []
    for number, given in enumerate(launch.arguments):
        spec = {name: value for name, value in given.items() if name != "block"}
        made = make(spec, 7919 * number)
        if isinstance(made, np.ndarray) and given["type"] in _KINDS:
            made = made.view(_KINDS[given["type"]])
        found.append(made)
    return found


def as_given(launch: Launched, arrays: list[Any]) -> list[Any]:
    """The same as Triton takes it: numbers, tensors and descriptors."""
    found: list[Any] = []
    for given, each in zip(launch.arguments, arrays, strict=True):
        if isinstance(each, np.generic):
            found.append(each.item())
        elif "block" in given:
            tensor = as_tensor(each)
            found.append(_descriptor(tensor, given))
        else:
            found.append(each)
    return found


def _descriptor(tensor: Any, given: dict[str, Any]) -> Any:
    """A descriptor; Gluon's, if a pair of blocks divides its tiles."""
    whole = tensor, list(tensor.shape), list(tensor.stride()), list(given["block"])
    if "pair" not in given:
        return TensorDescriptor(*whole)
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as Gluon

    bits = 8 * tensor.element_size()
    return Gluon(*whole, NVMMASharedLayout(128, bits, 2, cga_layout=[given["pair"]]))


# ── what the PTX gets ───────────────────────────────────────────────────────


def parameters(launch: Launched, kernel: Any) -> list[Any]:
    """Each parameter of the PTX: an array, a tensor map, bytes or scratch memory."""
    arrays = make_arrays(launch)
    constants = [None] * len(launch.constants)
    given = [*map(as_tensor, as_given(launch, arrays)), *constants]
    starts = {
        each.ctypes.data: i
        for i, each in enumerate(arrays)
        if isinstance(each, np.ndarray)
    }
    found: list[Any] = []
    for each in flat(kernel.src.signature.items(), given, kernel.metadata):
        value = each.bytes_or_pointer()
        if isinstance(value, Struct):
            ((_, place),) = value.pointers
            found.append(["map", starts[place.array.ctypes.data], value.data.hex()])
        elif isinstance(value, Pointer):
            found.append(["array", starts[value.array.ctypes.data]])
        else:
            found.append(["bytes", value.hex()])
    made = kernel.metadata
    blocks = int(np.prod(launch.grid)) * made.num_ctas
    wanted = len(ptx.parse(kernel.asm["ptx"]).kernels[made.name].parameters)
    scratch = [made.global_scratch_size, getattr(made, "profile_scratch_size", 0)]
    left_over = scratch[: wanted - len(found)]
    return [*found, *(["scratch", size * blocks] for size in left_over)]


# ── with a GPU ──────────────────────────────────────────────────────────────


def sent(launch: Launched, arrays: list[Any]) -> tuple[list[Any], list[Any]]:
    """Copies of the arrays on the GPU, and the arguments that name them."""
    import torch

    types = {
        "bf16": torch.bfloat16,
        "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
    }
    held: list[Any] = []
    for given, each in zip(launch.arguments, arrays, strict=True):
        if not isinstance(each, np.ndarray):
            held.append(each.item())
            continue
        small = types.get(given["type"])
        plain = each if small is None else each.view(f"u{each.dtype.itemsize}")
        tensor = torch.from_numpy(
            plain.view(np.int16) if plain.dtype == np.uint16 else plain
        )
        tensor = tensor.cuda()
        held.append(tensor if small is None else tensor.view(small))
    arguments = [
        TensorDescriptor.from_tensor(each, list(given["block"]))
        if "block" in given
        else each
        for given, each in zip(launch.arguments, held, strict=True)
    ]
    return held, arguments


def left(launch: Launched, results: dict[str, Any]) -> dict[str, Any]:
    """What one launch leaves, and what it was."""
    import torch

    seen: list[list[str]] = []
    kernel: Any = None
    for _ in range(REPEAT):
        held, arguments = sent(launch, make_arrays(launch))
        kernel = launch.function[launch.grid](
            *arguments, **launch.constants, **launch.options
        )
        torch.cuda.synchronize()
        after = [
            each.cpu().contiguous().view(torch.uint8).numpy()
            for each in held
            if isinstance(each, torch.Tensor)
        ]
        seen.append([short_hash(each) for each in after])
    if any(each != seen[0] for each in seen):
        raise RuntimeError("not the same twice")
    for number, each in enumerate(after):
        results[f"{launch.name}/{number}"] = each
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
        "before": [
            short_hash(each)
            for each in make_arrays(launch)
            if isinstance(each, np.ndarray)
        ],
        "after": seen[0],
    }


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path, nargs="?")
    given = parser.parse_args()
    triton.set_allocator(
        lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda")
    )
    launches, results = [], {}
    for launch in LAUNCHES:
        try:
            launches.append(left(launch, results))
            print(f"{launch.name}: {launches[-1]['after'][-1]}", flush=True)
        except Exception as why:  # the others are still worth having
            print(f"{launch.name}: {type(why).__name__} {str(why)[:2000]}", flush=True)
    made = {
        "gpu": torch.cuda.get_device_name(),
        "target": "sm_90a",
        "triton": triton.__version__,
        "torch": torch.__version__,
        "date": date.today().isoformat(),
    }
    content = json.dumps({"made": made, "launches": launches}).encode()
    path = given.folder / f"{triton.__version__}.xz"
    path.write_bytes(lzma.compress(content))
    if given.results is not None:
        np.savez_compressed(given.results, **results)


if __name__ == "__main__":
    main()
