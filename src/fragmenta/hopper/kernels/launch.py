"""Launches a kernel through NVIDIA's driver (cuda-bindings), on the caller's stream.

The host never waits: a launch needs pointers, not data.  Tensor maps describe B and D
to the copy engine; they are made once for each buffer and kept.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from fragmenta.base.arrays.once import once, once_of
from fragmenta.errors import Error, NoDevice, missing
from fragmenta.hopper.kernels.arguments import (
    EPILOGUE,
    Box,
    Geometry,
    Matrix,
    arguments,
    check_matrix,
    geometry,
)
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.source import cubin

_WHERE = "on a machine with a Hopper GPU and its driver"


class _Epilogue(ctypes.Structure):
    """Pointers as ``gemm.cu`` takes them; 0 stands for a tensor not given."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in EPILOGUE)


class _Map(ctypes.Structure):
    """A tensor map, and its own address."""

    _fields_ = (("opaque", ctypes.c_char * 128),)
    address: int


class LaunchPlan(NamedTuple):
    """Everything that a launch needs except its pointers."""

    geometry: Geometry
    function: object
    addresses: tuple[int, ...]
    """Addresses of m, n and the number of slabs, on the host."""
    sizes: list[ctypes.c_int]

    @property
    def kernel(self) -> Kernel:
        """What is launched."""
        return self.geometry.kernel


def plan(
    kernel: Kernel,
    m: int,
    n: int,
    k: int,
    blocks: int | None = None,
    experts: int = 0,
) -> LaunchPlan:
    """The plan of an m x n x k product on the current device.

    ``blocks`` is the number of thread blocks that share the tiles; by default, that
    of the multiprocessors.  A grouped product has ``experts``.
    """
    made = geometry(kernel, m, n, k, blocks or processors(), experts)
    return _planned(made, _function(kernel, _context()))


def plan_of_code(made: Geometry, code: bytes) -> LaunchPlan:
    """The plan of a launch of this machine code, compiled from the same source."""
    return _planned(made, _loaded(code, made.shared, _context()))


def _planned(made: Geometry, function: object) -> LaunchPlan:
    sizes = [ctypes.c_int(size) for size in made.sizes]
    return LaunchPlan(made, function, tuple(map(ctypes.addressof, sizes)), sizes)


def launch(
    planned: LaunchPlan,
    a: Matrix[int] | int,
    b: Matrix[int],
    d: Matrix[int],
    *,
    stream: int = 0,
    epilogue: dict[str, int] | None = None,
    early: bool = False,
    ends: int | None = None,
    settled: bool = False,
) -> None:
    """Start D = A B; ``a`` is a dense matrix, or the address of a packed A.

    ``epilogue`` has addresses by name: of the f32 numbers scale, scale_m, scale_n
    and bias, and for xor of the s32 numbers count_m and count_n.  An ``early`` launch
    may read a packed A before the previous kernel of the stream has ended, so that
    kernel must not write it.  A grouped product needs the address of ``ends``, where
    the rows of B of each expert end, int32.  It reads them and A early if they are
    ``settled``.
    """
    made = planned.geometry
    given = arguments(made, a, b, d, _tensor_map, epilogue, ends, settled)
    group = [ctypes.c_int64(each) for each in given.group]  # of an int: its low half
    packed, parts = ctypes.c_void_p(given.packed), _Epilogue(*given.epilogue)
    addresses = (
        given.map_a.address,
        given.map_b.address,
        given.map_d.address,
        ctypes.addressof(packed),
        ctypes.addressof(parts),
        *planned.addresses,
        *map(ctypes.addressof, group),
    )
    start(
        planned.function,
        (made.grid, 1),
        made.block,
        made.shared,
        stream,
        addresses,
        early=early,
    )


def start(
    handle: object,
    grid: tuple[int, int],
    threads: int,
    shared: int,
    stream: int,
    addresses: Sequence[int],
    *,
    early: bool = False,
) -> None:
    """Launch a function; its arguments are at these addresses on the host.

    An ``early`` launch may start before the previous kernel has ended.
    """
    pointers = array("Q", addresses)
    where, _ = pointers.buffer_info()
    driver = _driver()
    if early:
        config = _early_config(grid, threads, shared, stream)
        _check(driver.cuLaunchKernelEx(config, handle, where, 0))
    else:
        _check(
            driver.cuLaunchKernel(
                handle, *grid, 1, threads, 1, 1, shared, stream, where, 0
            )
        )


@once_of(1024)
def _early_config(
    grid: tuple[int, int], threads: int, shared: int, stream: int
) -> object:
    """The configuration of a launch that does not wait for the previous kernel."""
    driver = _driver()
    attribute = driver.CUlaunchAttribute()
    name = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
    attribute.id = getattr(driver.CUlaunchAttributeID, name)
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes, config.hStream = shared, stream
    config.attrs, config.numAttrs = [attribute], 1
    return config


@once_of(1024)
def _function(kernel: Kernel, context: int) -> object:
    """The kernel in the current context, compiled and loaded at first use."""
    return _loaded(cubin(kernel), kernel.shared_bytes, context)


def _loaded(code: bytes, shared: int, context: int) -> object:
    """The function of a cubin, allowed to use this much shared memory."""
    driver = _driver()
    found = load(code, "gemm", context)
    attribute = driver.CUfunction_attribute
    most = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _check(driver.cuFuncSetAttribute(found, most, shared))
    return found


_MODULES: dict[tuple[int, bytes], object] = {}


def load(code: bytes, name: str, context: int | None = None) -> object:
    """A function of a cubin in the current context."""
    driver = _driver()
    key = (context if context is not None else _context(), code)
    module = _MODULES.get(key)
    if module is None:
        module = _MODULES.setdefault(key, _check(driver.cuModuleLoadData(code)))
    return _check(driver.cuModuleGetFunction(module, name.encode()))


def processors() -> int:
    """The number of multiprocessors of the current device."""
    return _processors(_context())


@lru_cache(maxsize=64)
def _processors(context: int) -> int:
    driver = _driver()
    device = _check(driver.cuCtxGetDevice())

    def attribute(name: str) -> int:
        number = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_check(driver.cuDeviceGetAttribute(number, device)))

    major, minor = (
        attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")
    )
    if (major, minor) != (9, 0):
        raise NoDevice(f"these kernels are for sm_90a; this GPU is sm_{major}{minor}")
    return attribute("MULTIPROCESSOR_COUNT")


# ── tensor maps ─────────────────────────────────────────────────────────────


@once_of(4096)
def _tensor_map(name: str, matrix: Matrix[int], box: Box) -> _Map:
    """Describe a matrix of bytes to the copy engine."""
    check_matrix(name, matrix)
    wide, high, swizzle = box
    driver = _driver()
    mode = f"CU_TENSOR_MAP_SWIZZLE_{f'{swizzle}B' if swizzle else 'NONE'}"
    promotion = driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    made = _check(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
            2,
            matrix.pointer,
            [driver.cuuint64_t(each) for each in (matrix.width, matrix.rows)],
            [driver.cuuint64_t(matrix.pitch)],
            [driver.cuuint32_t(each) for each in (wide, high)],
            [driver.cuuint32_t(1)] * 2,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(driver.CUtensorMapSwizzle, mode),
            promotion,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    found = _Map.from_buffer_copy(ctypes.string_at(made.getPtr(), 128))
    found.address = ctypes.addressof(found)
    return found


# ── the driver ──────────────────────────────────────────────────────────────


@once
def _driver() -> ModuleType:
    try:
        from cuda.bindings import driver
    except ImportError as why:
        raise NoDevice(f"{missing('cuda-bindings', why)} {_WHERE}") from None
    found: ModuleType = driver
    return found


def _context() -> int:
    """The caller's CUDA context; there must be one."""
    current = int(_check(_driver().cuCtxGetCurrent()))
    if not current:
        raise NoDevice(
            "no CUDA context is current in this thread; pip install 'fragmenta[cuda]' "
            + _WHERE
        )
    return current


def adopt_context(gpu: int) -> None:
    """Make the primary context of a GPU current in a thread that has none.

    PyTorch computes gradients in threads of its own.  What a thread needs of a context,
    it makes current at its first allocation or launch, which may be ours.
    """
    driver = _driver()
    if not int(_check(driver.cuCtxGetCurrent())):
        device = _check(driver.cuDeviceGet(gpu))
        context = _check(driver.cuDevicePrimaryCtxRetain(device))
        _check(driver.cuCtxSetCurrent(context))


def _check(result: Sequence[Any]) -> Any:
    """What the driver returned after its status; raises if it failed."""
    code, *values = result
    if int(code):
        failed, text = _driver().cuGetErrorString(code)
        said = text.decode() if not int(failed) and text else code
        raise Error(f"the CUDA driver reports: {said}")
    return values[0] if values else None
