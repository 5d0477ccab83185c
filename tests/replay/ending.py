"""What a recorded cluster really held when it ended, to be compared with its record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.tracing.recorder import StepRecorder
from fragmenta.engine.tracing.trace import Trace
from fragmenta.inspect.replay.recorded import Replay

Bytes = NDArray[np.uint8]


class Ending(NamedTuple):
    """The memory of a cluster at its end."""

    told: Trace
    warps: dict[int, Bytes]
    """The memory of each warp, by its number."""
    memories: dict[tuple[str, int], Bytes]
    registers: dict[str, list[int]]
    """Where each register of each function is in a warp."""


@contextmanager
def endings() -> Iterator[list[Ending]]:
    """All clusters whose record ends here."""
    found: list[Ending] = []
    close = StepRecorder.close

    def closing(self: StepRecorder) -> None:
        cluster = self._cluster
        if cluster is not None:
            state = self._state(cluster, whole=False)
            places = self.machine.launch.compiled.traced["registers"]
            found.append(Ending(self.told, state.warps, state.memories, places))
        close(self)

    StepRecorder.close = closing  # type: ignore[method-assign]
    try:
        yield found
    finally:
        StepRecorder.close = close  # type: ignore[method-assign]


def differences(replay: Replay, ending: Ending, stepped: Any) -> list[str]:
    """Where the record of a run differs from what was there at its end."""
    return [*_registers(replay, ending, stepped), *_memories(replay, ending, stepped)]


def _registers(replay: Replay, ending: Ending, stepped: Any) -> Iterator[str]:
    module, number = stepped.of.module(), 0
    for name in stepped.of.compiled.traced["functions"]:
        for each in module.functions[name].registers:
            place = ending.registers[name][each.number]
            register = replay.registers[number]
            size = 4 if register.bits == 1 else register.bits * 4
            for warp, memory in ending.warps.items():
                shown = replay.value(len(replay) - 1, warp, number)
                if shown is None:
                    continue
                there = memory[place : place + size]
                if register.bits == 1:
                    same = np.packbits(shown, bitorder="little").tobytes()
                elif register.bits == 128:
                    same = np.ascontiguousarray(shown.T).tobytes()
                else:
                    same = np.ascontiguousarray(shown).tobytes()
                if same != there.tobytes():
                    yield f"register {register.name} of warp {warp}"
            number += 1


def _memories(replay: Replay, ending: Ending, stepped: Any) -> Iterator[str]:
    for memory, about in enumerate(replay.memories):
        if about.kind == "global":
            if replay.left_out:  # other blocks write, too
                continue
            slot = about.start >> 36
            there = ending.memories["global", slot]
        else:
            place = ending.told.blocks.index(about.block)
            there = ending.memories[about.kind, place]
        shown, _ = replay.memory_at(len(replay) - 1, memory)
        wrong = np.flatnonzero(shown != there) if there.size else []
        if len(wrong):
            first = int(wrong[0])
            yield f"{len(wrong)} bytes of {about.name}, the first {first:#x}"
