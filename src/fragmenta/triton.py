"""How does a Triton kernel run without a GPU?

    with on_cpu("sm_80"):        in this block, every kernel[grid](...) runs here
    install("sm_80")             the same from now on
    uninstall()                  no longer

Triton compiles as for a GPU.  Its PTX is launched by :mod:`fragmenta.ptx`, with the
bits that a GPU returns.  Arrays are NumPy's (``ml_dtypes`` for bfloat16 and the 8-bit
types) or PyTorch's CPU tensors, and are changed in place.  Each is memory of its own: a
kernel that leaves it is stopped, with the line of the Triton source.  Strides are the
kernel's business, as on a GPU: of an array that is not contiguous, it sees the memory
from the first to the last element.

``sm_80`` is the target whose kernels act in program order.  For ``sm_90a`` Triton may
write instructions that are not run here yet; the launch then says which.

``@triton.autotune`` takes the configuration that executes the fewest instructions: a
thousand warp instructions count as a millisecond, also in ``triton.testing.do_bench``.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.checks import refuse_masks
from fragmenta.errors import Error, KernelFault, ShapeError, ValueRangeError
from fragmenta.isa.target import check_target, number
from fragmenta.ptx.arguments import Pointer
from fragmenta.ptx.kernel import Kernel, parse
from fragmenta.ptx.result import Result

try:
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase
    from triton.runtime import driver as triton_driver
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.cache import get_cache_manager
    from triton.runtime.jit import JITFunction, TensorWrapper
except ImportError as why:
    raise ImportError(
        f"fragmenta.triton needs Triton ({why}); pip install 'fragmenta[triton]'"
    ) from why

__all__ = ["CPU", "install", "on_cpu", "uninstall"]

PER_MILLISECOND = 1000
"""How many executed warp instructions count as a millisecond."""


# ── switching it on and off ─────────────────────────────────────────────────


@contextmanager
def on_cpu(target: str = "sm_80") -> Iterator[CPU]:
    """In this block, Triton kernels run here, compiled for a target.

    What was launched last is in the object that ``with`` gives::

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
    cpu = install(target)
    try:
        yield cpu
    finally:
        _remove(cpu)


def install(target: str = "sm_80") -> CPU:
    """From now on, Triton kernels run here; :func:`uninstall` ends it.

    >>> cpu = install("sm_90a")
    >>> cpu.target
    'sm_90a'
    >>> uninstall()
    """
    cpu = CPU(target)
    if not _INSTALLED:
        _take_arrays()
    _INSTALLED.append(_Installed(cpu, getattr(triton_driver, "_active", None)))
    triton_driver.set_active(cpu)
    return cpu


def uninstall() -> None:
    """Undo the last :func:`install`.

    >>> uninstall()
    Traceback (most recent call last):
    ...
    fragmenta.errors.Error: nothing to undo: fragmenta.triton is not installed
    """
    if not _INSTALLED:
        raise Error("nothing to undo: fragmenta.triton is not installed")
    _remove(_INSTALLED[-1].cpu)


class _Installed(NamedTuple):
    cpu: CPU
    before: Any
    """The driver that Triton had; None if it had not looked for one."""


_INSTALLED: list[_Installed] = []


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
        _give_back()


# ── what Triton sees ────────────────────────────────────────────────────────


class CPU(DriverBase):  # type: ignore[misc, unused-ignore]
    """What Triton takes for a GPU and its driver; see :func:`on_cpu`.

    >>> CPU("sm_80").get_current_target().arch
    80
    """

    def __init__(self, target: str = "sm_80") -> None:
        super().__init__()
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

    def get_current_target(self) -> Any:
        """What to compile for."""
        return GPUTarget("cuda", number(self.target), 32)

    def get_current_device(self) -> str:
        """Under this name Triton keeps what it has compiled."""
        return f"fragmenta {self.target}"

    def set_current_device(self, device: object) -> None:
        """There is only one."""

    def get_current_stream(self, device: object) -> int:
        """All launches are in order."""
        return 0

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        """The numbers of the target."""
        return divmod(number(self.target), 10)

    def get_active_torch_device(self) -> Any:
        """Where PyTorch's tensors must be."""
        import torch

        return torch.device("cpu")

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Only launchers in C++ ask for this."""
        raise Error("fragmenta.triton launches without C++")

    # What is measured are instructions.

    def get_benchmarker(self) -> Callable[..., Any]:
        """For ``@triton.autotune``: runs a configuration once and counts."""
        return self._measure

    def _measure(
        self,
        call: Callable[[], Any],
        quantiles: Sequence[float] | None = None,
        **_: Any,
    ) -> Any:
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
        raise Error(
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
    """The part of ``torch.cuda`` that measuring needs."""

    Event = _Event

    @staticmethod
    def synchronize() -> None:
        """All launches have ended."""


# Bytes of shared memory that a block can have, and processors of a GPU of the kind:
# V100, T4, A100, RTX 3090, Orin, L40S, H200, B200, B300, Thor, RTX 5090, Spark.
_PROPERTIES = {
    70: (96, 80), 75: (64, 40), 80: (163, 108), 86: (99, 82), 87: (163, 16),
    89: (99, 142), 90: (227, 132), 100: (227, 148), 103: (227, 148), 110: (227, 20),
    120: (99, 170), 121: (99, 48),
}  # fmt: skip


class _Utilities:
    """What Triton asks of a driver's library."""

    def __init__(self, architecture: int) -> None:
        nearest = max((n for n in _PROPERTIES if n <= architecture), default=70)
        self._shared, self._processors = _PROPERTIES[nearest]

    def get_device_properties(self, device: object) -> dict[str, int]:
        """What a kernel may use."""
        return {
            "max_shared_mem": self._shared * 1024,
            "max_num_regs": 65536,
            "multiprocessor_count": self._processors,
            "warpSize": 32,
        }

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: object
    ) -> tuple[None, str, int, int, int]:
        """No module, a name; as registers, the most that a thread can have.

        The launcher has the PTX.  What Triton takes for a module it would unload with
        the driver of that time, which may be a GPU's.
        """
        return None, name, 255, 0, 1024


# ── a launch ────────────────────────────────────────────────────────────────


class _Launcher:
    """Launches one compiled kernel."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.signature = dict(source.signature)
        self.metadata = metadata
        self.kernel = _kernel(source, metadata)
        if metadata.num_ctas != 1:
            raise Error(
                f"{metadata.name} has num_ctas={metadata.num_ctas}, clusters of "
                "blocks; only num_ctas=1 runs here"
            )

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: object,
        function: object,
        packed: object,
        launch: Any,
        enter: Callable[[Any], Any] | None,
        leave: Callable[[Any], Any] | None,
        *arguments: Any,
    ) -> None:
        cpu = _current()
        if enter is not None:
            enter(launch)
        flat = list(_flat(self.signature.items(), arguments, self.metadata))
        given = [each.bytes_or_pointer() for each in flat]
        blocks = int(x) * int(y) * int(z)
        if blocks:
            given += self._scratch(blocks, len(given))
            self._run(cpu, (x, y, z), given, [each.name for each in flat])
        if leave is not None:
            leave(launch)

    def _run(
        self, cpu: CPU, grid: tuple[int, int, int], given: list[Any], names: list[str]
    ) -> None:
        made = self.metadata
        try:
            cpu.last = self.kernel.launch(
                grid,
                32 * made.num_warps,
                given,
                shared=made.shared,
                target=cpu.target,
                contract=getattr(made, "enable_fp_fusion", True),
            )
        except KernelFault as fault:
            raise _in_words_of_triton(fault, self.kernel, names) from None
        cpu.instructions += cpu.last.instructions
        if cpu.last.output:
            sys.stdout.write(cpu.last.output)

    def _scratch(self, blocks: int, known: int) -> list[Any]:
        """The memory that a kernel wants beside its arguments."""
        sizes = (self.metadata.global_scratch_size,
                 getattr(self.metadata, "profile_scratch_size", 0))  # fmt: skip
        wanted = len(self.kernel.parameters) - known
        return [
            np.zeros(size * blocks, np.uint8) if size else 0 for size in sizes[:wanted]
        ]


def _kernel(source: Any, metadata: Any) -> Kernel:
    """The kernel of the PTX that Triton keeps in its cache."""
    files = get_cache_manager(metadata.hash).get_group(f"{source.name[:150]}.json")
    paths = [path for path in (files or {}).values() if path.endswith(".ptx")]
    if not paths:
        raise Error(
            f"Triton kept no PTX of {metadata.name}; unset TRITON_STORE_BINARY_ONLY"
        )
    return _loaded(paths[0], metadata.name)


@functools.lru_cache(maxsize=256)
def _loaded(path: str, name: str) -> Kernel:
    """The kernel of a file; its name holds a digest of all that it is made of."""
    return parse(Path(path).read_text(encoding="utf-8"), name).kernels[name]


def _in_words_of_triton(
    fault: KernelFault, kernel: Kernel, names: list[str]
) -> KernelFault:
    """The same fault; parameters have the names that they have in Python."""
    message = str(fault)
    numbered = list(zip(kernel.parameters, names, strict=False))
    for parameter, name in reversed(numbered):  # _param_10 before _param_1
        message = message.replace(parameter.name, name)
    return KernelFault(message, *fault.args[1:])


# ── arguments ───────────────────────────────────────────────────────────────


class _Given(NamedTuple):
    """An argument, and Triton's word for its type."""

    name: str
    type: str
    value: Any

    def bytes_or_pointer(self) -> Any:
        """The argument as the engine takes it."""
        if self.type.startswith("*"):
            return _pointer(self.value, self.name)
        return _number(self.value, self.type, self.name)


def _flat(signature: Any, arguments: Sequence[Any], metadata: Any) -> Iterator[_Given]:
    """What is left of the arguments: no constants, tuples one by one."""
    for (name, kind), value in zip(signature, arguments, strict=True):
        if isinstance(kind, tuple):
            inner = [(f"{name}[{i}]", each) for i, each in enumerate(kind)]
            yield from _flat(inner, value, metadata)
        elif kind.startswith("tensordesc"):
            yield from _descriptor(name, kind, value, metadata)
        elif kind != "constexpr":
            yield _Given(str(name), kind, value)


def _descriptor(name: str, kind: str, value: Any, metadata: Any) -> Iterator[_Given]:
    """A tensor descriptor: where TMA does not exist, its parts."""
    if getattr(metadata, "tensordesc_meta", None):
        raise Error(
            f"{name} is a tensor descriptor, which becomes a tensor map (TMA) on "
            f"sm_{metadata.target.arch}; it runs here for sm_80 to sm_89"
        )
    element = kind.partition("<")[2].partition("[")[0]
    yield _Given(name, f"*{element}", value.base)
    for size in (*value.shape, *value.strides):
        yield _Given(name, "i64", size)
    yield _Given(name, "i1", value.padding == "nan")
    if hasattr(value, "round_f32_to_tf32"):  # since Triton 3.7
        yield _Given(name, "i1", value.round_f32_to_tf32)
    for size in value.shape:
        yield _Given(name, "i32", size)
    for step in value.strides:
        yield _Given(name, "i64", step)


def _pointer(value: Any, name: str) -> Any:
    """A pointer to an array's memory."""
    if isinstance(value, TensorWrapper):
        value = value.base
    if value is None or (isinstance(value, int) and value == 0):
        return 0
    if not hasattr(value, "data_ptr"):
        raise Error(
            f"{name} is a pointer; give an array or a CPU tensor, not "
            f"{type(value).__name__} {value!r}"
        )
    where = str(getattr(value, "device", "cpu"))
    if not where.startswith("cpu"):
        raise Error(
            f"{name} is on {where}; here kernels run on the CPU: give {name}.cpu(), or "
            "leave on_cpu() to run on the GPU"
        )
    return Pointer(_memory(value, name), 0)


def _memory(value: Any, name: str) -> NDArray[np.uint8]:
    """The bytes from the first to the last element, in place."""
    strides = list(value.stride())
    if any(step < 0 for step in strides):
        raise ShapeError(
            f"{name} runs backwards (strides {tuple(strides)}), so its pointer is not "
            "where its memory starts; numpy.ascontiguousarray makes a copy"
        )
    shape = list(value.shape)
    steps = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    size = (steps + 1) * value.element_size() if all(shape) else 0
    if not size:
        return np.zeros(0, np.uint8)
    memory = (ctypes.c_uint8 * size).from_address(value.data_ptr())
    found: NDArray[np.uint8] = np.ctypeslib.as_array(memory)
    flags = getattr(value, "flags", None)
    found.flags.writeable = flags is None or bool(flags.writeable)
    return found


_FLOATS: dict[str, Any] = {
    "fp16": np.float16,
    "fp32": np.float32,
    "f32": np.float32,
    "fp64": np.float64,
}


def _number(value: Any, kind: str, name: str) -> bytes:
    """A number as the bytes of a Triton type."""
    if kind == "bf16":  # Triton's own launcher cuts it off
        return np.float32(value).tobytes()[2:]
    if kind in _FLOATS:
        with np.errstate(over="ignore"):
            return bytes(_FLOATS[kind](value).tobytes())
    bits = int(kind[1:])
    given = int(value)
    low, high = (0, 1 << bits) if kind[0] == "u" else (-(1 << bits - 1), 1 << bits - 1)
    if bits == 1:
        low, high = 0, 2
    if not low <= given < high:
        raise ValueRangeError(
            f"{name} is an {kind}, from {low} to {high - 1}; given {given}"
        )
    size = max(8, bits) // 8
    return given.to_bytes(size, "little", signed=low < 0)


# ── NumPy arrays ────────────────────────────────────────────────────────────


class _Array(np.ndarray[Any, Any]):
    """A NumPy array with the methods of a tensor that Triton calls."""

    def data_ptr(self) -> int:
        return int(self.ctypes.data)

    def element_size(self) -> int:
        return self.itemsize

    def stride(self, axis: int | None = None) -> Any:
        steps = tuple(step // self.itemsize for step in self.strides)
        return steps if axis is None else steps[axis]

    # For reset_to_zero= and restore_value= of @triton.autotune.

    def zero_(self) -> _Array:
        self.fill(0)
        return self

    def clone(self) -> _Array:
        return self.copy()

    def copy_(self, other: NDArray[Any]) -> _Array:
        self[...] = other
        return self


def _tensor(value: Any) -> Any:
    """An argument as Triton takes it."""
    if isinstance(value, np.ndarray):
        if isinstance(value, _Array):
            return value
        refuse_masks(value)
        if value.dtype.hasobject or not value.dtype.isnative:
            raise Error(
                f"a kernel needs numbers in native byte order, not {value.dtype}"
            )
        return value.view(_Array)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        inner = [_tensor(each) for each in value]
        return type(value)(*inner) if hasattr(value, "_fields") else type(value)(inner)
    return value


_RUNS: dict[type, Callable[..., Any]] = {}
"""How Triton runs each kind of kernel itself."""


def _take_arrays() -> None:
    """Let kernels take NumPy arrays."""
    for kind in (JITFunction, Autotuner, Heuristics):
        _RUNS[kind] = kind.run
        kind.run = _taking_arrays(kind.run)


def _give_back() -> None:
    for kind, run in _RUNS.items():
        kind.run = run  # type: ignore[attr-defined]
    _RUNS.clear()


def _taking_arrays(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def with_arrays(self: Any, *args: Any, **options: Any) -> Any:
        # A tuner keeps its benchmarker; the next launch may be on a GPU.
        vars(self).pop("do_bench", None)
        try:
            named = {name: _tensor(value) for name, value in options.items()}
            return run(self, *map(_tensor, args), **named)
        finally:
            vars(self).pop("do_bench", None)

    return with_arrays
