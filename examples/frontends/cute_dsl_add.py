"""Adds arrays in the CuTe DSL, on a GPU or with ``fragmenta run -- python THIS``."""

import cutlass
import numpy as np
from cuda.bindings import driver
from cutlass import cute
from cutlass.cute.runtime import make_ptr

SIZE, THREADS = 256, 64


@cute.kernel
def add_each(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    """Add one element."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    out[i] = x[i] + y[i]


@cute.jit
def add(x: cute.Pointer, y: cute.Pointer, out: cute.Pointer):
    """Add arrays."""
    layout = cute.make_layout(SIZE)
    arrays = [cute.make_tensor(each, layout) for each in (x, y, out)]
    add_each(*arrays).launch(grid=(SIZE // THREADS, 1, 1), block=(THREADS, 1, 1))


def done(answer):
    """What a function of CUDA's driver gives, if it has no error."""
    error, *rest = answer
    assert error == driver.CUresult.CUDA_SUCCESS, error
    return rest[0] if rest else None


done(driver.cuInit(0))
done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(0))))
values = np.arange(SIZE, dtype=np.float32)
memory = [done(driver.cuMemAlloc(values.nbytes)) for _ in range(3)]
for each in memory[:2]:
    done(driver.cuMemcpyHtoD(each, values.ctypes.data, values.nbytes))
pointers = [
    make_ptr(cutlass.Float32, int(each), cute.AddressSpace.gmem, assumed_align=16)
    for each in memory
]
cute.compile(add, *pointers)(*pointers)
result = np.empty_like(values)
done(driver.cuMemcpyDtoH(result.ctypes.data, memory[2], values.nbytes))
assert np.array_equal(result, 2 * values)
print("added")
