"""Tensor maps in global memory that change between two launches."""

from __future__ import annotations

import weakref
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fragmenta import ptx
from fragmenta.cuda.tools import compiler
from fragmenta.reference.shared.tensor_map import TensorMap
from fragmenta.watch.races import map_history
from tests.ptx.hazards import running

Words = NDArray[np.uint32]
SOURCE = """
#include "hopper.cuh"

DEVICE void acquire_map(const Map *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// Every block loads a box by a map in global memory.
template <bool FENCED> DEVICE void loaded(const Map *map, u32 *out)
{
    __shared__ alignas(128) u32 tile[128];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        if (FENCED)
            acquire_map(map);
        arrive_expect(&full, 512);
        load_box(tile, map, 0, 0, &full);
    }
    __syncthreads();
    wait(&full, 0);
    out[128 * blockIdx.x + threadIdx.x] = get(&tile[threadIdx.x]);
}
KERNEL plain(const Map *map, u32 *out, const u32 *x, const u32 *y) { loaded<false>(map, out); }
KERNEL fenced(const Map *map, u32 *out, const u32 *x, const u32 *y) { loaded<true>(map, out); }

// A kernel writes the map: by stores, or by an instruction for maps.
KERNEL stores(Map *map, u32 *out, const u32 *x, const u32 *y, const __grid_constant__ Map given)
{
    if (threadIdx.x < 32 && blockIdx.x == 0)
        map->words[threadIdx.x] = given.words[threadIdx.x];
}
KERNEL replaces(Map *map, u32 *out, const u32 *x, const u32 *y)
{
    if (threadIdx.x == 0 && blockIdx.x == 0)
        asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;"
                     ::"l"(__cvta_generic_to_global(map)), "l"(__cvta_generic_to_global(y)) : "memory");
}
KERNEL addresses(Map *map, u64 *out, const u32 *x, const u32 *y)
{
    out[0] = (u64)x;
    out[1] = (u64)y;
}
"""


@cache
def kernels() -> Any:
    """The kernels, read."""
    text = running.with_headers(SOURCE, "maps_between.cu")
    found = compiler.to_ptx(text, "sm_90a", "-lineinfo")
    return ptx.parse(running.without_folders(found)).kernels


class Memory:
    """A map in global memory, and two tensors that it may describe."""

    def __init__(self) -> None:
        self.x = np.arange(512, dtype=np.uint32).reshape(16, 32)
        self.y = self.x + 1000
        self.map, self.out = np.zeros(32, np.uint32), np.zeros(256, np.uint32)
        self.run("addresses", 1, 1)
        self.where = self.out[:4].view(np.uint64).tolist()
        self.out[:] = 0

    def encoded(self, name: str) -> Words:
        """The map of one of the tensors, as the host writes it."""
        tensor, address = {"x": (self.x, 0), "y": (self.y, 1)}[name]
        made = TensorMap.of(tensor, (8, 16), address=self.where[address])
        return np.frombuffer(made.encode(), np.uint32)

    def run(self, name: str, grid: int = 2, block: int = 128, **options: Any) -> Any:
        """Launch a kernel."""
        given = [self.map, self.out, self.x, self.y]
        if name == "stores":
            given.append(self.encoded("x").tobytes())
        made = kernels()[name]
        return made.launch(grid, block, given, watch="report", **options)

    def said(self, name: str, **options: Any) -> list[str]:
        """What is said about a launch that loads by the map."""
        found = self.run(name, **options).hazards
        tensor = self.x if (self.map == self.encoded("x")).all() else self.y
        assert (self.out.reshape(2, 8, 16) == tensor[:8, :16]).all()
        assert {each.rule for each in found} <= {"missing-proxy-fence"}
        assert all(each.severity == "error" for each in found)
        return [" ".join(each.paragraph().split()) for each in found]


@pytest.fixture(autouse=True)
def nothing_is_known() -> None:
    """Each test begins without earlier launches."""
    map_history.KNOWN.used.clear()
    map_history.KNOWN.wrote.clear()


def test_a_map_that_stays_the_same_is_fine() -> None:
    memory = Memory()
    memory.map[:] = memory.encoded("x")
    for name in ("plain", "plain", "fenced", "plain"):
        assert not memory.said(name)


def test_the_host_puts_another_map_in_the_place_of_one_that_was_used() -> None:
    memory = Memory()
    memory.map[:] = memory.encoded("x")
    assert not memory.said("plain")
    memory.map[:] = memory.encoded("y")
    (said,) = memory.said("plain")
    assert "where the kernel plain used another one in an earlier launch" in said
    assert "Execute fence.proxy.tensormap::generic.acquire for the map" in said


def test_a_fence_takes_the_new_map() -> None:
    memory = Memory()
    for name in ("x", "y", "x"):
        memory.map[:] = memory.encoded(name)
        assert not memory.said("fenced")
    assert not memory.said("plain")  # it is the one that was used last


@pytest.mark.parametrize("how", ["stores", "replaces"])
def test_an_earlier_kernel_wrote_the_map(how: str) -> None:
    memory = Memory()
    memory.map[:] = memory.encoded("x")
    memory.run(how)
    (said,) = memory.said("plain")
    assert f"a tensor map that the kernel {how} wrote in an earlier launch" in said
    assert memory.said("plain")  # no launch has acquired it so far
    memory.run(how)
    assert not memory.said("fenced")


def test_a_launch_in_several_schedules_is_one() -> None:
    """Its later runs begin with the memory that the first one had."""
    memory = Memory()
    memory.map[:] = memory.encoded("x")
    assert not memory.said("plain", schedule=("eager", "lazy", 1))
    memory.map[:] = memory.encoded("y")
    assert len(memory.said("plain", schedule=("eager", "lazy"))) == 1


def test_another_array_at_the_same_address_is_another_map() -> None:
    memory = Memory()
    memory.map[:] = memory.encoded("x")
    assert not memory.said("plain")
    used = map_history.KNOWN.used
    ((at, known),) = used.items()
    assert at == memory.map.ctypes.data
    other = np.zeros(32, np.uint8)
    used[at] = known._replace(owner=weakref.ref(other))
    memory.map[:] = memory.encoded("y")
    assert not memory.said("plain")


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_history, "MOST", 3)
    several = [Memory() for _ in range(5)]
    for memory in several:
        memory.map[:] = memory.encoded("x")
        assert not memory.said("plain")
    kept = {each.map.ctypes.data for each in several[2:]}
    assert map_history.KNOWN.used.keys() == kept
    assert len(map_history.KNOWN.wrote) == 3
