"""Engines are freed while no thread compiles, and never by a finaliser."""

import gc
import threading
import weakref

import numpy as np
import pytest

from fragmenta.base.jit import compiler, engines
from fragmenta.base.jit.compiler import kernel, pointer
from fragmenta.base.jit.trace import I32
from tests.clock import HANG


def adding(number: int):
    """A function that adds a number; its text is new each time."""

    @kernel(x=pointer(I32))
    def add(code, x):
        x[0] = x[0] + number

    return add


class Circle:
    """Garbage that only the collector finds."""

    def __init__(self, held: object) -> None:
        self.held, self.own = held, self


@pytest.fixture
def closed(monkeypatch):
    """When engines were freed: who compiled, and whether that thread collected."""
    found = []
    real = compiler.binding.ExecutionEngine._dispose

    def dispose(engine):
        here = threading.get_ident() in COLLECTING
        found.append((dict(engines._COMPILING), here))
        real(engine)

    monkeypatch.setattr(compiler.binding.ExecutionEngine, "_dispose", dispose)
    gc.callbacks.append(collects)
    yield found
    gc.callbacks.remove(collects)


COLLECTING: list[int] = []
"""The threads in which the collector runs."""


def collects(phase, about):
    if phase == "start":
        COLLECTING.append(threading.get_ident())
    else:
        COLLECTING.pop()


@pytest.mark.long
def test_the_collector_frees_no_engine(closed):
    gc.collect()
    engines.free_engines()
    closed.clear()
    gc.disable()  # else it may find a circle early, and the next engine frees its own
    try:
        for number in range(4):
            made, x = adding(number), np.zeros(1, np.int32)
            made(x)
            Circle(made)
            del made
        gc.collect()
    finally:
        gc.enable()
    assert not closed
    assert len(engines._GIVEN_BACK) >= 4
    after = adding(4)
    after(np.zeros(1, np.int32))  # the next one that is made
    assert len(closed) >= 4
    assert not engines._GIVEN_BACK
    assert not any(collecting for _, collecting in closed)


def test_no_engine_is_freed_while_a_thread_compiles(closed):
    engines.free_engines()
    closed.clear()
    with engines.compiling():
        adding(0)(np.zeros(1, np.int32))  # given back at once
        adding(1)(np.zeros(1, np.int32))
        assert not closed
        assert engines.free_engines() == 2
    assert engines.free_engines() == 0
    assert len(closed) == 2


def test_threads_that_compile_while_another_collects(closed, monkeypatch):
    """Many engines, in circles, in several threads; every result is right."""
    monkeypatch.setenv("FRAGMENTA_CACHE", "")
    wrong: list[object] = []
    over = threading.Event()

    def compiles(first: int) -> None:
        for number in range(first, first + 6):
            made, x = adding(number), np.ones(1, np.int32)
            made(x)
            if x[0] != number + 1:
                wrong.append(number)
            Circle(made)

    def collect() -> None:
        while not over.is_set():
            gc.collect(
                1
            )  # what is new: all of it takes long in a process of many tests

    collector = threading.Thread(target=collect)
    threads = [threading.Thread(target=compiles, args=(10 * n,)) for n in range(3)]
    for each in (collector, *threads):
        each.start()
    for each in threads:
        each.join(HANG)
    over.set()
    collector.join(HANG)
    assert not wrong
    assert closed
    assert not any(compiling or collecting for compiling, collecting in closed)


@pytest.mark.long
def test_bound_arguments_keep_the_machine_code():
    made = adding(5)
    x = np.ones(1, np.int32)
    run, gone = made.bind(x), weakref.ref(made)
    del made
    gc.collect()
    run()
    assert x[0] == 6
    assert gone() is not None
    del run
    gc.collect()
    assert gone() is None


def test_a_refused_module_leaves_nothing_to_finalisers(monkeypatch):
    """The collector would free the context before the module, or after it."""
    freed = []
    for kind in (compiler.binding.ModuleRef, compiler.binding.ContextRef):
        real = kind._dispose

        def dispose(each, real=real, name=kind.__name__):
            freed.append(name)
            real(each)

        monkeypatch.setattr(kind, "_dispose", dispose)

    def refuse(*given):
        raise RuntimeError("refused")

    monkeypatch.setattr(compiler, "_without_lock", lambda name: refuse)
    with pytest.raises(RuntimeError, match="refused"):
        compiler.object_code("define void @f() { ret void }", 0)
    assert freed == ["ModuleRef", "ContextRef"]
