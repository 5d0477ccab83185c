"""Classes of configurations by proof are those that a GPU's bits show."""

import json
from pathlib import Path

import pytest

from tests.thinning import THOROUGH
from tests.triton.configurations import CONFIGURATIONS, KINDS, proved

pytestmark = pytest.mark.triton
GOLDEN = Path(__file__).parents[1] / "golden/configurations/h200.json"
SOME = [0, 6, 9, 18, 24, 25, 28, 33]
"""With mma and with wgmma; whole, in two parts and in four; four and eight warps."""
CHOSEN = CONFIGURATIONS if THOROUGH else [CONFIGURATIONS[each] for each in SOME]


@pytest.fixture(scope="module", params=KINDS)
def found(request):
    return request.param, proved(request.param, CHOSEN)


def recorded(kind):
    names = set(map(str, CHOSEN))
    every = json.loads(GOLDEN.read_text())["classes"][kind]
    return {frozenset(each) & names for each in every} - {frozenset()}


def test_classes_are_those_of_the_h200(found):
    kind, made = found
    assert {frozenset(each) for each in made.members} == recorded(kind)


def test_every_class_is_proved_and_every_two_have_a_witness(found):
    _, made = found
    assert {each.verdict for each in made.within.values()} == {"same"}
    assert {each.verdict for each in made.between.values()} == {"different"}
    assert all(each.witness.count for each in made.between.values())


def test_the_reason_is_told_in_a_line(found):
    kind, made = found
    splits = [made.parameters[names[0]]["SPLIT"] for names in made.members]
    for (x, y), each in made.between.items():
        other = splits[x] != splits[y]
        assert ("SPLIT" in made.parting(x, y)) == other
        assert ("partial sums at configurations.py:" in each.cause) == other
        if not other:  # then the instructions differ
            assert kind == "e4m3"
            assert "mma m16n8k16 adds 16 products at once, wgmma" in each.cause
    assert max(map(len, str(made).splitlines())) <= 80
