"""The observer's part for copies that machine code issued."""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from fragmenta.engine.simt.compiled import address_of, callback_address, sparse
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.fast.layout import EVENT_NUMBER
from fragmenta.engine.units.port import Step
from fragmenta.engine.units.task_copies import TaskCopy, TaskLaneCopy
from fragmenta.watch.races.shadow import layout

if TYPE_CHECKING:
    from fragmenta.watch.races.observer import Observer

ASK_COPY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class TaskWatch:
    """The clocks of tasks, and what compiled code leaves to Python."""

    def __init__(self, observer: Observer, ask: int = 0) -> None:
        """``ask`` is a function that calls :meth:`issued` of the right observer."""
        self._observer = observer
        order, cluster = observer.order, observer.cluster
        shape = at.TASKS, *order.new_clock().shape
        self._rows = sparse(4 * prod(shape)).view(np.int32).reshape(shape)
        if not ask:
            self._function = ASK_COPY(self.issued)
            ask = callback_address(self._function)
        for block in cluster.blocks:
            head = order.head(block.rank, np.int64)
            head[layout.HEAD_TASKS // 8] = address_of(self._rows)
            head[layout.HEAD_ASK_COPY // 8] = ask

    def close(self) -> None:
        """Free everything: the function and the tasks refer to one another."""
        vars(self).clear()

    def issued(self, address: int) -> None:
        """A copy is in flight."""
        observer = self._observer
        observer.cluster.touch()
        pool = observer.cluster.pool
        start = address - pool.address
        memory = pool.raw[start : start + at.TASK_RECORD]
        rank, kind = memory.view(np.int32)[[at.TASK_RANK >> 2, at.TASK_KIND >> 2]]
        made: type[TaskCopy | TaskLaneCopy]
        made = TaskLaneCopy if kind == at.LANE_COPY else TaskCopy
        copy = made(observer.cluster.blocks[rank], memory)
        (where,) = copy.record.long(at.TASK_EVENT)
        number = ctypes.c_int32.from_address(where + EVENT_NUMBER).value
        event, warp = observer.machine.events[number], copy.thread.warp
        try:
            observer.issue(Step(warp, event, copy.members), copy)
        except BaseException as error:  # an interrupt, too: compiled code drops it
            observer.machine.failed(error, warp, event.site, copy.members)
            return
        copy.record.longs[at.TASK_OBSERVED >> 3] = copy.number
        self._rows[copy.record.index] = copy.clock
