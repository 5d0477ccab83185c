"""How does a kernel of the corpus run on the GPU of this machine?

Only the recorder needs this: NVIDIA's driver through ``cuda.bindings``.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.ptx.inputs import Argument

# What a block or a thread finds in memory that nobody has written must not matter, so
# shared and local memory are filled with another pattern before each launch.
POISON = r"""
extern "C" __global__ void poison(unsigned pattern, int words, unsigned *sink) {
    extern __shared__ unsigned shared[];
    volatile unsigned local[1024];
    for (int i = threadIdx.x; i < words; i += blockDim.x) shared[i] = pattern;
    for (int i = 0; i < 1024; i++) local[i] = pattern;
    __syncthreads();
    if (shared[threadIdx.x] != pattern || local[threadIdx.x] != pattern) *sink = 1;
}
"""
POISON_BYTES = 220 * 1024


class Device:
    """The first GPU, with a context of its own."""

    def __init__(self, poison: bytes) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self._ask(driver.cuInit(0))
        device = self._ask(driver.cuDeviceGet(0))
        self._context = self._ask(driver.cuDevicePrimaryCtxRetain(device))
        self._ask(driver.cuCtxSetCurrent(self._context))
        # Recursion needs more than the kilobyte that a thread has otherwise.
        stack = driver.CUlimit.CU_LIMIT_STACK_SIZE
        self._ask(driver.cuCtxSetLimit(stack, 16384))
        self.name = self._ask(driver.cuDeviceGetName(128, device)).decode().strip("\0")
        version = self._ask(driver.cuDriverGetVersion())
        self.cuda_driver = f"{version // 1000}.{version % 1000 // 10}"
        self._poison = self.load(poison)

    def load(self, cubin: bytes) -> Any:
        """A module from the assembler's output."""
        return self._ask(self._driver.cuModuleLoadData(cubin))

    def unload(self, module: Any) -> None:
        self._ask(self._driver.cuModuleUnload(module))

    def poison(self, pattern: int) -> None:
        """Fill shared and local memory with a pattern."""
        arguments = [
            np.uint32(pattern),
            np.int32(POISON_BYTES // 4),
            np.zeros(1, np.uint32),
        ]
        sizes = (132, 1, 1), (1024, 1, 1), POISON_BYTES
        self.launch(self._poison, "poison", *sizes, arguments)

    def launch(
        self,
        module: Any,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        arguments: Sequence[Argument],
    ) -> tuple[list[Argument], float]:
        """The arguments after a launch, and how many seconds it took."""
        cu = self._driver
        function = self._ask(cu.cuModuleGetFunction(module, entry.encode()))
        most = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._ask(cu.cuFuncSetAttribute(function, most, shared))
        pointers, cells = [], []
        for argument in arguments:
            content = argument.tobytes()
            if isinstance(argument, np.ndarray):
                pointer = self._ask(cu.cuMemAlloc(max(len(content), 16)))
                self._ask(cu.cuMemcpyHtoD(pointer, content, len(content)))
                pointers.append(pointer)
                content = int(pointer).to_bytes(8, "little")
            else:
                pointers.append(None)
            cells.append(ctypes.create_string_buffer(content, len(content)))
        addresses = np.array([ctypes.addressof(cell) for cell in cells], np.uint64)
        start = time.perf_counter()
        sizes = (*grid, *block, shared)
        self._ask(cu.cuLaunchKernel(function, *sizes, 0, addresses.ctypes.data, 0))
        self._ask(cu.cuCtxSynchronize())
        seconds = time.perf_counter() - start
        after: list[Argument] = []
        for argument, pointer in zip(arguments, pointers, strict=True):
            if pointer is None:
                after.append(argument)
                continue
            array = np.empty(argument.shape, argument.dtype)
            self._ask(cu.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes))
            self._ask(cu.cuMemFree(pointer))
            after.append(array)
        return after, seconds

    def _ask(self, answer: tuple[Any, ...]) -> Any:
        status, *found = answer
        if int(status) != 0:
            raise RuntimeError(f"the driver says {status}")
        return found[0] if found else None


def printed_by(action: Callable[[], Any]) -> tuple[Any, str]:
    """The result of an action, and what the process wrote to standard output."""
    library = ctypes.CDLL(None)
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        before = os.dup(1)
        try:
            os.dup2(file.fileno(), 1)
            result = action()
            library.fflush(None)
        finally:
            os.dup2(before, 1)
            os.close(before)
        file.seek(0)
        return result, file.read().decode()
