"""The observer of changed tensor maps in machine code.

:mod:`fragmenta.watch.races.tensor_maps` is the half of this in Python, with the same
memory: an entry for each map that the kernel has changed, with the copies that use it.
"""

from __future__ import annotations

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Memory, Value, convert
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.simt.warps import first_lane
from fragmenta.engine.units.fast import layout as units
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.observing import Seen, observing
from fragmenta.watch.races.shadow.order import row_now

_USER = layout.USER_BYTES // 4


class Changed:
    """The entry of a map, if the kernel has changed it."""

    def __init__(self, seen: Seen, address: Value) -> None:
        self.seen, self.address = seen, address
        code = seen.code
        self._maps = seen.head.pointer(layout.HEAD_MAPS)
        self.count = field(code, self._maps, layout.MAPS_COUNT, I32)
        place = code.variable(code.constant(-1, I64))
        with code.loop(convert(self.count[0], I64)) as number:
            entry = self._entry(number)
            same = field(code, entry, layout.CHANGED_ADDRESS, I64)[0] == address
            with code.when(same):
                place.value = number
        self._place = place.value

    def _entry(self, number: Value) -> Raw:
        at = number * layout.CHANGED_BYTES + layout.MAPS_FIRST
        return self.seen.code.builder.gep(self._maps, [at.raw])

    @property
    def there(self) -> Value:
        """Whether it was changed."""
        return self._place >= 0

    @property
    def entry(self) -> Raw:
        """The entry, if there is one."""
        return self._entry(self._place)

    def word(self, offset: int) -> Memory:
        """A word of the entry."""
        return field(self.seen.code, self.entry, offset, I32)

    def users(self) -> Memory:
        """The copies that use it: agent, epoch, site."""
        code = self.seen.code
        return field(code, pointer_at(code, self.entry, layout.CHANGED_LIST), 0, I32)

    def may_use(self, clock: Memory) -> Value:
        """Whether a copy may use it, and there is room to note that."""
        seen, code = self.seen, self.seen.code
        fine = code.variable(code.constant(1, I32))
        with code.when(self.there):
            agent, lane, epoch = (
                self.word(each)[0]
                for each in (
                    layout.CHANGED_AGENT,
                    layout.CHANGED_LANE,
                    layout.CHANGED_EPOCH,
                )
            )
            at, length = convert(agent, I64), seen.head.row
            base, extra, mask = (clock[at + length * part] for part in range(3))
            named = ((mask >> lane) & 1) != 0
            ordered = (epoch < base) | ((epoch < extra) & named)
            own = (agent == seen.clocks.agent) & (((seen.lanes >> lane) & 1) != 0)
            acquired = self.word(layout.CHANGED_ACQUIRED)[0] != 0
            room = self.word(layout.CHANGED_ROOM)[0]
            free = self.word(layout.CHANGED_USERS)[0] < room
            good = (ordered | own) & acquired & free
            fine.value = convert(good, I32, signed=False)
        found: Value = fine.value != 0
        return found

    def use(self, agent: Value, epoch: Value) -> None:
        """A copy uses it."""
        with self.seen.code.when(self.there):
            count, users = self.word(layout.CHANGED_USERS), self.users()
            first = convert(count[0], I64) * _USER
            for number, word in enumerate((agent, epoch, self.seen.site)):
                users[first + number] = word
            count[0] = count[0] + 1

    def unused(self) -> Value:
        """Whether lanes know that all copies have read it."""
        seen, code = self.seen, self.seen.code
        row = field(code, seen.head.pointer(layout.HEAD_SPARE), 0, I32)
        row_now(seen.clocks, seen.lanes, row)
        users, fine = self.users(), code.variable(code.constant(1, I32))
        count = convert(self.word(layout.CHANGED_USERS)[0], I64)
        with code.loop(count) as number:
            agent, epoch = (users[number * _USER + each] for each in range(2))
            with code.when(epoch >= row[convert(agent, I64)]):
                fine.value = code.constant(0, I32)
        return fine.value

    def change(self) -> Value:
        """Lanes change it: whether nothing is wrong, and there is room to note it."""
        code = self.seen.code
        fine = code.variable(code.constant(0, I32))
        with code.when(self.there):
            fine.value = self.unused()
            with code.when(fine.value != 0):
                self._write(self.entry)
        room = field(code, self._maps, layout.MAPS_ROOM, I32)[0]
        with code.when(~self.there & (self.count[0] < room)):
            self._write(self._entry(convert(self.count[0], I64)))
            self.count[0] = self.count[0] + 1
            fine.value = code.constant(1, I32)
        return fine.value

    def _write(self, entry: Raw) -> None:
        seen = self.seen
        field(seen.code, entry, layout.CHANGED_ADDRESS, I64)[0] = self.address
        for offset, number in (
            (layout.CHANGED_AGENT, seen.clocks.agent),
            (layout.CHANGED_LANE, first_lane(seen.lanes)),
            (layout.CHANGED_EPOCH, seen.clocks.epoch[0]),
            (layout.CHANGED_SITE, seen.site),
            (layout.CHANGED_ACQUIRED, seen.lanes.lift(0)),
            (layout.CHANGED_USERS, seen.lanes.lift(0)),
        ):
            field(seen.code, entry, offset, I32)[0] = number


def _change(seen: Seen) -> Value:
    """Lanes change a map in global memory."""
    return Changed(seen, seen.number).change()


def _acquire(seen: Seen) -> None:
    """Lanes acquire a map."""
    maps = seen.head.pointer(layout.HEAD_MAPS)
    field(seen.code, maps, layout.MAPS_ACQUIRED, I32)[0] = seen.lanes.lift(1)
    found = Changed(seen, seen.number)
    with seen.code.when(found.there):
        found.word(layout.CHANGED_ACQUIRED)[0] = seen.lanes.lift(1)


ROUTINES = {
    units.PORT_CHANGE_MAP: observing("watch.port.change_map", _change),
    units.PORT_ACQUIRE_MAP: observing("watch.port.acquire_map", _acquire),
}
"""What answers the calls of the port."""
