"""The port between the units and whoever observes them."""

import inspect
import re
from pathlib import Path

from fragmenta.engine import units
from fragmenta.engine.planes import shadows
from fragmenta.engine.tracing.recorder import _Ears
from fragmenta.engine.units.port import Port
from fragmenta.engine.units.work import Work
from fragmenta.ptx.effects import WAYS
from fragmenta.watch.races import observer
from fragmenta.watch.races.definedness_watch import DefinedObserver
from fragmenta.watch.races.recording.recorder import Recorder

CALLS = {name for name, _ in inspect.getmembers(Port, inspect.isfunction)}
OBSERVERS = (observer.Observer, DefinedObserver, Recorder)


def test_the_port_is_narrow():
    assert len(CALLS) <= 16
    # The 14th is counts: all orders cannot be explored without the number of arrivals
    # and of bytes, which release does not have, and which is not called for bytes.
    # The others are wrote and over: a recording has what work left in memory, and
    # what is left when a cluster has ended.


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
    } | {name for name in CALLS if hasattr(_Ears, name)}
    assert answered == CALLS


def test_an_observer_answers_with_the_signature_of_the_port():
    for each in OBSERVERS:
        for name in CALLS:
            wanted = inspect.signature(getattr(Port, name)).parameters
            assert [*inspect.signature(getattr(each, name)).parameters] == [*wanted]


def kinds_of(work: type[Work]) -> list[type[Work]]:
    """All classes of work, from the most general one on."""
    return [work, *(kind for each in work.__subclasses__() for kind in kinds_of(each))]


def test_every_kind_of_work_is_answered_at_its_issue():
    follows = {each.follows for each in kinds_of(Work)} - {""}
    assert follows == {"cp.async", "tcgen05"}
    assert set(observer._ISSUED) == {*WAYS} | follows
    # All products are multiplied, however they are done.
    assert set(shadows._FOLLOWED) == {*WAYS} - {"wgmma_group"}


def test_every_completion_of_the_table_is_answered():
    # tcgen05.commit is no wait: it makes an mbarrier say that work is done.  What
    # releases is seen by strong loads, which are no waits for work, either.
    assert set(observer._WAITED) == {*WAYS, "cluster"} - {"commit", "release"}
