"""Finding and building instructions: by words, by qualifiers, or all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fragmenta.frontends.api.instructions import (
    Instruction,
    Mma,
    TensorMma,
    Wgmma,
    kept,
)
from fragmenta.frontends.api.returning import returning
from fragmenta.reference.isa import building, families, sass, searching
from fragmenta.reference.isa.instruction import Instruction as Record
from fragmenta.reference.isa.sass import Origin


def _mma(op: Record) -> Mma:
    return Mma.of(kept(op))


def _wgmma(op: Record) -> Wgmma:
    return Wgmma.of(kept(op))


def _tcgen05(op: Record) -> TensorMma:
    return TensorMma.of(kept(op))


def _each(found: Iterable[Record]) -> Iterator[Instruction]:
    return map(kept, found)


def _list(found: Iterable[Record]) -> list[Instruction]:
    return [kept(op) for op in found]


def _origins(found: tuple[Origin, ...]) -> tuple[Origin, ...]:
    return tuple(replace(each, instruction=kept(each.instruction)) for each in found)


mma = returning(building.mma, _mma, "Mma", __name__)
wgmma = returning(building.wgmma, _wgmma, "Wgmma", __name__)
tcgen05 = returning(building.tcgen05, _tcgen05, "TensorMma", __name__)
wmma_mma = returning(building.wmma_mma, _mma, "Mma", __name__)
find = returning(searching.find, kept, "Instruction", __name__)
search = returning(searching.search, _list, "list[Instruction]", __name__)
catalogue = returning(families.catalogue, _each, "Iterator[Instruction]", __name__)
from_sass = returning(sass.from_sass, _origins, "tuple[Origin, ...]", __name__)
