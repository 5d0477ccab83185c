"""How far an operand of a product is from that of the product before, along k.

A sum over k takes A and B from the same k.  Which k that is in memory, nothing says.
But from one product of a sum to the next, both advance by as many steps.
:func:`moved` finds the step of one operand, from its box of a tensor, or from the line
of a swizzle in which both products begin; :func:`apart` compares those of A and B.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fragmenta.reference.shared.box_layouts import BoxLayout
from fragmenta.reference.shared.copied_operands import Box, SharedOperand
from fragmenta.reference.shared.descriptor import UNIT, span
from fragmenta.reference.shared.swizzles import REPEAT


class OperandStart(NamedTuple):
    """An operand of a product, and what it begins in."""

    reading: SharedOperand
    box: Box | None
    """Its box of a tensor; None: it is in none."""
    coordinates: tuple[int, ...] = ()
    copy: int = -1
    """Which instruction copied the box."""
    tensor: Hashable = None
    """What it was copied from."""


class KStep(NamedTuple):
    """From one product to the next."""

    steps: Fraction
    """How far, in steps of the instruction."""
    old: int
    new: int
    """Where along k: elements of the tensor, or bytes of a line."""
    stays: bool
    """Whether it is in the same box, with the same elements."""
    again: bool
    """Whether it is in a part of the tensor that the box before had as well."""
    same_tensor: bool
    """Whether both boxes are of one tensor."""
    boxed: bool = True
    """Whether it is in a box of a tensor."""


class _Axis(NamedTuple):
    """The dimension of a box along which k goes."""

    first: tuple[int, ...]
    """The place in the box of the first element."""
    dimension: int
    length: int
    """Elements of the tensor in one step of the instruction."""


@lru_cache(maxsize=4096)
def _near_axis(near: SharedOperand, layout: BoxLayout, at: int) -> _Axis | None:
    units = near.addresses()
    along = units[0] if near.major == "k" else units[:, 0]
    line, byte = layout.find(at, along[:2])
    if line.size < 2 or (line < 0).any():
        return None
    one, two = (
        np.array(layout.indices(int(x), int(y)))
        for x, y in zip(line, byte, strict=True)
    )
    found = np.flatnonzero(two - one)
    if found.size != 1:
        return None
    dimension = int(found[0])
    first = tuple(int(each) for each in one)
    return _Axis(first, dimension, int((two - one)[dimension]) * along.size)


def _axis(part: OperandStart) -> _Axis | None:
    """Where an operand begins in its box, and where k goes; None: in several ways."""
    assert part.box is not None
    of = part.reading.descriptor
    first = of.start // REPEAT * REPEAT
    near = part.reading._replace(descriptor=replace(of, start=of.start - first))
    return _near_axis(near, part.box.layout, part.box.at - first)


def _in_boxes(old: OperandStart, new: OperandStart) -> KStep | None:
    if old.box is None or new.box is None or old.box.layout != new.box.layout:
        return None
    layout = new.box.layout
    stays = old.box == new.box and old.coordinates == new.coordinates
    begin, end = _axis(old), _axis(new)
    if begin is None or end is None or begin[1:] != end[1:]:
        return None
    if not layout.steps and not stays:  # rows in any order
        return None
    k, steps = end.dimension, layout.steps or (1,) * len(layout.counts)
    places = [
        [c + i * s for c, i, s in zip(part.coordinates, axis.first, steps, strict=True)]
        for part, axis in ((old, begin), (new, end))
    ]
    delta = [y - x for x, y in zip(*places, strict=True)]
    if any(delta[:k]) or any(delta[k + 1 :]):
        return None
    low = old.coordinates[k]
    again = low <= places[1][k] < low + layout.counts[k] * steps[k]
    step = Fraction(delta[k], end.length * steps[k])
    same = old.tensor == new.tensor
    return KStep(step, places[0][k], places[1][k], stays, again, same)


def _in_line(old: OperandStart, new: OperandStart) -> KStep | None:
    """Both begin in one line of a swizzle, which has several steps of k."""
    one, two = old.reading.descriptor, new.reading.descriptor
    if new.reading.major != "k" or replace(one, start=two.start) != two:
        return None
    wide, units = span(two.swizzle), new.reading.addresses().shape[1]
    if one.start // wide != two.start // wide:
        return None
    step = Fraction(two.start - one.start, units * UNIT)
    places = one.start % wide, two.start % wide
    return KStep(step, *places, stays=True, again=True, same_tensor=True, boxed=False)


def moved(old: OperandStart, new: OperandStart, together: bool) -> KStep | None:
    """The step of an operand; None if nothing is known of it.

    What is in no box may have been written anew, unless both products are of one group
    (``together``).

    >>> import fragmenta as fm
    >>> from fragmenta.reference.shared.descriptor import Descriptor
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> box = Box(BoxLayout("f16", (64, 64), (1, 1), 128), 0)
    >>> def at(start):
    ...     of = SharedOperand(op, "A", Descriptor(start, 0, 1024, 128), "k")
    ...     return OperandStart(of, box, (128, 0))
    >>> moved(at(0), at(32), together=False)[:3]
    (Fraction(1, 1), 128, 144)
    """
    if old.reading.op != new.reading.op or old.reading.major != new.reading.major:
        return None
    if old.box is not None and new.box is not None:
        return _in_boxes(old, new)
    if old.box is None and new.box is None and together:
        return _in_line(old, new)
    return None


def apart(a: KStep, b: KStep) -> bool:
    """Whether two operands can not be at the same k after a step, if they were before.

    Within their boxes they advance alike.  If a box is left, its next one may be
    anywhere: blocks of zeros are left out, and filters have several dimensions.  But no
    operand goes on to what comes next while the other one repeats a part.

    An operand that stays may be multiplied by several parts of numbers that were split.
    """
    if a.steps == b.steps:
        return False
    if a.stays and b.stays:
        split = not (a.steps and b.steps)
        return not split or (a.boxed and b.boxed and 1 in (a.steps, b.steps))
    alike = a.same_tensor and b.same_tensor
    return alike and any(x.steps == 1 and y.again for x, y in ((a, b), (b, a)))
