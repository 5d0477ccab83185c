"""Transposes with PyCUDA, on a GPU or with ``fragmenta run -- python THIS``."""

import numpy as np
import pycuda.autoinit  # noqa: F401 (makes the context)
from pycuda import gpuarray
from pycuda.compiler import SourceModule

CODE = """
__global__ void transpose(const float *x, float *out, int side) {
    __shared__ float tile[16][17];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    tile[threadIdx.y][threadIdx.x] = x[row * side + column];
    __syncthreads();
    row = blockIdx.x * 16 + threadIdx.y, column = blockIdx.y * 16 + threadIdx.x;
    out[row * side + column] = tile[threadIdx.x][threadIdx.y];
}
"""
SIDE = 64

kernel = SourceModule(CODE).get_function("transpose")
matrix = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
x, out = gpuarray.to_gpu(matrix), gpuarray.zeros((SIDE, SIDE), np.float32)
kernel(x, out, np.int32(SIDE), grid=(SIDE // 16, SIDE // 16), block=(16, 16, 1))
assert np.array_equal(out.get(), matrix.T)
print("transposed")
