"""Routines are compiled on all cores, and the code is the same on any number."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from llvmlite import ir

from fragmenta.base.arrays import threads
from fragmenta.base.jit import compiler
from fragmenta.engine.simt import library, warps
from fragmenta.engine.simt.library import Routine
from fragmenta.errors import Error
from tests.clock import HANG

SOME = [warps.TICK, warps.DIVERGE, warps.LEAVE, warps.SPENT, warps.FAULT, warps.STAY]


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAGMENTA_CACHE", "")
    monkeypatch.setattr(library, "_KEPT", {})


def test_threads_compile_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    found, inside, together = [], threading.Barrier(2), compiler.object_code

    def at_once(text: str, optimise: int) -> bytes:
        inside.wait(HANG)  # two threads come here, or it is an error
        return together(text, optimise)

    pool = ThreadPoolExecutor(2)  # also on one core
    monkeypatch.setattr(threads, "_pool", lambda process: pool)
    for count in (1, 2):
        monkeypatch.setattr(threads, "_threads", lambda count=count: count)
        monkeypatch.setattr(library, "_KEPT", {})
        if count == 2:
            monkeypatch.setattr(compiler, "object_code", at_once)
        found.append(library.objects(SOME))
    assert found[0] == found[1]
    assert [each.names[0] for each in found[0]] == [each.name for each in SOME]


def _no_code(module: ir.Module) -> None:
    raise ValueError("33 lanes")


def _no_llvm(module: ir.Module) -> None:
    kind = ir.FunctionType(ir.IntType(7), [])
    block = ir.Function(module, kind, "nothing").append_basic_block()
    ir.IRBuilder(block).ret(ir.Constant(ir.IntType(9), 0))


@pytest.mark.parametrize("build", [_no_code, _no_llvm])
def test_an_error_names_the_routine(build: object) -> None:
    wrong = Routine("a strange one", build)  # type: ignore[arg-type]
    with pytest.raises(Error, match=r"no code can be made for .a strange one"):
        library.objects([*SOME, wrong])
    assert library.objects(SOME)
