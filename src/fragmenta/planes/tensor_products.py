"""Second values through ``tcgen05.mma``: at issue, with matrices in arrays.

Each plane of tensor memory and of shared memory is read as the instruction reads the
memories themselves.  Elements of A and B of fewer than 8 bits, and an old D that
``scale-input-d`` scales, count as they are, without second values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.arithmetic import multiply
from fragmenta.execution import tcgen05
from fragmenta.isa.instruction import Instruction
from fragmenta.planes.products import (
    NOWHERE,
    Matrices,
    ProductAlgebra,
    Where,
    combined,
    on_matrices,
    product_model,
    separated,
)
from fragmenta.registers.tensor_fragment import Image
from fragmenta.units.machine import Warp
from fragmenta.units.tcgen05 import Product
from fragmenta.units.tmem_operands import memory

if TYPE_CHECKING:
    from fragmenta.planes.memory import PlaneObserver

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
    where: Where = NOWHERE,
) -> list[Image]:
    """Tensor memory in each plane after a ``tcgen05.mma``.

    ``given`` are the operands of the instruction by name, as
    :func:`fragmenta.execution.tcgen05.execute` takes them.
    """
    rest = dict(given)
    lanes = rest.pop("disable_output_lane", None)
    found = _operands(op, hardware, rest)
    result = multiply(*found[:3], product_model(op, target), **_more(found))
    of, count = op.types["d"].bits, len(planes)
    seconds = _seconds(op, planes, rest)
    matrices = Matrices(
        found.a, found.b, found.c, result, found.index, *found[4:], *seconds
    )
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
) -> tcgen05.Operands:
    tensor, shared = memories
    rest = dict(given)
    a, b = rest.pop("a"), rest.pop("b")
    return tcgen05.operands(op, tensor, a, b, smem=shared, **rest)


def _more(found: tcgen05.Operands) -> dict[str, Any]:
    return {"index": found.index, "scale_a": found.scale_a, "scale_b": found.scale_b}


def _seconds(
    op: Instruction, planes: Sequence[Memories], given: dict[str, Any]
) -> list[NDArray[np.uint64] | None]:
    """The second values of A, B and C; None if an operand has none."""
    scaled = given.get("scale_input_d")
    wanted = {"a": given["a"], "b": given["b"], "d": given.get("d", 0)}
    wanted["enable_input_d"] = 0 if scaled else given.get("enable_input_d", 1)
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
        usable = bits >= 8 and every.any()
        made.append(combined(every, bits) if usable else None)
    return made


def issued_product(
    observer: PlaneObserver,
    work: Product,
    warp: Warp,
    algebra: ProductAlgebra,
    where: Where,
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
            for each in work.writes:
                if each.rank == rank:
                    every[rank].cells[each.index] = part[each.index]
