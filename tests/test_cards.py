"""The table of cards against data sheets, a driver, and what was measured."""

from __future__ import annotations

import pytest

from fragmenta.frontends.programs.cards import cards as of_programs
from fragmenta.reference.cards import CARDS, KINDS, PEAKS, cards
from fragmenta.reference.isa.table import read

DRIVER = {
    # What the driver told on an H200, by CUDA's number of the attribute.
    8: 49152,
    12: 65536,
    13: 1980000,
    16: 132,
    36: 3201000,
    37: 6016,
    38: 62914560,
    39: 2048,
    40: 3,
    75: 9,
    76: 0,
    81: 233472,
    82: 65536,
    87: 2,
    97: 232448,
    106: 32,
    108: 39321600,
    109: 134217728,
    111: 1024,
    120: 1,
}


@pytest.mark.parametrize("card", cards().values(), ids=lambda card: card.card)
def test_clock_and_bus_give_the_bandwidth_of_the_data_sheet(card):
    assert card.bandwidth / 1e9 == pytest.approx(card.sheet, rel=0.025)


@pytest.mark.parametrize("row", read(PEAKS), ids=lambda row: row["card"])
def test_rates_give_the_operations_of_the_data_sheet(row):
    card = cards()[row["card"]]
    assert {kind for kind in KINDS if row[kind] != "-"} == set(card.rates)
    assert bool(card.rates) == (row["paper"] != "-")
    for kind, rate in card.rates.items():
        # FP64 of Hopper is said for its highest clock, the others for a lower one
        fastest = 2e-6 * rate * card.processors * card.clock
        assert fastest >= 0.985 * float(row[kind]), kind
        assert 2e-6 * rate * card.processors * float(row["at"]) == pytest.approx(
            float(row[kind]), rel=0.08
        ), kind


def test_an_h200_has_the_attributes_that_its_driver_told():
    known = of_programs()["h200"].attributes()
    assert {number: known[number] for number in DRIVER} == DRIVER


def test_there_is_one_table():
    rows = [row["card"] for row in read(CARDS)]
    assert list(cards()) == list(of_programs()) == rows


MEASURED = {
    # What PyTorch reached on an H200: products of 10^12 in a second.
    "f16": 425.8,
    "tf32": 217.1,
    "f8": 811.1,
    "s8": 466.4,
    "f64": 30.55,
}


def test_nothing_that_was_measured_is_above_a_bound():
    h200 = cards()["h200"]
    for kind, measured in MEASURED.items():
        share = measured * 1e12 / (h200.rates[kind] * h200.cycles)
        assert 0.4 < share < 1, kind
    # bytes in a second: a tensor was copied, and one was filled
    assert 0.8 < max(4.177e12, 4.662e12) / h200.bandwidth < 1
