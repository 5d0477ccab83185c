"""Modules are copied, pickled and used in forked processes; CuPy's arguments are taken."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.arrays.locks import ForkLock
from tests.ptx.test_linear import HEAD, kernel

COUNT = f"""{HEAD}
.global .u32 calls;
.visible .entry f(.param .u64 x)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; ld.global.u32 %r1, [calls]; add.u32 %r1, %r1, 1;
    st.global.u32 [calls], %r1; st.global.u32 [%rd1], %r1; ret;
}}
"""
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda given: pickle.loads(pickle.dumps(given)),
}


def count(found: Any) -> int:
    data = np.zeros(1, np.uint32)
    found.launch(1, 1, [data], check=False)
    return int(data[0])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("launched", [0, 2])
def test_a_copy_has_the_same_values_and_its_own(way: str, launched: int) -> None:
    first = ptx.parse(COUNT, "count.ptx").kernels["f"]
    for _ in range(launched):
        count(first)
    module = WAYS[way](first.loaded)
    assert module.module.name == "count.ptx"
    assert count(module.kernels["f"]) == launched + 1
    found = WAYS[way](first)
    assert (found.loaded is first.loaded) == (way == "copy")  # as for any shallow copy
    assert count(first) == launched + 1
    assert count(found) == launched + 1 + (way == "copy")


@pytest.mark.parametrize("way", WAYS)
def test_kernels_in_cuda_are_copied(way: str) -> None:
    code = 'extern "C" __global__ void f(int *x) { *x = 7; }'
    raw = ptx.RawKernel(code, "f")
    for made in (WAYS[way](raw), raw.compile() or WAYS[way](raw)):
        data = np.zeros(1, np.int32)
        made((1,), (1,), (data,), check=False)
        assert data[0] == 7


# ── arguments as CuPy has them ──────────────────────────────────────────────

TWICE = kernel(
    "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;"
    "ld.global.u32 %r2, [%rd3]; add.s32 %r2, %r2, %r1; st.global.u32 [%rd3], %r2;"
)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2), (12, 1), (1, 12)])
@pytest.mark.parametrize("check", [False, True])
def test_fortran_order_is_memory_as_it_is(shape: tuple[int, ...], check: bool) -> None:
    data = np.asfortranarray(np.arange(12, dtype=np.uint32).reshape(shape))
    wanted = data.ravel(order="K") + np.arange(12, dtype=np.uint32)
    ptx.parse(TWICE).kernels["f"].launch(1, 12, [data], check=check)
    assert data.ravel(order="K").tolist() == wanted.tolist()
    assert data.shape == shape


def test_other_orders_are_refused() -> None:
    found = ptx.parse(TWICE).kernels["f"]
    for wrong in (
        np.zeros((4, 6), np.uint32)[:, ::2],
        np.zeros((2, 3, 2)).swapaxes(0, 1),
    ):
        with pytest.raises(fm.ShapeError, match="is not contiguous"):
            found.launch(1, 12, [wrong])


STRUCT = np.dtype([("a", np.int32), ("b", np.float32), ("c", np.int32)])
GIVEN = f"""{HEAD}
.visible .entry f(.param .u64 x, .param .align 4 .b8 s[12])
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [s+8]; st.global.u32 [%rd1], %r1; ret;
}}
"""


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_struct_is_an_array_of_one(shape: tuple[int, ...]) -> None:
    data, given = np.zeros(1, np.int32), np.zeros(shape, STRUCT)
    given["c"] = 77
    ptx.parse(GIVEN).kernels["f"].launch(1, 1, [data, given], check=False)
    assert data[0] == 77


@pytest.mark.parametrize(
    "wrong", [np.zeros(2, STRUCT), np.zeros(1, [("a", "i4")]), np.zeros(3, np.int32)]
)
def test_other_arrays_are_no_struct(wrong: Any) -> None:
    with pytest.raises(fm.Error, match=r"argument 1 \(s\)"):
        ptx.parse(GIVEN).kernels["f"].launch(1, 1, [np.zeros(1, np.int32), wrong])


# ── forks ───────────────────────────────────────────────────────────────────


def in_child(work: Callable[[], object], seconds: int = 60) -> int:
    """The status of a forked child; a child that waits for ever is ended."""
    import signal

    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1]


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
def test_a_lock_is_free_in_a_child() -> None:
    lock, taken, end = ForkLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    try:
        assert lock.held
        assert in_child(lock.__enter__, 10) == 0
    finally:
        end.set()
        holder.join()
    assert not lock.held


@needs_fork
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_launches_while_threads_compile_and_launch() -> None:
    stop, done = threading.Event(), threading.Event()

    def busy() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            text = kernel(f"mov.u32 %r1, {number};\n" * 50)
            count(ptx.parse(text).kernels["f"])
            done.set()

    found = ptx.parse(COUNT).kernels["f"]
    count(found)
    thread = threading.Thread(target=busy)
    thread.start()
    done.wait()
    try:
        for _ in range(5):
            fresh = ptx.parse(kernel("mov.u32 %r1, 123456;")).kernels["f"]
            assert in_child(lambda fresh=fresh: (count(found), count(fresh))) == 0
    finally:
        stop.set()
        thread.join()
