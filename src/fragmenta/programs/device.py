"""The device of one process: its memory, its modules, and its launches.

A question of the client is a method here.  A launch is run in full before it is
answered: work of several streams is done in the order in which the program asks for it,
which is one of the orders that CUDA allows.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import date

import numpy as np
from numpy.typing import NDArray

from fragmenta import __version__
from fragmenta.errors import Error, KernelError, LimitReached
from fragmenta.isa.table import read
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.options import Watch
from fragmenta.launch.result import Result
from fragmenta.programs.asked import Options
from fragmenta.programs.memory import Kind, Memory, NoMemory
from fragmenta.programs.modules import Program, Skipped, facts, of_tiles
from fragmenta.programs.recording import Part, Record, Shape
from fragmenta.programs.told import Launched, Recorded, Refused, Tell
from fragmenta.programs.verbs import Answer, Request, Verb
from fragmenta.progress import Progress, ignore_progress
from fragmenta.ptx.checking.problem import problems_of
from fragmenta.ptx.module import demangled
from fragmenta.shared.tensor_map import TYPES, Im2col, TensorMap
from fragmenta.shared.tensor_map_rules import FILLS, INTERLEAVES, PROMOTIONS, SWIZZLES
from fragmenta.simt import layout
from fragmenta.simt.arguments import Received, Segment

INVALID_VALUE, NO_MEMORY, INVALID_IMAGE, NO_IMAGE = 1, 2, 218, 209
NOT_FOUND, NOT_SUPPORTED, FAILED = 500, 801, 719
FAULTS = {
    "bounds": 700,
    "read_only": 700,
    "alignment": 716,
    "assert": 710,
    "limit": 702,
    "deadlock": 702,
    "unsupported": NOT_SUPPORTED,
}
"""The error of CUDA for each kind of fault; 719 for all others."""


class Failure(Exception):
    """A question that is answered with an error of CUDA."""

    def __init__(self, code: int, why: str = "") -> None:
        super().__init__(why)
        self.code = code


class Device:
    """The device of one process."""

    def __init__(
        self, options: Options, tell: Tell, progress: Progress = ignore_progress
    ) -> None:
        self.options, self.tell, self.progress = options, tell, progress
        self._start()

    def _start(self) -> None:
        self.memory = Memory(self.options.card.capacity)
        self.skipped = Skipped()
        self.programs: dict[int, Program] = {}
        self.kernels: dict[int, tuple[Program, Kernel]] = {}
        self._numbers = 0
        self._recorded: dict[str, int] = {}

    def close(self) -> None:
        """Free everything."""
        self.memory.close()
        for each in self.programs.values():
            each.close()

    def answer(self, request: Request) -> Answer:
        """Answer a question; what is wrong with it is an error of CUDA, with words."""
        handler = _HANDLERS[request.verb]
        try:
            return handler(self, request)
        except Failure as why:
            return Answer(data=str(why).encode(), status=why.code)
        except Error as why:
            return Answer(data=str(why).encode(), status=INVALID_VALUE)

    # ── the card ────────────────────────────────────────────────────────────

    def hello(self, _: Request) -> Answer:
        """What the client keeps about the card."""
        chosen = self.options.card
        name = chosen.name.encode() + b"\0"
        numbers = chosen.attributes()
        old, new = chosen.properties(12), chosen.properties(13)
        table = struct.pack(f"<{len(numbers)}i", *numbers)
        sizes = (len(name), len(old), len(new), chosen.capacity)
        return Answer(sizes, name + table + old + new)

    def reset(self, _: Request) -> Answer:
        """Forget all memory and all modules."""
        self.close()
        self._start()
        return Answer()

    def refused(self, request: Request) -> Answer:
        """Note a function that is not there."""
        self.tell(Refused(request.data.decode("utf-8", "replace")))
        return Answer()

    # ── memory ──────────────────────────────────────────────────────────────

    def allocate(self, request: Request) -> Answer:
        """Allocate memory; the client gets its file."""
        size, kind = request.words[:2]
        try:
            made = self.memory.allocate(size, Kind(kind))
        except NoMemory as why:
            raise Failure(NO_MEMORY, str(why)) from why
        return Answer((made.address,), file=made.memory.file)

    def free(self, request: Request) -> Answer:
        """Free memory."""
        address, taken = request.words[:2]
        if not self.memory.free(address, bool(taken)):
            raise Failure(INVALID_VALUE)
        return Answer()

    # ── modules ─────────────────────────────────────────────────────────────

    def load(self, request: Request) -> Answer:
        """Load a module."""
        try:
            target, parts = self.options.arithmetic, request.words[0]
            made = Program(request.data, target, self.skipped, parts)
        except Error as why:
            code = INVALID_IMAGE if type(why).__name__ == "PtxSyntaxError" else NO_IMAGE
            raise Failure(code, str(why)) from why
        self._numbers += 1
        self.programs[self._numbers] = made
        return Answer((self._numbers,))

    def unload(self, request: Request) -> Answer:
        """Unload a module."""
        if self.programs.pop(request.words[0], None) is None:
            raise Failure(400)
        return Answer()

    def _program(self, number: int) -> Program:
        if number not in self.programs:
            raise Failure(400)
        return self.programs[number]

    def kernel(self, request: Request) -> Answer:
        """A kernel by name; without a name, how many there are."""
        program = self._program(request.words[0])
        if request.words[1]:
            return Answer((0, len(program.loaded.kernels)))
        found = program.kernel(request.data.decode("utf-8", "replace"))
        if found is None:
            raise Failure(NOT_FOUND)
        self._numbers += 1
        self.kernels[self._numbers] = program, found
        offsets, sizes, numbers = facts(found)
        data = struct.pack(f"<{2 * len(sizes)}I", *offsets, *sizes)
        return Answer((self._numbers, len(sizes), *numbers), data)

    def variable(self, request: Request) -> Answer:
        """The address of a variable; its memory, if the client does not have it."""
        program = self._program(request.words[0])
        name = request.data.decode("utf-8", "replace")
        found = program.shared.get(name)
        if found is None:
            raise Failure(NOT_FOUND)
        managed = "managed" in program.module.variables[name].attributes
        if name not in program.addresses:  # no kernel names it
            held = self.memory.allocate(found.size, Kind.DEVICE)
            held.memory.data[:] = found.data
            program.addresses[name] = held.address
            program.shared[name] = held.memory
            found = held.memory
        file = None if name in program.sent else found.file
        program.sent.add(name)
        return Answer((program.addresses[name], found.size, managed), file=file)

    # ── launches ────────────────────────────────────────────────────────────

    def launch(self, request: Request) -> Answer:
        """Run a launch; words: the error that the program hears of later."""
        number, shape = request.words[0], Shape.of(request.words[1:7])
        grid, block = shape.grid, shape.block
        if number not in self.kernels:
            raise Failure(400)
        program, kernel = self.kernels[number]
        name = demangled(kernel.name)
        grid, block = of_tiles(kernel, grid, block)
        watched = self.options.watch and bool(re.search(self.options.kernels, name))
        memory = self._segments(program, kernel, request.data)
        record = self._record(program, kernel, shape, request.data)
        try:
            result = kernel.launch(
                grid,
                block,
                Received(memory, request.data.ljust(8, b"\0")),
                cluster=shape.cluster if any(shape.cluster) else None,
                cooperative=shape.cooperative,
                shared=shape.shared,
                target=self.options.arithmetic,
                schedule=self.options.schedules,
                watch=Watch("report", self.options.strict) if watched else False,
                limits=self.options.limits,
                numerics=self.options.numerics and watched,
                progress=self.progress,
            )
        except KernelError as why:
            return self._failed(name, grid, block, watched, why)
        except Error as why:
            self.tell(_not_run(name, grid, block, str(why)))
            raise Failure(NOT_SUPPORTED, f"{name}: {why}") from why
        self.tell(_launched(name, grid, block, result))
        if record is not None and result.complete:
            self._save(record, program, result.output)
        code = 0 if result.complete else FAULTS.get(result.fault, FAILED)
        return Answer((code,), result.output.encode("utf-8", "surrogateescape"))

    def _reachable(self, program: Program) -> list[tuple[Part, NDArray[np.uint8]]]:
        """All memory of the program; variables of the kernel's own module by name."""
        found = []
        for held in self.memory.held.values():
            part = Part(held.name, held.address, held.memory.size)
            found.append((part, held.memory.data))
        for each in self.programs.values():
            for segment in each.segments():
                own = each is program
                about = segment.name, segment.address, segment.data.size, own
                found.append((Part(*about), segment.data))
        return found

    def _record(
        self, program: Program, kernel: Kernel, shape: Shape, parameters: bytes
    ) -> Record | None:
        """The memory before a launch, if it shall be recorded."""
        wanted, key = self.options.replay, kernel.name
        if wanted is None or not wanted.has(key):
            return None
        self._recorded[key] = self._recorded.get(key, 0) + 1
        if self._recorded[key] > wanted.launches:
            return None
        memory = self._reachable(program)
        try:
            made = Record(kernel, shape, parameters, [part for part, _ in memory])
            made.follow(lambda number: memory[number][1])
        except Error as why:
            self.tell(Refused(f"{demangled(key)} is not recorded: {why}"))
            return None
        return made

    def _save(self, record: Record, program: Program, printed: str) -> None:
        """Write a launch with the memory as it is now."""
        wanted, card = self.options.replay, self.options.card
        assert wanted is not None
        made = {
            "fragmenta": __version__,
            "gpu": f"{card.name} as fragmenta computes it",
            "target": self.options.arithmetic,
            "date": date.today().isoformat(),
        }
        data = [data for _, data in self._reachable(program)]
        after = [data[number] for number in record.reach.found]
        try:
            path = record.save(made, wanted, after, printed=printed)
        except OSError as why:
            self.tell(Refused(f"{wanted.folder}: {why.strerror}"))
            return
        self.tell(Recorded(demangled(record.kernel.name), str(path), ""))

    def _failed(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        watched: bool,
        why: KernelError,
    ) -> Answer:
        limit = isinstance(why, LimitReached)
        found = problems_of(why)
        self.tell(Launched(name, grid, block, 0, 0.0, watched, False, found, str(why)))
        code = FAULTS.get("limit" if limit else why.kind, FAILED)
        return Answer((code,), why.output.encode("utf-8", "surrogateescape"))

    def _segments(
        self, program: Program, kernel: Kernel, parameters: bytes
    ) -> list[Segment]:
        """All memory of the program, but the variables of the kernel's own module."""
        offsets, sizes, _ = facts(kernel)
        names: dict[int, str] = {}
        for index, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
            if size == 8:
                value = int.from_bytes(parameters[offset : offset + 8], "little")
                names.setdefault(value >> layout.SLOT_BITS, f"argument {index}")
        found = list(self.memory.segments(names))
        for each in self.programs.values():
            if each is not program:
                found += each.segments()
        return found

    # ── tensor maps ─────────────────────────────────────────────────────────

    def encode(self, request: Request) -> Answer:
        """The 128 bytes of a tensor map."""
        words, data = request.words, request.data
        column, kind, rank, address = words[:4]
        counts = (rank, rank - 1, *((rank - 2, rank - 2) if column else (rank,)), rank)
        kinds = "QQiiI" if column else "QQII"
        layout_of = "<" + "".join(f"{n}{k}" for n, k in zip(counts, kinds, strict=True))
        numbers, parts = list(struct.unpack(layout_of, data)), []
        for count in counts:
            parts.append(tuple(numbers[:count]))
            del numbers[:count]
        types = {int(row["driver"]): row["type"] for row in read(TYPES)}
        interleave, swizzle, promotion, fill = words[4:8]
        try:
            made = TensorMap(
                types[kind],
                parts[0],
                parts[1],
                box=() if column else parts[2],
                element_strides=parts[-1],
                address=address,
                interleave=INTERLEAVES[interleave],
                swizzle=SWIZZLES[swizzle],
                l2=PROMOTIONS[promotion],
                fill=FILLS[fill],  # type: ignore[arg-type]
                im2col=Im2col(parts[2], parts[3], *words[8:10]) if column else None,
            )
        except (LookupError, Error) as why:
            name = "cuTensorMapEncodeIm2col" if column else "cuTensorMapEncodeTiled"
            raise Failure(INVALID_VALUE, f"{name}: {why}") from why
        return Answer((), bytes(made.encode()))


def _launched(
    name: str, grid: tuple[int, ...], block: tuple[int, ...], result: Result
) -> Launched:
    hazards = {id(each) for each in result.hazards}
    shown = [
        each
        for each in result.problems
        if each.severity == "error" or id(each) in hazards
    ]
    if result.numerics is not None:
        shown += [e for e in result.numerics.problems if e.severity != "info"]
    return Launched(
        name,
        grid,
        block,
        result.instructions,
        result.seconds,
        result.watched,
        result.complete,
        shown,
    )


def _not_run(
    name: str, grid: tuple[int, ...], block: tuple[int, ...], why: str
) -> Launched:
    return Launched(name, grid, block, 0, 0.0, False, False, [], why)


_HANDLERS: dict[Verb, Callable[[Device, Request], Answer]] = {
    Verb.HELLO: Device.hello,
    Verb.ALLOCATE: Device.allocate,
    Verb.FREE: Device.free,
    Verb.LOAD: Device.load,
    Verb.UNLOAD: Device.unload,
    Verb.KERNEL: Device.kernel,
    Verb.VARIABLE: Device.variable,
    Verb.LAUNCH: Device.launch,
    Verb.ENCODE: Device.encode,
    Verb.REFUSED: Device.refused,
    Verb.RESET: Device.reset,
}
