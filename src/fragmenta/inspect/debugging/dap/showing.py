"""What an editor shows of a moment: frames, scopes, variables and memory.

References are numbers that hold until the debugger moves.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fragmenta.errors import BadCall, Error
from fragmenta.inspect.debugging import status
from fragmenta.inspect.debugging.debugger import Debugger
from fragmenta.inspect.debugging.expressions import Area, evaluate
from fragmenta.inspect.debugging.moments import Frame
from fragmenta.inspect.debugging.scope import WarpScope
from fragmenta.inspect.debugging.values import Value

Fields = dict[str, Any]
Children = Callable[[int, int | None], list[Fields]]
"""Variables: from a number on, so many or all."""
MOST_READ = 1 << 20


class Showing:
    """The frames and variables of one moment."""

    def __init__(self, debugger: Debugger) -> None:
        self.debugger = debugger
        self._children: list[Children] = []
        self._frames: list[tuple[int, Frame]] = []
        self._areas: list[str] = []
        """What memory is called, by the numbers in references."""

    def forget(self) -> None:
        """Drop all references: the debugger moves."""
        self._children.clear()
        self._frames.clear()

    # ── frames ──────────────────────────────────────────────────────────────

    def threads(self) -> list[Fields]:
        """The warps."""
        return [
            {"id": number + 1, "name": self.debugger.warp_name(number)}
            for number in range(len(self.debugger.replay.warps))
        ]

    def frames(self, thread: int) -> list[Fields]:
        """The functions of a warp, and below the innermost its PTX."""
        warp = self.warp(thread)
        at = self.debugger
        found = at.frames(warp)
        ended = not found
        mine = at.moments.of_warp(warp)
        if ended and len(mine):
            found = at.moments.frames(warp, int(mine[-1]))
        shown = []
        for depth, each in enumerate(found):
            places = at.lines.frames[int(at.moments.sites[each.step])]
            if depth == 0 and warp == at.warp and not ended:  # as deep as is in view
                places = places[: at.level_of(each.step) + 1]
            *inner, own = reversed(places)
            name = each.site.function + (" (ended)" if ended else "")
            shown += [self._frame(warp, each, "inlined", *place) for place in inner]
            shown.append(self._frame(warp, each, name, *own))
            if depth == 0 and each.site.file:
                text = status.short(each.site.text, 60)
                ptx = at.lines.ptx_name, each.site.ptx_line
                shown.append(self._frame(warp, each, text, *ptx))
        return shown

    def _frame(
        self, warp: int, frame: Frame, name: str, file: str, line: int
    ) -> Fields:
        self._frames.append((warp, frame))
        return {
            "id": len(self._frames),
            "name": name,
            "source": self.source(file),
            "line": line,
            "column": 1,
        }

    def source(self, file: str) -> Fields:
        """A file: its path if it is here, else a reference to its recorded text."""
        path = Path(file)
        found: Fields = {"name": path.name}
        try:
            here = path.is_file()
        except (OSError, ValueError):
            here = False
        if here:
            found["path"] = str(path.resolve())
        else:
            found["sourceReference"] = self.debugger.lines.number(file)
        return found

    def warp(self, thread: int) -> int:
        """The warp of a thread."""
        if not 1 <= thread <= len(self.debugger.replay.warps):
            have = len(self.debugger.replay.warps)
            raise BadCall(f"threads are 1 to {have}; given {thread}")
        return thread - 1

    def names(self, frame: int | None) -> WarpScope:
        """What names mean in a frame, or for the warp in view."""
        at = self.debugger
        if frame is None:
            return at.names
        if not 1 <= frame <= len(self._frames):
            raise BadCall(f"frame {frame} is not of this stop")
        warp, found = self._frames[frame - 1]
        return at.names_at(at.moment, warp, found.site.function)

    # ── variables ───────────────────────────────────────────────────────────

    def scopes(self, frame: int) -> list[Fields]:
        """What there is to see in a frame."""
        at, names = self.debugger, self.names(frame)
        registers = names.registers()
        plain = {k: v for k, v in registers.items() if v.type != "pred"}
        predicates = {k: v for k, v in registers.items() if v.type == "pred"}
        found = [
            ("Registers", "registers", self._values(plain), False),
            ("Predicates", "", self._values(predicates), False),
            ("Special registers", "", self._values(names.specials()), False),
        ]
        for area in names.memories():
            kind = at.replay.memories[area.number].kind
            name = area.memory if kind in area.memory else f"{kind} {area.memory}"
            found.append((f"{name} memory", "", self._memory(names, area), True))
        found += [
            ("Units", "", self._texts(status.units(at)), False),
            ("Barriers", "", self._texts(status.barriers(at)), False),
        ]
        return [
            {
                "name": name,
                "variablesReference": self._reference(children),
                "expensive": expensive,
                **({"presentationHint": hint} if hint else {}),
            }
            for name, hint, children, expensive in found
        ]

    def _reference(self, children: Children) -> int:
        self._children.append(children)
        return len(self._children)

    def variables(self, reference: int, start: int, count: int | None) -> list[Fields]:
        """What a reference stands for."""
        if not 1 <= reference <= len(self._children):
            raise BadCall(f"reference {reference} is not of this stop")
        return self._children[reference - 1](start, count)

    def _values(self, values: dict[str, Value]) -> Children:
        def children(start: int, count: int | None) -> list[Fields]:
            return [self.variable(name, each) for name, each in values.items()]

        return children

    def _texts(self, texts: list[tuple[str, str]]) -> Children:
        def children(start: int, count: int | None) -> list[Fields]:
            return [
                {"name": name, "value": value, "variablesReference": 0}
                for name, value in texts
            ]

        return children

    def variable(self, name: str, value: Value) -> Fields:
        """A value with its lanes or elements below it."""
        texts = value.texts
        found: Fields = {
            "name": name,
            "value": summary(value),
            "type": value.type or "number",
            "variablesReference": 0,
            "evaluateName": name,
        }
        if len(texts) > 1:
            found["variablesReference"] = self._reference(_items(value, name))
            found["indexedVariables"] = len(texts)
        return found

    def _memory(self, names: WarpScope, area: Area) -> Children:
        """The variables of a memory, and all of its bytes."""

        def children(start: int, count: int | None) -> list[Fields]:
            found = []
            for name in names.variables(area):
                value = evaluate(name, names)
                assert value.offsets is not None
                shown = self.variable(name, value)
                place = int(value.offsets[0])
                shown["memoryReference"] = self.reference_to(area.memory, place)
                found.append(shown)
            return [*found, self._bytes(area)]

        return children

    def _bytes(self, area: Area) -> Fields:
        return {
            "name": "bytes",
            "value": f"{area.size:,} bytes",
            "variablesReference": 0,
            "memoryReference": self.reference_to(area.memory, 0),
            "evaluateName": area.memory,
        }

    # ── memory ──────────────────────────────────────────────────────────────

    def reference_to(self, memory: str, offset: int) -> str:
        """A reference to a byte of memory."""
        return f"{memory}:{offset:#x}"

    def read_memory(self, reference: str, offset: int, count: int) -> Fields:
        """Bytes of memory, in base 64."""
        name, _, place = reference.rpartition(":")
        try:
            first = int(place, 0) + offset
            area = self.debugger.names.named(name)
        except (ValueError, Error) as why:
            raise BadCall(f"no memory {reference:.60}: {why}") from None
        if not isinstance(area, Area) or not 0 <= count <= MOST_READ:
            raise BadCall(f"{count} bytes of {reference:.60} cannot be read")
        start = max(0, min(first, area.size))
        content, _ = area.read(start, min(count, area.size - start))
        return {
            "address": hex(start),
            "data": base64.b64encode(content.tobytes()).decode(),
            "unreadableBytes": count - len(content),
        }


def summary(value: Value, width: int = 60) -> str:
    """A value in one line.

    >>> import numpy as np
    >>> summary(Value(np.arange(32), "u32", tuple(range(32))), 16)
    '0, 1, 2, 3, 4, …'
    >>> summary(Value(np.zeros(32), "f64", tuple(range(32))))
    '0 in all lanes'
    """
    texts = value.texts
    if len(texts) == 1:
        return texts[0]
    if value.lanes and len(set(texts)) == 1:
        where = "all" if len(texts) == 32 else len(texts)
        return f"{texts[0]} in {where} lanes"
    return status.short(", ".join(texts), width)


def _items(value: Value, name: str) -> Children:
    """Lanes, or elements of memory."""

    def children(start: int, count: int | None) -> list[Fields]:
        texts = value.texts
        stop = len(texts) if count is None else min(len(texts), start + count)
        labels = value.lanes or range(len(texts))
        return [
            {
                "name": f"[{labels[index]}]",
                "value": texts[index],
                "type": value.type or "number",
                "variablesReference": 0,
                "evaluateName": f"({name})[{labels[index]}]",
            }
            for index in range(start, stop)
        ]

    return children
