"""Second values through ``tcgen05.mma``: at issue, with matrices in arrays.

Each plane of tensor memory and of shared memory is read as the instruction reads the
memories themselves.  Elements of A and B of 6 bits count as they are, without second
values: what packs them moves bits that planes do not follow.  So do, unless second
values are numbers, elements of 4 bits, block scales, and an old D that
``scale-input-d`` scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.planes.products import (
    NOWHERE,
    Matrices,
    ProductAlgebra,
    ProductSite,
    combined,
    on_matrices,
    product_model,
    separated,
)
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.tcgen05 import QueuedMma
from fragmenta.engine.units.tmem_operands import memory
from fragmenta.reference.arithmetic import multiply
from fragmenta.reference.execution import tcgen05
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.tensor_fragment import (
    Image,
    TensorAddress,
    TensorFragment,
)

if TYPE_CHECKING:
    from fragmenta.engine.planes.memory import PlaneObserver

Bits = NDArray[np.generic]
Memories = tuple[Image, NDArray[np.uint8]]
"""Tensor memory and shared memory: of a pair, both with one more axis in front."""


def tensor_product(
    op: Instruction,
    target: str,
    algebra: ProductAlgebra,
    hardware: Memories,
    planes: Sequence[Memories],
    given: dict[str, Any],
    where: ProductSite = NOWHERE,
) -> list[Image]:
    """Tensor memory in each plane after a ``tcgen05.mma``.

    ``given`` are the operands of the instruction by name, as
    :func:`fragmenta.reference.execution.tcgen05.execute` takes them.
    """
    rest = dict(given)
    lanes = rest.pop("disable_output_lane", None)
    found = _operands(op, hardware, rest)
    result = multiply(*found[:3], product_model(op, target), **_more(found))
    of, count = op.types["d"].bits, len(planes)
    numbers = bool(getattr(algebra, "numbers", False))
    seconds = _seconds(op, planes, rest, numbers)
    matrices = Matrices(
        found.a, found.b, found.c, result, found.index, *found[4:], *seconds
    )
    if numbers:
        of_a, of_b = _scales(op, planes, rest)
        matrices = matrices._replace(scale_a2=of_a, scale_b2=of_b)
    word = op.descriptor
    negated = (bool(word and word.negate_a), bool(word and word.negate_b))
    made = on_matrices(op, target, algebra, matrices, negated=negated, where=where)
    if made is None:
        parts = np.zeros((count, *found.c.shape), np.uint64)
    else:
        parts = separated(made, of, count)
    kind = found.c.dtype
    return [
        tcgen05.placed(op, part.astype(kind), tensor, rest.get("d", 0), lanes)
        for part, (tensor, _) in zip(parts, planes, strict=True)
    ]


def _operands(
    op: Instruction, memories: Memories, given: dict[str, Any]
) -> tcgen05.RawOperands:
    tensor, shared = memories
    rest = dict(given)
    a, b = rest.pop("a"), rest.pop("b")
    return tcgen05.operands(op, tensor, a, b, smem=shared, **rest)


def _more(found: tcgen05.RawOperands) -> dict[str, Any]:
    return {"index": found.index, "scale_a": found.scale_a, "scale_b": found.scale_b}


def _seconds(
    op: Instruction, planes: Sequence[Memories], given: dict[str, Any], numbers: bool
) -> list[NDArray[np.uint64] | None]:
    """The second values of A, B and C; None if an operand has none."""
    scaled = int(given.get("scale_input_d") or 0)
    wanted = {"a": given["a"], "b": given["b"], "d": given.get("d", 0)}
    drops = scaled and not numbers
    wanted["enable_input_d"] = 0 if drops else given.get("enable_input_d", 1)
    # The signs of second values are as they are: no negation, no scales, no metadata.
    found = [
        tcgen05.unsigned_operands(op, tensor, shared, wanted)
        if tensor.any() or shared.any()
        else None
        for tensor, shared in planes
    ]
    some = next((each for each in found if each is not None), None)
    if some is None:
        return [None, None, None]
    made: list[NDArray[np.uint64] | None] = []
    for place, name in enumerate("abd"):
        bits = op.types[name].bits
        like = np.zeros_like(some[place])
        every = np.stack([like if each is None else each[place] for each in found])
        usable = bits >= 8 or (numbers and _nibbles(op, name, given))
        made.append(combined(every, bits) if usable and every.any() else None)
    old = made[2]
    if scaled and old is not None:  # the lowest bits name a source, and stay
        values = old.view(np.float64) * 2.0**-scaled
        made[2] = np.where(old == 0, old, values.view(np.uint64))
    return made


def _nibbles(op: Instruction, name: str, given: dict[str, Any]) -> bool:
    """Whether elements have 4 bits, and are in halves of bytes."""
    if op.types[name].bits != 4:
        return False
    if name != "a" or not isinstance(given["a"], TensorAddress):
        return True
    part = op.fragment("A")
    return isinstance(part, TensorFragment) and part.container.bits == 4


def _scales(
    op: Instruction, planes: Sequence[Memories], given: dict[str, Any]
) -> list[NDArray[np.uint64] | None]:
    """The second values of block scales, which are in tensor memory."""
    made: list[NDArray[np.uint64] | None] = []
    for side in "AB":
        at = given.get(f"scale_{side.lower()}")
        if at is None:
            made.append(None)
            continue
        part = op.fragment(f"scale_{side}")
        assert isinstance(part, TensorFragment)
        every = np.stack([part.unpack_bits(tensor, address=at) for tensor, _ in planes])
        made.append(combined(every, 8)[0] if every.any() else None)
    return made


def issued_product(
    observer: PlaneObserver,
    work: QueuedMma,
    warp: Warp,
    algebra: ProductAlgebra,
    where: ProductSite,
) -> None:
    """A ``tcgen05.mma`` was issued: make its D in the planes of tensor memory."""
    ranks = [each.rank for each in work.blocks]
    pair = len(ranks) == 2

    def one(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.stack(parts) if pair else parts[0]

    cells = [memory(warp, work.event, each).operand() for each in work.blocks]
    hardware = one(cells), one([each.shared for each in work.blocks])
    planes = [
        (one([every[r].cells for r in ranks]), one([every[r].shared for r in ranks]))
        for every in observer.planes
    ]
    target = observer.watch.launch.target
    made = tensor_product(work.op, target, algebra, hardware, planes, work.given, where)
    for every, image in zip(observer.planes, made, strict=True):
        parts = image if pair else image[None]
        for rank, part in zip(ranks, parts, strict=True):
            for each in work.cells_written:
                if each.rank == rank:
                    every[rank].cells[each.index] = part[each.index]
