"""An algebra for tests: each input has a payload, which shows where it went.

The granules of an input are the numbers 1, 2, 3, …, and each of them has a payload that
is known from its number.  So whatever a kernel moves, each granule of an output has the
payload of its own value, and a 0 has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta import ptx
from fragmenta.engine.planes.algebra import Algebra
from fragmenta.engine.planes.elements import WORDS, joined, split
from fragmenta.engine.planes.memory import PlaneWatch


class Payloads(Algebra):
    """Gives payloads to the first argument, and keeps those of the second one."""

    name = "payloads"

    def __init__(self, bits: int = 16, planes: int = 4) -> None:
        super().__init__(planes)
        self.bits = bits
        """The bits of a granule."""
        self.left = np.zeros((planes, 0), np.uint8)

    def begin(self, watch: PlaneWatch) -> None:
        """Give each granule of the input its payload."""
        memory = watch.argument(0)
        numbers = numbered(memory.shape[1], self.bits)
        made = split(payloads(numbers), self.bits, self.planes)
        memory[:] = made.view(np.uint8).reshape(memory.shape)

    def finish(self, watch: PlaneWatch) -> None:
        """Keep the planes of the output."""
        self.left = watch.argument(1).copy()

    @property
    def found(self) -> NDArray[np.uint64]:
        """The payloads of the output."""
        return joined(self.left, self.bits)


def numbered(size: int, bits: int = 16) -> NDArray[np.unsignedinteger]:
    """The numbers from 1 on, in so many bytes."""
    return np.arange(1, size * 8 // bits + 1).astype(WORDS[bits])


def payloads(numbers: NDArray[np.unsignedinteger]) -> NDArray[np.uint64]:
    """The payload of each number; that of 0 is 0."""
    wide = numbers.astype(np.uint64)
    made = wide * np.uint64(0x9E3779B97F4A7C15) | np.uint64(0x0101010101010101)
    return np.where(wide == 0, np.uint64(0), made)[:, None]


HEAD = """
.version 8.6
.target sm_90a
.address_size 64
"""
"""What texts of kernels begin with."""


def text(body: str, before: str = "") -> str:
    """A kernel that is given the pointers ``%in`` and ``%out``.

    ``%t`` is the thread, ``%to`` and ``%of`` are its words of 32 bits.
    """
    return f"""{HEAD}
{before}
.visible .entry f(.param .u64 in, .param .u64 out) {{
    .reg .pred %p<17>; .reg .b16 %h<33>; .reg .b32 %r<33>, %t, %lane;
    .reg .b64 %rd<33>, %in, %out, %of, %to, %step; .reg .f32 %f<9>;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x; mov.u32 %lane, %laneid;
    mul.wide.u32 %step, %t, 4; add.s64 %of, %in, %step; add.s64 %to, %out, %step;
    {body}
    ret;
}}"""


def moved(
    source: str,
    size: int = 256,
    *,
    bits: int = 16,
    planes: int = 4,
    block: int = 64,
    grid: Any = 1,
    **options: Any,
) -> tuple[NDArray[np.unsignedinteger], NDArray[np.uint64]]:
    """What a kernel makes of an input: the granules of the output, their payloads."""
    given = numbered(size, bits)
    out = np.zeros_like(given)
    algebra = Payloads(bits, planes)
    kernel = ptx.parse(source).kernels["f"]
    plain = out.copy()
    kernel.launch(grid, block, [given.copy(), plain], watch=False, **options)
    kernel.launch(grid, block, [given, out], algebra=algebra, **options)
    assert (plain == out).all()  # the values are those of a launch without planes
    return out, algebra.found


def check_moved(source: str, size: int = 256, **options: Any) -> None:
    """All that arrives has its payload; something arrives."""
    out, found = moved(source, size, **options)
    assert np.count_nonzero(out) > out.size // 4
    assert (found == payloads(out)).all()
