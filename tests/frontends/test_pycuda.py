"""Programs of PyCUDA run as they are: what nvcc makes of them runs by its PTX."""

from tests.frontends.running import EXAMPLES, changed, found, run

NAME = "pycuda_transpose.py"


def test_a_program_as_it_is():
    report, said = run(EXAMPLES / NAME)
    assert "transposed" in said
    assert "transpose" in report["launches"][-1]["kernel"]
    assert found(report) == report["refused"] == []


def test_a_missing_barrier_is_found_at_its_line(tmp_path):
    made = changed(
        NAME,
        tmp_path,
        barrier=("    __syncthreads();\n", "\n"),
        check=("assert np.array_equal(out.get(), matrix.T)", "out.get()"),
    )
    report, _ = run(made, status=1)
    code = made.read_text().partition('CODE = """')[2].splitlines()
    line = next(i for i, each in enumerate(code, 1) if "] = tile[" in each)
    assert [rule for rule, _ in found(report)] == ["shared-race"]
    assert abs(found(report)[0][1] - line) <= 2  # PyCUDA puts 'extern "C" {' before it
