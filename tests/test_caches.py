"""What threads share through caches: one object for all, or a plain value."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from threading import Barrier, Thread
from types import ModuleType
from typing import Any

import pytest

import fragmenta
from fragmenta.base.arrays.once import Once, OnceProperty, once, once_of, once_property
from fragmenta.engine.simt import wgmma_operands
from fragmenta.engine.units.kernel_units import KernelUnits
from fragmenta.engine.units.machine import Machine
from tests.clock import HANG

TOGETHER = 4


def modules() -> Iterator[ModuleType]:
    """All modules of the package that this environment can load."""
    for each in pkgutil.walk_packages(fragmenta.__path__, "fragmenta.", lambda _: None):
        if not each.name.endswith("__main__"):
            try:
                yield importlib.import_module(each.name)
            except ImportError:  # PyTorch and Triton need not be there
                continue


def held() -> Iterator[tuple[str, Any]]:
    """Everything that modules and their classes hold, with its name."""
    for module in modules():
        for name, value in list(vars(module).items()):
            if getattr(value, "__module__", "") != module.__name__:
                continue
            yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                for inner, one in list(vars(value).items()):
                    yield f"{module.__name__}.{name}.{inner}", one


EVERY = dict(held())


# ── which caches share objects ──────────────────────────────────────────────

_PLAIN = "str int bool float bytes None tuple frozenset dict list Mapping Hashable"
_NAMED = (
    "NDArray Index Bits Rectangle Bytes Addresses Colour JsonRecord Parts Row Run Starts "
    "re.Pattern Array Steps Place"
)
VALUES = frozenset(f"{_PLAIN} {_NAMED}".split())
"""Values, and containers that nobody changes.  Arrays are only read.

``Run`` is a function of a module: it is looked up, not made.
"""


def is_value(kind: Any) -> bool:
    """Whether objects of a class are compared by what they hold."""
    return inspect.isclass(kind) and kind.__eq__ is not object.__eq__


def shared_objects(make: Callable[..., Any]) -> list[str]:
    """What a function returns that is not a value: threads must share it."""
    said = make.__annotations__.get("return", "Any")
    text = said if isinstance(said, str) else getattr(said, "__name__", str(said))
    # The type of the elements of an array is no object that is shared.
    text = re.sub(r"np\.dtype\[[\w.]+\]|NDArray\[[\w.]+\]", "NDArray", text)
    known = vars(inspect.getmodule(make))
    names = (each for each in re.findall(r"[\w.]+", text) if each.strip("."))
    wrong = [each for each in names if each not in VALUES]
    wrong = [each for each in wrong if not is_value(known.get(each))]
    body = inspect.getsource(make)
    if re.search(r"return (\{\}|\[\]|set\(\)|dict\(\)|list\(\))\s*$", body):
        wrong.append("a container to be filled")
    return wrong


def cached() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions behind caches of the standard library."""
    for name, value in EVERY.items():
        if isinstance(value, functools._lru_cache_wrapper):
            yield name, value.__wrapped__
        elif isinstance(value, functools.cached_property):
            yield name, value.func


def test_a_cache_that_may_make_two_makes_values() -> None:
    """``functools`` may give two threads two objects: they must be equal for good."""
    wrong = {name: shared_objects(make) for name, make in cached()}
    assert {name: each for name, each in wrong.items() if each} == {}


def test_what_is_an_object_that_threads_share() -> None:
    def code() -> Machine:
        raise AssertionError

    def store() -> dict[str, int]:
        return {}

    def value() -> tuple[dict[str, int], ...]:
        return ({"a": 1},)

    assert shared_objects(code) == ["Machine"]
    assert shared_objects(store) == ["a container to be filled"]
    assert shared_objects(value) == []


# ── one object for all threads ──────────────────────────────────────────────


def asked_together(ask: Callable[[], Any]) -> list[Any]:
    """What threads get that ask at the same time."""
    got: list[Any] = []
    threads = [Thread(target=lambda: got.append(ask())) for _ in range(TOGETHER)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return got


def slow_maker() -> Callable[..., object]:
    """Makes an object only when all threads are making one."""
    meeting = Barrier(TOGETHER)

    def make(*_: Any) -> object:
        meeting.wait(timeout=HANG)
        return object()

    return make


SHARED = {n: each for n, each in EVERY.items() if isinstance(each, Once | OnceProperty)}


@pytest.mark.parametrize("name", SHARED)
def test_threads_get_one_object(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SHARED[name]
    if isinstance(cache, Once):
        monkeypatch.setattr(cache, "_kept", {})
        monkeypatch.setattr(cache, "_make", slow_maker())
        got = asked_together(lambda: cache("given", 1))
    else:
        monkeypatch.setattr(cache, "func", slow_maker())
        owner = type("Owner", (), {cache.name: cache})()
        got = asked_together(lambda: getattr(owner, cache.name))
    assert len(got) == TOGETHER
    assert len(set(map(id, got))) == 1


def test_the_caches_of_launches_are_among_them() -> None:
    wanted = """engine.simt.wgmma_operands._located engine.simt.compiled.Compiled.memory
    engine.simt.compiled.Compiled.code engine.simt.boxes.compiled
    reference.execution.warp.warp_function watch.races.order.functions
    watch.races.shared_shadow.functions base.arrays.threads._pool"""
    assert {f"fragmenta.{each}" for each in wanted.split()} <= set(SHARED)


def test_a_kernel_locates_a_product_once() -> None:
    units = KernelUnits([[0, ["wgmma", "mma_async"], [["text"]]]], [])
    read = slow_maker()
    got = asked_together(lambda: units.located(units.events[0], read))
    assert len(set(map(id, got))) == 1


def test_an_instruction_is_located_once_by_all_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The warps of a warpgroup are compared by the object that each of them has."""
    meeting, loads = Barrier(TOGETHER), wgmma_operands.json.loads

    def slow(text: str) -> Any:
        meeting.wait(timeout=HANG)
        return loads(text)

    monkeypatch.setattr(wgmma_operands._located, "_kept", {})
    monkeypatch.setattr(wgmma_operands.json, "loads", slow)
    given = ["a", [0], [], [[1, 0, False]], None, [2, 0, False], 0, [False, 1, 1, 0, 0]]
    got = asked_together(lambda: wgmma_operands.Located.from_list(given))
    assert len(set(map(id, got))) == 1


def test_the_oldest_is_forgotten_and_all_can_be() -> None:
    @once_of(2)
    def box(size: int, *, fill: int = 0) -> list[int]:
        return [fill] * size

    first, second = box(1), box(2)
    assert box(1) is first
    box(3)
    assert box(2) is second
    assert box(1) is not first
    assert box(3, fill=1) is box(3, fill=1) is not box(3)
    box.cache_clear()
    assert box(2) is not second


def test_a_maker_that_fails_is_asked_again() -> None:
    failing = [True]

    @once
    def box() -> list[int]:
        if failing.pop():
            failing.append(False)
            raise ValueError("not yet")
        return []

    class Owner:
        @once_property
        def room(self) -> list[int]:
            return box()

    owner = Owner()
    with pytest.raises(ValueError, match="not yet"):
        _ = owner.room
    assert owner.room is box() is owner.room
