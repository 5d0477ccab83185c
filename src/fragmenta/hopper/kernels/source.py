"""The CUDA C++ source of a kernel, and its machine code.

The source has the settings of a kernel as macros, the function ``multiply`` around the
one instruction, and then ``gemm.cu`` with the parts that it includes.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from fragmenta.cuda.source.inline import WrapperFunction
from fragmenta.cuda.tools.compiler import to_cubin
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.packing import places_macro

TARGET = "sm_90a"
_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


@cache
def text(name: str) -> str:
    """The text of a CUDA source in this folder, with the parts that it includes.

    >>> "__global__" in text("gemm.cu"), "#include" in text("gemm.cu")
    (True, False)
    """
    folder = files("fragmenta").joinpath("hopper", "kernels")
    own = folder.joinpath(name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda line: text(line[1]), own)


def source(kernel: Kernel) -> str:
    """The complete CUDA C++ source of a kernel.

    >>> print(source(Kernel("e4m3"))[:35])
    #define TILE_M 128
    #define TILE_N 1
    """
    defined = dict(kernel.macros)
    if kernel.activation:
        defined["PLACES"] = places_macro("e4m3")
    macros = "".join(f"#define {k} {v}\n" for k, v in defined.items())
    wrapper = WrapperFunction(kernel.instruction, "multiply", kernel.four_bits).text()
    return f"{macros}\n{wrapper}\n{text('gemm.cu')}"


def cubin(kernel: Kernel) -> bytes:
    """The machine code of a kernel, compiled at first use and kept on disk.

    >>> from fragmenta.hopper.kernels.config import Tile
    >>> cubin(Kernel("e4m3", tile=Tile(64, 8)))[1:4]
    b'ELF'
    """
    return to_cubin(source(kernel), TARGET)
