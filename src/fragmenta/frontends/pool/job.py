"""A launch that a pool carries out: what is asked, and what has come of it."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

from fragmenta.frontends.api.kernels import Result
from fragmenta.frontends.pool.answers import (
    Json,
    error_of,
    problem_of,
    result_of,
    variables_of,
)
from fragmenta.frontends.pool.confining import crashed
from fragmenta.frontends.pool.frames import MOST_HEAD, Bytes, frame
from fragmenta.frontends.pool.packing import unpack
from fragmenta.frontends.pool.questions import LaunchQuestion, PoolQuestion
from fragmenta.launch.instruments import Instruments
from fragmenta.launch.limits import Limits

if TYPE_CHECKING:
    from fragmenta.ptx.checking.problem import Problem

Answer = TypeVar("Answer")
_NUMBERS = itertools.count(1)
SECONDS = 64
"""Bytes of an answer with numerics for each byte of memory that comes back, at most."""


class Job(Future[Answer], Generic[Answer]):
    """Work that a pool has taken on: a future, as in ``concurrent.futures``.

    ``result()`` waits and returns what ``launch`` would return, or raises what it would
    raise.  ``cancel()`` also ends a launch that is under way.

    >>> from fragmenta import ptx
    >>> with ptx.Pool(workers=1, warm=False) as pool:
    ...     job = pool.check(".version 8.0 .target sm_80 .entry f() { ret }")
    ...     [each.rule for each in job.result()]
    ['syntax']
    """

    def __init__(
        self,
        question: PoolQuestion,
        memory: list[Bytes],
        read: Callable[[Json], Answer],
    ) -> None:
        super().__init__()
        self._question: PoolQuestion = question._replace(number=next(_NUMBERS))
        self._memory, self._read = memory, read
        self._sent = pickle.dumps(self._question, protocol=pickle.HIGHEST_PROTOCOL)
        self._head: Json = {}
        self._started = False
        of = (
            question.request.instruments if isinstance(question, LaunchQuestion) else ()
        )
        self._numerics = Instruments.of(of).exact is not None

    @property
    def limits(self) -> Limits:
        """What it may take."""
        return self._question.limits

    def running(self) -> bool:
        """Whether a worker has it, and has not answered yet."""
        return self._started and not self.done()

    @property
    def arguments(self) -> list[object]:
        """The arguments as the launch left them; arrays are new ones.

        Until it is done, and if it was cancelled or its worker was ended, they are as
        they were given.
        """
        return unpack(self._question.arguments, self._memory)

    @property
    def variables(self) -> dict[str, bytes]:
        """The variables of the module after the launch, by name."""
        return variables_of(self._head.get("variables", {}))

    @property
    def timeline(self) -> str:
        """The picture of a launch with ``timeline=True``, as SVG."""
        return str(self._head.get("timeline", ""))

    # What follows is for the manager.

    def start(self) -> list[memoryview]:
        """A worker gets it: the question, as it is sent."""
        self._started = True
        return frame(self.number, self._sent, self._memory)

    @property
    def number(self) -> int:
        """No other job has it."""
        return self._question.number

    @property
    def key(self) -> int:
        """Equal for questions about the same text."""
        return hash(self._question.text.text)

    @property
    def sizes(self) -> list[int]:
        """The bytes of each part of the answer's data."""
        packed = self._question.arguments
        return [packed.regions[each].size for each in packed.returned]

    @property
    def most_head(self) -> int:
        """The most bytes of the answer's head."""
        return MOST_HEAD + SECONDS * sum(self.sizes) * self._numerics

    def finish(self, head: Json, data: list[Bytes]) -> bool:
        """A worker has answered; False if that cannot be read."""
        try:
            text = self._question.text.text
            error = error_of(head, text) if "error" in head else None
            answer = self._read(head) if error is None else None
        except (AssertionError, KeyError, TypeError, ValueError, AttributeError):
            self.fail(crashed("gave no answer that can be read"))
            return False
        if data:
            memory = list(self._memory)
            for each, new in zip(self._question.arguments.returned, data, strict=True):
                memory[each] = new
            self._memory = memory
        self._head = head
        if not self.set_running_or_notify_cancel():
            return True
        if error is not None:
            self.set_exception(error)
        else:
            assert answer is not None
            self.set_result(answer)
        return True

    def fail(self, error: BaseException) -> None:
        """There is no answer."""
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


def launched(text: str, head: Json) -> Result:
    """The answer to a launch of a kernel of this text."""
    return result_of(head["result"], text)


def checked(head: Json) -> list[Problem]:
    """The answer to a check."""
    return [problem_of(each) for each in head["problems"]]
