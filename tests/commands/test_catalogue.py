"""``list`` selects the right instructions."""

from __future__ import annotations

import json
import shlex

import pytest

from fragmenta.commands import catalogue as command
from fragmenta.reference.isa.families import FAMILIES, catalogue
from tests.asking import answer, ask, refusal
from tests.commands.names import S4_FULL


def test_list_is_the_catalogue() -> None:
    assert answer("list").splitlines() == [str(op) for op in catalogue()]


def test_list_filters() -> None:
    found = answer("list", "--family", "mma", "--type", "s4", "--shape", "m16n8k64")
    assert S4_FULL in found.splitlines()
    assert all(".m16n8k64." in line and ".s4" in line for line in found.splitlines())
    older = answer("list", "--target", "sm_75").splitlines()
    assert older
    assert S4_FULL not in older
    listed = answer("list", "--shape", "m64n256k*").splitlines()
    assert sum(not line.startswith("tcgen05") for line in listed) == sum(
        op.values.get("shape", "").startswith("m64n256k") for op in catalogue()
    )
    both = answer("list", "--type", "s4", "--type", "u4", "--family", "mma")
    assert all({"s4", "u4"} <= set(line.split(".")) for line in both.splitlines())


def test_list_by_what_a_descriptor_may_say() -> None:
    """M = 256 needs a pair; e4m3 is a type of f8f6f4 and mxf8f6f4."""
    asked = ("list", "--shape", "m256n256k32", "--type", "e4m3")
    listed = answer(*asked).splitlines()
    assert "tcgen05.mma.cta_group::2.kind::f8f6f4" in listed
    assert all("cta_group::2.kind::" in line and "f8f6f4" in line for line in listed)
    assert "no instruction has the shape" in refusal("list", "--shape", "m256n260k32")


def test_list_long_and_json_say_what_is_required() -> None:
    assert f"PTX 7.0  sm_80+  {S4_FULL}" in answer(
        "list", "--family", "mma", "-l", "--type", "s4"
    )
    entries = json.loads(answer("list", "--type", "b1", "--json"))["instructions"]
    assert {entry["family"] for entry in entries} <= set(FAMILIES)
    assert all("b1" in entry["types"].values() for entry in entries)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("tcgen05",),
        ("wgmma",),
        *(("--family", family) for family in FAMILIES),
        ("--type", "e4m3", "--family", "wgmma"),
        ("--long", "sparse", "fp8", "hopper"),
    ],
)
def test_a_terminal_gets_a_screen_that_leads_on(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = answer("list", *words).splitlines()
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    shown = answer("list", *words).splitlines()
    assert len(shown) <= 24
    assert answer("list", *words, "--full").splitlines() == whole
    if len(whole) <= 24:
        assert shown == whole
        return
    assert shown[0].startswith(f"{len(whole):,} instructions")
    *rows, some, every = shown[1:]
    assert sum(int(row.split()[-1].replace(",", "")) for row in rows) <= len(whole)
    for line, fits in ((some, range(1, len(whole))), (every, (len(whole),))):
        _, _, *again = shlex.split(line.partition(":")[2])
        monkeypatch.setattr(command, "is_terminal", lambda: False)
        count = len(answer("list", *again).splitlines())
        assert count in fits


def test_list_of_nothing_is_status_1() -> None:
    result = ask("list", "--family", "mma", "--type", "f64", "--target", "sm_75")
    assert result.exit_code == 1
    assert not result.stdout
    assert "No instruction" in result.stderr


def test_types_and_shapes_in_any_case() -> None:
    words = ("list", "--family", "mma")
    found = answer(*words, "--type", "S4", "--shape", "M16N8K64")
    assert found == answer(*words, "--type", "s4", "--shape", "m16n8k64")
    assert S4_FULL in found.split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list", "--target", "sm_91"), "did you mean sm_90?"),
        (("list", "--type", "e4m4"), "did you mean e4m3?"),
        (("list", "--family", "wgma"), "did you mean wgmma?"),
        (("list", "--shape", "m16n8k63"), "did you mean m16n8k64?"),
    ],
)
def test_refusals(words: tuple[object, ...], message: str) -> None:
    text = " ".join(refusal(*words).split())
    assert message in text
