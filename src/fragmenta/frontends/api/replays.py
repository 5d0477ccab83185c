"""Recorded runs as users have them: also as a page."""

from __future__ import annotations

import html
from os import PathLike
from typing import TYPE_CHECKING

from fragmenta.inspect.replay import recorded

if TYPE_CHECKING:
    from fragmenta.launch.result import Result


class Replay(recorded.Replay):
    """A recorded run of a kernel; ``result.replay()`` returns it.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> kernel = ptx.parse('''
    ... .version 8.0 .target sm_80 .address_size 64
    ... .entry square(.param .u64 x) {
    ...     .reg .u32 %n<4>; .reg .u64 %a<3>;
    ...     ld.param.u64 %a1, [x];
    ...     mov.u32 %n1, %tid.x;
    ...     mul.lo.u32 %n2, %n1, %n1;
    ...     mad.wide.u32 %a2, %n1, 4, %a1;
    ...     st.global.u32 [%a2], %n2;
    ...     ret;
    ... }''').kernels["square"]
    >>> x = np.zeros(4, np.uint32)
    >>> replay = kernel.launch(1, 4, [x], replay=True).replay()
    >>> replay
    <Replay: 6 steps of square, 1 warps, 0 problems>
    >>> squares = replay.registers_at(2, warp=0)["%n2"]
    >>> squares[:4].tolist(), squares.mask[:5].tolist()
    ([0, 1, 4, 9], [False, False, False, False, True])
    >>> before, after = (replay.memory_at(step, "argument 0 (x)")[0] for step in (3, 4))
    >>> before.view(np.uint32), after.view(np.uint32)
    (array([0, 0, 0, 0], dtype=uint32), array([0, 1, 4, 9], dtype=uint32))
    >>> replay.writer(5, "argument 0 (x)", 12).lane
    3
    """

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write it as a page: one file, which a browser shows without a server."""
        from fragmenta.inspect.view.replay_page import write

        write(self, path)

    def _repr_html_(self) -> str:
        """The page in a notebook."""
        from fragmenta.inspect.view.replay_page import page

        text = html.escape(page(self), quote=True)
        return f'<iframe srcdoc="{text}" width="100%" height="720"></iframe>'


def replay_of(result: Result, schedule: str | int | None) -> Replay:
    """The record of a launch."""
    from fragmenta.inspect.replay.making import replay_of

    found = replay_of(result, schedule)
    others = [Replay(each.head, each.columns) for each in found.others]
    return Replay(found.head, found.columns, others)
