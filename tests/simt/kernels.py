"""Small kernels for the tests of the engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from fragmenta import ptx
from fragmenta.launch.result import Result

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"

#: Registers that every kernel has.  %t is the number of the thread in its block,
#: %all its number in the grid, %mine the address of its word in ``out``.
_BEGIN = """
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<32>, %t, %lane, %warp, %cta, %all, %n;
    .reg .b64 %rd<32>, %out, %mine;
    .reg .f32 %f<16>;
    .reg .f64 %fd<8>;
    .reg .b128 %q<4>;
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mov.u32 %lane, %laneid;
    mov.u32 %warp, %warpid;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mad.lo.u32 %all, %cta, %n, %t;
    mad.wide.u32 %mine, %all, 4, %out;
"""


def module(body: str, parameters: str = "", before: str = "", head: str = HEAD) -> Any:
    """A module with one kernel, ``k``, whose first parameter is ``out``."""
    more = f", {parameters}" if parameters else ""
    return ptx.parse(
        f"{head}{before}\n.visible .entry k(.param .u64 out{more})\n"
        f"{{{_BEGIN}{body}\n}}\n"
    )


def kernel(
    body: str, parameters: str = "", before: str = "", head: str = HEAD
) -> ptx.Kernel:
    """The kernel of :func:`module`."""
    found: ptx.Kernel = module(body, parameters, before, head).kernels["k"]
    return found


def launched(
    body: str,
    threads: Any = 32,
    blocks: Any = 1,
    arguments: Any = (),
    *,
    parameters: str = "",
    before: str = "",
    words: int | None = None,
    **options: Any,
) -> np.ndarray:
    """What a kernel leaves in ``out``: one word for each thread, unless said."""
    count = int(np.prod(threads)) * int(np.prod(blocks)) if words is None else words
    out = np.zeros(count, np.uint32)
    made = kernel(body, parameters, before)
    made.launch(blocks, threads, [out, *arguments], **options)
    return out


def run(
    made: ptx.Kernel, *arguments: Any, threads: Any = 32, blocks: Any = 1, **more: Any
) -> Result:
    """Launch a kernel."""
    return made.launch(blocks, threads, list(arguments), **more)
