"""The numeric models with which the explorer page computes.

The page has the loops; every parameter is here, and comes from the tables of
:mod:`fragmenta.reference.arithmetic.models` and
:mod:`fragmenta.reference.registers.dtype`.  Targets that compute an instruction in the
same way share one record.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from typing import TypedDict

from fragmenta.errors import Error
from fragmenta.reference.arithmetic.models import GROUP, Model
from fragmenta.reference.arithmetic.trace import NAN_BITS
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.execution.summing import ROUNDED, summing
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.registers.dtype import DType, largest

JsonRecord = dict[str, object]


class NumericModel(TypedDict):
    """How some targets compute an instruction."""

    how: str
    source: str
    model: JsonRecord | int | None
    """The parameters, or their number in a pool; None if they are not known."""
    targets: list[str]


class Ways(TypedDict):
    """All ways to compute an instruction, and the target that is shown first."""

    usual: str
    ways: list[NumericModel]


# The parameters of a model; the page already knows which instructions it is for.
_KEPT = tuple(
    each.name
    for each in fields(Model)
    if each.name not in ("target", "unit", "kind", "source")
)


def type_record(of: DType) -> JsonRecord:
    """What the bits of an element type mean.

    >>> from fragmenta.reference.registers.dtype import dtype
    >>> e4m3 = type_record(dtype("e4m3"))
    >>> e4m3["exponent"], e4m3["fraction"], e4m3["infinity"], e4m3["most"]
    (4, 3, False, 448.0)
    """
    record: JsonRecord = {
        "bits": of.bits,
        "used": of.mask.bit_length(),
        "kind": of.kind,
        "exponent": of.exponent_bits,
        "fraction": of.fraction_bits,
        "infinity": of.has_infinity,
        "nan": of.has_nan,
        "storage": of.storage.itemsize,
    }
    if not of.is_integer:
        record["most"] = largest(of)
    if of.name in NAN_BITS:
        record["made"] = f"{NAN_BITS[of.name]:x}"  # JSON has no 64-bit integers
    return record


def rounding_words() -> JsonRecord:
    """The name of each rounding.

    >>> rounding_words()["rz"]
    'toward zero'
    """
    return dict(ROUNDED)


def model_record(model: Model) -> JsonRecord:
    """The parameters of a model, without those that are zero or empty.

    >>> from fragmenta.reference.arithmetic import model
    >>> half = model_record(model("sm_80", "f16", "f16", "f32", "f32", 16))
    >>> half["products"], half["fraction"], "order" in half
    (8, 24, False)
    """
    record: JsonRecord = {
        name: getattr(model, name) for name in _KEPT if getattr(model, name)
    }
    if not model.reordered:
        del record["order"]
    if model.form == "grouped":
        record["group"] = GROUP
    return record


def ways(op: Instruction) -> Ways:
    """How each target computes the instruction, and the target that is shown first.

    Where no model is published, ``source`` says why.

    >>> import fragmenta as fm
    >>> found = ways(fm.mma("m16n8k16", a="f16", d="f32"))
    >>> found["usual"], [each["targets"][0] for each in found["ways"]]
    ('sm_90a', ['sm_80', 'sm_90', 'sm_100'])
    """
    found: dict[str, NumericModel] = {}
    for target in op.requires.targets:
        words = summing(op, target)
        model: JsonRecord | None = None
        with suppress(Error):  # there is none; its source says why
            model = model_record(numeric_model(op, target))
        way: NumericModel = {
            "how": words.how,
            "source": words.source,
            "model": model,
            "targets": [],
        }
        found.setdefault(json.dumps(way), way)["targets"].append(target)
    return {"usual": chosen_target(op, None), "ways": list(found.values())}
