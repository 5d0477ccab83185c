"""CUDA functions that repack a weight, load it and convert it.

The text is CUDA C++ that needs no header.  All indices in it are computed from the
layouts of a :class:`~fragmenta.reference.weights.shuffling.Shuffle`; sizes are
constants.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from fragmenta.errors import BadCall, LayoutError
from fragmenta.reference.registers.layout import Digit, Layout
from fragmenta.reference.weights.convert import Conversion, conversion
from fragmenta.reference.weights.orders import WORD

if TYPE_CHECKING:
    from fragmenta.reference.weights.shuffling import Shuffle

_VECTORS = {16: "uint4", 8: "uint2", 4: "unsigned"}
"""The types of loads by their bytes, the widest first."""
_DEVICE = "__device__ __forceinline__ void"
_THREADS = 256


def repack(order: Shuffle, source: Shuffle) -> str:
    """A kernel that brings the words of ``source`` into another order."""
    per = WORD // order.bits
    words = prod(order.shape) // per
    both = Layout.parse("offset = slot* word*", word=words, slot=per)
    from_both = Layout.parse(
        "offset = from_slot* from_word*", from_word=words, from_slot=per
    )
    moved = both.then(order.layout).to(from_both.then(source.layout))
    statements = str(moved.to_cuda("holds")).replace("\n", "\n        ")
    shift, mask = f"{order.bits} * from_slot", f"{(1 << order.bits) - 1:#x}"
    value = f"((source[from_word] >> ({shift})) & {mask})"
    if per == 1:
        value = "source[from_word]"
    size = "x".join(map(str, order.shape))
    return f"""\
// Repacks a weight of {size}, {order.bits} bits: {words} words, one in each thread.
// from: {_called(source)}
// to:   {_called(order)}
// repack<<<{-(-words // _THREADS)}, {_THREADS}>>>(source, stored);
extern "C" __global__ void repack(const unsigned* source, unsigned* stored)
{{
    int word = blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= {words})
        return;
    unsigned packed = 0;
#pragma unroll
    for (int slot = 0; slot < {per}; ++slot) {{
        {statements}
        packed |= {value} << ({order.bits} * slot);
    }}
    stored[word] = packed;
}}"""


def _called(order: Shuffle) -> str:
    return f"{order.name} of {order.op}" if order.name in "AB" else order.name


# ── loads ───────────────────────────────────────────────────────────────────


def load(order: Shuffle) -> str:
    """A function by which a lane loads its words of a block."""
    _check_instruction(order, "load")
    fragment = order.fragment
    assert fragment is not None
    count = order.load_bytes * 8 // WORD
    address = str(_address(order).to_cuda("holds")).replace("\n", "\n    ")
    size = next(size for size in _VECTORS if order.load_bytes % size == 0)
    loads = order.load_bytes // size
    lines = []
    for each in range(loads):
        at = "at" if loads == 1 else f"{loads} * at{f' + {each}' if each else ''}"
        vector = _VECTORS[size]
        loaded = f"reinterpret_cast<const {vector}*>(stored)[{at}]"
        lines.append(f"    {vector} part{each} = {loaded};")
        names = [""] if size == 4 else [f".{name}" for name in "xyzw"[: size // 4]]
        lines += [
            f"    words[{each * len(names) + word}] = part{each}{name};"
            for word, name in enumerate(names)
        ]
    steps = [_count(order.k_steps, "step"), _count(order.n_steps, "tile")]
    blocks = _block(order)
    body = "\n".join(lines)
    return f"""\
// What a lane loads at once: {order.load_bytes} bytes of {order.operand}, for \
{steps[0]} of k and {steps[1]} of n.
// k_block counts {blocks["k"]} {_side(order, "k")} of k, n_block counts {blocks["n"]} \
{_side(order, "n")} of n.
{_DEVICE} load_words(
    {_parameters(order)},
    unsigned (&words)[{count}])
{{
    {address}
{body}
}}"""


def _check_instruction(order: Shuffle, what: str) -> None:
    if order.op is None:
        raise BadCall(
            f"{order.name} follows no instruction, so no lane has words of its own to "
            f"{what}; shuffle the weight for an operand, with source={order.name!r}"
        )
    later = order.memory.coordinates[0][1][len(order.run) :]
    parted = any(digit.axis in "ER" for digit in later)
    if parted or order.load_bytes % 4:
        raise LayoutError(
            f"in the order {order.natural}, {order.load_bytes} bytes of a lane are "
            "side by side; they must be whole words with all registers of an "
            "instruction, so put E, R and some digits of Y and X before L"
        )
    for coordinate, axis in order.tile_axes.items():
        reached = 1
        for digit in sorted(each for each in order.run if each.axis == axis):
            if digit.stride != reached:
                raise LayoutError(
                    f"in the order {order.natural}, a load does not bring neighbouring "
                    f"tiles of {coordinate}; the digits of {axis} before L must be its "
                    "lowest"
                )
            reached *= digit.size


def _address(order: Shuffle) -> Layout:
    """The number of a lane's run, by block and lane."""
    digits = order.memory.coordinates[0][1][len(order.run) :]
    steps = {"k": order.k_steps, "n": order.n_steps}
    renamed, sizes = [], dict(order.memory.axes)
    blocks = {}
    for coordinate, axis in order.tile_axes.items():
        blocks[axis] = (f"{coordinate}_block", steps[coordinate])
    for digit in digits:
        name, step = blocks.get(digit.axis, (digit.axis, 1))
        renamed.append(Digit(name, digit.stride // step, digit.size))
    axes = [(name, sizes[axis] // step) for axis, (name, step) in blocks.items()]
    axes = sorted(axes) + [(a, sizes[a]) for a in "WL" if a in sizes]
    return Layout((("at", tuple(renamed)),), tuple(axes))


def _parameters(order: Shuffle) -> str:
    warp = "int warp, " if "W" in dict(order.memory.axes) else ""
    return f"const unsigned* stored, int k_block, int n_block, {warp}int lane"


def _block(order: Shuffle) -> dict[str, int]:
    """The elements of k and of n in a block."""
    fragment = order.fragment
    assert fragment is not None
    by_axis = dict(zip("YX", fragment.shape, strict=True))
    axes = order.tile_axes
    return {
        "k": order.k_steps * by_axis[axes["k"]],
        "n": order.n_steps * by_axis[axes["n"]],
    }


def _side(order: Shuffle, coordinate: str) -> str:
    return "rows" if order.layout.data[0] == coordinate else "columns"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# ── registers ───────────────────────────────────────────────────────────────


def dequantize(order: Shuffle, to: str | None, zero: int | None) -> str:
    """A function that makes registers of one word."""
    found = _conversion(order, to, zero)
    _register_slots(order)
    return found.function()


def fragments(order: Shuffle, to: str | None, zero: int | None) -> str:
    """The functions by which a lane gets the registers of a block."""
    _check_instruction(order, "load")
    assert order.fragment is not None
    slots = _register_slots(order)
    whole = order.bits == order.container
    if whole and (to, zero) != (None, None):
        raise BadCall(
            f"elements of {order.bits} bits are those of the registers; there is "
            "nothing to convert, so to and zero cannot be given"
        )
    parts = [] if whole else [_conversion(order, to, zero).function()]
    parts.append(load(order))
    letter = order.operand.lower()
    lines = []
    for word, registers in enumerate(slots):
        named = [f"{letter}[{k}][{n}][{r}]" for k, n, r in registers]
        if whole:
            lines.append(f"    {named[0]} = words[{word}];")
        else:
            listed = f"dequantize(words[{word}], {', '.join(named)});"
            lines += _wrapped(listed)
    count = order.load_bytes * 8 // WORD
    body = "\n".join(lines)
    array = f"[{order.k_steps}][{order.n_steps}][{order.fragment.registers}]"
    warp = "warp, " if "W" in dict(order.memory.axes) else ""
    parts.append(f"""\
// The registers of {order.operand} for a block, {letter}[step of k][tile of n]\
[register], as
// {order.op} takes them.
{_DEVICE} load_fragments(
    {_parameters(order)},
    unsigned (&{letter}){array})
{{
    unsigned words[{count}];
    load_words(stored, k_block, n_block, {warp}lane, words);
{body}
}}""")
    return "\n\n".join(parts)


def _wrapped(call: str) -> list[str]:
    """A call on lines of at most 80 columns."""
    words = call.split(", ")
    lines = ["    "]
    for position, word in enumerate(words):
        end = "" if position == len(words) - 1 else ","
        if len(lines[-1]) + len(word) + 2 > 80:
            lines.append("        ")
        lines[-1] += f"{'' if lines[-1].isspace() else ' '}{word}{end}"
    return lines


def _conversion(order: Shuffle, to: str | None, zero: int | None) -> Conversion:
    fragment = order.fragment
    operand = fragment.dtype.name if fragment else "f16"
    return conversion(order.bits, operand, to, zero)


def _register_slots(order: Shuffle) -> list[list[tuple[int, int, int]]]:
    """The registers of each word, by step of k, tile of n and register.

    The elements of a register must be as far apart in the word as in the register.
    """
    per, apart = WORD // order.bits, order.container // order.bits
    elements = WORD // order.container
    natural = np.array(order.nibbles).reshape(elements, apart)
    if order.op is None:
        wrong = (natural // elements != natural[:1] // elements).any()
        wrong = wrong or (natural % elements != np.arange(elements)[:, None]).any()
        if wrong:
            raise BadCall(_APART.format(order.name, order.container, order.nibbles))
        return []
    count = order.load_bytes * 8 // WORD
    offsets = np.arange(count * per).reshape(count, elements, apart)
    places = order.memory.inverse().element(offset=offsets)
    found = {name: np.broadcast_to(at, offsets.shape) for name, at in places.items()}
    for axis, value in found.items():
        wanted = value[:, :1, :]
        if axis == "E":
            wanted = np.arange(elements)[None, :, None]
        if not (value == wanted).all():
            raise BadCall(_APART.format(order.name, order.container, order.nibbles))
    axes = [order.tile_axes["k"], order.tile_axes["n"], "R"]
    tables = [found[axis][:, 0, :] for axis in axes]
    return [
        list(zip(*(table[word].tolist() for table in tables), strict=True))
        for word in range(count)
    ]


_APART = (
    "in the order of {}, elements of one register are not {} bits apart in a word, "
    "whose slots hold {}; nibbles='fast' puts them there"
)
