"""The steps of a recording that give NaN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fragmenta.inspect.replay.parts import Site
    from fragmenta.inspect.replay.recorded import Replay

CHUNK = 1 << 14
"""Steps that are looked at together."""


class Float(NamedTuple):
    """The bits of a float: its exponent and its fraction are where NaN shows."""

    bits: int
    infinity: int
    """The bits of infinity; NaN are those above, without the sign."""


FLOATS = {
    "f16": Float(16, 0x7C00),
    "bf16": Float(16, 0x7F80),
    "f32": Float(32, 0x7F800000),
    "f64": Float(64, 0x7FF0000000000000),
}


def result_float(site: Site) -> Float | None:
    """The float that an instruction gives: its first type names the result."""
    for word in site.opcode.split(".")[1:]:
        base = word.partition("x")[0]
        if base in FLOATS:
            return FLOATS[base]
        if base[:1] in "bus" and base[1:].isdecimal():
            return None
    return None


def steps_with_nan(replay: Replay) -> NDArray[np.int64]:
    """The steps that give NaN in a lane, in their order.

    Stores and instructions without a float as their result give none.
    """
    columns = replay.columns
    found: list[NDArray[np.int64]] = []
    for number, site in enumerate(replay.sites):
        kind = result_float(site)
        if kind is None or not site.writes:
            continue
        steps = np.flatnonzero(columns["site"] == number)
        for first in range(0, len(steps), CHUNK):
            some = steps[first : first + CHUNK]
            found.append(some[_gives_nan(replay, site, kind, some)])
    return np.unique(np.concatenate([np.empty(0, np.int64), *found]))


def _gives_nan(
    replay: Replay, site: Site, kind: Float, steps: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which of the steps of an instruction give NaN in a lane that is active."""
    given = np.zeros(len(steps), bool)
    for _, found in _by_register(replay, site, kind, steps):
        given |= found.any(axis=1)
    return given


def _by_register(
    replay: Replay, site: Site, kind: Float, steps: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """For each register that is given: its name, and where it is NaN."""
    columns = replay.columns
    start = columns["at"][steps].astype(np.int64)
    lanes = columns["lanes"][steps][:, None] >> np.arange(32, dtype=np.uint32) & 1
    for number in site.writes:
        register = replay.registers[number]
        width = register.words
        if register.bits >= kind.bits and register.bits in (16, 32, 64):
            words = columns["words"][start[:, None] + np.arange(width)]
            yield register.name, _nan(words, kind, register.bits) & lanes.astype(bool)
        start = start + width


def nan_registers(replay: Replay, step: int) -> list[tuple[str, int]]:
    """The registers that a step gives NaN, and a mask of the lanes of each."""
    site = replay.sites[int(replay.steps.site[step])]
    kind = result_float(site)
    if kind is None:
        return []
    every = _by_register(replay, site, kind, np.array([step]))
    return [
        (name, int(np.packbits(found[0], bitorder="little").view(np.uint32)[0]))
        for name, found in every
        if found.any()
    ]


def _nan(words: NDArray[np.uint32], kind: Float, bits: int) -> NDArray[np.bool_]:
    """For each step and lane, whether one of the floats in a register is NaN."""
    whole = np.ascontiguousarray(words)
    if bits == 64:
        whole = whole.view(np.uint64)
    parts = whole.reshape(len(words), 32, 1).view(f"u{kind.bits // 8}")
    if bits == 16:  # a word for each lane, of which the lower half counts
        parts = parts[..., :1]
    magnitude = parts & parts.dtype.type((1 << kind.bits - 1) - 1)
    found: NDArray[np.bool_] = (magnitude > kind.infinity).any(axis=-1)
    return found
