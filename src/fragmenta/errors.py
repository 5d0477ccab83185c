"""All errors that this package raises on purpose.

Every message says what was given, what is allowed, and the nearest valid
thing.  Everything this package raises on purpose is an :class:`Error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol


class Error(Exception):
    """Base of every error that fragmenta raises on purpose.

    >>> import fragmenta as fm
    >>> try:
    ...     fm.instruction("mma.m16n8k64")
    ... except fm.Error as error:
    ...     print(type(error).__name__)
    UnknownInstruction
    """


# ── what does not exist ─────────────────────────────────────────────────────


class UnknownInstruction(Error, LookupError):
    """The instruction does not exist; the message names the first wrong qualifier."""


class AmbiguousInstruction(UnknownInstruction):
    """An abbreviation fits several instructions; the message lists them."""


class UnknownOperand(Error, LookupError, AttributeError):
    """The instruction has no operand of this name in registers."""


class UnknownType(Error, LookupError):
    """The element type does not exist."""


class UnsupportedTarget(Error, LookupError):
    """The target is unknown, or it does not have the instruction."""


# ── what has a wrong value ──────────────────────────────────────────────────


class BadOperands(UnknownInstruction, ValueError):
    """The instruction exists, but not with these operands."""


class BadCall(Error, TypeError):
    """A function was called with other arguments than it takes.

    The message says how it is called: which operands there are, and in which order.
    """


class ShapeError(Error, ValueError):
    """An array has the wrong shape, or an index lies outside its range."""


class AlignmentError(ShapeError):
    """A pointer or a leading dimension breaks an alignment rule."""


class OutOfBounds(ShapeError):
    """A load or store would touch elements outside the memory."""


class AddressError(Error, ValueError):
    """A shared-memory address or offset is misaligned or out of range."""


class ValueRangeError(Error, ValueError):
    """The element type cannot hold a value exactly."""


class LayoutError(Error, ValueError):
    """A layout line is malformed or is not a bijection."""


class NotSparse(Error, ValueError):
    """A matrix has more non-zeros than the instruction's sparsity allows."""


class BadMetadata(Error, ValueError):
    """A metadata word holds an illegal or unordered code."""


class BadFile(Error, ValueError):
    """A file is missing, damaged, or not of the format that is expected."""


class PtxSyntaxError(Error, ValueError):
    """PTX text is malformed; the message shows the line and what may stand there."""

    def __init__(self, message: str, line: int = 1, column: int = 1, file: str = ""):
        super().__init__(message, line, column, file)  # all of them, for pickling
        self.line = line
        self.column = column
        self.file = file

    def __str__(self) -> str:
        return str(self.args[0])


class ReportedProblem(Protocol):
    """A problem of a kernel, as far as an error needs it; ``ptx`` has the class."""

    @property
    def rule(self) -> str:
        """The name of the rule."""

    @property
    def severity(self) -> str:
        """How bad it is: error, warning or info."""

    @property
    def line(self) -> int:
        """The line of the PTX."""

    @property
    def message(self) -> str:
        """What is wrong."""


class LaunchResult(Protocol):
    """What a launch did, as far as an error needs it; ``launch`` has the class."""

    @property
    def output(self) -> str:
        """What the kernel printed."""

    @property
    def problems(self) -> Sequence[ReportedProblem]:
        """What was found to be wrong."""


class RecordedRun(Protocol):
    """A recorded run, as far as an error needs it; ``fragmenta.ptx.Replay``."""

    @property
    def left_out(self) -> str:
        """What it does not have."""

    def __len__(self) -> int:
        """How many steps it has."""

    def save(self, path: str) -> None:
        """Keep it in a file."""

    def to_html(self, path: str) -> None:
        """Write it as a page."""


class KernelError(Error):
    """Something is wrong with a kernel; the message says what, and where.

    It is a :class:`KernelFault` if the kernel did not run to its end, and a
    :class:`KernelHazard` if only what was noticed is wrong.

    ``kind`` is one word, ``line`` the line in the PTX text, ``source`` the line in the
    program it was compiled from, ``block`` and ``thread`` who did it.
    """

    def __init__(
        self,
        message: str,
        kind: str = "",
        line: int = 0,
        source: str = "",
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
    ):
        super().__init__(message, kind, line, source, block, thread)
        self.kind = kind
        self.line = line
        self.source = source
        self.block = block
        self.thread = thread
        self.place: object = None
        """The same as ``source`` with its calls: a ``module.Location``."""
        self.hint = ""
        """What repairs it, if that can be told."""
        self.output = ""
        """What the kernel had printed before."""
        self.problems: Sequence[ReportedProblem] = []
        """What was seen to be wrong before."""
        self.before = ""
        """The first of them in words."""
        self.origin = ""
        """Which lines of the user's program launched the kernel."""
        self.order: Callable[[], dict[str, object]] = dict
        """Makes :attr:`schedule`."""
        self.result: LaunchResult | None = None
        """What the launch did: of a hazard, if it ran; of a fault, if it was recorded.

        The result of a fault is not complete.
        """

    def replay(self, schedule: str | int | None = None) -> RecordedRun:
        """The run up to here, step by step, if it was launched with ``replay=True``.

        It is a :class:`fragmenta.ptx.Replay`, as ``result.replay()`` has.

        >>> KernelFault("it stopped").replay()
        Traceback (most recent call last):
        fragmenta.errors.BadCall: nothing was recorded; launch it with replay=True
        """
        # The class that users have has it.
        made = getattr(self.result, "replay", None)
        if made is None:
            raise BadCall("nothing was recorded; launch it with replay=True")
        found: RecordedRun = made(schedule)
        return found

    @property
    def schedule(self) -> dict[str, object]:
        """The schedule of the run that failed; ``launch(schedule=)`` repeats it.

        It is empty if nothing ran.
        """
        return self.order()

    @property
    def message(self) -> str:
        """What is wrong, without what was seen before."""
        return str(self.args[0])

    def __str__(self) -> str:
        origin = f"{self.origin}\n" if self.origin else ""
        before = f"\n\nSeen before that:\n\n{self.before}" if self.before else ""
        return origin + self.message + before


class KernelFault(KernelError):
    """A kernel did something that it must not do, and was stopped."""


class LimitReached(KernelFault):
    """A launch would take more than it may; ``kind`` is seconds, memory or output.

    The message says how the limit is raised.
    """


class KernelHazard(KernelError):
    """A kernel may run to its end, but something in it is wrong; the message says what.

    ``problems`` are all problems of the launch.  ``kind`` is the rule of the first
    error among them.  What may be a cause comes before what may follow from it: if
    warps use the barrier of others and then wait for ever, ``kind`` is
    ``barrier-collision``.  If a look at the text shows an error, the kernel does not
    run, and there is no ``result``.
    """

    def __init__(
        self, message: str, kind: str, problems: Sequence[ReportedProblem]
    ) -> None:
        super().__init__(message, kind)
        self.args = (message, kind, problems)
        self.problems = problems


# ── what is missing or refuses to work ──────────────────────────────────────


class MissingPackage(Error, ImportError):
    """A package of one of the extras is not installed; the message says which extra."""


class NoDevice(Error):
    """There is no GPU, or the ``cuda`` extra is not installed."""


class CompileError(Error):
    """The compiler refuses the source; the message quotes the compiler."""

    log = ""
    """What the compiler said, word for word."""


__all__ = [
    name
    for name, each in globals().items()
    if isinstance(each, type) and issubclass(each, Error)
]


def __dir__() -> list[str]:
    """What users catch; how messages are worded is for the rooms."""
    return __all__


# ── how a message is worded ─────────────────────────────────────────────────

EXTRAS = {
    "cuda-core": "cuda",
    "cuda-bindings": "cuda",
    "torch": "torch",
    "triton": "triton",
    "cairosvg": "pictures",
}
"""The packages that are not always installed, and the extra that brings each."""


def missing(package: str, why: Exception) -> str:
    """That a package cannot be imported, and what installs it.

    >>> missing("numba-cuda", ModuleNotFoundError("No numba", name="numba"))
    'the package numba-cuda is missing; pip install numba-cuda'

    >>> missing("torch", ModuleNotFoundError("No module named 'torch'", name="torch"))
    "the package torch is missing; pip install 'fragmenta[torch]'"
    >>> missing("torch", OSError("libc.so is too old"))
    "the package torch does not load (libc.so is too old); pip install \
'fragmenta[torch]'"
    """
    # A package that another one needs may be what is missing.
    root = (getattr(why, "name", None) or "").split(".")[0]
    absent = isinstance(why, ModuleNotFoundError) and package.partition("-")[0] == root
    state = "is missing" if absent else f"does not load ({why})"
    extra = EXTRAS.get(package)
    install = package if extra is None else f"'fragmenta[{extra}]'"
    return f"the package {package} {state}; pip install {install}"


LONGEST_WORD = 200
"""The most characters that any name has."""


def one_of(words: Iterable[object], last: str = "or") -> str:
    """Join words into a list as a sentence writes it.

    >>> one_of(["A", "B", "C"])
    'A, B or C'
    """
    texts = [str(word) for word in words]
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} {last} {texts[-1]}"


def shortened(text: str, most: int = 60) -> str:
    """The given text in quotes, cut if it is too long for a message.

    >>> shortened("mma"), shortened("x" * 100, most=8)
    ("'mma'", "'xxxxxxxx' … (100 characters)")
    """
    if len(text) <= most:
        return repr(text)
    return f"{text[:most]!r} … ({len(text):,} characters)"


def ranges(numbers: Sequence[int]) -> str:
    """A list of numbers, in which runs are written as ranges.

    >>> ranges([0, 1, 2, 3, 8])
    '0-3, 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)


def nearest(word: str, allowed: Iterable[str], cutoff: float = 0.5) -> str:
    """A `` (did you mean X?)`` suffix, or an empty text when no word is close.

    ``cutoff`` is how alike two words must be, from 0 to 1.

    >>> nearest("e4m4", ["e4m3", "f16"])
    ' (did you mean e4m3?)'
    """
    from difflib import get_close_matches  # imported only when there is an error

    if len(word) > LONGEST_WORD:  # no name is near it, and comparing is slow
        return ""
    close = get_close_matches(word, list(allowed), n=1, cutoff=cutoff)
    return f" (did you mean {close[0]}?)" if close else ""
