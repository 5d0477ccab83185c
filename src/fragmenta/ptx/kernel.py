"""What can be done with a kernel?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from fragmenta import methods
from fragmenta.arrays.checks import is_whole
from fragmenta.errors import Error, nearest, one_of
from fragmenta.isa.target import check_target
from fragmenta.progress import Progress, ignore_progress
from fragmenta.ptx import reading
from fragmenta.ptx.arguments import Arguments, Pointer
from fragmenta.ptx.engine.compiling import Compiled, compiled
from fragmenta.ptx.engine.context import Shape
from fragmenta.ptx.launching import STACK, Launch, Recipe, check_shape, run
from fragmenta.ptx.module import Function, Module
from fragmenta.ptx.opcodes.quotients import contract_all
from fragmenta.ptx.result import Result
from fragmenta.ptx.variables import Variables


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

    def launch(
        self,
        grid: Any,
        block: Any,
        arguments: Any = (),
        *,
        shared: int = 0,
        target: str | None = None,
        contract: bool = True,
        limit: int | None = None,
        stack: int = STACK,
        client: Any = None,
        progress: Progress = ignore_progress,
    ) -> Result:
        """Run the kernel here, with the bits that a GPU returns.

        ``grid`` and ``block`` are numbers or tuples; arrays among the arguments are
        changed in place; ``shared`` is the size of dynamic shared memory in bytes.
        ``limit`` is the most warp instructions before a :class:`KernelFault`.
        ``contract=False`` does not fuse products and sums as the assembler does.
        ``client`` is a Dask client, whose workers then run the blocks.
        ``progress`` is called now and then with the share of blocks that have begun.

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
        shape = check_shape(self.function, grid, block)
        if not is_whole(shared) or not 0 <= shared <= 228 * 1024:
            raise Error(
                f"shared is the bytes of dynamic shared memory, 0 to {228 * 1024:,}; "
                f"given {shared!r}"
            )
        where = check_target(target or self.loaded.module.target)
        recipe = None
        if client is not None:
            recipe = self._recipe(shape, arguments, int(shared), where, contract, stack)
        launch = self.prepare(
            shape, arguments, int(shared), where, contract, stack, recipe
        )
        launch.progress = progress
        return run(launch, limit, client)

    def prepare(
        self,
        shape: Shape,
        arguments: Any,
        shared: int,
        target: str,
        contract: bool,
        stack: int,
        recipe: Recipe | None = None,
    ) -> Launch:
        """Everything that a launch needs, ready to run."""
        ready = self.loaded.compiled(self.name, target, contract)
        return Launch(
            self.loaded.contracted if contract else self.loaded.module,
            ready,
            shape,
            Arguments(self.function, arguments),
            self.loaded.variables_of(ready),
            shared,
            stack,
            recipe,
        )

    def _recipe(
        self, shape: Shape, arguments: Any, shared: int, target: str, contract: bool,
        stack: int,
    ) -> Recipe:  # fmt: skip
        """What a worker needs to make the same launch."""
        ready = self.loaded.compiled(self.name, target, contract)
        kept = self.loaded.variables_of(ready).segments
        return Recipe(
            self.loaded.module.text, self.name, shape.grid, shape.block,
            list(arguments), shared, target, contract, stack,
            {each.name: each.data.tobytes() for each in kept},
        )  # fmt: skip

    verify = methods.verify_kernel

    def __repr__(self) -> str:
        given = ", ".join(f"{each.type} {each.name}" for each in self.parameters)
        return f"Kernel({self.name}({given}))"


class Loaded:
    """A PTX file that was read: what it says, and its kernels.

    Use :func:`parse` or :func:`load`.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self._lock = Lock()
        self._compiled: dict[tuple[str, str, bool], Compiled] = {}
        self._variables: Variables | None = None

    @cached_property
    def contracted(self) -> Module:
        """The module as the assembler runs it: products and sums fused.

        With ``debug`` the assembler changes nothing.
        """
        if "debug" in self.module.options:
            return self.module
        return contracted(self.module)

    @cached_property
    def kernels(self) -> Mapping[str, Kernel]:
        """The kernels by name."""
        found = {
            name: Kernel(self, function)
            for name, function in self.module.functions.items()
            if function.kernel
        }
        return _Named(found)

    @property
    def variables(self) -> Variables:
        """The ``.global`` and ``.const`` variables; they keep their values."""
        if self._variables is None:
            if not self.kernels:
                raise Error("the module has no kernel")
            name = next(iter(self.kernels))
            self.compiled(name, check_target(self.module.target), True)
        return self.variables_of(next(iter(self._compiled.values())))

    def variables_of(self, ready: Compiled) -> Variables:
        """The variables, where a compiled kernel expects them."""
        with self._lock:
            if self._variables is None:
                self._variables = Variables(self.module, ready.addresses)
            return self._variables

    def compiled(self, name: str, target: str, contract: bool) -> Compiled:
        """The machine code of a kernel."""
        key = (name, target, contract)
        with self._lock:
            if key not in self._compiled:
                module = self.contracted if contract else self.module
                self._compiled[key] = compiled(module, name, target, contract)
            return self._compiled[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.module, name)


class _Named(dict[str, Kernel]):
    """Kernels by name; a wrong name says which there are."""

    def __missing__(self, name: str) -> Kernel:
        raise Error(
            f"no kernel {name}{nearest(name, self)}; there are "
            f"{one_of(self, 'and') or 'none'}"
        )


def prepared(recipe: Recipe) -> Launch:
    """The launch of a recipe, on copies of its arrays."""
    loaded = parse(recipe.text)
    kernel = loaded.kernels[recipe.kernel]
    copied: dict[int, Any] = {}

    def own(value: Any) -> Any:
        if isinstance(value, Pointer):
            return Pointer(own(value.array), value.offset)
        if isinstance(value, np.ndarray):
            return copied.setdefault(id(value), value.copy())
        return value

    launch = kernel.prepare(
        Shape(recipe.grid, recipe.block),
        [own(each) for each in recipe.arguments],
        recipe.shared,
        recipe.target,
        recipe.contract,
        recipe.stack,
    )
    for each in launch.places:
        if each.name in recipe.variables:
            each.data[:] = np.frombuffer(recipe.variables[each.name], np.uint8)
    return launch


def contracted(module: Module) -> Module:
    """A module whose functions are contracted as ptxas does."""
    functions = {
        name: function if function.declared_only else contract_all(function)
        for name, function in module.functions.items()
    }
    return replace(module, functions=functions)


def parse(text: str, name: str = "") -> Loaded:
    """Read PTX text.

    >>> parse(".version 8.0 .target sm_80 .address_size 64").version
    (8, 0)
    """
    return Loaded(reading.parse(text, name))


def load(path: str | Path) -> Loaded:
    """Read a PTX file."""
    return Loaded(reading.load(path))
