"""Sums of rows with cuda.core, on a GPU or with ``fragmenta run -- python THIS``."""

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

CODE = r"""
extern "C" __global__ void sums(const float *x, float *out, int columns) {
    __shared__ float parts[128];
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += 128) sum += x[blockIdx.x * columns + i];
    parts[threadIdx.x] = sum;
    for (int half = 64; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = parts[0];
}
"""
ROWS, COLUMNS = 4, 1000

device = Device()
device.set_current()
stream = device.create_stream()
arch = "".join(map(str, device.compute_capability))
options = ProgramOptions(name="sums.cu", std="c++17", arch=f"sm_{arch}")
kernel = Program(CODE, "c++", options).compile("cubin").get_kernel("sums")

host = LegacyPinnedMemoryResource()
rows, found = host.allocate(4 * ROWS * COLUMNS), host.allocate(4 * ROWS)
values = np.from_dlpack(rows).view(np.float32)
values[:] = np.arange(ROWS * COLUMNS) % 7
x = device.allocate(rows.size, stream=stream)
out = device.allocate(found.size, stream=stream)
rows.copy_to(x, stream=stream)
launch(stream, LaunchConfig(grid=ROWS, block=128), kernel, x, out, np.int32(COLUMNS))
out.copy_to(found, stream=stream)
stream.sync()
sums = np.from_dlpack(found).view(np.float32)
assert np.array_equal(sums, values.reshape(ROWS, COLUMNS).sum(axis=1))
print("sums of rows:", sums)
