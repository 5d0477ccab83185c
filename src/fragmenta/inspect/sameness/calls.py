"""Launches as values: a kernel, its grid and block, its arguments and options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.engine.simt.arguments import Pointer, Struct, as_list
from fragmenta.errors import BadCall, shortened
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.request import Extent
from fragmenta.launch.result import Result

Item = TypeVar("Item")
OPTIONS = ("cluster", "cooperative", "shared", "target", "contract", "limits")
"""The options of a launch that a call has."""


class ArrayArgument(NamedTuple):
    """An array among the arguments of a call."""

    name: str
    """The name of the parameter."""
    array: Array


@dataclass(frozen=True, eq=False)
class Call:
    """A launch that can be made: the kernel, the grid, the block, the arguments.

    ``options`` are those of ``kernel.launch``: ``target``, ``shared`` and so on.  A
    ``ptx.RawKernel`` is taken, too.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> kernel = ptx.parse('''
    ... .version 8.0 .target sm_80 .address_size 64
    ... .entry nothing(.param .u64 x) { ret; }''').kernels["nothing"]
    >>> ptx.Call(kernel, 1, 32, [np.zeros(4)], target="sm_90")
    Call(nothing, grid 1, block 32, on sm_90)
    """

    kernel: Kernel
    grid: Extent
    block: Extent
    arguments: tuple[object, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        kernel: object,
        grid: Extent,
        block: Extent,
        arguments: Iterable[object] = (),
        **options: Any,
    ) -> None:
        kernel, own = _kernel(kernel)
        options = {**own, **options}
        strange = [each for each in options if each not in OPTIONS]
        if strange:
            raise BadCall(
                f"a call has no option {strange[0]}; there are {', '.join(OPTIONS)}"
            )
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "block", block)
        object.__setattr__(self, "arguments", tuple(as_list(arguments)))
        object.__setattr__(self, "options", dict(options))

    def __repr__(self) -> str:
        where = self.options.get("target")
        on = f", on {where}" if where else ""
        shown = self.kernel.function.shown
        return f"Call({shown}, grid {self.grid}, block {self.block}{on})"

    @property
    def target(self) -> str:
        """The target whose arithmetic it uses."""
        return str(self.options.get("target") or self.kernel.loaded.module.target)

    def on(self, target: str) -> Call:
        """The same call on another target."""
        return replace_options(self, target=target)

    def run(self, **more: Any) -> Result:
        """Launch it; arrays among its arguments change."""
        options = {"watch": False, **self.options, **more}
        return self.kernel.launch(self.grid, self.block, self.arguments, **options)

    def arrays(self) -> Iterator[ArrayArgument]:
        """All arrays that it can reach, with the names of their parameters."""
        # nvcc calls parameters KERNEL_param_0: two kernels would have none in common.
        own = f"{self.kernel.name}_param_"
        for number, each in enumerate(self.arguments):
            name = self.kernel.parameter_name(number)
            name = name.replace(own, "param_", 1) if name.startswith(own) else name
            for array in _arrays(each):
                yield ArrayArgument(name, array)


def _kernel(given: object) -> tuple[Kernel, dict[str, Any]]:
    """A kernel, also that of a ``RawKernel``, with the options that it has."""
    if isinstance(given, Kernel):
        return given, {}
    inner = getattr(given, "kernel", None)
    if not isinstance(inner, Kernel):
        raise BadCall(
            "kernel is one of ptx.parse or ptx.load, or a ptx.RawKernel; given "
            f"{type(given).__name__}"
        )
    together = bool(getattr(given, "enable_cooperative_groups", False))
    return inner, {"cooperative": True} if together else {}


def replace_options(call: Call, **options: Any) -> Call:
    """The same call with other options."""
    given = {**call.options, **options}
    return Call(call.kernel, call.grid, call.block, call.arguments, **given)


def _arrays(given: object) -> Iterator[Array]:
    if isinstance(given, np.ndarray):
        yield given
    elif isinstance(given, Pointer):
        yield given.array
    elif isinstance(given, Struct):
        for _, each in given.pointers:
            yield each.array
        for each in given.reaches:
            yield each.array


Program: TypeAlias = tuple[Call, ...]
"""Calls that are made one after the other: results of one are inputs of the next."""


def program(given: Call | Sequence[Call]) -> Program:
    """One call or several as a program."""
    calls = (given,) if isinstance(given, Call) else items(given)
    if not calls or not all(isinstance(each, Call) for each in calls):
        said = shortened(str(given))
        raise BadCall(f"a launch is a ptx.Call, or several in a list; given {said}")
    return calls


def one_launch(first: Program, second: Program) -> bool:
    """Whether two programs are one: only the numbers in their arrays may differ."""
    return [_form(each) for each in first] == [_form(each) for each in second]


def _form(call: Call) -> object:
    """All of a call but the numbers in its arrays."""
    places: dict[int, int] = {}

    def form(given: object) -> object:
        match given:
            case np.ndarray():
                place = places.setdefault(id(given), len(places))
                return given.dtype.str, given.shape, given.strides, place
            case Pointer():
                return form(given.array), given.offset, given.slot
            case Struct():
                pointers = [(offset, form(each)) for offset, each in given.pointers]
                return given.data, pointers, [form(each) for each in given.reaches]
            case bool() | int() | float() | bytes() | np.generic():
                return given
        return object()  # equal to nothing

    module = call.kernel.loaded.module
    where = call.kernel.name, call.grid, call.block, call.options, call.target
    return module.functions, module.variables, where, [*map(form, call.arguments)]


def items(given: Iterable[Item]) -> tuple[Item, ...]:
    """What a list has, or anything else that can be gone through; else nothing.

    >>> items([1, 2]), items(3)
    ((1, 2), ())
    """
    try:
        return tuple(given)
    except TypeError:
        return ()


def on_target(given: Program, target: str) -> Program:
    """The same program on another target."""
    return tuple(each.on(target) for each in given)
