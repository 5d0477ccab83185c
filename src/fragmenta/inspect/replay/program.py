"""The program of a record: its registers, its instructions, and when steps are."""

from __future__ import annotations

from collections.abc import Sequence

from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.naming import KernelNames
from fragmenta.engine.tracing.code.effects import CallGraph, read, written
from fragmenta.engine.tracing.trace import Stepped
from fragmenta.inspect.replay.parts import Row
from fragmenta.ptx.module import Function, Module, demangled, type_bits
from fragmenta.ptx.module import Register as PtxRegister
from fragmenta.ptx.sources import source_lines


class Traced:
    """A launch that was recorded: what all parts of its record need."""

    def __init__(self, stepped: Stepped) -> None:
        self.stepped, self.told = stepped, stepped.told
        self.module: Module = stepped.of.module()
        self.about: Row = stepped.of.compiled.traced
        self.names = KernelNames(self.module, stepped.of.compiled)
        self.functions = [self.module.functions[n] for n in self.about["functions"]]
        named = tuple(self.about["functions"]), tuple(self.about["recursive"])
        self.program = CallGraph(self.module, *named)
        pieces = self.told.pieces
        self.first = pieces[0].base if pieces else 0
        """The number in the run of the first step that is kept."""
        self.end = pieces[-1].base + len(pieces[-1].steps) if pieces else 0
        """That of the step after the last one."""
        fault = self.told.fault
        places = len(stepped.of.compiled.places)
        self.fault = fault if fault and 0 <= fault.site < places else None
        """The instruction that could not be done, which is the last step."""
        self.end += self.fault is not None
        self.bases: dict[str, int] = {}
        """The number of the first register of each function."""
        self.registers = self._registers()
        self.sites = self._sites()

    # ── steps ───────────────────────────────────────────────────────────────

    def at(self, step: int) -> int:
        """A step of the run as one of the record; -1 if it is not there.

        What is done when all threads have ended belongs to the last step.
        """
        step = min(step, self.told.total - (self.fault is None))
        return step - self.first if self.first <= step < self.end else -1

    def is_over(self, step: int) -> bool:
        """Whether something was done when all threads had ended."""
        return step > self.told.total - (self.fault is None)

    def since(self, step: int) -> int:
        """The same of something that has an end: before the first step is at it."""
        return -1 if step < 0 else self.at(max(step, self.first))

    def site_of(self, place: int) -> int:
        """The number of an instruction, from one of ``Compiled.places``."""
        name, index = self.stepped.of.compiled.places[place]
        number = 0
        for function in self.functions:
            if function.name == name:
                return number + int(index)
            number += len(function.instructions)
        return -1

    # ── what is small ───────────────────────────────────────────────────────

    def _registers(self) -> list[Row]:
        found: list[Row] = []
        for function in self.functions:
            self.bases[function.name] = len(found)
            known: dict[str, int] = {}
            for each in function.registers:
                known[each.name] = known.get(each.name, 0) + 1
                again = f"@{known[each.name]}" if known[each.name] > 1 else ""
                bits = type_bits(each.type)
                found.append(
                    {
                        "name": each.name + again,
                        "type": each.type,
                        "bits": 1 if each.type == "pred" else max(8, bits),
                        "function": demangled(function.name),
                    }
                )
        return found

    def _ids(self, function: Function, found: Sequence[PtxRegister]) -> list[int]:
        return [self.bases[function.name] + each.number for each in found]

    def _sites(self) -> list[Row]:
        lines = self.module.text.splitlines()
        found = []
        for function in self.functions:
            for index, each in enumerate(function.instructions):
                text = (
                    lines[each.line - 1].strip() if 0 < each.line <= len(lines) else ""
                )
                given = written(self.program, function, index)
                writes = [self.bases[n] + each.number for n, each in given]
                found.append(
                    {
                        "function": demangled(function.name),
                        "index": index,
                        "opcode": each.mnemonic,
                        "text": text,
                        "ptx_line": each.line,
                        "file": each.source.file if each.source else "",
                        "line": each.source.line if each.source else 0,
                        "writes": writes,
                        "reads": self._ids(function, read(function, index)),
                    }
                )
        return found

    def warps(self) -> list[dict[str, int]]:
        """The warps that were recorded."""
        threads = self.stepped.of.shape.threads
        return [
            {
                "block": self.told.blocks[block],
                "warp": warp,
                "threads": min(LANES, threads - warp * LANES),
            }
            for block, warp in self.told.warps
        ]

    def files(self) -> list[dict[str, str]]:
        """The PTX, and the sources that can be read."""
        name = self.module.name or "kernel"
        name = name if name.endswith(".ptx") else f"{name}.ptx"
        found = [{"name": name, "text": self.module.text}]
        for name in dict.fromkeys(each["file"] for each in self.sites):
            text = "".join(source_lines(name, self.stepped.of.language))
            if text:
                found.append({"name": name, "text": text})
        return found
