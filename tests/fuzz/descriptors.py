"""Shared memory: a descriptor leads to the byte that the formula names.

The judge is the formula at the top of :mod:`fragmenta.reference.shared.descriptor`, in Python
integers, and bytes written one by one.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.reference.registers.dtype import DTYPES
from fragmenta.reference.shared import moves
from fragmenta.reference.shared.descriptor import Descriptor, swizzled
from fragmenta.reference.shared.tiles import read_tile
from fragmenta.reference.shared.tiles import tile as shared_tile
from tests.fuzz.engine import Ask, Surface, bits, expect, index, integers, odd, same
from tests.fuzz.packing import patterns

SWIZZLES = (0, 32, 64, 128)
MODE = {0: 0, 128: 1, 64: 2, 32: 3}
FAR = 2**31
TYPES = [n for n, of in DTYPES.items() if of.bits != 6 and of.kind != "raw"]


def field(rng: random.Random) -> Any:
    """An offset: mostly one that may be."""
    if rng.random() < 0.85:
        return 16 * rng.randrange(1 << rng.choice((3, 8, 14)))
    return odd(rng)


def is_field(value: Any) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return bool(whole and int(value) % 16 == 0 and 0 <= int(value) < 1 << 18)


def address(d: Descriptor, mn: int, k: int, width: int, major: str) -> int:
    """Eight times the byte, plus the bit: the formula, one number at a time."""
    span = d.swizzle or 16
    along, across = (k, mn) if major == "k" else (mn, k)
    swapped = major == "mn" and not d.swizzle
    to_span, to_lines = (d.stride, d.leading) if swapped else (d.leading, d.stride)
    byte, bit = divmod(along * width, 8)
    linear = d.start + byte % span + across % 8 * span
    linear += byte // span * to_span + across // 8 * to_lines
    return 8 * swizzle(linear, d.swizzle) + bit


def swizzle(address: int, mode: int) -> int:
    """Bits 4 up are changed by bits 7 up, as many as the mode has."""
    for bit in range({0: 0, 32: 1, 64: 2, 128: 3}[mode]):
        address ^= (address >> (7 + bit) & 1) << (4 + bit)
    return address


# ── games ───────────────────────────────────────────────────────────────────


def words(ask: Ask) -> None:
    """The word has each field in its place, and reads back."""
    rng = ask.rng
    start, leading, stride = field(rng), field(rng), field(rng)
    mode = (
        rng.choice((*SWIZZLES, odd(rng)))
        if rng.random() < 0.2
        else rng.choice(SWIZZLES)
    )
    base = rng.choice((0, 0, 0, 3, odd(rng)))
    whole = [
        isinstance(x, int | np.integer) and not isinstance(x, bool)
        for x in (mode, base)
    ]
    right = all(map(is_field, (start, leading, stride))) and all(whole)
    right = right and int(mode) in SWIZZLES and 0 <= int(base) < 8
    d = ask.maybe(right, Descriptor, start, leading, stride, mode, base)
    if d is None:
        return
    word = ask.accepted(d.encode)
    wanted = int(start) // 16 | int(leading) // 16 << 16 | int(stride) // 16 << 32
    wanted |= int(base) << 49 | MODE[int(mode)] << 62
    expect(word == wanted, f"{word:#x} is not {wanted:#x}")
    expect(
        ask.accepted(Descriptor.decode, word) == d, f"{word:#x} reads back otherwise"
    )


USED = (0x3FFF, 0x3FFF << 16, 0x3FFF << 32, 7 << 49, 3 << 62)


def decoded(ask: Ask) -> None:
    """A word with a bit that no field has is no descriptor."""
    rng = ask.rng
    word = rng.getrandbits(64) & sum(USED)
    if rng.random() < 0.5:
        word |= 1 << rng.randrange(66)
    right = not word & ~sum(USED)
    d = ask.maybe(right, Descriptor.decode, word)
    expect(d is None or d.encode() == word, f"{word:#x} is encoded as {d}")
    ask(Descriptor.decode, odd(rng))


def addresses(ask: Ask) -> None:
    """Elements lie where the formula puts them."""
    rng = ask.rng
    d = Descriptor(
        *(16 * rng.randrange(1 << 14) for _ in range(3)), rng.choice(SWIZZLES)
    )
    name, major = rng.choice(TYPES), rng.choice(("k", "k", "mn"))
    width = DTYPES[name].bits
    mn, k = (rng.choice((rng.randrange(300), odd(rng))) for _ in range(2))
    right = _is_far(mn) and _is_far(k) and (major == "k" or width == 16)
    found = ask.maybe(right, d.bit_address, mn, k, name, major)
    if not right:
        return
    if np.ndim(found) == 0:
        wanted = address(d, int(mn), int(k), width, major)
        expect(found == wanted, f"{found}, not {wanted}")
    else:
        pairs = np.broadcast(np.asarray(mn), np.asarray(k))
        listed = [address(d, int(x), int(y), width, major) for x, y in pairs]
        same(np.ravel(found), listed, "addresses")
    byte = ask.accepted(d.address, mn, k, name, major)
    same(byte, np.asarray(found) // 8, "bytes")


def _is_far(value: Any) -> bool:
    """Whether these are indices that may be asked for."""
    if isinstance(value, bool | str | bytes | float | complex | dict) or value is None:
        return False
    given = np.asarray(value)
    if given.dtype.kind not in "iu" and not isinstance(value, int):
        return False
    return all(0 <= int(x) < FAR for x in given.ravel().tolist())


def swizzles(ask: Ask) -> None:
    """A swizzle moves 16 bytes, and undoes itself."""
    rng = ask.rng
    mode, where = rng.choice(SWIZZLES), rng.randrange(1 << 20)
    found = int(ask.accepted(swizzled, where, mode))
    expect(found == swizzle(where, mode), f"{where} goes to {found}")
    expect(
        int(ask.accepted(swizzled, found, mode)) == where, f"{where} does not return"
    )
    ask(swizzled, odd(rng), mode)
    ask(swizzled, where, odd(rng))


# ── tiles ───────────────────────────────────────────────────────────────────


@cache
def readers() -> list[fm.Instruction]:
    """The ``wgmma`` of one or two widths, every type of A and B."""
    listed = (op for f in ("wgmma", "wgmma.sp") for op in catalogue(f))
    return [op for op in listed if op.shape.n in (8, 24) and not op.satfinite]


def tiles(ask: Ask) -> None:
    """A matrix that is written is read, and each byte is where it should be."""
    rng = ask.rng
    op, name = rng.choice(readers()), rng.choice("AB")
    of = op.types[name.lower()]
    shape = op.fragments["A"].shape if name == "A" else (op.shape.k, op.shape.n)
    raw = patterns(of, shape, rng)
    mode, major = rng.choice(SWIZZLES), "mn" if rng.random() < 0.2 else "k"
    start = 1024 * rng.randrange(4)
    right = major == "k" or of.bits == 16
    options = {"swizzle": mode, "major": major, "start": start}
    made = ask.maybe(right, shared_tile, op, name, of.decode(raw), **options)
    if made is None:
        return
    image, d = made
    same(ask.accepted(read_tile, op, name, image, d, major=major), raw, "a tile")
    at = index(shape, rng)
    mn, k = at if name == "A" else at[::-1]
    byte, bit = divmod(address(d, mn, k, of.bits, major), 8)
    cells = image[byte : byte + max(1, of.bits // 8)].tobytes()
    found = int.from_bytes(cells, "little") >> bit & ((1 << of.bits) - 1)
    expect(found == int(raw[at]), f"byte {byte} of {op} is not {at}")


def odd_tiles(ask: Ask) -> None:
    """Tiles, images and descriptors of any kind are refused or read."""
    rng = ask.rng
    op, name = rng.choice(readers()), rng.choice("AB")
    image = bits(rng, np.uint8, (rng.choice((0, 16, 1024, 8192)),))
    if rng.random() < 0.3:
        image = np.broadcast_to(image, (rng.randint(0, 2), image.size))
    words: Any = rng.getrandbits(64) & sum(USED)
    if rng.random() < 0.5:
        words = np.array([words & 0xC000000F000F000F] * rng.randint(0, 2), np.uint64)
    if rng.random() < 0.3:
        words = odd(rng)
    found = ask(read_tile, op, name, image, words)
    rows, k = op.fragments["A"].shape if name == "A" else (op.shape.k, op.shape.n)
    expect(found.shape[-2:] == (rows, k), f"{name} of {op} is {found.shape}")


def for_tiles(ask: Ask) -> None:
    """A canonical tile has a place for every element, none of them twice."""
    rng = ask.rng
    name, mode = rng.choice(TYPES), rng.choice(SWIZZLES)
    of = DTYPES[name]
    rows: Any = 8 * rng.randint(1, 4)
    k: Any = 256 // of.bits * rng.randint(1, 3)
    if rng.random() < 0.3:
        rows = odd(rng)
    if rng.random() < 0.3:
        k = odd(rng)
    d = ask(Descriptor.for_tile, rows, k, name, swizzle=mode)
    if int(rows) * int(k) > 5000:
        return
    grid = np.ogrid[: int(rows), : int(k)]
    found = ask.accepted(d.bit_address, grid[0], grid[1], name)
    expect(np.unique(found).size == found.size, f"{d} has places of two elements")


def advanced(ask: Ask) -> None:
    """A descriptor that moves on reads what lies there."""
    rng = ask.rng
    op, name = rng.choice(readers()), rng.choice("AB")
    of = op.types[name.lower()]
    rows, k = op.fragments["A"].shape if name == "A" else (op.shape.n, op.shape.k)
    mode = rng.choice(SWIZZLES)
    d = Descriptor.for_tile(2 * rows, 4 * k, of, swizzle=mode)
    far = {"k": rng.choice((0, k, 2 * k, 8, 3)), "mn": rng.choice((0, rows, 8, 1))}
    if rng.random() < 0.1:
        far[rng.choice(("k", "mn"))] = rng.choice((odd(rng), -1, -8, 10**9))
    moved = ask(d.advance, op, name, **far)
    at = rng.randrange(rows), rng.randrange(k)
    here = address(moved, *at, of.bits, "k")
    there = address(d, at[0] + int(far["mn"]), at[1] + int(far["k"]), of.bits, "k")
    expect(here == there, f"{at} of {moved} is not {far} on from {d}")


@cache
def loads() -> list[fm.Instruction]:
    return [op for op in catalogue("ldmatrix") if op.values["type"] in ("b16", "b8")]


def loaded(ask: Ask) -> None:
    """``ldmatrix`` brings each row to its registers, ``stmatrix`` back."""
    rng = ask.rng
    op = rng.choice(loads())
    part = op.fragments["D"]
    image = bits(rng, np.uint8, (1024,))
    where = 16 * integers(rng, 0, 63, (32,))
    if rng.random() < 0.3:
        where[rng.randrange(32)] = rng.choice((-16, 8, 1024, 1020, 2**40))
    matrices, rows, _ = part.shape
    used = where[: matrices * rows]
    right = bool(((used % 16 == 0) & (used >= 0) & (used <= 1008)).all())
    found = ask.maybe(right, moves.ldmatrix, op, image, where)
    if found is None:
        return
    at = index(part.shape, rng)
    size = part.dtype.bits // 8
    byte = int(where[at[0] * rows + at[1]]) + at[2] * size
    wanted = int.from_bytes(image[byte : byte + size].tobytes(), "little")
    place = part.where(*at)
    word = int(found[place.lane, place.register]) >> place.bits[0]
    expect(word & ((1 << part.dtype.bits) - 1) == wanted, f"{at} of {op}")


def looped(ask: Ask) -> None:
    """A loop brings the element at the formula's address to its register."""
    rng = ask.rng
    shape, of = rng.choice(MULTIPLIED)
    op, name = fm.mma(shape, a=of, **DS.get(of, {})), rng.choice("AB")
    part, order = op.fragments[name], rng.choice(("row", "col"))
    tile = tuple(rng.randrange(1, 4) * size for size in part.shape)
    line = tile[order == "row"] * part.container.bits // 8
    told: dict[str, Any] = {"tile": tile, "order": order}
    pitch = told["pitch"] = line + 16 * rng.randrange(4)
    start = told["start"] = 16 * rng.randrange(8)
    width, base = rng.randrange(4), rng.randrange(4, 7)
    shift = rng.choice((width, width + 1, 5))
    told["swizzle"] = (width, base, shift)
    if rng.random() < 0.1:
        told[rng.choice(tuple(told))] = odd(rng)
        ask(fm.shared.ldmatrix_loop, op, name, **told)
        return
    loop = ask(fm.shared.ldmatrix_loop, op, name, **told)
    image = bits(rng, np.uint8, (loop.memory.end,))
    at = index(tile, rng)
    row, column = at if order == "row" else at[::-1]
    byte = start + row * pitch + column * part.container.bits // 8
    byte ^= (byte >> base + shift & (1 << width) - 1) << base
    low = column * part.container.bits % 8
    wanted = int.from_bytes(image[byte : byte + 4].tobytes(), "little") >> low
    first, second = (a // size for a, size in zip(at, part.shape, strict=True))
    place = part.where(*(a % size for a, size in zip(at, part.shape, strict=True)))
    tiles = (second, first) if name == "A" else (first, second)
    word = int(loop.load(image)[(*tiles, place.lane, place.register)])
    mask = (1 << part.dtype.bits) - 1
    expect(word >> place.bits[0] & mask == wanted & mask, f"{at} of {loop}")


MULTIPLIED = [
    ("m16n8k16", "f16"),
    ("m16n8k8", "bf16"),
    ("m16n8k32", "s8"),
    ("m16n8k64", "s4"),
    ("m16n8k32", "e4m3"),
]
DS: dict[str, dict[str, str]] = {of: {"d": "f32"} for of in ("f16", "bf16", "e4m3")}


SURFACE = Surface(
    "descriptors",
    {
        words: 8,
        decoded: 6,
        addresses: 6,
        swizzles: 4,
        tiles: 2,
        odd_tiles: 2,
        for_tiles: 2,
        advanced: 2,
        loaded: 2,
        looped: 2,
    },
    share=0.37,
)
