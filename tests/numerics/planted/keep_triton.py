"""Compiles the Triton kernels with planted bugs, and keeps their PTX.

    python -m tests.numerics.planted.keep_triton

Triton compiles without a GPU.  The first line of each file says how much shared memory
the kernel gets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.numerics.planted.sources import triton_kernels

FOLDER = Path(__file__).parent / "sources"
TARGET = GPUTarget("cuda", 80, 32)
TYPES = {
    "masked_softmax": ("*fp32", "*i32", "*fp32", "i32"),
    "row_norm": ("*fp32", "*fp32", "i32"),
    "half_matmul": ("*fp16", "*fp16", "*fp32", "i32"),
}
BLOCKS = {"masked_softmax": 128, "row_norm": 256, "half_matmul": 32}


def compiled(function: Any, types: tuple[str, ...], block: int) -> str:
    """The PTX of a kernel with its line information, without folders."""
    given = [*function.arg_names[:-1]]
    signature = {**dict(zip(given, types, strict=True)), "BLOCK": "constexpr"}
    source = ASTSource(function, signature, {(len(given),): block})
    made = triton.compile(source, target=TARGET, options={"num_warps": 4})
    text = re.sub(r'(\.file\s+\d+\s+)"[^"]*/([^"/]+)"', r'\1"\2"', made.asm["ptx"])
    # What follows the code is for debuggers, and names folders of this machine.  Line
    # information refers to names in it: each becomes the name of the kernel.
    text = re.sub(r"(?s)\t\.section\t\.debug_.*", "", text)
    text = re.sub(r", debug\b", "", text)
    labels = sorted(set(re.findall(r"function_name (\$\w+)", text)))
    bytes_of = ", ".join(map(str, [*function.__name__.encode(), 0]))
    names = "".join(f"{label}:\n.b8 {bytes_of}\n" for label in labels)
    text += f".section .debug_str\n{{\n{names}}}\n" if names else ""
    return f"// {made.metadata.shared} bytes of shared memory\n{text}"


def main() -> None:
    for name, types in TYPES.items():
        for each in (name, f"{name}_wrong"):
            text = compiled(getattr(triton_kernels, each), types, BLOCKS[name])
            (FOLDER / f"triton_{each}.ptx").write_text(text)


if __name__ == "__main__":
    main()
