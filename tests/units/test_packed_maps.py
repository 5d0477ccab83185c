"""Tensor maps of 4- and 6-bit elements, and the swizzles of sm_100."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.tma_copies import TensorLoad, TensorStore
from fragmenta.errors import Error
from fragmenta.frontends.programs.asked import ProgramOptions
from fragmenta.frontends.programs.device import Device
from fragmenta.frontends.programs.verbs import Answer, Request, Verb
from fragmenta.reference.shared.tensor_map import TensorMap
from tests.units.standing import WHO, Cluster

AT = 2048
ROWS = 16
BITS = {"b4x16": 4, "b4x16_p64": 4, "b6x16_p32": 6}
DATA = {"b4x16": 16, "b4x16_p64": 8, "b6x16_p32": 12}
XORS = {
    0: lambda a: a,
    128: lambda a: a ^ (a >> 7 & 7) << 4,
    "128/32": lambda a: a ^ (a >> 7 & 3) << 5,
    "128/32/8": lambda a: a ^ (a >> 7 & 3) << 5 ^ (a >> 7 & 1) << 3,
    "128/64": lambda a: a ^ (a >> 7 & 1) << 6,
}
"""The swizzles as the tables of the manual have them."""


def filled(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("swizzle", [0, 128, "128/32"])
@pytest.mark.parametrize("dtype", BITS)
def test_a_load_of_small_elements(dtype: str, swizzle: int | str) -> None:
    """Each byte is where the words of the driver's header say; gaps are left alone."""
    cluster, row = Cluster(), 512 * BITS[dtype] // 8
    memory = filled(row * 20)
    map_ = TensorMap(dtype, (512, 20), (row,), (128, ROWS), swizzle=swizzle)
    map_ = map_.at(cluster.add(memory))
    shared = cluster.blocks[0].shared
    wanted = shared.copy()
    line, data = 128 * BITS[dtype] // 8, DATA[dtype]
    pitch = max(line * 16 // data, 128 if swizzle else 0)
    for y in range(ROWS):
        for x in range(line):
            inside = 8 + y < 20
            at = AT + y * pitch + x // data * 16 + x % data
            byte = memory[(8 + y) * row + 2 * line + x] if inside else 0
            wanted[XORS[swizzle](at)] = byte
    copy = TensorLoad(cluster.blocks[0], *WHO, map_.encode(), (256, 8), (), AT, 1024)
    assert copy.bytes == ROWS * line  # gaps do not count
    copy.read()
    copy.write()
    np.testing.assert_array_equal(shared, wanted)


@pytest.mark.parametrize("swizzle", ["128/32", "128/32/8", "128/64"])
@pytest.mark.parametrize("dtype", ["u8", "f32", "f64"])
def test_swizzles_of_sm_100(dtype: str, swizzle: str) -> None:
    cluster, size = Cluster(), int(dtype[1:]) // 8
    memory = filled(256 * 20)
    map_ = TensorMap(
        dtype, (256 // size, 20), (256,), (128 // size, ROWS), swizzle=swizzle
    ).at(cluster.add(memory))
    block = cluster.blocks[0]
    places = AT + 128 + np.arange(128 * ROWS)
    moved = XORS[swizzle](places)
    load = TensorLoad(block, *WHO, map_.encode(), (128 // size, 2), (), AT + 128, 1024)
    load.read()
    load.write()
    box = memory.reshape(20, 256)[2 : 2 + ROWS, 128:].reshape(-1)
    np.testing.assert_array_equal(block.shared[moved], box)
    store = TensorStore(block, *WHO, map_.encode(), (0, 2), AT + 128)
    store.read()
    store.write()
    stored = memory.reshape(20, 256)[2 : 2 + ROWS, :128].reshape(-1)
    np.testing.assert_array_equal(stored, box)


def test_a_store_of_six_bits_packs_bytes() -> None:
    cluster, memory = Cluster(), np.zeros(96 * 4, np.uint8)
    map_ = TensorMap("b6x16_p32", (128, 4), (96,), (128, 2), swizzle=128)
    map_ = map_.at(cluster.add(memory))
    block = cluster.blocks[0]
    values = filled(256)
    block.shared[XORS[128](AT + np.arange(256))] = values
    store = TensorStore(block, *WHO, map_.encode(), (0, 1), AT)
    store.read()
    store.write()
    number = sum(int(v & 63) << 6 * i for i, v in enumerate(values))
    assert memory[96:288].tobytes() == number.to_bytes(192, "little")
    assert not memory[:96].any()
    assert not memory[288:].any()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sizes": (200, 4)}, "multiple of 128 elements of b4x16_p64; given 200"),
        ({"box": (64, 2)}, "must be 128 elements of b4x16_p64; given 64"),
        ({"strides": (80,)}, "multiple of 32 bytes; given 80"),
        ({"address": 16}, "multiple of 32 bytes; given 16"),
        ({"swizzle": 64}, "has the swizzle 0, 128 or 128/32; given 64"),
        ({"fill": "nan"}, "only floats"),
        ({"dtype": "b4x16", "sizes": (201, 4)}, "multiple of 2 elements of b4x16"),
        ({"dtype": "b4x16", "box": (48, 2)}, "32 elements of b4x16; given 48"),
    ],
)
def test_what_the_driver_refuses(given: dict, why: str) -> None:
    right = {
        "dtype": "b4x16_p64",
        "sizes": (256, 4),
        "strides": (128,),
        "box": (128, 2),
    }
    assert TensorMap.decode(TensorMap(**right).encode()) == TensorMap(**right)
    with pytest.raises(Error, match=why):
        TensorMap(**right | given)


def test_what_a_copy_refuses() -> None:
    cluster = Cluster()
    map_ = TensorMap("b4x16_p64", (256, 4), (128,), (128, 2))
    map_ = map_.at(cluster.add(filled(512)))
    block = cluster.blocks[0]
    with pytest.raises(CopyFault, match="64 bytes, 128 elements of b4x16_p64"):
        TensorLoad(block, *WHO, map_.encode(), (32, 0), (), AT, 1024)
    with pytest.raises(CopyFault, match="loaded by, not stored by"):
        TensorStore(block, *WHO, map_.encode(), (0, 0), AT)


# ── in programs ─────────────────────────────────────────────────────────────


def encode(kind: int, swizzle: int, interleave: int = 0, **more: int) -> Answer:
    """What ``cuTensorMapEncodeTiled`` answers."""
    data = struct.pack("<2Q1Q2I2I", 256, 4, 1024, 128 if kind > 12 else 32, 2, 1, 1)
    last = more.get("promotion", 0), more.get("fill", 0)
    words = (0, kind, 2, 1 << 12, interleave, swizzle, *last)
    device = Device(ProgramOptions(), print)
    try:
        return device.answer(Request(Verb.ENCODE, words, data))
    finally:
        device.close()


@pytest.mark.parametrize(
    ("kind", "swizzle", "dtype", "name"),
    [
        (13, 3, "b4x16", 128),
        (14, 0, "b4x16_p64", 0),
        (15, 6, "b6x16_p32", "128/64"),
        (7, 4, "f32", "128/32"),
        (7, 5, "f32", "128/32/8"),
        (7, 6, "f32", "128/64"),
    ],
)
def test_programs_encode_them(
    kind: int, swizzle: int, dtype: str, name: int | str
) -> None:
    found = encode(kind, swizzle)
    assert found.status == 0, found.data
    made = TensorMap.decode(found.data)
    assert (made.dtype, made.swizzle) == (dtype, name)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((16, 0), "tensorDataType is 0 to 15; given 16"),
        ((7, 7), "swizzle is 0 to 6; given 7"),
        ((7, 0, 3), "interleave is 0 to 2; given 3"),
    ],
)
def test_a_number_without_a_meaning_is_refused_with_words(
    given: tuple[int, ...], why: str
) -> None:
    found = encode(*given)
    assert found.status == 1
    assert found.data.decode() == f"cuTensorMapEncodeTiled: {why}"
    for name, argument in (("promotion", "l2Promotion"), ("fill", "oobFill")):
        answer = encode(7, 0, **{name: 9}).data.decode()
        assert argument in answer
        assert "given 9" in answer


# ── in a kernel ─────────────────────────────────────────────────────────────

KERNEL = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry f(.param .align 64 .b8 map[128], .param .u64 out)
{
.reg .pred %p, %q; .reg .b32 %t, %r<6>; .reg .b64 %l<4>;
.shared .align 1024 .b8 tile[2048];
.shared .align 8 .b64 bar;
mov.u32 %t, %tid.x;
setp.ne.u32 %p, %t, 0;
@%p bra MADE;
mbarrier.init.shared::cta.b64 [bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
mov.b64 %l0, map;
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
 [tile], [%l0, {128, 4}], [bar];
MADE:
bar.sync 0;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
@!%q bra WAIT;
mov.u32 %r1, tile;
shl.b32 %r2, %t, 4;
add.u32 %r1, %r1, %r2;
ld.shared.v2.u32 {%r3, %r4}, [%r1];
ld.param.u64 %l1, [out];
mul.wide.u32 %l2, %t, 8;
add.u64 %l1, %l1, %l2;
st.global.v2.u32 [%l1], {%r3, %r4};
ret;
}"""


def test_a_kernel_loads_padded_elements() -> None:
    """16 rows of 128 elements of 4 bits: 8 bytes in each 16 of shared memory."""
    memory, out = filled(256 * 32), np.zeros(128 * 2, np.uint32)
    plain = ptx.tensor_map(memory.reshape(32, 256), box=(16, 128))
    packed = TensorMap("b4x16_p64", (512, 32), (256,), (128, 16))
    given = dataclasses.replace(plain, data=packed.encode())
    kernel = ptx.parse(KERNEL).kernels["f"]
    for watch in (False, True):
        out[:] = 0
        kernel.launch(1, 128, [given, out], watch=watch)
        wanted = memory.reshape(32, 256)[4:20, 64:128]
        assert out.tobytes() == wanted.tobytes()
