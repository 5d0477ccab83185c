"""The memories of a record: their names and variables, and what they held at first."""

from __future__ import annotations

import numpy as np

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES, SHARED_START
from fragmenta.engine.simt.naming import plain
from fragmenta.engine.tracing.trace import Where
from fragmenta.inspect.replay.parts import Array, Columns, Row, Value
from fragmenta.inspect.replay.program import Traced
from fragmenta.ptx.placement import place_shared

TENSOR_BYTES = 128 * 512 * 4


class Memories:
    """The memories of a recorded launch."""

    def __init__(self, of: Traced) -> None:
        self.of, self.told = of, of.told
        self.numbers: dict[Where, int] = {}
        """The number of each memory."""
        self.rows = self._memories()

    def _memories(self) -> list[Row]:
        found: list[Row] = []
        places = {each.slot: each for each in self.of.stepped.of.places}

        def add(where: Where, **about: Value) -> None:
            self.numbers[where] = len(found)
            found.append({"variables": [], "block": -1, "start": 0, **about})

        for state in self.told.states:
            for (kind, number), data in state.memories.items():
                where = kind, number
                if where in self.numbers:
                    continue
                if kind == "global":
                    of = places[number].elements
                    size = [[places[number].name, 0, data.size, of.type]] if of else []
                    first = number << layout.SLOT_BITS
                    name = places[number].name
                    about = {"name": name, "variables": size, "start": first}
                    add(where, kind=kind, size=data.size, **about)
                    continue
                block = self.told.blocks[number]
                size_ = TENSOR_BYTES if kind == "tensor" else data.size
                shared = self._variables(data.size) if kind == "shared" else []
                name = f"{kind} memory of block {block}"
                add(
                    where,
                    name=name,
                    kind=kind,
                    block=block,
                    size=size_,
                    variables=shared,
                )
        return found

    def _variables(self, size: int) -> list[list[Value]]:
        """The variables in shared memory."""
        kernel = self.of.module.functions[self.of.stepped.of.compiled.kernel]
        placed = place_shared(self.of.module, kernel, SHARED_START)
        every = [
            (self.of.module.functions[function].variables[name], start)
            for (function, name), start in placed.inner.items()
        ]
        every += [
            (self.of.module.variables[name], start)
            for name, start in placed.module.items()
        ]
        return [
            [
                plain(each.name),
                start,
                each.size if each.elements is not None else size - start,
                each.type,
            ]
            for each, start in sorted(every, key=lambda pair: pair[1])
            if start < size
        ]

    def initial(self) -> Columns:
        """What memories held before the first step, and which bytes were written."""
        images: list[Array] = []
        masks: list[Array] = []
        for (kind, number), _ in sorted(self.numbers.items(), key=lambda e: e[1]):
            state = next(e for e in self.told.states if (kind, number) in e.memories)
            data = state.memories[kind, number]
            if not data.size and kind == "tensor":
                words = np.full(TENSOR_BYTES // 4, layout.POISON, np.uint32)
                data = words.view(np.uint8)
            known = kind == "global" or not state.whole
            images.append(data)
            masks.append(np.full(data.size, known))
        none = np.empty(0, np.uint8)
        defined = np.concatenate([none.astype(bool), *masks])
        found: Columns = {
            "initial": np.concatenate([none, *images]),
            "defined": np.packbits(defined, bitorder="little"),
        }
        return found

    def local_size(self) -> int:
        """Bytes of local memory of a thread."""
        warps = self.of.stepped.of.shape.warps
        for state in self.told.states:
            for (kind, _), data in state.memories.items():
                if kind == "local":
                    return int(data.size) // (warps * LANES)
        return 0
