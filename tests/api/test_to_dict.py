"""The record of every kind of instruction fits its schema."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

import fragmenta as fm
from fragmenta.reference.isa.families import FAMILIES
from tests.api.json_schema import complaints
from tests.asking import answer

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/instruction.schema.json").read_text()
)
RECORD = SCHEMA["$defs"]["record"]


def wrong(value, schema=SCHEMA):
    return list(complaints(value, schema, SCHEMA))


@pytest.mark.parametrize("family", FAMILIES)
def test_records_fit_the_schema(family: str) -> None:
    ops = list(fm.catalogue(family))
    for op in ops[:: max(1, len(ops) // 5)]:
        found = op.to_dict()
        assert wrong(found, RECORD) == []
        assert json.loads(json.dumps(found)) == found
        assert set(found["targets"]) == set(found["sass"]) == set(op.requires.targets)
        for name, part in op.fragments.items():
            layout = found["fragments"][name]["layout"]
            assert layout == str(part.layout)


@pytest.mark.parametrize(
    "text", ["tcgen05.mma.cta_group::1.kind::f16 0x08400010", "mma nvfp4 m16n8k64"]
)
def test_descriptors_and_scales_fit_the_schema(text: str) -> None:
    op = fm.find(text)
    assert wrong(op.to_dict(), RECORD) == []
    assert json.loads(answer("show", text, "--json")) == op.to_dict()


def test_the_list_is_these_records() -> None:
    listed = json.loads(answer("list", "mma.sp", "s4", "--full", "--json"))
    assert wrong(listed) == []
    ops = [fm.instruction(each["instruction"]) for each in listed["instructions"]]
    assert ops
    assert [op.to_dict() for op in ops] == listed["instructions"]
    brief = json.loads(answer("list", "mma.sp", "s4", "--json"))
    assert wrong(brief) == []
    for short, whole in zip(brief["instructions"], listed["instructions"], strict=True):
        assert short.items() <= {k: v for k, v in whole.items() if k in short}.items()


def test_the_schema_refuses_what_is_wrong() -> None:
    found = fm.mma("m16n8k16", a="f16", d="f32").to_dict()
    for path, value in [
        (("schema",), 2),
        (("new",), 1),
        (("sass", "sm_90", "code"), []),
        (("fragments", "A", "layout"), None),
        (("operands", "operands", 0, "count"), True),
        (("size", "m"), "16"),
    ]:
        bad = copy.deepcopy(found)
        here = bad
        for name in path[:-1]:
            here = here[name]
        here[path[-1]] = value
        assert wrong(bad, RECORD), path
    del found["notes"]
    assert wrong(found, RECORD) == ["$ has no notes"]
