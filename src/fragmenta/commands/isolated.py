"""Launches in a process of their own, with limits of the system.

The child gets the text and the arguments, and limits of the system: memory, processor
time, no core file, nothing written to files.  It answers with JSON and the bytes of the
arrays; nothing in the answer is executed.  If the child dies, an error says how.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from fragmenta import errors
from fragmenta.arrays.checks import Array
from fragmenta.arrays.threads import cores
from fragmenta.commands.launch_arguments import LaunchOptions
from fragmenta.errors import (
    Error,
    KernelError,
    KernelFault,
    KernelHazard,
    LimitReached,
)
from fragmenta.launch.kernel import Kernel, parse
from fragmenta.launch.limits import Limits, machine_memory, size_text
from fragmenta.launch.result import Result
from fragmenta.ptx.checking.problem import Problem, Related, problems_of
from fragmenta.ptx.module import Source
from fragmenta.simt.arguments import Pointer
from fragmenta.view.timeline import timeline as draw_timeline

GRACE = 30.0
"""Seconds that the child has for its start and its answer."""
BASE = 2 << 30
"""Bytes of addresses that Python, NumPy and LLVM take without a kernel."""
CHILD = "from fragmenta.commands.isolated import child; child()"
MOST_TEXT = 1 << 28
"""Bytes of JSON that are read from the child."""


Json: TypeAlias = dict[str, Any]
"""The answer of the child, as JSON is read."""


class Asked(NamedTuple):
    """The launch, as the child gets it."""

    text: str
    file: str
    kernel: str
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    values: list[object]
    options: LaunchOptions
    timeline: bool


class Answer(NamedTuple):
    """The result of an isolated launch."""

    result: Result
    timeline: str
    """The picture, if one was asked for."""


def launch(
    kernel: Kernel,
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    values: Sequence[object],
    options: LaunchOptions,
    timeline: bool,
) -> Answer:
    """Launch a kernel in a child; arrays among the values are changed in place."""
    module = kernel.loaded.module
    asked = Asked(
        module.text, module.name, kernel.name, sizes, list(values), options, timeline
    )
    limits = options.get("limits", Limits())
    done = _run(pickle.dumps(tuple(asked)), limits.seconds, limits.memory)
    head, rest = _split(done)
    _put(arrays_of(values), head.pop("arrays", []), rest)
    if "error" in head:
        raise _error(head)
    result = Result(
        dict(head["counts"]),
        dict(head["fidelity"]),
        str(head["output"]),
        float(head["seconds"]),
        str(head["target"]),
        str(head["written_for"]),
        bool(head["watched"]),
    )
    for name in ("hazards", "problems"):
        result.__dict__[name] = [_problem(each) for each in head[name]]
    return Answer(result, str(head["timeline"]))


def arrays_of(values: Sequence[object]) -> list[Array]:
    """The arrays among the arguments of a launch, each once."""
    found: dict[int, Array] = {}
    for each in values:
        array = each.array if isinstance(each, Pointer) else each
        if isinstance(array, np.ndarray):
            found.setdefault(id(array), array)
    return list(found.values())


# ── the parent ──────────────────────────────────────────────────────────────


def _run(asked: bytes, seconds: float | None, memory: int | None) -> bytes:
    """Run the child and return its answer; a child that dies is an error."""
    most = memory if memory is not None else machine_memory()
    limits = json.dumps({"seconds": seconds, "memory": most})
    wait = None if seconds is None else seconds + GRACE
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, limits],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        try:
            answer, _ = process.communicate(asked, wait)
        except subprocess.TimeoutExpired:
            process.kill()
            raise LimitReached(
                f"the process that ran the kernel was ended after {wait:g} s; "
                "--seconds allows more",
                "seconds",
            ) from None
        except BaseException:  # an interrupt: leave no process behind
            process.kill()
            raise
    if process.returncode:
        raise _died(process.returncode, most)
    return answer


def _died(status: int, memory: int | None) -> KernelFault:
    """The error for a child that ended without an answer."""
    most = "" if memory is None else f", {size_text(memory)} of memory"
    if status == -getattr(signal, "SIGXCPU", 0):
        return LimitReached(
            "the process that ran the kernel used up its processor time; --seconds "
            "allows more",
            "seconds",
        )
    if status == -getattr(signal, "SIGKILL", 0):
        return LimitReached(
            f"the system ended the process that ran the kernel{most}; --memory says "
            "how much it may have",
            "memory",
        )
    if status < 0:
        name = signal.Signals(-status).name
        return KernelFault(
            f"the process that ran the kernel crashed with {name}; this is a mistake "
            "of fragmenta, please report it with the PTX",
            "crash",
        )
    return KernelFault(
        f"the process that ran the kernel ended with status {status} and no answer",
        "crash",
    )


def _split(answer: bytes) -> tuple[Json, bytes]:
    """The JSON of an answer, and the bytes after it."""
    try:
        (size,) = struct.unpack_from("<Q", answer)
        if size > min(len(answer) - 8, MOST_TEXT):
            raise ValueError(size)
        head = json.loads(answer[8 : 8 + size])
    except (struct.error, ValueError):
        raise KernelFault(
            "the process that ran the kernel gave no answer that can be read", "crash"
        ) from None
    return head, answer[8 + size :]


def _put(arrays: list[Array], sizes: list[int], data: bytes) -> None:
    """Write the bytes that the child left into the arrays."""
    if not sizes:
        return
    if sizes != [each.nbytes for each in arrays] or sum(sizes) != len(data):
        raise KernelFault(
            "the process that ran the kernel gave back other arrays", "crash"
        )
    place = 0
    for each in arrays:
        new = np.frombuffer(data[place : place + each.nbytes], np.uint8)
        each.reshape(-1).view(np.uint8)[:] = new
        place += each.nbytes


def _error(head: Json) -> Error:
    """The error that the child raised."""
    kind: object = getattr(errors, str(head["error"]), Error)
    if not isinstance(kind, type) or not issubclass(kind, KernelError):
        return _plain(kind, head)
    problems = [_problem(each) for each in head.get("problems", [])]
    if issubclass(kind, KernelHazard):
        made: KernelError = KernelHazard(head["message"], head["kind"], problems)
    else:
        made = kind(head["message"], head["kind"])
        made.problems, made.before = problems, head["before"]
    made.line, made.source = int(head["line"]), str(head["source"])
    made.output = str(head["output"])
    for name in ("block", "thread"):
        where = head[name]
        setattr(made, name, None if where is None else tuple(map(int, where)))
    return made


def _plain(kind: object, head: Json) -> Error:
    """An error that consists of its message."""
    if isinstance(kind, type) and issubclass(kind, Error):
        return kind(str(head["message"]))
    return Error(str(head["message"]))


# ── problems as JSON ────────────────────────────────────────────────────────


def _source_json(source: Source | None) -> list[object] | None:
    if source is None:
        return None
    return [source.file, source.line, source.column, _source_json(source.caller)]


def _source(given: list[Any] | None) -> Source | None:
    if given is None:
        return None
    file, line, column, caller = given
    return Source(str(file), int(line), int(column), _source(caller))


def _problem_json(problem: Problem) -> dict[str, object]:
    """A problem with its whole sources, which ``to_dict`` shortens."""
    found = problem.to_dict() | {"source": _source_json(problem.source)}
    pairs = zip(found["related"], problem.related, strict=True)
    found["related"] = [{**d, "source": _source_json(of.source)} for d, of in pairs]
    return found


def _problem(given: Json) -> Problem:
    """The inverse of :func:`_problem_json`."""
    given.pop("frames", None)  # the source has them
    for each in given["related"]:
        each.pop("frames", None)
    related = tuple(
        Related(**{**each, "source": _source(each["source"])})
        for each in given["related"]
    )
    block = None if given["block"] is None else tuple(given["block"])
    source = _source(given["source"])
    return Problem(**{**given, "related": related, "block": block, "source": source})


# ── the child ───────────────────────────────────────────────────────────────


def child() -> None:
    """Read the launch from stdin, run it under limits, and write the result."""
    limits = json.loads(sys.argv[1])
    asked = pickle.loads(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may be in the answer
    confine(limits["seconds"], limits["memory"])
    answer(Asked(*asked), out)


def confine(seconds: float | None, memory: int | None) -> None:
    """Limit memory, processor time and files of this process."""
    if resource is None:  # Windows
        raise Error("--isolated needs a system with limits of processes")

    def most(what: int, number: int) -> None:
        _, hard = resource.getrlimit(what)
        if hard != resource.RLIM_INFINITY:
            number = min(number, hard)
        resource.setrlimit(what, (number, number))

    most(resource.RLIMIT_CORE, 0)
    most(resource.RLIMIT_FSIZE, 0)
    if seconds is not None:
        most(resource.RLIMIT_CPU, math.ceil((seconds + GRACE) * cores()))
    if memory is not None and sys.platform == "linux":  # others do not keep to it
        most(resource.RLIMIT_AS, memory + BASE)


def answer(asked: Asked, out: BinaryIO) -> None:
    """Run the launch and write its result."""
    text, name, kernel, sizes, values, options, timeline = asked
    head: dict[str, object]
    try:
        found = parse(text, name).kernels[kernel]
        grid, block = sizes
        result = found.launch(grid, block, values, **options)
        head = {
            "counts": result.counts,
            "fidelity": result.fidelity,
            "output": result.output,
            "seconds": result.seconds,
            "target": result.target,
            "written_for": result.written_for,
            "watched": result.watched,
            "hazards": [_problem_json(each) for each in result.hazards],
            "problems": [_problem_json(each) for each in result.problems],
            "timeline": str(draw_timeline(result)) if timeline else "",
        }
    except KernelError as fault:
        head = {
            "error": type(fault).__name__,
            "message": fault.message,
            "before": fault.before,
            "kind": fault.kind,
            "line": fault.line,
            "source": fault.source,
            "block": fault.block,
            "thread": fault.thread,
            "output": fault.output,
            "problems": [_problem_json(each) for each in problems_of(fault)],
        }
    except (Error, MemoryError) as error:
        known = error if isinstance(error, Error) else Error("there is no memory left")
        head = {"error": type(known).__name__, "message": str(known)}
    arrays = arrays_of(values)
    head["arrays"] = [each.nbytes for each in arrays]
    made = json.dumps(head).encode()
    with out as stream:
        stream.write(struct.pack("<Q", len(made)) + made)
        for each in arrays:
            stream.write(each.tobytes())
