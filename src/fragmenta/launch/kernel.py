"""Kernels of PTX files: reading a file, checking and launching its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import once_property
from fragmenta.errors import Error, PtxSyntaxError, nearest, one_of
from fragmenta.launch.listening import told
from fragmenta.launch.request import (
    Extent,
    LaunchOptions,
    LaunchRequest,
    names_options,
)
from fragmenta.launch.result import Result, hazard
from fragmenta.launch.source import PtxSource
from fragmenta.launch.variables import Variables
from fragmenta.ptx import reading
from fragmenta.ptx.languages import PTX, Words
from fragmenta.ptx.module import Function, demangled
from fragmenta.reference.isa.target import check_target, check_target_name

if TYPE_CHECKING:
    from fragmenta.launch.targets import Comparison
    from fragmenta.ptx.checking.problem import Problem


class Parameter(NamedTuple):
    """A parameter of a kernel."""

    name: str
    type: str
    size: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel of a PTX file, which can be launched on the CPU."""

    loaded: Loaded
    function: Function
    names: tuple[str, ...] = ()
    """The names of its first parameters in the program that it was compiled from."""
    language: Words = PTX
    """What that is written in, for the words of reports."""
    # The class of what a launch returns.
    results: ClassVar[type[Result]] = Result

    @property
    def name(self) -> str:
        """Its name."""
        return self.function.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What it takes."""
        return tuple(
            Parameter(each.name, each.type, each.size)
            for each in self.function.parameters
        )

    def parameter_name(self, index: int) -> str:
        """The name of a parameter in the program, else in the PTX."""
        named = self.names[index : index + 1]
        return (*named, "")[0] or self.parameters[index].name

    @names_options
    def launch(
        self,
        grid: Extent,
        block: Extent,
        arguments: Any = (),
        **options: Unpack[LaunchOptions],
    ) -> Result:
        """Run the kernel here, with the bits that a GPU returns.

        The options are the fields of a :class:`LaunchRequest`, and short forms of its
        instruments.

        ``grid``, ``block`` and ``cluster`` are numbers or tuples; arrays among the
        arguments are changed in place; ``shared`` is the size of dynamic shared memory
        in bytes.  ``limits`` says what the launch may take: :class:`Limits`.
        ``contract=False`` does not fuse products and sums as the assembler does.
        ``client`` is a Dask client, whose workers then run the blocks, cluster by
        cluster, with the bits and the reports of one machine.  ``progress`` is called
        with 0 when the options are checked, then now and then with the share of blocks
        that are done.
        ``cooperative=True`` is a cooperative launch: all blocks are under way at the
        same time, and ``grid.sync()`` of cooperative groups synchronises them.

        Asynchronous work is done when ``schedule`` says so: ``"eager"`` at once,
        ``"lazy"`` not before somebody waits for it, or a number, the seed of a random
        order.  With a plus follows which warp is next, at every synchronising event:
        ``"lazy+oldest-waits"``, ``"eager+random-7"``; ``"adversarial"`` is a word for
        several such orders.  What ``result.schedule`` recorded is repeated.  Several
        schedules in a list or tuple must all give the same bits.

        Unless ``watch`` is false, the text of the kernel is checked and the launch is
        watched: ``result.problems`` says what is wrong.  An error in the text is raised
        as a :class:`KernelHazard` before anything runs, one that the launch shows at
        its end.  With ``watch="report"`` they are in ``result.problems`` only, and
        what cannot be run is refused nevertheless.  ``watch="strict"`` also reports
        what only some sources demand.  :class:`Watch` says both.  What units find
        without being watched, such as tensor memory that is never freed, is raised
        even if ``watch`` is false.

        With ``orders="all"``, what synchronises the threads is recorded in a run of its
        own, and all orders in which it can happen are explored: ``result.orders`` says
        whether one of them hangs or races, step by step, and how much that is about.
        A number is the most states that are looked at.

        With ``counters=True``, ``result.counters`` has exact counts by the names of
        Nsight Compute: sectors of global memory, passes of shared memory, products of
        Tensor Core instructions, instructions of warps and threads.

        With ``numerics=True``, ``result.numerics`` says where bits were lost: beside
        every float goes the value that exact arithmetic would have, and each
        instruction counts what it loses.  NaN and infinities are followed from where
        they are born to the arrays that they reach; with ``nan="raise"``, a birth stops
        the launch.  The results keep their bits.  Of a launch that is recorded, too,
        ``result.followed`` has the numerics of each schedule.

        With ``replay=True``, the steps of the first cluster are recorded, or those of
        the first one with a problem: ``result.replay()`` has them.  A :class:`Window`
        says which blocks, from which step on, and how many steps.

        An ``algebra`` of :mod:`fragmenta.engine.planes` follows second values beside
        all registers and memory.

        >>> import numpy as np
        >>> from fragmenta import ptx
        >>> kernel = ptx.parse('''
        ... .version 8.0
        ... .target sm_80
        ... .address_size 64
        ... .visible .entry twice(.param .u64 data)
        ... {
        ...     .reg .b32 %r<3>;
        ...     .reg .b64 %rd<4>;
        ...     ld.param.u64 %rd1, [data];
        ...     mov.u32 %r1, %tid.x;
        ...     mul.wide.u32 %rd2, %r1, 4;
        ...     add.s64 %rd3, %rd1, %rd2;
        ...     ld.global.u32 %r2, [%rd3];
        ...     add.s32 %r2, %r2, %r2;
        ...     st.global.u32 [%rd3], %r2;
        ...     ret;
        ... }''').kernels["twice"]
        >>> data = np.arange(4, dtype=np.int32)
        >>> result = kernel.launch(1, 4, [data])
        >>> data, result.instructions
        (array([0, 2, 4, 6], dtype=int32), 8)
        """
        return self.run(LaunchRequest.of(grid, block, arguments, **options))

    @told
    def run(self, request: LaunchRequest) -> Result:
        """Run the kernel as a request says; :meth:`launch` makes one of its options.

        >>> from fragmenta import ptx
        >>> read = ptx.parse(".version 8.0 .target sm_80 .entry f() { ret; }")
        >>> kernel = read.kernels["f"]
        >>> kernel.run(ptx.LaunchRequest(4, 32)).instructions
        4
        """
        # A file that is only read does not need it.
        from fragmenta.launch.running import RequestedLaunch

        return RequestedLaunch(self, request).result()

    def compare(
        self,
        grid: Any,
        block: Any,
        arguments: Sequence[Any] = (),
        *,
        targets: Sequence[str],
        **options: Any,
    ) -> Comparison:
        """Launch it with the arithmetic of several targets: where do results part?

        Arrays are copied, and stay as they are.  The options are those of
        :meth:`launch`.  The first target is compared with each of the others.
        """
        from fragmenta.launch.targets import compare

        return compare(self, grid, block, arguments, targets, **options)

    def problems(self, target: str | None = None) -> list[Problem]:
        """What is wrong with the kernel, or worth knowing, without running it.

        The functions that it may call are part of it.
        """
        return self.loaded.checked(target, self.name)

    def static(self, target: str, watched: bool) -> list[Problem]:
        """What the check of the text finds, without what an observed run shows."""
        return self.loaded.checked(target, self.name, with_flow=not watched)

    def refuse_errors(self, target: str) -> None:
        """Raise the errors that a check of the text finds."""
        found = self.loaded.checked(target, self.name, with_flow=False)
        if any(each.severity == "error" for each in found):
            raise hazard(found)

    def __reduce__(self) -> tuple[object, ...]:
        """A copy, or a pickle, is the kernel of that name in a copy of its module."""
        return _kernel_of, (self.loaded, self.name, self.names, self.language)

    def __repr__(self) -> str:
        given = ", ".join(
            f"{each.type} {demangled(each.name)}" for each in self.parameters
        )
        return f"Kernel({self.function.shown}({given}))"


def _kernel_of(
    loaded: Loaded, name: str, names: tuple[str, ...], language: Words
) -> Kernel:
    return replace(loaded.kernels[name], names=names, language=language)


class Loaded(PtxSource):
    """A PTX file that was read: what it says, and its kernels.

    Use :func:`parse` or :func:`load`.
    """

    # The class of its kernels.
    kernel_type: ClassVar[type[Kernel]] = Kernel

    def check(self, target: str | None = None) -> list[Problem]:
        """What is wrong with the module, or worth knowing, without running it.

        >>> module = parse('''
        ... .version 8.0
        ... .target sm_80
        ... .entry f() { .reg .b32 %r<3>; add.s32 %r1, %r2; ret; }''')
        >>> [each.rule for each in module.check()]
        ['operand-count']
        """
        return self.checked(target)

    def checked(
        self, target: str | None, kernel: str | None = None, with_flow: bool = True
    ) -> list[Problem]:
        """What ``checking.checker.check`` finds; it runs once for each question."""
        if target is not None:
            target = check_target(target)
        key = (target, kernel, with_flow)
        if key not in self._checked:
            from fragmenta.ptx.checking.checker import check

            self._checked[key] = check(self.module, *key)
        return list(self._checked[key])

    @once_property
    def _checked(self) -> dict[tuple[object, ...], list[Problem]]:
        """What was found without running, by what was asked."""
        return {}

    @once_property
    def kernels(self) -> Mapping[str, Kernel]:
        """The kernels by name."""
        found = {
            name: self.kernel_type(
                self, function, self.origin.names.get(name, ()), self.origin.language
            )
            for name, function in self.module.functions.items()
            if function.kernel
        }
        return KernelsByName(found, self.origin.aliases)

    @property
    def variables(self) -> Variables:
        """The ``.global`` and ``.const`` variables; they keep their values."""
        if self._variables is None:
            if not self.kernels:
                raise Error("the module has no kernel")
            name = next(iter(self.kernels))
            self.compiled(name, check_target_name(self.module.target), True)
        return self.variables_of(next(iter(self._compiled.values())))

    def __repr__(self) -> str:
        version = ".".join(map(str, self.module.version))
        names = one_of(self.kernels, "and") or "no kernel"
        return f"<PTX {version} for {self.module.target}: {names}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.module, name)


class KernelsByName(dict[str, Kernel]):
    """Kernels by name, mangled or as in C++; the error for a wrong name lists them."""

    def __init__(
        self, found: Mapping[str, Kernel], aliases: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(found)
        self.aliases = aliases or {}

    def meant(self, name: str) -> list[str]:
        """The names of the kernels that a name may mean."""
        from fragmenta.ptx.demangling import fitting

        if name in self:
            return [name]
        if name in self.aliases:
            return [self.aliases[name]]
        return fitting(name, self)

    def __missing__(self, name: str) -> Kernel:
        from fragmenta.ptx.demangling import signature

        found = self.meant(name) if isinstance(name, str) else []
        if len(found) == 1:
            return self[found[0]]
        if found:
            listed = one_of(map(signature, found))
            raise Error(f"{name} may be {listed}; give one of these names")
        names = [*map(signature, self)]
        near = nearest(name, [*map(demangled, self), *names])
        raise Error(
            f"no kernel {name}{near}; there are {one_of(names, 'and') or 'none'}"
        )


def parse(text: str | bytes, name: str = "") -> Loaded:
    """Read PTX text.

    >>> parse(".version 8.0 .target sm_80 .address_size 64 .entry f() { ret; }")
    <PTX 8.0 for sm_80: f>
    """
    if isinstance(text, bytes):
        text = text.rstrip(b"\0").decode("utf-8", "replace")
    if not isinstance(text, str):
        raise Error(f"PTX is a text; given {type(text).__name__}")
    if not isinstance(name, str):
        raise Error(f"name is that of a file; given {type(name).__name__}")
    try:
        return Loaded(reading.parse(text, name))
    except PtxSyntaxError as error:
        hint = _instead_of_ptx(text)
        if hint:
            raise Error(f"this is {hint}") from error
        raise


def _instead_of_ptx(text: str) -> str:
    """What a text is that is not PTX; nothing if that is not clear."""
    if ".version" in text:
        return ""
    if "__global__" in text:
        return "CUDA C++, not PTX; ptx.RawKernel(code, name) compiles it"
    if text.endswith(".ptx") and "\n" not in text:
        return "the path of a file; ptx.load reads it"
    return ""


def load(path: str | Path) -> Loaded:
    """Read a PTX file.

    >>> load(".version 8.0 .target sm_80 .entry f() { ret; }")
    Traceback (most recent call last):
    fragmenta.errors.Error: this is PTX, not the path of a file; ptx.parse reads it
    """
    if isinstance(path, str) and ".version" in path and ".target" in path:
        raise Error("this is PTX, not the path of a file; ptx.parse reads it")
    return Loaded(reading.load(path))
