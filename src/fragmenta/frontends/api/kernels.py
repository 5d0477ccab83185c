"""Kernels as users have them: also compared with a GPU, and drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from fragmenta.errors import BadCall, Error, KernelHazard
from fragmenta.frontends.api.returning import like
from fragmenta.launch import kernel as records
from fragmenta.launch import result
from fragmenta.launch.limits import Limits
from fragmenta.launch.request import Extent, LaunchRequest

if TYPE_CHECKING:
    from fragmenta.base.arrays.checks import Array
    from fragmenta.cuda.tools.device import GPU
    from fragmenta.frontends.api.replays import Replay
    from fragmenta.inspect.evidence.kernels import Verified
    from fragmenta.inspect.sameness.invariance import Classes
    from fragmenta.inspect.sameness.tree import Tree
    from fragmenta.inspect.view.timeline import Timeline


Item = TypeVar("Item")


class Result(result.Result):
    """What a launch did.

    ``counts`` are executed warp instructions by mnemonic; ``fidelity`` counts them by
    how sure their bits are.

    >>> Result({"mma": 2, "ret": 1}, {"h200": 2, "ieee": 1}, target="sm_90a")
    <Result: 3 warp instructions with the arithmetic of sm_90a, no problems>
    """

    def timeline(
        self,
        cluster: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        blocks: Sequence[int] | None = None,
    ) -> Timeline:
        """A picture of what happened in some blocks of the launch, event by event.

        ``blocks`` are numbers of blocks in the grid, ``cluster`` is the number of a
        cluster.  Without them, it is the cluster with the first problem, and the one of
        its other access; or else the first one.  Clusters stand one below the other.
        ``start`` and ``stop`` choose events; see
        :mod:`fragmenta.inspect.view.timeline`.

        If a problem is about a copy, and the schedule was eager, the launch is run once
        more with the schedule lazy.  If the events of a block were not kept, it is run
        once more, too.  That is with the arrays as they are now; afterwards, they are
        as before it.
        """
        from fragmenta.inspect.view.timeline import timeline

        return timeline(self, cluster, start, stop, self._again, blocks)

    def _again(
        self, schedule: str | int | None, blocks: tuple[int, ...] = ()
    ) -> Result | None:
        """The same launch once more; None if it cannot be made again.

        It keeps the events of some blocks.
        """
        from fragmenta.engine.tracing.trace import Window
        from fragmenta.inspect.sameness.capturing import called
        from fragmenta.inspect.sameness.naming import root_of
        from fragmenta.launch.instruments import Instruments, Watch

        launched = getattr(self, "_launched", None)
        if launched is None:
            return None
        how = Instruments.of(launched[1].instruments).watch
        strict = how is not None and how.strict
        try:
            call = called(*launched)
        except Error:
            return None
        roots = {id(root): root for root in (root_of(e.array) for e in call.arrays())}
        before = {each: root.copy() for each, root in roots.items()}
        try:
            more: dict[str, object] = {} if schedule is None else {"schedule": schedule}
            if blocks:
                more["replay"] = Window(blocks, most=1)
            made = call.run(watch=Watch("report", strict), **more)
        except Error:
            return None
        finally:
            for each, root in roots.items():
                if root.flags.writeable:
                    np.copyto(root, before[each])
        assert isinstance(made, Result)
        return made

    def replay(self, schedule: str | int | None = None) -> Replay:
        """The run, step by step, if it was launched with ``replay=True``.

        If there were several schedules, it is the first run with a problem, or else the
        first one, unless a schedule is given.
        """
        from fragmenta.frontends.api.replays import replay_of

        return replay_of(self, schedule)

    def tree(
        self,
        array: Array,
        element: int | Sequence[int],
        *,
        types: Mapping[str, str] | None = None,
    ) -> Tree:
        """The expression of one element of an array that the launch wrote to.

        It is rebuilt by a second launch with the arrays as they are now; afterwards,
        they are as before it.  ``types`` says of parameters which floats their whole
        numbers are, as in ``{"x": "bf16"}``.

        >>> import numpy as np
        >>> from fragmenta import ptx
        >>> kernel = ptx.parse('''
        ... .version 8.0 .target sm_80 .address_size 64
        ... .entry pair(.param .u64 x) {
        ...     .reg .b64 %rd<2>; .reg .f32 %f<4>;
        ...     ld.param.u64 %rd1, [x];
        ...     ld.global.v2.f32 {%f1, %f2}, [%rd1];
        ...     add.f32 %f3, %f1, %f2;
        ...     st.global.f32 [%rd1], %f3;
        ...     ret;
        ... }''').kernels["pair"]
        >>> x = np.ones(2, np.float32)
        >>> print(kernel.launch(1, 1, [x]).tree(x, 0))
        x[0] =
          add.rn.f32   (line 7)
            x[0]
            x[1]
        """
        from fragmenta.inspect.sameness.capturing import called
        from fragmenta.inspect.sameness.trees import tree_of

        launched = getattr(self, "_launched", None)
        if launched is None:
            raise BadCall("only the result of kernel.launch has trees")
        index = (element,) if isinstance(element, int) else tuple(element)
        return tree_of((called(*launched),), array, index, types)


class Kernel(records.Kernel):
    """A kernel of a PTX file, which can be launched on the CPU."""

    results = Result

    @like(records.Kernel.launch, "Result")
    def launch(self, *operands: Any, **options: Any) -> Result:  # noqa: D102
        return self.run(LaunchRequest.of(*operands, **options))

    @like(records.Kernel.run, "Result")
    def run(self, request: LaunchRequest) -> Result:  # noqa: D102
        launched = self, request
        try:
            found = super().run(request)
        except KernelHazard as hazard:
            if hazard.result is not None:
                object.__setattr__(hazard.result, "_launched", launched)
            raise
        assert isinstance(found, Result)  # see results
        object.__setattr__(found, "_launched", launched)
        return found

    def invariant(
        self, make: Callable[[Item], object], over: Iterable[Item], **options: Any
    ) -> Classes:
        """Whether it leaves the same bits for every size, configuration or split.

        ``make(x)`` gives the grid, the block and the arguments of a launch for each
        ``x`` of ``over``, or a :class:`fragmenta.ptx.Call`.  See
        :func:`fragmenta.inspect.sameness.invariance.classes` for the options.
        """
        from fragmenta.inspect.sameness.calls import Call
        from fragmenta.inspect.sameness.invariance import invariant

        def call(each: Item) -> Call | tuple[Call, ...]:
            made = make(each)
            if isinstance(made, Call):
                return made
            parts = tuple(cast("Iterable[object]", made))
            if all(isinstance(part, Call) for part in parts):
                return cast("tuple[Call, ...]", parts)
            grid, block, *given = parts
            sizes = cast("tuple[Extent, Extent]", (grid, block))
            return Call(self, *sizes, *cast("list[Iterable[object]]", given))

        return invariant(call, over, **options)

    def verify(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Iterable[object] = (),
        *,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        shared: int = 0,
        target: str | None = None,
        contract: bool = True,
        limits: Limits = Limits(),  # noqa: B008 - it cannot be changed
        gpu: GPU | None = None,
    ) -> Verified:
        """Launch it here and on the GPU, and compare every byte of every array.

        See :func:`fragmenta.inspect.evidence.kernels.verify`.
        """
        from fragmenta.inspect.evidence.kernels import verify

        return verify(
            self,
            grid,
            block,
            arguments,
            cluster=cluster,
            cooperative=cooperative,
            shared=shared,
            target=target,
            contract=contract,
            limits=limits,
            gpu=gpu,
        )


class Loaded(records.Loaded):
    """A PTX file that was read: what it says, and its kernels.

    Use :func:`parse` or :func:`load`.
    """

    kernel_type = Kernel

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """The kernels by name."""
        return cast(Mapping[str, Kernel], super().kernels)


def parse(text: str | bytes, name: str = "") -> Loaded:
    """Read PTX text.

    >>> parse(".version 8.0 .target sm_80 .address_size 64 .entry f() { ret; }")
    <PTX 8.0 for sm_80: f>
    """
    return Loaded(records.parse(text, name).module)


def load(
    path: str | Path,
    *,
    kernel: str | None = None,
    target: str | None = None,
    options: Sequence[str] = (),
) -> Loaded:
    """Read a file: PTX, CUDA C++, or a binary with PTX in it.

    CUDA C++ is compiled for ``target`` (``sm_90a`` if it is not given) with the
    ``options`` of NVRTC.  Its ``main`` and other code of the host is not compiled;
    ``module.origin.notes`` says so.  A fat binary, a cubin, a library or a program may
    have several modules: ``kernel`` chooses the one with a kernel, ``target`` the one
    that a GPU would take.  ``kernel="scale<float>"`` also makes an instance of a
    template.

    >>> load(".version 8.0 .target sm_80 .entry f() { ret; }")
    Traceback (most recent call last):
    fragmenta.errors.Error: this is PTX, not the path of a file; ptx.parse reads it
    """
    from fragmenta.cuda.tools import files

    if isinstance(path, str) and ".version" in path and ".target" in path:
        raise Error("this is PTX, not the path of a file; ptx.parse reads it")
    if not isinstance(path, str | PathLike) or "\0" in str(path):
        raise BadCall(f"path is the name of a file; given {path!r}")
    names = () if kernel is None else (kernel,)
    found = files.read(path, target, options, names, Loaded)
    if kernel is None and len(found.modules) == 1:
        return cast(Loaded, found.modules[0])
    return cast(Loaded, found.kernel(kernel, target).loaded)
