"""Modules and kernels are copied, pickled, and used in forked processes."""

import copy
import os
import pickle
import signal
import sys
import threading
import warnings

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.base.arrays import forking
from fragmenta.base.jit import compiler
from tests.clock import HANG

COUNT = """.version 8.0
.target sm_80
.address_size 64
.global .u32 calls = 5;
.visible .entry count(.param .u64 out) {
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [calls];
    add.u32 %r1, %r1, 1;
    st.global.u32 [calls], %r1;
    st.global.u32 [%rd1], %r1;
    ret;
}"""


def counted(kernel: ptx.Kernel) -> int:
    out = np.zeros(1, np.uint32)
    kernel.launch(1, 1, [out])
    return int(out[0])


WAYS = [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_a_module_has_variables_of_its_own(way) -> None:
    module = ptx.parse(COUNT, "count.ptx")
    unused = way(module)
    assert counted(module.kernels["count"]) == 6
    used = way(module)
    again = way(used)  # before its variables were needed
    assert counted(module.kernels["count"]) == 7
    assert counted(unused.kernels["count"]) == 6
    assert counted(used.kernels["count"]) == 7
    assert counted(again.kernels["count"]) == 7
    assert counted(module.kernels["count"]) == 8
    assert (used.text, used.name) == (module.text, module.name)


@pytest.mark.parametrize("way", WAYS[1:])
def test_a_copy_of_a_kernel_is_in_a_copy_of_its_module(way) -> None:
    kernel = ptx.parse(COUNT).kernels["count"]
    assert counted(kernel) == 6
    other = way(kernel)
    assert (counted(kernel), counted(other), other.name) == (7, 7, "count")
    assert copy.copy(kernel).loaded is kernel.loaded  # a shallow copy, as ever


def test_a_raw_kernel_is_pickled_with_its_source() -> None:
    code = 'extern "C" __global__ void one(int *x) { *x = 1; }'
    raw = pickle.loads(pickle.dumps(ptx.RawKernel(code, "one", target="sm_80")))
    assert (raw.code, raw.name, raw.target) == (code, "one", "sm_80")


# ── forks ───────────────────────────────────────────────────────────────────


def in_a_child(work) -> None:
    """Run it in a forked child; a child that hangs is ended by its own alarm."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads, and a fork
        pid = os.fork()
    if not pid:
        status = 1
        try:
            signal.alarm(int(HANG))
            work()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_child_launches_what_a_thread_of_the_parent_was_compiling() -> None:
    """The fork comes while the other thread holds the lock of the module."""
    module = ptx.parse(COUNT)
    inside, go_on = threading.Event(), threading.Event()

    def held() -> None:
        with module._lock:
            inside.set()
            go_on.wait()

    thread = threading.Thread(target=held)
    thread.start()
    inside.wait()
    try:
        in_a_child(lambda: counted(module.kernels["count"]))
    finally:
        go_on.set()
        thread.join()
    assert counted(module.kernels["count"]) == 6


def test_a_child_uses_llvm_after_threads_of_the_parent_did() -> None:
    """Threads are inside LLVM all the time; every child compiles, too."""
    done = threading.Event()
    text = "define i32 @f(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n"

    def busy() -> None:
        while not done.is_set():
            compiler.object_code(text, 0)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for each in threads:
        each.start()
    try:
        for _ in range(5):
            in_a_child(lambda: compiler.object_code(text, 0))
    finally:
        done.set()
        for each in threads:
            each.join()


def test_every_lock_of_the_package_is_free_in_a_child() -> None:
    lock, inside, go_on = forking.Lock(), threading.Event(), threading.Event()
    locked = [lock, *(each.lock for each in forking._properties())]
    assert sys.version_info >= (3, 12) or len(locked) > 1

    def held() -> None:
        for each in locked:
            each.__enter__()
        inside.set()
        go_on.wait()
        for each in locked:
            each.__exit__(None, None, None)

    def free() -> None:
        for each in [lock, *(each.lock for each in forking._properties())]:
            with each:
                pass

    thread = threading.Thread(target=held)
    thread.start()
    inside.wait()
    try:
        in_a_child(free)
    finally:
        go_on.set()
        thread.join()
