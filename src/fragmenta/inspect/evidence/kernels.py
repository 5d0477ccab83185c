"""Compares whole kernels on the CPU and on a GPU, byte by byte.

A launch becomes buffers of bytes, and parameters that are bytes or pointers into a
buffer.  So both sides start from the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, field
from datetime import date
from typing import NamedTuple, TypeVar

import numpy as np

from fragmenta import __version__
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools import device, programs
from fragmenta.cuda.tools.device import GPU, Array
from fragmenta.cuda.tools.programs import Bytes, DeviceLaunch
from fragmenta.engine.simt.arguments import (
    Arguments,
    Passed,
    Pointer,
    Struct,
    pointer,
    segments_of,
)
from fragmenta.errors import UnsupportedTarget
from fragmenta.launch.kernel import Kernel, parse
from fragmenta.launch.limits import Limits
from fragmenta.launch.options import check_clusters
from fragmenta.launch.request import Extent
from fragmenta.launch.result import Result
from fragmenta.ptx.module import demangled
from fragmenta.reference.isa.target import check_target, number

PATTERNS = 0xDEADBEEF, 0x3F9A5A5A
"""What shared and local memory are filled with before a launch on the GPU."""


# ── what is different ───────────────────────────────────────────────────────


Given = TypeVar("Given")


@dataclass(frozen=True)
class Difference:
    """How an array differs from the GPU's."""

    argument: int
    name: str
    """The name of the parameter."""
    elements: int
    """How many elements differ, and of how many."""
    size: int
    count: int
    """How many bytes differ."""
    first: tuple[int, ...]
    """The index of the first element that differs."""
    gpu: str
    """Its bits on the GPU, in hexadecimal."""
    cpu: str

    def __str__(self) -> str:
        where = ", ".join(map(str, self.first))
        return (
            f"argument {self.argument} ({self.name}): {self.elements} of {self.size} "
            f"elements differ; first at [{where}]: GPU {self.gpu}, CPU {self.cpu}"
        )


def compare(argument: int, name: str, cpu: Array, gpu: Array) -> Difference | None:
    """Where two arrays of one type and shape differ; None if no byte does.

    >>> one, two = np.zeros((2, 2), np.float16), np.zeros((2, 2), np.float16)
    >>> two[1, 0] = -0.0
    >>> print(compare(3, "out", one, two))
    argument 3 (out): 1 of 4 elements differ; first at [1, 0]: GPU 0x8000, CPU 0x0000
    """
    size = max(1, gpu.dtype.itemsize)
    pair = [
        np.frombuffer(each.tobytes(), np.uint8).reshape(-1, size) for each in (cpu, gpu)
    ]
    bytes_differ = pair[0] != pair[1]
    wrong = np.flatnonzero(bytes_differ.any(axis=1))
    if not wrong.size:
        return None
    at = int(wrong[0])
    bits = [f"0x{each[at][::-1].tobytes().hex()}" for each in pair]
    first = tuple(map(int, np.unravel_index(at, gpu.shape))) if gpu.shape else ()
    return Difference(
        argument,
        name,
        int(wrong.size),
        len(pair[0]),
        int(bytes_differ.sum()),
        first,
        gpu=bits[1],
        cpu=bits[0],
    )


def same_lines(one: str, two: str) -> bool:
    r"""Whether two texts have the same lines in any order, as threads print them.

    >>> same_lines("1\n2\n", "2\n1\n")
    True
    """
    return sorted(one.splitlines()) == sorted(two.splitlines())


# ── a launch in the terms of the machine ────────────────────────────────────


class BufferArgument(NamedTuple):
    """A buffer: its argument, the array that was given, and its bytes."""

    argument: int
    name: str
    array: Array
    bytes: Bytes


class PreparedLaunch:
    """The buffers and parameters of a launch."""

    def __init__(self, kernel: Kernel, arguments: Iterable[object]) -> None:
        self.kernel = kernel
        given = list(arguments)
        made = Arguments(kernel.function, given)
        self.parameters = made.passed
        held: dict[int, BufferArgument] = {}
        for index, each in enumerate(kernel.function.parameters):
            for which in segments_of(self.parameters[index]):
                data, array = made.segments[which].data, made.arrays.get(index)
                if which not in held or (array is not None and not _whole(held[which])):
                    seen = data if array is None else array
                    held[which] = BufferArgument(index, each.name, seen, data)
        self.held = [held[which] for which in range(len(made.segments))]

    def arguments(self) -> tuple[list[object], list[Bytes]]:
        """Arguments for a launch here, and the copies that it changes."""
        copies = []
        for each in self.held:
            copy = each.bytes.copy()
            copy.flags.writeable = each.array.flags.writeable
            copies.append(copy)
        return [_given(each, copies) for each in self.parameters], copies

    def program(
        self,
        code: bytes,
        grid: Extent,
        block: Extent,
        shared: int,
        cluster: Extent | None = None,
        *,
        cooperative: bool = False,
    ) -> DeviceLaunch:
        """The launch for a GPU."""
        shape = check_clusters(self.kernel.function, grid, block, cluster)
        prints = "vprintf" in self.kernel.loaded.module.functions
        return DeviceLaunch(
            code,
            self.kernel.name,
            shape.grid,
            shape.block,
            shared,
            self.parameters,
            prints,
            shape.cluster,
            bool(cooperative),
        )

    def after(
        self, given: Sequence[Given], buffers: Sequence[Bytes]
    ) -> list[Given | Array]:
        """The given arguments, with arrays as they are after a launch."""
        found: list[Given | Array] = list(given)
        for each, data in zip(self.held, buffers, strict=True):
            found[each.argument] = _like(data, each.array)
        return found

    def differences(
        self, cpu: Sequence[Bytes], gpu: Sequence[Bytes]
    ) -> list[Difference]:
        """The buffers that differ."""
        found = []
        for each, mine, its in zip(self.held, cpu, gpu, strict=True):
            pair = [_like(data, each.array) for data in (mine, its)]
            found.append(compare(each.argument, each.name, *pair))
        return [each for each in found if each is not None]


def _given(passed: Passed, copies: Sequence[Bytes]) -> bytes | Pointer | Struct:
    """A parameter as an argument, whose pointers point into copies."""
    if isinstance(passed, bytes):
        return passed
    if isinstance(passed, tuple):
        return _pointer(passed, copies)
    pointers = tuple((at, _pointer(each, copies)) for at, each in passed.pointers)
    return Struct(passed.data, pointers)


def _pointer(place: tuple[int, int], copies: Sequence[Bytes]) -> Pointer:
    buffer, offset = place
    return pointer(copies[buffer], offset)


def _whole(held: BufferArgument) -> bool:
    """Whether a buffer is known as an array, not only by a pointer into it."""
    return held.array is not held.bytes


def _like(data: Bytes, array: Array) -> Array:
    return data.view(array.dtype).reshape(array.shape) if data.size else array


# ── verify ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Verified:
    """How a launch here compares with the same on a GPU."""

    kernel: str
    made: dict[str, str]
    """The GPU, and the versions of driver and assembler."""
    bytes: int
    """How many bytes were compared."""
    differences: list[Difference]
    result: Result = field(repr=False)
    """The result of the launch on the CPU."""
    gpu_printed: str = ""

    @property
    def same(self) -> bool:
        """Whether all bytes are equal, and the same lines were printed."""
        printed = same_lines(self.result.output, self.gpu_printed)
        return not self.differences and printed

    def __str__(self) -> str:
        lines = [str(each) for each in self.differences]
        if not same_lines(self.result.output, self.gpu_printed):
            lines.append("the GPU printed other lines")
        how = "\n  ".join(["", *lines]) if lines else " no byte differs"
        whom = f"{self.made['gpu']} ({self.result.target})"
        return (
            f"{demangled(self.kernel)}, {self.bytes:,} bytes compared with {whom}:{how}"
        )

    def to_json(self) -> dict[str, object]:
        """Everything, for a program."""
        return {
            "kernel": self.kernel,
            "made": self.made,
            "bytes": self.bytes,
            "same": self.same,
            "differences": [asdict(each) for each in self.differences],
            "instructions": self.result.instructions,
            "fidelity": self.result.fidelity,
            "seconds": round(self.result.seconds, 6),
        }


def verify(
    kernel: Kernel,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Iterable[object] = (),
    *,
    cluster: int | Sequence[int] | None = None,
    cooperative: bool = False,
    shared: int = 0,
    target: str | None = None,
    contract: bool = True,
    limits: Limits = Limits(),  # noqa: B008 - it cannot be changed
    gpu: GPU | None = None,
) -> Verified:
    """Launch a kernel here and on the GPU, and compare every byte of every array.

    It takes what ``kernel.launch`` takes.  The arrays given are not changed: both sides
    have copies.  Variables of the module have their first values on both sides, and are
    not compared.  Here it has the arithmetic of the GPU, whatever target the PTX is
    written for.  A ``target`` may be given, and is refused if this GPU is another.

    >>> import fragmenta as fm
    >>> kernel = fm.ptx.parse('''
    ... .version 8.0 .target sm_80 .address_size 64
    ... .entry one(.param .u64 data) {
    ...     .reg .b64 %rd1;
    ...     ld.param.u64 %rd1, [data];
    ...     st.global.u32 [%rd1], 1;
    ...     ret;
    ... }''').kernels["one"]
    >>> try:
    ...     same = kernel.verify(1, 1, [np.zeros(4, np.int32)]).same
    ... except fm.errors.NoDevice:
    ...     same = True
    >>> same
    True
    """
    chip = gpu or device.present()
    check_gpu(chip, target)
    prepared = PreparedLaunch(kernel, arguments)
    given, copies = prepared.arguments()
    # The CPU goes first: a fault there does not break the context of the GPU.
    result = anew(kernel).launch(
        grid,
        block,
        given,
        cluster=cluster,
        cooperative=cooperative,
        shared=shared,
        target=chip.target,
        contract=contract,
        limits=limits,
        watch=False,
    )
    code = assembled(kernel, chip.target, contract)
    program = prepared.program(
        code, grid, block, shared, cluster, cooperative=cooperative
    )
    before = [each.bytes for each in prepared.held]
    done = programs.launch(chip, program, before, PATTERNS[0])
    return Verified(
        kernel.name,
        made_by(chip) | {"ptxas": programs.assembled_by(kernel.loaded.module.text)},
        sum(each.size for each in copies),
        prepared.differences(copies, done.buffers),
        result,
        done.printed,
    )


def check_gpu(gpu: GPU, target: str | None) -> None:
    """Refuse a target that is not the GPU's."""
    if target is not None and number(check_target(target)) != number(gpu.target):
        raise UnsupportedTarget(
            f"{gpu.name} is {gpu.target}, not {target}; kernel.launch answers for any"
        )


def anew(kernel: Kernel) -> Kernel:
    """The kernel of a module whose variables have their first values."""
    module = kernel.loaded.module
    if not any(each.space == "global" for each in module.variables.values()):
        return kernel
    return parse(module.text, module.name).kernels[kernel.name]


def assembled(kernel: Kernel, target: str, contract: bool = True) -> bytes:
    """The machine code of a kernel's module."""
    module = kernel.loaded.module
    options = [] if contract else ["--fmad=false"]
    if "debug" in module.options:
        options.append("-g")
    return programs.machine_code(module.text, target, *options)


def made_by(gpu: GPU) -> dict[str, str]:
    """What produced an answer: versions of package, GPU and tools, and the date."""
    today = date.today().isoformat()
    return {"fragmenta": __version__, **gpu.versions(), "date": today}
