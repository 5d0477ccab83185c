"""The errors of outputs that fragmenta run reports, as fragmenta launch does."""

import json

import pytest

from tests.asking import ask
from tests.programs.test_programs import run

LOSSY = """
#include <cuda_fp16.h>
__global__ void half_sum(float *out, const __half *x, int n)
{
    __half sum = 0;
    for (int i = 0; i < n; ++i)
        sum = __hadd(sum, x[i]);
    out[threadIdx.x] = __half2float(sum);
}
int main()
{
    float *out;
    __half *x, all[300];
    for (int i = 0; i < 300; ++i)
        all[i] = __float2half(10.02f);
    cudaMalloc(&out, 4);
    cudaMalloc(&x, sizeof all);
    cudaMemcpy(x, all, sizeof all, cudaMemcpyHostToDevice);
    half_sum<<<1, 1>>>(out, x, 300);
    return cudaDeviceSynchronize();
}
"""


@pytest.mark.long
@pytest.mark.xdist_group("programs")
def test_the_tolerance_of_a_program(source, tmp_path):
    program = tmp_path / "lossy.cu"
    program.write_text(LOSSY)
    found = {}
    for tolerance in ("0,0", "2,3"):
        words = ["--numerics", "--tolerance", tolerance, "--json", program]
        done = run(*words, status=int(tolerance == "0,0"))
        (launch,) = json.loads(done.stdout)["launches"]
        found[tolerance] = [each["rule"] for each in launch["problems"]]
    assert "output-error" in found["0,0"]
    assert "output-error" not in found["2,3"]


def test_a_tolerance_is_for_numerics(tmp_path):
    program = tmp_path / "lossy.cu"
    program.write_text(LOSSY)
    said = ask("run", "--tolerance", "1e-3", str(program))
    assert said.exit_code == 2
    assert "--tolerance is for --numerics" in " ".join(said.stderr.split())
    said = ask("run", "--numerics", "--tolerance", "x", str(program))
    assert "one or two relative errors" in " ".join(said.stderr.split())
