"""The port between the units and whoever observes them."""

import inspect
import re
from pathlib import Path

from fragmenta import units
from fragmenta.ptx.effects import LINES, WAYS
from fragmenta.races import observer
from fragmenta.races.definedness_watch import DefinedObserver
from fragmenta.units.port import Port

CALLS = {name for name, _ in inspect.getmembers(Port, inspect.isfunction)}
OBSERVERS = (observer.Observer, DefinedObserver)


def test_the_port_is_narrow():
    assert len(CALLS) <= 13


def test_every_call_is_made_by_a_unit_and_answered_by_an_observer():
    text = "\n".join(
        path.read_text() for path in Path(units.__file__).parent.glob("*.py")
    )
    made = re.findall(r"\bport\.([a-z_]+)\(", text)
    assert set(made) - {"Port"} == CALLS
    answered = {
        name
        for name in CALLS
        for each in OBSERVERS
        if getattr(each, name) is not getattr(Port, name)
    }
    assert answered == CALLS


def test_an_observer_answers_with_the_signature_of_the_port():
    for each in OBSERVERS:
        for name in CALLS:
            wanted = inspect.signature(getattr(Port, name)).parameters
            assert [*inspect.signature(getattr(each, name)).parameters] == [*wanted]


def test_every_completion_of_the_table_is_answered():
    assert set(observer._ISSUED) == {each.done_by for each in LINES} - {""}
    # tcgen05.commit is no wait: it makes an mbarrier say that work is done.
    assert set(observer._WAITED) == {*WAYS, "cluster"} - {"commit"}
