"""A PTX file that was read, with all that its launches share.

That is the module as the assembler runs it, machine code, and the variables, which keep
their values between launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.forking import Lock
from fragmenta.base.arrays.once import once_property
from fragmenta.engine.simt.arguments import Arguments, Received
from fragmenta.engine.simt.compiled import Compiled, compiled
from fragmenta.engine.simt.context import Grid
from fragmenta.engine.simt.layout import SHARED_START
from fragmenta.engine.simt.mode import Mode
from fragmenta.engine.simt.probes import NOTHING, Probes, Several
from fragmenta.engine.units.schedule import EAGER, Given, read
from fragmenta.launch.limits import Meter, default_meter
from fragmenta.launch.options import check_shared
from fragmenta.launch.variables import Variables
from fragmenta.ptx import reading
from fragmenta.ptx.languages import PTX, Words
from fragmenta.ptx.module import Function, Module

if TYPE_CHECKING:
    from fragmenta.engine.planes.algebra import Algebra
    from fragmenta.engine.tracing.trace import Window
    from fragmenta.launch.launch import Launch


class ModuleOrigin(NamedTuple):
    """What a module was compiled from."""

    language: Words = PTX
    names: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The names of parameters in the program, by kernel."""
    notes: tuple[str, ...] = ()
    """What its compiler did that users should know."""
    aliases: Mapping[str, str] = MappingProxyType({})
    """Kernels by what they were asked for, such as ``scale<half>``."""

    def __reduce__(self) -> tuple[object, ...]:
        """It is copied with plain dictionaries."""
        about = self.language, dict(self.names), self.notes, dict(self.aliases)
        return ModuleOrigin, about


class PtxSource:
    """A PTX file that was read."""

    def __init__(self, module: Module, origin: ModuleOrigin = ModuleOrigin()) -> None:  # noqa: B008
        self.module = module
        self.origin = origin
        self._lock = Lock()
        self._compiled: dict[tuple[object, ...], Compiled] = {}
        self._variables: Variables | None = None
        self._restored: dict[str, bytes] = {}
        self.before_running: Callable[[], None] | None = None
        """Called when the code of a launch is there, before any of it runs."""

    def __reduce__(self) -> tuple[object, ...]:
        """A copy, or a pickle, is the same text with the variables as they are now."""
        about = (self.module.text, self.module.name, self.kept, self.origin)
        return _again, (type(self), *about)

    def renew(self, kept: dict[str, bytes]) -> None:
        """Start the variables anew, some of them with these bytes; code is kept."""
        with self._lock:
            self._variables, self._restored = None, kept

    @property
    def kept(self) -> dict[str, bytes]:
        """The variables that a launch may have changed, as they are now."""
        held = self._variables
        if held is None:
            return self._restored
        return {name: held[name].tobytes() for name in held}

    @once_property
    def contracted(self) -> Module:
        """The module as the assembler runs it: products and sums fused."""
        # It takes a while to import, and a kernel in the cache does not need it.
        from fragmenta.ptx.ptxas.quotients import contract_all

        return self._with(contract_all, self.folded)

    @once_property
    def folded(self) -> Module:
        """The module with the constants that the assembler computes."""
        from fragmenta.ptx.ptxas.folding import fold

        return self._with(fold, self.module)

    def _with(self, change: Callable[[Function], Function], module: Module) -> Module:
        """A module with changed functions; with ``debug``, ptxas changes nothing."""
        if "debug" in module.options:
            return module
        functions = {
            name: each if each.declared_only else change(each)
            for name, each in module.functions.items()
        }
        return replace(module, functions=functions)

    def changed(self, contract: bool) -> Module:
        """The module as it is run, with or without fused products and sums."""
        return self.contracted if contract else self.folded

    def compiled(
        self,
        name: str,
        target: str,
        contract: bool,
        mode: tuple[int, ...] = (),
        meter: Meter | None = None,
        algebra: Algebra | None = None,
    ) -> Compiled:
        """The machine code of a kernel; ``mode`` are the fields of a ``Mode``."""
        measure = (meter or default_meter()).code
        about = "" if algebra is None else f" {algebra.key}"
        key = (name, target, contract, *mode, about)
        with self._lock:
            if key not in self._compiled:
                self._compiled[key] = compiled(
                    partial(self.changed, contract),
                    self.module.text,
                    (name, target, self._about(contract) + about),
                    mode,
                    partial(_probes, mode, algebra),
                    measure,
                )
            return self._compiled[key]

    def _about(self, contract: bool) -> str:
        """What else the code of a kernel depends on, in a word."""
        skipped = self.module.skipped
        return f"{contract}{skipped if any(skipped) else ''}"

    def place_variables(
        self, addresses: dict[str, int], memory: Callable[[int], NDArray[np.uint8]]
    ) -> Variables:
        """Make the variables, in memory that the caller gives; before any launch."""
        with self._lock:
            self._variables = Variables(self.module, addresses, memory=memory)
            return self._variables

    def variables_of(self, ready: Compiled, meter: Meter | None = None) -> Variables:
        """The variables, where a compiled kernel expects them."""
        with self._lock:
            if self._variables is None:
                room = (meter or default_meter()).room
                made = Variables(self.module, ready.addresses, room)
                for variable, data in self._restored.items():
                    made[variable] = data
                self._variables = made
            return self._variables

    def launch(
        self,
        name: str,
        shape: Grid,
        arguments: Iterable[object] | Received,
        *,
        shared: int,
        target: str,
        contract: bool,
        stack: int,
        cooperative: bool = False,
        watch: bool = False,
        strict: bool = False,
        schedule: Given = EAGER,
        names: Sequence[str] = (),
        language: Words = PTX,
        defined: int | None = None,
        recorded: bool = False,
        raced: bool = False,
        goes_on: bool = False,
        counted: bool = False,
        window: Window | None = None,
        algebra: Algebra | None = None,
        meter: Meter | None = None,
    ) -> Launch:
        """Everything that a launch needs, ready to run.

        With ``defined``, undefined bits are followed; it says what they are.  With
        ``recorded``, what synchronises is recorded.  With ``raced``, loads ask whether
        what they read is undefined.  With ``goes_on``, the launch goes on after
        mistakes that hardware survives.  With ``counted``, memory traffic and lanes
        are counted.  With a ``window``, its steps are recorded.  With an ``algebra``,
        second values are followed.
        """
        # A file that is only read or checked does not need it.
        from fragmenta.launch.launch import Launch

        meter = meter or default_meter()
        clustered = shape.cluster_blocks > 1
        plan = read(schedule)
        late = plan.work != EAGER
        follows = defined is not None
        mode = Mode(
            watch, clustered, late, follows, plan.stepped, recorded, raced, counted
        )._replace(traced=window is not None, valued=counted and _asks_for_results())
        if algebra is not None:
            mode = mode._replace(planes=algebra.planes)
        ready = self.compiled(name, target, contract, mode, meter, algebra)
        if self.before_running is not None:
            self.before_running()
        check_shared(ready.shared - SHARED_START, shared, target)
        if isinstance(arguments, Received):
            arguments.check(self.module.functions[name])
        launch = Launch(
            partial(self.changed, contract),
            ready,
            shape,
            arguments
            if isinstance(arguments, Received)
            else Arguments(self.module.functions[name], arguments, names),
            self.variables_of(ready, meter),
            shared,
            stack,
            meter,
            cooperative,
            goes_on,
        )
        launch.target, launch.language = target, language
        if counted:
            launch.count()
        observed = watch or mode.shadows > 0 or mode.traced
        if ready.events or clustered or observed or plan.stepped:
            launch.attach_machine(schedule, strict, defined or 0)
        if window is not None:
            launch.record(window)
        if algebra is not None:
            launch.follow(algebra)
        return launch


def _asks_for_results() -> bool:
    """Whether a launch that is counted says how results differ, too."""
    # A launch that is not counted does not load it.
    from fragmenta.values.counters.asking import ASKED

    return ASKED.get()


def _probes(mode: tuple[int, ...], algebra: Algebra | None = None) -> Probes:
    """The instruments of a mode; without one, none of them is imported."""
    wanted = Mode.of(mode)
    every: list[Probes] = []
    if algebra is not None:
        every.append(algebra.probes())
    if wanted.watch or wanted.defined:
        from fragmenta.watch.races.probes.instruments import probes

        every.append(probes(wanted))
    if wanted.counted:
        from fragmenta.values.counters.code.probes import CounterProbes

        every.append(CounterProbes(values=wanted.valued))
    if wanted.traced:
        from fragmenta.engine.tracing.code.probes import TraceProbes

        every.append(TraceProbes())
    if not every:
        return NOTHING
    return every[0] if len(every) == 1 else Several(*every)


def _again(
    of: type[PtxSource],
    text: str,
    name: str,
    kept: dict[str, bytes],
    origin: ModuleOrigin,
) -> PtxSource:
    """A source like one that was copied or pickled."""
    made = of(reading.parse(text, name), origin)
    made._restored = kept
    return made
