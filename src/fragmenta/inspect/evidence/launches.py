"""Recordings of launches: what a GPU left in memory after a kernel.

A recording of launches is a ``.npz`` file.  ``index`` is JSON: what made it, the names
of the PTX texts, and the launches.  ``texts`` is the PTX, ``changes`` what each launch
did to its arrays, ``data`` the arrays that were given; all three are compressed by xz,
or by zlib if they are large.
A change is the exclusive or of an array's bytes before and after, the first bytes of
all elements first.  Arguments that a few words describe are made again from them
(:mod:`fragmenta.inspect.evidence.arguments`); a digest proves that they are the GPU's.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.npy import Archive, read
from fragmenta.base.arrays.once import once_property
from fragmenta.cuda.tools import device, programs
from fragmenta.cuda.tools.device import GPU, Array
from fragmenta.engine.simt.arguments import Pointer, Received
from fragmenta.engine.units.schedule import EAGER, Given
from fragmenta.errors import BadFile, Error, KernelFault, KernelHazard
from fragmenta.inspect.evidence import kernels
from fragmenta.inspect.evidence.arguments import (
    MOST_BYTES,
    Argument,
    Spec,
    for_kernel,
    make,
)
from fragmenta.inspect.evidence.card_memory import CardAllocation, Placed
from fragmenta.inspect.evidence.kernels import Difference, PreparedLaunch
from fragmenta.inspect.evidence.launch_fields import (
    Change,
    Sizes,
    bytes_to_make,
    check_launch,
    check_texts,
)
from fragmenta.inspect.evidence.validation import check_made, json_of, refused, short
from fragmenta.launch.instruments import Watch
from fragmenta.launch.kernel import Kernel, Loaded, parse
from fragmenta.launch.limits import Limits, Meter, check_limits
from fragmenta.launch.request import Extent
from fragmenta.launch.result import Result
from fragmenta.ptx.checking.problem import Problem, problems_of
from fragmenta.ptx.rules import ERROR
from fragmenta.reference.isa.target import check_target_name

if TYPE_CHECKING:
    from fragmenta.launch.orders.answer import Orders
    from fragmenta.values.numerics.report import Numerics

PARTS = ("index", "texts", "changes")
"""The parts of a recording's archive; ``data`` may be missing."""
_MOST_PACKED = 1 << 31
"""The most bytes of a part, as it is kept."""
_MEMORY = 1 << 28
"""The most bytes of memory for xz."""


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch, and what it changed."""

    text: int
    """The number of its PTX among the texts."""
    name: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: list[Spec]
    seed: int
    digest: str
    changes: list[Change]
    printed: str | None
    """What the kernel printed; None if that is not known."""
    memory: list[CardAllocation] = field(default_factory=list)
    """What a launch of a program could reach; its arguments then are bytes."""
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    fault: str = ""
    """The error that ended it on the GPU: then nothing is known about its memory."""

    @property
    def specs(self) -> list[Spec]:
        """The arguments, then the memory."""
        return [*self.arguments, *(each.array for each in self.memory)]


@dataclass(frozen=True)
class Launches:
    """The launches of a file, and what made them."""

    made: dict[str, str]
    texts: list[tuple[str, str]]
    """The name and the PTX of each text."""
    launches: list[RecordedLaunch]
    changes: NDArray[np.uint8]
    data: bytes

    def arguments(self, launch: RecordedLaunch) -> list[Argument]:
        """Arrays, scalars and pointers as they were before a launch."""
        made = make_arguments(launch.specs, launch.seed, self.data)
        if digest(made) != launch.digest:
            raise BadFile(
                f"the arguments of {launch.name} are not those that were recorded "
                f"({digest(made)}, not {launch.digest})"
            )
        return made

    def expected(self, launch: RecordedLaunch) -> list[Argument]:
        """The arguments as the GPU left them."""
        after = self.arguments(launch)
        for change in launch.changes:
            array = after[change.argument]
            assert isinstance(array, np.ndarray)
            part = self.changes[change.start : change.start + change.length]
            after[change.argument] = apply(array, part)
        return after

    @once_property
    def _loaded(self) -> dict[int, Loaded]:
        return {}

    def kernel(self, launch: RecordedLaunch) -> Kernel:
        """The kernel of a launch; its module's variables have their first values."""
        if launch.text not in self._loaded:
            name, text = self.texts[launch.text]
            self._loaded[launch.text] = parse(text, name)
        return kernels.anew(self._loaded[launch.text].kernels[launch.entry])


def make_arguments(
    specs: Sequence[Spec], seed: int, data: bytes = b""
) -> list[Argument]:
    """Make the arguments, each with a seed of its own."""
    return [make(spec, seed + 7919 * i, data) for i, spec in enumerate(specs)]


def digest(arguments: Sequence[Argument]) -> str:
    """SHA-256 of the bytes of all arguments, shortened.

    >>> digest([np.zeros(2, np.int32), np.float32(1)])
    'caccb9a8fbd24011'
    """
    state = hashlib.sha256()
    for argument in arguments:
        state.update(argument.tobytes())
    return state.hexdigest()[:16]


# ── reading ─────────────────────────────────────────────────────────────────


def is_recording(path: Path) -> bool:
    """Whether a file looks like a recording of launches."""
    with refused(f"{path} is not a recording"):
        found = read(path)
    return isinstance(found, Archive) and PARTS[0] in found


def load(path: Path) -> Launches:
    """The launches of a file, if all of them can be replayed."""
    with refused(f"{path} is not a recording of launches"):
        found = read(path)
        if not isinstance(found, Archive) or not set(PARTS) <= set(found):
            raise BadFile(f"it is an archive of {', '.join(PARTS)} and data")
        for name in found:
            if found.bytes_of(name) > _MOST_PACKED:
                raise BadFile(f"{short(name)} has more than {_MOST_PACKED:,} bytes")
        index = json_of(found["index"], "index")
        made = check_made(index.get("made"))
        check_target_name(made.get("target", ""))
        named = check_texts(index.get("texts"))
        texts = _texts(_expanded(found["texts"], "texts"), named)
        changes = np.frombuffer(_expanded(found["changes"], "changes"), np.uint8)
        data = _expanded(found["data"], "data") if "data" in found else b""
        listed = index.get("launches")
        if not isinstance(listed, list) or not listed:
            raise BadFile("it has no launches")
        launches = []
        sizes = Sizes(len(texts), len(data), changes.size)
        for number, each in enumerate(listed):
            with refused(f"launch {number}"):
                launches.append(_launch(check_launch(each, sizes)))
        return Launches(made, texts, launches, changes, data)


def _launch(checked: dict[str, Any]) -> RecordedLaunch:
    memory = [CardAllocation(**each) for each in checked["memory"]]
    return RecordedLaunch(**{**checked, "memory": memory})


def _expanded(content: Array, what: str) -> bytes:
    """The content that xz compressed, of limited size."""
    if content.ndim != 1 or content.dtype != np.uint8:
        raise BadFile(
            f"{what} are bytes; given {content.dtype} of shape {content.shape}"
        )
    packed = content.tobytes()
    unpack = (
        lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
        if packed.startswith(_XZ)
        else zlib.decompressobj()
    )
    try:
        found = unpack.decompress(packed, MOST_BYTES)
    except (lzma.LZMAError, zlib.error) as why:
        raise BadFile(f"{what} are damaged ({why})") from None
    if not unpack.eof:
        raise BadFile(f"{what} end too early, or have more than {MOST_BYTES:,} bytes")
    return found


def _texts(joined: bytes, named: list[tuple[str, int]]) -> list[tuple[str, str]]:
    if sum(size for _, size in named) != len(joined):
        raise BadFile(
            f"there are {len(joined)} bytes of texts, and other sizes are named"
        )
    found, start = [], 0
    for name, size in named:
        try:
            found.append((name, joined[start : start + size].decode()))
        except UnicodeDecodeError as why:
            raise BadFile(f"the text {short(name)} is not UTF-8 ({why})") from None
        start += size
    return found


# ── writing ─────────────────────────────────────────────────────────────────


def difference(before: Array, after: Array) -> NDArray[np.uint8]:
    """The exclusive or of all bytes, the first bytes of all elements first.

    >>> difference(np.array([1, 2], np.int16), np.array([1, 258], np.int16))
    array([0, 0, 0, 1], dtype=uint8)
    """
    size = before.dtype.itemsize
    pair = [
        np.frombuffer(a.tobytes(), np.uint8).reshape(-1, size) for a in (before, after)
    ]
    return np.ascontiguousarray((pair[0] ^ pair[1]).T).reshape(-1)


def apply(before: Array, recorded: NDArray[np.uint8]) -> Array:
    """The array after a launch: the inverse of :func:`difference`."""
    size = before.dtype.itemsize
    old = np.frombuffer(before.tobytes(), np.uint8).reshape(-1, size)
    new = np.ascontiguousarray(old ^ recorded.reshape(size, -1).T)
    return new.view(before.dtype).reshape(before.shape)


class Writer:
    """Collects texts and launches for one file."""

    def __init__(self, made: dict[str, str]) -> None:
        self.made = made
        self._texts: list[tuple[str, bytes]] = []
        self._launches: list[dict[str, object]] = []
        self._changes: list[bytes] = []
        self._data: list[bytes] = []

    def add_text(self, name: str, text: str) -> int:
        """Add a PTX text; returns its number."""
        self._texts.append((name, text.encode()))
        return len(self._texts) - 1

    def add_launch(
        self,
        before: Sequence[Argument],
        after: Sequence[Argument],
        *,
        arguments: Sequence[Spec],
        memory: Sequence[CardAllocation] = (),
        **row: object,
    ) -> int:
        """Add what a launch changed; returns the bytes of the changed arrays.

        ``before`` and ``after`` are the arguments, then the memory.
        """
        found: list[Change] = []
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
                continue
            if old.tobytes() != new.tobytes():
                content = difference(old, new).tobytes()
                found.append(Change(i, _size(self._changes), len(content)))
                self._changes.append(content)
        every = [*arguments, *(each.array for each in memory)]
        specs = [
            self._kept(spec, value) for spec, value in zip(every, before, strict=True)
        ]
        count = len(arguments)
        row = {
            **row,
            "arguments": specs[:count],
            "digest": digest(before),
            "changes": found,
        }
        if memory:
            row["memory"] = [
                each._replace(array=spec)._asdict()
                for each, spec in zip(memory, specs[count:], strict=True)
            ]
        self._launches.append(row)
        return sum(each.length for each in found)

    def _kept(self, spec: Spec, value: Argument) -> Spec:
        if spec["kind"] != "stored":
            return spec
        start = _size(self._data)
        self._data.append(value.tobytes())
        return {**spec, "start": start}

    def arrays(self) -> dict[str, NDArray[np.uint8]]:
        """The recording, as the arrays of a ``.npz`` file."""
        index = {
            "made": self.made,
            "texts": [{"name": name, "bytes": len(text)} for name, text in self._texts],
            "launches": self._launches,
        }
        parts = {
            "index": json.dumps(index, separators=(",", ":")).encode(),
            "texts": _packed([text for _, text in self._texts]),
            "changes": _packed(self._changes),
        }
        if self._data:
            parts["data"] = _packed(self._data)
        return {name: np.frombuffer(each, np.uint8) for name, each in parts.items()}

    def save(self, path: Path) -> int:
        """Write the recording; returns its size in bytes."""
        np.savez(path, **self.arrays())  # type: ignore[arg-type]
        return path.stat().st_size


_LARGE = 1 << 22
"""More bytes are compressed quickly rather than well: by zlib."""
_XZ = b"\xfd7zXZ\0"
"""The first bytes of what xz compressed."""


def _packed(parts: list[bytes]) -> bytes:
    whole = b"".join(parts)
    return zlib.compress(whole, 1) if len(whole) > _LARGE else lzma.compress(whole)


def _size(parts: list[bytes]) -> int:
    return sum(map(len, parts))


# ── recording ───────────────────────────────────────────────────────────────


def record(
    kernel: Kernel,
    grid: Extent,
    block: Extent,
    specs: Sequence[Spec],
    values: Sequence[Argument],
    *,
    shared: int = 0,
    gpu: GPU | None = None,
) -> Writer:
    """Launch a kernel on the GPU, and keep what it changed.

    It is launched twice, over memory filled with different patterns.  If the answers
    differ, the kernel depends on uninitialised memory or on timing, and is refused.
    """
    chip = gpu or device.present()
    prepared = PreparedLaunch(kernel, for_kernel(values))
    program = prepared.program(
        kernels.assembled(kernel, chip.target), grid, block, shared
    )
    before = [each.bytes for each in prepared.held]
    done, again = (
        programs.launch(chip, program, before, pattern) for pattern in kernels.PATTERNS
    )
    wrong = prepared.differences(done.buffers, again.buffers)
    if wrong or not kernels.same_lines(done.printed, again.printed):
        raise Error(
            f"two launches of {kernel.function.shown} on {chip.name} gave different "
            f"answers{''.join(f'; {each}' for each in wrong)}"
        )
    after = prepared.after(values, done.buffers)
    writer = Writer(kernels.made_by(chip))
    module = kernel.loaded.module
    writer.add_launch(
        values,
        after,
        text=writer.add_text(module.name, module.text),
        name=kernel.name,
        entry=kernel.name,
        grid=program.grid,
        block=program.block,
        shared=shared,
        arguments=list(specs),
        seed=0,
        printed=done.printed,
    )
    return writer


# ── replaying ───────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Replayed:
    """How a launch compares with its recording."""

    launch: RecordedLaunch
    bytes: int
    """How many bytes were compared."""
    differences: list[Difference]
    fault: str = ""
    """The error of the launch on the CPU, if the GPU had none."""
    printed: bool = True
    """Whether the same lines were printed."""
    hazards: Sequence[Problem] = ()
    """What the race detector and the checks found, even if the bytes are equal."""
    ended: str = ""
    """The error that ended it here, if an error ended it on the GPU, too."""
    numerics: Numerics | None = None
    """What it lost, if that was asked for."""
    orders: Orders | None = None
    """What all orders of it show, if that was asked for."""

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.printed and not self.fault and not self.differences

    @property
    def lines(self) -> list[str]:
        """What differs, in words."""
        lines = [*([self.fault] if self.fault else []), *map(str, self.differences)]
        return [*lines, *([] if self.printed else ["it printed other lines"])]


def replay(found: Launches, **how: Any) -> Iterator[Replayed]:
    """Launch each kernel here and compare every byte; see :func:`replay_one`."""
    for number, launch in enumerate(found.launches):
        with refused(f"launch {number}, {launch.name:.80}"):
            yield replay_one(found, launch, **how)


def replay_one(
    found: Launches,
    launch: RecordedLaunch,
    *,
    watch: bool | Watch = True,
    schedule: Given | Sequence[Given] = EAGER,
    limits: Limits = Limits(),  # noqa: B008 - it cannot be changed
    target: str | None = None,
    numerics: bool = False,
    orders: str | int | None = None,
) -> Replayed:
    """Launch one kernel here and compare every byte.

    ``target`` is another arithmetic than that of the GPU.  With ``numerics``, the
    answer also says what the launch lost; with ``orders``, what other orders show.
    """
    kernel = found.kernel(launch)
    check_room(launch, limits)
    started = Started(found, launch, kernel)
    fault, output, hazards = "", "", []
    result: Result | None = None
    try:
        result = kernel.launch(
            launch.grid,
            launch.block,
            started.given,
            cluster=launch.cluster,
            cooperative=launch.cooperative,
            shared=launch.shared,
            target=target or found.made["target"],
            watch=watch,
            schedule=schedule,
            limits=limits,
            numerics=numerics,
            orders=orders,
        )
        output, fault = result.output, result.fault
        hazards = [each for each in result.problems if each.severity == ERROR]
    except KernelHazard as why:
        output = why.output
        result = why.result if isinstance(why.result, Result) else None
        fault = "" if why.result else str(why)  # otherwise it ran to its end
        hazards = [each for each in problems_of(why) if each.severity == ERROR]
    except KernelFault as why:
        fault = str(why)
    if launch.fault:
        return _both_ended(launch, fault, hazards)
    compared, wrong = started.differences()
    same = launch.printed is None or kernels.same_lines(output, launch.printed)
    said = bool(fault) or same
    return Replayed(
        launch,
        compared,
        wrong,
        fault,
        said,
        hazards,
        numerics=None if result is None else result.numerics,
        orders=None if result is None else result.orders,
    )


def check_room(launch: RecordedLaunch, limits: Limits) -> None:
    """Refuse arrays that need more memory than the launch may have.

    A few words describe an array of any size.
    """
    needed = sum(map(bytes_to_make, launch.specs))
    Meter(check_limits(limits)).room(needed, "the arrays of the recording")


def _both_ended(
    launch: RecordedLaunch, fault: str, hazards: Sequence[Problem]
) -> Replayed:
    """A launch that an error ended on the GPU; it shall end here, too."""
    said = "" if fault else f"on the GPU it ended with {launch.fault}, and not here"
    return Replayed(launch, 0, [], said, True, hazards, ended=fault)


class Started:
    """The arguments of a recorded launch here, and what they shall be after it."""

    def __init__(self, found: Launches, launch: RecordedLaunch, kernel: Kernel) -> None:
        self._found, self._launch, self._kernel = found, launch, kernel
        self._arguments = found.arguments(launch)
        self._placed: Placed | None = None
        self.given: Received | list[Array | bytes | Pointer]
        """What ``kernel.launch`` takes."""
        if not launch.memory:
            self.given = for_kernel(self._arguments)
            return
        count = len(launch.arguments)
        arrays = [np.asarray(each) for each in self._arguments[count:]]
        self._placed = Placed(kernel, launch.memory, arrays)
        self.given = self._placed.given([e.tobytes() for e in self._arguments[:count]])

    def differences(self) -> tuple[int, list[Difference]]:
        """How many bytes were compared after the launch, and what differs."""
        wrong, compared = [], 0
        names, got = self._after()
        want = self._found.expected(self._launch)
        if self._placed is not None:
            moved = self._placed.addresses.moved
            want = [
                moved(e.view(np.uint8)) if isinstance(e, np.ndarray) else e
                for e in want
            ]
        for i, (one, other) in enumerate(zip(got, want, strict=True)):
            if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
                compared += other.nbytes
                wrong.append(kernels.compare(i, names[i], one, other))
        return compared, [each for each in wrong if each is not None]

    def _after(self) -> tuple[list[str], list[Argument]]:
        """The names of arguments and memory, and what they are now."""
        names = [each.name for each in self._kernel.parameters]
        if self._placed is None:
            return names, self._arguments
        count = len(self._launch.arguments)
        more = [each.name for each in self._launch.memory]
        return [*names, *more], [*self._arguments[:count], *self._placed.after()]
