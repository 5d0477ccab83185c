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

import enum
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol, SupportsInt, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fragmenta.errors import BadCall, MissingPackage, missing
from fragmenta.frontends.memory import pointer_to, whole
from fragmenta.frontends.protocol import (
    CompiledPtx,
    Passed,
    Patches,
    Session,
)
from fragmenta.launch.request import OptionsOnTarget
from fragmenta.ptx.languages import NUMBA
from fragmenta.reference.isa.target import number

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


Kind: TypeAlias = object
"""A type of Numba's."""


class Extension(Protocol):
    """Something that prepares arguments before they are passed."""

    def prepare_args(
        self, ty: Kind, val: object, stream: object, retr: list[object]
    ) -> tuple[Kind, object]:
        """Another type and value."""


class Dispatcher(Protocol):
    """What is used of a kernel of Numba."""

    py_func: Callable[..., object]
    targetoptions: dict[str, object]
    overloads: dict[tuple[Kind, ...], object]

    def typeof_pyval(self, val: object) -> Kind:
        """The type of an argument."""

    def __getitem__(self, sizes: tuple[int, ...]) -> Callable[..., object]:
        """What is called with the arguments."""


class Configuration(Protocol):
    """The sizes of a launch."""

    griddim: Sequence[int]
    blockdim: Sequence[int]
    sharedmem: int


class EveryTask(Protocol):
    """What ``kernel.forall(n)`` gives."""

    dispatcher: Dispatcher
    ntasks: int
    thread_per_block: int
    sharedmem: int


class Numba:
    """numba-cuda, as :mod:`fragmenta.frontends.protocol` describes front ends."""

    words = NUMBA

    def __init__(self) -> None:
        self._made: dict[object, CompiledPtx] = {}

    def made(
        self, kernel: Dispatcher, arguments: Sequence[object], target: str
    ) -> CompiledPtx:
        """The PTX for arguments of these types."""
        signature = _signature(kernel, arguments)
        key = kernel, signature, target
        if key not in self._made:
            self._made[key] = CompiledPtx(_compiled(kernel, signature, target))
        return self._made[key]

    def passed(
        self, kernel: Dispatcher, arguments: Sequence[object]
    ) -> Iterator[Passed]:
        """The words of each argument; a 1-D array has seven."""
        names = inspect.signature(kernel.py_func).parameters
        signature = _signature(kernel, arguments)
        for name, kind, value in zip(names, signature, arguments, strict=True):
            yield from _words(kernel, name, kind, value)

    def divert(self, session: Session[Dispatcher]) -> Callable[[], None]:
        """Let ``kernel[grid, block](...)`` come to the session."""

        def call(
            kernel: Dispatcher, arguments: Sequence[object], how: Configuration
        ) -> None:
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

        def compile_for(kernel: Dispatcher, signature: object) -> None:
            given, _ = cuda.compiler.sigutils.normalize_signature(signature)
            _declared(kernel).append(given)

        def for_all(ready: EveryTask, *arguments: object) -> None:
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
def on_cpu(
    target: str = "sm_90a", **options: Unpack[OptionsOnTarget]
) -> Iterator[Session[Dispatcher]]:
    """In this block, kernels of numba-cuda run here, compiled for a target.

    The options are those of :meth:`fragmenta.ptx.Kernel.launch`: ``schedule``,
    ``watch``, ``limits``, ``numerics`` and ``nan``.  ``with`` gives an object with
    ``last``, the result of the last launch.

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


def _declared(kernel: Dispatcher) -> list[tuple[Kind, ...]]:
    """The signatures that a kernel was declared with: ``@cuda.jit("void(f4[:])")``."""
    found: list[tuple[Kind, ...]] = vars(kernel).setdefault("_fragmenta_declared", [])
    return found


def _signature(kernel: Dispatcher, arguments: Sequence[object]) -> tuple[Kind, ...]:
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


def _compiled(kernel: Dispatcher, signature: tuple[Kind, ...], target: str) -> str:
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


def _words(
    kernel: Dispatcher, name: str, kind: Kind, value: object
) -> Iterator[Passed]:
    """The parameters that an argument becomes, as Numba's launcher passes it."""
    extensions = kernel.targetoptions.get("extensions")
    for extension in reversed(extensions if isinstance(extensions, list) else []):
        kind, value = extension.prepare_args(kind, value, stream=0, retr=[])
    if isinstance(kind, types.Array):
        yield from _array(name, value)
    elif isinstance(kind, types.Record):
        yield Passed(name, pointer_to(np.asarray(value)))
    elif isinstance(kind, types.BaseTuple):
        assert isinstance(value, tuple), name
        for i, (inner, each) in enumerate(zip(kind, value, strict=True)):
            yield from _words(kernel, f"{name}[{i}]", inner, each)
    elif isinstance(kind, types.EnumMember):
        assert isinstance(value, enum.Enum), name
        yield from _words(kernel, name, kind.dtype, value.value)
    elif isinstance(kind, types.Complex):
        whole_number = np.asarray(value, str(kind))
        yield Passed(f"{name}.real", whole_number.real.tobytes())
        yield Passed(f"{name}.imag", whole_number.imag.tobytes())
    else:
        yield Passed(name, _number(name, kind, value))


def _array(name: str, value: object) -> Iterator[Passed]:
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


def _number(name: str, kind: Kind, value: object) -> bytes:
    if isinstance(kind, types.Integer):
        assert isinstance(value, SupportsInt), name
        return whole(int(value), kind.bitwidth // 8, kind.signed, name)
    if kind == types.boolean:
        return bytes([bool(value)])
    if isinstance(kind, types.Float):
        return np.asarray(value, f"f{kind.bitwidth // 8}").tobytes()
    if isinstance(kind, (types.NPDatetime, types.NPTimedelta)):
        return np.asarray(value).tobytes()
    raise BadCall(f"{name} is a {kind}, which a kernel here does not take")


# ── the functions of numba.cuda that need a device ──────────────────────────


class DeviceArray(np.ndarray[tuple[int, ...], np.dtype[np.generic]]):
    """An array with the methods of Numba's device arrays."""

    def copy_to_host(
        self, ary: NDArray[np.generic] | None = None, stream: object = 0
    ) -> NDArray[np.generic]:
        """A copy, or the elements copied into ``ary``."""
        if ary is None:
            return np.array(self, subok=False)
        ary[...] = self
        return ary

    def copy_to_device(self, ary: ArrayLike, stream: object = 0) -> None:
        """Take the elements of another array."""
        self[...] = ary


def _taken(value: object) -> object:
    """What ``cuda.In``, ``Out`` and ``InOut`` hold, or the value itself."""
    inner = getattr(value, "value", None)
    return inner if isinstance(value, cuda.args.ArgHint) else value


def to_device(
    obj: ArrayLike,
    stream: object = 0,
    copy: bool = True,
    to: NDArray[np.generic] | None = None,
) -> NDArray[np.generic]:
    """A copy of an array."""
    if to is not None:
        to[...] = obj
        return to
    return np.array(obj, order="K").view(DeviceArray)


def device_array(
    shape: int | tuple[int, ...],
    dtype: DTypeLike = np.float64,
    strides: None = None,
    order: Literal["C", "F"] = "C",
    stream: object = 0,
) -> DeviceArray:
    """A new array."""
    return np.empty(shape, dtype, order).view(DeviceArray)


def device_array_like(ary: ArrayLike, stream: object = 0) -> DeviceArray:
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
