"""What is made of a PTX file before one of its kernels runs?

A :class:`Source` keeps what does not depend on a launch: the module as the assembler
runs it, machine code, and the variables, which keep their values between launches.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from fragmenta.arrays.locks import ForkLock
from fragmenta.ptx.arguments import Arguments
from fragmenta.ptx.asynchronous.schedule import EAGER
from fragmenta.ptx.engine.compiled import Compiled, compiled
from fragmenta.ptx.engine.context import Shape
from fragmenta.ptx.engine.mode import Mode
from fragmenta.ptx.launching import Launch, check_shared
from fragmenta.ptx.limits import Meter, default_meter
from fragmenta.ptx.module import Function, Module
from fragmenta.ptx.variables import Variables


class Source:
    """A PTX file that was read."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._lock = ForkLock()
        self._compiled: dict[tuple[Any, ...], Compiled] = {}
        self._variables: Variables | None = None

    @cached_property
    def contracted(self) -> Module:
        """The module as the assembler runs it: products and sums fused.

        With ``debug`` the assembler changes nothing.
        """
        if "debug" in self.module.options:
            return self.module
        # It takes a while to import, and a kernel in the cache does not need it.
        from fragmenta.ptx.opcodes.quotients import contract_all

        def changed(function: Function) -> Function:
            return function if function.declared_only else contract_all(function)

        functions = self.module.functions.items()
        return replace(self.module, functions={n: changed(f) for n, f in functions})

    def changed(self, contract: bool) -> Module:
        """The module as it is run, with or without fused products and sums."""
        return self.contracted if contract else self.module

    def compiled(
        self,
        name: str,
        target: str,
        contract: bool,
        mode: tuple[bool, ...] = (),
        meter: Meter | None = None,
    ) -> Compiled:
        """The machine code of a kernel; ``mode`` is a ``writing.Mode``."""
        measure = (meter or default_meter()).code
        key = (name, target, contract, *mode)
        with self._lock:
            if key not in self._compiled:
                self._compiled[key] = compiled(
                    partial(self.changed, contract),
                    self.module.text,
                    (name, target, str(contract)),
                    mode,
                    measure,
                )
            return self._compiled[key]

    def variables_of(self, ready: Compiled, meter: Meter | None = None) -> Variables:
        """The variables, where a compiled kernel expects them."""
        with self._lock:
            if self._variables is None:
                room = (meter or default_meter()).room
                self._variables = Variables(self.module, ready.addresses, room)
            return self._variables

    def launch(
        self,
        name: str,
        shape: Shape,
        arguments: Any,
        *,
        shared: int,
        target: str,
        contract: bool,
        stack: int,
        watch: bool = False,
        strict: bool = False,
        schedule: str | int = EAGER,
        meter: Meter | None = None,
    ) -> Launch:
        """Everything that a launch needs, ready to run."""
        meter = meter or default_meter()
        clustered = shape.cluster_blocks > 1
        mode = Mode(watch, clustered, schedule != EAGER)
        ready = self.compiled(name, target, contract, mode, meter)
        check_shared(ready, shared, target)
        launch = Launch(
            partial(self.changed, contract),
            ready,
            shape,
            Arguments(self.module.functions[name], arguments),
            self.variables_of(ready, meter),
            shared,
            stack,
            meter,
        )
        launch.target = target
        if ready.events or clustered or watch:
            launch.attend(schedule, strict)
        return launch
