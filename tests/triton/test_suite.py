"""``pytest --fragmenta`` runs the Triton kernels of a suite that was made for a GPU."""

import json

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.triton

PLUGIN = (
    "-p",
    "no:fragmenta",
    "-p",
    "fragmenta.inspect.evidence.plugin",
    "-p",
    "no:xdist",
)
TESTS = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)

@triton.jit
def collide(out):
    tl.store(out, tl.program_id(0))

def test_right():
    x = torch.ones(100, device="cuda")
    out = torch.empty_like(x)
    double[(2,)](x, out, 100, BLOCK=64)
    torch.cuda.synchronize()
    assert out.is_cuda and out.sum().item() == 200

def test_wrong():
    collide[(2,)](torch.zeros(1, device="cuda"))

def test_fixture(gpu):
    x, out = torch.ones(100), torch.zeros(100)
    gpu.launch(double, None, 2, None, [x, out, 100], BLOCK=64)
    assert out.sum().item() == 200
"""


def test_a_suite_for_a_gpu(pytester, monkeypatch):
    pytester.makepyfile(test_kernels=TESTS)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(pytester.path / "cache"))
    options = ("--fragmenta", "--fragmenta-sarif=found.sarif", "-W", "ignore")
    result = pytester.runpytest_subprocess(*PLUGIN, *options)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *KernelHazard: launched by test_kernels.py:22, in test_wrong",
            "*fragmenta: 3 launches of 2 kernels, 1 error*",
            "error in test_kernels.py::test_wrong",
            "  launched by test_kernels.py:22, in test_wrong",
            "  global-race, test_kernels.py:12",
        ]
    )
    made = json.loads((pytester.path / "found.sarif").read_text())
    (found,) = made["runs"][0]["results"]
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "test_kernels.py"
    assert place["region"]["startLine"] == 12


def test_the_fixture_takes_triton_kernels_without_it(pytester, monkeypatch):
    pytester.makepyfile(test_kernels=TESTS)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(pytester.path / "cache"))
    options = ("--fragmenta-on=cpu", "-k", "fixture", "-W", "ignore")
    result = pytester.runpytest_subprocess(*PLUGIN, *options)
    result.assert_outcomes(passed=1)
