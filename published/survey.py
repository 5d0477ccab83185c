"""Lists the instructions that MMA-Sim can judge, and why not the others.

Every multiplication of the catalogue, on every target, is either compared or
left out for a reason that stands here.  One that is neither is an error.  This
needs only the names that MMA-Sim knows, not MMA-Sim itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, product

import fragmenta as fm
from fragmenta.reference.arithmetic import Model
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.target import ARCHITECTURES
from fragmenta.reference.isa.target import number as architecture
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND, sizes

#: MMA-Sim's word for the architectures that it knows.
KNOWN = {
    70: "Volta",
    75: "Turing",
    80: "Ampere",
    89: "Ada Lovelace",
    90: "Hopper",
    100: "Blackwell",
    120: "RTX Blackwell",
}
#: For the others, the one that has the same tensor cores as far as we know.
RELATIVES = {72: 70, 86: 80, 87: 80, 88: 80, 103: 100, 107: 100, 110: 100, 121: 120}

FAMILIES = ("mma", "mma.sp", "wmma.mma", "wgmma", "wgmma.sp")

#: The scales of the kinds of tcgen05 that have any.
SCALES: dict[str, tuple[dict[str, str], ...]] = {
    "mxf8f6f4": ({"scale": "ue8m0", "scale_vec": "1X"},),
    "mxf4": ({"scale": "ue8m0", "scale_vec": "2X"},),
    "mxf4nvf4": (
        {"scale": "ue8m0", "scale_vec": "2X"},
        {"scale": "ue8m0", "scale_vec": "4X"},
        {"scale": "ue4m3", "scale_vec": "4X"},
    ),
}

#: MMA-Sim's classes for tcgen05, and the M of each.
TENSOR_MEMORY = {"TCGen05MMA": (64, 128), "TCGen05MMABlockScale": (128,)}

Known = Callable[[str, str, str], bool]


@dataclass(frozen=True)
class Row:
    """Instructions that one target computes alike and MMA-Sim judges alike.

    They differ in what is no part of the arithmetic: the width of a ``wgmma``, the
    size of a ``tcgen05.mma``, and how ``m8n8k4`` lays its operands out.
    """

    target: str
    unit: str  #: MMA-Sim's class, such as "MMA" or "TCGen05MMABlockScale"
    architecture: str
    name: str  #: as MMA-Sim spells it; nN stands for every width, mM for every M
    instructions: tuple[fm.Instruction, ...]

    @property
    def id(self) -> str:
        """Unique, and what a result is filed under."""
        return f"{self.target} {self.unit} {self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """What MMA-Sim calls each of the instructions; of tcgen05, in every size."""
        if self.unit in TENSOR_MEMORY:
            return tuple(every_size(self.name, self.unit))
        return tuple(dict.fromkeys(spelled(op)[1] for op in self.instructions))

    @property
    def model(self) -> Model:
        """The one model of all the instructions."""
        found = {numeric_model(op, self.target) for op in self.instructions}
        if len(found) != 1:
            raise AssertionError(f"{self.id} is computed in {len(found)} ways")
        return found.pop()


@dataclass(frozen=True)
class Excluded:
    """Instructions on targets where they are not compared, and why."""

    reason: str
    instructions: tuple[tuple[str, str], ...]  #: (target, mnemonic)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets without suffix, in ascending order."""
        numbers = {architecture(target) for target, _ in self.instructions}
        return tuple(f"sm_{number}" for number in sorted(numbers))


def survey(known: Known) -> tuple[list[Row], list[Excluded]]:
    """What is compared, and what is not.

    ``known`` says whether MMA-Sim's class has, for an architecture, a name.
    """
    rows: dict[tuple[str, str, str], Row] = {}
    excluded: dict[str, list[tuple[str, str]]] = {}
    lost = []
    for op, target in every_multiplication():
        unit, name = spelled(op)
        where = KNOWN.get(architecture(target), "")
        judged = known(unit, where, name)
        why = reason(op, target)
        if judged == (why is not None):
            lost.append(f"{op} on {target}: {why or 'MMA-Sim does not have it'}")
        elif why is not None:
            excluded.setdefault(why, []).append((target, str(op)))
        else:
            key = (target, unit, any_width(name))
            row = rows.get(key) or Row(target, unit, where, any_width(name), ())
            rows[key] = replace(row, instructions=(*row.instructions, op))
    if lost:
        raise AssertionError("neither compared nor left out:\n" + "\n".join(lost))
    left_out = [Excluded(why, tuple(each)) for why, each in excluded.items()]
    return list(rows.values()), left_out


def every_multiplication() -> Iterator[tuple[fm.Instruction, str]]:
    """Each instruction with one target of each architecture that has it."""
    for op in chain(*map(fm.catalogue, FAMILIES), tensor_memory()):
        first: dict[int, str] = {}
        for target in op.requires.targets:
            first.setdefault(architecture(target), target)
        for number in ARCHITECTURES:
            if number in first:
                yield op, first[number]


def tensor_memory() -> Iterator[fm.Instruction]:
    """Every kind, form and type of ``tcgen05.mma``.

    One size stands for all: MMA-Sim is asked whether it computes them alike.
    """
    forms = product((1, 2), (False, True), (False, True))
    for kind, (group, ws, sparse) in product(OF_KIND, forms):
        of_form = {"kind": kind, "cta_group": group, "ws": ws, "sp": sparse}
        for m in list(sizes(kind, group, ws=ws, sparse=sparse))[-1:]:
            shape = f"m{m}n64k{OF_KIND[kind].k[sparse]}"
            for types in combinations(kind):
                yield fm.tcgen05(shape, **of_form, **types)


def combinations(kind: str) -> Iterator[dict[str, str]]:
    """The types that a kind multiplies, and its scales."""
    of = OF_KIND[kind]
    for a, b, d in product(of.operands, of.operands, of.results):
        if kind == "f16" and (a != b or (a, d) == ("bf16", "f16")):
            continue
        for scale in SCALES.get(kind, ({},)):
            yield {"a": a, "b": b, "d": d, **scale}


def reason(op: fm.Instruction, target: str) -> str | None:
    """Why an instruction is not compared on a target; None if it is."""
    number, of, k = architecture(target), op.types["a"], op.shape.k
    if of.is_integer or of.name == "b1":
        return "integers and single bits are exact; MMA-Sim has floating point only"
    if op.sparse:
        return "MMA-Sim has no sparse instructions"
    if op.family == "wmma.mma":
        return "MMA-Sim has no `wmma`"
    if ".ws" in op.family:
        return "MMA-Sim has no `.ws`"
    if op.cta_group == 2:
        return "MMA-Sim has no `cta_group::2`"
    if of.name == "f64" and op.values.get("rounding") not in ("", "rn"):
        return "MMA-Sim rounds f64 to nearest only"
    if number in RELATIVES:
        return "MMA-Sim does not know the target; computed as on its relative"
    if op.family in ("wgmma", "tcgen05.mma"):
        return None
    if of.name == "f16" and k == 4 and number >= 80:
        return "written by the assembler: f16 `m8n8k4` is software from sm_80 on"
    if of.name in ("e4m3", "e5m2") and 90 <= number < 120:
        return "written by the assembler: fp8 `mma` becomes f16 on sm_90 to sm_110"
    if of.name == "f64" and op.shape.m == 16 and number >= 100:
        return "MMA-Sim has `m16n8` f64 on Hopper only"
    if op.kind == "f8f6f4" and k == 16:
        return "MMA-Sim has `m16n8k16` fp8 without `.kind::f8f6f4` only"
    return None


def spelled(op: fm.Instruction) -> tuple[str, str]:
    """The class of MMA-Sim that would judge it, and the name it would have there.

    What MMA-Sim has no class or no name for gets one that it does not know.

    >>> spelled(fm.mma("m16n8k16", a="f16", d="f32"))
    ('MMA', 'm16n8k16.f32.f16.f16.f32')
    """
    shape, d, a, b = (op.values[key] for key in ("shape", "d", "a", "b"))
    if op.tensor_memory:
        return _in_tensor_memory(op)
    unit = op.family.removesuffix(".mma").upper()
    if unit.startswith("WGMMA"):
        return unit, f"{shape}.{d}.{a}.{b}"
    kind = f".kind::{op.kind}" if op.kind else ""
    types = f"{d}.{a}.{b}.{op.values['c']}"
    if op.scale_vec:
        block, scale = op.shape.k // op.scale_vec, op.values["stype"]
        return f"{unit}BlockScale", f"{shape}{kind}.block{block}.{types}.{scale}"
    rounding = op.values.get("rounding")
    return unit, f"{shape}{kind}.{types}" + (f".{rounding}" if rounding else "")


def _in_tensor_memory(op: fm.Instruction) -> tuple[str, str]:
    """The name of a ``tcgen05.mma``; what MMA-Sim has not gets a word of its own."""
    unit = "TCGen05MMABlockScale" if op.scale_vec else "TCGen05MMA"
    shape, d, a, b = (op.values[key] for key in ("shape", "d", "a", "b"))
    form = op.family.removeprefix("tcgen05.mma") + ".pair" * (op.cta_group == 2)
    name = f"{shape}{form}.kind::{op.kind}"
    if op.scale_vec:
        block, scale = op.shape.k // op.scale_vec, op.values["stype"]
        return unit, f"{name}.block{block}.{d}.{a}.{b}.{scale}"
    return unit, f"{name}.{d}.{a}.{b}"


def every_size(name: str, unit: str) -> Iterator[str]:
    """The names of a ``tcgen05.mma`` in all sizes that MMA-Sim has.

    >>> names = list(every_size("mMnNk8.kind::tf32.f32.tf32.tf32", "TCGen05MMA"))
    >>> len(names), names[0]
    (64, 'm64n8k8.kind::tf32.f32.tf32.tf32')
    """
    for m, n in product(TENSOR_MEMORY[unit], range(8, 257, 8)):
        yield name.replace("mMnN", f"m{m}n{n}")


def any_width(name: str) -> str:
    """The name of a ``wgmma`` or ``tcgen05.mma`` without its size, others as they are.

    >>> any_width("m64n208k16.f32.f16.f16"), any_width("m16n8k8.f16.f16.f16.f16")
    ('m64nNk16.f32.f16.f16', 'm16n8k8.f16.f16.f16.f16')
    >>> any_width("m128n64k16.kind::f16.f32.f16.f16")
    'mMnNk16.kind::f16.f32.f16.f16'
    """
    if re.match(r"m(64|128)n\d+k\d+\.kind::", name):
        return re.sub(r"^m\d+n\d+", "mMnN", name)
    return re.sub(r"^m64n\d+k", "m64nNk", name)


def unclaimed(
    names: Iterable[tuple[str, str, str]], rows: Iterable[Row]
) -> list[tuple[str, str, str]]:
    """What MMA-Sim has for NVIDIA's targets, and no row claims."""
    claimed = {(row.unit, row.architecture, name) for row in rows for name in row.names}
    return sorted(set(names) - claimed)
