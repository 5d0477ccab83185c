"""A kernel changes a tensor map as on an H200."""

from zlib import crc32

import numpy as np
import pytest

from fragmenta.engine.simt import layout
from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.tensor_maps import (
    copy_map,
    decoded,
    replace,
    replaced,
    shown,
)
from fragmenta.engine.units.work import Range
from fragmenta.reference.shared.tensor_map import TensorMap
from tests.units.standing import Cluster
from tests.units.test_copies import GOLDEN

WANTED = TensorMap(
    "bf16",
    (640, 100, 3),
    (1280, 1 << 39),
    (64, 32, 2),
    (1, 2, 3),
    1 << 40,
    swizzle=128,
    fill="nan",
)


def _fields(map_: TensorMap) -> list[tuple[str, int, int]]:
    """What a kernel replaces to make a map: the field, the ordinal, the operand."""
    return [
        ("global_address", 0, map_.address),
        ("rank", 0, map_.rank - 1),
        *(("box_dim", i, n) for i, n in enumerate(map_.box)),
        *(("global_dim", i, n) for i, n in enumerate(map_.sizes)),
        *(("global_stride", i, n) for i, n in enumerate(map_.strides)),
        *(("element_stride", i, n) for i, n in enumerate(map_.element_strides)),
        ("elemtype", 0, map_.element.code),
        ("interleave_layout", 0, 0),
        ("swizzle_mode", 0, (0, 32, 64, 128).index(map_.swizzle)),
        ("fill_mode", 0, int(map_.fill == "nan")),
    ]


@pytest.mark.parametrize("first", [0x00, 0xFF])
def test_a_map_that_a_kernel_makes(first: int) -> None:
    data = bytes(128)
    if first:  # bits that no replace touches stay
        data = bytes(60) + bytes([first]) * 68
    for field, ordinal, value in _fields(WANTED):
        data = replaced(data, field, value, ordinal)
    assert decoded(data) == WANTED
    assert data[60:] == bytes([first]) * 68


def test_an_h200_replaces_the_same_bits() -> None:
    with np.load(GOLDEN) as recorded:
        fields, ordinals, values = (
            recorded[name].tolist() for name in ("field", "ordinal", "value")
        )
        assert len(set(fields)) == 10
        for before, crcs in zip(recorded["before"], recorded["replaced"], strict=True):
            for field, ordinal, value, crc in zip(
                fields, ordinals, values, crcs.tolist(), strict=True
            ):
                after = replaced(before.tobytes(), field, value, ordinal)
                assert crc32(after) == crc, (field, ordinal, value)


def test_the_bit_of_tf32_stays() -> None:
    f32 = TensorMap("f32", (64,), box=(32,)).encode()
    tf32 = replaced(f32, "elemtype", 11)
    assert decoded(tf32).dtype == "tf32"
    assert decoded(replaced(tf32, "elemtype", 7)).dtype == "tf32"
    assert decoded(replaced(tf32, "elemtype", 12)).dtype == "tf32.ftz"
    with pytest.raises(CopyFault, match="element type 2 with tf32 1"):
        decoded(replaced(tf32, "elemtype", 2))


def test_bits_that_do_not_fit_are_lost() -> None:
    map_ = TensorMap("u8", (64, 8), (64,), (32, 4))
    data = map_.encode()
    assert replaced(data, "box_dim", 257, 1) == replaced(data, "box_dim", 1, 1)
    assert decoded(replaced(data, "box_dim", 0, 1)).box == (32, 256)
    assert decoded(replaced(data, "global_dim", 0, 1)).sizes == (64, 1 << 32)
    assert decoded(replaced(data, "element_stride", 9, 1)).element_strides == (1, 1)
    assert decoded(replaced(data, "global_stride", 100, 0)).strides == (96,)


def test_what_sm_90a_does_not_take_is_refused() -> None:
    data = bytes(128)
    for field, value, ordinal in (
        ("global_stride", 16, 4),
        ("box_dim", 1, 5),
        ("elemtype", 13, 0),
        ("swizzle_mode", 4, 0),
        ("swizzle_atomicity", 0, 0),
        ("fill_mode", 2, 0),
    ):
        with pytest.raises(CopyFault) as caught:
            replaced(data, field, value, ordinal)
        assert caught.value.rule.name == "unsupported"
        assert field in str(caught.value)


@pytest.mark.parametrize("space", ["shared::cta", "global", ""])
def test_maps_in_memory(space: str) -> None:
    cluster, memory = Cluster(), np.zeros(256, np.uint8)
    block = cluster.blocks[0]
    address = cluster.add(memory) + 128
    block.shared[2048:2176] = 0
    goal = address if space == "global" else 2048
    if not space:
        goal += layout.SHARED_WINDOW
    for field, ordinal, value in _fields(WANTED):
        changed = replace(block, goal, field, value, ordinal, space)
    if space != "global":
        assert changed.range == Range("shared", 0, 2048, 128)
        written, read = copy_map(block, address, 2048)
        assert read.range == Range("shared", 0, 2048, 128)
        assert written.range == Range("global", -1, address, 128)
    assert decoded(memory[128:].tobytes()) == WANTED


def test_a_map_is_aligned() -> None:
    block = Cluster().blocks[0]
    with pytest.raises(CopyFault, match="a tensor map must be at a multiple of 64"):
        replace(block, 2064, "rank", 1, space="shared::cta")


def test_a_map_in_words() -> None:
    assert shown(WANTED.encode()).startswith(
        "address 0x10000000000, rank 3, sizes 640 x 100 x 3, strides 1280 x 5497558138"
    )
    assert "rank 8" in shown(b"\xff" * 128)
