"""Runs programs that use CuPy's ``RawKernel`` and ``RawModule``, without CuPy or a GPU.

In a block ``with on_cpu(...)``, ``import cupy`` gives a module that is NumPy with what
CuPy adds for kernels in CUDA C++: :class:`~fragmenta.ptx.RawKernel` and
:class:`~fragmenta.ptx.RawModule`, ``asnumpy``, ``array.get()``, devices, streams and
events.  So a program runs as it is::

    with fragmenta.frontends.cupy.on_cpu("sm_90a"):
        runpy.run_path("my_cupy_program.py", run_name="__main__")

Kernels that CuPy itself writes, such as ``ElementwiseKernel``, are refused by name.
Events count time as :mod:`fragmenta.triton` does: a thousand executed warp instructions
are a millisecond.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fragmenta.errors import BadCall, nearest
from fragmenta.frontends.api import raw
from fragmenta.frontends.api.kernels import Kernel, Result
from fragmenta.frontends.protocol import CompiledPtx, Passed, Session
from fragmenta.launch.request import OptionsOnTarget
from fragmenta.ptx.languages import CUDA

PER_MILLISECOND = 1000
"""How many executed warp instructions count as a millisecond."""
_REFUSED = (
    "ElementwiseKernel",
    "ReductionKernel",
    "fuse",
    "jit",
    "cutensor",
    "cusparse",
)


class Array(np.ndarray[tuple[int, ...], np.dtype[np.generic]]):
    """A NumPy array with the methods that CuPy's have besides."""

    def get(self, *given: object, **named: object) -> NDArray[np.generic]:
        """A copy as NumPy's array."""
        return np.array(self, subok=False)

    def set(self, array: ArrayLike, stream: object = None) -> None:
        """Take the elements of another array."""
        self[...] = array


class CuPy:
    """CuPy, as :mod:`fragmenta.frontends.protocol` describes front ends."""

    words = CUDA

    def made(
        self, kernel: raw.RawKernel, arguments: Sequence[object], target: str
    ) -> CompiledPtx:
        """The PTX of a kernel in CUDA C++."""
        return CompiledPtx(kernel.kernel.loaded.module.text, kernel.kernel.name)

    def passed(
        self, kernel: raw.RawKernel, arguments: Sequence[object]
    ) -> Iterator[Passed]:
        """The arguments as they are."""
        for index, each in enumerate(arguments):
            yield Passed(kernel.kernel.parameter_name(index), each)

    def divert(self, session: Session[raw.RawKernel]) -> Callable[[], None]:
        """Let ``import cupy`` give a module of this session."""
        module = _module(session)
        made = {each.__name__: each for each in _parts(module)}
        before = {name: sys.modules.get(name) for name in made}
        sys.modules.update(made)

        def undo() -> None:
            for name, old in before.items():
                if old is None:
                    sys.modules.pop(name, None)
                else:
                    sys.modules[name] = old

        return undo


@contextmanager
def on_cpu(
    target: str = "sm_90a", **options: Unpack[OptionsOnTarget]
) -> Iterator[Session[raw.RawKernel]]:
    """In this block, ``import cupy`` gives a module whose kernels run here.

    The options are those of :meth:`fragmenta.ptx.Kernel.launch`: ``schedule``,
    ``watch``, ``limits``, ``numerics`` and ``nan``.  ``with`` gives an object with
    ``last``, the result of the last launch.

    >>> with on_cpu("sm_80") as cpu:
    ...     import cupy
    ...     code = '''extern "C" __global__ void twice(double *x)
    ...     { x[threadIdx.x] *= 2; }'''
    ...     x = cupy.arange(4.0)
    ...     _ = cupy.RawKernel(code, "twice")((1,), (4,), (x,))
    >>> x.get(), cpu.last.target
    (array([0., 2., 4., 6.]), 'sm_80')
    """
    with Session(CuPy(), target, **options).diverted() as session:
        yield session


# ── the module ──────────────────────────────────────────────────────────────


class _Module(ModuleType):
    """A module of NumPy under another name, whose arrays have CuPy's methods."""

    def __init__(self, name: str, beneath: ModuleType) -> None:
        super().__init__(name)
        self._beneath = beneath
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> object:
        found = getattr(self._beneath, name, None)
        if found is None or name in _REFUSED:
            near = nearest(name, dir(self._beneath))
            raise AttributeError(
                f"{self.__name__}.{name} is not here{near}: NumPy's functions, "
                "RawKernel and RawModule are"
            )
        if isinstance(found, type) or not callable(found):
            return found
        return _giving_arrays(found)


def _giving_arrays(function: Callable[..., object]) -> Callable[..., object]:
    """A function whose arrays have CuPy's methods."""

    def call(*given: object, **named: object) -> object:
        found = function(*given, **named)
        return found.view(Array) if isinstance(found, np.ndarray) else found

    call.__name__ = getattr(function, "__name__", "call")
    return call


def _parts(module: ModuleType) -> list[ModuleType]:
    """A module, and those in it."""
    inner = [each for each in vars(module).values() if isinstance(each, _Module)]
    return [module, *inner]


def _module(session: Session[raw.RawKernel]) -> _Module:
    """What ``import cupy`` gives."""
    made = _Module("cupy", np)
    kernel, module = _kernels(session)
    made.RawKernel, made.RawModule = kernel, module  # type: ignore[attr-defined]
    made.ndarray = Array  # type: ignore[attr-defined]
    made.asnumpy = lambda array, *_, **__: np.array(array, subok=False)  # type: ignore[attr-defined]
    made.random = _Module("cupy.random", np.random)  # type: ignore[attr-defined]
    made.testing = _Module("cupy.testing", np.testing)  # type: ignore[attr-defined]
    made.linalg = _Module("cupy.linalg", np.linalg)  # type: ignore[attr-defined]
    vars(made.random).update(_random())
    made.cuda = _Module("cupy.cuda", ModuleType("cupy.cuda"))  # type: ignore[attr-defined]
    vars(made.cuda).update(_cuda(session))
    return made


def _kernels(
    session: Session[raw.RawKernel],
) -> tuple[type[raw.RawKernel], type[raw.RawModule]]:
    """``RawKernel`` and ``RawModule`` for the target and the options of a session."""

    class RawKernel(raw.RawKernel):
        default_target = session.target

        def __call__(
            self,
            grid: int | Sequence[int],
            block: int | Sequence[int],
            arguments: Sequence[object] = (),
            *,
            shared: int = 0,
            args: Sequence[object] | None = None,
            shared_mem: int | None = None,
            **options: object,
        ) -> Result:
            if options:
                raise BadCall(f"CuPy's kernels take no {', '.join(options)}")
            kernel = self.kernel
            assert isinstance(kernel, Kernel)  # see modules
            return session.run(
                kernel,
                grid,
                block,
                arguments if args is None else args,
                shared=shared if shared_mem is None else shared_mem,
                cooperative=self.enable_cooperative_groups,
            )

    class RawModule(raw.RawModule):
        kernel_type = RawKernel
        default_target = session.target

    return RawKernel, RawModule


def _random() -> dict[str, Callable[..., object]]:
    """Functions of ``cupy.random`` that take a type, which NumPy's do not."""

    def typed(name: str) -> Callable[..., object]:
        function = getattr(np.random, name)

        def call(*given: object, dtype: DTypeLike = float, **named: object) -> Array:
            return np.asarray(function(*given, **named), dtype).view(Array)

        return call

    names = ("rand", "randn", "random", "random_sample", "uniform", "normal")
    return {name: typed(name) for name in names}


# ── devices, streams, events ────────────────────────────────────────────────


def _cuda(session: Session[raw.RawKernel]) -> dict[str, object]:
    """What is in ``cupy.cuda``."""

    class Event:
        def __init__(self, *given: object, **named: object) -> None:
            self.at = session.instructions

        def record(self, stream: object = None) -> None:
            self.at = session.instructions

        def synchronize(self) -> None:
            """Launches are complete when they return."""

    def elapsed(start: Event, end: Event) -> float:
        return (end.at - start.at) / PER_MILLISECOND

    runtime = _Module("cupy.cuda.runtime", ModuleType("cupy.cuda.runtime"))
    vars(runtime).update(
        deviceSynchronize=lambda: None,
        getDeviceCount=lambda: 1,
        getDevice=lambda: 0,
    )
    return {
        "Device": _DeviceOrStream,
        "Stream": _DeviceOrStream,
        "Event": Event,
        "get_elapsed_time": elapsed,
        "runtime": runtime,
        "is_available": lambda: True,
    }


class _DeviceOrStream:
    """A device or a stream; there is one."""

    null: _DeviceOrStream

    def __init__(self, number: int | None = None, **named: object) -> None:
        if number not in (None, 0):
            raise BadCall(f"there is one device here, 0; given {number}")

    def __enter__(self) -> _DeviceOrStream:
        return self

    def __exit__(self, *given: object) -> None:
        """Nothing is to be done."""

    def use(self) -> _DeviceOrStream:
        """Nothing is to be done."""
        return self

    def synchronize(self) -> None:
        """Launches are complete when they return."""

    def record(self, event: object = None) -> object:
        """Note the time."""
        return event


_DeviceOrStream.null = _DeviceOrStream()
