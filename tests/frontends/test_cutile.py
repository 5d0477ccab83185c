"""Programs of cuTile run as they are; reports name lines of Python."""

import pytest

from tests.frontends.running import EXAMPLES, changed, found, run

NAME = "cutile_product.py"
STORE = "index=(i, j), tile=total"


@pytest.mark.parametrize("card", ["a100", "h100", "b200"])
def test_a_program_as_it_is(card):
    report, said = run(EXAMPLES / NAME, card=card)
    assert "multiplied" in said
    (launch,) = report["launches"]
    assert launch["grid"] == [2, 2, 1]  # blocks have the threads that the kernel needs
    assert launch["block"][0] >= 128
    assert found(report) == report["refused"] == []


def test_tiles_that_are_stored_over_each_other_are_a_race(tmp_path):
    made = changed(
        NAME,
        tmp_path,
        store=(STORE, "index=(0, 0), tile=total"),
        check=("assert np.array_equal(c.get(), ", "print((c.get(), "),
        end=("b.astype(np.float32))", "b.astype(np.float32)))"),
    )
    report, _ = run(made, card="a100", status=1)
    lines = made.read_text().splitlines()
    line = next(i for i, each in enumerate(lines, 1) if "ct.store(c" in each)
    assert ("global-race", line) in found(report)


def test_tensor_maps_of_the_driver_are_refused_in_words(tmp_path):
    made = changed(NAME, tmp_path, store=(f"{STORE}, allow_tma=False", STORE))
    report, said = run(made, status=1)
    assert "give ct.load and ct.store allow_tma=False" in said
    assert "hidden parameters" in report["launches"][0]["fault"]
