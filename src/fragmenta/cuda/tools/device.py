"""Runs kernels on the GPU of this machine.

Kernels are launched through NVIDIA's cuda-core.  Operands are NumPy arrays on
both sides.  Whatever goes wrong on the way becomes an
:class:`~fragmenta.errors.Error` in CUDA's own words.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Protocol, SupportsInt, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.cuda.tools import assembler
from fragmenta.errors import Error, NoDevice, missing

Array = NDArray[np.generic]
Scalar = TypeVar("Scalar", bound=np.generic)
_WHERE = "on a machine with an NVIDIA GPU and driver"

# ── the parts of cuda-core that are used here ───────────────────────────────


class LoadedCode(Protocol):
    """Loaded code (``cuda.core.ObjectCode``)."""

    def get_kernel(self, name: str) -> object:
        """A kernel by its name."""


class Stream(Protocol):
    """A stream of the device (``cuda.core.Stream``)."""

    handle: SupportsInt

    def sync(self) -> None:
        """Wait for all work of the stream."""


class Buffer(Protocol):
    """Memory of the device (``cuda.core.Buffer``)."""

    handle: SupportsInt

    def close(self, stream: Stream) -> None:
        """Free it."""


class Properties(Protocol):
    """Numbers of the hardware (``cuda.core.DeviceProperties``)."""

    multiprocessor_count: int


class Device(Protocol):
    """A GPU (``cuda.core.Device``)."""

    name: str
    compute_capability: tuple[int, int]
    properties: Properties

    def create_stream(self) -> Stream:
        """A new stream."""

    def set_current(self) -> None:
        """Make it the device of this thread."""

    def allocate(self, size: int, *, stream: Stream) -> Buffer:
        """Memory of some bytes."""


# ── a device ────────────────────────────────────────────────────────────────


@once
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
        raise NoDevice(f"{missing('cuda-core', why)} {_WHERE}") from None
    try:
        device = Device()
        device.set_current()
        return GPU(device)
    except Exception as why:  # cuda-core raises its own error, or OSError
        raise NoDevice(
            f"no usable GPU ({why}); pip install 'fragmenta[cuda]' {_WHERE}"
        ) from why


class GPU:
    """One device: its names, and a way to run and time kernels on arrays."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._stream = device.create_stream()
        self._lost = ""

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

    @cached_property
    def processors(self) -> int:
        """How many streaming multiprocessors it has."""
        return int(self._device.properties.multiprocessor_count)

    def versions(self) -> dict[str, str]:
        """GPU, driver and assembler: what a recording must name."""
        from cuda.bindings import driver

        version = checked(driver.cuDriverGetVersion())
        return {
            "gpu": self.name,
            "target": self.target,
            **_kernel_module(),
            "cuda_driver": f"{version // 1000}.{version % 1000 // 10}",
            "ptxas": _assembler(),
        }

    def load(self, cubin: bytes) -> LoadedCode:
        """A module, whose kernels :meth:`run` takes by name."""
        from cuda.core import ObjectCode

        with self.faults("loading a module"):
            module: LoadedCode = ObjectCode.from_cubin(cubin)
            return module

    def load_text(self, text: str) -> LoadedCode:
        """The same from PTX, by the assembler that is part of the driver."""
        from cuda.core import ObjectCode

        with self.faults("loading a module"):
            module: LoadedCode = ObjectCode.from_ptx(text.encode())
            return module

    def run(
        self,
        module: LoadedCode,
        name: str,
        grid: int,
        block: int,
        inputs: Sequence[Array],
        output: NDArray[Scalar],
    ) -> NDArray[Scalar]:
        """Launch with pointers to the output and the inputs; return the output.

        The output buffer starts as given, so that unwritten elements keep their bits.
        """
        with (
            self.faults(name),
            self._ready(module, name, grid, block, (output, *inputs)) as (start, first),
        ):
            start()
            self._stream.sync()
            return self._download(first, output)

    def time(
        self,
        module: LoadedCode,
        name: str,
        grid: int,
        block: int,
        inputs: Sequence[Array],
        output: Array,
        runs: int,
    ) -> list[float]:
        """Seconds that each of some launches took on the GPU.

        The buffers stay where they are between the launches.
        """
        from cuda.bindings import driver

        with (
            self.faults(name),
            self._ready(module, name, grid, block, (output, *inputs)) as (start, _),
            _events(2) as (before, after),
        ):
            stream = int(self._stream.handle)
            found = []
            for _ in range(runs):
                checked(driver.cuEventRecord(before, stream))
                start()
                checked(driver.cuEventRecord(after, stream))
                checked(driver.cuEventSynchronize(after))
                milliseconds = checked(driver.cuEventElapsedTime(before, after))
                found.append(float(milliseconds) / 1e3)
            return found

    # ── kernels with any parameters ─────────────────────────────────────────

    def load_code(self, code: bytes) -> object:
        """The driver's module for :meth:`launch`, from a cubin or from PTX."""
        from cuda.bindings import driver

        with self.faults("loading a module"):
            return checked(driver.cuModuleLoadData(code))

    def launch(
        self,
        module: object,
        name: str,
        sizes: Sequence[int],
        shared: int,
        memory: Sequence[NDArray[np.uint8]],
        parameters: Callable[[Sequence[int]], Sequence[bytes]],
        cluster: Sequence[int] = (1, 1, 1),
        *,
        cooperative: bool = False,
    ) -> None:
        """Launch with a copy of memory on the device; the memory is changed in place.

        ``sizes`` are three numbers of the grid and three of the block.  ``parameters``
        is given the addresses of the memory on the device.
        """
        from cuda.bindings import driver

        most = driver.CUfunction_attribute
        dynamic = most.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        buffers: list[Buffer] = []
        with self.faults(name):
            try:
                function = checked(driver.cuModuleGetFunction(module, name.encode()))
                checked(driver.cuFuncSetAttribute(function, dynamic, shared))
                buffers.extend(self._upload(each) for each in memory)
                cells = parameters([int(buffer.handle) for buffer in buffers])
                kept = [ctypes.create_string_buffer(c, len(c)) for c in cells]
                places = np.array([ctypes.addressof(each) for each in kept], np.uint64)
                stream = self._stream.handle
                config = _configured(sizes, shared, stream, cluster, cooperative)
                if prod(cluster) > 8:  # what every GPU with clusters can run
                    larger = most.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                    checked(driver.cuFuncSetAttribute(function, larger, 1))
                where = places.ctypes.data
                checked(driver.cuLaunchKernelEx(config, function, where, 0))
                self._stream.sync()
                for each, buffer in zip(memory, buffers, strict=True):
                    if each.flags.writeable:
                        each[...] = self._download(buffer, each)
            finally:
                self._free(buffers)

    # ── memory ──────────────────────────────────────────────────────────────

    @contextmanager
    def _ready(
        self,
        module: LoadedCode,
        name: str,
        grid: int,
        block: int,
        arrays: Sequence[Array],
    ) -> Iterator[tuple[Callable[[], None], Buffer]]:
        """Copy arrays to the device: a function that launches, and the first buffer."""
        from cuda.core import LaunchConfig, launch

        buffers: list[Buffer] = []
        try:
            buffers.extend(self._upload(array) for array in arrays)
            kernel = module.get_kernel(name)
            config = LaunchConfig(grid=grid, block=block)
            yield lambda: launch(self._stream, config, kernel, *buffers), buffers[0]
        finally:
            self._free(buffers)

    def _free(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            with suppress(Exception):  # after a fault nothing can be freed
                buffer.close(self._stream)

    def _upload(self, array: Array) -> Buffer:
        from cuda.bindings import driver

        data = np.ascontiguousarray(array)
        buffer = self._device.allocate(max(1, data.nbytes), stream=self._stream)
        self._stream.sync()
        checked(driver.cuMemcpyHtoD(int(buffer.handle), data.ctypes.data, data.nbytes))
        return buffer

    def _download(self, buffer: Buffer, like: NDArray[Scalar]) -> NDArray[Scalar]:
        from cuda.bindings import driver

        data = np.empty_like(like, order="C")
        checked(driver.cuMemcpyDtoH(data.ctypes.data, int(buffer.handle), data.nbytes))
        return data

    # ── faults ──────────────────────────────────────────────────────────────

    @contextmanager
    def faults(self, what: str) -> Iterator[None]:
        """Make the device current, and raise every fault as an :class:`Error`.

        After a fault that breaks the context, every later call raises at once.
        """
        if self._lost:
            raise NoDevice(
                f"{self.name} does not answer this process any more, since "
                f"{self._lost}; start a new one"
            )
        try:
            self._device.set_current()  # the calling thread may be a new one
            yield
        except Exception as why:  # cuda-core's errors have no common base
            said = f"{what} failed: {why}"
            if not _alive():
                self._lost = said
            raise Error(f"{said} ({self.name})") from why


def _configured(
    sizes: Sequence[int],
    shared: int,
    stream: SupportsInt,
    cluster: Sequence[int],
    cooperative: bool,
) -> object:
    """The grid, the block and the attributes of a launch, as the driver takes them."""
    from cuda.bindings import driver

    made = driver.CUlaunchConfig()
    made.gridDimX, made.gridDimY, made.gridDimZ = sizes[:3]
    made.blockDimX, made.blockDimY, made.blockDimZ = sizes[3:]
    made.sharedMemBytes, made.hStream = shared, int(stream)
    kinds, found = driver.CUlaunchAttributeID, []
    if prod(cluster) > 1:
        found.append(driver.CUlaunchAttribute())
        found[-1].id = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = found[-1].value.clusterDim
        size.x, size.y, size.z = cluster
    if cooperative:
        found.append(driver.CUlaunchAttribute())
        found[-1].id = kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        found[-1].value.cooperative = 1
    if found:
        made.attrs = found
    made.numAttrs = len(found)
    return made


def _alive() -> bool:
    """Whether the context still works after a fault."""
    try:
        from cuda.bindings import driver

        return not int(driver.cuCtxSynchronize()[0])
    except Exception:  # no driver to ask
        return False


@contextmanager
def _events(count: int) -> Iterator[list[object]]:
    from cuda.bindings import driver

    made = [checked(driver.cuEventCreate(0)) for _ in range(count)]
    try:
        yield made
    finally:
        for event in made:
            driver.cuEventDestroy(event)


def checked(result: Sequence[Any]) -> Any:
    """The value that the driver returned with its status; an error if it failed."""
    code, *values = result
    if int(code):
        from cuda.bindings import driver

        words = []
        for ask in (driver.cuGetErrorName, driver.cuGetErrorString):
            failed, text = ask(code)
            if not int(failed) and text:
                words.append(text.decode())
        raise Error(": ".join(words) or f"the driver says {code}")
    return values[0] if values else None


def _assembler() -> str:
    try:
        return assembler.release()
    except Error:
        return "the driver's own"


def _kernel_module() -> dict[str, str]:
    """The driver's own version, which only Linux shows without another library."""
    with suppress(OSError):
        text = Path("/proc/driver/nvidia/version").read_text()
        if match := re.search(r"Module.*?\s(\d+\.\d[\d.]*)", text):
            return {"driver": match[1]}
    return {}


def describe(values: Mapping[str, str]) -> str:
    """Versions in one line.

    >>> describe({"gpu": "NVIDIA H200", "cuda_driver": "13.0"})
    'gpu NVIDIA H200, cuda_driver 13.0'
    """
    return ", ".join(f"{name} {value}" for name, value in values.items())
