"""Fragments: every element is where the line of the layout says.

The judge reads the line itself, digit by digit, and the register bit by bit.
"""

from __future__ import annotations

import random
from functools import cache, lru_cache
from typing import Any

import numpy as np

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.reference.registers.dtype import DTYPES, DType
from tests.fuzz.engine import Ask, Surface, bits, expect, index, odd, same


@cache
def parts() -> list[tuple[fm.Instruction, str]]:
    """Operands, one of each kind of layout, type and container."""
    found: dict[Any, tuple[fm.Instruction, str]] = {}
    for op in catalogue():
        for name, part in op.fragments.items():
            key = (name, part.dtype, part.layout, part.container)
            found.setdefault(key, (op, name))
    return list(found.values())


def part_of(rng: random.Random) -> Any:
    op, name = rng.choice(parts())
    return op.fragments[name]


@lru_cache(maxsize=2048)
def digits(line: str) -> dict[str, list[tuple[str, int, int]]]:
    """Each coordinate of a line: axis, stride and size of its digits."""
    found: dict[str, list[tuple[str, int, int]]] = {}
    name = ""
    for word in line.replace("|", " ").replace("=", " = ").split():
        if word == "=":
            continue
        if word.islower() and not word.isdigit():
            name = word
            found[name] = []
        elif word != "0":
            axis, rest = word[0], word[1:]
            at, _, size = rest.partition("*")
            found[name].append((axis, 1 << int(at), int(size or 2)))
    return found


def element_at(line: str, place: dict[str, int]) -> dict[str, int]:
    """The coordinates at a place, by the digits of the line."""
    found = {}
    for name, listed in digits(line).items():
        value, weight = 0, 1
        for axis, stride, size in listed:
            value += weight * (place[axis] // stride % size)
            weight *= size
        found[name] = value
    return found


def random_place(part: Any, rng: random.Random) -> dict[str, int]:
    return {axis: rng.randrange(size) for axis, size in part.layout.axes}


def patterns(of: DType, shape: tuple[int, ...], rng: random.Random) -> Any:
    """Random raw bits of a type."""
    return bits(rng, of.bits_dtype, shape) & of.bits_dtype.type(of.mask)


def word_bits(part: Any, words: Any, place: dict[str, int]) -> int:
    """The bits of an element, read from its register."""
    lane = place.get("W", 0) * 32 + place["L"]
    low = place.get("E", 0) * part.container.bits + part.container.shift
    return int(words[lane, place["R"]]) >> low & ((1 << part.dtype.bits) - 1)


# ── games ───────────────────────────────────────────────────────────────────


def packed(ask: Ask) -> None:
    """Each element of a matrix is in the register of its place, and comes back."""
    rng = ask.rng
    part = part_of(rng)
    raw = _legal(part, rng)
    chosen = dict.fromkeys(part.selectors, 0)
    words = ask.accepted(part.pack, part.dtype.decode(raw), **chosen)
    for _ in range(3):
        place = random_place(part, rng)
        found = element_at(str(part.layout), place)
        if any(found.get(name, 0) for name in part.selectors):
            continue
        at = tuple(found[name] for name in part.layout.data)
        expect(
            word_bits(part, words, place) == int(raw[at]),
            f"{part}: {at} is not at {place}",
        )
    again = ask.accepted(part.unpack_bits, words, **chosen)
    same(again, raw, f"{part} unpacked")


def _legal(part: Any, rng: random.Random) -> Any:
    """Raw bits that the operand may hold."""
    if hasattr(part, "granularity"):
        codes = part.granularity.codes(ordered=True)
        return np.array(
            rng.choices(codes, k=int(np.prod(part.shape))), np.uint8
        ).reshape(part.shape)
    return patterns(part.dtype, part.shape, rng)


def looked_up(ask: Ask) -> None:
    """The place of an element holds that element."""
    rng = ask.rng
    part = part_of(rng)
    at = index(part.shape, rng)
    place = ask.accepted(part.where, *at)
    for each in (place, *place.copies):
        low = each.bits[0] - part.container.shift
        axes = {"L": each.lane, "R": each.register, "W": each.warp or 0}
        axes["E"] = low // part.container.bits
        found = element_at(str(part.layout), axes)
        expect(
            tuple(found[name] for name in part.layout.data) == at,
            f"{part}: {at} is not at {each}",
        )


def looked_up_oddly(ask: Ask) -> None:
    """Indices that are none are refused; those that are, in any type, are taken."""
    rng = ask.rng
    part = part_of(rng)
    at: list[Any] = list(index(part.shape, rng))
    axis = rng.randrange(len(at))
    at[axis] = odd(rng)
    if rng.random() < 0.1:
        ask.refused(part.where, *at, 0)
    ask.maybe(is_index(at[axis], part.shape[axis]), part.where, *at)


def is_index(value: Any, size: int) -> bool:
    """Whether this is a whole number within a range (arrays of one number, too)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer | np.ndarray):
        return False
    if isinstance(value, np.ndarray) and (value.ndim or value.dtype.kind not in "iu"):
        return False
    return 0 <= int(value) < size


def held(ask: Ask) -> None:
    """A lane holds what the line says, in the order of its registers."""
    rng = ask.rng
    part = part_of(rng)
    lane, warp = rng.randrange(32), rng.randrange(part.lanes // 32)
    found = ask.accepted(part.holds, lane, warp=warp)
    number = rng.randrange(len(found))
    register, element = divmod(number, part.elements)
    axes = {"L": lane, "R": register, "E": element, "W": warp}
    wanted = element_at(str(part.layout), axes)
    expect(
        found[number] == tuple(wanted[name] for name in part.layout.data),
        f"{part}: element {number} of lane {lane} is {found[number]}",
    )
    value = odd(rng)
    right = is_index(value, 32) and not isinstance(value, np.ndarray)
    ask.maybe(right, part.holds, value)


def wrong_shapes(ask: Ask) -> None:
    """Matrices and registers of other shapes and types are refused."""
    rng = ask.rng
    part = part_of(rng)
    shape = list(part.shape)
    shape[rng.randrange(len(shape))] += rng.choice((-1, 1, -len(shape), 100))
    shape = [max(0, size) for size in shape]
    if tuple(shape) != tuple(part.shape):
        ask.refused(part.pack, np.zeros(shape, part.dtype.storage))
    ask.refused(part.pack, odd(rng))
    lanes = part.lanes + rng.choice((-1, 1))
    kind = f"u{part.register_bits // 8}"
    ask.refused(part.unpack, np.zeros((lanes, part.registers), kind))
    wrong = rng.choice([np.float32, np.uint8, np.bool_, np.complex64, "U2"])
    ask.refused(part.unpack, np.zeros((part.lanes, part.registers), wrong))


# ── values ──────────────────────────────────────────────────────────────────


@cache
def values_of(name: str) -> frozenset[float]:
    """Every value of a type of at most 16 bits, found by splitting patterns."""
    of = DTYPES[name]
    found = of.split(np.arange(of.mask + 1, dtype=of.bits_dtype))
    finite = found.special == 0
    numbers = found.significand * 2.0 ** found.exponent.astype(float)
    signed = np.where(found.sign, -numbers, numbers)[finite]
    return frozenset(signed.tolist())


NARROW = [n for n, of in DTYPES.items() if of.bits <= 16 and of.kind != "raw"]
GIVEN = (np.float64, np.float32, np.float16, np.int64, np.int8, np.uint8, np.uint64)


def encoded(ask: Ask) -> None:
    """Numbers that a type has are taken exactly, and others refused."""
    rng = ask.rng
    of = DTYPES[rng.choice(NARROW)]
    kind = rng.choice(GIVEN)
    chosen = [_number(rng, of) for _ in range(rng.randint(1, 4))]
    if issubclass(kind, np.integer):
        info = np.iinfo(kind)
        whole = [int(x) if abs(x) < 2**62 else 0 for x in chosen]
        given = np.array(
            [min(max(x, int(info.min)), int(info.max)) for x in whole], kind
        )
    else:
        with np.errstate(all="ignore"):
            given = np.array(chosen).astype(kind)
    if given.dtype == of.storage and of.kind != "bit":
        return  # bits are taken as they are
    right = all(_has(of, x) for x in given.tolist())
    found = ask.maybe(right, of.encode, given)
    if right:
        same(of.to_float64(found), given.astype(np.float64), f"{of} of {given}")


def _number(rng: random.Random, of: DType) -> float:
    if rng.random() < 0.7:
        return rng.choice(_listed(of.name))
    near = rng.choice(_listed(of.name))
    return near + rng.choice((0.5, 1, -1, 1e-9, near, 1e300))


@cache
def _listed(name: str) -> list[float]:
    return sorted(values_of(name))


def _has(of: DType, number: float) -> bool:
    negative_zero = number == 0 and str(number).startswith("-")
    if of.kind == "scale" and negative_zero:
        return False
    if abs(number) == float("inf"):
        return of.has_infinity
    return number in values_of(of.name)


def tiles(ask: Ask) -> None:
    """Tiles of a matrix are its parts, packed one by one."""
    rng = ask.rng
    part = part_of(rng)
    if len(part.shape) != 2 or part.selectors or hasattr(part, "granularity"):
        return
    rows, cols = rng.randint(0, 2), rng.randint(0, 2)
    cut = [rng.randrange(size) * rng.randrange(2) for size in part.shape]
    tall, wide = rows * part.shape[0] + cut[0], cols * part.shape[1] + cut[1]
    raw = patterns(part.dtype, (tall, wide), rng)
    pad = rng.random() < 0.7
    matrix = part.dtype.decode(raw)
    found = ask.maybe(pad or not any(cut), part.pack_tiles, matrix, pad=pad)
    if found is None:
        return
    again = ask.accepted(part.unpack_tiles, found, (tall, wide))
    same(part.dtype.encode(again), raw, f"{part} of {tall}x{wide} in tiles")
    if rows and cols:
        row, col = rng.randrange(rows), rng.randrange(cols)
        m, n = part.shape
        tile = matrix[row * m : (row + 1) * m, col * n : (col + 1) * n]
        same(found[row, col], part.pack(tile), f"tile {row}, {col} of {part}")


SURFACE = Surface(
    "packing",
    {
        packed: 4,
        looked_up: 8,
        looked_up_oddly: 12,
        held: 6,
        wrong_shapes: 5,
        encoded: 10,
        tiles: 3,
    },
    share=0.24,
)
