"""Kernels of NVIDIA Warp run here: structs, adjoints, tiles, its lines."""

import inspect

import numpy as np
import pytest
import warp as wp

import fragmenta as fm
from fragmenta.frontends import warp as front

wp.config.quiet = True
SIDE = wp.constant(8)


@wp.struct
class Both:
    values: wp.array(dtype=float)
    factor: float


@wp.kernel
def add(x: wp.array(dtype=float), y: wp.array2d(dtype=wp.vec3), n: int, both: Both):
    i = wp.tid()
    x[i] = x[i] + float(n) + y[i, 0][1] + both.values[i] * both.factor


@wp.kernel
def collide(x: wp.array(dtype=float)):
    i = wp.tid()
    x[i / 2] = float(i)


@wp.kernel
def squares(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(out, 0, x[i] * x[i])


@wp.kernel
def product(
    a: wp.array2d(dtype=float), b: wp.array2d(dtype=float), c: wp.array2d(dtype=float)
):
    i, j = wp.tid()
    total = wp.tile_zeros(shape=(SIDE, SIDE), dtype=float)
    for k in range(2):
        left = wp.tile_load(a, shape=(SIDE, SIDE), offset=(i * SIDE, k * SIDE))
        right = wp.tile_load(b, shape=(SIDE, SIDE), offset=(k * SIDE, j * SIDE))
        wp.tile_matmul(left, right, total)
    wp.tile_store(c, total, offset=(i * SIDE, j * SIDE))


def array(values, dtype=float, **more):
    return wp.array(values, dtype=dtype, device="cpu", **more)


def arguments(n=10):
    both = Both()
    both.values, both.factor = array(np.ones(n)), 2.0
    y = array(np.random.default_rng(1).random((n, 2, 3)), wp.vec3)
    return array(np.arange(n)), y, both


def line_of(kernel, text):
    """The number of the line of a kernel that has some words."""
    lines, first = inspect.getsourcelines(kernel.func)
    return first + next(i for i, each in enumerate(lines) if text in each)


def test_arrays_vectors_and_structs():
    x, y, both = arguments()
    with front.on_cpu("sm_90") as cpu:
        wp.launch(add, dim=10, inputs=[x, y, 3, both])
    wanted = np.arange(10, dtype=np.float32) + 3 + y.numpy()[:, 0, 1] + 2
    assert np.allclose(x.numpy(), wanted, rtol=1e-6)
    assert not cpu.last.problems


def test_a_race_and_a_fault_are_found_at_their_lines():
    x, y, both = arguments()
    with front.on_cpu("sm_90") as cpu:
        with pytest.raises(fm.errors.KernelHazard):
            wp.launch(collide, dim=10, inputs=[x])
        (problem,) = cpu.last.problems
        assert problem.rule == "global-race"
        assert "x[0]" in problem.message
        where = f"{__file__}:{line_of(collide, 'float(i)')}"
        assert str(problem.source.frames[0]) == where
        with pytest.raises(
            fm.errors.KernelFault, match=r"past the end of .*\(x\)"
        ) as why:
            wp.launch(add, dim=11, inputs=[x, y, 3, both])
        assert f"{__file__}:{line_of(add, 'float(n)')}" in str(why.value)


def test_adjoint_kernels():
    x = array(np.arange(5), requires_grad=True)
    out = wp.zeros(1, dtype=float, requires_grad=True, device="cpu")
    with front.on_cpu("sm_90"):
        tape = wp.Tape()
        with tape:
            wp.launch(squares, dim=5, inputs=[x], outputs=[out])
        tape.backward(out)
    assert out.numpy().tolist() == [30]
    assert x.grad.numpy().tolist() == [0, 2, 4, 6, 8]


def test_tiles():
    random = np.random.default_rng(2)
    a, b = (array(random.random((16, 16))) for _ in range(2))
    c = wp.zeros((16, 16), dtype=float, device="cpu")
    with front.on_cpu("sm_90") as cpu:
        wp.launch_tiled(product, dim=[2, 2], inputs=[a, b, c], block_dim=32)
    assert np.allclose(c.numpy(), a.numpy() @ b.numpy(), rtol=1e-5)
    assert not cpu.last.problems


def test_afterwards_warp_is_as_before():
    before = wp.launch
    with front.on_cpu("sm_90"):
        assert wp.launch is not before
    assert wp.launch is before
