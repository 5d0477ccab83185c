"""The units carry out what the table of effects has, and refuse what it says."""

from fragmenta.engine.units.registry import refusal
from fragmenta.engine.units.work import Copy, Work
from fragmenta.ptx.effects import LINES, NOT_RUN, SYNCHRONOUS, not_run
from fragmenta.reference.isa.table import read


def subclasses(of: type) -> set[type]:
    """A class of the package and all its subclasses there."""
    if not of.__module__.startswith("fragmenta."):
        return set()
    return {of} | {every for each in of.__subclasses__() for every in subclasses(each)}


def mnemonics() -> list[str]:
    """A mnemonic of each line of the table, and of what is done at once."""
    issued = [".".join((each.instruction, *each.words)) for each in LINES]
    return issued + sorted(SYNCHRONOUS)


def test_a_line_is_carried_out_or_refused_by_the_table():
    asks = "mbarrier::complete_tx::bytes"  # st.async and red.async have a longer form
    for each in mnemonics():
        full = f"{each}.{asks}" if each in ("st.async", "red.async") else each
        assert refusal(full) == not_run(full), each


def test_every_line_that_is_not_run_is_refused_with_its_reason():
    for line in read(NOT_RUN):
        name = {"cp": "cp.async.bulk.tensor.3d"}.get(
            line["instruction"], line["instruction"]
        )
        mnemonic = ".".join(filter(None, (name, line["with"])))
        assert refusal(mnemonic) == f"{mnemonic}: {line['why']}"


def test_what_nothing_carries_out_is_refused():
    assert refusal("tcgen05.made_up") == "tcgen05.made_up is not supported"


def test_the_effect_of_work_is_a_line_of_the_table():
    for each in subclasses(Work):
        made = vars(each).get("effect")
        assert made is None or isinstance(made, property) or made in LINES, each
    assert len(subclasses(Copy)) > 5
