"""Kernels with any parameters are launched with the right bytes, and everything is freed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.cuda.tools import device, programs
from fragmenta.cuda.tools.programs import DeviceLaunch
from tests.cuda.test_device import Fake

DYNAMIC, LARGER, STACK, MOST = "dynamic", "larger", "stack", 232448
CLUSTER, COOPERATIVE = "cluster", "cooperative"


class Attribute:
    """One attribute of a launch, as cuda.bindings has it."""

    def __init__(self) -> None:
        self.id = ""
        self.value = SimpleNamespace(
            clusterDim=SimpleNamespace(x=0, y=0, z=0), cooperative=0
        )


class Config:
    """What ``cuLaunchKernelEx`` is given; a name that is not CUDA's is an error."""

    __slots__ = (
        *(f"{of}Dim{axis}" for of in ("grid", "block") for axis in "XYZ"),
        *("sharedMemBytes", "hStream", "attrs", "numAttrs"),
    )

    def sizes(self) -> tuple[int, ...]:
        return tuple(getattr(self, name) for name in self.__slots__[:6])


class Driver(Fake):
    """A driver whose kernel adds its number to the bytes that it points to."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 1024
        self.launched: list[Any] = []
        self.clusters: list[Any] = []
        self.cooperative = 0
        self.attributes: dict[str, int] = {}

    def start(self, config: Config, function: str, cells: int, _: int) -> tuple[int]:
        assert config.hStream == 17
        self.launched.append((function, config.sizes(), config.sharedMemBytes))
        for each in config.attrs[: config.numAttrs] if config.numAttrs else ():
            size = each.value.clusterDim
            if each.id == COOPERATIVE:
                self.cooperative = each.value.cooperative
            else:
                self.clusters.append((each.id, (size.x, size.y, size.z)))
        if self.fault == "launch":
            self.broken = True
            return (700,)
        if function == "add":
            places = (ctypes.c_uint64 * 2).from_address(cells)
            address = ctypes.c_uint64.from_address(places[0]).value
            number = ctypes.c_uint32.from_address(places[1]).value
            ctypes.c_uint8.from_address(address).value += number
        return (0,)

    def set_attribute(self, function: str, which: str, value: int) -> tuple[int]:
        self.attributes[which] = value
        return (0,)

    def set_limit(self, which: str, value: int) -> tuple[int]:
        self.limit = value
        return (0,)

    def driver(self) -> SimpleNamespace:
        made = super().driver()
        made.CUfunction_attribute = SimpleNamespace(
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=DYNAMIC,
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED=LARGER,
        )
        made.CUlaunchConfig, made.CUlaunchAttribute = Config, Attribute
        made.CUlaunchAttributeID = SimpleNamespace(
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=CLUSTER,
            CU_LAUNCH_ATTRIBUTE_COOPERATIVE=COOPERATIVE,
        )
        made.CUlimit = SimpleNamespace(CU_LIMIT_STACK_SIZE=STACK)
        made.CUdevice_attribute = SimpleNamespace(
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=3
        )
        made.cuCtxGetDevice = lambda: (0, 0)
        made.cuDeviceGetAttribute = lambda which, of: (0, MOST)
        made.cuCtxGetLimit = lambda which: (0, self.limit)
        made.cuCtxSetLimit = self.set_limit
        made.cuModuleLoadData = lambda code: (0, self.log.append("load") or code)
        made.cuModuleUnload = lambda module: self.log.append("unload")
        made.cuModuleGetFunction = lambda module, name: (0, name.decode())
        made.cuFuncSetAttribute = self.set_attribute
        made.cuLaunchKernelEx = self.start
        return made


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    for name, module in made.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    device.present.cache_clear()
    yield made
    device.present.cache_clear()


def add(number: int = 7, **more: Any) -> DeviceLaunch:
    parameters = [(0, 2), np.uint32(number).tobytes()]
    return DeviceLaunch(b"code", "add", (2, 1, 1), (32, 1, 1), 64, parameters)._replace(
        **more
    )


def test_buffers_come_back_as_the_kernel_leaves_them(driver: Driver) -> None:
    given = np.arange(4, dtype=np.uint8)
    done = programs.launch(device.present(), add(), [given])
    assert done.buffers[0].tolist() == [0, 1, 9, 3]
    assert given.tolist() == [0, 1, 2, 3]
    assert driver.launched == [("add", (2, 1, 1, 32, 1, 1), 64)]
    assert driver.limit == programs.STACK
    assert not driver.clusters
    assert not driver.cooperative
    assert driver.attributes == {DYNAMIC: 64}


@pytest.mark.parametrize("size", [(2, 1, 1), (2, 2, 2), (4, 2, 2)])
def test_a_cluster_is_an_attribute_of_the_launch(
    driver: Driver, size: tuple[int, int, int]
) -> None:
    """More than eight blocks in one must be allowed before."""
    programs.launch(device.present(), add(cluster=size), [np.zeros(4, np.uint8)])
    assert driver.clusters == [(CLUSTER, size)]
    allowed = {LARGER: 1} if size == (4, 2, 2) else {}
    assert driver.attributes == {DYNAMIC: 64, **allowed}


@pytest.mark.parametrize("size", [(1, 1, 1), (2, 1, 1)])
def test_a_cooperative_launch_is_an_attribute_too(
    driver: Driver, size: tuple[int, int, int]
) -> None:
    program = add(cluster=size, cooperative=True)
    programs.launch(device.present(), program, [np.zeros(4, np.uint8)])
    assert driver.cooperative == 1
    assert driver.clusters == ([(CLUSTER, size)] if size != (1, 1, 1) else [])


@pytest.mark.parametrize("fault", [None, "launch"])
def test_everything_is_given_back(driver: Driver, fault: str | None) -> None:
    driver.fault = fault
    gpu, given = device.present(), [np.zeros(4, np.uint8)]
    if fault:
        with pytest.raises(fm.Error, match="add failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
            programs.launch(gpu, add(), given)
    else:
        programs.launch(gpu, add(), given)
    assert driver.log.count("load") == driver.log.count("unload") == 1
    assert driver.log.count("close") == 1


def test_memory_is_filled_before(driver: Driver) -> None:
    programs.launch(device.present(), add(), [np.zeros(4, np.uint8)], 0xDEADBEEF)
    fill, kernel = driver.launched
    assert fill == ("fill", (7, 1, 1, 1024, 1, 1), MOST)
    assert kernel[0] == "add"


def test_no_blocks_are_no_launch(driver: Driver) -> None:
    done = programs.launch(
        device.present(), add(grid=(0, 1, 1)), [np.ones(4, np.uint8)]
    )
    assert done.buffers[0].tolist() == [1, 1, 1, 1]
    assert not driver.launched


@pytest.mark.skipif(sys.platform == "win32", reason="reads the standard output")
def test_what_is_printed_is_read(driver: Driver) -> None:
    library = ctypes.CDLL(None)
    start = driver.start

    def talking(*words: Any) -> tuple[int]:
        library.puts(b"hello")
        return start(*words)

    sys.modules["cuda.bindings"].driver.cuLaunchKernelEx = talking
    done = programs.launch(device.present(), add(prints=True), [np.zeros(4, np.uint8)])
    assert done.printed == "hello\n"
