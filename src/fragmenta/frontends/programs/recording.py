"""Records launches of programs: PTX, parameters, and memory before and after.

A file has one launch, in the format of :mod:`fragmenta.inspect.evidence.launches`, so
that ``fragmenta replay`` runs it anywhere.  It has the memory that the launch could
reach: allocations that its parameters or the variables of its module point into, and
what these point into in turn.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from itertools import count
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta import __version__
from fragmenta.errors import Error
from fragmenta.frontends.programs import functions
from fragmenta.frontends.programs.asked import Wanted
from fragmenta.frontends.programs.modules import chosen, facts
from fragmenta.frontends.programs.reports import Recorded, Refused, Tell
from fragmenta.frontends.programs.verbs import ATTRIBUTES, Answer, Request, Verb
from fragmenta.inspect.evidence import arguments
from fragmenta.inspect.evidence.card_memory import Addresses, CardAllocation
from fragmenta.inspect.evidence.launches import Writer
from fragmenta.launch.kernel import Kernel, parse
from fragmenta.ptx.module import demangled
from fragmenta.reference.isa.target import TARGETS

MOST_BYTES = 1 << 30
"""Memory of a launch; a launch that can reach more is not recorded."""
MOST_NAME = 60
"""Characters of a kernel's name in the name of its file."""
Bytes = NDArray[np.uint8]


class LaunchShape(NamedTuple):
    """How a kernel is launched."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    cooperative: bool
    shared: int

    @classmethod
    def of(cls, words: Sequence[int]) -> LaunchShape:
        """The words of a message: halves of 64 bits, then the shared memory."""
        *packed, shared = words
        half = [part for word in packed for part in (word & 0xFFFFFFFF, word >> 32)]
        sides = tuple(half[:3]), tuple(half[3:6]), tuple(half[6:9])
        return cls(*sides, bool(half[9]), shared)


class Reachable(NamedTuple):
    """Memory that a launch may reach."""

    name: str
    address: int
    size: int
    variable: bool = False


class Reach:
    """Follows pointers: which parts of memory a launch can reach."""

    def __init__(self, parts: Sequence[Reachable], parameters: bytes) -> None:
        self.parts = parts
        self._addresses = Addresses([(each.address, each.size) for each in parts])
        variables = [i for i, each in enumerate(parts) if each.variable and each.size]
        first = np.frombuffer(parameters + bytes(-len(parameters) % 8), np.uint8)
        self.found: list[int] = []
        self.next = self._new([*variables, *self._addresses.reached(first)])
        """The parts whose bytes are wanted next."""

    def _new(self, numbers: list[int]) -> list[int]:
        fresh = [n for n in dict.fromkeys(numbers) if n not in self.found]
        self.found += fresh
        whole = sum(self.parts[number].size for number in self.found)
        if whole > MOST_BYTES:
            raise Error(
                f"it can reach {whole:,} bytes of memory; the most is {MOST_BYTES:,}"
            )
        return fresh

    def follow(self, content: Sequence[Bytes]) -> None:
        """Take the bytes that were wanted."""
        goals = [goal for each in content for goal in self._addresses.reached(each)]
        self.next = self._new(goals)


class LaunchCapture:
    """A launch that is being recorded."""

    def __init__(
        self,
        kernel: Kernel,
        shape: LaunchShape,
        parameters: bytes,
        parts: Sequence[Reachable],
    ) -> None:
        self.kernel, self.shape, self.parameters = kernel, shape, parameters
        self.reach = Reach(parts, parameters)
        self.before: list[Bytes] = []

    @property
    def _parts(self) -> list[Reachable]:
        return [self.reach.parts[number] for number in self.reach.found]

    def take(self, content: Sequence[Bytes]) -> None:
        """Take the memory that is wanted next, as it is before the launch."""
        self.before += content
        self.reach.follow(content)

    def follow(self, memory: Callable[[int], Bytes]) -> None:
        """Take copies of all memory that can be reached, by the numbers of parts."""
        while self.reach.next:
            self.take([memory(number).copy() for number in self.reach.next])

    def split(self, data: bytes, numbers: Sequence[int]) -> list[Bytes]:
        """The bytes of some parts, which came one after the other."""
        made, start = [], 0
        for number in numbers:
            size = self.reach.parts[number].size
            made.append(np.frombuffer(data, np.uint8)[start : start + size])
            start += size
        if start != len(data):
            raise Error(f"{len(data):,} bytes of memory came, not {start:,}")
        return made

    def save(
        self,
        made: dict[str, str],
        wanted: Wanted,
        after: Sequence[Bytes] | None,
        fault: str = "",
        printed: str | None = None,
    ) -> Path:
        """Write the file; without ``after``, an error ended the launch."""
        offsets, sizes, _ = facts(self.kernel)
        values = [
            self.parameters[at : at + size].ljust(size, b"\0")
            for at, size in zip(offsets, sizes, strict=True)
        ]
        specs = [arguments.struct(each) for each in values]
        memory = [
            CardAllocation(
                part.name, part.address, part.variable, arguments.stored(data)
            )
            for part, data in zip(self._parts, self.before, strict=True)
        ]
        bytes_of = [np.void(each) for each in values]
        ends = self.before if after is None else after
        writer, module, shape = Writer(made), self.kernel.loaded.module, self.shape
        more: dict[str, object] = {"fault": fault} if fault else {}
        if any(shape.cluster):
            more["cluster"] = shape.cluster
        if shape.cooperative:
            more["cooperative"] = True
        writer.add_launch(
            [*bytes_of, *self.before],
            [*bytes_of, *ends],
            arguments=specs,
            memory=memory,
            text=writer.add_text(module.name, module.text),
            name=demangled(self.kernel.name),
            entry=self.kernel.name,
            grid=shape.grid,
            block=shape.block,
            shared=shape.shared,
            seed=0,
            printed=printed,
            **more,
        )
        return _write(writer, wanted.folder, self.kernel.name)


def _write(writer: Writer, folder: Path, name: str) -> Path:
    """Write a file under a name that is free; it is there as a whole or not at all."""
    shown = re.sub(r"\W+", "_", demangled(name).partition("(")[0]).strip("_")
    folder.mkdir(parents=True, exist_ok=True)
    with _nameless(folder) as (file, source):
        np.savez(file, **writer.arrays())  # type: ignore[arg-type]
        file.flush()
        for number in count(1):
            path = folder / f"{shown[:MOST_NAME] or 'kernel'}-{number}.npz"
            with suppress(FileExistsError):
                # With a folder, the link is followed: the file itself gets the name.
                os.link(source, path, src_dir_fd=file.fileno())
                return path
    raise AssertionError("there is always a free number")


@contextmanager
def _nameless(folder: Path) -> Iterator[tuple[IO[bytes], str]]:
    """A file without a name, so that nothing of it stays after a crash.

    With it comes what a link to it is made from.
    """
    try:
        number = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o644)
    except OSError:  # not every file system has such files
        with NamedTemporaryFile(dir=folder, prefix=".", suffix=".part") as file:
            yield file, file.name
        return
    with open(number, "w+b") as file:
        yield file, f"/proc/self/fd/{number}"


def error_name(code: int) -> str:
    """The name of an error of the driver.

    >>> error_name(700)
    'CUDA_ERROR_ILLEGAL_ADDRESS'
    """
    return next((e[2] for e in functions.errors() if e[0] == code), f"error {code}")


def runtime_error(code: int) -> str:
    """The name of an error of the runtime.

    >>> runtime_error(9)
    'cudaErrorInvalidConfiguration'
    """
    return next((e[1] for e in functions.errors() if e[0] == code), f"error {code}")


# ── before the real driver ──────────────────────────────────────────────────


class RecordingServer:
    """What answers a process of a program that runs on a real card."""

    def __init__(self, wanted: Wanted, tell: Tell, program: int) -> None:
        self.wanted, self.tell, self._program = wanted, tell, program
        self.made: dict[str, str] = {}
        self._target = ""
        self._images: dict[int, tuple[bytes, int]] = {}
        self._kernels: dict[int, Kernel] = {}
        self._record: LaunchCapture | None = None
        self._refused: set[str] = set()

    def close(self) -> None:
        """Nothing is held."""

    def answer(self, request: Request) -> Answer:
        """Answer a question; what goes wrong is told, and the program goes on."""
        handler = _HANDLERS.get(request.verb)
        try:
            if handler is None:
                raise Error(f"no question {request.verb.name} while recording")
            return handler(self, request)
        except (Error, OSError, MemoryError) as why:
            self._record = None
            self._refuse(str(why))
            return Answer()

    def _refuse(self, why: str) -> None:
        if why not in self._refused:
            self._refused.add(why)
            self.tell(Refused(why))

    def hello(self, _: Request) -> Answer:
        """The client keeps nothing about the card: the real driver answers."""
        return Answer(data=bytes(4 * ATTRIBUTES))

    def refused(self, request: Request) -> Answer:
        """Note what cannot be recorded."""
        self._refuse(request.data.decode("utf-8", "replace"))
        return Answer()

    def card(self, request: Request) -> Answer:
        """What recordings say about the card."""
        major, minor, version = request.words[:3]
        number = f"sm_{major}{minor}"
        self._target = f"{number}a" if f"{number}a" in TARGETS else number
        self.made = {
            "fragmenta": __version__,
            "gpu": request.data.decode("utf-8", "replace"),
            "target": self._target,
            "cuda_driver": f"{version // 1000}.{version % 1000 // 10}",
            "date": date.today().isoformat(),
        }
        return Answer()

    def load(self, request: Request) -> Answer:
        """Keep an image; it is read when one of its kernels is launched."""
        number = len(self._images) + 1
        self._images[number] = request.data, request.words[0]
        return Answer((number,))

    def kernel(self, request: Request) -> Answer:
        """Whether launches of a kernel are wanted; its parameters and variables."""
        name = request.data.decode("utf-8", "replace")
        if not self.wanted.has(name):
            return Answer()
        try:
            found = self._find(name, request.words[0])
        except Error as why:
            raise Error(f"{demangled(name)} is not recorded: {why}") from why
        number = len(self._kernels) + 1
        self._kernels[number] = found
        offsets, sizes, _ = facts(found)
        data = struct.pack(f"<{2 * len(sizes)}I", *offsets, *sizes)
        for variable in _variables(found):
            data += variable.encode() + b"\0"
        return Answer((number, self.wanted.launches, len(sizes)), data)

    def _find(self, name: str, image: int) -> Kernel:
        """A kernel in the image that it is from, or in any that is known."""
        known = [self._images[image]] if image in self._images else []
        known += [each for each in self._images.values() if each not in known]
        why: Error | None = None
        for data, parts in known or [(self._own(), 0)]:
            try:
                text, source = chosen(data, self._target, parts)
                found = parse(text, source).kernels
            except Error as error:
                why = why or error
                continue
            if name in found:
                return found[name]
        raise why or Error("the program has no PTX of it")

    def _own(self) -> bytes:
        """The file of the program itself."""
        try:
            return Path(f"/proc/{self._program}/exe").read_bytes()
        except OSError as why:
            raise Error(f"the program's file cannot be read ({why.strerror})") from why

    def launch(self, request: Request) -> Answer:
        """A launch that follows; the answer is which memory is wanted first."""
        number, *shape = request.words[:7]
        size, variables = request.words[7:9]
        kernel = self._kernels[number]
        table = np.frombuffer(request.data[size:], np.uint64).reshape(-1, 2).tolist()
        names = list(_variables(kernel))
        first = len(table) - variables
        parts = [
            Reachable(f"allocation {i} ({length:,} bytes)", address, length)
            if i < first
            else Reachable(names[i - first], address, length, True)
            for i, (address, length) in enumerate(table)
        ]
        try:
            made = LaunchCapture(
                kernel, LaunchShape.of(shape), request.data[:size], parts
            )
        except Error as why:
            raise Error(f"{demangled(kernel.name)} is not recorded: {why}") from why
        self._record = made
        return self._more()

    def _more(self) -> Answer:
        assert self._record is not None
        wanted = self._record.reach.next
        return Answer((1,), struct.pack(f"<{len(wanted)}I", *wanted))

    def memory(self, request: Request) -> Answer:
        """Memory before the launch; the answer is which is wanted next."""
        if self._record is None:
            raise Error("memory came without a launch")
        record = self._record
        record.take(record.split(request.data, record.reach.next))
        return self._more()

    def after(self, request: Request) -> Answer:
        """Memory after the launch, or the error that ended it."""
        record, self._record = self._record, None
        if record is None:
            raise Error("memory came without a launch")
        refused, fault = request.words[:2]
        name = demangled(record.kernel.name)
        if refused:
            raise Error(f"{name} was not launched: {error_name(refused)}")
        said = error_name(fault) if fault else ""
        after = None if fault else record.split(request.data, record.reach.found)
        path = record.save(self.made, self.wanted, after, said)
        self.tell(Recorded(name, str(path), said))
        return Answer()


def _variables(kernel: Kernel) -> list[str]:
    """The variables of a kernel's module that a driver knows by name."""
    variables = kernel.loaded.module.variables.values()
    return [each.name for each in variables if each.space in ("global", "const")]


_HANDLERS: dict[Verb, Callable[[RecordingServer, Request], Answer]] = {
    Verb.HELLO: RecordingServer.hello,
    Verb.REFUSED: RecordingServer.refused,
    Verb.CARD: RecordingServer.card,
    Verb.LOAD: RecordingServer.load,
    Verb.KERNEL: RecordingServer.kernel,
    Verb.LAUNCH: RecordingServer.launch,
    Verb.MEMORY: RecordingServer.memory,
    Verb.AFTER: RecordingServer.after,
}
