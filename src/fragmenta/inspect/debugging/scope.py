"""What names mean at a moment: registers, special registers, memories, variables."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.errors import BadCall, UnknownType, nearest, one_of
from fragmenta.inspect.debugging.expressions import Area, area, evaluate, parse, whole
from fragmenta.inspect.debugging.places import MemoryRange
from fragmenta.inspect.debugging.values import LANES, UNWRITTEN, WRITTEN, Value, element

if TYPE_CHECKING:
    from fragmenta.inspect.replay.parts import Memory
    from fragmenta.inspect.replay.recorded import Replay

_LANES = tuple(range(LANES))
_KINDS = ("shared", "local", "tensor")
_AXES = "xyz"


class WarpScope:
    """The names that a warp sees at a moment."""

    def __init__(
        self,
        replay: Replay,
        moment: int,
        warp: int,
        function: str = "",
        numbers: dict[tuple[str, str], int] | None = None,
    ) -> None:
        """``numbers`` is shared by those of one recording: its registers by name."""
        self.replay, self.moment, self.warp = replay, moment, warp
        self._numbers = {} if numbers is None else numbers
        self.function = function or _function(replay, moment, warp)
        self._contents: dict[int, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}

    # ── registers ───────────────────────────────────────────────────────────

    def registers(self) -> dict[str, Value]:
        """The registers that were written, in their types."""
        name = self.function
        types = {e.name: e.type for e in self.replay.registers if e.function == name}
        found = self.replay.registers_at(self.moment - 1, self.warp, name)
        return {
            name: _value(values, types.get(name, "")) for name, values in found.items()
        }

    def specials(self) -> dict[str, Value]:
        """The special registers, as far as they follow from the launch."""
        at = self.replay.warps[self.warp]
        thread = at.warp * LANES + np.arange(LANES)
        found = {
            "%laneid": np.arange(LANES),
            "%warpid": np.full(LANES, at.warp),
        }
        for name, number, sides in (
            ("tid", thread, self.replay.block),
            ("ctaid", np.full(LANES, at.block), self.replay.grid),
        ):
            rest = number
            for axis, size in zip(_AXES, (*sides, 1, 1), strict=False):
                found[f"%{name}.{axis}"] = rest % size
                found[f"%n{name}.{axis}"] = np.full(LANES, size)
                rest = rest // size
        return {
            name: Value(values.astype(np.uint32), "u32", _LANES)
            for name, values in found.items()
        }

    # ── memory ──────────────────────────────────────────────────────────────

    def memories(self) -> list[Area]:
        """The memories of the warp's block, and those of the grid."""
        block = self.replay.warps[self.warp].block
        return [
            self._area(number, each)
            for number, each in enumerate(self.replay.memories)
            if each.block in (-1, block)
        ]

    def _called(self, memory: Memory) -> str:
        """What a memory is called in an expression: a name without spaces."""
        if memory.kind not in _KINDS:
            named = re.fullmatch(r"argument (\d+)(?: \((\w+)\))?", memory.name)
            return (named[2] or f"arg{named[1]}") if named else memory.name
        own = memory.block == self.replay.warps[self.warp].block
        return memory.kind if own else f"{memory.kind}@{memory.block}"

    def _area(self, number: int, memory: Memory) -> Area:
        shared = memory.kind == "shared"
        return Area(
            self._called(memory),
            partial(self._read, number),
            memory.size,
            base=memory.start,
            mask=(1 << RANK_BITS) - 1 if shared else -1,
            number=number,
        )

    def _read(
        self, number: int, start: int, size: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        if number not in self._contents:
            self._contents[number] = self.replay.memory_at(self.moment - 1, number)
        content, states = self._contents[number]
        return content[start : start + size], states[start : start + size]

    def variables(self, of: Area) -> list[str]:
        """The variables of a memory."""
        return [
            name for name, each in self._variables().items() if each.number == of.number
        ]

    def _variables(self) -> dict[str, Area]:
        """All variables by name; an array is called as its memory."""
        found: dict[str, Area] = {}
        for each in self.memories():
            memory = self.replay.memories[each.number]
            for name, offset, size, kind in memory.variables:
                called = each.memory if size == memory.size else name
                known = _known(kind)
                made = Area(called, each.read, size, offset, known, number=each.number)
                found.setdefault(called, made)
        return found

    def memory_name(self, of: Area) -> str:
        """What the memory of an area is called."""
        return self._called(self.replay.memories[of.number])

    # ── names ───────────────────────────────────────────────────────────────

    def named(self, name: str) -> Value | Area:
        """The value of a name; an error says what there is."""
        if name.startswith("%") or self._number(name) is not None:
            return self._register(name)
        variables = self._variables()
        if name in variables:
            return variables[name]
        for number, each in enumerate(self.replay.memories):
            if name in (self._called(each), f"{each.kind}@{each.block}"):
                return self._area(number, each)
        every = [*variables, *(each.memory for each in self.memories())]
        have = one_of(dict.fromkeys(every[:8]), "and") or "nothing"
        every += [each.name for each in self.replay.registers]
        raise BadCall(
            f"no register, variable or memory {name:.40}{nearest(name, every)}; in "
            f"memory there is {have}"
        )

    def _number(self, name: str) -> int | None:
        """The number of a register of the function; not all begin with ``%``."""
        if not self._numbers:
            self._numbers.update(
                ((each.function, each.name), number)
                for number, each in enumerate(self.replay.registers)
            )
        return self._numbers.get((self.function, name))

    def _register(self, name: str) -> Value:
        number = self._number(name)
        if number is not None:
            values = self.replay.register_at(self.moment - 1, self.warp, number)
            if values is None:
                raise BadCall(f"{name} was not written before step {self.moment:,}")
            return _value(values, self.replay.registers[number].type)
        specials = self.specials()
        if name in specials:
            return specials[name]
        every = [*specials, *(each.name for each in self.replay.registers)]
        raise BadCall(f"no register {name:.40}{nearest(name, every)}")

    def span(self, text: str) -> MemoryRange:
        """The bytes that an expression names: a place, or an address."""
        tree = parse(text)
        found = area(tree, self)
        if found is None:
            value = evaluate(tree, self)
            if value.offsets is not None:
                raise BadCall(f"{text}: a place has no type; leave it out")
            found = self._at_address(whole(value, "an address"))
        if found.at is not None:
            raise BadCall(f"{text}: a place is the same for all lanes; add [LANE]")
        name = self.memory_name(found)
        size = max(1, found.size)
        end = f"-{found.start + size - 1:#x}" if size > 1 else ""
        return MemoryRange(
            found.number, found.start, size, f"{name} {found.start:#x}{end}"
        )

    def _at_address(self, address: int) -> Area:
        """The byte at an address, as registers hold it."""
        for each in self.memories():
            memory = self.replay.memories[each.number]
            if memory.kind == "global" and 0 <= address - memory.start < memory.size:
                return self._one(each, address - memory.start)
        for each in self.memories():
            if each.memory == "shared" and 0 <= address & each.mask < each.size:
                return self._one(each, address & each.mask)
        have = [
            f"{each.memory} from {each.base:#x} to {each.base + each.size - 1:#x}"
            for each in self.memories()
        ]
        raise BadCall(
            f"nothing is at address {address:#x}; there is {one_of(have, 'and')}"
        )

    def _one(self, of: Area, offset: int) -> Area:
        return Area(of.memory, of.read, 1, offset, single=True, number=of.number)


def _function(replay: Replay, moment: int, warp: int) -> str:
    """The function of the instruction that a warp runs next, or has run last."""
    steps = replay.steps_of_warp(warp)
    if not len(steps):
        return replay.sites[0].function
    at = min(int(np.searchsorted(steps, moment)), len(steps) - 1)
    return replay.sites[int(replay.steps.site[steps[at]])].function


def _known(kind: str) -> str:
    """The type of a variable, in PTX or in NumPy, as it is shown.

    >>> _known("f32"), _known("int64"), _known("bfloat16"), _known("texref")
    ('f32', 's64', 'bf16', 'b8')
    """
    plain = re.fullmatch(r"(uint|int|float|bfloat)(\d+)", kind)
    if plain:
        kind = {"uint": "u", "int": "s", "float": "f", "bfloat": "bf"}[
            plain[1]
        ] + plain[2]
    small = re.fullmatch(r"float8_(e[45]m[23])\w*", kind)
    kind = small[1] if small else kind
    try:
        element(kind)
    except UnknownType:
        return "b8"
    return kind


def _value(values: NDArray[np.generic], kind: str) -> Value:
    """A register in its type; packed types as PTX declares them are words."""
    known = kind if re.fullmatch(r"pred|[busf]\d+", kind) else f"b{8 * values.itemsize}"
    states = None
    if isinstance(values, np.ma.MaskedArray):
        gone = np.ma.getmaskarray(values).reshape(LANES, -1).any(axis=1)
        states = np.where(gone, UNWRITTEN, WRITTEN).astype(np.uint8)
    return Value(np.ma.getdata(values), known, _LANES, states=states)
