"""Kernels of numba-cuda run here: its arguments, its lines, its words."""

import enum
import inspect

import numba
import numpy as np
import pytest
from numba import cuda

import fragmenta as fm
from fragmenta.frontends import numba as front


class Colour(enum.IntEnum):
    RED = 3


@cuda.jit
def matmul(a, b, c, scale):
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = 0.0
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total * scale[0] + scale[1].real


@cuda.jit
def turn(x, out):
    kept = cuda.shared.array(64, numba.float32)
    kept[cuda.threadIdx.x] = x[cuda.grid(1)]
    out[cuda.grid(1)] = kept[63 - cuda.threadIdx.x]  # the barrier is missing


@cuda.jit
def every_kind(out, i8, u32, i64, f32, f64, c64, flag, colour, triple):
    out[0] = i8 + u32 + i64 + f32 + f64
    out[1] = c64.real * c64.imag
    out[2] = triple[0] + triple[1] if flag else -1.0
    out[3] = triple[2][1] + colour


@cuda.jit
def shared_sum(x, out):
    kept = cuda.shared.array(0, numba.float64)
    kept[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        total = 0.0
        for i in range(cuda.blockDim.x):
            total += kept[i]
        out[0] = total


def line_of(kernel, text):
    """The number of the line of a kernel that has some words."""
    lines, first = inspect.getsourcelines(kernel.py_func)
    return first + next(i for i, each in enumerate(lines) if text in each)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_arrays_with_every_order_and_step(target):
    random = np.random.default_rng(1)
    a = random.random((20, 8))[::-1]
    b = np.asfortranarray(random.random((8, 17)))
    c = np.zeros((20, 34))[:, ::2]
    wanted = (a @ b) * 2 + 3
    with front.on_cpu(target) as cpu:
        matmul[(2, 2), (16, 16)](a, b, c, (2, 3 + 1j))
    assert np.allclose(c, wanted, rtol=1e-14)
    assert not c.base[:, 1::2].any()
    assert cpu.last.target == target
    assert cpu.instructions == cpu.last.instructions > 1000


def test_every_kind_of_argument():
    out = np.zeros(4)
    one = (np.int8(-3), np.uint32(7), 2**40, np.float32(0.5), 0.25)
    with front.on_cpu():
        every_kind[1, 1](
            out, *one, np.complex64(3 + 2j), True, Colour.RED, (1, 2.5, (7, 8))
        )
    assert out.tolist() == [sum(map(float, one)), 6, 3.5, 11]


def test_a_race_is_found_at_its_line():
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    with front.on_cpu() as cpu, pytest.raises(fm.errors.KernelHazard):
        turn[1, 64](x, out)
    (problem,) = cpu.last.problems
    assert problem.rule == "shared-race"
    assert problem.source.file == __file__
    wrong = line_of(turn, "missing")
    assert {problem.source.line, problem.related[0].source.line} == {wrong - 1, wrong}
    assert problem.hint.startswith("Let cuda.syncthreads() come between the two")


def test_a_fault_names_the_array_and_the_line():
    with front.on_cpu(), pytest.raises(fm.errors.KernelFault) as caught:
        turn[2, 64](np.zeros(65, np.float32), np.zeros(128, np.float32))
    assert "(x)" in str(caught.value)
    assert caught.value.source == f"{__file__}:{line_of(turn, 'kept[cuda.t')}"


def test_device_arrays_shared_memory_and_forall():
    x = np.arange(100.0)
    with front.on_cpu():
        there = cuda.to_device(x)
        out = cuda.device_array(1)
        shared_sum[1, 100, 0, 800](there, out)
        cuda.synchronize()
        assert out.copy_to_host().tolist() == [x.sum()]
        there[:] = 0
        assert x[99] == 99

        @cuda.jit("void(float32[:], float32)")
        def scale(x, factor):
            i = cuda.grid(1)
            if i < x.size:
                x[i] *= factor

        y = np.arange(70, dtype=np.float32)
        scale.forall(70)(y, 3)  # a whole number for a float32
        assert y.tolist() == [3 * i for i in range(70)]


def test_afterwards_numba_is_as_before():
    before = cuda.to_device, cuda.dispatcher.CUDADispatcher.call
    with front.on_cpu():
        assert cuda.to_device is not before[0]
    assert (cuda.to_device, cuda.dispatcher.CUDADispatcher.call) == before


def test_wrong_uses_are_refused():
    with (
        pytest.raises(fm.errors.BadCall, match="did you mean watch"),
        front.on_cpu(wach=0),
    ):
        pass
    with front.on_cpu(), pytest.raises(fm.errors.BadCall, match="takes 2 arguments"):
        turn[1, 64](np.zeros(64, np.float32))
