"""The pytest plugin launches kernels, and reports which bits differ."""

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.inspect.evidence import testing

pytest_plugins = ["pytester"]

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .global .u32 times;
.visible .entry scale(.param .u64 data, .param .f32 factor)
{
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.f32 %f1, [factor];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f2, [%rd3];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd3], %f3;
    ret;
}
.visible .entry count(.param .u64 data)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [data];
    ld.global.u32 %r1, [times];
    add.u32 %r2, %r1, 1;
    st.global.u32 [times], %r2;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
# The entry point may be installed or not; -p loads the module itself.
PLUGIN = (
    "-p",
    "no:fragmenta",
    "-p",
    "fragmenta.inspect.evidence.plugin",
    "-p",
    "no:xdist",
)


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def launcher(request):
    try:
        return testing.launcher(request.param)
    except fm.errors.NoDevice as why:
        pytest.skip(f"no GPU: {why}")


# ── launches ────────────────────────────────────────────────────────────────


def test_arrays_are_changed_in_place(launcher):
    x = np.arange(8, dtype=np.float32)
    launcher.launch(PTX, "scale", 1, 8, [x, 0.5])
    fm.assert_same_bits(x, np.arange(8, dtype=np.float32) / 2)
    launcher.launch(
        ptx.parse(PTX).kernels["scale"], None, 1, 4, [ptx.pointer(x, 16), 2]
    )
    assert x.tolist() == [0, 0.5, 1, 1.5, 4, 5, 6, 7]


def test_variables_have_their_first_values(launcher):
    x = np.zeros(1, np.uint32)
    loaded = ptx.parse(PTX)
    for code in (loaded, loaded, PTX, loaded.kernels["count"]):
        launcher.launch(code, "count", 1, 1, [x])
        assert x[0] == 1
        x[0] = 0


def test_what_a_kernel_prints_is_printed(launcher, capsys):
    code = 'extern "C" __global__ void say(int n) { printf("%d %s\\n", n, "times"); }'
    launcher.launch(ptx.RawKernel(code, "say", target="sm_80"), None, 1, 1, [3])
    assert capsys.readouterr().out == "3 times\n"


def test_a_read_only_array_stays_as_it_is(launcher):
    x = np.ones(4, np.float32)
    x.flags.writeable = False
    if launcher.is_real:
        launcher.launch(PTX, "scale", 1, 4, [x, 2.0])
    else:
        with pytest.raises(fm.Error, match="read-only"):
            launcher.launch(PTX, "scale", 1, 4, [x, 2.0])
    assert x.tolist() == [1, 1, 1, 1]


def test_cuda_and_much_shared_memory(launcher):
    code = r"""
    struct pair { int a; float b; };
    extern "C" __global__ void turn(short *x, pair more) {
        extern __shared__ short kept[];
        kept[100 * (blockDim.x - 1 - threadIdx.x)] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = kept[100 * threadIdx.x] + more.a + more.b;
    }"""
    x = np.arange(512, dtype=np.int16)
    more = np.array([(1, 2.0)], "i4,f4").tobytes()
    kernel = ptx.RawKernel(code, "turn", target="sm_80")
    launcher.launch(kernel, "turn", 1, 512, [x, more], shared=102400)
    assert x.tolist() == [514 - i for i in range(512)]


def test_a_wrong_launch_is_refused(launcher):
    with pytest.raises(fm.Error, match=r"no kernel scael .did you mean scale"):
        launcher.launch(PTX, "scael", 1, 1, [])
    with pytest.raises(
        fm.Error, match="a name is needed; the kernels are scale and count"
    ):
        launcher.launch(PTX, None, 1, 1, [])
    with pytest.raises(fm.Error, match="the kernel is scale, not count"):
        launcher.launch(ptx.parse(PTX).kernels["scale"], "count", 1, 1, [])
    with pytest.raises(fm.Error, match="given int"):
        launcher.launch(7, "scale", 1, 1, [])
    with pytest.raises(fm.Error, match="2 parameters"):
        launcher.launch(PTX, "scale", 1, 1, [])
    with pytest.raises(fm.Error, match="there are auto, gpu or cpu"):
        testing.launcher("tpu")


# ── bits ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["i1", "u8", "f2", "f4", "f8", "c16", "bool"])
def test_equal_arrays_pass(kind):
    x = np.arange(-6, 6).reshape(3, 4).astype(kind)
    fm.assert_same_bits(x, x.copy())
    fm.assert_same_bits(x[::2, ::-1], x[::2, ::-1].copy())
    fm.assert_same_bits(np.zeros((0, 3), kind), np.zeros((0, 3), kind))


@pytest.mark.parametrize("at", [(0, 0), (1, 3), (2, 2)])
@pytest.mark.parametrize("kind", [np.float16, np.int64, ml_dtypes.bfloat16])
def test_each_place_is_seen(at, kind):
    x = np.ones((3, 4), kind)
    y = x.copy()
    y[at] = 2
    with pytest.raises(AssertionError, match=rf"1 of 12 .*\n  \[{at[0]}, {at[1]}\]"):
        fm.assert_same_bits(y, x)


def test_what_compares_equal_may_differ():
    zero, nan = np.float32([0.0]), np.float32([np.nan])
    with pytest.raises(AssertionError, match=r"0x80000000 -0\.0  is not  0x0+ 0\.0"):
        fm.assert_same_bits(-zero, zero)
    other = (nan.view(np.uint32) + 1).view(np.float32)
    with pytest.raises(AssertionError, match="0x7fc00001 nan  is not  0x7fc00000 nan"):
        fm.assert_same_bits(other, nan)
    fm.assert_same_bits(nan, nan.copy())


def test_type_and_shape_count():
    with pytest.raises(AssertionError, match="the type is float32, not float64"):
        fm.assert_same_bits(np.ones(2, np.float32), np.ones(2))
    with pytest.raises(AssertionError, match=r"the shape is \(2,\), not \(2, 1\)"):
        fm.assert_same_bits(np.ones(2), np.ones((2, 1)))


def test_many_differences_are_counted():
    with pytest.raises(AssertionError) as caught:
        fm.assert_same_bits(np.zeros(1000), np.ones(1000), most=2)
    lines = str(caught.value).splitlines()
    assert lines[0] == "1,000 of 1,000 elements differ (float64, shape (1000,)):"
    assert lines[-1] == "  … and 998 more"
    assert len(lines) == 4


# ── the plugin ──────────────────────────────────────────────────────────────


@pytest.mark.long
def test_the_fixture(pytester):
    pytester.makefile(".ptx", scale=PTX)
    pytester.makepyfile(
        """
        from pathlib import Path
        import numpy as np
        import fragmenta as fm

        PTX = Path(__file__).with_name("scale.ptx").read_text()

        def test_right(gpu):
            assert gpu.name == "sm_80 on the CPU"
            assert gpu.is_real is False
            x = np.arange(4, dtype=np.float32)
            gpu.launch(PTX, "scale", 1, 4, [x, 3.0], shared=0)
            fm.assert_same_bits(x, np.float32([0, 3, 6, 9]))

        def test_wrong(gpu):
            x = np.arange(4, dtype=np.float32)
            gpu.launch(PTX, "scale", grid=1, block=4, arguments=[x, 3.0])
            fm.assert_same_bits(x, np.float32([0, 3, 6, 8]))
        """
    )
    options = ("--fragmenta-on=cpu", "--fragmenta-target=sm_80")
    result = pytester.runpytest_subprocess(*PLUGIN, *options)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*1 of 4 elements differ*",
            "*[[]3[]]  0x41100000 9.0  is not  0x41000000 8.0*",
        ]
    )


@pytest.mark.long
def test_the_fixture_is_told_where_to_run(pytester):
    pytester.makepyfile("def test_name(gpu): assert gpu.is_real")
    here = pytester.runpytest_subprocess(*PLUGIN, "--fragmenta-on=cpu")
    here.assert_outcomes(failed=1)
    wrong = pytester.runpytest_subprocess(*PLUGIN, "--fragmenta-on=tpu")
    wrong.stderr.fnmatch_lines(["*--fragmenta-on: invalid choice: 'tpu'*"])


def test_starting_pytest_imports_nothing_heavy(pytester, monkeypatch):
    pytester.makepyfile(
        """
        import sys

        def test_light():
            assert "fragmenta.inspect.evidence.plugin" in sys.modules
            assert not {"numpy", "llvmlite", "torch", "triton"} & set(sys.modules)
        """
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others may be heavy
    result = pytester.runpytest_subprocess("-p", "fragmenta.inspect.evidence.plugin")
    result.assert_outcomes(passed=1)
