"""Programs of cuda.core run as they are: what NVRTC makes of them runs by its PTX."""

import pytest

from tests.frontends.running import EXAMPLES, changed, found, run

NAME = "cuda_core_sums.py"


def test_a_program_as_it_is():
    report, said = run(EXAMPLES / NAME)
    assert "sums of rows: [2997. 2998. 2999. 3000.]" in said
    assert [each["kernel"] for each in report["launches"]] == ["sums"]
    assert found(report) == report["refused"] == []


@pytest.mark.parametrize("kind", ["cubin", "ptx"])
def test_a_missing_barrier_is_found_at_its_line(tmp_path, kind):
    made = changed(
        NAME,
        tmp_path,
        barrier=("        __syncthreads();\n", "\n"),
        kind=('"cubin"', f'"{kind}"'),
        check=("assert np", "print(np"),
        end=(".sum(axis=1))", ".sum(axis=1)))"),
    )
    report, _ = run(made, status=1)
    code = made.read_text().partition('CODE = r"""')[2].splitlines()
    line = next(
        i for i, each in enumerate(code, 1) if "if (threadIdx.x < half)" in each
    )
    assert ("shared-race", line) in found(report)


def test_the_runtime_of_the_bindings_is_that_of_the_client(tmp_path):
    """They have the static runtime in them."""
    program = tmp_path / "runtime.py"
    program.write_text(
        "from cuda.bindings import runtime\n"
        "print(runtime.cudaGetDeviceCount(), runtime.cudaMalloc(64))\n"
        "error, about = runtime.cudaGetDeviceProperties(0)\n"
        "print(about.name.decode(), about.multiProcessorCount)\n"
    )
    report, said = run(program, card="a100")
    assert "A100" in said
    assert said.split()[-1] == "108"
    assert report["refused"] == []
