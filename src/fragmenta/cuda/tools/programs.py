"""Runs kernels of other authors on the GPU.

The kernels of this package have arrays for parameters.  Other kernels also have
numbers, structs and pointers into arrays, need shared memory, print, and may read
memory that was never written.  A program is launched in a module of its own, so that
its variables have their initial values.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.cuda.tools import assembler
from fragmenta.cuda.tools.device import GPU, checked
from fragmenta.cuda.tools.launch import cubin
from fragmenta.engine.simt.arguments import Passed, passed_bytes
from fragmenta.errors import CompileError, Error, PtxSyntaxError
from fragmenta.reference.isa.target import Version

STACK = 16384
"""Bytes of stack for each thread: recursion needs more than CUDA's kilobyte."""
LOCAL = 4096
"""Bytes of local memory of each thread that are filled before a launch."""

Bytes = NDArray[np.uint8]
Size = tuple[int, int, int]
Answer = TypeVar("Answer")


class DeviceLaunch(NamedTuple):
    """A launch: machine code, sizes, and parameters as bytes."""

    code: bytes
    entry: str
    grid: Size
    block: Size
    shared: int
    parameters: Sequence[Passed]
    prints: bool = False
    """Whether it may print: then standard output is captured."""
    cluster: Size = (1, 1, 1)
    cooperative: bool = False
    """Whether all blocks are on the GPU at the same time."""


class LaunchOutput(NamedTuple):
    """The buffers after a launch, and what it printed."""

    buffers: list[Bytes]
    printed: str


def machine_code(text: str, target: str, *options: str) -> bytes:
    r"""The cubin of a program; its PTX if there is no assembler.

    An assembler is chosen that reads the program's PTX version.  If all are older, the
    newest is given the program in its own version: compilers name the newest version
    that they know, whatever the program needs.

    >>> text = ".version 8.0 .target sm_80 .address_size 64 .entry f() { ret; }"
    >>> machine_code(text, "sm_90a")[:4]
    b'\x7fELF'
    """
    if not assembler.assemblers() and not options:
        return text.encode() + b"\0"  # the driver has an assembler, too
    version, chosen = _version(text), _chosen(text)
    newest = assembler.newest_version(chosen)
    if version <= newest:
        return _assembled(text, target, chosen, options)
    try:
        older = _VERSION.sub(rf"\g<1>{newest}", text, count=1)
        return _assembled(older, target, chosen, options)
    except Error as why:
        raise CompileError(
            f"the program has PTX {version}; the newest assembler here, ptxas "
            f"{assembler.release(chosen)}, reads PTX {newest} and refuses it also as "
            f"such; the wheel nvidia-cuda-nvcc has a newer one\n{why}"
        ) from None


def assembled_by(text: str) -> str:
    """The version of the assembler that :func:`machine_code` uses for a program.

    >>> assembled_by(".version 8.0 .target sm_80").count(".")
    2
    """
    if not assembler.assemblers():
        return "the driver's own"
    return assembler.release(_chosen(text))


_VERSION = re.compile(r"^(\s*\.version\s+)(\d+\.\d+)", re.MULTILINE)


def _version(text: str) -> Version:
    found = _VERSION.search(text)
    if found is None:
        raise PtxSyntaxError(
            "the program does not say its PTX version: .version is missing"
        )
    return Version.parse(found[2])


def _chosen(text: str) -> Path:
    """The first assembler that reads a program, or else the newest."""
    version = _version(text)
    every = assembler.assemblers() or [assembler.tool("ptxas")]
    for each in every:
        if version <= assembler.newest_version(each):
            return each
    return max(every, key=assembler.newest_version)


def _assembled(text: str, target: str, ptxas: Path, options: Sequence[str]) -> bytes:
    if options:
        return assembler.assemble(text, target, *options, ptxas=ptxas)
    return cubin(text, target, ptxas)


def launch(
    gpu: GPU,
    program: DeviceLaunch,
    buffers: Sequence[Bytes],
    pattern: int | None = None,
) -> LaunchOutput:
    """Launch a program on copies of buffers, which come back as it leaves them.

    With a pattern, shared and local memory are filled with it before.
    """
    with gpu.faults(program.entry):
        _set_stack()
        if pattern is not None:
            _fill(gpu, pattern)
    after = [np.array(each) for each in buffers]
    printed = ""
    if program.prints:
        _, printed = printed_by(lambda: _launch(gpu, program, after))
    else:
        _launch(gpu, program, after)
    return LaunchOutput(after, printed)


def _set_stack() -> None:
    from cuda.bindings import driver

    limit = driver.CUlimit.CU_LIMIT_STACK_SIZE
    if checked(driver.cuCtxGetLimit(limit)) < STACK:
        checked(driver.cuCtxSetLimit(limit, STACK))


def _launch(gpu: GPU, program: DeviceLaunch, memory: Sequence[Bytes]) -> None:
    """Launch in a module of its own; the memory is changed in place."""
    from cuda.bindings import driver

    sizes = (*program.grid, *program.block)
    if not all(sizes):  # the driver refuses what the CPU takes
        return
    module = gpu.load_code(program.code)
    try:
        gpu.launch(
            module,
            program.entry,
            sizes,
            program.shared,
            memory,
            lambda addresses: placed(program.parameters, addresses),
            program.cluster,
            cooperative=program.cooperative,
        )
    finally:  # after a fault nothing can be unloaded
        driver.cuModuleUnload(module)


def placed(parameters: Sequence[Passed], addresses: Sequence[int]) -> list[bytes]:
    r"""The bytes of parameters, where buffers begin at these addresses.

    >>> placed([b"abcd", (0, 8)], [256])
    [b'abcd', b'\x08\x01\x00\x00\x00\x00\x00\x00']
    """
    return [passed_bytes(each, addresses) for each in parameters]


# ── uninitialised memory ────────────────────────────────────────────────────

FILL = f"""
.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry fill(.param .u32 pattern, .param .u32 bytes)
{{
    .local .align 16 .b8 depot[{LOCAL}];
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u32 %r0, [pattern];
    ld.param.u32 %r1, [bytes];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ntid.x;
    shl.b32 %r2, %r2, 2;
    shl.b32 %r3, %r3, 2;
    mov.u32 %r4, dynamic;
SHARED:
    setp.ge.u32 %p, %r2, %r1;
    @%p bra LOCALS;
    add.u32 %r5, %r4, %r2;
    st.volatile.shared.u32 [%r5], %r0;
    add.u32 %r2, %r2, %r3;
    bra SHARED;
LOCALS:
    mov.u64 %rd3, depot;
    cvta.local.u64 %rd0, %rd3;
    mov.u32 %r6, 0;
NEXT:
    cvt.u64.u32 %rd1, %r6;
    add.u64 %rd2, %rd0, %rd1;
    st.volatile.u32 [%rd2], %r0;
    add.u32 %r6, %r6, 4;
    setp.lt.u32 %p, %r6, {LOCAL};
    @%p bra NEXT;
    bar.sync 0;
    ret;
}}
"""
"""Fills shared and local memory.  A kernel must not depend on uninitialised memory, so
two launches after different patterns must agree."""


def _fill(gpu: GPU, pattern: int) -> None:
    size = _most_shared()
    words = [np.uint32(pattern).tobytes(), np.uint32(size).tobytes()]
    grid, block = (gpu.processors, 1, 1), (1024, 1, 1)
    filler = DeviceLaunch(_filler(gpu.target), "fill", grid, block, size, words)
    _launch(gpu, filler, [])


@lru_cache(maxsize=8)
def _filler(target: str) -> bytes:
    return machine_code(FILL, target)


def _most_shared() -> int:
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute
    which = attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    device = checked(driver.cuCtxGetDevice())
    return int(checked(driver.cuDeviceGetAttribute(which, device)))


# ── what a kernel prints ────────────────────────────────────────────────────


def printed_by(action: Callable[[], Answer]) -> tuple[Answer, str]:
    """The result of an action, and what the process wrote to standard output."""
    if os.name != "posix":
        raise Error("what a kernel prints can be read on Linux only")
    library = ctypes.CDLL(None)
    if sys.stdout is not None:
        sys.stdout.flush()
    library.fflush(None)
    with tempfile.TemporaryFile() as file:
        before = os.dup(1)
        try:
            os.dup2(file.fileno(), 1)
            result = action()
            library.fflush(None)
        finally:
            os.dup2(before, 1)
            os.close(before)
        file.seek(0)
        return result, file.read().decode(errors="replace")
