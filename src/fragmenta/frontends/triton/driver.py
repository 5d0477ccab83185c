"""A driver for Triton that compiles for a GPU and launches on the CPU."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf, prod
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fragmenta.base.arrays.checks import check_flags
from fragmenta.base.arrays.once import once_of
from fragmenta.errors import (
    BadCall,
    BadFile,
    KernelError,
    MissingPackage,
    missing,
    nearest,
    one_of,
)
from fragmenta.frontends.api.kernels import Kernel, Result, parse
from fragmenta.launch.frames import origin
from fragmenta.launch.instruments import check_watch
from fragmenta.ptx.languages import Words
from fragmenta.ptx.open_loads import left_open, open_loads
from fragmenta.reference.isa.target import check_target, number

try:
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase
    from triton.compiler import CompiledKernel
    from triton.runtime import driver as triton_driver
except ImportError as why:
    raise MissingPackage(
        f"fragmenta.triton needs Triton: {missing('triton', why)}"
    ) from None

from fragmenta.frontends.protocol import Patches
from fragmenta.frontends.triton.arguments import Kind, Metadata, flat
from fragmenta.frontends.triton.arrays import give_back, take_arrays
from fragmenta.frontends.triton.cards import TritonDevice, card
from fragmenta.frontends.triton.storages import ADDRESSES

if TYPE_CHECKING:
    import torch

PER_MILLISECOND = 1000
"""How many executed warp instructions count as a millisecond."""
WORDS = Words(
    "triton",
    "tl.debug_barrier()",
    "tl.debug_barrier()",
    "tl.atomic_add",
    'an atomic flag with sem="release" and sem="acquire"',
)
OPTIONS = ("schedule", "watch", "limits", "numerics", "nan", "algebra")
"""The options of a launch that may be given."""
TUNING = ("cost", "first")
"""How ``@triton.autotune`` chooses among configurations."""


# ── switching it on and off ─────────────────────────────────────────────────


@contextmanager
def on_cpu(
    target: str = "sm_80",
    *,
    torch: bool = False,
    autotune: str = "cost",
    **options: object,
) -> Iterator[CPU]:
    """In this block, Triton kernels run here, compiled for a target.

    The options are those of :meth:`fragmenta.ptx.Kernel.launch`: ``schedule``,
    ``watch``, ``limits``, ``numerics`` and ``nan``.

    With ``torch=True``, PyTorch has a GPU in this block, as far as a program can see:
    ``torch.cuda`` answers as a card of the target does, and ``device="cuda"``,
    ``.cuda()`` and ``.is_cuda`` work, on the CPU's memory.  ``data_ptr()`` is then an
    address that a kernel may load from memory.

    ``autotune`` says which configuration ``@triton.autotune`` takes: the one with the
    lowest ``cost`` (each is run once), or the ``first``, which is run alone.

    What was launched last is in the object that ``with``
    gives::

        @triton.jit
        def add(x, y, out, n, BLOCK: tl.constexpr):
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            inside = at < n
            total = tl.load(x + at, inside) + tl.load(y + at, inside)
            tl.store(out + at, total, inside)

        x = np.arange(1000, dtype=np.float32)
        out = np.empty_like(x)
        with fragmenta.triton.on_cpu("sm_80") as cpu:
            add[8,](x, x, out, 1000, BLOCK=128)
        print(cpu.last.counts)

    >>> with on_cpu("sm_80") as cpu:
    ...     cpu.target, cpu.instructions
    ('sm_80', 0)
    """
    cpu = install(target, torch=torch, autotune=autotune, **options)
    try:
        yield cpu
    finally:
        _remove(cpu)


def install(
    target: str = "sm_80",
    *,
    torch: bool = False,
    autotune: str = "cost",
    **options: object,
) -> CPU:
    """From now on, Triton kernels run here; :func:`uninstall` ends it.

    The options are those of :func:`on_cpu`.

    >>> cpu = install("sm_90a")
    >>> cpu.target
    'sm_90a'
    >>> uninstall()
    """
    check_flags(torch=torch)
    cpu = CPU(target, torch=torch, autotune=autotune, **options)
    if torch:
        _torch_cuda().begin(_card, _Event)
    if not _INSTALLED:
        take_arrays()
        _keep_ptx(_PATCHES)
    before = getattr(triton_driver, "_active", None)
    _INSTALLED.append(_Installed(cpu, before, torch))
    triton_driver.set_active(cpu)
    return cpu


def uninstall() -> None:
    """Undo the last :func:`install`.

    >>> uninstall()
    Traceback (most recent call last):
    ...
    fragmenta.errors.BadCall: nothing to undo: fragmenta.triton is not installed
    """
    if not _INSTALLED:
        raise BadCall("nothing to undo: fragmenta.triton is not installed")
    _remove(_INSTALLED[-1].cpu)


class _Installed(NamedTuple):
    cpu: CPU
    before: DriverBase | None
    """The driver that Triton had; None if it had not looked for one."""
    torch: bool
    """Whether PyTorch seems to have a GPU."""


_INSTALLED: list[_Installed] = []
_PATCHES = Patches()


def _remove(cpu: CPU) -> None:
    """Undo one install; the driver before it is active again if it was the last."""
    places = [i for i, each in enumerate(_INSTALLED) if each.cpu is cpu]
    if not places:  # uninstall() was called in the block
        return
    gone = _INSTALLED.pop(places[0])
    if places[0] < len(_INSTALLED):
        after = _INSTALLED[places[0]]
        _INSTALLED[places[0]] = after._replace(before=gone.before)
    else:
        triton_driver.set_active(gone.before)
    if not _INSTALLED:
        give_back()
        _PATCHES.undo()
    if gone.torch:
        _torch_cuda().end()


def _torch_cuda() -> ModuleType:
    """What makes PyTorch answer; without PyTorch, an error in words."""
    try:
        from fragmenta.frontends.triton import torch_cuda
    except ImportError as why:
        raise MissingPackage(
            f"torch=True needs PyTorch: {missing('torch', why)}"
        ) from None
    return torch_cuda


def _card() -> TritonDevice:
    """The GPU that is asked for now."""
    return _current().utils.card


# ── what Triton sees ────────────────────────────────────────────────────────


class CPU(DriverBase):  # type: ignore[misc, unused-ignore]
    """What Triton takes for a GPU and its driver; see :func:`on_cpu`.

    >>> CPU("sm_80").get_current_target().arch
    80
    """

    def __init__(
        self,
        target: str = "sm_80",
        *,
        torch: bool = False,
        autotune: str = "cost",
        **options: object,
    ) -> None:
        super().__init__()
        if autotune not in TUNING:
            raise BadCall(
                f"autotune is {one_of(TUNING)}; given {autotune!r}"
                f"{nearest(str(autotune), TUNING)}"
            )
        self.torch = torch
        """Whether PyTorch seems to have a GPU."""
        self.autotune = autotune
        """How ``@triton.autotune`` chooses: ``cost`` or ``first``."""
        self._trial = threading.local()
        for name in options:
            if name not in OPTIONS:
                raise BadCall(
                    f"a launch of Triton has the options {one_of(OPTIONS)}; given "
                    f"{name!r}{nearest(name, OPTIONS)}"
                )
        self.options: dict[str, Any] = options
        """The options of each launch."""
        found = number(check_target(target))
        # From sm_90 on, Triton always writes for the target with the suffix.
        self.target = f"sm_{found}a" if found >= 90 else f"sm_{found}"
        self.last: Result | None = None
        """What the last launch did."""
        self.instructions = 0
        """The executed warp instructions of all launches."""
        self.utils = _Utilities(found)
        self.launcher_cls = _Launcher

    @classmethod
    def is_active(cls) -> bool:
        """Whether Triton may choose it by itself."""
        return False

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        return GPUTarget("cuda", number(self.target), 32)

    def get_current_device(self) -> str:
        """The name under which Triton keeps compiled kernels."""
        return f"fragmenta {self.target}"

    def set_current_device(self, device: object) -> None:
        """There is only one."""

    def get_current_stream(self, device: object) -> int:
        """All launches are in order."""
        return 0

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        """The numbers of the target."""
        return divmod(number(self.target), 10)

    def get_active_torch_device(self) -> torch.device:
        """The device that PyTorch's tensors must be on."""
        import torch

        return torch.device("cuda:0" if self.torch else "cpu")

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Only launchers in C++ call this."""
        raise BadCall("fragmenta.triton launches without C++")

    # Benchmarks count instructions.

    def get_benchmarker(self) -> Callable[..., float | list[float]]:
        """For ``@triton.autotune``: how long a configuration takes."""
        return self._found_first if self.autotune == "first" else self._measure

    @property
    def is_trying(self) -> bool:
        """Whether kernels are compiled and not run, to see whether they can be."""
        return getattr(self._trial, "on", False)

    def _found_first(self, call: Callable[[], object], **_: object) -> list[float]:
        """No time for the first configuration that a GPU can run, and none after it.

        Triton begins with the first one, and asks each of them.
        """
        if getattr(self._trial, "found", False):
            return [inf] * 3
        self._trial.on = True
        try:
            call()
        finally:
            self._trial.on = False
        self._trial.found = True
        return [0.0] * 3

    def tune(self) -> None:
        """Begin to look for a configuration."""
        self._trial.found = False

    def _measure(
        self,
        call: Callable[[], object],
        quantiles: Sequence[float] | None = None,
        **_: object,
    ) -> float | list[float]:
        start, end = _Event(), _Event()
        start.record()
        call()
        end.record()
        spent = start.elapsed_time(end)
        return spent if quantiles is None else [spent] * len(quantiles)

    def get_device_interface(self) -> type[_Interface]:
        """For ``triton.testing.do_bench``."""
        return _Interface

    def get_empty_cache_for_benchmark(self) -> None:
        """There is none to clear."""

    def clear_cache(self, cache: object) -> None:
        """There is none to clear."""


def _current() -> CPU:
    if not _INSTALLED:
        raise BadCall(
            "this kernel was compiled for fragmenta.triton, which is not installed "
            "any more; use on_cpu() or install()"
        )
    return _INSTALLED[-1].cpu


class _Event:
    """How many instructions were executed until now."""

    def __init__(self, enable_timing: bool = True) -> None:
        self.at = 0

    def record(self, stream: object = None) -> None:
        self.at = _current().instructions

    def elapsed_time(self, end: _Event) -> float:
        return (end.at - self.at) / PER_MILLISECOND


class _Interface:
    """The part of ``torch.cuda`` that benchmarks use."""

    Event = _Event

    @staticmethod
    def synchronize() -> None:
        """All launches have ended."""


class _Utilities:
    """The functions of a driver's library that Triton calls."""

    def __init__(self, architecture: int) -> None:
        self.card = card(architecture)

    def get_device_properties(self, device: object) -> dict[str, int]:
        """What a kernel may use."""
        return {
            "max_shared_mem": self.card.shared,
            "max_num_regs": 65536,
            "multiprocessor_count": self.card.processors,
            "warpSize": 32,
        }

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: object
    ) -> tuple[None, str, int, int, int]:
        """No module, a name; as registers, the most that a thread can have.

        The launcher has the PTX.  Triton would unload a module with the driver that is
        active at that time, which may be a GPU's.
        """
        return None, name, 255, 0, 1024


# ── a launch ────────────────────────────────────────────────────────────────


class KernelSource(Protocol):
    """What Triton compiled a kernel from."""

    name: str
    signature: Mapping[object, Kind]


class _Launcher:
    """Launches one compiled kernel."""

    def __init__(self, source: KernelSource, metadata: Metadata) -> None:
        self.signature = dict(source.signature)
        self.metadata = metadata
        self.text, self.code = _texts(metadata.name)
        self.kernel = _loaded(self.text, metadata.name)

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: object,
        function: object,
        packed: object,
        launch: object,
        enter: Callable[[object], object] | None,
        leave: Callable[[object], object] | None,
        *arguments: object,
    ) -> None:
        cpu = _current()
        if cpu.is_trying:
            return
        if enter is not None:
            enter(launch)
        with ADDRESSES.real():
            named = list(flat(self.signature.items(), arguments, self.metadata))
            given: list[object] = [each.passed() for each in named]
        # Triton counts programs, each of which is a cluster of blocks along x.
        grid = int(x) * self.metadata.num_ctas, int(y), int(z)
        if all(grid):
            given += self._scratch(prod(grid), len(given))
            self._run(cpu, grid, given, [each.name for each in named])
        if leave is not None:
            leave(launch)

    def _run(
        self,
        cpu: CPU,
        grid: tuple[int, int, int],
        given: list[object],
        names: list[str],
    ) -> None:
        made = self.metadata
        kernel = self.kernel
        given_watch = check_watch(cpu.options.get("watch", True))
        if given_watch is not None and given_watch.strict:
            kernel = _opened(self.text, self.code, made.name)
        kernel = replace(kernel, names=tuple(names), language=WORDS)
        try:
            cpu.last = kernel.launch(
                grid,
                32 * made.num_warps,
                given,
                cluster=made.num_ctas if made.num_ctas > 1 else None,
                cooperative=bool(getattr(made, "launch_cooperative_grid", False)),
                shared=made.shared,
                target=cpu.target,
                contract=getattr(made, "enable_fp_fusion", True),
                **cpu.options,
            )
        except KernelError as fault:
            sys.stdout.write(fault.output)
            fault.origin = origin(made.name)
            cpu.last = getattr(fault, "result", None)
            raise
        cpu.instructions += cpu.last.instructions
        if cpu.last.output:
            sys.stdout.write(cpu.last.output)

    def _scratch(self, blocks: int, known: int) -> list[object]:
        """The scratch memory that a kernel takes after its arguments."""
        sizes = (
            self.metadata.global_scratch_size,
            getattr(self.metadata, "profile_scratch_size", 0),
        )
        wanted = len(self.kernel.parameters) - known
        return [
            np.zeros(size * blocks, np.uint8) if size else 0 for size in sizes[:wanted]
        ]


def _texts(name: str) -> tuple[str, str]:
    """The PTX that Triton has just made ready, and the code that it is made from."""
    made = getattr(_MADE, "asm", None) or {}
    if not made.get("ptx"):
        raise BadFile(f"Triton kept no PTX of {name}; unset TRITON_STORE_BINARY_ONLY")
    return made["ptx"], made.get("ttir") or ""


_MADE = threading.local()
"""The texts of the kernel that Triton makes ready in this thread."""


def _keep_ptx(patches: Patches) -> None:
    """Note the PTX of each kernel that Triton makes ready: a launcher is not told."""
    made_ready = CompiledKernel._init_handles

    def noting(self: CompiledKernel) -> None:
        _MADE.asm = self.asm
        try:
            made_ready(self)
        finally:
            _MADE.asm = None

    patches.set(CompiledKernel, "_init_handles", noting)


@once_of(256)
def _opened(text: str, code: str, name: str) -> Kernel:
    """The kernel whose masked elements are unwritten, where it gives no ``other``."""
    return _loaded(left_open(text, open_loads(code)), name)


@once_of(256)
def _loaded(text: str, name: str) -> Kernel:
    """The kernel of a PTX text."""
    return parse(text, name).kernels[name]
