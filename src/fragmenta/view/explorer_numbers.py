"""Which numbers does the explorer page compute with?

The page has the loops; every parameter is here, and comes from the tables of
:mod:`fragmenta.arithmetic.models` and :mod:`fragmenta.registers.dtype`.  Targets that
compute an instruction in the same way share one record.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from typing import Any

from fragmenta.arithmetic.models import GROUP, Model
from fragmenta.arithmetic.trace import NAN_BITS
from fragmenta.errors import Error
from fragmenta.execution.mma import numeric_model
from fragmenta.execution.summing import ROUNDED, summing
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.target import chosen_target
from fragmenta.registers.dtype import DType, largest

JsonRecord = dict[str, Any]

# What the page needs of a model: not for whom it is, which the page knows.
_KEPT = tuple(
    each.name
    for each in fields(Model)
    if each.name not in ("target", "unit", "kind", "source")
)


def type_record(of: DType) -> JsonRecord:
    """What the bits of an element type mean.

    >>> from fragmenta.registers.dtype import dtype
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
    """How each rounding is called.

    >>> rounding_words()["rz"]
    'toward zero'
    """
    return dict(ROUNDED)


def model_record(model: Model) -> JsonRecord:
    """The parameters of one way to compute; those that say nothing are left out.

    >>> from fragmenta.arithmetic import model
    >>> half = model_record(model("sm_80", "f16", "f16", "f32", "f32", 16))
    >>> half["products"], half["fraction"], "order" in half
    (8, 24, False)
    """
    record = {name: getattr(model, name) for name in _KEPT if getattr(model, name)}
    if not model.reordered:
        del record["order"]
    if model.form == "grouped":
        record["group"] = GROUP
    return record


def ways(op: Instruction) -> JsonRecord:
    """How each target computes the instruction, and the target one begins with.

    A way is not known where nobody has published one; then it says why.

    >>> import fragmenta as fm
    >>> found = ways(fm.mma("m16n8k16", a="f16", d="f32"))
    >>> found["usual"], [each["targets"][0] for each in found["ways"]]
    ('sm_90a', ['sm_80', 'sm_90', 'sm_100'])
    """
    found: dict[str, JsonRecord] = {}
    for target in op.requires.targets:
        told = summing(op, target)
        way: JsonRecord = {"how": told.how, "source": told.source, "model": None}
        with suppress(Error):  # then its source says why
            way["model"] = model_record(numeric_model(op, target))
        same = found.setdefault(json.dumps(way), {**way, "targets": []})
        same["targets"].append(target)
    return {"usual": chosen_target(op, None), "ways": list(found.values())}
