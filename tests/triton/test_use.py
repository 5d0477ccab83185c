"""Triton is easy to switch over, and errors are clear."""

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

import fragmenta as fm
from fragmenta.errors import KernelFault
from fragmenta.triton import CPU, install, on_cpu, uninstall

pytestmark = pytest.mark.triton


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)


@triton.jit
def beyond(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + at, value)  # the line of the fault


def numbers(n: int = 100) -> Any:
    return np.arange(n, dtype=np.float32)


def run_double(target: str = "sm_80") -> Any:
    x, out = numbers(), np.zeros(100, np.float32)
    with on_cpu(target):
        double[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100, BLOCK=64)
    return out


# ── switching ───────────────────────────────────────────────────────────────


def test_a_block_ends_as_it_began() -> None:
    before, run = driver._active, triton.JITFunction.run
    with on_cpu("sm_80") as outer:
        assert driver.active is outer
        with on_cpu("sm_90a") as inner:
            assert driver.active is inner
            assert driver.active.get_current_target().arch == 90
        assert driver.active is outer
        with pytest.raises(ZeroDivisionError), on_cpu("sm_89"):
            _ = 1 / 0
        assert driver.active is outer
    assert driver._active is before
    assert triton.JITFunction.run is run


def test_install_lasts() -> None:
    before = driver._active
    cpu = install("sm_90")
    try:
        assert isinstance(cpu, CPU)
        assert cpu.target == "sm_90a"
        x, out = numbers(), np.zeros(100, np.float32)
        double[1,](x, out, 100, BLOCK=128)
        assert out[99] == 198
    finally:
        uninstall()
    assert driver._active is before
    with pytest.raises(fm.Error, match="not installed"):
        uninstall()


def test_each_target_has_its_own_code() -> None:
    for target in ("sm_80", "sm_90a", "sm_80"):
        fm.assert_same_bits(run_double(target), 2 * numbers())
        with on_cpu(target):
            kernel = double.warmup(numbers(), numbers(), 100, BLOCK=64, grid=(1,))
        assert f".target {target}" in kernel.asm["ptx"]
        assert kernel.n_regs == 255


def test_a_kernel_does_not_outlive_its_driver() -> None:
    with on_cpu():
        kernel = double.warmup(numbers(), numbers(), 100, BLOCK=64, grid=(1,))
        kernel[1, 1, 1](torch.zeros(100), torch.zeros(100), 100, 64)
    with pytest.raises(fm.Error, match="not installed any more"):
        kernel.run(1, 1, 1, 0, kernel.function, (), None, None, None, *numbers(4))


def test_an_unknown_target_is_refused() -> None:
    with (
        pytest.raises(fm.errors.UnsupportedTarget, match="did you mean sm_90"),
        on_cpu("sm_91"),
    ):
        pass


def test_what_tutorials_ask_of_a_driver() -> None:
    with on_cpu("sm_90a"):
        active = triton.runtime.driver.active
        assert active.get_active_torch_device() == torch.device("cpu")
        about = active.utils.get_device_properties(0)
        assert about["max_shared_mem"] == 227 * 1024
        assert about["multiprocessor_count"] == 132


# ── arguments ───────────────────────────────────────────────────────────────


@triton.jit
def add_all(
    parts,
    out,
    whole,
    fraction,
    half: tl.float16,
    brain: tl.bfloat16,
    small: tl.int8,
    yes,
    one,
    no,
):
    total = parts[1] + tl.load(parts[0]) + whole + fraction + half + brain + small + one
    if yes:
        tl.store(out, total)
    if no is not None:
        tl.store(no, total)


def test_numbers_tuples_and_none() -> None:
    out = np.zeros(1, np.float32)
    with on_cpu():
        given = (
            (np.float32([0.5]), 2),
            out,
            1 << 40,
            0.25,
            0.125,
            3.14,
            -7,
            True,
            1,
            None,
        )
        add_all[1,](*given)
        first = out[0]
        given = (
            (np.float32([0.5]), np.int64(2)),
            out,
            np.uint64(1 << 40),
            np.float32(0.25),
            np.float16(0.125),
            3.14,
            np.int8(-7),
            np.bool_(True),
            np.int32(1),
            None,
        )
        add_all[1,](*given)
    assert first == out[0] == np.float32(1 << 40)
    with on_cpu():
        add_all[1,](
            (np.float32([0.5]), 2), out, 0, 0.25, 0.125, 3.14, -7, True, 1, None
        )
    assert out[0] == 0.5 + 2 + 0.25 + 0.125 + 3.125 - 7 + 1


def test_a_number_that_does_not_fit_is_refused() -> None:
    out = np.zeros(1, np.float32)
    given = (np.float32([0.5]), 2), out, 0, 0.25, 0.125, 3.14, 300, True, 1, None
    with (
        on_cpu(),
        pytest.raises(fm.errors.ValueRangeError, match="small is an i8, from -128"),
    ):
        add_all[1,](*given)


@triton.jit
def strided(x, out, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(out + i * COLUMNS + j, tl.load(x + i * row + j * column))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_strides_are_the_kernels_business(library: str) -> None:
    base = numbers(32 * 40).reshape(32, 40)
    out = np.zeros((8, 16), np.float32)
    views = [base[:16, :8].T, base[3:11, 1:17], base[8:16, ::2][:, :16]]
    views += [base[:8, 15::-1], base[20:12:-1, 3:35:2], base[20:12:-1, 19:3:-1]]
    for view in views:
        row, column = (step // 4 for step in view.strides)
        x = view
        if library == "torch":
            if row < 0 or column < 0:  # no tensor has such strides
                continue
            offset = (view.__array_interface__["data"][0] - base.ctypes.data) // 4
            x = torch.as_strided(
                torch.from_numpy(base), view.shape, (row, column), offset
            )
        with on_cpu():
            strided[1,](x, out, row, column, ROWS=8, COLUMNS=16)
        fm.assert_same_bits(out, np.ascontiguousarray(view))


def test_an_expanded_axis_does_not_end_the_memory() -> None:
    base = torch.arange(32.0 * 40).reshape(32, 40)
    expanded = base.as_strided((8, 16), (40, 0))  # the kernel knows the step of columns
    out = torch.zeros(8, 16)
    with on_cpu():
        strided[1,](expanded, out, 40, 1, ROWS=8, COLUMNS=16)
        assert torch.equal(out, base[:8, :16])
        with pytest.raises(KernelFault, match="past the end of argument 0"):
            strided[1,](expanded, out, 200, 1, ROWS=8, COLUMNS=16)


def test_a_descriptor_without_tma_and_with_it() -> None:
    @triton.jit
    def tile(x, out, N: tl.constexpr):
        value = x.load([0, N])
        i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
        tl.store(out + i * N + j, value)

    x = torch.arange(16.0 * 32).reshape(16, 32)
    out = torch.zeros(16, 16)
    described = TensorDescriptor.from_tensor(x, [16, 16])
    with on_cpu("sm_80"):
        tile[1,](described, out, N=16)
    assert torch.equal(out, x[:, 16:])
    out.zero_()
    with on_cpu("sm_90a") as cpu:
        kernel = tile[1,](described, out, N=16)
    assert torch.equal(out, x[:, 16:])
    assert "cp.async.bulk.tensor.2d" in kernel.asm["ptx"]
    assert cpu.last is not None


def test_a_tensor_that_needs_a_gradient() -> None:
    x, out = torch.arange(4.0, requires_grad=True), torch.zeros(4)
    with on_cpu():
        double[1,](x, out, 4, BLOCK=4)
    assert out.tolist() == [0, 2, 4, 6]


def test_an_empty_grid_and_an_empty_array_do_nothing() -> None:
    with on_cpu() as cpu:
        double[0,](numbers(), numbers(), 100, BLOCK=64)
        assert cpu.last is None
        double[1,](numbers(0), numbers(0), 0, BLOCK=64)


# ── wrong use ───────────────────────────────────────────────────────────────


def test_memory_of_another_device_is_not_touched() -> None:
    there = SimpleNamespace(
        data_ptr=lambda: 1 << 40,
        dtype=torch.float32,
        device="cuda:0",
        shape=(4,),
        stride=lambda: (1,),
        element_size=lambda: 4,
    )
    with on_cpu(), pytest.raises(fm.Error, match=r"out is on cuda:0; .*give out\.cpu"):
        double[1,](numbers(4), there, 4, BLOCK=4)
    with on_cpu(), pytest.raises(fm.Error, match="x is on meta"):
        double[1,](torch.empty(4, device="meta"), numbers(4), 4, BLOCK=4)


def test_arrays_that_no_kernel_can_take() -> None:
    out = numbers(4)
    with on_cpu():
        with pytest.raises(KernelFault, match="past the end of argument 0"):
            double[1,](numbers(4)[::-1], out, 4, BLOCK=4)
        with pytest.raises(fm.Error, match="native byte order, not >f4"):
            double[1,](numbers(4).astype(">f4"), out, 4, BLOCK=4)
        with pytest.raises(fm.Error, match="not object"):
            double[1,](np.array([None]), out, 4, BLOCK=4)
        with pytest.raises(fm.Error, match="masked array"):
            double[1,](np.ma.masked_less(out, 2), out, 4, BLOCK=4)
    assert out.tolist() == [0, 1, 2, 3]


def test_out_of_bounds_names_the_argument_and_the_line() -> None:
    lines, first = inspect.getsourcelines(beyond.fn)
    (line,) = [first + i for i, text in enumerate(lines) if "of the fault" in text]
    with on_cpu(), pytest.raises(KernelFault) as caught:
        beyond[1,](numbers(32), numbers(20), BLOCK=32)
    fault = caught.value
    assert fault.kind == "bounds"
    assert fault.source.endswith(f"test_use.py:{line}")
    assert "past the end of argument 1 (out), which has 80 bytes" in str(fault)


def test_a_read_only_array_is_not_written() -> None:
    out = numbers(32)
    out.flags.writeable = False
    with on_cpu(), pytest.raises(KernelFault, match="read-only") as caught:
        beyond[1,](numbers(32), out, BLOCK=32)
    assert caught.value.kind == "read_only"


def test_a_program_may_be_a_cluster() -> None:
    x, out = numbers(), np.zeros(100, np.float32)
    with on_cpu("sm_90a"):
        double[2,](x, out, 100, BLOCK=64, num_ctas=2)
    fm.assert_same_bits(out, 2 * x)


# ── printing, assertions ────────────────────────────────────────────────────


def test_what_a_kernel_prints(capsys: pytest.CaptureFixture[str]) -> None:
    @triton.jit
    def show(x):
        tl.device_print("value", tl.load(x + tl.arange(0, 2)))

    with on_cpu() as cpu:
        show[2,](np.array([5, 6], np.int32), num_warps=1)
    lines = capsys.readouterr().out.splitlines()
    assert set(lines) == {
        f"pid ({pid}, 0, 0) idx ({i}) value: {5 + i}" for pid in (0, 1) for i in (0, 1)
    }
    assert cpu.last is not None
    assert cpu.last.output.splitlines() == lines


def test_an_assertion_of_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    @triton.jit
    def check(x, BLOCK: tl.constexpr):
        value = tl.load(x + tl.arange(0, BLOCK))
        tl.device_print("value", value)
        tl.device_assert(value < 3, "too large")

    with on_cpu():
        check[1,](np.arange(2, dtype=np.int32), BLOCK=2, debug=True)
        capsys.readouterr()
        with pytest.raises(KernelFault, match="too large") as caught:
            check[1,](np.arange(4, dtype=np.int32), BLOCK=4, debug=True)
    assert caught.value.kind == "assert"
    assert "3" in capsys.readouterr().out


# ── tuning ──────────────────────────────────────────────────────────────────


def tuned(**options: Any) -> Any:
    @triton.autotune(
        configs=[triton.Config({"BLOCK": n}, num_warps=1) for n in (32, 256, 64)],
        key=["n"],
        **options,
    )
    @triton.jit
    def accumulate(x, total, n, BLOCK: tl.constexpr):
        sums = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, n, BLOCK):
            sums += tl.load(x + first + tl.arange(0, BLOCK))
        tl.store(total, tl.load(total) + tl.sum(sums, 0))

    return accumulate


@pytest.mark.parametrize(
    "options", [{"reset_to_zero": ["total"]}, {"restore_value": ["total"]}]
)
def test_the_fewest_instructions_win(options: dict[str, Any]) -> None:
    kernel, total = tuned(**options), np.zeros(1, np.float32)
    # All lanes load the total and one stores it: PTX does not order that.
    with on_cpu(watch="report"):
        kernel[1,](np.ones(1024, np.float32), total, 1024)
    assert total[0] == 1024
    assert kernel.best_config.kwargs == {"BLOCK": 256}
    spent = {
        config.kwargs["BLOCK"]: time[0]
        for config, time in kernel.configs_timings.items()
    }
    assert spent[32] > spent[64] > spent[256] > 0
    assert "do_bench" not in vars(kernel)


def test_the_first_configuration_is_taken_and_nothing_else_runs() -> None:
    kernel, total = tuned(), np.zeros(1, np.float32)
    with on_cpu(watch="report", autotune="first") as cpu:
        kernel[1,](np.ones(1024, np.float32), total, 1024)
        assert cpu.last is not None
        assert cpu.instructions == cpu.last.instructions
    assert total[0] == 1024
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_the_first_one_that_a_gpu_can_run() -> None:
    configs = [triton.Config({"BLOCK": 64}, num_warps=n) for n in (64, 2, 1)]
    kernel = triton.autotune(configs=configs, key=["n"])(double)
    x, out = numbers(), np.zeros(100, np.float32)
    with on_cpu("sm_80", autotune="first"):
        kernel[2,](x, out, 100)
    assert kernel.best_config.num_warps == 2  # 64 are 2,048 threads
    fm.assert_same_bits(out, 2 * x)


def test_choices_are_those_of_the_block() -> None:
    kernel, x = tuned(reset_to_zero=["total"]), np.ones(1024, np.float32)
    chosen = []
    for how in ("first", "cost", "first"):
        with on_cpu(watch="report", autotune=how):
            kernel[1,](x, np.zeros(1, np.float32), 1024)
            chosen.append(kernel.best_config.kwargs["BLOCK"])
    assert chosen == [32, 256, 32]
    assert kernel.cache == {}  # a GPU would choose anew
    with pytest.raises(fm.Error, match="did you mean first"), on_cpu(autotune="frist"):
        pass


def test_do_bench_counts_instructions() -> None:
    x, out = numbers(1000), numbers(1000)
    with on_cpu() as cpu:
        found = triton.testing.do_bench(
            lambda: double[8,](x, out, 1000, BLOCK=128), warmup=1, rep=2
        )
        assert cpu.last is not None
        assert found == pytest.approx(cpu.last.instructions / 1000)


@triton.heuristics(
    {"BLOCK": lambda arguments: triton.next_power_of_2(arguments["x"].size)}
)
@triton.jit
def by_size(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + BLOCK, at < n)


def test_heuristics_see_the_array() -> None:
    out = np.zeros(100, np.float32)
    with on_cpu():
        by_size[1,](numbers(), out, 100)
    assert out[0] == 128


@triton.jit
def racing(values, result, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(values + at, at < n, 0))
    tl.store(result + 1, tl.load(result + 1) + part)  # the line of the race


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_race_is_told_in_words_of_triton(kind: str) -> None:
    values, result = np.ones((4, 128), np.int32), np.zeros((2, 2), np.int32)
    given: tuple[Any, ...] = (values, result)
    if kind == "torch":
        given = tuple(map(torch.from_numpy, given))
    with on_cpu("sm_90a") as cpu, pytest.raises(fm.errors.KernelHazard) as raised:
        racing[(4,)](*given, 512, BLOCK=128)
    hazard = raised.value
    lines, start = inspect.getsourcelines(racing.fn)
    line = start + next(i for i, e in enumerate(lines) if "the line of" in e)
    worst = hazard.problems[0]
    assert (worst.rule, worst.source.line) == ("global-race", line)
    assert "result[0, 1] (argument 1)" in worst.message
    assert "use tl.atomic_add." in worst.hint
    assert hazard.result is cpu.last is not None
    assert "error" in repr(cpu.last)
    assert str(cpu.last.timeline()).startswith("<svg")


@triton.jit
def unmasked(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)  # the line of the fault
    w = v * 2
    tl.store(out + at, w, mask=at < n)


def test_a_load_without_a_mask_is_told_with_its_line() -> None:
    with on_cpu("sm_90a"), pytest.raises(KernelFault) as raised:
        unmasked[(1,)](numbers(), numbers(), 100, BLOCK=128)
    lines, start = inspect.getsourcelines(unmasked.fn)
    line = start + next(i for i, e in enumerate(lines) if "the line of" in e)
    assert raised.value.source.endswith(f":{line}")
    assert "argument 0 (x)" in str(raised.value)


@triton.jit
def difference(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    large = tl.load(x + at) + 536870912.0
    tl.store(out + at, (large - 536870912.0).to(out.dtype.element_ty))


@pytest.mark.parametrize(
    ("kind", "name"),
    [(torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.float16, "f16")],
)
def test_numerics_know_the_type_of_an_output(kind: torch.dtype, name: str) -> None:
    x, out = torch.rand(128) + 1, torch.zeros(128, dtype=kind)
    with on_cpu("sm_90a", numerics=True) as cpu:
        difference[(1,)](x, out, BLOCK=128)
    found = cpu.last.numerics
    assert found["out"].format == name
    np.testing.assert_allclose(found["out"].exact, x.double(), rtol=1e-9)
    assert found.problems[0].rule == "output-error"


@triton.jit
def open_sum(x, y, n, B: tl.constexpr, GIVEN: tl.constexpr):
    at = tl.arange(0, B)
    if GIVEN:
        row = tl.load(x + at, mask=at < n, other=0)
    else:
        row = tl.load(x + at, mask=at < n)
    tl.store(y, tl.sum(row, 0))


@pytest.mark.parametrize("of", [np.float32, np.int32])
@pytest.mark.parametrize("given", [False, True])
def test_masked_elements_without_other_are_found_if_that_is_strict(of, given):
    x, y = np.ones(100, of), np.zeros(1, of)
    for watch in ("report", "strict"):
        with on_cpu("sm_90a", watch=watch) as cpu:
            open_sum[(1,)](x, y, 100, B=128, GIVEN=given)
        assert y[0] == 100
        found = [each for each in cpu.last.problems if each.rule == "uninitialised"]
        assert len(found) == (watch == "strict" and not given)
        line = open_sum.fn.__code__.co_firstlineno + 6
        assert all(f"tl.load of line {line} masks off" in e.message for e in found)
