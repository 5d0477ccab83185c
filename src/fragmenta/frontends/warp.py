"""Runs kernels of NVIDIA Warp without a GPU, with the bits of one.

Warp compiles its kernels for a GPU, and they run here on arrays of its CPU device, with
adjoint kernels and tiles.  Reports name the lines of the Python source::

    @wp.kernel
    def add(x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] += x[i]

    with fragmenta.frontends.warp.on_cpu("sm_90") as cpu:
        wp.launch(add, dim=n, inputs=[x, y])
    print(cpu.last.counts)
"""

from __future__ import annotations

import ctypes
import inspect
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, Unpack

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.jit.cache import Cache
from fragmenta.engine.simt.arguments import Pointer, Struct
from fragmenta.errors import BadCall, MissingPackage, missing
from fragmenta.frontends.memory import pointer_to
from fragmenta.frontends.protocol import (
    CompiledPtx,
    Passed,
    Patches,
    Session,
)
from fragmenta.launch.request import OptionsOnTarget
from fragmenta.ptx.languages import Words
from fragmenta.reference.isa.target import number

try:
    import warp as wp
    from warp._src import context
    from warp._src.types import array_t
except ImportError as why:
    raise MissingPackage(
        f"fragmenta.frontends.warp needs Warp: {missing('warp-lang', why)}"
    ) from None

THREADS = 256
"""Threads of a block, if a launch does not say."""


# What libmathdx computes with tiles is linked as LTO-IR, which has no PTX.
_OPTIONS = {
    "lineinfo": True,
    "enable_mathdx_gemm": False,
    "enable_mathdx_solver": False,
    "enable_mathdx_fft": False,
}


class WarpModule(Protocol):
    """What is used of a module of Warp."""

    options: dict[str, object]

    def hash_module(self) -> bytes:
        """A digest of all that its code depends on."""

    def _get_live_kernels(self) -> Iterable[WarpKernel]: ...


class WarpParameter(Protocol):
    """A parameter of a kernel of Warp."""

    label: str
    type: object


class Adjoint(Protocol):
    """What Warp knows about the code of a kernel."""

    args: Sequence[WarpParameter]
    kernel_dim: int


class WarpKernel(Protocol):
    """What is used of a kernel of Warp."""

    key: str
    adj: Adjoint
    module: WarpModule
    is_generic: bool

    def get_mangled_name(self) -> str:
        """The name that its code has."""

    def infer_argument_types(self, args: Sequence[object]) -> Sequence[object]:
        """The types of the parameters of a generic kernel."""

    def _add_normalized_overload(self, types: Sequence[object]) -> WarpKernel: ...


class WarpArray(Protocol):
    """What is used of an array of Warp."""

    ptr: int | None
    capacity: int

    def numpy(self) -> NDArray[np.generic]:
        """Its elements, in place."""


class KernelVariant(NamedTuple):
    """A kernel of Warp, as one launch compiles it."""

    kernel: WarpKernel
    threads: int
    adjoint: bool

    @property
    def name(self) -> str:
        """What it is called in PTX."""
        kind = "backward" if self.adjoint else "forward"
        return f"{self.kernel.get_mangled_name()}_cuda_kernel_{kind}"


class Warp:
    """Warp, as :mod:`fragmenta.frontends.protocol` describes front ends."""

    words = Words(
        "warp",
        "a second wp.launch",
        "a second wp.launch",
        "wp.atomic_add",
        "a second wp.launch",
    )

    def made(
        self, kernel: KernelVariant, arguments: Sequence[object], target: str
    ) -> CompiledPtx:
        """The PTX of a kernel's module."""
        return CompiledPtx(_compiled(kernel, target).text, kernel.name)

    def passed(
        self, kernel: KernelVariant, arguments: Sequence[object]
    ) -> Iterator[Passed]:
        """The bounds of the launch, then the arguments, then their adjoints."""
        bounds, *values = arguments
        yield Passed("dim", bytes(bounds))  # type: ignore[call-overload]
        declared = kernel.kernel.adj.args
        device = wp.get_device("cpu")
        known = [*_arrays(values)]
        for index, value in enumerate(values):
            each = declared[index % len(declared)]
            adjoint = index >= len(declared)
            name = f"adj_{each.label}" if adjoint else each.label
            packed = context.pack_arg(
                kernel.kernel, each.type, each.label, value, device, adjoint
            )
            yield Passed(name, _filled(packed, known))

    def divert(self, session: Session[KernelVariant]) -> Callable[[], None]:
        """Let ``wp.launch`` and ``wp.launch_tiled`` come to the session."""
        patches = Patches()

        def launch(
            kernel: WarpKernel,
            dim: int | Sequence[int],
            inputs: Sequence[object] = (),
            outputs: Sequence[object] = (),
            adj_inputs: Sequence[object] = (),
            adj_outputs: Sequence[object] = (),
            device: object = None,
            stream: object = None,
            adjoint: bool = False,
            record_tape: bool = True,
            record_cmd: bool = False,
            max_blocks: int = 0,
            block_dim: int | None = None,
        ) -> None:
            if record_cmd:
                raise BadCall("record_cmd=True needs a GPU; launch the kernel itself")
            threads = block_dim if block_dim and block_dim > 0 else THREADS
            given = [*inputs, *outputs]
            sizes, total = context._normalize_launch_dim(dim)
            if total:
                adjoints = [*adj_inputs, *adj_outputs]
                _launch(
                    session,
                    kernel,
                    sizes,
                    given,
                    adjoints,
                    adjoint,
                    max_blocks,
                    threads,
                )
            tape = context.runtime.tape
            if tape and record_tape:
                frame = inspect.currentframe()
                code = frame.f_back if frame is not None else None
                caller = {"file": "", "lineno": 0, "func": ""}
                if code is not None:
                    caller = {
                        "file": code.f_code.co_filename,
                        "lineno": code.f_lineno,
                        "func": code.f_code.co_name,
                    }
                tape.record_launch(
                    *(kernel, sizes, max_blocks, list(inputs), list(outputs)),
                    *(wp.get_device("cpu"), threads),
                    metadata={"caller": caller},
                )

        for owner in (wp, context):
            patches.set(owner, "launch", launch)
        return patches.undo


def _launch(
    session: Session[KernelVariant],
    kernel: WarpKernel,
    sizes: Sequence[int],
    given: list[object],
    adjoints: list[object],
    adjoint: bool,
    max_blocks: int,
    threads: int,
) -> None:
    """Launch a kernel, or its adjoint."""
    if len(given) != len(kernel.adj.args):
        raise BadCall(
            f"{kernel.key} takes {len(kernel.adj.args)} arguments; given {len(given)}"
        )
    if kernel.is_generic:
        kernel = kernel._add_normalized_overload(kernel.infer_argument_types(given))
    entry = KernelVariant(kernel, threads, adjoint)
    code = _compiled(entry, session.target)
    bounds = context._build_launch_bounds_from_tuple(sizes, code.axes)
    blocks = -(-int(bounds.size) // threads)
    session.launch(
        entry,
        min(blocks, max_blocks) if max_blocks > 0 else blocks,
        threads,
        [bounds, *given, *(adjoints if adjoint else ())],
        shared=code.shared,
    )


@contextmanager
def on_cpu(
    target: str = "sm_90", **options: Unpack[OptionsOnTarget]
) -> Iterator[Session[KernelVariant]]:
    """In this block, Warp's kernels run here, compiled for a target.

    The options are those of :meth:`fragmenta.ptx.Kernel.launch`: ``schedule``,
    ``watch``, ``limits``, ``numerics`` and ``nan``.  ``with`` gives an object with
    ``last``, the result of the last launch.
    """
    with Session(Warp(), target, **options).diverted() as session:
        yield session


# ── compiling ───────────────────────────────────────────────────────────────


class LaunchCode(NamedTuple):
    """The PTX of a kernel's module, and how the kernel is launched."""

    text: str
    shared: int
    """Bytes of dynamic shared memory."""
    axes: int
    """How many axes a launch has."""


def _compiled(entry: KernelVariant, target: str) -> LaunchCode:
    """The code of a kernel, from the cache if it is there."""
    module, arch = entry.kernel.module, number(target)
    before = dict(module.options)
    module.options |= {"block_dim": entry.threads, **_OPTIONS}
    try:
        digest = module.hash_module().hex()
        key = f"Warp {wp.config.version} {arch} {entry.threads} {digest}"
        kept = Cache.present()
        found = kept.get(key)
        if found is None:
            found = _compile(module, arch)
            kept.put(key, found)
    finally:
        module.options |= before
    about, _, text = found.partition(b"\n")
    known = json.loads(about)
    shared = known["sizes"].get(f"{entry.name}_smem_bytes", 0)
    return LaunchCode(
        text.decode(), int(shared), known["axes"][entry.kernel.get_mangled_name()]
    )


def _compile(module: WarpModule, arch: int) -> bytes:
    """What Warp writes into a folder: a line of JSON, then the PTX."""
    with tempfile.TemporaryDirectory() as folder:
        (path,) = wp.compile_aot_module(
            module, arch=arch, module_dir=folder, use_ptx=True
        )
        (about,) = Path(folder).glob("*.meta")
        known = {
            "sizes": json.loads(about.read_text()),
            "axes": {
                each.get_mangled_name(): each.adj.kernel_dim
                for each in module._get_live_kernels()
                if hasattr(each.adj, "kernel_dim")
            },
        }
        return f"{json.dumps(known)}\n{Path(path).read_text()}".encode()


# ── arguments ───────────────────────────────────────────────────────────────

Packed: TypeAlias = "ctypes.Structure | ctypes.Array[ctypes.c_float] | ctypes.c_float"
"""An argument as Warp passes it: some object of ctypes."""


def _arrays(values: Sequence[object]) -> Iterator[WarpArray]:
    """The arrays among the arguments, those in structs, and their gradients."""
    for value in values:
        if isinstance(value, wp.array):
            if not value.device.is_cpu:
                raise BadCall(
                    f"an array is on {value.device}; here kernels run on the CPU: make "
                    'it with device="cpu"'
                )
            yield value
            if value.grad is not None:
                yield value.grad
        elif hasattr(value, "_cls") and hasattr(value, "_ctype"):  # a struct
            fields = value._cls.vars
            yield from _arrays([getattr(value, name) for name in fields])


def _filled(packed: Packed, known: list[WarpArray]) -> object:
    """An argument with pointers in it, or its bytes."""
    places = list(_pointers(type(packed), 0))
    data = bytes(packed)
    found: list[tuple[int, Pointer]] = []
    for at in places:
        address = int.from_bytes(data[at : at + 8], "little")
        if address:
            found.append((at, _inside(address, known)))
    return Struct(data, tuple(found)) if found else data


def _pointers(kind: type, start: int) -> Iterator[int]:
    """Where a C struct has addresses of arrays."""
    if issubclass(kind, array_t):
        yield from (start + array_t.data.offset, start + array_t.grad.offset)
        return
    for name, inner, *_ in getattr(kind, "_fields_", ()):
        yield from _pointers(inner, start + getattr(kind, name).offset)


def _inside(address: int, known: list[WarpArray]) -> Pointer:
    """A pointer to the array that an address is in."""
    for array in known:
        if array.ptr == address:
            return pointer_to(array.numpy())
    for array in known:
        if array.ptr and array.ptr <= address < array.ptr + (array.capacity or 0):
            memory = (ctypes.c_uint8 * array.capacity).from_address(array.ptr)
            return Pointer(np.ctypeslib.as_array(memory), address - array.ptr)
    raise BadCall("an argument has an address that is in none of the arrays given")
