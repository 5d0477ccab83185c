"""What a front end brings, so that kernels of its language run here.

A front end is one module with a class that has what :class:`Frontend` asks for:

words        how its language calls barriers and atomic operations, for repairs
made         the PTX of a kernel, with line information, and its entry
passed       the arguments of a call as the parameters of that entry, with their names
divert       lets launches of the language come to a :class:`Session`, until undone

The rest is here: kernels are read once, launched with the options of
:meth:`fragmenta.ptx.Kernel.launch`, what they print is printed, and the last result is
kept.  The public function of a front end is ``on_cpu``, which opens a session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Generic, NamedTuple, Protocol, TypeVar, Unpack

from fragmenta.base.arrays.once import once_of
from fragmenta.errors import BadCall, KernelError, nearest, one_of
from fragmenta.frontends.api.kernels import Kernel, Result, parse
from fragmenta.launch.request import LaunchOptions, OptionsOnTarget
from fragmenta.ptx.languages import Words
from fragmenta.reference.isa.target import check_target

OPTIONS = ("schedule", "watch", "limits", "numerics", "nan")
"""The options of a launch that may be given for all launches."""
Source = TypeVar("Source")
"""A kernel as users of the front end have it."""


class CompiledPtx(NamedTuple):
    """What the compiler of a front end made of a kernel."""

    ptx: str
    entry: str | None = None
    """The kernel in it; None if there is one only."""


class Passed(NamedTuple):
    """One parameter of a kernel in PTX."""

    name: str
    """As the program calls it."""
    value: object
    """As a launch takes it: bytes, an array, a pointer, a struct."""


class Frontend(Protocol[Source]):
    """A language for kernels, and its compiler."""

    @property
    def words(self) -> Words:
        """The words of its language for repairs."""

    def made(
        self, kernel: Source, arguments: Sequence[object], target: str
    ) -> CompiledPtx:
        """The PTX of a kernel for arguments of these types."""

    def passed(self, kernel: Source, arguments: Sequence[object]) -> Iterable[Passed]:
        """The arguments of a call, one for each parameter in PTX."""

    def divert(self, session: Session[Source]) -> Callable[[], None]:
        """Let launches come to a session; what is returned undoes that."""


class Session(Generic[Source]):
    """Launches of a front end that run here."""

    def __init__(
        self,
        frontend: Frontend[Source],
        target: str,
        **options: Unpack[OptionsOnTarget],
    ) -> None:
        for name in options:
            if name not in OPTIONS:
                raise BadCall(
                    f"a launch here has the options {one_of(OPTIONS)}; given {name!r}"
                    f"{nearest(name, OPTIONS)}"
                )
        self.frontend = frontend
        self.target = check_target(target)
        self.options = options
        """The options of each launch."""
        self.last: Result | None = None
        """What the last launch did."""
        self.instructions = 0
        """The executed warp instructions of all launches."""

    def kernel(self, kernel: Source, arguments: Sequence[object]) -> Kernel:
        """A kernel of the front end, compiled for arguments of these types."""
        made = self.frontend.made(kernel, arguments, self.target)
        found = _read(made.ptx, made.entry)
        return replace(found, language=self.frontend.words)

    def launch(
        self,
        kernel: Source,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[object],
        **more: Unpack[OptionsOnTarget],
    ) -> Result:
        """Launch a kernel of the front end, with arguments as its users give them."""
        passed = list(self.frontend.passed(kernel, arguments))
        names = tuple(each.name for each in passed)
        found = replace(self.kernel(kernel, arguments), names=names)
        values = [each.value for each in passed]
        return self.run(found, grid, block, values, **more)

    def run(
        self,
        kernel: Kernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        values: Sequence[object],
        **more: Unpack[OptionsOnTarget],
    ) -> Result:
        """Launch a kernel of PTX, with values for its parameters."""
        options: LaunchOptions = {**self.options, **more, "target": self.target}
        try:
            self.last = kernel.launch(grid, block, values, **options)
        except KernelError as fault:
            sys.stdout.write(fault.output)
            self.last = getattr(fault, "result", None)
            raise
        self.instructions += self.last.instructions
        sys.stdout.write(self.last.output)
        return self.last

    @contextmanager
    def diverted(self) -> Iterator[Session[Source]]:
        """In this block, launches of the front end come here."""
        undo = self.frontend.divert(self)
        try:
            yield self
        finally:
            undo()


@once_of(256)
def _read(text: str, entry: str | None) -> Kernel:
    """The kernel of a PTX text."""
    kernels = parse(text).kernels
    if entry is not None:
        return kernels[entry]
    if len(kernels) != 1:
        listed = one_of(kernels, "and") or "none"
        raise BadCall(f"the compiler made {len(kernels)} kernels: {listed}")
    return next(iter(kernels.values()))


class Patches:
    """Attributes of other libraries that are replaced for a while."""

    def __init__(self) -> None:
        self._before: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace an attribute."""
        self._before.append((owner, name, vars(owner).get(name, self)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back, the last first."""
        while self._before:
            owner, name, value = self._before.pop()
            if value is self:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
