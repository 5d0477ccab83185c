"""The detector of products whose A and B advance along k by different steps.

Machine code notes for each warpgroup which parts of shared memory the last products
read that add to the same D (:mod:`fragmenta.watch.races.shadow.product_steps`).  Here
it is judged whether A and B are still at the same k:
:mod:`fragmenta.reference.shared.operand_steps`.  Nothing is known of an A in registers.

It is a warning: no manual says what a sum is of.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.compiled import address_of, callback_address, zeros
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.loaded import LoadedRoutines
from fragmenta.engine.simt.wgmma_operands import Located
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Described, once_per_kernel
from fragmenta.engine.units.findings import Finding
from fragmenta.engine.units.port import Step
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.warpgroups import Wgmma
from fragmenta.engine.units.wgmma_forms import signed
from fragmenta.ptx import rules
from fragmenta.ptx.module import Address
from fragmenta.reference.shared.box_layouts import numbered
from fragmenta.reference.shared.copied_operands import Box, SharedOperand
from fragmenta.reference.shared.descriptor import MAJORS, Descriptor
from fragmenta.reference.shared.operand_steps import OperandStart, apart, moved
from fragmenta.watch.races.judged import Judged, JudgedTable
from fragmenta.watch.races.layout_watch import WrittenBox
from fragmenta.watch.races.report import layout_words
from fragmenta.watch.races.shadow import box_layout as boxes
from fragmenta.watch.races.shadow import layout as heads
from fragmenta.watch.races.shadow import product_layout as at

if TYPE_CHECKING:
    from fragmenta.watch.races.observer import Observer

_LONG, _WORD, _POINTER = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p
ASK_STEP = ctypes.CFUNCTYPE(None, *4 * (_LONG,))
ALL = 0xFFFFFFFF
WARPS = 4


@once
def _step() -> Callable[..., None]:
    """What notes a product; loaded once."""
    # Tracing takes a while to import.
    from fragmenta.watch.races.shadow import product_steps

    words = _POINTER, _WORD, *3 * (_LONG,), _WORD, _LONG, _WORD, _WORD
    return LoadedRoutines([product_steps.STEP]).function(product_steps.STEP, *words)


@once_per_kernel
def steps_of(compiled: Described) -> JudgedTable:
    """The steps of a kernel that are right: it depends on what machine code hashes."""
    return JudgedTable(at.STEPS_KNOWN)


class StepWatch:
    """The last steps of the products of a cluster."""

    def __init__(self, observer: Observer, ask: int = 0) -> None:
        """``ask`` is a function that calls :meth:`asked`."""
        self._observer = observer
        blocks = observer.cluster.blocks
        count, groups = len(blocks), -(-len(blocks[0].warps) // WARPS)
        self._chains = zeros((count, groups * at.CHAINS, at.CHAIN_BYTES // 8), np.int64)
        self._zero = zeros((count, groups * WARPS), np.int32)
        self.judged = Judged(steps_of(observer.machine.launch.compiled))
        self._states = zeros((count, at.STEPS_BYTES // 8), np.int64)
        self._function = None if ask else ASK_STEP(self.asked)
        if self._function is not None:
            ask = callback_address(self._function)
        for rank, state in enumerate(self._states):
            for offset, address in (
                (at.STEPS_CHAINS, address_of(self._chains[rank])),
                (at.STEPS_JUDGED, address_of(self.judged.table)),
                (at.STEPS_ASK, ask),
                (at.STEPS_ZERO, address_of(self._zero[rank])),
            ):
                state[offset >> 3] = address
            head = observer.order.head(rank, np.int64)
            head[heads.HEAD_STEPS // 8] = address_of(state)

    def close(self) -> None:
        """Free everything: the function and this object refer to one another."""
        vars(self).clear()

    def begin(self) -> None:
        """A new cluster begins: there are no sums yet."""
        self._chains[:, :, at.CHAIN_PLACE >> 3] = 0

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what :meth:`begin` does."""
        for chains in self._chains:
            resets.clear(chains)

    # ── what Python observes ────────────────────────────────────────────────

    def about_to_issue(self, warp: Warp, product: Located) -> None:
        """A warp will issue a product: note whether its D is 0."""
        first = product.d[0] // 4
        empty = not warp.words[first : first + LANES].any()
        self._zero[warp.block.rank, warp.number] = empty

    def product(self, step: Step, work: Wgmma) -> None:
        """All four warps have issued a product."""
        if len(work.descriptors) < 2:  # A is in registers
            return
        a, b = map(signed, work.descriptors)
        use = self._observer.launch_watch.uses.of(work.located).number
        head = self._observer.order.address(step.warp.block.rank)
        about = a, b, int(work.given[-1]), work.group, work.located.d[0]
        _step()(head, use, *about, step.event.site, step.warp.number)

    # ── the judgement ───────────────────────────────────────────────────────

    def asked(self, rank: int, chain: int, together: int, number: int) -> None:
        """Machine code asks about a step, whose products are in the record."""
        observer = self._observer
        warp = observer.cluster.blocks[rank].warps[number]
        size = at.CHAIN_BYTES // 8
        record = np.array((ctypes.c_int64 * size).from_address(chain), np.int64)
        site = int(record[at.CHAIN_SITE >> 3])
        try:
            self._judge(record, bool(together), warp)
        except BaseException as error:  # an interrupt, too: compiled code drops it
            observer.machine.failed(error, warp, site, ALL)

    def _judge(self, record: NDArray[np.int64], together: bool, warp: Warp) -> None:
        uses = self._observer.launch_watch.uses.all
        before, now = (
            uses[int(record[each >> 3])].of for each in (at.CHAIN_OLD_USE, at.CHAIN_USE)
        )
        steps, parts = [], []
        for operand in range(2):
            old = self._part(record, at.CHAIN_OLD, before, operand)
            new = self._part(record, at.CHAIN_NOW, now, operand)
            found = moved(old, new, together)
            if found is None:
                return
            steps.append(found)
            parts.append(new)
        if not apart(*steps):
            return
        self.judged.right = False
        if not self._copied_last(warp, parts):
            return
        message, repair = layout_words.of_steps(parts, steps)
        block = warp.block
        made = Finding(
            rules.LAYOUT_MISMATCH,
            int(record[at.CHAIN_SITE >> 3]),
            message,
            block.index,
            warp.number,
            ALL,
            rules.WARNING,
            other=int(record[at.CHAIN_OLD_SITE >> 3]),
            repair=repair,
        )
        block.cluster.touch()
        block.cluster.machine.problems.put(made)

    def _copied_last(self, warp: Warp, parts: list[OperandStart]) -> bool:
        """Whether no thread has written what is in the boxes since."""
        layouts = self._observer.layouts
        for each in parts:
            if each.box is not None and layouts is not None:
                units = each.reading.addresses()
                noted = WrittenBox(each.box, each.copy, each.coordinates)
                if not layouts.copied_last(warp.block.rank, units, [noted]):
                    return False
        return True

    def _part(
        self, record: NDArray[np.int64], first: int, of: Located, operand: int
    ) -> OperandStart:
        """An operand of a product in a record."""
        begin = first + operand * at.PART_BYTES >> 3
        long = record[begin : begin + (at.PART_BYTES >> 3)].tolist()
        trans = of.ways.trans_b if operand else of.ways.trans_a
        word = long[at.PART_WORD >> 3] & (1 << 64) - 1
        described = Descriptor.decode(word, "wgmma")
        reading = SharedOperand(of.op, "AB"[operand], described, MAJORS[trans])
        line, kind = long[at.PART_LINE >> 3], long[at.PART_LAYOUT >> 3]
        if not line or not kind:
            return OperandStart(reading, None)
        layout, place = numbered(kind), at.PART_COORDINATES >> 3
        box = Box(layout, (line - 1) * boxes.LINE)
        coordinates = tuple(long[place : place + len(layout.counts)])
        site = long[at.PART_SITE >> 3]
        return OperandStart(reading, box, coordinates, site, self._tensor(site))

    def _tensor(self, site: int) -> Hashable:
        """The tensor map of a copy, as the text names it: unrolled copies have one."""
        launch = self._observer.machine.launch
        function, index = launch.compiled.places[site]
        text = launch.module().functions[function].instructions[index]
        named = [
            (each.base, each.offset)
            for each in text.operands
            if isinstance(each, Address) and each.items
        ]
        return function, *named
