"""Is there a GPU, and will it run this?

Kernels are PTX, assembled by the toolkit's own ptxas and launched through
cuda-core.  Operands are NumPy arrays on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.cuda import assembler
from fragmenta.errors import Error, NoDevice

_HINT = "pip install 'fragmenta[cuda]' on a machine with an NVIDIA GPU and driver"


@cache
def present() -> GPU:
    """The GPU of this machine; :class:`NoDevice` if there is none.

    >>> from fragmenta.errors import NoDevice
    >>> try:
    ...     found = present().name
    ... except NoDevice as why:
    ...     found = "none"
    >>> isinstance(found, str)
    True
    """
    try:
        from cuda.core import Device
    except ImportError as why:
        raise NoDevice(f"the package cuda-core is missing; {_HINT}") from why
    try:
        device = Device()
        device.set_current()
    except Exception as why:  # cuda-core raises its own error, or OSError
        raise NoDevice(f"no usable GPU ({why}); {_HINT}") from why
    return GPU(device)


class GPU:
    """One device: its names, and a way to run kernels on arrays."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._stream = device.create_stream()

    @property
    def name(self) -> str:
        """What the driver calls it."""
        return str(self._device.name)

    @property
    def target(self) -> str:
        """Its target, with the architecture-specific suffix where there is one."""
        major, minor = self._device.compute_capability
        number = 10 * major + minor
        return f"sm_{number}a" if number >= 90 else f"sm_{number}"

    def versions(self) -> dict[str, str]:
        """GPU, driver and assembler: what a recording must name."""
        from cuda.bindings import driver

        _, version = driver.cuDriverGetVersion()
        return {
            "gpu": self.name,
            "target": self.target,
            "cuda_driver": f"{version // 1000}.{version % 1000 // 10}",
            "ptxas": assembler.release(),
        }

    def load(self, cubin: bytes) -> Any:
        """A module, whose kernels :meth:`run` takes by name."""
        from cuda.core import ObjectCode

        return ObjectCode.from_cubin(cubin)

    def run(
        self,
        module: Any,
        name: str,
        grid: int,
        block: int,
        inputs: Sequence[NDArray[Any]],
        output: NDArray[Any],
    ) -> NDArray[Any]:
        """Launch with pointers to the output and the inputs; the output back.

        The output buffer starts as given, so that what is never written shows.
        """
        from cuda.core import LaunchConfig, launch

        try:
            buffers = [self._upload(array) for array in (output, *inputs)]
            kernel = module.get_kernel(name)
            config = LaunchConfig(grid=grid, block=block)
            launch(self._stream, config, kernel, *buffers)
            self._stream.sync()
            return self._download(buffers[0], output)
        except Error:
            raise
        except Exception as why:  # every CUDA fault, in the driver's words
            raise Error(f"{name} failed on {self.name}: {why}") from why

    def _upload(self, array: NDArray[Any]) -> Any:
        from cuda.bindings import driver

        data = np.ascontiguousarray(array)
        buffer = self._device.allocate(max(1, data.nbytes), stream=self._stream)
        self._stream.sync()
        _check(driver.cuMemcpyHtoD(int(buffer.handle), data.ctypes.data, data.nbytes))
        return buffer

    def _download(self, buffer: Any, like: NDArray[Any]) -> NDArray[Any]:
        from cuda.bindings import driver

        data = np.empty_like(like, order="C")
        _check(driver.cuMemcpyDtoH(data.ctypes.data, int(buffer.handle), data.nbytes))
        return data


def _check(result: Sequence[Any]) -> None:
    if int(result[0]):
        raise Error(f"the driver says {result[0]}")


def describe(values: Mapping[str, str]) -> str:
    """Versions in one line."""
    return ", ".join(f"{name} {value}" for name, value in values.items())
