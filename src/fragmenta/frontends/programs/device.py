"""The device of one process: its memory, its modules, and its launches.

A question of the client is a method here.  A launch is run in full before it is
answered: work of several streams is done in the order in which the program asks for it,
which is one of the orders that CUDA allows.
"""

from __future__ import annotations

import linecache
import math
import operator
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta import __version__
from fragmenta.base.progress import Progress, ignore_progress
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.arguments import Received, Segment
from fragmenta.engine.simt.naming import counted
from fragmenta.errors import (
    BadCall,
    Error,
    KernelError,
    KernelHazard,
    LimitReached,
    one_of,
)
from fragmenta.frontends.programs.asked import ProgramOptions
from fragmenta.frontends.programs.memory import (
    Allocation,
    AllocationKind,
    Freed,
    NoMemory,
    ProgramMemory,
)
from fragmenta.frontends.programs.modules import LoadedModule, Skipped, facts, of_tiles
from fragmenta.frontends.programs.places import CallSite, Symbolizer
from fragmenta.frontends.programs.recording import (
    LaunchCapture,
    LaunchShape,
    Reachable,
    runtime_error,
)
from fragmenta.frontends.programs.reports import (
    Called,
    LaunchReport,
    Recorded,
    Refused,
    Tell,
)
from fragmenta.frontends.programs.verbs import Answer, Request, Verb
from fragmenta.launch.faults import with_freed
from fragmenta.launch.instruments import Watch
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.result import Result
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem, Related, problems_of
from fragmenta.ptx.module import demangled
from fragmenta.reference.shared.tensor_map import Im2col, TensorMap, element_types
from fragmenta.reference.shared.tensor_map_rules import (
    FILLS,
    INTERLEAVES,
    PROMOTIONS,
    SWIZZLES,
)

INVALID_VALUE, NO_MEMORY, INVALID_IMAGE, NO_IMAGE = 1, 2, 218, 209
NOT_FOUND, NOT_SUPPORTED, FAILED = 500, 801, 719
DOES = ("frees", "reads", "writes")
"""What a call wants to do with memory, by the number that the client sends."""
FAULTS = {
    "bounds": 700,
    "read_only": 700,
    "alignment": 716,
    "assert": 710,
    "limit": 702,
    "deadlock": 702,
    "membermask": 715,
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
        self,
        options: ProgramOptions,
        tell: Tell,
        progress: Progress = ignore_progress,
        process: int = 0,
    ) -> None:
        self.options, self.tell, self.progress = options, tell, progress
        self.places = Symbolizer(process)
        self._start()

    def _start(self) -> None:
        self.memory = ProgramMemory(self.options.card.capacity)
        self.skipped = Skipped()
        self.programs: dict[int, LoadedModule] = {}
        self.kernels: dict[int, tuple[LoadedModule, Kernel]] = {}
        self._numbers = self._launches = 0
        self._recorded: dict[str, int] = {}
        self._stopped = False
        """Whether a launch was not run to its end."""
        self._explored: dict[str, int] = {}
        self._unseen: list[Called] = []
        """Launches that were refused, while the program does not ask for the error."""

    def end(self) -> None:
        """The program has ended: tell what it never asked for."""
        for each in self._unseen:
            self.tell(each)

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
            made = self.memory.allocate(size, AllocationKind(kind))
        except NoMemory as why:
            raise Failure(NO_MEMORY, str(why)) from why
        marked = made.unwritten is not None and self.options.watch
        return Answer((made.address, marked), file=made.memory.file)

    def read(self, request: Request) -> Answer:
        """The program copies lines to the host: tell what nobody has written of them.

        After a launch that was not run, that is no wonder.
        """
        address, width, pitch, height = request.words[:4]
        held = self.memory.held.get(address >> layout.SLOT_BITS)
        if held is None or self._stopped:
            return Answer()
        start = address - held.address
        found = held.missing(start, pitch * (height - 1) + width)
        lines = np.resize(found, pitch * height).reshape(height, pitch)
        lines.reshape(-1)[found.size :] = 0
        lines[:, width:] = 0  # what is between them is not copied
        if lines.any():
            made = _unwritten(held, start, lines.reshape(-1), width * height)
            self._called(made, CallSite.of(request.data))
        return Answer()

    def free(self, request: Request) -> Answer:
        """Free memory."""
        address, taken = request.words[:2]
        count = self._launches
        when = f"after launch {count} of the program" if count else "before any launch"
        call = CallSite.of(request.data)
        if not self.memory.free(address, bool(taken), when, call):
            raise Failure(INVALID_VALUE)
        return Answer()

    def gone(self, request: Request) -> Answer:
        """The program names memory that is not there: tell if it was freed before."""
        address, wish, size = request.words[:3]
        was, call = self.memory.was(address), CallSite.of(request.data)
        held = self.memory.held.get(address >> layout.SLOT_BITS)
        if held is not None and size and self.options.watch:
            self._called(_past_end(held, address, size, wish, call), call)
            return Answer()
        offset = address & ((1 << layout.SLOT_BITS) - 1)
        if was is not None and offset < was.size and self.options.watch:
            does = DOES[wish]
            again = "freed before" if does == "frees" else "freed"
            problem = Problem(
                rules.FREED.name,
                rules.ERROR,
                0,
                0,
                "",
                f"{call.name} {does} {was.name}, which was {again}: {self._freed(was)}",
                rules.FREED.repair,
            )
            source = self.places.source(was.call)
            if source is not None:
                first = Related(source.line, "", "it is freed here", source)
                problem = replace(problem, related=(first,))
            self._called(problem, call)
        elif wish and not size and self.options.watch:
            self._called(_wrong_way(address, wish, call), call)
        return Answer()

    def _freed(self, was: Freed) -> str:
        """Where memory was freed, and when."""
        return f"by {self.places.words(was.call) or 'the program'}, {was.when}"

    def _was(self, address: int) -> str:
        """What was freed at an address, in words; nothing if it never was anything."""
        was = self.memory.was(address)
        return "" if was is None else f"{was.name}, {self._freed(was)}"

    def _called(self, problem: Problem, call: CallSite) -> None:
        """Tell what is wrong with a call, and where it is."""
        self.tell(self._placed(problem, call))

    def _placed(self, problem: Problem, call: CallSite, kernel: str = "") -> Called:
        """What is wrong with a call, where it is; ``kernel`` is what it launches."""
        source = self.places.source(call, kernel)
        made = replace(problem, function=call.name, source=source)
        if source is None:
            where = self.places.words(call)
            made = replace(made, message=f"{where}: {made.message}")
        else:
            own = source.own
            text = linecache.getline(own.file, own.line).rstrip()
            made = replace(made, line=own.line, column=1, text=text)
        return Called(made)

    # ── modules ─────────────────────────────────────────────────────────────

    def load(self, request: Request) -> Answer:
        """Load a module."""
        try:
            target, parts = self.options.arithmetic, request.words[0]
            made = LoadedModule(request.data, target, self.skipped, parts)
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

    def _program(self, number: int) -> LoadedModule:
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
            held = self.memory.allocate(found.size, AllocationKind.DEVICE)
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
        number, shape = request.words[0], LaunchShape.of(request.words[1:7])
        grid, block = shape.grid, shape.block
        if number not in self.kernels:
            raise Failure(400)
        program, kernel = self.kernels[number]
        name = demangled(kernel.name)
        grid, block = of_tiles(kernel, grid, block)
        watched = self.options.watch and bool(re.search(self.options.kernels, name))
        self._launches += 1
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
                orders=self._states(name) if watched else None,
                progress=self.progress,
            )
        except KernelHazard as why:
            if not isinstance(why.result, Result):
                return self._failed(name, grid, block, watched, why)
            result = why.result  # it came to its end
        except KernelError as why:
            return self._failed(name, grid, block, watched, why)
        except Error as why:
            self._stopped = True
            self.tell(_not_run(name, grid, block, str(why)))
            raise Failure(NOT_SUPPORTED, f"{name}: {why}") from why
        made = _launched(name, grid, block, result, self.options.tolerance)
        self.tell(made._replace(problems=self._explained(made.problems)))
        self._stopped |= not result.complete
        if record is not None and result.complete:
            self._save(record, program, result.output)
        code = 0 if result.complete else FAULTS.get(result.fault, FAILED)
        return Answer((code,), result.output.encode("utf-8", "surrogateescape"))

    def unlaunched(self, request: Request) -> Answer:
        """Note a launch that was refused; no error: the program asks for the last."""
        code, number = request.words[:2]
        if not code:
            self._unseen.clear()
        if not code or number not in self.kernels or not self.options.watch:
            return Answer()
        kernel, shape = self.kernels[number][1], LaunchShape.of(request.words[2:8])
        why = _refused(kernel, shape)
        problem = Problem(
            rules.REFUSED_LAUNCH.name,
            rules.ERROR,
            0,
            0,
            "",
            f"{demangled(kernel.name)} is not launched: {runtime_error(code)}, {why}; "
            "the program does not look at the error",
            rules.REFUSED_LAUNCH.repair,
        )
        call = CallSite.of(request.data)
        self._unseen.append(self._placed(problem, call, kernel.name))
        return Answer()

    def _states(self, name: str) -> int | None:
        """How many states of a launch are explored; None if it is not."""
        asked = self.options.orders
        if asked is None:
            return None
        self._explored[name] = self._explored.get(name, 0) + 1
        enough = asked.launches is not None and self._explored[name] > asked.launches
        return None if enough else asked.states

    def _reachable(
        self, program: LoadedModule
    ) -> list[tuple[Reachable, NDArray[np.uint8]]]:
        """All memory of the program; variables of the kernel's own module by name."""
        found = []
        for held in self.memory.held.values():
            part = Reachable(held.name, held.address, held.memory.size)
            found.append((part, held.memory.data))
        for each in self.programs.values():
            for segment in each.segments():
                own = each is program
                about = segment.name, segment.address, segment.data.size, own
                found.append((Reachable(*about), segment.data))
        return found

    def _record(
        self,
        program: LoadedModule,
        kernel: Kernel,
        shape: LaunchShape,
        parameters: bytes,
    ) -> LaunchCapture | None:
        """The memory before a launch, if it shall be recorded."""
        wanted, key = self.options.replay, kernel.name
        if wanted is None or not wanted.has(key):
            return None
        self._recorded[key] = self._recorded.get(key, 0) + 1
        if self._recorded[key] > wanted.launches:
            return None
        memory = self._reachable(program)
        try:
            made = LaunchCapture(
                kernel, shape, parameters, [part for part, _ in memory]
            )
            made.follow(lambda number: memory[number][1])
        except Error as why:
            self.tell(Refused(f"{demangled(key)} is not recorded: {why}"))
            return None
        return made

    def _save(self, record: LaunchCapture, program: LoadedModule, printed: str) -> None:
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
        self._stopped, limit = True, isinstance(why, LimitReached)
        found = self._explained(problems_of(why))
        fault = with_freed(str(why), self._was)
        self.tell(LaunchReport(name, grid, block, 0, 0.0, watched, False, found, fault))
        code = FAULTS.get("limit" if limit else why.kind, FAILED)
        return Answer((code,), why.output.encode("utf-8", "surrogateescape"))

    def _explained(self, problems: list[Problem]) -> list[Problem]:
        """Problems that name memory which the program has freed."""
        return [
            replace(each, message=with_freed(each.message, self._was))
            for each in problems
        ]

    def _segments(
        self, program: LoadedModule, kernel: Kernel, parameters: bytes
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
        numbers_of = dict(zip(_ENUMS, (kind, *words[4:8]), strict=True))
        try:
            chosen = {name: _enumerator(name, n) for name, n in numbers_of.items()}
            made = TensorMap(
                chosen["tensorDataType"],
                parts[0],
                parts[1],
                box=() if column else parts[2],
                element_strides=parts[-1],
                address=address,
                interleave=chosen["interleave"],
                swizzle=chosen["swizzle"],
                l2=chosen["l2Promotion"],
                fill=chosen["oobFill"],
                im2col=Im2col(parts[2], parts[3], *words[8:10]) if column else None,
            )
        except Error as why:
            name = "cuTensorMapEncodeIm2col" if column else "cuTensorMapEncodeTiled"
            raise Failure(INVALID_VALUE, f"{name}: {why}") from why
        return Answer((), bytes(made.encode()))


_ENUMS: dict[str, tuple[Any, ...]] = {
    "tensorDataType": tuple(each.name for each in element_types(packed=True)),
    "interleave": INTERLEAVES,
    "swizzle": SWIZZLES,
    "l2Promotion": PROMOTIONS,
    "oobFill": FILLS,
}
"""What the enumerators of each argument mean, by their numbers."""


def _enumerator(name: str, number: int) -> Any:
    """What an enumerator of the driver's interface for tensor maps means.

    >>> _enumerator("swizzle", 4), _enumerator("tensorDataType", 13)
    ('128/32', 'b4x16')
    >>> _enumerator("swizzle", 7)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: swizzle is 0 to 6; given 7
    """
    meanings = _ENUMS[name]
    if not 0 <= number < len(meanings):
        raise BadCall(f"{name} is 0 to {len(meanings) - 1}; given {number}")
    return meanings[number]


def _launched(
    name: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    result: Result,
    tolerance: tuple[float, float] | None,
) -> LaunchReport:
    hazards = {id(each) for each in result.hazards}
    shown = [
        each
        for each in result.problems
        if each.severity == "error" or id(each) in hazards
    ]
    if result.numerics is not None:
        judged = result.numerics
        if tolerance is not None:
            judged = judged.within(*tolerance)
        shown += [e for e in judged.problems if e.severity != "info"]
    return LaunchReport(
        name,
        grid,
        block,
        result.instructions,
        result.seconds,
        result.watched,
        result.complete,
        shown,
        orders=None if result.orders is None else result.orders.to_dict(),
    )


def _unwritten(
    held: Allocation, start: int, missing: NDArray[np.uint8], size: int
) -> Problem:
    """The report about a copy to the host, of which some bytes were not written."""
    edges = np.flatnonzero(np.diff(missing, prepend=0, append=0)).reshape(-1, 2) + start
    parts = [f"{first:,} to {end - 1:,}" for first, end in edges[:3]]
    more = f" and {len(edges) - 3:,} more parts" if len(edges) > 3 else ""
    count = int(np.count_nonzero(missing))
    # A struct has gaps below the size of its largest member, which nobody writes.
    gaps = count < size and bool((np.diff(edges, axis=1) < 8).all())
    partly = rules.INFO if gaps else rules.WARNING
    all_of = "none of which" if count == size else f"{count:,} of which nobody"
    verb = "was written" if count == size else "has written"
    return Problem(
        rules.UNINITIALISED.name,
        rules.ERROR if count == size else partly,
        0,
        0,
        "",
        f"{counted(size, 'byte')} of {held.name} are copied to the host, {all_of} "
        f"{verb}: bytes {one_of(parts, 'and')}{more}",
        "Write it first, or copy only what was written.",
    )


def _refused(kernel: Kernel, shape: LaunchShape) -> str:
    """Why CUDA refuses a launch, in words."""
    threads, most = math.prod(shape.block), facts(kernel)[2][3]
    for name, given, limits in (
        ("block", shape.block, (1024, 1024, 64)),
        ("grid", shape.grid, (2**31 - 1, 65535, 65535)),
    ):
        if not all(given):
            return f"a {name} of {given} is empty"
        if any(map(operator.gt, given, limits)):
            return f"a {name} of {given}, where the most is {limits}"
    if threads > most:
        return f"{threads:,} threads in a block, where the most is {most:,}"
    if shape.cooperative:
        return f"{math.prod(shape.grid):,} blocks, which cannot all run at once"
    return f"{shape.shared:,} bytes of dynamic shared memory are more than allowed"


def _past_end(
    held: Allocation, address: int, size: int, wish: int, call: CallSite
) -> Problem:
    """A copy that reaches past the end of an allocation."""
    first = address - held.address
    where = f", from byte {first:,} on" if first else ""
    what = f"{counted(size, 'byte')} of {held.name}{where}"
    return _not_copied(rules.COPIED_PAST_END, call, wish, what)


def _wrong_way(address: int, wish: int, call: CallSite) -> Problem:
    """A copy whose direction says device where there is no memory of the device."""
    what = f"{address:#x} by its direction as memory of the device, which it is not"
    return _not_copied(rules.COPIED_WRONG_WAY, call, wish, what)


def _not_copied(rule: rules.Rule, call: CallSite, wish: int, what: str) -> Problem:
    """A copy that CUDA refuses.

    Whether the program looks at the error, nobody can see.
    """
    error = runtime_error(INVALID_VALUE)
    message = f"{call.name} {DOES[wish]} {what}: {error}, nothing is copied"
    return Problem(rule.name, rule.severity, 0, 0, "", message, rule.repair)


def _not_run(
    name: str, grid: tuple[int, ...], block: tuple[int, ...], why: str
) -> LaunchReport:
    return LaunchReport(name, grid, block, 0, 0.0, False, False, [], why)


_HANDLERS: dict[Verb, Callable[[Device, Request], Answer]] = {
    Verb.HELLO: Device.hello,
    Verb.ALLOCATE: Device.allocate,
    Verb.FREE: Device.free,
    Verb.READ: Device.read,
    Verb.GONE: Device.gone,
    Verb.LOAD: Device.load,
    Verb.UNLOAD: Device.unload,
    Verb.KERNEL: Device.kernel,
    Verb.VARIABLE: Device.variable,
    Verb.LAUNCH: Device.launch,
    Verb.ENCODE: Device.encode,
    Verb.REFUSED: Device.refused,
    Verb.UNLAUNCHED: Device.unlaunched,
    Verb.RESET: Device.reset,
}
