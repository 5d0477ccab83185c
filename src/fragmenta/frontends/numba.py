"""Runs kernels of numba-cuda without a GPU.

Numba compiles as for a GPU.  ``cuda.to_device``, ``device_array`` and the like give
NumPy arrays of their own.  Reports name the lines of the Python source::

    @cuda.jit
    def add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + y[i]

    with fragmenta.frontends.numba.on_cpu("sm_90a") as cpu:
        add[8, 128](x, x, out)
    print(cpu.last.counts)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fragmenta.errors import BadCall, MissingPackage, missing
from fragmenta.frontends.memory import pointer_to, whole
from fragmenta.frontends.protocol import Made, Passed, Patches, Session
from fragmenta.isa.target import number
from fragmenta.ptx.languages import NUMBA

try:
    from numba import cuda, types
    from numba.cuda.dispatcher import CUDADispatcher, ForAll, config
except ImportError as why:
    raise MissingPackage(
        f"fragmenta.frontends.numba needs numba-cuda: {missing('numba-cuda', why)}"
    ) from None

THREADS = 128
"""Threads of a block for ``kernel.forall``."""
_TAKEN = ("debug", "lineinfo", "fastmath", "opt", "launch_bounds")


class Numba:
    """numba-cuda, as :mod:`fragmenta.frontends.protocol` describes front ends."""

    words = NUMBA

    def __init__(self) -> None:
        self._made: dict[object, Made] = {}

    def made(self, kernel: Any, arguments: Sequence[object], target: str) -> Made:
        """The PTX for arguments of these types."""
        signature = _signature(kernel, arguments)
        key = kernel, signature, target
        if key not in self._made:
            self._made[key] = Made(_compiled(kernel, signature, target))
        return self._made[key]

    def passed(self, kernel: Any, arguments: Sequence[object]) -> Iterator[Passed]:
        """The words of each argument; a 1-D array has seven."""
        names = inspect.signature(kernel.py_func).parameters
        signature = _signature(kernel, arguments)
        for name, kind, value in zip(names, signature, arguments, strict=True):
            yield from _words(kernel, name, kind, value)

    def divert(self, session: Session) -> Callable[[], None]:
        """Let ``kernel[grid, block](...)`` come to the session."""

        def call(kernel: Any, arguments: Sequence[object], how: Any) -> None:
            taken = [_taken(each) for each in arguments]
            code = self.made(kernel, taken, session.target).ptx
            session.launch(
                kernel,
                how.griddim,
                how.blockdim,
                taken,
                shared=int(how.sharedmem),
                cooperative="cudaCGGetIntrinsicHandle" in code,
            )

        def compile_for(kernel: Any, signature: Any) -> None:
            given, _ = cuda.compiler.sigutils.normalize_signature(signature)
            _declared(kernel).append(given)

        def for_all(ready: Any, *arguments: object) -> None:
            block = ready.thread_per_block or THREADS
            grid = -(-ready.ntasks // block)
            if grid:
                ready.dispatcher[grid, block, 0, ready.sharedmem](*arguments)

        patches = Patches()
        patches.set(CUDADispatcher, "call", call)
        patches.set(CUDADispatcher, "compile", compile_for)
        patches.set(CUDADispatcher, "disable_compile", _nothing)
        patches.set(ForAll, "__call__", for_all)
        patches.set(config, "CUDA_LOW_OCCUPANCY_WARNINGS", 0)  # small grids are fine
        for name, function in _HERE.items():
            patches.set(cuda, name, function)
        return patches.undo


@contextmanager
def on_cpu(target: str = "sm_90a", **options: object) -> Iterator[Session]:
    """In this block, kernels of numba-cuda run here, compiled for a target.

    The options are those of :meth:`fragmenta.ptx.Kernel.launch`: ``schedule``,
    ``watch`` and ``limits``.  ``with`` gives an object with ``last``, the result of the
    last launch.

    >>> import numpy as np
    >>> from numba import cuda
    >>> @cuda.jit
    ... def twice(x):
    ...     x[cuda.grid(1)] *= 2
    >>> x = np.arange(4.0)
    >>> with on_cpu("sm_80"):
    ...     twice[1, 4](x)
    >>> x
    array([0., 2., 4., 6.])
    """
    with Session(_NUMBA, target, **options).diverted() as session:
        yield session


_NUMBA = Numba()


# ── compiling ───────────────────────────────────────────────────────────────


def _declared(kernel: Any) -> list[tuple[Any, ...]]:
    """The signatures that a kernel was declared with: ``@cuda.jit("void(f4[:])")``."""
    found: list[tuple[Any, ...]] = vars(kernel).setdefault("_fragmenta_declared", [])
    return found


def _signature(kernel: Any, arguments: Sequence[object]) -> tuple[Any, ...]:
    """The types of the parameters: as declared, else those of the arguments."""
    count = len(inspect.signature(kernel.py_func).parameters)
    if count != len(arguments):
        name = kernel.py_func.__name__
        raise BadCall(f"{name} takes {count} arguments; given {len(arguments)}")
    given = tuple(kernel.typeof_pyval(each) for each in arguments)
    known = [*_declared(kernel), *kernel.overloads]
    if given in known or not known:
        return given
    fitting = [each for each in known if len(each) == len(given)]
    return fitting[0] if fitting and _declared(kernel) else given


def _compiled(kernel: Any, signature: tuple[Any, ...], target: str) -> str:
    options = dict(kernel.targetoptions)
    if options.get("link"):
        raise BadCall("a kernel that is linked with other files does not run here")
    taken = {name: options[name] for name in _TAKEN if options.get(name) is not None}
    taken["lineinfo"] = not taken.get("debug", False)
    text, _ = cuda.compile(
        kernel.py_func,
        signature,
        device=False,
        abi="numba",
        cc=divmod(number(target), 10),
        output="ptx",
        **taken,
    )
    return str(text)


# ── arguments ───────────────────────────────────────────────────────────────


def _words(kernel: Any, name: str, kind: Any, value: Any) -> Iterator[Passed]:
    """The parameters that an argument becomes, as Numba's launcher passes it."""
    for extension in reversed(kernel.targetoptions.get("extensions") or ()):
        kind, value = extension.prepare_args(kind, value, stream=0, retr=[])
    if isinstance(kind, types.Array):
        yield from _array(name, value)
    elif isinstance(kind, types.Record):
        yield Passed(name, pointer_to(np.asarray(value)))
    elif isinstance(kind, types.BaseTuple):
        for i, (inner, each) in enumerate(zip(kind, value, strict=True)):
            yield from _words(kernel, f"{name}[{i}]", inner, each)
    elif isinstance(kind, types.EnumMember):
        yield from _words(kernel, name, kind.dtype, value.value)
    elif isinstance(kind, types.Complex):
        part = np.float32 if kind == types.complex64 else np.float64
        yield Passed(f"{name}.real", part(value.real).tobytes())
        yield Passed(f"{name}.imag", part(value.imag).tobytes())
    else:
        yield Passed(name, _number(name, kind, value))


def _array(name: str, value: Any) -> Iterator[Passed]:
    """An array: no owner, its size, its memory, then shape and strides."""
    array = np.asarray(value)
    yield Passed(f"{name}.meminfo", bytes(8))
    yield Passed(f"{name}.parent", bytes(8))
    yield Passed(f"{name}.size", whole(array.size, 8, True, name))
    yield Passed(f"{name}.itemsize", whole(array.itemsize, 8, True, name))
    yield Passed(name, pointer_to(array))
    for title, sizes in (("shape", array.shape), ("strides", array.strides)):
        for axis, size in enumerate(sizes):
            yield Passed(f"{name}.{title}[{axis}]", whole(size, 8, True, name))


def _number(name: str, kind: Any, value: Any) -> bytes:
    if isinstance(kind, types.Integer):
        return whole(value, kind.bitwidth // 8, kind.signed, name)
    if kind == types.boolean:
        return bytes([bool(value)])
    if isinstance(kind, types.Float):
        return np.array(value, f"f{kind.bitwidth // 8}").tobytes()
    if isinstance(kind, (types.NPDatetime, types.NPTimedelta)):
        return bytes(value.view(np.int64).tobytes())
    raise BadCall(f"{name} is a {kind}, which a kernel here does not take")


# ── the functions of numba.cuda that need a device ──────────────────────────


class DeviceArray(np.ndarray[Any, Any]):
    """An array with the methods of Numba's device arrays."""

    def copy_to_host(self, ary: Any = None, stream: object = 0) -> Any:
        """A copy, or the elements copied into ``ary``."""
        if ary is None:
            return np.array(self, subok=False)
        ary[...] = self
        return ary

    def copy_to_device(self, ary: Any, stream: object = 0) -> None:
        """Take the elements of another array."""
        self[...] = ary


def _taken(value: object) -> object:
    """What ``cuda.In``, ``Out`` and ``InOut`` hold, or the value itself."""
    inner = getattr(value, "value", None)
    return inner if isinstance(value, cuda.args.ArgHint) else value


def to_device(obj: Any, stream: object = 0, copy: bool = True, to: Any = None) -> Any:
    """A copy of an array."""
    if to is not None:
        to[...] = obj
        return to
    return np.array(obj, order="K").view(DeviceArray)


def device_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: Any = "C",
    stream: object = 0,
) -> Any:
    """A new array."""
    return np.empty(shape, dtype, order).view(DeviceArray)


def device_array_like(ary: Any, stream: object = 0) -> Any:
    """A new array of the same shape."""
    return np.empty_like(ary, subok=False).view(DeviceArray)


def _nothing(*given: object, **named: object) -> None:
    """Launches are complete when they return."""


_HERE: dict[str, Callable[..., object]] = {
    "to_device": to_device,
    "device_array": device_array,
    "device_array_like": device_array_like,
    "pinned_array": device_array,
    "mapped_array": device_array,
    "managed_array": device_array,
    "synchronize": _nothing,
}
