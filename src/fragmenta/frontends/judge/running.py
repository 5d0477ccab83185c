"""One call of a candidate: its launches, as the examiner carries them out.

If it is a *lie*, kernels get other inputs than the candidate has: then results of the
host are those of the inputs that it saw, and results of kernels are not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Any, cast

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.frontends.judge.comparing import Case
from fragmenta.frontends.judge.cost import Cost
from fragmenta.frontends.judge.following import (
    Bytes,
    CandidateLaunch,
    Mask,
    ProcessMemory,
    Swap,
    meanings,
    numbers_in,
    numbers_of,
    texts_of,
    whole_words,
)
from fragmenta.frontends.judge.held import image, leaves
from fragmenta.frontends.judge.origins import Origins
from fragmenta.frontends.judge.roots import Argument
from fragmenta.frontends.judge.wire import Json, Tree

Places = dict[tuple[int, int], tuple[Mask, Bytes]]
"""By launch and region: bytes, and what is put there."""


@dataclass
class Lie:
    """What kernels get instead of what the candidate gives them."""

    swap: Swap
    base: Sequence[CandidateLaunch] = ()
    """The launches with the inputs that the host has."""
    others: Sequence[Sequence[CandidateLaunch]] = ()
    """Those of other calls, whose inputs the swap knows, too."""
    put: Places = field(default_factory=dict)
    """What the host made, and what is put there instead."""
    variables: dict[tuple[int, str], Mask] = field(default_factory=dict)
    """By launch and variable of its module: bytes that count as unwritten."""
    restores: bool = False
    """Whether what is put there is taken away again after the launch."""

    def rows(
        self, step: CandidateLaunch, number: int, region: int
    ) -> list[Bytes] | None:
        """A region in the other calls; None if they made another launch."""
        if not self.others:
            return []
        if number >= len(self.base) or not step.like(self.base[number]):
            return None
        return [each[number].before[region] for each in self.others]


@dataclass
class Running:
    """A call, with its launches so far."""

    case: Case
    memory: ProcessMemory
    lie: Lie | None = None
    steps: list[CandidateLaunch] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    origins: Origins = field(default_factory=Origins)
    places: list[tuple[int, int]] = field(default_factory=list)
    """The address and size of each input."""
    unwritten: list[int] = field(default_factory=list)
    """Regions of the last launch that got what a lie puts there."""
    _at: list[int] = field(default_factory=list)
    _values: list[Json] = field(default_factory=list)
    _given: list[Bytes] = field(default_factory=list)
    _swapped: list[Mask] = field(default_factory=list)
    _hidden: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._meanings = meanings(self.case["inputs"])
        numbers = numbers_in([self.case["inputs"], self.case["init"]])
        self._numbers = {text for each in numbers for text in texts_of(each)}

    def begin(self, places: Tree) -> None:
        """The call begins, with its inputs at these addresses."""
        self.places = [
            (int(at), int(size)) for at, size in cast("list[list[int]]", places)
        ]
        given = leaves(self.case["inputs"])
        if len(self.places) != len(given):
            raise ValueError("the inputs are not those that were sent")
        layout = str(self.case["layout"])
        self.memory.begin(
            [
                (at, image(each, layout)[:size])
                for (at, size), each in zip(self.places, given, strict=True)
            ]
        )

    def ask(self, asked: dict[str, Tree], memory: list[Array]) -> None:
        """A launch is asked for; its memory is that of a lie afterwards."""
        at = cast("list[int]", asked["at"])
        if len(at) != len(memory):
            raise ValueError("a launch does not say where its memory is")
        arguments = cast("dict[str, Json]", asked["arguments"])
        values = cast("list[Json]", arguments["values"])
        form, numbers = numbers_of(values)
        kept = cast("dict[str, bytes]", asked["kept"])
        sizes = [each.size for each in memory]
        about = [asked[each] for each in ("name", "grid", "block", "options")]
        step = CandidateLaunch(
            str(asked["digest"]),
            (*map(repr, about), form, repr(sizes)),
            numbers,
            _types(values, len(memory)),
            [each.copy() for each in memory],
            [],
            [self.memory.known(a, each) for a, each in zip(at, memory, strict=True)],
            self.memory.host_variables(str(asked["digest"]), kept),
            tuple(self._meanings.get(each, frozenset()) for each in numbers),
            [self.memory.old(a, each) for a, each in zip(at, memory, strict=True)],
            self.memory.old_variables(str(asked["digest"]), kept),
        )
        self._values = values
        self._at, self._swapped = at, [np.zeros(n, np.bool_) for n in sizes]
        self.unwritten = []
        if self.lie is not None:
            self._deceive(step, memory)
            self._hidden = self._other_variables(step)
            asked["kept"] = {**kept, **self._hidden}
        self._given = [each.copy() for each in memory]
        self.steps.append(step)

    def _deceive(self, step: CandidateLaunch, memory: list[Array]) -> None:
        assert self.lie is not None
        number = len(self.steps)
        for region, data in enumerate(memory):
            own = step.left[region] & ~self._of_inputs(region, step)
            others = self.lie.rows(step, number, region)
            at = self._at[region]
            made, done = self.lie.swap.region(at, data, own, self.places, others)
            mask, instead = self.lie.put.get((number, region), (None, made))
            if mask is not None and mask.size == data.size:
                made[mask] = instead[mask]
                self.unwritten.append(region)
                done |= mask
            data[:] = made
            # Of inputs themselves, the candidate keeps what it has.
            self._swapped[region] = done & self._of_inputs(region, step)

    def _other_variables(self, step: CandidateLaunch) -> dict[str, bytes]:
        """The variables that the host has written, with the other inputs in copies."""
        assert self.lie is not None
        number, made = len(self.steps), {}
        same = number < len(self.lie.base) and step.like(self.lie.base[number])
        for name, data in step.variables.items():
            rows = [data]
            if same:
                rows += [e[number].variables.get(name, b"") for e in self.lie.others]
            if all(len(each) == len(data) for each in rows):
                held = [np.frombuffer(each, np.uint8) for each in rows]
                made[name] = self.lie.swap.copied(held).tobytes()
        return made

    def restored(self, kept: dict[str, bytes]) -> dict[str, bytes]:
        """The variables as the host has written them, if the launch left them so."""
        given, self._hidden = self._hidden, {}
        host = self.steps[-1].variables
        return {name: host[name] for name in given if kept.get(name) == given[name]}

    def _of_inputs(self, region: int, step: CandidateLaunch) -> Mask:
        """The bytes of a region that are in the memory of an input."""
        size, at = step.before[region].size, self._at[region]
        made = np.zeros(size, np.bool_)
        for start, length in self.places:
            low, high = max(at, start), min(at + size, start + length)
            if low < high:
                made[low - at : high - at] = True
        return made

    def unwritten_variables(self) -> dict[str, Mask]:
        """Bytes of variables that count as unwritten for the last launch."""
        number = len(self.steps) - 1
        given = self.lie.variables if self.lie is not None else {}
        return {name: mask for (at, name), mask in given.items() if at == number}

    def wrote(self, name: str) -> None:
        """The last launch wrote to an argument, perhaps what was there before."""
        found = re.match(r"argument (\d+)", name)
        if found is None:
            return
        value = self._values[int(found[1])]
        arrays = _arrays([value])
        if len(arrays) != 1:
            return
        _, region, offset, kind, shape, strides = cast("list[Any]", arrays[0])
        if kind.startswith("V") or min(strides, default=0) < 0:
            return
        size = np.dtype(kind).itemsize
        at = self._at[region] + offset
        end = at + size + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        for number, (start, length) in enumerate(self.places):
            if start <= at and end <= start + length:
                self.origins.inputs_changed.add(number)

    def arguments(self) -> list[Argument]:
        """What the last launch got for each parameter."""
        return [self._argument(each) for each in self._values]

    def _argument(self, value: Json) -> Argument:
        kind, what, *_ = cast("list[Any]", value)
        if kind in ("array", "pointer", "struct"):
            return Argument(pointer=kind != "struct")
        given = str(what) in self._numbers or bool(self._meanings.get(str(what)))
        if kind == "bytes":
            return Argument(
                int.from_bytes(bytes.fromhex(str(what)), "little"), False, given
            )
        bits = what if isinstance(what, int) else hash(what)
        return Argument(int(bits), False, given)

    def refused(self) -> None:
        """The last launch was not carried out, so it is none."""
        if len(self.steps) > len(self.origins.launches):
            self.steps.pop()

    def done(self, digest: str, memory: list[Array], kept: dict[str, bytes]) -> None:
        """The launch was carried out; the candidate does not see what was swapped."""
        step = self.steps[-1]
        lies = self.lie is not None
        for region, data in enumerate(memory):
            changed = data != self._given[region]
            # A byte of a word that is written may be the same by chance.
            back = self._swapped[region] & whole_words(~changed, self._at[region])
            if self.lie is not None and self.lie.restores:
                mask, _ = self.lie.put.get((len(self.steps) - 1, region), (back, data))
                back |= mask if mask.size == back.size else False
            data[back] = step.before[region][back]
            after = data.copy()
            step.after.append(after)
            # The other inputs in copies are not there because of the candidate, either.
            left = after != step.before[region] if lies else changed
            self.memory.leave(self._at[region], after, left)
            if self.case["layout"] == "contiguous":
                touched = self.memory.touched(self._at[region], changed)
                self.origins.inputs_changed |= touched
        self.memory.leave_variables(digest, kept)
        self.origins.add(step.before, step.after)


def _types(values: list[Json], count: int) -> list[str]:
    """The type of the elements of each region, as the first array in it has it."""
    made = [""] * count
    for each in _arrays(values):
        region, kind = cast("int", each[1]), str(each[3])
        if not made[region]:
            made[region] = kind
    return [_type(each) for each in made]


def _type(kind: str) -> str:
    """The type of an array's elements; that of another package is sent as bytes."""
    if kind.endswith("V2"):
        return "bfloat16"
    return "uint8" if "V" in kind or not kind else kind


def _arrays(values: Json) -> list[list[Json]]:
    """The arrays among the arguments of a launch, also those of pointers."""
    if not isinstance(values, list):
        return []
    if values[:1] == ["array"]:
        return [values]
    return [found for each in values for found in _arrays(each)]
