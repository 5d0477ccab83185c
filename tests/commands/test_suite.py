"""``pytest --fragmenta`` watches all launches of a suite, and says what is wrong."""

import json

import pytest

pytest_plugins = ["pytester"]

# The entry point may be installed or not; -p loads the module itself.
PLUGIN = ("-p", "no:fragmenta", "-p", "fragmenta.inspect.evidence.plugin")
TESTS = '''
import pytest
from fragmenta import ptx
from fragmenta.errors import KernelHazard
import numpy as np

KERNEL = ptx.parse("""
.version 8.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 out) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    st.global.u32 [%rd1], %r1;
    ret;
}""").kernels["store"]

def launch(blocks, **options):
    KERNEL.launch(blocks, 1, [np.zeros(1, np.int32)], **options)

def test_right():
    launch(1)

def test_wrong():
    launch(2)  # the line of the race

def test_expected():
    with pytest.raises(KernelHazard):
        launch(2)

def test_reported():
    launch(3, watch="report")
'''


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    pytester.makepyfile(test_kernels=TESTS)
    return lambda *options: pytester.runpytest_subprocess(*PLUGIN, *options)


@pytest.mark.long
@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "2")])
def test_all_launches_are_watched(run, pytester, workers):
    result = run("--fragmenta", "--fragmenta-sarif=out/found.sarif", *workers)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*fragmenta: 4 launches of 1 kernels, 2 errors*",
            "error in test_kernels.py::test_wrong",
            "  launched by test_kernels.py:20, in launch",
            "      KERNEL.launch(*",
            "  global-race, PTX line *",
        ]
    )
    made = json.loads((pytester.path / "out" / "found.sarif").read_text())
    results = made["runs"][0]["results"]
    assert [each["ruleId"] for each in results] == ["global-race"] * 2
    assert all(each["level"] == "error" for each in results)


@pytest.mark.long
def test_errors_name_the_line_of_the_launch(run):
    result = run("--fragmenta", "-p", "no:xdist", "-k", "wrong")
    result.stdout.fnmatch_lines(
        ["E *KernelHazard: launched by test_kernels.py:20, in launch"]
    )


@pytest.mark.long
def test_without_it_nothing_is_listed(run):
    result = run("-p", "no:xdist")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.no_fnmatch_line("*launches of*")


def test_sarif_alone_is_refused(run):
    result = run("--fragmenta-sarif=found.sarif", "-p", "no:xdist")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--fragmenta-sarif is written with --fragmenta only"])
