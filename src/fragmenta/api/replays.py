"""Recorded runs as users have them: also as a page."""

from __future__ import annotations

import html
from os import PathLike
from typing import TYPE_CHECKING

from fragmenta.replay import recorded

if TYPE_CHECKING:
    from fragmenta.launch.result import Result


class Replay(recorded.Replay):
    """A recorded run of a kernel; ``result.replay()`` returns it.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> kernel = ptx.parse('''
    ... .version 8.0 .target sm_80 .address_size 64
    ... .entry twice(.param .u64 data) {
    ...     .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [data];
    ...     mov.u32 %r1, %tid.x;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.s64 %rd3, %rd1, %rd2;
    ...     ld.global.u32 %r2, [%rd3];
    ...     add.s32 %r2, %r2, %r2;
    ...     st.global.u32 [%rd3], %r2;
    ...     ret;
    ... }''').kernels["twice"]
    >>> data = np.arange(4, dtype=np.int32)
    >>> replay = kernel.launch(1, 4, [data], replay=True).replay()
    >>> replay
    <Replay: 8 steps of twice, 1 warps, 0 problems>
    >>> replay.registers_at(4, warp=0)["%r2"][:4], replay.registers_at(5, 0)["%r2"][:4]
    (array([0, 1, 2, 3], dtype=uint32), array([0, 2, 4, 6], dtype=uint32))
    >>> replay.writer(7, "argument 0 (data)", 8).step
    6
    """

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write it as a page: one file, which a browser shows without a server."""
        from fragmenta.view.replay_page import write

        write(self, path)

    def _repr_html_(self) -> str:
        """The page in a notebook."""
        from fragmenta.view.replay_page import page

        text = html.escape(page(self), quote=True)
        return f'<iframe srcdoc="{text}" width="100%" height="720"></iframe>'


def replay_of(result: Result, schedule: str | int | None) -> Replay:
    """The record of a launch."""
    from fragmenta.replay.making import replay_of

    found = replay_of(result, schedule)
    return Replay(found.head, found.columns)
