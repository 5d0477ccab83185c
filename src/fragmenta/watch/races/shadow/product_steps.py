"""The steps of ``wgmma`` along k, in machine code.

Products that add to the same D one after another are a *chain*.  :data:`STEP` notes
which parts of which boxes a product reads as A and as B.  It asks Python about a step
from one product of a chain to the next that was not judged yet: see
:mod:`fragmenta.watch.races.step_watch`.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Memory, Value, convert
from fragmenta.engine.simt import warps
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import P, routine
from fragmenta.engine.units.fast.step import declared, shift
from fragmenta.watch.races.shadow import box_layout as boxes_at
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow import product_layout as at
from fragmenta.watch.races.shadow.boxes import START, Boxes, if_new, mixed, there
from fragmenta.watch.races.shadow.order import BlockHead

_ASK = ir.FunctionType(ir.VoidType(), [I64, POINTER, I64, I64])
_PARTS = 2 * at.PART_BYTES // 8
_COORDINATES = range(5)


def zero(code: Code, head: BlockHead, warp: Value, d: Raw) -> None:
    """A warp is about to issue a product: note whether its D is 0.

    Kernels that never leave out the old D begin a new sum so.
    """
    raw = head.pointer(layout.HEAD_STEPS)
    with code.when(there(code, raw)):
        flags = field(code, pointer_at(code, raw, at.STEPS_ZERO), 0, I32)
        empty = warps.to_word(warps.all_lanes(code, d) == 0) == -1
        flags[convert(warp, I64)] = convert(empty, I32, signed=False)


def _step(
    code: Code,
    head_at: Raw,
    use: Value,
    a: Value,
    b: Value,
    adds: Value,
    group: Value,
    place: Value,
    site: Value,
    warp: Value,
) -> None:
    """A product reads A and B from shared memory."""
    head = BlockHead(code, head_at)
    raw = head.pointer(layout.HEAD_STEPS)
    with code.when(there(code, raw)):
        first = pointer_at(code, raw, at.STEPS_CHAINS)
        number = convert(warp >> 2, I64) * at.CHAINS + (shift(place, 7) & at.CHAINS - 1)
        chain = code.builder.gep(first, [(number * at.CHAIN_BYTES).raw])

        def long(offset: int) -> Memory:
            return field(code, chain, offset, I64)

        flags = field(code, pointer_at(code, raw, at.STEPS_ZERO), 0, I32)
        together = long(at.CHAIN_GROUP)[0] == convert(group, I64)
        goes_on = (long(at.CHAIN_PLACE)[0] == place + 1) & (adds != 0)
        goes_on = goes_on & (together | (flags[convert(warp, I64)] == 0))
        old, now = long(at.CHAIN_OLD), long(at.CHAIN_NOW)
        for each in range(_PARTS):
            old[each] = now[each]
        long(at.CHAIN_OLD_USE)[0] = long(at.CHAIN_USE)[0]
        long(at.CHAIN_OLD_SITE)[0] = long(at.CHAIN_SITE)[0]
        for offset, value in (
            (at.CHAIN_PLACE, place + 1),
            (at.CHAIN_GROUP, convert(group, I64)),
            (at.CHAIN_USE, convert(use, I64)),
            (at.CHAIN_SITE, convert(site, I64)),
        ):
            long(offset)[0] = value
        for each, word in enumerate((a, b)):
            _note(code, head, long(at.CHAIN_NOW + each * at.PART_BYTES), word)
        with code.when(goes_on):
            _judge(code, head, raw, chain, convert(together, I64, signed=False), warp)


def _note(code: Code, head: BlockHead, part: Memory, word: Value) -> None:
    """Note where an operand is: its descriptor, and the box in which it begins."""
    zero_ = code.constant(0, I64)
    part[at.PART_WORD >> 3] = word
    for each in (at.PART_LINE, at.PART_LAYOUT, at.PART_SITE):
        part[each >> 3] = zero_
    for each in _COORDINATES:
        part[(at.PART_COORDINATES >> 3) + each] = zero_
    with code.when(there(code, head.pointer(layout.HEAD_BOXES))):
        boxes = Boxes(code, head)
        line = (word & START) >> 3
        with code.when((boxes.signature[0] != 0) & (line < boxes.count)):
            begins = convert(boxes.lines[line], I64)
            with code.when(begins != 0):
                record = boxes.record(begins - 1)
                part[at.PART_LINE >> 3] = begins
                kind = field(code, record, boxes_at.BOX_LAYOUT, I64)[0]
                copier = field(code, record, boxes_at.BOX_SITE, I32)[0]
                part[at.PART_LAYOUT >> 3] = kind
                part[at.PART_SITE >> 3] = convert(copier, I64)
                where = field(code, record, boxes_at.BOX_COORDINATES, I64)
                for each in _COORDINATES:
                    part[(at.PART_COORDINATES >> 3) + each] = where[each]


def _judge(
    code: Code, head: BlockHead, raw: Raw, chain: Raw, together: Value, warp: Value
) -> None:
    """Ask Python about a step, unless one like it was judged.

    Steps are alike if they are between the same places, and if the boxes there have
    moved as far in their tensors.
    """
    b = code.builder

    def long(offset: int) -> Memory:
        return field(code, chain, offset, I64)

    uses = (long(at.CHAIN_OLD_USE)[0] << 32) ^ long(at.CHAIN_USE)[0]
    hashed = mixed(uses ^ (together << 62))
    old, now = long(at.CHAIN_OLD), long(at.CHAIN_NOW)
    for part in range(2):
        first = part * at.PART_BYTES >> 3
        for each in (at.PART_WORD, at.PART_LINE, at.PART_LAYOUT, at.PART_SITE):
            place = first + (each >> 3)
            hashed = mixed(mixed(hashed ^ old[place]) ^ now[place])
        for each in _COORDINATES:
            place = first + (at.PART_COORDINATES >> 3) + each
            hashed = mixed(hashed ^ (now[place] - old[place]))
    judged = field(code, pointer_at(code, raw, at.STEPS_JUDGED), 0, I64)
    with if_new(code, judged, hashed):
        rank = convert(head.word(layout.HEAD_RANK), I64)
        ask = b.bitcast(pointer_at(code, raw, at.STEPS_ASK), _ASK.as_pointer())
        b.call(ask, [rank.raw, chain, together.raw, convert(warp, I64).raw])


STEP = routine("watch.step", _step, [P, I32, I64, I64, I64, I32, I64, I32, I32], None)
"""The head of a block, the use, the descriptors of A and B, whether the old D is added,
the group, where D begins in a warp, the site and the warp."""
_STEPS = ir.FunctionType(
    ir.VoidType(), [POINTER, I32, I64, I64, I64, I32, I64, I32, I32]
)


def step(code: Code, *given: Raw) -> None:
    """Write a call of :data:`STEP`."""
    b = code.builder
    b.call(declared(b.module, STEP.name, _STEPS), list(given))
