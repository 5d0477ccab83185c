"""What is written down about classes of configurations agrees with the recording."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROVED = json.loads((ROOT / "docs/verification/classes.json").read_text())
SHOWN = json.loads((ROOT / "tests/golden/configurations/h200.json").read_text())


def test_proved_classes_are_those_that_the_bits_of_an_h200_show():
    assert PROVED["shape"] == SHOWN["shape"]
    assert PROVED["classes"].keys() == SHOWN["classes"].keys()
    for kind, members in SHOWN["classes"].items():
        found = {frozenset(each) for each in PROVED["classes"][kind]}
        assert found == {frozenset(each) for each in members}
        assert sum(map(len, found)) == 40


def test_each_two_classes_have_a_witness_and_a_reason():
    for kind, members in PROVED["classes"].items():
        count = len(members)
        assert len(PROVED["between"][kind]) == count * (count - 1) // 2
        for verdict, cause, witness in PROVED["between"][kind].values():
            assert verdict == "different"
            assert "added in another order" in cause or "products at once" in cause
            assert "elements differ" in witness
