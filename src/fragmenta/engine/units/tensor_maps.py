"""Tensor maps in memory: a kernel reads, changes and copies them.

``tensormap.replace`` changes one field of 128 bytes, and ``tensormap.cp_fenceproxy``
copies them.  The instructions of the assembler (:mod:`units.fast.map_fields`) explain
two surprises: the types 11 and 12 set the bit of tf32, but no other type clears it; and
a number with too many bits is cut without an error.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fragmenta.engine.simt import layout
from fragmenta.engine.units.fast.map_fields import (
    LIMITS,
    REPLACED,
    STRIDE_BITS,
    STRIDE_LOW,
    SWIZZLE_96,
    TF32,
)
from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.work import (
    CopyBlock,
    Region,
    aligned,
    in_global,
    in_shared,
    shared_address,
)
from fragmenta.errors import Error, nearest, one_of
from fragmenta.ptx import rules
from fragmenta.reference.shared.tensor_map import ALIGNMENT, BYTES, FIELD, TensorMap


def replaced(data: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """The 128 bytes after ``tensormap.replace`` of one field.

    >>> map = TensorMap("u8", (64, 8), (64,), box=(16, 4))
    >>> TensorMap.decode(replaced(map.encode(), "box_dim", 32, 0)).box
    (32, 4)
    """
    if field not in REPLACED:
        raise CopyFault(
            rules.UNSUPPORTED,
            f"tensormap.replace on sm_90a changes {one_of(REPLACED)}; given {field!r}"
            + nearest(field, REPLACED),
        )
    line = REPLACED[field]
    _check(field, value, ordinal, int(line["many"]))
    less, word = int(line["less"]), int.from_bytes(data, "little")
    if field == "global_stride":
        word = _set(word, "stride_low", ordinal, value >> STRIDE_BITS)
        high = value >> (STRIDE_BITS + STRIDE_LOW)
        word = _set(word, "stride_high", ordinal, high)
    elif field == "elemtype" and value in TF32:
        word = _set(_set(word, "code", 0, TF32[value]), "tf32", 0, 1)
    else:
        word = _set(word, line["map"], ordinal, value - less)
    if field == "swizzle_mode":
        word &= ~(1 << SWIZZLE_96)
    return word.to_bytes(BYTES, "little")


def _check(field: str, value: int, ordinal: int, many: int) -> None:
    if not 0 <= ordinal < many:
        raise CopyFault(
            rules.UNSUPPORTED,
            f"a tensor map has {field} 0 to {many - 1}; given {ordinal}",
        )
    most = LIMITS.get(field)
    if most is not None and not 0 <= value <= most:
        raise CopyFault(
            rules.UNSUPPORTED, f"{field} on sm_90a is 0 to {most}; given {value}"
        )


def _set(word: int, name: str, index: int, raw: int) -> int:
    """Put bits into a field as they are."""
    field = FIELD[name]
    low, mask = field.low + index * field.step, (1 << field.bits) - 1
    return word & ~(mask << low) | (raw & mask) << low


# ── in memory ───────────────────────────────────────────────────────────────


def map_place(
    block: CopyBlock, address: int, space: str, *, writes: bool = False
) -> Region:
    """The 128 bytes at an address in a state space; without one, it is generic."""
    what = "a tensor map"
    aligned(address, ALIGNMENT, what)
    in_window = not space and address >> layout.SLOT_BITS == layout.SHARED_SLOT
    if space.startswith("shared") or in_window:
        rank, offset = shared_address(block, address, what, space)
        return in_shared(block, rank, offset, BYTES, what)
    return in_global(block, address, BYTES, what, writes=writes)


def replace(
    block: CopyBlock,
    address: int,
    field: str,
    value: int,
    ordinal: int = 0,
    space: str = "",
) -> Region:
    """Change one field of a map in memory, and return where the map is."""
    place = map_place(block, address, space, writes=True)
    after = replaced(place.take().tobytes(), field, value, ordinal)
    place.put(np.frombuffer(after, np.uint8))
    return place


def copy_map(block: CopyBlock, goal: int, source: int) -> tuple[Region, Region]:
    """``tensormap.cp_fenceproxy``: copy a map from shared to global memory.

    The result is where it was written, and where it was read.
    """
    read_ = map_place(block, source, "shared::cta")
    written = map_place(block, goal, "global", writes=True)
    written.put(read_.take())
    return written, read_


def map_used(block: CopyBlock, address: int) -> Region:
    """The map that a copy uses: in global memory, a constant or a parameter."""
    slot = address >> layout.SLOT_BITS
    if slot in (0, layout.SHARED_SLOT, layout.LOCAL_SLOT):
        where = {layout.SHARED_SLOT: "shared", layout.LOCAL_SLOT: "local"}.get(slot)
        raise CopyFault(
            rules.BAD_TENSOR_MAP,
            "a copy takes its tensor map from global memory, a constant or a parameter "
            f"of the kernel; given the address {address:#x}"
            + (f", which is in {where} memory" if where else ", where nothing is"),
        )
    if address % ALIGNMENT:
        raise CopyFault(
            rules.BAD_TENSOR_MAP,
            f"a tensor map must be at a multiple of {ALIGNMENT} bytes; given "
            f"{address:#x}",
        )
    return in_global(block, address, BYTES, "a tensor map")


# ── what a map says ─────────────────────────────────────────────────────────


@lru_cache(maxsize=1024)
def decoded(data: bytes) -> TensorMap:
    """The map in 128 bytes; an error if hardware would refuse or misread it.

    >>> decoded(bytes(128))
    Traceback (most recent call last):
    fragmenta.engine.units.faults.CopyFault: these 128 bytes are no tensor map that \
a copy can use: the box along dimension 0 must be a multiple of 16 bytes, 16 elements \
of u8; given 1, nearest 16; they say: address 0x0, rank 1, sizes 1, box 1, element \
type 0, swizzle 0
    """
    try:
        return TensorMap.decode(data)
    except Error as error:
        raise CopyFault(
            rules.BAD_TENSOR_MAP,
            f"these {BYTES} bytes are no tensor map that a copy can use: {error}; they "
            f"say: {shown(data)}",
        ) from error


def shown(data: bytes) -> str:
    """The fields of a map in words, whether or not they make sense.

    >>> shown(TensorMap("f16", (256, 100), (512,), (64, 32), swizzle=128).encode())
    'address 0x0, rank 2, sizes 256 x 100, strides 512, box 64 x 32, element type 6, \
swizzle 3'
    """
    word = int.from_bytes(data, "little")
    got = {name: field.get(word) for name, field in FIELD.items()}
    rank = min(5, got["rank"][0])
    strides = zip(got["stride_low"], got["stride_high"], strict=True)
    steps = [(low | high << 32) * 16 for low, high in strides][: rank - 1]
    box = got["box"][: 1 if got["im2col"][0] else rank]
    texts = [
        f"address {got['address'][0]:#x}",
        f"rank {got['rank'][0]}",
        f"sizes {_times(got['sizes'][:rank])}",
        f"strides {_times(steps)}" if steps else "",
        f"{'channels' if got['im2col'][0] else 'box'} {_times(box)}",
        f"pixels {got['pixels'][0]}" if got["im2col"][0] else "",
        f"element type {got['code'][0]}" + (" as tf32" if got["tf32"][0] else ""),
        f"swizzle {got['swizzle'][0]}",
        f"interleave {got['interleave'][0]}" if got["interleave"][0] else "",
    ]
    return ", ".join(text for text in texts if text)


def _times(numbers: tuple[int, ...] | list[int]) -> str:
    return " x ".join(map(str, numbers))
