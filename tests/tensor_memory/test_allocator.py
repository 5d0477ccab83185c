"""The allocator obeys the rules of ``tcgen05.alloc``."""

from __future__ import annotations

import pytest

import fragmenta as fm
from fragmenta.tensor_memory import Allocator


def test_all_of_it_in_pieces() -> None:
    memory = Allocator()
    found = [memory.allocate(32) for _ in range(16)]
    assert set(found) == set(range(0, 512, 32))
    assert memory.allocate(32) is None
    memory.free(96, 32)
    assert memory.allocate(32) == 96
    for address in found:
        assert address is not None
        memory.free(address, 32)
    memory.finish()


def test_room_must_be_in_one_piece() -> None:
    memory = Allocator()
    for _ in range(8):
        memory.allocate(64)
    memory.free(64, 64)
    memory.free(192, 64)
    assert not memory.allocated(64)
    assert memory.allocated(128)
    assert memory.allocate(64) == 64


@pytest.mark.parametrize("columns", [0, 16, 48, 96, 1024, -32, 32.0, True, "32"])
def test_sizes(columns: int) -> None:
    with pytest.raises(fm.errors.AddressError, match="32, 64, 128, 256 or 512 columns"):
        Allocator().allocate(columns)


def test_sizes_do_not_grow() -> None:
    memory = Allocator()
    address = memory.allocate(64)
    assert address is not None
    memory.free(address, 64)
    with pytest.raises(fm.Error, match="of 128 columns after one of 64"):
        memory.allocate(128)
    # A block that had to wait was not allocated.
    waiting = Allocator()
    waiting.allocate(256)
    waiting.allocate(256)
    assert waiting.allocate(128) is None
    assert waiting.largest == 256


def test_only_what_was_allocated_is_freed() -> None:
    memory = Allocator()
    memory.allocate(64)
    for address, columns in [(0, 32), (32, 32), (64, 64), (1 << 16, 64)]:
        with pytest.raises(
            fm.errors.AddressError, match="allocated are columns 0 to 63"
        ):
            memory.free(address, columns)
    memory.free(0, 64)
    with pytest.raises(fm.errors.AddressError, match="nothing is allocated"):
        memory.free(0, 64)


def test_relinquishing_and_finishing() -> None:
    memory = Allocator()
    memory.allocate(128)
    memory.relinquish()
    with pytest.raises(fm.Error, match="gave up the right"):
        memory.allocate(32)
    with pytest.raises(fm.Error, match="still allocated at the end: columns 0 to 127"):
        memory.finish()
    memory.free(0, 128)
    memory.finish()
